"""Score models on a task of the user: a row for each system, with intervals and differences to the first model."""

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from jax_sentemb.checks import array, text, whole_number
from jax_sentemb.errors import RETRAIN, ConfigError, DataError, NumericsError
from jax_sentemb.evaluation import bm25
from jax_sentemb.evaluation.label_task import CHANCE, LARGEST_CLASS, LabelTask
from jax_sentemb.evaluation.measures import Estimate, Scored, bootstrap, differences, intervals, values_of
from jax_sentemb.evaluation.pair_task import PairTask
from jax_sentemb.evaluation.retrieval_task import RetrievalTask
from jax_sentemb.evaluation.user_task import UserTask
from jax_sentemb.evaluation.word_baselines import TF_IDF
from jax_sentemb.inference.encoded_texts import encode_into, encoded_sources
from jax_sentemb.inference.encoder import SentenceEncoder
from jax_sentemb.retrieval.sources import VectorSource
from jax_sentemb.types import OnCount, OnProgress, no_progress

# The options of each task: arguments of its class.
OPTIONS = {"pairs": ("columns",), "retrieval": ("split", "has_bm25"), "labels": ("label_column", "column", "sample")}
# Options of the command line and arguments of `score_files`.
KEYWORDS = {"--split": "split", "--pair-columns": "columns", "--label-column": "label_column", "--column": "column"}
logger = logging.getLogger("jax_sentemb")


class Row(NamedTuple):
    """A system in the table of a task."""

    system: str
    values: dict[str, float]
    intervals: Mapping[str, Estimate] = {}  # empty for values that need no system, or without draws
    differences: Mapping[str, Estimate] = {}  # to the first model
    facts: dict[str, float] = {}


class Draws(NamedTuple):
    """The values of the first model, and those on draws of the items."""

    values: dict[str, float]
    draws: dict[str, Any]


class Table:
    """Collects the rows of a task. `rows` are the models, the systems without a model, their combinations and the constants."""

    def __init__(self, task: UserTask, resamples: int) -> None:
        """`resamples`: draws for the intervals; 0: no intervals."""
        self.task, self._resamples = task, resamples
        self.items, self.first = 0, ""
        self._reference: Draws | None = None
        self._models: list[Row] = []
        self._combined: list[Row] = []
        self._systems: list[Row] = []

    def add_model(self, name: str, vectors: Mapping[str, VectorSource], progress: OnProgress = no_progress) -> Row:
        """Score a model, and return its row.

        Raises:
            NumericsError: The embeddings of the model are not finite or have collapsed.
        """
        for number, (system, scored) in enumerate(self.task.score(name, vectors, progress)):
            (self._combined if number else self._models).append(self._row(system, scored))
        return self._models[-1]

    def add_baselines(self, progress: OnProgress = no_progress) -> None:
        """Score the systems that need no model."""
        self._systems += [self._row(system, scored) for system, scored in self.task.baselines(progress)]

    @property
    def rows(self) -> list[Row]:
        """Return all rows in the order of the table."""
        constants = [Row(system, values) for system, values in self.task.constants().items()]
        return [*self._models, *self._systems, *self._combined, *constants]

    def _row(self, system: str, scored: Scored) -> Row:
        values = values_of(scored)
        if not self._resamples:
            self.items, self.first = scored.items, self.first or system
            return Row(system, values, facts=scored.facts)
        draws = bootstrap(scored, self._resamples)
        row = Row(system, values, intervals(values, draws), facts=scored.facts)
        if self._reference is None:
            self.items, self.first, self._reference = scored.items, system, Draws(values, draws)
            return row
        return row._replace(differences=differences(values, draws, *self._reference))


def check_name(name: str) -> None:
    """Raise ConfigError if another row of a table has the name of a model."""
    if name in (CHANCE, LARGEST_CLASS, bm25.NAME, TF_IDF) or name.endswith(f" + {bm25.NAME}"):
        raise ConfigError(f"--model {name}: the tables have a row of this name; write NAME=PATH with another name")


def open_task(setting: str, name: str, path: str, **options: Any) -> UserTask:
    """Open the task `name`, a key of OPTIONS, of a file or folder; ConfigError for an option that it does not have."""
    text(name, path)
    if unknown := [option for option in options if option not in OPTIONS[name]]:
        raise ConfigError(f"{unknown[0]} is not an option of {name}; the options are {', '.join(OPTIONS[name])}")
    tasks: dict[str, Callable[..., UserTask]] = {"pairs": PairTask, "retrieval": RetrievalTask, "labels": LabelTask}
    return tasks[name](setting, path, **options)


def encoder_vectors(
    encoder: Any, name: str, task: UserTask, folder: Path, batch_size: int, progress: OnCount = no_progress
) -> Iterator[tuple[str, VectorSource]]:
    """Yield the vectors of each of the texts of a task by its name.

    A SentenceEncoder writes them below `folder`, where a later call continues. Other encoders encode at once, in memory, queries
    and documents by methods of their own if they have them.
    """
    for key, texts in task.texts.items():
        if isinstance(encoder, SentenceEncoder):
            sources = encoded_sources(encoder, name, texts.source, texts.role)
            yield key, encode_into(folder / key, encoder, sources, texts.lines, texts.role, batch_size, progress)
        else:
            yield key, embeddings_of(encoder, list(texts.lines), texts.role)


def score_files(encoder: Any, name: str, path: str | Path, resamples: int, **options: Any) -> dict[str, Any]:
    """Score an encoder on a file or folder of the user, for Python.

    Returns:
        The number of items, the value of each measure x 100, and "intervals" {measure: [low, high]} unless there are no draws.
    """
    resamples = whole_number("resamples", resamples, 0)
    if "has_bm25" in options:
        raise ConfigError("has_bm25 is an option of the command line, which also prints BM25; leave it out")
    if name == "retrieval":
        options = {**options, "has_bm25": False}
    try:
        task = open_task(name, name, str(path) if isinstance(path, Path) else path, **options)
    except (ConfigError, DataError) as error:
        raise error.rename(KEYWORDS) from None
    for note in task.notes:
        logger.warning("%s: %s", name, note)
    table = Table(task, resamples)
    with tempfile.TemporaryDirectory(prefix="jax_sentemb-") as folder:
        vectors = dict(encoder_vectors(encoder, "encoder", task, Path(folder), 64))
        row = table.add_model("encoder", vectors)
    bounds = {"intervals": {measure: [each.low, each.high] for measure, each in row.intervals.items()}} if resamples else {}
    return {task.item_name: table.items, **row.values, **row.facts, **bounds}


def embeddings_of(encoder: Any, lines: list[str], role: str = "") -> Float[np.ndarray, "texts width"]:
    """Return the embeddings of an object with a method `encode`. For the role "query", it may have `encode_query`, and so on.

    Raises:
        ConfigError: It has no such method, or does not return a row of real numbers for each text.
        NumericsError: A number is not finite.
    """
    if not hasattr(encoder, "encode"):
        raise ConfigError(f"encoder is {type(encoder).__name__}: give a SentenceEncoder")
    method = f"encode_{role}" if role and hasattr(encoder, f"encode_{role}") else "encode"
    vectors = array(f"the result of encoder.{method}", getattr(encoder, method)(lines))
    if vectors.ndim != 2 or len(vectors) != len(lines):
        raise ConfigError(f"encoder.{method} returned the shape {vectors.shape} for {len(lines)} texts; return a row for each text")
    with np.errstate(over="ignore"):
        vectors = vectors.astype(np.float32)
    if not np.isfinite(vectors).all():
        raise NumericsError(f"some of the embeddings are not finite (NaN or Inf); {RETRAIN}")
    return vectors
