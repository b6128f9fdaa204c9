r"""An LSTM language model whose last state is the embedding: ConsSent's baseline without perturbations (Brahma 2018).

jax-sentemb train --config language_model --workdir runs/language_model \
    --config.data.files=corpus.txt --config.eval.data=path/to/SentEval/data

The word vectors are trained with it, as in the paper. Published: average 75.0 on ten transfer tasks.
"""

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, Train, Words, sized
from jax_sentemb.methods.language_model import LanguageModel


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    config = Config(
        method=LanguageModel(hidden=12, candidates=32) if size == "tiny" else LanguageModel(),
        data=Data(max_seq_length=64, batch_size=64),
        encoder=Words(hidden_size=512, trained=True),
        optimizer=Optimizer(learning_rate=1e-3, lr_scheduler_type="linear", max_grad_norm=5.0),
        eval=Evaluation(eval_steps=1000),
        train=Train(num_train_epochs=1),
    )
    return sized(config, size)
