r"""IS-BERT-NLI: mutual information of a sentence and its tokens, on NLI sentences without their labels (Zhang et al. 2020).

jax-sentemb train --config is_bert --workdir runs/is_bert \
    --config.data.files=nli.tsv --config.encoder.weights=path/to/bert --config.eval.data=path/to/SentEval/data

data.files: text files, or tables with the columns sentence1 and sentence2; each distinct sentence is used once.
Published (BERT-base, all sentences of SNLI and MultiNLI, Spearman): STS average 66.58, STS-B 69.21.
"""

from jax_sentemb.config import Config, Data, sized
from jax_sentemb.paper_configs import is_bert


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    return sized(is_bert(Data(column="sentence1,sentence2")), size)
