"""Semantic textual similarity: sentence pairs with gold scores from disk, and the correlation of similarities with them.

No regressor, pairs without a gold score dropped, one correlation over all pairs of a year ("all") next to mean and
weighted mean over the year's subsets. Papers differ in which of these they print: see PROTOCOLS.
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_softmax
from scipy.stats import pearsonr, rankdata, spearmanr

from jax_sentemb.errors import DataError, NumericsError
from jax_sentemb.evaluation.words import NO_VIEWS, Views, remove_first_component
from jax_sentemb.paths import user_path

# The subsets of each year as SentEval names its files. Its STS13 lacks SMT, whose licence does not let SentEval pass it on: papers
# that score SentEval's files leave it out, older ones (SIF, Tang and de Sa) count it. See Protocol.smt.
SMT = "SMT"
SUBSETS = {
    "STS12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "STS13": ("FNWN", "headlines", "OnWN"),
    "STS14": ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    "STS15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "STS16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
BENCHMARK = {"STSBenchmark-dev": "sts-dev.csv", "STSBenchmark-test": "sts-test.csv"}
SICK = {"SICKRelatedness-trial": "SICK_trial.txt", "SICKRelatedness-test": "SICK_test_annotated.txt"}

# Published numbers of pairs with a gold score.
COUNTS = {
    "STS12": 3108,
    "STS13": 1500,  # and 750 of SMT
    "STS14": 3750,
    "STS15": 3000,
    "STS16": 1186,
    "STSBenchmark-dev": 1500,
    "STSBenchmark-test": 1379,
    "SICKRelatedness-trial": 500,
    "SICKRelatedness-test": 4927,
}
DEVELOPMENT = ("STSBenchmark-dev", "SICKRelatedness-trial")  # to select by, not to report

SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
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


class Protocol(NamedTuple):
    """Which of a set's correlations is its score."""

    name: str
    correlation: str  # "spearman" or "pearson"
    aggregate: str  # "all", "mean" or "wmean"
    remove_first_component: bool = False  # of each side of the pairs of a subset, then unit length
    smt: bool = False  # STS13 counts its subset SMT, where the files are there


PROTOCOLS = {
    # Gao et al. 2021, and Reimers and Gurevych 2019, IS-BERT, miCSE.
    "simcse": Protocol("simcse", "spearman", "all"),
    # Conneau and Kiela 2018.
    "senteval": Protocol("senteval", "pearson", "mean"),
    # Tang and de Sa 2019.
    "multiview": Protocol("multiview", "pearson", "mean", remove_first_component=True, smt=True),
}


def sts_files(name: str, folder: Path, smt: bool = False) -> list[Path]:
    """The files of the set `name` below a SentEval folder, there or not; `smt`: SMT of STS13 too, where it is there."""
    if name in SUBSETS:
        directory = folder / "downstream" / "STS" / f"{name}-en-test"
        return [directory / f"STS.{kind}.{subset}.txt" for subset in subsets_of(name, folder, smt) for kind in ("input", "gs")]
    if name in BENCHMARK:
        return [folder / "downstream" / "STS" / "STSBenchmark" / BENCHMARK[name]]
    return [folder / "downstream" / "SICK" / SICK[name]]


def subsets_of(name: str, folder: Path, smt: bool = False) -> tuple[str, ...]:
    """The subsets of a year, or "all" where the year lies there in one piece, as from the hub; `smt` as for `sts_files`."""
    year = folder / "downstream" / "STS" / f"{name}-en-test"
    if (year / "STS.input.all.txt").is_file():
        return ("all",)
    return (*SUBSETS[name], SMT) if smt and name == "STS13" and (year / f"STS.input.{SMT}.txt").is_file() else SUBSETS[name]


def load_sts(folder: str | Path, required: bool = True) -> tuple[dict[str, StsTask], list[str]]:
    """The sets found in a SentEval folder by name, and the names of those that are absent.

    `folder` is the one that holds `downstream`, or `downstream` itself. DataError: a bad file, or no set found but one `required`.
    """
    root = senteval_root(folder, "eval.data=")
    names = (*SUBSETS, *BENCHMARK, *SICK)
    tasks = {name: load_sts_task(name, root) for name in names if _is_there(name, root)}
    if not tasks and required:
        raise DataError(f"no evaluation set in eval.data={str(folder)!r}: expected downstream/STS/STS12-en-test and the like")
    return tasks, [name for name in names if name not in tasks]


def _is_there(name: str, root: Path) -> bool:
    """A year with a folder of its own is there, even if a file of it is missing; other sets are one file."""
    first = sts_files(name, root)[0]
    return first.parent.is_dir() if name in SUBSETS else first.is_file()


def senteval_root(folder: str | Path, setting: str = "--data ") -> Path:
    """The folder that holds `downstream`, given itself or `downstream`; DataError, naming the `setting`, where there is neither."""
    folder = user_path(folder)
    for root in (folder, folder.parent):
        if root / "downstream" in (folder, folder / "downstream") and (root / "downstream").is_dir():
            return root
    raise DataError(f"{setting}{str(folder)!r} is not a SentEval directory: give the folder that holds downstream/STS")


def load_sts_task(name: str, root: Path, smt: bool = False) -> StsTask:
    """The set `name` below the SentEval folder `root`, `smt` as for `sts_files`; DataError where a file is missing or malformed."""
    files = sts_files(name, root)
    split = name.partition("-")[2]
    if name in SUBSETS:
        subsets = {subset: _load_subset(files[0].parent, subset) for subset in subsets_of(name, root, smt)}
    elif name in BENCHMARK:
        subsets = {split: _load_benchmark(files[0])}
    else:
        subsets = {split: _load_columns(files[0], ("sentence_A", "sentence_B", "relatedness_score"))}
    return StsTask(name, {subset: _single_spaces(pairs) for subset, pairs in subsets.items()})


def _single_spaces(pairs: Pairs) -> Pairs:
    """Tokens joined by one space, as SentEval hands them on."""
    first, second = ([" ".join(sentence.split()) for sentence in side] for side in (pairs.first, pairs.second))
    return Pairs(first, second, pairs.gold)


def load_pairs(path: str | Path) -> Pairs:
    """The pairs of a `.tsv` or `.csv` file whose header names `sentence1`, `sentence2` and `score`.

    A TSV is split at tabs and its quotes are text; a CSV may quote fields. Rows without a score are dropped. DataError
    names the line that is malformed.
    """
    return _load_columns(user_path(path), ("sentence1", "sentence2", "score"))


def score_sts(embed: Callable[[Sequence[str]], np.ndarray], task: StsTask) -> dict:
    """The scores of one set; see `score_tasks`."""
    return score_tasks(embed, {task.name: task})[task.name]


def score_tasks(embed: Callable[[Sequence[str]], np.ndarray], tasks: dict[str, StsTask]) -> dict[str, dict]:
    """Correlations x 100 of cosine with gold for every set; each distinct sentence of all goes to `embed` once.

    A set's result is {"n": pairs, "spearman": {...}, "pearson": {...}}, each with "all" (one correlation over all
    pairs), "mean" and "wmean" (over the subsets, plain and weighted by pairs) and "subsets" {subset: correlation}.
    NumericsError where embeddings are not finite or all cosines agree, so that no correlation exists.
    """
    return correlate_tasks(task_cosines(embed, tasks), tasks)


TaskSimilarities = dict[str, dict[str, np.ndarray]]  # set -> subset -> float64 [pairs]


def task_cosines(embed: Callable[[Sequence[str]], np.ndarray], tasks: dict[str, StsTask]) -> TaskSimilarities:
    """The cosine of every pair; each distinct sentence goes to `embed` once. NumericsError where embeddings are not finite."""
    every = (side for task in tasks.values() for pairs in task.subsets.values() for side in (pairs.first, pairs.second))
    place = {sentence: index for index, sentence in enumerate(dict.fromkeys(s for side in every for s in side))}
    vectors = _unit_length(np.asarray(embed(list(place)), np.float64), ", ".join(tasks))

    def cosines(pairs: Pairs) -> np.ndarray:
        first, second = ([place[sentence] for sentence in side] for side in (pairs.first, pairs.second))
        return similarity(vectors[first], vectors[second], "dot")

    return _of_subsets(cosines, tasks)


def task_pair_scores(score: Callable[[Sequence[tuple[str, str]]], np.ndarray], tasks: dict[str, StsTask]) -> TaskSimilarities:
    """As `task_cosines`, of a model that maps pairs of sentences to scores [N]."""

    def scores(pairs: Pairs) -> np.ndarray:
        found = np.asarray(score(list(zip(pairs.first, pairs.second, strict=True))), np.float64)
        if not np.isfinite(found).all():
            raise NumericsError(f"{', '.join(tasks)}: scores of pairs are not finite (NaN or Inf)")
        return found

    return _of_subsets(scores, tasks)


def score_of_pair(outputs: np.ndarray) -> np.ndarray:
    """One score a pair [N] of a cross-encoder: its output [N, 1], or of logits [N, C] the log probability of the first class."""
    return outputs[:, 0] if outputs.shape[1] == 1 else log_softmax(np.asarray(outputs, np.float64), axis=1)[:, 0]


def correlate_tasks(found: TaskSimilarities, tasks: dict[str, StsTask]) -> dict[str, dict]:
    """The results of `score_tasks` from similarities of the pairs."""
    return {
        name: _correlations(name, {subset: (found[name][subset], pairs.gold) for subset, pairs in task.subsets.items()})
        for name, task in tasks.items()
    }


def _of_subsets(similarities: Callable[[Pairs], np.ndarray], tasks: dict[str, StsTask]) -> TaskSimilarities:
    return {name: {subset: similarities(pairs) for subset, pairs in task.subsets.items()} for name, task in tasks.items()}


Similarities = dict[str, dict[str, np.ndarray]]  # kind -> subset -> float64 [pairs]


def pair_similarities(
    vectors: np.ndarray, place: dict[str, int], task: StsTask, protocol: Protocol, views: Views = NO_VIEWS
) -> Similarities:
    """Every kind of similarity of the pairs of one set; `place` maps a sentence to its row of `vectors` [n, E].

    Where embeddings consist of views, `vectors` are these, and a protocol's removal is of each view. NumericsError where embeddings
    are not finite.
    """
    vectors = np.asarray(vectors, np.float64)
    _unit_length(vectors, task.name)  # refuses what is not finite
    if not protocol.remove_first_component:
        vectors = views.joined(vectors)
    found: Similarities = {kind: {} for kind in SIMILARITIES}
    for subset, pairs in task.subsets.items():
        first, second = (vectors[[place[sentence] for sentence in side]] for side in (pairs.first, pairs.second))
        if protocol.remove_first_component:
            sides = (views.joined(views.each(remove_first_component, side)) for side in (first, second))
            first, second = (_unit_length(side, task.name) for side in sides)
        for kind in SIMILARITIES:
            found[kind][subset] = similarity(first, second, kind)
    return found


def score_protocol(task: StsTask, similarities: Similarities, protocol: Protocol, resamples: int = 1000) -> dict[str, Any]:
    """The score of one set under a protocol, its 95 % bootstrap interval, and what every other choice would have given.

    {"score", "interval" [low, high] (percentiles over `resamples` draws of pairs, within each subset for the means; none
    with 0 draws), "sizes" {subset: pairs}, and for each kind of similarity {"spearman", "pearson"} as in `score_tasks`}.
    The score is that of the cosine. All x 100. NumericsError where all pairs are equally similar.
    """
    sizes = {subset: len(pairs.gold) for subset, pairs in task.subsets.items()}
    values = {
        kind: {subset: (found, task.subsets[subset].gold) for subset, found in subsets.items()}
        for kind, subsets in similarities.items()
    }
    result = {kind: _correlations(task.name, subsets) for kind, subsets in values.items()}
    score = result["cosine"][protocol.correlation][protocol.aggregate]
    interval = {"interval": _bootstrap(list(values["cosine"].values()), protocol, resamples)} if resamples else {}
    return {"score": score, **interval, "sizes": sizes, **result}


def similarity(first: np.ndarray, second: np.ndarray, kind: str = "cosine") -> np.ndarray:
    """Similarity of each pair of rows, float64 [N]; distances are negated, so that more is more alike."""
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if kind == "cosine":
        first, second = _unit_length(first, "cosine"), _unit_length(second, "cosine")
    if kind in ("cosine", "dot"):
        # Rounded, so that a sentence with itself is exactly as similar as any other with itself: a tie, not noise.
        return np.einsum("ne,ne->n", first, second).round(12)
    if kind == "euclidean":
        return -np.linalg.norm(first - second, axis=1).round(12)
    if kind == "manhattan":
        return -np.abs(first - second).sum(axis=1).round(12)
    raise ValueError(f"similarity {kind!r} is not one of {', '.join(SIMILARITIES)}")


def _bootstrap(subsets: list[tuple[np.ndarray, np.ndarray]], protocol: Protocol, resamples: int) -> list[float]:
    """The 2.5th and 97.5th percentile of the protocol's score over draws of pairs with replacement."""
    random = np.random.default_rng(0)
    if protocol.aggregate == "all":
        subsets = [tuple(np.concatenate(side) for side in zip(*subsets, strict=True))]  # type: ignore[list-item]
    weights = [len(gold) if protocol.aggregate == "wmean" else 1 for _, gold in subsets]
    scores = []
    for values, gold in subsets:
        draws = []
        for first in range(0, resamples, 100):  # in portions: a draw needs a row of memory
            rows = random.integers(len(gold), size=(min(100, resamples - first), len(gold)))
            found, wanted = values[rows], gold[rows]
            if protocol.correlation == "spearman":
                found, wanted = rankdata(found, axis=1), rankdata(wanted, axis=1)
            found = found - found.mean(axis=1, keepdims=True)
            wanted = wanted - wanted.mean(axis=1, keepdims=True)
            norm = np.sqrt(np.square(found).sum(axis=1) * np.square(wanted).sum(axis=1))
            draws.append((found * wanted).sum(axis=1) / np.where(norm > 0, norm, 1.0))
        scores.append(np.concatenate(draws))
    low, high = np.percentile(np.average(scores, axis=0, weights=weights), [2.5, 97.5])
    return [100 * float(low), 100 * float(high)]


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
        raise NumericsError(f"{where}: all {len(cosine)} pairs are equally similar, {cosine[0]:.6f}: the embeddings collapsed")
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
