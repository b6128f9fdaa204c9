r"""IS-BERT's encoder fine-tuned on STS-B scores without prior self-supervised training: `ft` in the paper's STS-B table.

jax-sentemb train --config is_bert_ft --workdir runs/is_bert_ft \
    --config.encoder.weights=path/to/bert --config.eval.data=path/to/SentEval/data --config.sweep=train.seed=1..10

Your own scored pairs: --config.data.files=pairs.tsv (sentence1, sentence2, score from 0 to 5).
The paper gives no schedule; this is that of SBERT on STS-B. Published (BERT-base, ten seeds): 74.25 +- 0.94.
"""

from jax_sentemb.config import Config, sized
from jax_sentemb.methods.sbert import SBERT
from jax_sentemb.models.cnn import Convolution
from jax_sentemb.paper_configs import stsb


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    return sized(stsb(SBERT(task="scores", convolution=Convolution())), size)
