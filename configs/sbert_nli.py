r"""SBERT on NLI: softmax over (u, v, |u - v|) of labelled pairs, a supervised baseline (Reimers and Gurevych 2019).

jax-sentemb train --config sbert_nli --workdir runs/sbert_nli \
    --config.data.files=nli.tsv --config.encoder.weights=path/to/bert --config.eval.data=path/to/SentEval/data

data.files: tables with the columns sentence1, sentence2 and label (contradiction, entailment, neutral, or 0, 1, 2 in this order).
Published (BERT-base, SNLI and MultiNLI, Spearman): STS average 74.89.
"""

from jax_sentemb.config import Config, sized
from jax_sentemb.methods.sbert import SBERT
from jax_sentemb.paper_configs import labelled_pairs


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    return sized(labelled_pairs(SBERT(task="classes"), epochs=1), size)
