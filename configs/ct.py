r"""Contrastive Tension: two encoders agree on the same sentence and disagree on different ones (Carlsson et al. 2021).

jax-sentemb train --config ct --workdir runs/ct \
    --config.data.files=corpus.txt --config.encoder.weights=path/to/bert --config.eval.data=path/to/SentEval/data

Settings of the published code: RMSprop whose rate falls in steps, one positive pair in eight, no dropout.
Published (BERT-base, mean pooling, Spearman): STS average 73.36; miCSE's rerun on Wikipedia 72.69.
"""

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, Train, sized
from jax_sentemb.methods.contrastive_tension import ContrastiveTension


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    config = Config(
        method=ContrastiveTension(),
        data=Data(max_seq_length=75, batch_size=16),
        optimizer=Optimizer(
            name="rmsprop",
            learning_rate=1e-5,
            lr_scheduler_type="steps",
            lr_steps="500:8e-6,1000:6e-6,1500:4e-6,2000:2e-6",
            adam_epsilon=1e-7,
            max_grad_norm=0.0,
        ),
        eval=Evaluation(eval_steps=500),
        train=Train(max_steps=5000),
    )
    return sized(config, size)
