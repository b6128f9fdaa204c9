"""Pair embeddings and checks that the methods on labelled pairs of sentences share: SBERT, cross-encoders and InferSent."""

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
    """Raise ConfigError unless there are at least two different classes."""
    if len(set(classes)) < max(len(classes), 2):
        raise ConfigError(Setting("method.classes", tuple(classes)), " must be at least two different names")


def check_task(task: str, classes: tuple[str, ...], top_score: float) -> None:
    """Raise ConfigError for an unknown task, or for labels that it cannot have."""
    if task not in ("classes", "scores"):
        raise ConfigError(Setting("method.task", task), " is not 'classes' or 'scores'")
    check_classes(classes)
    if not top_score > 0:
        raise ConfigError(Setting("method.top_score", top_score), " must be greater than 0 (STS-B: 5)")
