"""Argument facet similarity: how alike two arguments on one topic are, scored topic by topic (IS-BERT, section 4.2).

The corpus of the paper is AFS (Misra et al. 2016): three topics, gold scores 0 to 5. UKP ASPECT (Reimers et al. 2019) is a
relative: 28 topics and four labels. Without labels the cosine is correlated with the gold scores. With labels a ridge
regression on [|u - v|, u * v] is tested on folds or on topics that it has not seen; the papers fine-tune the encoder
there, so their supervised rows are not comparable.
"""

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import pearsonr, spearmanr

from jax_sentemb.errors import DataError, NumericsError
from jax_sentemb.evaluation.sts import SAME_COSINE, Pairs, similarity

AFS_TOPICS = {"DP": "death penalty", "GC": "gun control", "GM": "gay marriage"}
# Different topic or cannot decide, no, some, high similarity. The first two are both "not alike".
UKP_LABELS = {"DTORCD": 0.0, "NS": 0.0, "SS": 1.0, "HS": 2.0}
FOLDS = 10
SEED = 1111
PENALTIES = 10.0 ** np.arange(-3, 5)  # of the ridge regression, on standardised features, times the number of rows / 100

WIDEST = 1024  # embeddings up to that width are scored with labels: a fold costs their width to the third power

Embed = Callable[[Sequence[str]], np.ndarray]  # sentences -> [N, E]


class ArgumentTask(NamedTuple):
    """Pairs of arguments by topic."""

    name: str
    topics: dict[str, Pairs]
    files: tuple[Path, ...]
    warnings: tuple[str, ...] = ()


def load_arguments(path: str | Path) -> ArgumentTask:
    """AFS from the folder of its three ArgPairs files, or a tab-separated file with sentence1, sentence2, label and topic.

    DataError names the file and line that is missing or malformed.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        files = tuple(path / f"ArgPairs_{topic}.csv" for topic in AFS_TOPICS)
        return ArgumentTask("AFS", {name: _afs(file) for name, file in zip(AFS_TOPICS.values(), files, strict=True)}, files)
    rows = _rows(path, "\t")
    header = rows[0][1]
    needed = ("sentence1", "sentence2", "label", "topic")
    if missing := [name for name in needed if name not in header]:
        raise DataError(f"{path}:1: no column {missing[0]!r} in the header: needed are {', '.join(needed)}")
    columns = [header.index(name) for name in needed]
    topics: dict[str, list[tuple[str, str, float]]] = {}
    for number, fields in rows[1:]:
        if len(fields) <= max(columns):
            raise DataError(f"{path}:{number}: {len(fields)} fields, expected {len(header)} as in the header")
        first, second, label, topic = (fields[column].strip() for column in columns)
        topics.setdefault(topic, []).append((first, second, _gold(path, number, label)))
    return ArgumentTask(path.stem, {topic: _pairs(path, entries) for topic, entries in topics.items()}, (path,))


def score_unsupervised(embed: Embed, task: ArgumentTask) -> dict:
    """Correlations x 100 of the cosine with the gold scores: {"pearson" | "spearman": {"mean", "topics"}, "n", "left_out"}.

    The mean is the plain one over topics. A topic whose pairs all have one gold score has no correlation and is left out.
    NumericsError where all pairs of a topic are equally similar or embeddings are not finite.
    """
    result: dict = {"n": sum(len(pairs.gold) for pairs in task.topics.values())}
    found = {topic: similarity(embed(pairs.first), embed(pairs.second)) for topic, pairs in task.topics.items()}
    return result | _by_topic(found, {topic: pairs.gold for topic, pairs in task.topics.items()})


def score_supervised(embed: Embed, task: ArgumentTask, scheme: str) -> dict:
    """The same for predictions of a ridge regression on frozen embeddings, its penalty chosen by leaving training rows out.

    "10-fold": every topic is cut into ten parts, one of each is tested at a time. "cross-topic": one topic is tested, the
    others are trained on.
    """
    sides = [np.concatenate([embed(getattr(pairs, side)) for pairs in task.topics.values()]) for side in ("first", "second")]
    first, second = (side.astype(np.float64) for side in sides)
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise NumericsError(f"{task.name}: embeddings are not finite (NaN or Inf)")
    features = np.concatenate([np.abs(first - second), first * second], axis=1)
    gold = np.concatenate([pairs.gold for pairs in task.topics.values()])
    topic_of = np.repeat(np.arange(len(task.topics)), [len(pairs.gold) for pairs in task.topics.values()])
    if scheme == "cross-topic":
        if len(task.topics) < 3:
            raise DataError(f"{task.name}: {len(task.topics)} topics: cross-topic evaluation needs three")
        part = topic_of
    elif scheme == "10-fold":
        part = _folds(topic_of)
    else:
        raise ValueError(f"scheme {scheme!r} is neither '10-fold' nor 'cross-topic'")
    predicted = np.empty(len(gold))
    for value in np.unique(part):
        train, test = part != value, part == value
        predicted[test] = _ridge(features[train], gold[train], features[test])
    names = list(task.topics)
    values = {name: predicted[topic_of == number] for number, name in enumerate(names)}
    result = {"n": len(gold), "scheme": scheme}
    return result | _by_topic(values, {topic: pairs.gold for topic, pairs in task.topics.items()})


def _by_topic(values: dict[str, np.ndarray], gold: dict[str, np.ndarray]) -> dict:
    left_out = [topic for topic in values if np.ptp(gold[topic]) == 0]
    result: dict = {"left_out": left_out}
    scored = [topic for topic in values if topic not in left_out]
    if not scored:
        raise DataError("every topic has one gold score only: no correlation exists")
    for topic in scored:
        if np.ptp(values[topic]) < SAME_COSINE:
            raise NumericsError(f"{topic}: all {len(values[topic])} pairs are equally similar: the embeddings collapsed")
    for kind, correlation in (("pearson", pearsonr), ("spearman", spearmanr)):
        topics = {topic: 100 * float(correlation(values[topic], gold[topic]).statistic) for topic in scored}
        result[kind] = {"mean": float(np.mean(list(topics.values()))), "topics": topics}
    return result


def _folds(topic_of: np.ndarray) -> np.ndarray:
    """The fold of every pair: each topic is shuffled and dealt out evenly."""
    random = np.random.default_rng(SEED)
    fold = np.empty(len(topic_of), int)
    for topic in np.unique(topic_of):
        rows = np.flatnonzero(topic_of == topic)
        fold[random.permutation(rows)] = np.arange(len(rows)) % FOLDS
    return fold


def _ridge(features: np.ndarray, gold: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Predictions for `test`, with the penalty of least squared error when every training row is left out once.

    Features are standardised by the training rows. One decomposition serves all penalties, and the errors of the left-out
    rows follow from the diagonal of the hat matrix (Golub, Heath and Wahba 1979).
    """
    mean, scale = features.mean(axis=0), features.std(axis=0)
    scale = np.where(scale > 1e-12 * np.abs(mean).max(initial=1e-300), scale, np.inf)  # constant columns are switched off
    centred = (features - mean) / scale
    values, axes = np.linalg.eigh(centred.T @ centred)
    turned = centred @ axes
    wanted = gold - gold.mean()
    shrunk = 1 / (np.maximum(values, 0)[:, None] + PENALTIES * len(gold) / 100)  # [features, penalties]
    weights = (turned.T @ wanted)[:, None] * shrunk
    leverage = np.square(turned) @ shrunk + 1 / len(gold)  # the mean is estimated too
    errors = np.square((wanted[:, None] - turned @ weights) / np.maximum(1 - leverage, 1e-12)).sum(axis=0)
    return (test - mean) / scale @ (axes @ weights[:, errors.argmin()]) + gold.mean()


def _afs(path: Path) -> Pairs:
    entries = []
    for number, fields in _rows(path, ",")[1:]:
        if len(fields) < 11:
            raise DataError(f"{path}:{number}: {len(fields)} columns, expected at least 11 (gold score first, arguments in 10, 11)")
        entries.append((fields[9].strip(), fields[10].strip(), _number(path, number, fields[0])))
    return _pairs(path, entries)


def _rows(path: Path, delimiter: str) -> list[tuple[int, list[str]]]:
    """Numbered records of a quoted table with its header; bytes that are not UTF-8 are dropped, as published readers do."""
    try:
        text = path.read_bytes().decode("utf-8-sig", errors="ignore")
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        rows = [(reader.line_num, fields) for fields in reader if any(field.strip() for field in fields)]
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num}: {error}") from None
    if len(rows) < 3:
        raise DataError(f"{path}: {max(0, len(rows) - 1)} pairs: expected a header and at least two pairs")
    return rows


def _gold(path: Path, number: int, label: str) -> float:
    if label in UKP_LABELS:
        return UKP_LABELS[label]
    try:
        return _number(path, number, label)
    except DataError:
        raise DataError(f"{path}:{number}: label {label[:20]!r} is neither {', '.join(UKP_LABELS)} nor a number") from None


def _number(path: Path, number: int, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise DataError(f"{path}:{number}: gold score {text[:20]!r} is not a number")
    return value


def _pairs(path: Path, entries: list[tuple[str, str, float]]) -> Pairs:
    if len(entries) < 2:
        raise DataError(f"{path}: a topic has {len(entries)} pairs: a correlation needs at least two")
    first, second, gold = zip(*entries, strict=True)
    return Pairs(list(first), list(second), np.array(gold))
