"""SBERT on NLI: softmax over (u, v, |u - v|) of labelled pairs, a supervised baseline (Reimers and Gurevych 2019).

python -m jax_sentemb.main --config configs/sbert_nli.py --workdir runs/sbert_nli \\
    --config.data.files=nli.tsv --config.encoder.weights=path/to/bert --config.eval.data=path/to/SentEval/data

data.files: tables with the columns sentence1, sentence2 and label (contradiction, entailment, neutral, or 0, 1, 2 in this order).
Published (BERT-base, SNLI and MultiNLI, Spearman): STS average 74.89.
"""

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, Train, sized
from jax_sentemb.methods.sbert import SBERT


def get_config(size: str = "") -> Config:
    config = Config(
        method=SBERT(task="classes"),
        data=Data(max_seq_length=128, batch_size=16),
        optimizer=Optimizer(learning_rate=2e-5, warmup_ratio=0.1, weight_decay=0.01),
        eval=Evaluation(eval_steps=1000),
        train=Train(num_train_epochs=1),
    )
    return sized(config, size)
