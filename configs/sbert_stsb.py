r"""SBERT on STS-B: cosine regression on labelled pairs, a supervised baseline (Reimers and Gurevych 2019).

jax-sentemb train --config sbert_stsb --workdir runs/sbert_stsb \
    --config.encoder.weights=path/to/bert --config.eval.data=path/to/SentEval/data

Your own scored pairs: --config.data.files=pairs.tsv (sentence1, sentence2, score from 0 to 5).
Published (BERT-base, ten seeds): STS-B test 84.67 +- 0.19.
"""

from jax_sentemb.config import Config, sized
from jax_sentemb.methods.sbert import SBERT
from jax_sentemb.paper_configs import stsb


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    return sized(stsb(SBERT(task="scores")), size)
