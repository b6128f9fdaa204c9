"""Reads sentence pairs with gold scores: STS12 to STS16, STS-B, SICK-R, and pair files."""

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jax_sentemb.data.tables import check_header, check_width
from jax_sentemb.errors import DataError, Setting
from jax_sentemb.files import user_path

# The subsets of each year, by the names of SentEval's files. SentEval's STS13 has no SMT, because its licence does not allow
# redistribution. Papers that score SentEval's files leave it out; older papers (SIF, Tang and de Sa) include it. See
# StsProtocol.smt.
SMT = "SMT"
SUBSETS = {
    "STS12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "STS13": ("FNWN", "headlines", "OnWN"),
    "STS14": ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    "STS15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "STS16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
DISJOINT = "STSBenchmark-dev-disjoint"
BENCHMARK = {"STSBenchmark-dev": "sts-dev.csv", DISJOINT: "sts-dev.csv", "STSBenchmark-test": "sts-test.csv"}
# Years of STS-B dev, by its third column, whose pairs are in none of the sets STS12 to STS16.
DISJOINT_YEARS = ("2012train", "2017")
SICK = {"SICKRelatedness-trial": "SICK_trial.txt", "SICKRelatedness-test": "SICK_test_annotated.txt"}

# Published numbers of pairs with a gold score.
COUNTS = {
    "STS12": 3108,
    "STS13": 1500,  # without the 750 of SMT
    "STS14": 3750,
    "STS15": 3000,
    "STS16": 1186,
    "STSBenchmark-dev": 1500,
    DISJOINT: 363,
    "STSBenchmark-test": 1379,
    "SICKRelatedness-trial": 500,
    "SICKRelatedness-test": 4927,
}
DEVELOPMENT = ("STSBenchmark-dev", DISJOINT, "SICKRelatedness-trial")  # for model selection, not for reports


class ScoredPairs(NamedTuple):
    """Sentence pairs with human similarity scores."""

    first: list[str]
    second: list[str]
    gold: Float[np.ndarray, " pairs"]  # float64; a higher score is more similar


class StsTask(NamedTuple):
    """One evaluation set: a year of STS with its subsets, or a single file as the only subset."""

    name: str
    subsets: dict[str, ScoredPairs]


def sts_files(name: str, folder: Path, smt: bool = False) -> list[Path]:
    """The files of the set `name` below a SentEval folder, whether they exist or not; `smt` includes SMT of STS13 if it exists."""
    if name in SUBSETS:
        directory = folder / "downstream" / "STS" / f"{name}-en-test"
        return [directory / f"STS.{kind}.{subset}.txt" for subset in subsets_of(name, folder, smt) for kind in ("input", "gs")]
    if name in BENCHMARK:
        return [folder / "downstream" / "STS" / "STSBenchmark" / BENCHMARK[name]]
    return [folder / "downstream" / "SICK" / SICK[name]]


def subsets_of(name: str, folder: Path, smt: bool = False) -> tuple[str, ...]:
    """The subsets of a year, or "all" if the year is one file, as from the hub; `smt` as for `sts_files`."""
    year = folder / "downstream" / "STS" / f"{name}-en-test"
    if (year / "STS.input.all.txt").is_file():
        return ("all",)
    return (*SUBSETS[name], SMT) if smt and name == "STS13" and (year / f"STS.input.{SMT}.txt").is_file() else SUBSETS[name]


def load_sts(folder: str | Path, required: bool = True) -> tuple[dict[str, StsTask], list[str]]:
    """The sets of a SentEval folder by name, and the names of the missing sets.

    `folder` contains `downstream`, or is `downstream`. DataError for a malformed file, or if there is no set and one is `required`.
    """
    root = senteval_root(folder, "eval.data")
    names = (*SUBSETS, *BENCHMARK, *SICK)
    tasks = {name: load_sts_task(name, root) for name in names if _is_there(name, root)}
    if not tasks and required:
        raise DataError(
            Setting("eval.data", str(folder)), " has no evaluation set: expected folders such as downstream/STS/STS12-en-test"
        )
    return tasks, [name for name in names if name not in tasks]


def _is_there(name: str, root: Path) -> bool:
    """Return whether the folder of a year exists, even if a file in it is missing, or the file of another set.

    The disjoint part of STS-B dev also needs rows of its years.
    """
    first = sts_files(name, root)[0]
    if name == DISJOINT and first.is_file():
        return any(line.split("\t")[2:3] in ([year] for year in DISJOINT_YEARS) for _, line in _lines(first))
    return first.parent.is_dir() if name in SUBSETS else first.is_file()


def senteval_root(folder: str | Path, setting: str = "--data") -> Path:
    """The folder that contains `downstream`, from itself or from `downstream`; DataError that names the `setting` for others."""
    folder = user_path(folder)
    for root in (folder, folder.parent):
        if root / "downstream" in (folder, folder / "downstream") and (root / "downstream").is_dir():
            return root
    raise DataError(Setting(setting, folder), " is not a SentEval directory: give the folder that contains downstream/STS")


def load_sts_task(name: str, root: Path, smt: bool = False) -> StsTask:
    """Reads the set `name` below the SentEval folder `root`; `smt` as for `sts_files`.

    DataError for a file that is missing or malformed.
    """
    files = sts_files(name, root)
    split = name.partition("-")[2]
    if name in SUBSETS:
        subsets = {subset: _load_subset(files[0].parent, subset) for subset in subsets_of(name, root, smt)}
    elif name == DISJOINT:
        subsets = {"dev": _without(_load_benchmark(files[0], DISJOINT_YEARS), _scored_pairs(root))}
    elif name in BENCHMARK:
        subsets = {split: _load_benchmark(files[0])}
    else:
        subsets = {split: _load_columns(files[0], ("sentence_A", "sentence_B", "relatedness_score"))}
    return StsTask(name, {subset: _single_spaces(pairs) for subset, pairs in subsets.items()})


def _single_spaces(pairs: ScoredPairs) -> ScoredPairs:
    """The pairs with tokens joined by one space, as SentEval passes them to an encoder."""
    first, second = ([" ".join(sentence.split()) for sentence in side] for side in (pairs.first, pairs.second))
    return ScoredPairs(first, second, pairs.gold)


def load_pairs(path: str | Path) -> ScoredPairs:
    """The pairs of a `.tsv` or `.csv` file whose header names `sentence1`, `sentence2` and `score`.

    In a TSV, tabs separate fields and quotes are text; in a CSV, fields may be quoted. Rows without a score are dropped. DataError
    for a malformed line.
    """
    return _load_columns(user_path(path), ("sentence1", "sentence2", "score"))


def _load_subset(directory: Path, subset: str) -> ScoredPairs:
    sentences, scores = directory / f"STS.input.{subset}.txt", directory / f"STS.gs.{subset}.txt"
    inputs, gold = _lines(sentences), _lines(scores)
    if len(inputs) != len(gold):
        raise DataError(f"{sentences} has {len(inputs)} lines and {scores.name} has {len(gold)}: the files do not match")
    # STS16 has further columns (the sources of the sentences) after the pair.
    rows = ((number, _fields(sentences, number, line, 2)) for number, line in inputs)
    both = zip(rows, gold, strict=True)
    return _pairs(sentences, ((number, fields[0], fields[1], score) for (number, fields), (_, score) in both))


def _load_benchmark(path: Path, years: tuple[str, ...] = ()) -> ScoredPairs:
    """Read STS-B as distributed: no header; genre, file, year, id, score, two sentences, and in some rows sources.

    `years` keeps the rows of these years only; empty keeps all.
    """
    rows = ((number, _fields(path, number, line, 7)) for number, line in _lines(path))
    return _pairs(path, ((n, fields[5], fields[6], fields[4]) for n, fields in rows if not years or fields[2] in years))


def _scored_pairs(root: Path) -> set[frozenset[str]]:
    """Return the pairs of the sets below `root` that share pairs with the years of `DISJOINT_YEARS`, as `_pair_key` spells them."""
    names = [name for name in ("STS12", "STSBenchmark-test", "SICKRelatedness-test") if _is_there(name, root)]
    subsets = [pairs for name in names for pairs in load_sts_task(name, root).subsets.values()]
    return {_pair_key(*sides) for pairs in subsets for sides in zip(pairs.first, pairs.second, strict=True)}


def _pair_key(first: str, second: str) -> frozenset[str]:
    """Return a pair without order, case, spaces and punctuation."""
    return frozenset("".join(filter(str.isalnum, sentence.lower())) for sentence in (first, second))


def _without(pairs: ScoredPairs, others: set[frozenset[str]]) -> ScoredPairs:
    """Return the pairs that are not among `others`."""
    sides = zip(pairs.first, pairs.second, strict=True)
    rows = [row for row, side in enumerate(sides) if _pair_key(*side) not in others]
    if len(set(pairs.gold[rows])) < 2:
        raise DataError(f"{DISJOINT}: {len(rows)} pairs are left; use another development set (", Setting("eval.dev"), ")")
    return ScoredPairs([pairs.first[row] for row in rows], [pairs.second[row] for row in rows], pairs.gold[rows])


def _load_columns(path: Path, names: tuple[str, str, str]) -> ScoredPairs:
    """Reads the columns `names` (two sentences and a score) of a table with a header."""
    table = _table(path)
    _, header = next(table, (1, []))
    check_header(header, f"{path}:1")
    if missing := [name for name in names if name not in header]:
        raise DataError(f"{path}:1: the header has no column {missing[0]!r}; required are {', '.join(names)}")
    columns = [header.index(name) for name in names]

    def rows() -> Iterable[tuple[int, str, str, str]]:
        for number, fields in table:
            if not any(field.strip() for field in fields):
                continue
            check_width(fields, header, f"{path}:{number}")
            yield number, fields[columns[0]], fields[columns[1]], fields[columns[2]]

    return _pairs(path, rows())


def _table(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and fields of a file: CSV if its name ends with .csv, else tab-separated."""
    lines = _lines(path)
    if path.suffix != ".csv":
        yield from ((number, line.split("\t")) for number, line in lines)
        return
    reader = csv.reader(line + "\n" for _, line in lines)
    try:
        yield from ((reader.line_num, fields) for fields in reader)
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num}: not a CSV file: {error}") from None


def _pairs(path: Path, rows: Iterable[tuple[int, str, str, str]]) -> ScoredPairs:
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
        raise DataError(f"{path}: {len(gold)} pairs have {len(set(gold))} distinct scores, a correlation needs at least two")
    return ScoredPairs(first, second, np.array(gold))


def _fields(path: Path, number: int, line: str, expected: int) -> list[str]:
    fields = line.split("\t")
    if len(fields) < expected:
        raise DataError(f"{path}:{number}: {len(fields)} tab-separated fields, expected at least {expected}")
    return fields


def _lines(path: Path) -> list[tuple[int, str]]:
    """Lines with their numbers from 1. Only line feeds end a line; other Unicode line ends are text."""
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
