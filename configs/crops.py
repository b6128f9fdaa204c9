r"""Crops: two overlapping packs of consecutive sentences of one document are a positive pair (Gonzalez-Marquez et al. 2025).

jax-sentemb train --config crops --workdir runs/crops \
    --config.data.files=ordered.txt --config.encoder.weights=path/to/encoder

A sentence a line, and a blank line between documents. For a document a line, or a field of a .jsonl file:
--config.method.documents=lines --config.data.column=abstract. The paper trains a BERT of base size for two epochs.
"""

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, Train, sized
from jax_sentemb.methods.crops import Crops


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    config = Config(
        method=Crops(),
        data=Data(max_seq_length=128, batch_size=64),
        optimizer=Optimizer(learning_rate=2e-5),
        eval=Evaluation(eval_steps=250),
        train=Train(num_train_epochs=2),
    )
    return sized(config, size)
