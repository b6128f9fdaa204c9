"""Score argument facet similarity: the similarity of two arguments on one topic (IS-BERT, section 4.1.2, Table 2).

The paper uses AFS (Misra et al. 2016): three topics, gold scores from 0 to 5. UKP ASPECT (Reimers et al. 2019) is similar: 28
topics and four labels. The unsupervised score is the correlation of the cosine with the gold scores. The supervised score tests a
ridge regression on [|u - v|, u * v] with cross-validation, or on a topic without training data. There the encoder is frozen. The
papers fine-tune it, as configs/arguments_sbert.py and arguments_cross_encoder.py do on the same folds (argument_folds.py).
"""

import codecs
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy
from jaxtyping import Int

from jax_sentemb.data.delimited import Row, decode_file, finite, read_rows, select_columns
from jax_sentemb.errors import REPLACE_SET, RETRAIN, ConfigError, DataError, NumericsError
from jax_sentemb.evaluation.sts import SAME_COSINE, Embed, similarity
from jax_sentemb.evaluation.sts_data import ScoredPairs
from jax_sentemb.evaluation.transfer import pair_features
from jax_sentemb.files import user_path

AFS_TOPICS = {"DP": "death penalty", "GC": "gun control", "GM": "gay marriage"}
# DTORCD: different topic or cannot decide; NS, SS and HS: no, some and high similarity. Reimers et al. (2019) count the first two
# as dissimilar when they reduce the four labels to two classes, so both have the lowest grade here.
UKP_GRADES = {"DTORCD": 0.0, "NS": 0.0, "SS": 1.0, "HS": 2.0}

SCHEMES = ("10-fold", "cross-topic")
FOLDS = 10
SEED = 1111
FEWEST = 3  # fewest pairs of a correlation: two points always lie on a line
# Penalties of the ridge regression on standardised features, divided by the number of training rows.
PENALTIES = np.array([1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 100.0])
WIDEST = 1024  # widest embeddings that are scored with labels: the time of a fold grows with the third power of the width


class ArgumentTask(NamedTuple):
    """Pairs of arguments for each topic."""

    name: str
    topics: dict[str, ScoredPairs]
    files: tuple[Path, ...]
    warnings: tuple[str, ...] = ()


def load_arguments(path: str | Path) -> ArgumentTask:
    """Read AFS from the folder of its three ArgPairs files, or a table with the columns sentence1, sentence2, label and topic.

    AFS is CSV with a header: gold scores from 0 to 5 in the first column, arguments in the tenth and eleventh column. Bytes that
    are not UTF-8 are dropped and rows without a score are skipped, as public readers do. A table is tab-separated UTF-8 with CSV
    quotes, as UKP ASPECT is. All its labels are numbers, or all are one of DTORCD = NS = 0, SS = 1, HS = 2. Tokens are joined by
    one space.

    Args:
        path: The folder or the table.

    Returns:
        The pairs by topic. `warnings` count the bytes that were dropped.

    Raises:
        DataError: A file is missing or malformed; the message names the line.
    """
    path = user_path(path)
    if path.is_dir():
        files = tuple(path / f"ArgPairs_{topic}.csv" for topic in AFS_TOPICS)
        pairs_and_warnings = [_afs(file) for file in files]
        topics = {name: pairs for name, (pairs, _) in zip(AFS_TOPICS.values(), pairs_and_warnings, strict=True)}
        return ArgumentTask("AFS", topics, files, tuple(warning for _, warning in pairs_and_warnings if warning))
    return ArgumentTask(path.stem, _table(path), (path,))


def score_unsupervised(embed: Embed, task: ArgumentTask) -> dict[str, Any]:
    """Correlate the cosine of each pair with its gold score.

    A topic with fewer than three pairs, or with one gold score for all pairs, has no correlation and is left out.

    Args:
        embed: The encoder, called once with the distinct sentences.
        task: The pairs.

    Returns:
        {"pearson" | "spearman": {"mean", "topics"}, "n", "left_out"}. Correlations are x 100; the mean is the unweighted mean over
        topics, as in IS-BERT's Table 2. "n" counts the pairs that are scored, and "left_out" names the topics without a
        correlation.

    Raises:
        NumericsError: An embedding is not finite, or all pairs of a topic are equally similar.
        DataError: No topic has a correlation.
    """
    return _scores(task, similarity(*_sides(embed, task)), np.zeros(len(_topic_of(task)), int))


def score_supervised(embed: Embed, task: ArgumentTask, scheme: str) -> dict[str, Any]:
    """Correlate the predictions of a ridge regression on frozen embeddings with the gold scores.

    Args:
        embed: The encoder, called once with the distinct sentences.
        task: The pairs.
        scheme: "10-fold": every topic is shuffled and cut into ten parts, and one part of each topic is tested at a time. The
            correlation of a topic is the mean over its folds. Sentences occur in several pairs, so most tested sentences also occur
            in training pairs, as in the papers. "cross-topic": one topic is tested, the others are trained on.

    Returns:
        As `score_unsupervised`, with "scheme" and with "penalties", the element of PENALTIES that each fold or topic selected.
        "left_out_folds" {topic: folds} counts the folds without a correlation.

    Raises:
        ConfigError: The scheme is unknown.
        DataError: The scheme is "cross-topic" and there is one topic, or no topic has a correlation.
    """
    fold_of = fold_of_pairs(task, scheme)
    features = pair_features(*_sides(embed, task))
    predicted, penalties = _predict(features, _gold(task), fold_of)
    return {"scheme": scheme, "penalties": penalties} | _scores(task, predicted, fold_of)


def fold_of_pairs(task: ArgumentTask, scheme: str) -> Int[np.ndarray, " pairs"]:
    """Return the number of the fold in which each pair is tested, topic after topic.

    Raises:
        ConfigError: The scheme is unknown.
        DataError: The scheme is "cross-topic" and there is one topic.
    """
    if scheme not in SCHEMES:
        raise ConfigError(f"scheme {scheme!r} is unknown; the schemes are {', '.join(SCHEMES)}")
    if scheme == "cross-topic" and len(task.topics) < 2:
        raise DataError(f"{task.name} has one topic: cross-topic evaluation needs a topic to train on and another to test on")
    return _topic_of(task) if scheme == "cross-topic" else _folds(_topic_of(task))


def _sides(embed: Embed, task: ArgumentTask) -> tuple[np.ndarray, np.ndarray]:
    """Return the embeddings of the first and of the second sentence of every pair, topic after topic: float64 [pairs, E] each."""
    first, second = ([sentence for pairs in task.topics.values() for sentence in pairs[side]] for side in (0, 1))
    row_of = {sentence: index for index, sentence in enumerate(dict.fromkeys(first + second))}
    vectors = np.asarray(embed(list(row_of)), np.float64)
    if bad_rows := int((~np.isfinite(vectors).all(axis=1)).sum()):
        raise NumericsError(f"{task.name}: {bad_rows} of {len(vectors)} sentence embeddings are not finite (NaN or Inf); {RETRAIN}")
    if np.ptp(vectors, axis=0).max() <= 1e-6 * np.abs(vectors).max():
        raise NumericsError(f"{task.name}: all {len(vectors)} sentence embeddings are equal: the model collapsed; {RETRAIN}")
    return vectors[[row_of[sentence] for sentence in first]], vectors[[row_of[sentence] for sentence in second]]


def _gold(task: ArgumentTask) -> np.ndarray:
    return np.concatenate([pairs.gold for pairs in task.topics.values()])


def _topic_of(task: ArgumentTask) -> np.ndarray:
    """Return the number of the topic of every pair."""
    return np.repeat(np.arange(len(task.topics)), [len(pairs.gold) for pairs in task.topics.values()])


def _scores(task: ArgumentTask, values: np.ndarray, fold_of: np.ndarray) -> dict[str, Any]:
    """Average the correlations of `values` with the gold scores over the folds of each topic, then over topics.

    Folds are not pooled. The intercept of a regression is the mean of its training rows, which is lower if the tested scores are
    higher. So constant predictions of several regressions would have a negative correlation with the gold scores.
    """
    gold, topic_of = _gold(task), _topic_of(task)
    correlations = {"pearson": scipy.stats.pearsonr, "spearman": scipy.stats.spearmanr}
    by_measure: dict[str, dict[str, float]] = {measure: {} for measure in correlations}
    left_out: list[str] = []
    undefined: dict[str, int] = {}
    pairs = 0
    for number, topic in enumerate(task.topics):
        cells = [np.flatnonzero((topic_of == number) & (fold_of == value)) for value in np.unique(fold_of[topic_of == number])]
        defined = [rows for rows in cells if len(rows) >= FEWEST and np.ptp(gold[rows]) > 0]
        if not defined:
            left_out.append(topic)
            continue
        for rows in defined:
            if np.ptp(values[rows]) < SAME_COSINE:
                raise NumericsError(
                    f"{task.name}, {topic}: all {len(rows)} pairs are equally similar, so there is no correlation; {RETRAIN}"
                )
        for measure, correlation in correlations.items():
            by_measure[measure][topic] = 100 * float(np.mean([correlation(values[rows], gold[rows]).statistic for rows in defined]))
        pairs += sum(len(rows) for rows in defined)
        if len(defined) < len(cells):
            undefined[topic] = len(cells) - len(defined)
    if len(left_out) == len(task.topics):
        raise DataError(f"{task.name}: no topic (or fold of one) has {FEWEST} pairs and two gold scores, as a correlation needs")
    result: dict[str, Any] = {
        measure: {"mean": float(np.mean(list(by_topic.values()))), "topics": by_topic} for measure, by_topic in by_measure.items()
    }
    return result | {"n": pairs, "left_out": left_out} | ({"left_out_folds": undefined} if undefined else {})


def _folds(topic_of: np.ndarray) -> np.ndarray:
    """Return the fold of every pair. Each topic is shuffled and distributed evenly over the folds."""
    # The stream of RandomState, unlike that of Generator, is the same in all versions of NumPy.
    fold = np.empty(len(topic_of), int)
    for topic in np.unique(topic_of):
        rows = np.flatnonzero(topic_of == topic)
        fold[np.random.RandomState(SEED).permutation(rows)] = np.arange(len(rows)) % FOLDS
    return fold


def _predict(features: np.ndarray, gold: np.ndarray, fold_of: np.ndarray) -> tuple[np.ndarray, list[float]]:
    """Predict the score of each pair [pairs] from the pairs of all other folds.

    The second result is the penalty that each fold selected.
    """
    predicted, penalties = np.empty(len(gold)), []
    for fold in np.unique(fold_of):
        train, test = fold_of != fold, fold_of == fold
        predicted[test], penalty = _ridge(features[train], gold[train], features[test])
        penalties.append(penalty)
    return predicted, penalties


def _ridge(features: np.ndarray, gold: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, float]:
    """Return predictions for `test`, and the penalty with the smallest squared leave-one-out error on the training rows.

    Features are standardised by the training rows. One decomposition is used for all penalties, and the leave-one-out errors follow
    from the diagonal of the hat matrix (Golub, Heath and Wahba 1979).
    """
    mean, scale = features.mean(axis=0), features.std(axis=0)
    scale = np.where(scale > 1e-9 * np.abs(mean), scale, np.inf)  # constant columns become zero
    centred = (features - mean) / scale
    values, axes = np.linalg.eigh(centred.T @ centred)
    rotated = centred @ axes
    target = gold - gold.mean()
    shrunk = 1 / (np.maximum(values, 0)[:, None] + PENALTIES * len(gold))  # [features, penalties]
    weights = (rotated.T @ target)[:, None] * shrunk
    leverage = np.square(rotated) @ shrunk + 1 / len(gold)  # 1 / N: the mean is estimated as well
    errors = np.square((target[:, None] - rotated @ weights) / np.maximum(1 - leverage, 1e-12)).sum(axis=0)
    best = int(errors.argmin())
    return (test - mean) / scale @ (axes @ weights[:, best]) + gold.mean(), float(PENALTIES[best])


def _afs(path: Path) -> tuple[ScoredPairs, str]:
    """Return the pairs of one topic of AFS, and a warning ("" if there is none)."""
    text = decode_file(path, errors="ignore")
    rows = _rows(path, text, ",", strict=False)
    if finite(rows[0][1][0]) is not None:
        raise DataError(
            f"{path}:1: the first field is {rows[0][1][0][:20]!r}, expected a header that starts with "
            f"regression_label; {REPLACE_SET}"
        )
    entries = []
    for number, fields in rows[1:]:
        if len(fields) < 11:
            raise DataError(
                f"{path}:{number}: {len(fields)} columns, expected 11 or more (gold score in 1, arguments in 10, 11); {REPLACE_SET}"
            )
        if not fields[0].strip():
            continue
        gold = finite(fields[0])
        if gold is None or not 0 <= gold <= 5:
            raise DataError(f"{path}:{number}: gold score {fields[0][:20]!r} is not a number from 0 to 5; correct the row")
        entries.append((fields[9], fields[10], gold))
    if not entries:
        raise DataError(f"{path}: no row has a gold score in its first column; {REPLACE_SET}")
    dropped = len(path.read_bytes().removeprefix(codecs.BOM_UTF8)) - len(text.encode())
    return _pairs(entries), f"{path}: {dropped} bytes that are not UTF-8 were dropped" if dropped else ""


def _table(path: Path) -> dict[str, ScoredPairs]:
    """Return the pairs of each topic of a tab-separated file with CSV quotes."""
    columns = ("sentence1", "sentence2", "label", "topic")
    remedy = (f"required are {', '.join(columns)} (for AFS give its folder)",)
    topics: dict[str, list[tuple[str, str, float]]] = {}
    graded = None  # whether the first label is a grade; all labels must be of one kind
    for number, values in select_columns(path, iter(_rows(path, decode_file(path), "\t", strict=True)), columns, remedy):
        first, second, label, topic = (value.strip() for value in values)
        graded = label in UKP_GRADES if graded is None else graded
        gold = UKP_GRADES.get(label) if graded else finite(label)
        if gold is None:
            expected = f"one of {', '.join(UKP_GRADES)} like the first label" if graded else "a number"
            raise DataError(f"{path}:{number}: label {label[:20]!r} is not {expected}; correct the row")
        topics.setdefault(topic, []).append((first, second, gold))
    return {topic: _pairs(entries) for topic, entries in topics.items()}


def _rows(path: Path, text: str, delimiter: str, strict: bool) -> list[Row]:
    """Return the header and the records of a table with quotes. `strict`: quotes must be closed."""
    rows = read_rows(path, io.StringIO(text, newline=""), delimiter, quotes=True, strict=strict)
    records = [row for row in rows if any(field.strip() for field in row[1])]
    if len(records) < 2:
        raise DataError(f"{path} has no pairs: expected a header, then a pair on each row")
    return records


def _pairs(entries: Iterable[tuple[str, str, float]]) -> ScoredPairs:
    first, second, gold = zip(*entries, strict=True)
    first_texts, second_texts = ([" ".join(sentence.split()) for sentence in side] for side in (first, second))
    return ScoredPairs(first_texts, second_texts, np.array(gold))
