"""Define training examples, rows of one or more texts: sentences with a neighbour, perturbed sentences, subsets, round robin."""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int

from jax_sentemb.data import perturb
from jax_sentemb.data.sentences import Sentences
from jax_sentemb.data.tokens import Tokens, pad
from jax_sentemb.errors import DataError, Setting


@runtime_checkable
class Examples(Protocol):
    """The rows of which batches are made. A row is one text, or several views or parts of a sentence."""

    report: dict[str, Any]  # counts for the log
    fingerprint: str  # identifies the content; a run does not resume with other content
    pad_id: int
    max_seq_length: int

    @property
    def line(self) -> 'Int[np.ndarray, " rows"] | LazyArray':
        """Return the number of the (first) sentence of each row in the corpus, int64 [N], ascending."""
        ...

    @property
    def lengths(self) -> 'Int[np.ndarray, " rows"] | LazyArray':
        """Return the number of tokens of the longest text of each row, int [N]."""
        ...

    def __len__(self) -> int: ...

    def texts(self, rows: Int[np.ndarray, " rows"], epoch: int) -> list[list[Int[np.ndarray, " _"]]]:
        """Return the int32 ids of every text: for each view, a list with an array for each row. It is pure in (rows, epoch)."""
        ...

    def labels(self, rows: Int[np.ndarray, " rows"], epoch: int) -> Float[np.ndarray, "rows ..."] | None:
        """Return the float32 labels of the rows, a number or a vector each, or None without labels."""
        ...


class LazyArray:
    """An array [N] whose values are computed on access, for an N that does not fit into memory."""

    def __init__(self, count: int, at: Callable[[Any], Any]) -> None:
        """Define `count` values. The function `at` computes those at given positions: a number, a slice or an array of numbers."""
        self._count, self._at = count, at

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, rows: Any) -> Any:
        return self._at(rows)

    def __iter__(self) -> Iterator[Any]:
        return iter(self[np.arange(self._count)])


def all_but(rows: Int[np.ndarray, " rows"], count: int) -> LazyArray:
    """Return the numbers 0 .. count - 1 without the sorted `rows`."""
    smaller = rows - np.arange(len(rows))  # how many of the remaining numbers are smaller
    return LazyArray(count - len(rows), lambda positions: positions + np.searchsorted(smaller, positions, side="right"))


class NeighbourPairs:
    """Pairs of consecutive sentences of one document: the first with the second, the third with the fourth, and so on.

    A sentence is in one pair at most, so it is never a negative of itself. The last sentence of a document with an odd number is
    left out. `report` counts these sentences. `tokens` are the rows of the single `sentences`, in order.

    Raises:
        DataError: The corpus has no pair.
    """

    CHUNK = 1 << 18  # sentences whose documents are looked up at once

    def __init__(self, tokens: Tokens, sentences: Sentences) -> None:
        self._tokens, self._first = tokens, self._pairs(tokens, sentences)
        if not len(self._first):
            raise DataError(
                Setting("data.files"),
                f" has no two consecutive sentences in its {len(tokens)} usable lines: give running text with one sentence on "
                "each line, and blank lines only between documents",
            )
        first = self._first
        self.line = LazyArray(len(first), lambda rows: tokens.line[first[rows]])
        self.lengths = LazyArray(len(first), lambda rows: np.maximum(tokens.lengths[first[rows]], tokens.lengths[first[rows] + 1]))
        self.pad_id, self.max_seq_length = tokens.pad_id, tokens.max_seq_length
        self.fingerprint = f"{tokens.fingerprint}|neighbours"
        self.report = {**tokens.report, "pairs of neighbours": len(first), "without a neighbour": len(tokens) - 2 * len(first)}

    @classmethod
    def _pairs(cls, tokens: Tokens, sentences: Sentences) -> Int[np.ndarray, " pairs"]:
        """Return the rows of the first sentences, int64."""
        pairs, open_start, seen = [np.zeros(0, np.int64)], 0, 0  # `open_start`: the first row of the document of the last row
        for start in range(0, len(tokens), cls.CHUNK):
            rows = np.arange(start, min(start + cls.CHUNK, len(tokens)))
            lines = tokens.line[rows]
            documents = np.cumsum(sentences.starts_document(seen, int(lines[-1]) + 1))[lines - seen]
            starts = np.maximum.accumulate(np.where(np.diff(documents, prepend=0) > 0, rows, open_start))
            pairs.append(rows[(rows - starts) % 2 == 1] - 1)
            open_start, seen = int(starts[-1]), int(lines[-1]) + 1
        return np.concatenate(pairs)

    def __len__(self) -> int:
        return len(self._first)

    def texts(self, rows: Int[np.ndarray, " rows"], epoch: int) -> list[list[Int[np.ndarray, " _"]]]:
        """Return the ids of the first sentences, and of the second ones."""
        first = self._first[rows]
        return [self._tokens.texts(side, epoch)[0] for side in (first, first + 1)]

    def labels(self, rows: Int[np.ndarray, " rows"], epoch: int) -> None:
        """Return None: these examples have no labels."""
        return None


class Perturbed:
    """Sentences for a task of ConsSent: a text that is made inconsistent with probability 1/2, or the two parts of a sentence.

    Labels of classified tasks are 1 for consistent and 0 for inconsistent sentences. If a run has several such tasks, 2 *
    `task_number` is added. A sentence that is too short for the change, or that the change cannot make a different sentence, stays
    consistent (the paper does not specify it). Sentences of fewer than 3 words, which cannot be split, are left out. `report`
    counts all of these.
    """

    def __init__(self, tokens: Tokens, vocab_size: int, task: str, k: int, seed: int, task_number: int = 0) -> None:
        self._tokens, self._task, self._k, self._seed, self._task_number = tokens, task, k, seed, task_number
        self._is_ranked = task in perturb.RANKED
        short_rows = np.flatnonzero(tokens.lengths <= (2 if self._is_ranked else k))
        short, none = len(short_rows), short_rows[:0]
        self._rows = usable = all_but(short_rows if self._is_ranked else none, len(tokens))
        longer = k if task == "I" else 0
        self.line = LazyArray(len(usable), lambda rows: tokens.line[usable[rows]])
        self.lengths = LazyArray(len(usable), lambda rows: tokens.lengths[usable[rows]] + longer)
        self.pad_id, self.max_seq_length = tokens.pad_id, tokens.max_seq_length + longer
        self.fingerprint = f"{tokens.fingerprint}|{task}({k})|2"
        share = np.cumsum(tokens.word_counts(vocab_size), dtype=np.float64)
        self._share = share / share[-1]
        self._fixed = perturb.unchangeable(tokens, task, k, self._share)
        self.report = {**tokens.report, f"too short for {task}({k})": short, f"not changed by {task}({k})": len(self._fixed)}
        if short + len(self._fixed) == len(tokens):
            minimum = 3 if self._is_ranked else k + 1
            condition = " that a change can make different" if len(self._fixed) else ""
            raise DataError(
                f"task {task}({k}) needs sentences of {minimum} words or more{condition}, and the corpus has none: lower ",
                Setting("method.k"),
            )

    def __len__(self) -> int:
        return len(self._rows)

    def texts(self, rows: Int[np.ndarray, " rows"], epoch: int) -> list[list[Int[np.ndarray, " _"]]]:
        """Return the ids of the sentences after the changes of the task."""
        batch = pad([self._tokens.ids(row) for row in self._rows[rows].tolist()], self._tokens.max_seq_length, self.pad_id)
        tokens, lengths = np.asarray(batch.tokens), np.asarray(batch.mask).sum(axis=1)
        draws = perturb.Draws(self._seed, epoch, rows)
        if self._is_ranked:
            parts = (perturb.split_randomly if self._task == "N" else perturb.split_at)(tokens, lengths, draws)
            return [perturb.ragged(*part) for part in parts]
        words = () if self._task in "DP" else (self._share,)
        change = {"D": perturb.delete, "P": perturb.permute, "I": perturb.insert, "R": perturb.replace}[self._task]
        changed = perturb.ragged(*change(tokens, lengths, self._k, draws, *words))
        plain, consistent = perturb.ragged(tokens, lengths), self._consistent(rows, epoch)
        return [[ids if stays else other for ids, other, stays in zip(plain, changed, consistent, strict=True)]]

    def labels(self, rows: Int[np.ndarray, " rows"], epoch: int) -> Float[np.ndarray, " rows"] | None:
        """Return float32 labels (see the class); None for the tasks that rank."""
        return None if self._is_ranked else self._consistent(rows, epoch).astype(np.float32) + 2 * self._task_number

    def _consistent(self, rows: Int[np.ndarray, " rows"], epoch: int) -> Bool[np.ndarray, " rows"]:
        """Return whether each sentence stays consistent: half of them, and those that cannot be changed."""
        stays, sentences = perturb.Draws(self._seed, epoch, rows).uniform(9, 1)[:, 0] < 0.5, self._rows[rows]
        return stays | (self._tokens.lengths[sentences] <= self._k) | np.isin(sentences, self._fixed)


class RoundRobin:
    """Several types of examples, which are used in turn for one batch each.

    Its line numbers and lengths are those of the first type. `report` has the counts of all types.
    """

    def __init__(self, parts: Sequence[Examples]) -> None:
        self.parts = parts
        first = parts[0]
        self.line, self.lengths, self.pad_id, self.max_seq_length = first.line, first.lengths, first.pad_id, first.max_seq_length
        self.report = {name: value for part in parts for name, value in part.report.items()}
        self.fingerprint = "|".join(part.fingerprint for part in parts)

    def __len__(self) -> int:
        return len(self.parts[0])

    def texts(self, rows: Int[np.ndarray, " rows"], epoch: int) -> list[list[Int[np.ndarray, " _"]]]:
        """Return the texts of the first type."""
        return self.parts[0].texts(rows, epoch)

    def labels(self, rows: Int[np.ndarray, " rows"], epoch: int) -> Float[np.ndarray, " rows"] | None:
        """Return the labels of the first type."""
        return self.parts[0].labels(rows, epoch)


class Subset:
    """Some rows of other examples. The fingerprint contains `description`."""

    def __init__(self, whole: Examples, rows: Int[np.ndarray, " rows"] | LazyArray, description: str) -> None:
        self._whole, self._rows = whole, rows
        self.line = LazyArray(len(rows), lambda positions: whole.line[rows[positions]])
        self.lengths = LazyArray(len(rows), lambda positions: whole.lengths[rows[positions]])
        self.report, self.pad_id, self.max_seq_length = whole.report, whole.pad_id, whole.max_seq_length
        self.fingerprint = f"{whole.fingerprint}|{description}"
        self.ordered = getattr(whole, "ordered", False)

    def __len__(self) -> int:
        return len(self._rows)

    def texts(self, rows: Int[np.ndarray, " rows"], epoch: int) -> list[list[Int[np.ndarray, " _"]]]:
        """Return the texts of the rows of the subset."""
        return self._whole.texts(self._rows[rows], epoch)

    def labels(self, rows: Int[np.ndarray, " rows"], epoch: int) -> Float[np.ndarray, "rows ..."] | None:
        """Return the labels of the rows of the subset."""
        return self._whole.labels(self._rows[rows], epoch)


def counts_of_text(report: Mapping[str, int]) -> list[str]:
    """Return the counts of a report for a message; rows are compared after they are cut at the maximal length."""
    names = {"duplicates": "equal to an earlier one after the cut"}
    return [f"{value:,} {names.get(name, name)}" for name, value in report.items()]


def check_validation(count: int, available: int, origin: str = "") -> None:
    """Raise DataError if `count` examples for validation leave none of the available ones to train on."""
    if count >= available:
        problem = f" leaves none of the {available} examples{origin} to train on; lower it, or add text"
        raise DataError(Setting("data.validation", count), problem)


def train_validation_split(examples: Examples, count: int, seed: int) -> tuple[Examples, Examples]:
    """Split off `count` sentences for validation: random sentences, or the last sentences of an ordered corpus.

    Rows that share sentences with those for validation, as crops of a document do, are left out of both.

    Returns:
        The examples for training, and the examples for validation.

    Raises:
        DataError: No example is left for training.
    """
    shortest = min(examples.parts, key=len) if isinstance(examples, RoundRobin) else examples  # its sentences are in all parts
    if count >= len(shortest):
        report = examples.report
        facts = counts_of_text({name: report[name] for name in ("lines", "blank", "duplicates") if report.get(name)})
        if unknown := report.get("unknown_token_rate"):
            facts.append(f"{unknown:.0%} unknown tokens")
        origin = f" ({', '.join(facts)})" if facts else ""
        check_validation(count, len(shortest), origin)
    if getattr(examples, "ordered", False):
        rows = np.arange(len(examples) - count, len(examples))
    else:
        rows = np.random.Generator(np.random.Philox(seed)).choice(len(shortest), count, replace=False)
    if isinstance(examples, RoundRobin):
        lines = np.sort(shortest.line[rows])
        parts = (_divide(part, _rows_of_lines(part, lines), count) for part in examples.parts)
        training, validation = zip(*parts, strict=True)
        return RoundRobin(training), RoundRobin(validation)
    return _divide(examples, np.sort(rows), count)


def _divide(examples: Examples, held_out: np.ndarray, count: int) -> tuple[Examples, Examples]:
    """Return the examples that share nothing with the sorted rows `held_out`, and the examples of these rows."""
    description = f"{count} held out {zlib.crc32(held_out.tobytes())}"
    sharing: Callable[[np.ndarray], np.ndarray] | None = getattr(examples, "sharing", None)
    excluded = held_out if sharing is None else sharing(held_out)
    if len(excluded) == len(examples):
        problem = f" leaves none of the {len(examples)} pairs to train on that share no sentence with those; lower it, or add text"
        raise DataError(Setting("data.validation", count), problem)
    training = Subset(examples, all_but(excluded, len(examples)), f"without {description}")
    return training, Subset(examples, held_out, description)


def _rows_of_lines(examples: Examples, lines: np.ndarray) -> np.ndarray:
    """Return the rows of those sorted `lines` that the examples have, by bisection, because there may be billions of rows."""
    rows = np.zeros(len(lines), np.int64)  # the number of rows known to have a smaller line
    for bit in reversed(range(len(examples).bit_length())):
        further = np.minimum(rows + (1 << bit), len(examples))
        rows = np.where(examples.line[further - 1] < lines, further, rows)
    candidates = rows[rows < len(examples)]
    return candidates[examples.line[candidates] == lines[: len(candidates)]]
