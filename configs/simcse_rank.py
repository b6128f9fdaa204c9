r"""SimCSE with rank consistency: both dropout views of a sentence rank the other sentences equally (RankCSE without a teacher).

jax-sentemb train --config simcse_rank --workdir runs/simcse_rank \
    --config.data.files=corpus.txt --config.encoder.weights=path/to/bert --config.eval.data=path/to/SentEval/data

Weight and temperature are those of Liu et al. 2023. Their full method also learns from a teacher; that loss is in the recipe
distill_encoder with --config.method.rank=1.
"""

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, sized
from jax_sentemb.methods.simcse import SimCSE


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    config = Config(
        method=SimCSE(temperature=0.05, rank_consistency=1.0, rank_temperature=0.05),
        data=Data(max_seq_length=32, batch_size=128),
        optimizer=Optimizer(learning_rate=3e-5),
        eval=Evaluation(eval_steps=250),
    )
    return sized(config, size)
