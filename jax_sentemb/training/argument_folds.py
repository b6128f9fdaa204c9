"""Cross-validate on an argument corpus, for the supervised rows of IS-BERT's Table 2: one fold is tested, the rest trains."""

from typing import NamedTuple

import numpy as np

from jax_sentemb.config import Data
from jax_sentemb.errors import ConfigError, DataError, Setting
from jax_sentemb.evaluation.arguments import FEWEST, FOLDS, ArgumentTask, fold_of_pairs
from jax_sentemb.evaluation.catalog import load_arguments
from jax_sentemb.evaluation.sts_data import ScoredPairs, StsTask

NAME = "arguments"  # of the evaluation set
SOURCE = "arguments:"  # prefix of the file in data.files
TOP_SCORE = 5.0  # the highest score after scaling, as the methods expect it; also the scale of AFS


class Split(NamedTuple):
    """Training pairs with scores from 0 to TOP_SCORE, and test pairs by topic with their original scores."""

    train: list[tuple[str, str, float]]
    test: StsTask
    left_out: list[str]  # test topics for which no correlation is defined
    warnings: tuple[str, ...]  # of the corpus


def is_split(data: Data) -> bool:
    """Return whether `data.files` is arguments:FILE."""
    return data.files.startswith(SOURCE)


def fold_count(data: Data) -> int:
    """Return the number of folds of `data.scheme`: ten, or the number of topics."""
    return FOLDS if data.scheme == "10-fold" else len(_read(data).topics)


def split(data: Data) -> Split:
    """Split off fold `data.fold` of `data.scheme`.

    Raises:
        ConfigError: The fold does not exist.
        DataError: No pair is left for training, or none that can be tested.
    """
    task, count = _read(data), fold_count(data)
    if data.fold >= count:
        raise ConfigError(
            Setting("data.fold", data.fold),
            f": {task.name} has the folds 0 to {count - 1} with ",
            Setting("data.scheme", data.scheme),
        )
    tested = fold_of_pairs(task, data.scheme) == data.fold
    gold = np.concatenate([pairs.gold for pairs in task.topics.values()])
    lowest, spread = gold.min(), np.ptp(gold)
    train: list[tuple[str, str, float]] = []
    test: dict[str, ScoredPairs] = {}
    left_out, start = [], 0
    for topic, pairs in task.topics.items():
        is_test = tested[start : start + len(pairs.gold)]
        start += len(pairs.gold)
        train += [
            (pairs.first[row], pairs.second[row], float(TOP_SCORE * (pairs.gold[row] - lowest) / max(spread, 1e-9)))
            for row in np.flatnonzero(~is_test)
        ]
        rows = np.flatnonzero(is_test)
        if len(rows) >= FEWEST and np.ptp(pairs.gold[rows]) > 0:
            test[topic] = ScoredPairs([pairs.first[row] for row in rows], [pairs.second[row] for row in rows], pairs.gold[rows])
        elif len(rows):
            left_out.append(topic)
    if not train or not test:
        problem = "no pair is left for training" if not train else f"no topic has {FEWEST} pairs and two gold scores"
        raise DataError(
            f"{task.name}, ", Setting("data.scheme", data.scheme), ", ", Setting("data.fold", data.fold), f": {problem}"
        )
    return Split(train, StsTask(NAME, test), left_out, task.warnings)


def _read(data: Data) -> ArgumentTask:
    if not is_split(data):
        raise ConfigError(
            Setting("data.fold"), " needs argument pairs: ", Setting("data.files", data.files), f" is not {SOURCE}FILE"
        )
    return load_arguments(data.files.removeprefix(SOURCE))
