r"""ConsSent-R(2): half of the sentences get some random words, and a classifier finds these sentences (Brahma 2018).

jax-sentemb train --config cons_sent --workdir runs/cons_sent \
    --config.data.files=corpus.txt --config.encoder.vectors=crawl-300d-2M.vec.gz --config.eval.data=path/to/SentEval/data

Other tasks: --config.method.task=D --config.method.k=5 (delete), P 3 (permute), I 3 (insert), R 2 (replace); N 3, C 4 (rank).
Published (15 million news sentences, ten transfer tasks): average 84.1. Score them with --config.eval.tasks=transfer.
"""

from jax_sentemb.config import Config
from jax_sentemb.paper_configs import cons_sent


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    return cons_sent("R", 2, size)
