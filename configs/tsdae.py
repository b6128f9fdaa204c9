r"""TSDAE: a decoder writes a sentence from the embedding of a copy without most of its tokens (Wang et al. 2021).

jax-sentemb train --config tsdae --workdir runs/tsdae \
    --config.data.files=corpus.txt --config.encoder.weights=path/to/bert

Settings of the published code: [CLS], constant learning rate, batches of 8. The paper trains on 10,000 to 100,000 sentences of the
domain.
"""

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, sized
from jax_sentemb.methods.tsdae import TSDAE


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    config = Config(
        method=TSDAE(deletion=0.6, pooling="cls"),
        data=Data(max_seq_length=64, batch_size=8),
        optimizer=Optimizer(learning_rate=3e-5, lr_scheduler_type="constant"),
        eval=Evaluation(eval_steps=1000),
    )
    return sized(config, size)
