"""Data of plots and reports: the log of a run, the table of a low-shot study, and pairs of sentences for attention."""

import io
import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jax_sentemb.data import delimited
from jax_sentemb.errors import DataError, ModelFileError
from jax_sentemb.files import check_regular, user_path

SentencePairs = list[tuple[str, str]]
ALIKE, UNLIKE = 4.0, 1.0  # gold scores of STS-B (0 to 5): positive pairs have at least the first, negative ones at most the second


_EVENT = '{"step": '  # how a line of metrics.jsonl begins


def read_metrics(workdir: str | Path) -> list[dict[str, Any]]:
    """Return the events of a run, {"step": ..., name: value}, as `workdir`/metrics.jsonl has them.

    Raises:
        ModelFileError: The file is missing, damaged, or not a file.
    """
    file = user_path(workdir) / "metrics.jsonl"
    try:
        check_regular(file)
        lines = file.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise ModelFileError(f"{file}: {error.strerror}: give the work directory of a run") from None
    except UnicodeDecodeError as error:
        raise ModelFileError(f"{file}: byte {error.start} is not UTF-8: this file was not written by a run") from None
    if not lines[-1] or (not _event(lines[-1]) and lines[-1].startswith(_BEGINNING[: len(lines[-1])])):
        lines.pop()  # the end of the file, or an event that a crash has cut
    records = list(map(_event, lines))
    if not records or None in records:
        line = 1 + (records.index(None) if records else 0)
        raise ModelFileError(f"{file}:{line}: not an event of a run, a JSON object with a step")
    return [record for record in records if record]


_BEGINNING = '{"step": '  # of a line


def _event(line: str) -> dict[str, Any] | None:
    """Return the event of a line, None for any other text."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and isinstance(record.get("step"), int) else None


def read_low_shot(file: str | Path, column: str = "average") -> dict[str, list[tuple[int, float, float]]]:
    """Curves for `low_shot_curves` from a CSV file with a row for every run: method, sentences and the score `column`.

    Runs of a method with equally many sentences (the seeds) become mean and sample standard deviation, 0 for a single run.
    DataError names the line or column that is wrong.
    """
    file = user_path(file)
    runs = delimited.read_rows(file, io.StringIO(delimited.decode_file(file), newline=""), ",", quotes=True)
    remedy = (f"a row for each run with its method, sentences and {column}",)
    groups: dict[str, dict[int, list[float]]] = {}
    for number, (method, sentences, score) in delimited.select_columns(file, runs, ("method", "sentences", column), remedy):
        try:
            size, value = int(sentences), float(score)
        except ValueError:
            size, value = -1, math.nan
        if size < 0 or not math.isfinite(value):
            raise DataError(f"{file} line {number}: sentences={sentences!r} or {column}={score!r} is not a number")
        groups.setdefault(method, {}).setdefault(size, []).append(value)
    if not groups:
        raise DataError(f"{file}: no run below the header")
    return {
        method: [
            (sentences, statistics.mean(scores), statistics.stdev(scores) if len(scores) > 1 else 0.0)
            for sentences, scores in sorted(points.items())
        ]
        for method, points in groups.items()
    }


def gold_pairs(folder: str | Path, count: int) -> tuple[tuple[list[str], list[str]], tuple[list[str], list[str]]]:
    """(first, second) sentences of up to `count` STS-B dev pairs with a high gold score, and of as many with a low one.

    Pairs that differ only in case are left out, because their attention is the same without dropout.
    """
    from jax_sentemb.evaluation.catalog import load_sts_task
    from jax_sentemb.evaluation.sts_data import senteval_root

    pairs = load_sts_task("STSBenchmark-dev", senteval_root(folder)).subsets["dev"]
    differ = np.array([one.lower() != other.lower() for one, other in zip(pairs.first, pairs.second, strict=True)])

    def chosen(wanted: np.ndarray) -> tuple[list[str], list[str]]:
        rows = np.flatnonzero(wanted & differ)[:count]
        return [pairs.first[row] for row in rows], [pairs.second[row] for row in rows]

    return chosen(pairs.gold >= ALIKE), chosen(pairs.gold <= UNLIKE)


def sample_sentences(source: str | Path, count: int, seed: int = 0) -> list[str]:
    """Up to `count` distinct sentences, drawn by `seed`, of STS-B dev in a SentEval folder or of a text file.

    DataError where there are fewer than two.
    """
    from jax_sentemb.data.corpus_files import open_corpus
    from jax_sentemb.evaluation.catalog import load_sts_task
    from jax_sentemb.evaluation.sts_data import senteval_root

    random = np.random.default_rng(seed)
    if user_path(source).is_dir():
        pairs = load_sts_task("STSBenchmark-dev", senteval_root(source)).subsets["dev"]
        everything: Sequence[str] | Any = [*pairs.first, *pairs.second]
    else:
        everything = open_corpus(str(source))
    drawn = random.permutation(len(everything))[: 2 * count]  # twice as many, for the duplicates
    sentences = list(dict.fromkeys(everything[int(row)] for row in drawn))[:count]
    if len(sentences) < 2:
        raise DataError(f"{source}: {len(sentences)} distinct sentences: negative pairs need two")
    return sentences
