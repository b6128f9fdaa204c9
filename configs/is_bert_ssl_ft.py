r"""IS-BERT on the sentences of STS-B's training pairs, then fine-tuned on their scores: `ssl+ft` in the paper's STS-B table.

jax-sentemb train --config is_bert_ssl_ft --workdir runs/is_bert_ssl_ft \
    --config.encoder.weights=path/to/bert --config.eval.data=path/to/SentEval/data --config.sweep=train.seed=1..10

Published (BERT-base, ten seeds): 84.84 +- 0.43, against 74.25 for fine-tuning alone.
"""

from jax_sentemb.config import Config, Data, sized
from jax_sentemb.methods.sbert import SBERT
from jax_sentemb.models.cnn import Convolution
from jax_sentemb.paper_configs import is_bert, stsb


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    config = stsb(SBERT(task="scores", convolution=Convolution()))
    config.pretrain = is_bert(Data(files="senteval:STSBenchmark/train"), eval_steps=100)
    return sized(config, size)
