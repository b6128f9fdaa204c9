r"""ConsSent-MT(3): one encoder for the four perturbations, and another for the two ways to split a sentence (Brahma 2018).

jax-sentemb train --config cons_sent_multitask --workdir runs/cons_sent_multitask \
    --config.data.files=corpus.txt --config.encoder.vectors=crawl-300d-2M.vec.gz --config.eval.data=path/to/SentEval/data

Published (15 million news sentences, ten transfer tasks): average 84.4. Score them with --config.eval.tasks=transfer.
"""

from jax_sentemb.config import Config
from jax_sentemb.paper_configs import cons_sent


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    return cons_sent("MT", 3, size)
