"""Define what the tasks on files of the user share: the texts that need vectors, and the scores of a model on the items."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from jax_sentemb.cosines import unit_length
from jax_sentemb.data.tokenizer import Lines
from jax_sentemb.errors import RETRAIN, NumericsError
from jax_sentemb.evaluation.measures import Scored
from jax_sentemb.provenance import Source
from jax_sentemb.retrieval.sources import VectorSource
from jax_sentemb.types import OnProgress, no_progress


class Texts(NamedTuple):
    """Texts of a task that need vectors. An empty text has a vector of zeros."""

    lines: Lines
    source: Source
    role: str = ""  # "query" or "document"; "": the texts are compared with each other


AT_ONCE = 4096  # vectors that are compared at once
SAME_VECTOR = 1e-5  # a smaller difference of two numbers of unit vectors is a rounding error
Vectors = Mapping[str, VectorSource]  # by the names of `UserTask.texts`
Encode = Callable[[str, Texts], VectorSource]


def check_distinct(vectors: VectorSource, texts: Texts) -> None:
    """Raise NumericsError if all vectors of different texts are equal, which makes every ranking arbitrary."""
    first = None
    for start in range(0, len(vectors), AT_ONCE):
        rows = np.asarray(vectors[start : start + AT_ONCE], np.float32)
        rows = unit_length(rows[np.abs(rows).max(axis=1) > 0])
        first = rows[:1] if first is None or not len(first) else first
        if len(rows) and np.abs(rows - first).max() > SAME_VECTOR:
            return
    if len(set(texts.lines) - {""}) > 1:
        raise NumericsError(f"all {len(vectors):,} {texts.role or 'text'} vectors are equal: the embeddings collapsed; {RETRAIN}")


class UserTask(Protocol):
    """A task on the files of a user.

    Attributes:
        name: The type of the task: pairs, retrieval or labels.
        title: The heading of its table.
        item_name: The name of the items, in the plural.
        main: The measure that selects a checkpoint.
        texts: The texts that need vectors, by name.
        notes: Remarks on the files for the user, one line each.
        facts: The files and sizes, for the results.
    """

    name: str
    title: str
    item_name: str
    main: str
    texts: dict[str, Texts]
    notes: list[str]
    facts: dict[str, Any]

    def score(self, name: str, vectors: Vectors, progress: OnProgress = no_progress) -> Iterator[tuple[str, Scored]]:
        """Yield the scores of a model by its name in the table, and those of its combinations with a baseline."""
        ...

    def baselines(self, progress: OnProgress = no_progress) -> Iterator[tuple[str, Scored]]:
        """Yield the scores of the systems that need no model."""
        ...

    def constants(self) -> dict[str, dict[str, float]]:
        """Return the values that need no system, such as the chance level, by their names in the table."""
        ...
