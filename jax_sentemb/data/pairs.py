"""Read labelled pairs of sentences for the supervised baselines from tables, and tokenise them separately or as one row."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from jax_sentemb.data.corpus_files import sources_of
from jax_sentemb.data.delimited import finite
from jax_sentemb.data.tables import kind_of, read_rows
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.data.workers import Reader
from jax_sentemb.errors import DataError, Setting

SIDES = ("sentence1", "sentence2")
COMPARED = 1 << 20  # tokens of a side that are counted to find the longer side
MAX_PAIRS = 1 << 22  # that memory has to hold; SNLI and MultiNLI together have 0.9 million
MAX_CHARACTERS = 1 << 29  # characters of their sentences
NO_LABEL = ("", "-")  # SNLI writes "-" if the annotators did not agree


class LabelledPairs(NamedTuple):
    """Pairs of sentences, each with a class number or a score."""

    first: list[str]
    second: list[str]
    labels: Float[np.ndarray, " pairs"]  # float64
    unlabelled: int  # rows that were left out
    records: Sequence[int]  # the row of each pair, from 0 and counted through all files

    @property
    def sentences(self) -> list[str]:
        """Return the first sentences, then the second ones."""
        return self.first + self.second


def read_pairs(files: str, classes: tuple[str, ...] = ()) -> LabelledPairs:
    """Read the pairs of .tsv, .csv or .jsonl files (.gz, .xz), .parquet files and data sets.

    The columns are sentence1, sentence2, and label or score. Rows without a label or a sentence are left out and counted.

    Args:
        files: Comma-separated files and data sets.
        classes: Names of classes: the column `label` has the name or the number of a class. Without classes, the column `score` has
            a number.

    Raises:
        DataError: A row is malformed, or there are more pairs than MAX_PAIRS or more text than MAX_CHARACTERS.
    """
    columns = (*SIDES, "label" if classes else "score")
    remedy = (f"labelled pairs have the columns {', '.join(columns)}",)
    rows = (row for source in sources_of(files) for row in read_rows(source, columns, remedy))
    return make_pairs(rows, classes, files)


def make_pairs(rows: Iterable[tuple[str, Sequence[Any]]], classes: tuple[str, ...], files: str) -> LabelledPairs:
    """Return pairs from rows: a position for messages, and two sentences with a label or score. Raise as `read_pairs` does."""
    first, second, labels, records, left_out, characters = [], [], [], [], 0, 0
    for row, (where, (*texts, label)) in enumerate(rows):
        left, right = ("" if text is None else text for text in texts)
        for side, sentence in zip(SIDES, (left, right), strict=True):
            if not isinstance(sentence, str):
                raise DataError(f"{where}: {side} is {kind_of(sentence)}, not text; correct the row or remove it")
        if _is_missing(label) or not left.strip() or not right.strip():
            left_out += 1
            continue
        characters += len(left) + len(right)
        if len(first) == MAX_PAIRS or characters > MAX_CHARACTERS:
            raise DataError(
                f"{where}: memory holds at most {MAX_PAIRS:,} labelled pairs with {MAX_CHARACTERS:,} characters; give fewer rows"
            )
        first.append(left.strip())
        second.append(right.strip())
        records.append(row)
        labels.append(_class(label, classes, where) if classes else _score(label, where))
    if not first:
        raise DataError(Setting("data.files", files), f": none of the {left_out} rows is a pair with a label; add labels")
    return LabelledPairs(first, second, np.array(labels, np.float64), left_out, records)


def _is_missing(label: Any) -> bool:
    return label is None or label != label or str(label).strip() in NO_LABEL  # NaN differs from itself


def _class(label: Any, classes: tuple[str, ...], where: str) -> int:
    name, names = str(label).strip().lower(), [name.lower() for name in classes]
    if name in names:
        return names.index(name)
    number = finite(name)  # an integer column with gaps is one of floats
    if number is not None and number in range(len(classes)):
        return int(number)
    raise DataError(
        f"{where}: label {name[:20]!r} is not one of {', '.join(classes)}, or a number from 0 to {len(classes) - 1}; "
        "correct the row"
    )


def _score(score: Any, where: str) -> float:
    value = float(score) if isinstance(score, bool) else finite(str(score))
    if value is None:
        raise DataError(f"{where}: score {str(score)[:20]!r} is not a number; correct the row")
    return value


class PairTokens:
    """Token rows of pairs, as `examples.Examples`: two texts in each row, or one `joined` text for a cross-encoder."""

    def __init__(self, pairs: LabelledPairs, tokenizer: Reader, max_seq_length: int, joined: bool = False) -> None:
        if joined:
            assert isinstance(tokenizer, Tokenizer)  # cross-encoders read word pieces
            ids, cut = JoinedPairs(tokenizer).encode(list(zip(pairs.first, pairs.second, strict=True)), max_seq_length)
            self._sides = [ids]
        else:
            (first, cut_first), (second, cut_second) = (
                tokenizer.encode(side, max_seq_length) for side in (pairs.first, pairs.second)
            )
            self._sides, cut = [first, second], cut_first + cut_second
        lengths = np.array([[len(row) for row in side] for side in self._sides])
        self.line, self.lengths = np.arange(len(pairs.first)), lengths.max(axis=0)
        self._labels, self.pad_id, self.max_seq_length = pairs.labels.astype(np.float32), tokenizer.pad_id, max_seq_length
        text = "\n".join([*pairs.sentences, *map(repr, self._labels.tolist())])
        known = f"{hashlib.sha256(text.encode()).hexdigest()}|{tokenizer.fingerprint}|{max_seq_length}|{joined}"
        self.fingerprint = hashlib.sha256(known.encode()).hexdigest()
        self.report: dict[str, Any] = {
            "pairs": len(pairs.first),
            "unlabelled": pairs.unlabelled,
            "truncated": cut,
            "mean_tokens": round(float(lengths.mean()), 1),
            "max_seq_length": max_seq_length,
        }

    def __len__(self) -> int:
        return len(self.line)

    def texts(self, rows: Int[np.ndarray, " rows"], epoch: int) -> list[list[Int[np.ndarray, " _"]]]:
        """Return the int32 ids of each text of each row."""
        return [[side[row] for row in rows.tolist()] for side in self._sides]

    def labels(self, rows: Int[np.ndarray, " rows"], epoch: int) -> Float[np.ndarray, " rows"]:
        """Return class numbers or scores, float32."""
        return self._labels[rows]


class JoinedPairs:
    """A tokenizer of pairs: [CLS] first [SEP] second [SEP]. The longer side is cut first, as in transformers.

    RoBERTa separates the sides with two tokens.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer, self.pad_id = tokenizer, tokenizer.pad_id
        self._between = [tokenizer.sep_id] * (2 if tokenizer.names["cls"] == "<s>" else 1)

    def encode(self, pairs: Sequence[tuple[str, str]], max_seq_length: int) -> tuple[list[Int[np.ndarray, " _"]], int]:
        """Return the int32 ids of each pair, at most `max_seq_length`, and the number of pairs that were cut."""
        room = max_seq_length - 2 - len(self._between)
        first, second = (self._tokenizer.encode(list(side), room + 3)[0] for side in zip(*pairs, strict=True))
        rows, cut = [], 0
        for pair, left_row, right_row in zip(pairs, first, second, strict=True):
            left, right = left_row[1:-1], right_row[1:-1]
            if len(left) + len(right) > room:
                cut += 1
                # The shorter side stays whole if it fits into half of the room; else both sides get half. An odd token goes to the
                # longer side, or to the second one if they are equally long.
                shorter = min(len(left), len(right), room // 2)
                keep = room - shorter if self._first_is_longer(pair, len(left), len(right)) else shorter
                left, right = left[:keep], right[: room - keep]
            rows.append(np.concatenate([left_row[:1], left, self._between, right, left_row[-1:]]).astype(np.int32))
        return rows, cut

    def _first_is_longer(self, pair: tuple[str, str], left: int, right: int) -> bool:
        """Return whether the first side has more tokens. `left` and `right`: how many were read, fewer than there may be."""
        limit = max(left, right)
        while left == right == limit < COMPARED:
            limit *= 8
            left, right = self._tokenizer.pieces(pair, limit - 1)[1].clip(max=limit).tolist()
        return left > right
