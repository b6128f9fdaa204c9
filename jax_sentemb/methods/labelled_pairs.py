"""Pair embeddings and checks that are common to the methods on labelled pairs: SBERT, cross-encoders and InferSent."""

from typing import NamedTuple

from jaxtyping import Float

from jax_sentemb.errors import ConfigError, Setting
from jax_sentemb.types import Array


class EncodedPairs(NamedTuple):
    """Embeddings of both sentences of each pair, and the label of the pair."""

    first: Float[Array, "batch embedding"]
    second: Float[Array, "batch embedding"]
    label: Float[Array, " batch"]


def check_classes(classes: tuple[str, ...]) -> None:
    """Raise ConfigError unless there are at least two classes that differ in more than capital letters."""
    if len({name.lower() for name in classes}) < max(len(classes), 2):
        raise ConfigError(Setting("method.classes", tuple(classes)), " must be at least two different names")
