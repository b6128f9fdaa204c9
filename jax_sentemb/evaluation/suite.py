"""Load evaluation tasks and score a model on them. Each distinct sentence is encoded once."""

import platform
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jax_sentemb import __version__
from jax_sentemb.errors import RETRAIN, DataError, NumericsError, UserError
from jax_sentemb.evaluation import arguments, catalog, sts, sts_data, tasks, transfer
from jax_sentemb.evaluation.catalog import SETS, AbsentSet, ArgumentSpec, check_is_there, load_sts_task
from jax_sentemb.evaluation.model_spec import Embeddings, Encode, EvalModel
from jax_sentemb.evaluation.sts_data import StsSpec
from jax_sentemb.files import sha256
from jax_sentemb.inference.views import NO_VIEWS, Views
from jax_sentemb.public_text import without_folders
from jax_sentemb.types import OnCount, no_progress

ENCODED_AT_ONCE = 4096  # sentences between two updates of the progress bar


class Item(NamedTuple):
    """A task with its data."""

    name: str
    group: str
    data: sts_data.StsTask | tasks.Task | arguments.ArgumentTask
    files: tuple[Path, ...]
    sizes: dict[str, int]
    warnings: tuple[str, ...]

    @property
    def sentences(self) -> list[str]:
        """Return all sentences of the task, with repetitions."""
        if isinstance(self.data, tasks.Task):
            return self.data.sentences
        parts = self.data.subsets if isinstance(self.data, sts_data.StsTask) else self.data.topics
        return [sentence for pairs in parts.values() for side in (pairs.first, pairs.second) for sentence in side]


class Outcome(NamedTuple):
    """The result of one model on one task: the scores to be written, and the values that plots and ensembles use."""

    item: Item
    scores: dict[str, Any]
    headline: dict[str, float]  # the numbers for tables, by column
    protocol: str
    chosen: dict[str, Any]
    seconds: dict[str, float]
    similarities: sts.Similarities | None = None
    predictions: transfer.Predictions | None = None


class Protocols(NamedTuple):
    """The protocols by which each group is scored."""

    sts: sts.StsProtocol
    classifier: transfer.TransferProtocol
    resamples: int = 1000
    regressions: bool = True  # of argument pairs: minutes for each model


def load(name: str, root: Path, smt: bool = False) -> Item:
    """Read the task `name` below the SentEval folder `root`.

    Args:
        name: A key of SETS.
        root: The folder that contains `downstream` and `probing`.
        smt: Whether to include the subset SMT of STS13, which SentEval does not have. A warning reports that it is missing.

    Raises:
        AbsentSet: No file of the set exists.
        DataError: A file is missing or malformed.
    """
    row = SETS[name]
    check_is_there(name, root)
    if isinstance(row.spec, StsSpec):
        data = load_sts_task(name, root, smt)
        sizes = {subset: len(pairs.gold) for subset, pairs in data.subsets.items()}
        pair_count = sum(size for subset, size in sizes.items() if subset not in row.spec.optional)
        size_warning = (
            f"{name}: {pair_count:,} pairs have a gold score instead of the published {row.spec.pairs:,}: scores are not comparable"
        )
        scored = ", ".join(sizes)
        missing = ", ".join(subset for subset in row.spec.optional if smt and subset not in sizes)
        missing_warning = f"{name}: the subset {missing} is missing (SentEval does not include it), the score is over {scored} only"
        warnings = (size_warning,) * (pair_count != row.spec.pairs) + (missing_warning,) * bool(missing)
        return Item(name, row.group, data, tuple(row.files(root, smt)), sizes, warnings)
    if isinstance(row.spec, ArgumentSpec):
        first, *others = row.files(root)
        return load_arguments(first.parent if others else first)
    data = tasks.load_task(name, row.spec, root)
    return Item(
        name,
        row.group,
        data,
        data.files,
        {split_name: len(split.first) for split_name, split in data.splits.items()},
        data.warnings,
    )


def load_arguments(path: Path) -> Item:
    """Read an argument similarity corpus from a file, or AFS from the folder of its three files."""
    data = catalog.load_arguments(path)
    sizes = {topic: len(pairs.gold) for topic, pairs in data.topics.items()}
    return Item(data.name, "arguments", data, data.files, sizes, data.warnings)


class Loaded(NamedTuple):
    """The tasks of a run: those that can be scored, the names of missing ones, and the errors of the others."""

    items: list[Item]
    missing_tasks: list[str]
    errors: list[DataError]


def load_all(chosen: Sequence[tuple[str, bool]], root: Path, extra: Sequence[Item] = (), smt: bool = False) -> Loaded:
    """Read the chosen tasks below `root`, and add `extra`.

    Args:
        chosen: The sets that `catalog.select` returns.
        root: The SentEval folder.
        extra: Tasks that are already loaded.
        smt: As for `load`.

    Raises:
        DataError: A task that was named individually is missing or malformed, or there is no task at all.
    """
    loaded = Loaded(list(extra), [], [])
    for name, by_name in chosen:
        try:
            loaded.items.append(load(name, root, smt))
        except DataError as error:
            if by_name:
                raise
            if isinstance(error, AbsentSet):
                loaded.missing_tasks.append(name)
            else:
                loaded.errors.append(error)
    if not loaded.items and not loaded.errors:
        raise DataError(f"{root} has none of the tasks: jax-sentemb evaluate --check --data {root} lists where their files belong")
    return loaded


class EmbeddingStore:
    """Store the embeddings of the sentences of all tasks. Each distinct sentence is encoded once and stored until its last task."""

    def __init__(self, items: Sequence[Item], encode: Encode | None, progress: OnCount) -> None:
        """Prepare for the tasks `items` in their order; `progress` is called with the number of sentences just encoded."""
        self.last = {sentence: number for number, item in enumerate(items) for sentence in item.sentences}
        self.encode, self.progress = encode, progress
        self._stored: dict[str, np.ndarray] = {}

    def vectors(self, number: int, item: Item, encode: Encode | None = None) -> tuple[dict[str, int], Embeddings]:
        """Return the distinct sentences of task `number` with their rows, and the embeddings.

        `encode` is an encoder for this task alone; its embeddings are not shared with other tasks.
        """
        row_of = {sentence: index for index, sentence in enumerate(dict.fromkeys(item.sentences))}
        new = list(row_of) if encode else [sentence for sentence in row_of if sentence not in self._stored]
        blocks = []
        for first in range(0, len(new), ENCODED_AT_ONCE):
            block = new[first : first + ENCODED_AT_ONCE]
            blocks.append(np.asarray((encode or self.encode)(block), np.float32))  # pyright: ignore[reportOptionalCall]
            self.progress(len(block))
        if len(new) == len(row_of):
            matrix = np.concatenate(blocks)
        else:
            width = (blocks[0] if blocks else next(iter(self._stored.values()))[None]).shape[1]
            matrix = np.empty((len(row_of), width), np.float32)
            if blocks:
                matrix[[row_of[sentence] for sentence in new]] = np.concatenate(blocks)
            for sentence in row_of.keys() - set(new):
                matrix[row_of[sentence]] = self._stored[sentence]
        if not encode:
            for sentence, index in row_of.items():
                if self.last[sentence] > number:
                    self._stored.setdefault(sentence, matrix[index].copy())
                else:
                    self._stored.pop(sentence, None)
        return row_of, matrix


def score(
    model: EvalModel, items: Sequence[Item], protocols: Protocols, progress: OnCount = no_progress
) -> Iterator[tuple[Item, Outcome | UserError]]:
    """Yield the outcome of every task in turn, or its error. An error does not stop the other tasks."""
    store = EmbeddingStore(items, None if model.per_task else model.fit([]), progress)
    for number, item in enumerate(items):
        try:
            started = time.perf_counter()
            encode = model.fit(list(dict.fromkeys(item.sentences))) if model.per_task else None
            row_of, vectors = store.vectors(number, item, encode)
            encoded = time.perf_counter()
            if not np.isfinite(vectors).all():
                bad_rows = int((~np.isfinite(vectors).all(axis=1)).sum())
                raise NumericsError(f"{bad_rows} of {len(vectors)} sentence embeddings are not finite (NaN or Inf); {RETRAIN}")
            outcome = score_one(item, row_of, model.finish(vectors), protocols, model.views)
            seconds = {"encoding": encoded - started, "scoring": time.perf_counter() - encoded}
            yield item, outcome._replace(seconds={name: round(value, 3) for name, value in seconds.items()})
        except UserError as error:
            yield item, error


def score_one(item: Item, row_of: dict[str, int], vectors: Embeddings, protocols: Protocols, views: Views = NO_VIEWS) -> Outcome:
    """Score one task from the embeddings of its distinct sentences, or from their views.

    Args:
        item: The task.
        row_of: The row of each sentence.
        vectors: Embeddings, or the views of which they consist.
        protocols: The protocols.
        views: The views of which the embeddings consist.
    """
    if isinstance(item.data, sts_data.StsTask):
        similarities = sts.pair_similarities(vectors, row_of, item.data, protocols.sts, views)
        return sts_outcome(item, similarities, protocols)
    vectors = views.joined(vectors)
    if isinstance(item.data, arguments.ArgumentTask):

        def embed(sentences: Sequence[str]) -> np.ndarray:
            return vectors[[row_of[sentence] for sentence in sentences]]

        scores: dict[str, Any] = {"unsupervised": arguments.score_unsupervised(embed, item.data)}
        for scheme in arguments.SCHEMES if protocols.regressions and vectors.shape[1] <= arguments.WIDEST else ():
            try:
                scores[scheme] = arguments.score_supervised(embed, item.data, scheme)
            except DataError as error:  # too few pairs or topics to train on; the unsupervised score is still valid
                scores[scheme] = {"left_out": str(error)}
        headline = {f"{item.name} {measure}": scores["unsupervised"][measure]["mean"] for measure in ("pearson", "spearman")}
        return Outcome(item, scores, headline, "cosine, mean over topics", {}, {})
    features = {}
    for split_name, split in item.data.splits.items():
        sides = [vectors[[row_of[sentence] for sentence in side]] for side in (split.first, split.second) if side]
        features[split_name] = transfer.pair_features(*sides) if item.data.spec.pairs else sides[0]
    result = transfer.run(item.data, features, protocols.classifier)
    return transfer_outcome(item, result.scores, protocols)._replace(chosen=result.chosen, predictions=result.predictions)


def sts_outcome(item: Item, similarities: sts.Similarities, protocols: Protocols) -> Outcome:
    """Score a similarity task from the similarities of its pairs."""
    assert isinstance(item.data, sts_data.StsTask)
    scores = sts.score_protocol(item.data, similarities, protocols.sts, protocols.resamples)
    scores.pop("sizes")
    return Outcome(item, scores, {item.name: scores["score"]}, protocols.sts.name, {}, {}, similarities=similarities)


def transfer_outcome(item: Item, scores: dict[str, float], protocols: Protocols) -> Outcome:
    """Return the outcome of a classification or regression task."""
    if "accuracy" in scores:
        headline = {item.name: scores["accuracy"]} | ({f"{item.name} F1": scores["f1"]} if "f1" in scores else {})
        return Outcome(item, dict(scores), headline, protocols.classifier.name, {}, {})
    headline = {f"{item.name} r": scores["pearson"], f"{item.name} rho": scores["spearman"]}
    return Outcome(item, dict(scores), headline, "senteval relatedness", {}, {})


def combine(outcomes: Sequence[Outcome], protocols: Protocols) -> Outcome | None:
    """Return the outcome of an ensemble of several models on one task; None for tasks without ensembles.

    Classification and regression average the predictions with normalised validation scores as weights (ConsSent, section 5).
    Similarity tasks have no validation score; they average the cosines with equal weights.
    """
    item = outcomes[0].item
    if all(outcome.predictions for outcome in outcomes):
        assert isinstance(item.data, tasks.Task)
        members = [outcome.predictions for outcome in outcomes if outcome.predictions]
        return transfer_outcome(item, transfer.ensemble(item.data, members), protocols)
    if all(outcome.similarities for outcome in outcomes):
        cosines = [outcome.similarities["cosine"] for outcome in outcomes if outcome.similarities]
        mean = {subset: np.mean([member[subset] for member in cosines], axis=0) for subset in cosines[0]}
        return sts_outcome(item, {"cosine": mean}, protocols)
    return None


def record(model: str, metadata: dict[str, Any], outcome: Outcome, root: Path) -> dict[str, Any]:
    """Return the result of one model on one task as it is written to JSON."""
    item = outcome.item
    return {
        "task": item.name,
        "group": item.group,
        "model": model,
        "model_facts": metadata,
        "protocol": outcome.protocol,
        "scores": outcome.scores,
        "chosen": outcome.chosen,
        "sizes": item.sizes,
        "warnings": [without_folders(warning.replace(f"{root}/", "")) for warning in item.warnings],
        "data_sha256": {_below(file, root): sha256(file) for file in item.files},
        "seconds": outcome.seconds,
        "versions": versions(),
    }


def _below(file: Path, root: Path) -> str:
    return file.relative_to(root).as_posix() if file.is_relative_to(root) else file.name


def versions() -> dict[str, str]:
    """Return the versions of the packages that compute the scores."""
    packages = {package: version(package) for package in ("jax", "numpy", "scipy")}
    return {"jax_sentemb": __version__, "python": platform.python_version(), **packages}
