r"""Neighbouring sentences as positive pairs, for running text with a sentence a line and a blank line between documents.

jax-sentemb train --config neighbours --workdir runs/neighbours \
    --config.data.files=books.txt --config.encoder.weights=path/to/bert

Temperature and positives are similar to those of DeCLUTR (Giorgi et al. 2021), whose pairs are longer spans of a document.
"""

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, sized
from jax_sentemb.methods.neighbours import Neighbours


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    config = Config(
        method=Neighbours(temperature=0.05),
        data=Data(max_seq_length=32, batch_size=64),
        optimizer=Optimizer(learning_rate=3e-5),
        eval=Evaluation(eval_steps=250),
    )
    return sized(config, size)
