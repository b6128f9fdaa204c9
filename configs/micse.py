r"""miCSE: contrastive learning with a momentum queue and attention mutual information (Klein and Nabi 2023).

jax-sentemb train --config micse --workdir runs/micse \
    --config.data.files=corpus.txt --config.encoder.weights=path/to/bert --config.eval.data=path/to/SentEval/data

Settings of the paper's full-data run. For a part of the corpus (--config.data.subset) the published code uses learning rate 1e-5,
batch 64, no warm-up and ami.weight 5e-4, 1e-4, 1e-3 for 10 %, 1 %, 0.1 % of a million sentences.
Published (BERT-base, a million Wikipedia sentences, Spearman): STS average 78.13; about 1.5 h on a V100.
"""

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, sized
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.methods.simcse import Momentum, SimCSE


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    config = Config(
        method=SimCSE(temperature=0.05, ami=AttentionMI(weight=2.5e-3), momentum=Momentum(queue_size=384, decay=0.995)),
        data=Data(max_seq_length=32, batch_size=50),
        optimizer=Optimizer(learning_rate=3e-5, warmup_steps=250),
        eval=Evaluation(eval_steps=500),
    )
    return sized(config, size)
