r"""SBERT on argument pairs: cosine regression, ten folds or unseen topics (Reimers and Gurevych 2019; IS-BERT, Table 2).

jax-sentemb train --config arguments_sbert --workdir runs/arguments_sbert \
    --config.data.files=arguments:UKP_ASPECT.tsv --config.encoder.weights=path/to/bert

One command makes one row of the table: a run for each fold, and their mean in sweep.md. With --config.data.scheme=cross-topic each
run leaves one topic out. For AFS, --config.data.files=arguments:FOLDER names the folder of its three ArgPairs files. For one fold
add --config.sweep= --config.data.fold=3. The last weights are scored, so the tested part does not select them. Epochs and rate are
those of STS-B.
Published (BERT-base, AFS; Pearson, Spearman): 76.57 and 74.13 (ten folds), 52.34 and 50.65 (cross-topic).
"""

from jax_sentemb.config import Config
from jax_sentemb.methods.sbert import SBERT
from jax_sentemb.paper_configs import arguments


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    return arguments(SBERT(task="scores"), size)
