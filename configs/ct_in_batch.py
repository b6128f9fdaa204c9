r"""Contrastive Tension with in-batch negatives: cross entropy over all pairs of the batch (sentence-transformers' form).

jax-sentemb train --config ct_in_batch --workdir runs/ct_in_batch \
    --config.data.files=corpus.txt --config.encoder.weights=path/to/bert --config.eval.data=path/to/SentEval/data

It converges in far fewer steps than configs/ct.py, and is trained with dropout, as in sentence-transformers. There are no
published STS scores.
"""

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, Train, sized
from jax_sentemb.methods.contrastive_tension import ContrastiveTension


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    config = Config(
        method=ContrastiveTension(form="in_batch", dropout=True),
        data=Data(max_seq_length=75, batch_size=64),
        optimizer=Optimizer(learning_rate=5e-5),
        eval=Evaluation(eval_steps=500),
        train=Train(max_steps=5000),
    )
    return sized(config, size)
