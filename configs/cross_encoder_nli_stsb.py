"""A BERT cross-encoder on NLI pairs, then on STS-B: a small BERT learns from NLI first how two sentences in one row compare.

python -m jax_sentemb.main --config configs/cross_encoder_nli_stsb.py --workdir runs/cross_encoder_nli_stsb \\
    --config.pretrain.data.files=nli.tsv --config.encoder.weights=path/to/bert --config.eval.data=path/to/SentEval/data

before.data.files: tables with the columns sentence1, sentence2 and label (entailment, neutral, contradiction).
The rates are for a small BERT (4 layers of 256); BERT-base takes 2e-5 in both runs.
"""

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, Train, sized
from jax_sentemb.methods.cross_encoder import CrossEncoder


def get_config(size: str = "") -> Config:
    config = Config(
        method=CrossEncoder(),
        data=Data(files="senteval:STSBenchmark", max_seq_length=128, batch_size=16),
        optimizer=Optimizer(learning_rate=3e-4, warmup_ratio=0.1, weight_decay=0.01),
        eval=Evaluation(eval_steps=360),
        train=Train(num_train_epochs=4),
        pretrain=Config(
            method=CrossEncoder(task="classes"),
            data=Data(max_seq_length=128, batch_size=32),
            optimizer=Optimizer(learning_rate=3e-4, warmup_ratio=0.1, weight_decay=0.01),
            eval=Evaluation(eval_steps=500),
            train=Train(num_train_epochs=2),
        ),
    )
    return sized(config, size)
