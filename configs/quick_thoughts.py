r"""QuickThoughts: two recurrent encoders find a sentence's neighbours in the batch (Logeswaran and Lee 2018).

jax-sentemb train --config quick_thoughts --workdir runs/quick_thoughts \
    --config.data.files=ordered.txt --config.encoder.vectors=glove.840B.300d.txt --config.eval.data=path/to/SentEval/data

data.files: consecutive sentences, one a line (a shuffled corpus is refused).
"""

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, Words, sized
from jax_sentemb.methods.quick_thoughts import QuickThoughts


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    config = Config(
        method=QuickThoughts(hidden=12 if size == "tiny" else 600),
        data=Data(max_seq_length=30, batch_size=400),
        encoder=Words(),
        optimizer=Optimizer(learning_rate=5e-4, lr_scheduler_type="constant", max_grad_norm=5.0),
        eval=Evaluation(eval_steps=500),
    )
    return sized(config, size)
