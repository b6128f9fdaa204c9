"""The classification and regression tasks of SentEval: their names, files and sentences.

Files are read as SentEval reads them: the same encodings, line ends and order of sentences (by length, then label). The order is
part of the protocol, because the folds depend on it.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Real

from jax_sentemb.errors import DataError

Example = tuple[str, str, str]  # label, sentence, second sentence of a pair ("" without one)

SENTIMENT = ("0", "1")
TREC = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
ENTAILMENT = ("CONTRADICTION", "NEUTRAL", "ENTAILMENT")


class Spec(NamedTuple):
    """The description of a task."""

    group: str  # "transfer" or "probing"
    kind: str  # "nested" (folds of one set), "kfold" (train, test), "split" (train, dev, test) or "relatedness"
    files: dict[str, str]  # split, or class for "nested" -> path below the folder
    counts: dict[str, int]  # published number of sentences or pairs of each file
    read: Callable[[Path], Iterator[Example]]
    classes: tuple[str, ...] = ()  # in the order of SentEval's numbers; (): the labels of the training file, sorted
    pairs: bool = False


class TaskSplit(NamedTuple):
    """Sentences, or pairs of them, with their labels, in SentEval's order."""

    first: list[str]
    second: list[str]  # [] for single sentences
    labels: Real[np.ndarray, " examples"]  # class numbers (int) or gold scores (float)


class Task(NamedTuple):
    """A task with its data."""

    name: str
    spec: Spec
    splits: dict[str, TaskSplit]
    classes: tuple[str, ...]
    files: tuple[Path, ...]
    warnings: tuple[str, ...]

    @property
    def sentences(self) -> list[str]:
        """All sentences of the task, with repetitions."""
        return [sentence for split in self.splits.values() for side in (split.first, split.second) for sentence in side]


def _classes_by_file(label: str) -> Callable[[Path], Iterator[Example]]:
    def read(path: Path) -> Iterator[Example]:
        # SentEval splits at every Unicode line end, in text that it decodes as Latin-1.
        for line in _text(path, "latin-1").splitlines():
            yield label, line, ""

    return read


def _trec(path: Path) -> Iterator[Example]:
    for number, line in _numbered(path, "latin-1"):
        label, colon, rest = line.strip().partition(":")
        _, space, sentence = rest.partition(" ")
        if not colon or not space:
            raise DataError(f"{path}:{number}: expected LABEL:sublabel question, found {line.strip()[:40]!r}")
        yield label, sentence, ""


def _sst2(path: Path) -> Iterator[Example]:
    for number, line in _numbered(path):
        fields = _fields(path, number, line, 2)
        yield fields[1], fields[0], ""


def _sst5(path: Path) -> Iterator[Example]:
    for number, line in _numbered(path):
        label, space, sentence = line.strip().partition(" ")
        if not space:
            raise DataError(f"{path}:{number}: expected a label, a space and a sentence, found {line.strip()[:40]!r}")
        yield label, sentence, ""


def _mrpc(path: Path) -> Iterator[Example]:
    for number, line in list(_numbered(path))[1:]:  # behind the header
        fields = _fields(path, number, line, 5)
        yield fields[0], fields[3], fields[4]


def _sick(column: int) -> Callable[[Path], Iterator[Example]]:
    def read(path: Path) -> Iterator[Example]:
        for number, line in list(_numbered(path))[1:]:  # behind the header
            fields = _fields(path, number, line, 5)
            yield fields[column], fields[1], fields[2]

    return read


def _sts_benchmark(path: Path) -> Iterator[Example]:
    for number, line in _numbered(path):
        fields = _fields(path, number, line, 7)
        yield fields[4], fields[5], fields[6]


def _probing(split: str) -> Callable[[Path], Iterator[Example]]:
    def read(path: Path) -> Iterator[Example]:
        for number, line in _numbered(path):
            fields = _fields(path, number, line, 3)
            if fields[0] not in ("tr", "va", "te"):
                raise DataError(f"{path}:{number}: the first field is {fields[0][:20]!r}, expected tr, va or te")
            if fields[0] == split:
                yield fields[1], fields[-1], ""

    return read


def _nested(folder: str, positive: tuple[str, int], negative: tuple[str, int]) -> Spec:
    """A task of two files: first the one with label 1, then the one with label 0, as in SentEval."""
    read = {"1": _classes_by_file("1"), "0": _classes_by_file("0")}
    files = {label: f"downstream/{folder}/{file}" for label, (file, _) in (("1", positive), ("0", negative))}

    def by_name(path: Path) -> Iterator[Example]:
        return read["1" if path.name == positive[0] else "0"](path)

    return Spec("transfer", "nested", files, {"1": positive[1], "0": negative[1]}, by_name, SENTIMENT)


def _three(folder: str, files: tuple[str, str, str]) -> dict[str, str]:
    return {split: f"downstream/{folder}/{file}" for split, file in zip(("train", "dev", "test"), files, strict=True)}


def _counts(train: int, dev: int, test: int) -> dict[str, int]:
    return {"train": train, "dev": dev, "test": test}


def _probing_spec(file: str) -> Spec:
    files: dict[str, str] = {split: f"probing/{file}.txt" for split in ("train", "dev", "test")}
    return Spec("probing", "split", files, _counts(100_000, 10_000, 10_000), _probing(""))


_SST_FILES = ("sentiment-train", "sentiment-dev", "sentiment-test")
_SICK_FILES = ("SICK_train.txt", "SICK_trial.txt", "SICK_test_annotated.txt")
_STSB_FILES = ("sts-train.csv", "sts-dev.csv", "sts-test.csv")

SPECS = {
    "MR": _nested("MR", ("rt-polarity.pos", 5331), ("rt-polarity.neg", 5331)),
    "CR": _nested("CR", ("custrev.pos", 2407), ("custrev.neg", 1368)),
    "SUBJ": _nested("SUBJ", ("subj.objective", 5000), ("subj.subjective", 5000)),
    "MPQA": _nested("MPQA", ("mpqa.pos", 3312), ("mpqa.neg", 7294)),
    "SST2": Spec("transfer", "split", _three("SST/binary", _SST_FILES), _counts(67349, 872, 1821), _sst2, SENTIMENT),
    "SST5": Spec("transfer", "split", _three("SST/fine", _SST_FILES), _counts(8544, 1101, 2210), _sst5, tuple("01234")),
    "TREC": Spec(
        "transfer",
        "kfold",
        {"train": "downstream/TREC/train_5500.label", "test": "downstream/TREC/TREC_10.label"},
        {"train": 5452, "test": 500},
        _trec,
        TREC,
    ),
    "MRPC": Spec(
        "transfer",
        "kfold",
        {"train": "downstream/MRPC/msr_paraphrase_train.txt", "test": "downstream/MRPC/msr_paraphrase_test.txt"},
        {"train": 4076, "test": 1725},
        _mrpc,
        SENTIMENT,
        pairs=True,
    ),
    "SICKEntailment": Spec(
        "transfer", "split", _three("SICK", _SICK_FILES), _counts(4500, 500, 4927), _sick(4), ENTAILMENT, pairs=True
    ),
    "SICKRelatedness": Spec("transfer", "relatedness", _three("SICK", _SICK_FILES), _counts(4500, 500, 4927), _sick(3), pairs=True),
    "STSBenchmark": Spec(
        "transfer",
        "relatedness",
        _three("STS/STSBenchmark", _STSB_FILES),
        _counts(5749, 1500, 1379),
        _sts_benchmark,
        pairs=True,
    ),
    "Length": _probing_spec("sentence_length"),
    "WordContent": _probing_spec("word_content"),
    "Depth": _probing_spec("tree_depth"),
    "TopConstituents": _probing_spec("top_constituents"),
    "BigramShift": _probing_spec("bigram_shift"),
    "Tense": _probing_spec("past_present"),
    "SubjNumber": _probing_spec("subj_number"),
    "ObjNumber": _probing_spec("obj_number"),
    "OddManOut": _probing_spec("odd_man_out"),
    "CoordinationInversion": _probing_spec("coordination_inversion"),
}


def missing_files(name: str, folder: Path) -> list[Path]:
    """The files of a task that are not below `folder`."""
    return sorted({path for file in SPECS[name].files.values() if not (path := folder / file).is_file()})


def load_task(name: str, folder: Path) -> Task:
    """Reads a task below the SentEval folder `folder` (which contains `downstream` and `probing`).

    DataError for a missing file, a malformed line or an unknown label.
    """
    spec = SPECS[name]
    if missing := missing_files(name, folder):
        raise DataError(f"{name}: {missing[0]} is missing (jax-sentemb evaluate --check lists where files belong)")
    read = {"train": _probing("tr"), "dev": _probing("va"), "test": _probing("te")} if spec.group == "probing" else {}
    examples = {part: list(read.get(part, spec.read)(folder / file)) for part, file in spec.files.items()}
    warnings = tuple(
        f"{folder / spec.files[part]}: {len(examples[part]):,} {'pairs' if spec.pairs else 'sentences'}"
        f"{f' of {part}' if spec.group == 'probing' else ''} instead of the published {count:,}: scores are not comparable"
        for part, count in spec.counts.items()
        if len(examples[part]) != count
    )
    if spec.kind == "nested":
        examples = {"all": [example for part in examples.values() for example in part]}
    classes = spec.classes
    if not classes and spec.kind != "relatedness":
        classes = tuple(sorted({label for label, _, _ in examples["train"]}))
    where = ", ".join(sorted(set(spec.files.values())))
    splits = {part: _split(f"{name} ({where})", rows, classes, spec) for part, rows in examples.items()}
    files = tuple(sorted({folder / file for file in spec.files.values()}))
    return Task(name, spec, splits, classes, files, warnings)


def _split(where: str, examples: list[Example], classes: tuple[str, ...], spec: Spec) -> TaskSplit:
    """The examples in SentEval's order: by number of tokens of the first and second sentence and by label, then as in the file."""
    if not examples:
        raise DataError(f"{where}: one of its parts is empty")
    rows = []
    for label, first, second in examples:
        if spec.kind == "relatedness":
            try:
                value = float(label)
            except ValueError:
                value = float("nan")
            if not 0 <= value <= 5:
                raise DataError(f"{where}: gold score {label[:20]!r} is not a number from 0 to 5")
        elif label not in classes:
            raise DataError(f"{where}: unknown label {label[:20]!r}, expected one of {', '.join(classes[:8])}")
        else:
            value = classes.index(label)
        rows.append((first.split(), second.split(), value))
    rows.sort(key=lambda row: (len(row[0]), len(row[1]), row[2]))
    labels = np.array([value for _, _, value in rows])
    if len(np.unique(labels)) < 2:
        raise DataError(f"{where}: all {len(rows)} examples have the same class")
    return TaskSplit([" ".join(first) for first, _, _ in rows], [" ".join(second) for _, second, _ in rows] * spec.pairs, labels)


def _text(path: Path, encoding: str) -> str:
    try:
        return path.read_bytes().decode(encoding)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start} is not {encoding.upper()}: convert the file") from None


def _numbered(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Non-blank lines with their numbers. CR LF and CR end a line as well, as in Python's text files."""
    text = _text(path, encoding).removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    return ((number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip())


def _fields(path: Path, number: int, line: str, expected: int) -> list[str]:
    fields = line.strip().split("\t")
    if len(fields) < expected:
        raise DataError(f"{path}:{number}: {len(fields)} tab-separated fields, expected at least {expected}")
    return fields
