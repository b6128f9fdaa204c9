"""Read sentence pairs with gold scores: STS12 to STS16, STS-B, SICK-R, and pair files."""

import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jax_sentemb.data.delimited import decode_file, finite, numbered_lines, read_rows, select_columns, split_fields
from jax_sentemb.errors import REPLACE_SET, DataError, Setting
from jax_sentemb.files import user_path


class ScoredPairs(NamedTuple):
    """Sentence pairs with human similarity scores."""

    first: list[str]
    second: list[str]
    gold: Float[np.ndarray, " pairs"]  # float64; a higher score is more similar


class StsTask(NamedTuple):
    """One evaluation set: a year of STS with its subsets, or a single file as the only subset."""

    name: str
    subsets: dict[str, ScoredPairs]


class StsSpec(NamedTuple):
    """The files of a set."""

    files: dict[str, tuple[str, ...]]  # subset -> paths below the SentEval folder
    pairs: int  # published number of pairs with a gold score
    read: Callable[..., ScoredPairs]  # from the paths of a subset
    whole: dict[str, tuple[str, ...]] = {}  # files that replace `files` if they exist, as the hub has them
    optional: dict[str, tuple[str, ...]] = {}  # subsets that a protocol may include, not counted in `pairs`


def sts_files(spec: StsSpec, root: Path, optional: bool = False) -> dict[str, tuple[Path, ...]]:
    """Return the paths of each subset below a SentEval folder, and of the `optional` subsets that exist."""

    def paths(subsets: dict[str, tuple[str, ...]]) -> dict[str, tuple[Path, ...]]:
        return {name: tuple(root / file for file in files) for name, files in subsets.items()}

    one_file, optional_paths = paths(spec.whole), paths(spec.optional if optional else {})
    if any(files[0].is_file() for files in one_file.values()):
        return one_file
    return paths(spec.files) | {name: files for name, files in optional_paths.items() if files[0].is_file()}


def senteval_root(folder: str | Path, setting: str = "--data") -> Path:
    """Return the folder that contains `downstream`, given this folder or `downstream` itself.

    Raises:
        DataError: Another folder was given. The message names the `setting`.
    """
    folder = user_path(folder)
    for root in (folder, folder.parent):
        if root / "downstream" in (folder, folder / "downstream") and (root / "downstream").is_dir():
            return root
    if not folder.exists():
        raise DataError(Setting(setting, folder), ": no such folder; give the SentEval folder, which contains downstream")
    forms = "for your own files give jax-sentemb evaluate --pairs FILE, --retrieval DIR or --labels FILE"
    raise DataError(Setting(setting, folder), f" is not a SentEval directory: it has no folder downstream; {forms}")


def load_sts_task(name: str, spec: StsSpec, root: Path, optional: bool = False) -> StsTask:
    """Read a set below the SentEval folder `root`, with tokens joined by one space.

    Raises:
        DataError: A file is missing or malformed.
    """
    subsets = {subset: spec.read(*files) for subset, files in sts_files(spec, root, optional).items()}
    return StsTask(name, {subset: _single_spaces(pairs) for subset, pairs in subsets.items()})


def _single_spaces(pairs: ScoredPairs) -> ScoredPairs:
    """Return the pairs with tokens joined by one space, as SentEval passes them to an encoder."""
    first, second = ([" ".join(sentence.split()) for sentence in side] for side in (pairs.first, pairs.second))
    return ScoredPairs(first, second, pairs.gold)


def load_pairs(path: str | Path) -> ScoredPairs:
    """Return the pairs of a `.tsv` or `.csv` file whose header names `sentence1`, `sentence2` and `score`.

    In a TSV, tabs separate fields and quotes are text; in a CSV, fields may be quoted. Rows without a score are dropped.

    Raises:
        DataError: A line is malformed.
    """
    return read_columns(user_path(path), ("sentence1", "sentence2", "score"))


def read_year(inputs: Path, gold: Path) -> ScoredPairs:
    """Read a subset of STS12 to STS16: a file of tab-separated pairs and a file of scores."""
    # STS16 has further columns (the sources of the sentences) after the pair.
    rows = [(number, split_fields(inputs, number, line, 2)) for number, line in numbered_lines(decode_file(inputs))]
    scores = [line for _, line in numbered_lines(decode_file(gold))]
    if len(rows) != len(scores):
        raise DataError(f"{inputs} has {len(rows)} lines and {gold.name} has {len(scores)}: the files do not match; {REPLACE_SET}")
    return _pairs(inputs, ((number, fields[0], fields[1], score) for (number, fields), score in zip(rows, scores, strict=True)))


def read_benchmark(path: Path, years: Sequence[str] = ()) -> ScoredPairs:
    """Read STS-B as distributed: no header; genre, file, year, id, score, two sentences, and in some rows sources.

    Only the rows of `years` are read; if it is empty, all rows.
    """
    rows = ((number, split_fields(path, number, line, 7)) for number, line in numbered_lines(decode_file(path)))
    return _pairs(path, ((n, fields[5], fields[6], fields[4]) for n, fields in rows if not years or fields[2] in years))


def read_sick(path: Path) -> ScoredPairs:
    """Read a file of SICK, which has a header."""
    return read_columns(path, ("sentence_A", "sentence_B", "relatedness_score"))


def without(pairs: ScoredPairs, others: Iterable[ScoredPairs]) -> ScoredPairs:
    """Return the pairs that are not among `others`, whatever their order, case, spaces and punctuation."""
    excluded = {_pair_key(*sides) for pair_set in others for sides in zip(pair_set.first, pair_set.second, strict=True)}
    sides = zip(pairs.first, pairs.second, strict=True)
    rows = [row for row, side in enumerate(sides) if _pair_key(*side) not in excluded]
    return ScoredPairs([pairs.first[row] for row in rows], [pairs.second[row] for row in rows], pairs.gold[rows])


def _pair_key(first: str, second: str) -> frozenset[str]:
    return frozenset("".join(filter(str.isalnum, sentence.lower())) for sentence in (first, second))


def read_columns(path: Path, names: tuple[str, str, str]) -> ScoredPairs:
    """Read the columns `names` (two sentences and a score) of a table with a header."""
    is_csv = path.suffix == ".csv"
    rows = read_rows(path, io.StringIO(decode_file(path), newline="\n"), "," if is_csv else "\t", quotes=is_csv)
    columns = select_columns(path, rows, names, (f"required are {', '.join(names)}",))
    return _pairs(path, ((number, *values) for number, values in columns))


def _pairs(path: Path, rows: Iterable[tuple[int, str, str, str]]) -> ScoredPairs:
    """Return the pairs of the rows (line number, sentence, sentence, score) that have a score."""
    first, second, gold = [], [], []
    for number, first_sentence, second_sentence, score in rows:
        if not score.strip():
            continue
        value = finite(score)
        if value is None:
            raise DataError(f"{path}:{number}: score {score.strip()[:40]!r} is not a number; correct the line")
        first.append(first_sentence.strip())
        second.append(second_sentence.strip())
        gold.append(value)
    if len(set(gold)) < 2:
        raise DataError(
            f"{path}: {len(gold)} pairs have {len(set(gold))} distinct scores, a correlation needs at least two; give other pairs"
        )
    return ScoredPairs(first, second, np.array(gold))
