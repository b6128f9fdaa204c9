"""Sentence embeddings without labels, in JAX and Flax."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jax_sentemb.encode import SentenceEncoder

__version__ = "0.1.0"
__all__ = ["SentenceEncoder", "__version__"]


def __getattr__(name: str) -> Any:
    """`SentenceEncoder`, imported when it is asked for: the package itself stays quick to import."""
    if name == "SentenceEncoder":
        from jax_sentemb.encode import SentenceEncoder

        return SentenceEncoder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
