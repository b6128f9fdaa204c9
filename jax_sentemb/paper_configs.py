"""Build the configs of papers with several recipes: each function returns the config of one row of their tables.

configs/*.py call these functions; `size` is "" or "tiny".
"""

from dataclasses import replace

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, Train, Words, sized
from jax_sentemb.methods.base import Method
from jax_sentemb.methods.cons_sent import ConsSent
from jax_sentemb.methods.is_bert import ISBERT
from jax_sentemb.models.cnn import Convolution


def cons_sent(task: str, k: int, size: str) -> Config:
    """Return the config of ConsSent (Brahma 2018) for a task and its k; MT has two encoders of half the width."""
    width = 8 if size == "tiny" else 512
    encoders = 2 if task == "MT" else 1
    config = recurrent(ConsSent(task=task, k=k, hidden=4 * width // encoders, classifier_width=width), validation=50_000)
    config.data.length_grouping = 1
    return sized(config, size)


def recurrent(method: Method, validation: int) -> Config:
    """Return a config of an LSTM over word vectors with InferSent's schedule (Conneau et al. 2017), which ConsSent also uses."""
    return Config(
        method=method,
        data=Data(max_seq_length=64, batch_size=64, validation=validation),
        encoder=Words(),
        optimizer=Optimizer(
            name="sgd", learning_rate=0.1, lr_scheduler_type="exponential", lr_decay=0.99, plateau_factor=0.2, max_grad_norm=5.0
        ),
        eval=Evaluation(eval_steps=-1, select="validation"),
        train=Train(num_train_epochs=20),
    )


def labelled_pairs(method: Method, files: str = "", epochs: int = 4, eval_steps: int = 1000) -> Config:
    """Return a config of pairs with labels or scores, with the schedule of SBERT (Reimers and Gurevych 2019)."""
    return Config(
        method=method,
        data=Data(files=files, max_seq_length=128, batch_size=16),
        optimizer=Optimizer(learning_rate=2e-5, warmup_ratio=0.1, weight_decay=0.01),
        eval=Evaluation(eval_steps=eval_steps),
        train=Train(num_train_epochs=epochs),
    )


def stsb(method: Method) -> Config:
    """Return a config of the scored pairs of STS-B."""
    return labelled_pairs(method, "senteval:STSBenchmark")


def arguments(method: Method, size: str) -> Config:
    """Return a config of argument pairs in ten folds; the tested part does not select the weights."""
    config = labelled_pairs(method)
    config.eval = Evaluation(eval_steps=0, select="last")
    config.train = replace(config.train, save_steps=0)
    config.sweep = "data.fold=all"
    return sized(config, size)


def is_bert(data: Data, windows: tuple[int, ...] = (1, 3, 5), eval_steps: int = 1000) -> Config:
    """Return a config of IS-BERT (Zhang et al. 2020) with the optimiser of its published code; the rate in the paper is 1e-6."""
    return Config(
        method=ISBERT(convolution=Convolution(windows=windows)),
        data=replace(data, max_seq_length=130, batch_size=32),
        optimizer=Optimizer(learning_rate=2e-6, warmup_ratio=0.1, weight_decay=0.01, adam_epsilon=1e-7, adam_bias_correction=False),
        eval=Evaluation(eval_steps=eval_steps),
    )
