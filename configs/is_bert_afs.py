r"""IS-BERT-AFS: IS-BERT on the sentences of an argument corpus, windows of 3, 5 and 7 tokens (Zhang et al. 2020, section 4.1.2).

jax-sentemb train --config is_bert_afs --workdir runs/is_bert_afs \
    --config.data.files=arguments.tsv --config.encoder.weights=path/to/bert
jax-sentemb evaluate --model runs/is_bert_afs --arguments arguments.tsv

data.files: a table; --config.data.column names its columns of sentences (here those of UKP ASPECT; AFS: sentence_1,sentence_2).
Published (BERT-base, AFS, mean over topics): Pearson 49.14, Spearman 45.25.
"""

from jax_sentemb.config import Config, Data, sized
from jax_sentemb.paper_configs import is_bert


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    return sized(is_bert(Data(column="sentence1,sentence2"), windows=(3, 5, 7)), size)
