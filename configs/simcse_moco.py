r"""MoCo+SimCSE: SimCSE with a queue of negatives from a momentum encoder, without AMI (miCSE paper, Tables 2 and 3).

jax-sentemb train --config simcse_moco --workdir runs/simcse_moco \
    --config.data.files=corpus.txt --config.encoder.weights=path/to/bert --config.eval.data=path/to/SentEval/data

Published (BERT-base, a million Wikipedia sentences, Spearman): STS average 76.81; at 0.1 % of them 69.54.
"""

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, sized
from jax_sentemb.methods.simcse import Momentum, SimCSE


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    config = Config(
        method=SimCSE(temperature=0.05, momentum=Momentum(queue_size=384, decay=0.995)),
        data=Data(max_seq_length=32, batch_size=50),
        optimizer=Optimizer(learning_rate=3e-5, warmup_steps=250),
        eval=Evaluation(eval_steps=500),
    )
    return sized(config, size)
