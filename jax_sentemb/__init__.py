"""Sentence embeddings without labels, in JAX and Flax."""

import os
import signal
import sys


def _is_our_command() -> bool:
    """Return whether this process is `jax-sentemb` or `python -m jax_sentemb...`, and not a program that imports the package."""
    command = "".join(sys.argv[:1])
    module = "".join(sys.orig_argv[sys.orig_argv.index("-m") + 1 :][:1]) if command == "-m" else ""
    return os.path.basename(command) == "jax-sentemb" or module.partition(".")[0] == "jax_sentemb"


if _is_our_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(130))  # no traceback while the rest is imported

import importlib  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

if TYPE_CHECKING:
    from jax_sentemb.data.shipped import sample_sentences
    from jax_sentemb.evaluation.score import score
    from jax_sentemb.evaluation.senteval_toolkit import senteval_batcher
    from jax_sentemb.inference.encoder import SentenceEncoder
    from jax_sentemb.parallel import use_compilation_cache
    from jax_sentemb.retrieval.deduplication import deduplicate
    from jax_sentemb.retrieval.kmeans import kmeans
    from jax_sentemb.retrieval.search import community_detection, mine_pairs, search
    from jax_sentemb.retrieval.vector_store import Vectors
    from jax_sentemb.training.api import train

__version__ = "0.1.0"
__all__ = [
    "SentenceEncoder",
    "Vectors",
    "__version__",
    "community_detection",
    "deduplicate",
    "kmeans",
    "mine_pairs",
    "sample_sentences",
    "score",
    "search",
    "senteval_batcher",
    "train",
    "use_compilation_cache",
]

_LAZY = {  # the module of each name, imported at the first use, so that the package itself is imported quickly
    "SentenceEncoder": "jax_sentemb.inference.encoder",
    "Vectors": "jax_sentemb.retrieval.vector_store",
    "community_detection": "jax_sentemb.retrieval.search",
    "deduplicate": "jax_sentemb.retrieval.deduplication",
    "kmeans": "jax_sentemb.retrieval.kmeans",
    "mine_pairs": "jax_sentemb.retrieval.search",
    "sample_sentences": "jax_sentemb.data.shipped",
    "score": "jax_sentemb.evaluation.score",
    "search": "jax_sentemb.retrieval.search",
    "senteval_batcher": "jax_sentemb.evaluation.senteval_toolkit",
    "train": "jax_sentemb.training.api",
    "use_compilation_cache": "jax_sentemb.parallel",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
