"""Semantic textual similarity: sentence pairs with gold scores from disk, and the correlation of cosines with them.

The protocol is SentEval's with the SimCSE fork's "all": cosine similarity, no regressor, pairs without a gold score
dropped, one correlation over all pairs of a year ("all") next to mean and weighted mean over the year's subsets.
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import pearsonr, spearmanr

from jax_sentemb.errors import DataError, NumericsError

# The subsets of each year as SentEval names its files. STS13 has no SMT: its licence does not let SentEval pass it on.
SUBSETS = {
    "STS12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "STS13": ("FNWN", "headlines", "OnWN"),
    "STS14": ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    "STS15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "STS16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
BENCHMARK = {"STSBenchmark-dev": "sts-dev.csv", "STSBenchmark-test": "sts-test.csv"}
SICK = {"SICKRelatedness-trial": "SICK_trial.txt", "SICKRelatedness-test": "SICK_test_annotated.txt"}

SAME_COSINE = 1e-9  # cosines that differ by less come from float32 rounding of equal vectors: their order means nothing


class Pairs(NamedTuple):
    """Sentence pairs with the similarity that people gave them."""

    first: list[str]
    second: list[str]
    gold: np.ndarray  # float64 [number of pairs], higher is more similar


class StsTask(NamedTuple):
    """One evaluation set: a year of STS with its subsets, or a single file as its only subset."""

    name: str
    subsets: dict[str, Pairs]


def load_sts(folder: str | Path) -> tuple[dict[str, StsTask], list[str]]:
    """The sets found in a SentEval folder by name, and the names of those that are absent.

    `folder` is the one that holds `downstream`, or `downstream` itself. DataError: no set found, or a bad file.
    """
    folder = Path(folder).expanduser()
    downstream = folder / "downstream" if (folder / "downstream").is_dir() else folder
    if not downstream.is_dir():
        raise DataError(f"eval.data={str(folder)!r} is not a directory: give the SentEval folder that holds downstream/STS")
    tasks = {}
    for year, subsets in SUBSETS.items():
        directory = downstream / "STS" / f"{year}-en-test"
        if directory.is_dir():
            tasks[year] = StsTask(year, {subset: _load_subset(directory, subset) for subset in subsets})
    for name, file in BENCHMARK.items():
        path = downstream / "STS" / "STSBenchmark" / file
        if path.is_file():
            tasks[name] = StsTask(name, {name.split("-")[1]: _load_benchmark(path)})
    for name, file in SICK.items():
        path = downstream / "SICK" / file
        if path.is_file():
            names = ("sentence_A", "sentence_B", "relatedness_score")
            tasks[name] = StsTask(name, {name.split("-")[1]: _load_columns(path, names)})
    absent = [name for name in (*SUBSETS, *BENCHMARK, *SICK) if name not in tasks]
    if not tasks:
        raise DataError(f"no evaluation set in eval.data={str(folder)!r}: expected downstream/STS/STS12-en-test and the like")
    return tasks, absent


def load_pairs(path: str | Path) -> Pairs:
    """The pairs of a `.tsv` or `.csv` file whose header names `sentence1`, `sentence2` and `score`.

    A TSV is split at tabs and its quotes are text; a CSV may quote fields. Rows without a score are dropped. DataError
    names the line that is malformed.
    """
    return _load_columns(Path(path).expanduser(), ("sentence1", "sentence2", "score"))


def score_sts(embed: Callable[[Sequence[str]], np.ndarray], task: StsTask) -> dict:
    """The scores of one set; see `score_tasks`."""
    return score_tasks(embed, {task.name: task})[task.name]


def score_tasks(embed: Callable[[Sequence[str]], np.ndarray], tasks: dict[str, StsTask]) -> dict[str, dict]:
    """Correlations x 100 of cosine with gold for every set; each distinct sentence of all goes to `embed` once.

    A set's result is {"n": pairs, "spearman": {...}, "pearson": {...}}, each with "all" (one correlation over all
    pairs), "mean" and "wmean" (over the subsets, plain and weighted by pairs) and "subsets" {subset: correlation}.
    NumericsError where embeddings are not finite or all cosines agree, so that no correlation exists.
    """
    every = (side for task in tasks.values() for pairs in task.subsets.values() for side in (pairs.first, pairs.second))
    place = {sentence: index for index, sentence in enumerate(dict.fromkeys(s for side in every for s in side))}
    vectors = _unit_length(np.asarray(embed(list(place)), np.float64), ", ".join(tasks))

    def cosines(pairs: Pairs) -> np.ndarray:
        first, second = ([place[sentence] for sentence in side] for side in (pairs.first, pairs.second))
        # Rounded, so that a sentence with itself is exactly as similar as any other with itself: a tie, not noise.
        return np.einsum("ne,ne->n", vectors[first], vectors[second]).round(12)

    return {
        name: _correlations(name, {subset: (cosines(pairs), pairs.gold) for subset, pairs in task.subsets.items()})
        for name, task in tasks.items()
    }


def _correlations(name: str, subsets: dict[str, tuple[np.ndarray, np.ndarray]]) -> dict:
    everything = tuple(np.concatenate(side) for side in zip(*subsets.values(), strict=True))
    counts = [len(gold) for _, gold in subsets.values()]
    result: dict[str, Any] = {"n": sum(counts)}
    for key, correlation in (("spearman", spearmanr), ("pearson", pearsonr)):
        scores = {subset: _correlate(correlation, f"{name} {subset}", *pair) for subset, pair in subsets.items()}
        result[key] = {
            "all": _correlate(correlation, name, *everything),
            "mean": float(np.mean(list(scores.values()))),
            "wmean": float(np.average(list(scores.values()), weights=counts)),
            "subsets": scores,
        }
    return result


def _correlate(correlation: Callable, where: str, cosine: np.ndarray, gold: np.ndarray) -> float:
    if np.ptp(cosine) < SAME_COSINE:
        raise NumericsError(f"{where}: all {len(cosine)} pairs have the same cosine similarity, {cosine[0]:.6f}: they collapsed")
    return 100 * float(correlation(cosine, gold).statistic)


def _unit_length(vectors: np.ndarray, where: str) -> np.ndarray:
    """Rows of length 1; a zero row stays zero, so that its cosines are 0, as in SentEval."""
    bad = ~np.isfinite(vectors).all(axis=-1)
    if bad.any():
        raise NumericsError(f"{where}: {bad.sum()} of {len(vectors)} sentence embeddings are not finite (NaN or Inf)")
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)


def _load_subset(directory: Path, subset: str) -> Pairs:
    sentences, scores = directory / f"STS.input.{subset}.txt", directory / f"STS.gs.{subset}.txt"
    inputs, gold = _lines(sentences), _lines(scores)
    if len(inputs) != len(gold):
        raise DataError(f"{sentences} has {len(inputs)} lines and {scores.name} has {len(gold)}: the files do not match")
    # STS16 has further columns (the sources of the sentences) behind the pair.
    rows = ((number, _fields(sentences, number, line, 2)) for number, line in inputs)
    both = zip(rows, gold, strict=True)
    return _pairs(sentences, ((number, fields[0], fields[1], score) for (number, fields), (_, score) in both))


def _load_benchmark(path: Path) -> Pairs:
    """STS-B as distributed: no header; genre, file, year, id, score, two sentences, and sometimes sources."""
    rows = ((number, _fields(path, number, line, 7)) for number, line in _lines(path))
    return _pairs(path, ((number, fields[5], fields[6], fields[4]) for number, fields in rows))


def _load_columns(path: Path, names: tuple[str, str, str]) -> Pairs:
    """The columns `names` (two sentences and a score) of a table with a header."""
    table = _table(path)
    _, header = next(table, (1, []))
    if missing := [name for name in names if name not in header]:
        raise DataError(f"{path}:1: no column {missing[0]!r} in the header: needed are {', '.join(names)}")
    columns = [header.index(name) for name in names]

    def rows() -> Iterable[tuple[int, str, str, str]]:
        for number, fields in table:
            if not any(field.strip() for field in fields):
                continue
            if len(fields) <= max(columns):
                raise DataError(f"{path}:{number}: {len(fields)} fields, expected {len(header)} as in the header")
            yield number, fields[columns[0]], fields[columns[1]], fields[columns[2]]

    return _pairs(path, rows())


def _table(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and fields: of a CSV if the name ends so, else tab-separated."""
    lines = _lines(path)
    if path.suffix != ".csv":
        yield from ((number, line.split("\t")) for number, line in lines)
        return
    reader = csv.reader(line + "\n" for _, line in lines)
    try:
        yield from ((reader.line_num, fields) for fields in reader)
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num}: not a CSV file: {error}") from None


def _pairs(path: Path, rows: Iterable[tuple[int, str, str, str]]) -> Pairs:
    """Pairs of the rows (line number, sentence, sentence, score) that have a score."""
    first, second, gold = [], [], []
    for number, one, other, score in rows:
        if not score.strip():
            continue
        try:
            value = float(score)
        except ValueError:
            value = np.nan
        if not np.isfinite(value):
            raise DataError(f"{path}:{number}: score {score.strip()[:40]!r} is not a number")
        first.append(one.strip())
        second.append(other.strip())
        gold.append(value)
    if len(set(gold)) < 2:
        raise DataError(f"{path}: {len(gold)} pairs with {len(set(gold))} distinct scores: a correlation needs at least two")
    return Pairs(first, second, np.array(gold))


def _fields(path: Path, number: int, line: str, expected: int) -> list[str]:
    fields = line.split("\t")
    if len(fields) < expected:
        raise DataError(f"{path}:{number}: {len(fields)} tab-separated fields, expected at least {expected}")
    return fields


def _lines(path: Path) -> list[tuple[int, str]]:
    """Lines with their numbers from 1, split at line feeds only (other Unicode line ends are text)."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start} is not UTF-8: convert the file to UTF-8") from None
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [(number, line.removesuffix("\r")) for number, line in enumerate(lines, 1)]
