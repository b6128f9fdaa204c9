r"""A BERT cross-encoder on STS-B: both sentences of a pair in one row, a supervised baseline without embeddings.

jax-sentemb train --config cross_encoder_stsb --workdir runs/cross_encoder_stsb \
    --config.encoder.weights=path/to/bert --config.eval.data=path/to/SentEval/data

Your own scored pairs: --config.data.files=pairs.tsv (sentence1, sentence2, score from 0 to 5).
Published (BERT-base, ten seeds): STS-B test 84.30 +- 0.76.
"""

from jax_sentemb.config import Config, sized
from jax_sentemb.methods.cross_encoder import CrossEncoder
from jax_sentemb.paper_configs import stsb


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    return sized(stsb(CrossEncoder()), size)
