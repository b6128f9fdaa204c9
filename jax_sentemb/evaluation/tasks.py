"""Read the classification and regression tasks of SentEval.

Files are read as SentEval reads them: the same encodings, line ends and order of sentences (by length, then label). The order is
part of the protocol, because the folds depend on it.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Real

from jax_sentemb.data.delimited import decode_file, finite, numbered_lines, split_fields
from jax_sentemb.errors import REPLACE_SET, DataError

Example = tuple[str, str, str]  # label, sentence, second sentence of a pair ("" without one)
PROBING_SPLITS = {"train": "tr", "dev": "va", "test": "te"}


class TaskSpec(NamedTuple):
    """The files of a task, and how SentEval scores it."""

    procedure: str  # "nested" (folds of one set), "kfold" (train, test), "split" (train, dev, test) or "relatedness"
    files: dict[str, str]  # split, or class for "nested" -> path below the folder
    counts: dict[str, int]  # published number of sentences or pairs of each file
    read: Callable[[Path, str], Iterator[Example]]  # from a path and its split or class
    classes: tuple[str, ...] = ()  # in the order of SentEval's numbers; (): the labels of the training file, sorted
    pairs: bool = False
    has_f1: bool = False  # F1 of class 1 is reported next to the accuracy
    has_hidden_layer: bool = False  # the classifier has a hidden layer, whose width is selected


class TaskSplit(NamedTuple):
    """Sentences, or pairs of them, with their labels, in SentEval's order."""

    first: list[str]
    second: list[str]  # [] for single sentences
    labels: Real[np.ndarray, " examples"]  # class numbers (int) or gold scores (float)


class Task(NamedTuple):
    """A task with its data."""

    name: str
    spec: TaskSpec
    splits: dict[str, TaskSplit]
    classes: tuple[str, ...]
    files: tuple[Path, ...]
    warnings: tuple[str, ...]

    @property
    def sentences(self) -> list[str]:
        """Return all sentences of the task, with repetitions."""
        return [sentence for split in self.splits.values() for side in (split.first, split.second) for sentence in side]


def read_class(path: Path, label: str) -> Iterator[Example]:
    """Yield the sentences of a file with one class."""
    # SentEval splits at every Unicode line end, in text that it decodes as Latin-1.
    for line in decode_file(path, "latin-1").splitlines():
        yield label, line, ""


def read_trec(path: Path, split: str) -> Iterator[Example]:
    """Yield the questions of TREC: LABEL:sublabel question."""
    for number, line in _lines(path, "latin-1"):
        label, colon, text = line.partition(":")
        _, space, sentence = text.partition(" ")
        if not colon or not space:
            raise DataError(f"{path}:{number}: expected LABEL:sublabel question, got {line[:40]!r}; correct the line")
        yield label, sentence, ""


def read_sst2(path: Path, split: str) -> Iterator[Example]:
    """Yield the sentences of SST-2: sentence, label."""
    for number, line in _lines(path):
        fields = split_fields(path, number, line, 2)
        yield fields[1], fields[0], ""


def read_sst5(path: Path, split: str) -> Iterator[Example]:
    """Yield the sentences of SST-5: a label, a space, a sentence."""
    for number, line in _lines(path):
        label, space, sentence = line.partition(" ")
        if not space:
            raise DataError(f"{path}:{number}: expected a label, a space and a sentence, got {line[:40]!r}; correct the line")
        yield label, sentence, ""


def read_mrpc(path: Path, split: str) -> Iterator[Example]:
    """Yield the pairs of MRPC, below the header."""
    return _pairs(path, 0, 3, 1)


def read_sick_labels(path: Path, split: str) -> Iterator[Example]:
    """Yield the pairs of SICK with their classes, below the header."""
    return _pairs(path, 4, 1, 1)


def read_sick_scores(path: Path, split: str) -> Iterator[Example]:
    """Yield the pairs of SICK with their scores, below the header."""
    return _pairs(path, 3, 1, 1)


def read_benchmark(path: Path, split: str) -> Iterator[Example]:
    """Yield the pairs of STS-B, which has no header."""
    return _pairs(path, 4, 5, 0)


def read_probing(path: Path, split: str) -> Iterator[Example]:
    """Yield the sentences of a split of a probing task: tr, va or te, label, ..., sentence."""
    for number, line in _lines(path):
        fields = split_fields(path, number, line, 3)
        if fields[0] not in PROBING_SPLITS.values():
            raise DataError(f"{path}:{number}: the first field is {fields[0][:20]!r}, expected tr, va or te; {REPLACE_SET}")
        if fields[0] == PROBING_SPLITS[split]:
            yield fields[1], fields[-1], ""


def _pairs(path: Path, label: int, first: int, header: int) -> Iterator[Example]:
    """Yield pairs whose sentences are the fields `first` and `first` + 1, below `header` lines."""
    for number, line in list(_lines(path))[header:]:
        fields = split_fields(path, number, line, max(5, first + 2))
        yield fields[label], fields[first], fields[first + 1]


def _lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Yield non-blank lines without space around them, with their numbers. A carriage return also ends a line."""
    numbered = numbered_lines(decode_file(path, encoding), lone_returns=True)
    return ((number, line.strip()) for number, line in numbered if line.strip())


def load_task(name: str, spec: TaskSpec, folder: Path) -> Task:
    """Read a task below the SentEval folder `folder` (which contains `downstream` and `probing`).

    Raises:
        DataError: A file is missing, a line is malformed, or a label is unknown.
    """
    files = tuple(sorted({folder / file for file in spec.files.values()}))
    if missing := [file for file in files if not file.is_file()]:
        raise DataError(f"{name}: {missing[0]} is missing (jax-sentemb evaluate --check lists where files belong)")
    examples = {split: list(spec.read(folder / file, split)) for split, file in spec.files.items()}
    is_one_file = len(files) < len(spec.files)  # several parts in one file
    warnings = tuple(
        f"{folder / spec.files[split]}: {len(examples[split]):,} {'pairs' if spec.pairs else 'sentences'}"
        f"{f' of {split}' if is_one_file else ''} instead of the published {count:,}: scores are not comparable"
        for split, count in spec.counts.items()
        if len(examples[split]) != count
    )
    if spec.procedure == "nested":
        examples = {"all": [example for split in examples.values() for example in split]}
    classes = spec.classes
    if not classes and spec.procedure != "relatedness":
        classes = tuple(sorted({label for label, _, _ in examples["train"]}))
    file_names = ", ".join(sorted(set(spec.files.values())))
    splits = {split: _split(f"{name} ({file_names})", rows, classes, spec) for split, rows in examples.items()}
    return Task(name, spec, splits, classes, files, warnings)


def _split(source: str, examples: list[Example], classes: tuple[str, ...], spec: TaskSpec) -> TaskSplit:
    """Return the examples in SentEval's order: by token counts of both sentences, then by label, then as in the file."""
    if not examples:
        raise DataError(f"{source}: one of its splits is empty; {REPLACE_SET}")
    rows = []
    for label, first, second in examples:
        if spec.procedure == "relatedness":
            value = finite(label)
            if value is None or not 0 <= value <= 5:
                raise DataError(f"{source}: gold score {label[:20]!r} is not a number from 0 to 5; correct the row")
        elif label not in classes:
            raise DataError(f"{source}: unknown label {label[:20]!r}, expected one of {', '.join(classes[:8])}; correct the row")
        else:
            value = classes.index(label)
        rows.append((first.split(), second.split(), value))
    rows.sort(key=lambda row: (len(row[0]), len(row[1]), row[2]))
    labels = np.array([value for _, _, value in rows])
    if len(np.unique(labels)) < 2:
        raise DataError(f"{source}: all {len(rows)} examples have the same class; {REPLACE_SET}")
    return TaskSplit([" ".join(first) for first, _, _ in rows], [" ".join(second) for _, second, _ in rows] * spec.pairs, labels)
