r"""SimCSE, unsupervised: two dropout views of a sentence against the other sentences of the batch (Gao et al. 2021).

jax-sentemb train --config simcse --workdir runs/simcse \
    --config.data.files=corpus.txt --config.encoder.weights=path/to/bert --config.eval.data=path/to/SentEval/data

Settings of its published script for BERT-base. Published (a million Wikipedia sentences, Spearman): STS average 76.25; 76.15 in the
rerun of the miCSE paper.
"""

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, sized
from jax_sentemb.methods.simcse import SimCSE


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    config = Config(
        method=SimCSE(temperature=0.05),
        data=Data(max_seq_length=32, batch_size=64),
        optimizer=Optimizer(learning_rate=3e-5),
        eval=Evaluation(eval_steps=250),
    )
    return sized(config, size)
