"""SBERT on argument pairs: cosine regression, ten folds or unseen topics (Reimers and Gurevych 2019; IS-BERT, Table 2).

python -m jax_sentemb.main --config configs/arguments_sbert.py --workdir runs/arguments_sbert \\
    --config.data.files=arguments:UKP_ASPECT.tsv --config.encoder.weights=path/to/bert

One command is one row of the table: a run for each fold, and their mean in sweep.md; --config.data.scheme=cross-topic leaves a
topic out in each run. AFS: --config.data.files=arguments:FOLDER with its three ArgPairs files. One fold alone: --config.sweep= and
--config.data.fold=3. The last weights count: nothing of the tested part selects them. Epochs and rate are those of STS-B.
Published (BERT-base, AFS; Pearson, Spearman): 76.57 and 74.13 (ten folds), 52.34 and 50.65 (cross-topic).
"""

from jax_sentemb.config import Config
from jax_sentemb.families import arguments
from jax_sentemb.methods.sbert import SBERT


def get_config(size: str = "") -> Config:
    return arguments(SBERT(task="scores"), size)
