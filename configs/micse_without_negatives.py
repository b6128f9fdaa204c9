r"""miCSE without negatives: the positive pair and AMI only (miCSE paper, Table 4).

jax-sentemb train --config micse_without_negatives --workdir runs/micse_without_negatives \
    --config.data.files=corpus.txt --config.encoder.weights=path/to/bert --config.eval.data=path/to/SentEval/data

Published (BERT-base, a million Wikipedia sentences, Spearman): STS average 54.34, against 40.18 for SimCSE without negatives
(--config.method.ami=None).
"""

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, sized
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.methods.simcse import SimCSE


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    config = Config(
        method=SimCSE(temperature=0.05, negatives=False, ami=AttentionMI(weight=2.5e-3)),
        data=Data(max_seq_length=32, batch_size=50),
        optimizer=Optimizer(learning_rate=3e-5, warmup_steps=250),
        eval=Evaluation(eval_steps=500),
    )
    return sized(config, size)
