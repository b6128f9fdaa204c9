r"""ESimCSE: SimCSE whose second view repeats some tokens, with a queue of negatives from a momentum encoder (Wu et al. 2022).

jax-sentemb train --config esimcse --workdir runs/esimcse \
    --config.data.files=corpus.txt --config.encoder.weights=path/to/bert --config.eval.data=path/to/SentEval/data

The momentum encoder has no dropout and the queue 2.5 batches, as in the published code. Published (BERT-base, a million Wikipedia
sentences, Spearman): STS average 78.27.
"""

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, sized
from jax_sentemb.methods.simcse import Momentum, SimCSE


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    config = Config(
        method=SimCSE(temperature=0.05, repetition=0.32, momentum=Momentum(queue_size=160, decay=0.995, dropout=0.0)),
        data=Data(max_seq_length=32, batch_size=64),
        optimizer=Optimizer(learning_rate=3e-5),
        eval=Evaluation(eval_steps=250),
    )
    return sized(config, size)
