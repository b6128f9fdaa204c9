"""A BERT cross-encoder on argument pairs, ten folds or unseen topics (Reimers and Gurevych 2019; IS-BERT, Table 2).

python -m jax_sentemb.main --config configs/arguments_cross_encoder.py --workdir runs/arguments_cross_encoder \\
    --config.data.files=arguments:UKP_ASPECT.tsv --config.encoder.weights=path/to/bert

One command is one row of the table: a run for each fold, and their mean in sweep.md; --config.data.scheme=cross-topic leaves a
topic out in each run. AFS: --config.data.files=arguments:FOLDER with its three ArgPairs files. One fold alone: --config.sweep= and
--config.data.fold=3. The last weights count: nothing of the tested part selects them. Epochs and rate are those of STS-B.
Published (BERT-base, AFS; Pearson, Spearman): 77.20 and 74.84 (ten folds), 58.49 and 57.23 (cross-topic).
"""

from jax_sentemb.config import Config
from jax_sentemb.families import arguments
from jax_sentemb.methods.cross_encoder import CrossEncoder


def get_config(size: str = "") -> Config:
    return arguments(CrossEncoder(), size)
