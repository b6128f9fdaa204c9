r"""A BERT cross-encoder on argument pairs, ten folds or unseen topics (Reimers and Gurevych 2019; IS-BERT, Table 2).

jax-sentemb train --config arguments_cross_encoder --workdir runs/arguments_cross_encoder \
    --config.data.files=arguments:UKP_ASPECT.tsv --config.encoder.weights=path/to/bert

One command makes one row of the table: a run for each fold, and their mean in sweep.md. With --config.data.scheme=cross-topic each
run leaves one topic out. For AFS, --config.data.files=arguments:FOLDER names the folder of its three ArgPairs files. For one fold
add --config.sweep= --config.data.fold=3. The last weights are scored, so the tested part does not select them. Epochs and rate are
those of STS-B.
Published (BERT-base, AFS; Pearson, Spearman): 77.20 and 74.84 (ten folds), 58.49 and 57.23 (cross-topic).
"""

from jax_sentemb.config import Config
from jax_sentemb.methods.cross_encoder import CrossEncoder
from jax_sentemb.paper_configs import arguments


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    return arguments(CrossEncoder(), size)
