"""Define crops: two packs of consecutive sentences of a document, which overlap or follow each other."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from jax_sentemb.data import perturb
from jax_sentemb.data.examples import LazyArray
from jax_sentemb.data.sentence_ends import split_sentences
from jax_sentemb.data.sentences import Sentences
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.data.tokens import Tokens
from jax_sentemb.errors import DataError, Setting
from jax_sentemb.types import ROW_NUMBERS

CHUNK = 1 << 18  # lines that are processed at once


class CropPairs:
    """Pairs of packs of consecutive sentences of one document. The first sentence of a pair is drawn anew each epoch.

    Both packs of a pair lie within a window of w sentences. A document of n sentences gives n // w rows, one for each pair. A
    document with fewer than w sentences is left out. `report` counts these documents.
    """

    def __init__(
        self, tokens: Tokens, sentences: Sentences, tokenizer: Tokenizer, packs: tuple[int, int], lines: bool, seed: int
    ) -> None:
        """Find the documents of a corpus.

        Args:
            tokens: The rows of the corpus.
            sentences: The corpus.
            tokenizer: The tokenizer.
            packs: The number of sentences of a pack, and the number of sentences between the starts of both packs.
            lines: Whether each row is a document, whose sentences are split. Otherwise each is a sentence in the order of the
                corpus, and a blank line ends a document.
            seed: The seed of the first sentences of pairs.

        Raises:
            DataError: No document is long enough.
        """
        self._tokens, self._sentences, self._tokenizer, self._lines = tokens, sentences, tokenizer.copy(), lines
        (self._size, self._shift), self._window, self._seed = packs, sum(packs), seed
        spans = self._split_lines() if lines else self._documents()
        usable = spans[:, 1] >= self._window
        self._first, self._counts = spans[usable].T
        self._ends = np.cumsum(self._counts // self._window)
        documents = "line" if lines else "block of lines between blank ones"
        if not len(self._first):
            raise DataError(
                Setting("data.files"), f" has no document of {self._window} sentences (a document is a {documents}): lower ",
                Setting("method.sentences"),
            )  # fmt: skip
        self.line = LazyArray(len(self), self._line)
        self.lengths = LazyArray(len(self), self._length)
        self.pad_id, self.max_seq_length = tokens.pad_id, tokens.max_seq_length
        self.fingerprint = f"{tokens.fingerprint}|crops {packs} {'lines' if lines else 'blocks'}"
        counts = {"documents": len(spans), "too short": int((~usable).sum()), "pairs of packs": len(self)}
        self.report = {**tokens.report, **counts}

    def __len__(self) -> int:
        return int(self._ends[-1])

    def texts(self, rows: Int[np.ndarray, " rows"], epoch: int) -> list[list[Int[np.ndarray, " _"]]]:
        """Return the ids of the first packs, and of the second ones."""
        starts = self._starts(rows, epoch)
        packs = self._sentences.read_unchanged(
            lambda: [self._pair(int(row), int(start)) for row, start in zip(rows, starts, strict=True)]
        )
        limits = np.asarray(self.lengths[rows]).tolist()
        sides = [self._tokenizer.encode([pair[side] for pair in packs], self.max_seq_length)[0] for side in (0, 1)]
        return [
            [ids if len(ids) <= limit else np.append(ids[: limit - 1], ids[-1]) for ids, limit in zip(side, limits, strict=True)]
            for side in sides
        ]

    def labels(self, rows: Int[np.ndarray, " rows"], epoch: int) -> Float[np.ndarray, " rows"]:
        """Return the places of the rows, whose difference is 1 if they are neighbours in a document, modulo ROW_NUMBERS."""
        return ((rows + self._document(rows)) % ROW_NUMBERS).astype(np.float32)

    def sharing(self, rows: Int[np.ndarray, " rows"]) -> Int[np.ndarray, " shared"]:
        """Return the sorted `rows` and their neighbours in a document, with which they may share sentences."""
        around = np.clip(rows[:, None] + np.array([-1, 0, 1]), 0, len(self) - 1)
        return np.unique(around[self._document(around) == self._document(rows)[:, None]])

    def _locate(self, rows: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return for each row: the first token row of its document, the size of the document, and its number in the document."""
        rows = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else np.asarray(rows)
        document = self._document(rows)
        before = self._ends[document] - self._counts[document] // self._window
        return self._first[document], self._counts[document], rows - before

    def _document(self, rows: Int[np.ndarray, "*rows"]) -> Int[np.ndarray, "*rows"]:
        return np.searchsorted(self._ends, rows, side="right")

    def _starts(self, rows: Int[np.ndarray, " rows"], epoch: int) -> Int[np.ndarray, " rows"]:
        """Return the number of the first sentence of each pair in its document: less than a window after the window of its row."""
        _, counts, number = self._locate(rows)
        last = number == counts // self._window - 1
        choices = np.where(last, counts - (number + 1) * self._window, self._window - 1) + 1
        draws = perturb.Draws(self._seed, epoch, rows).uniform(1, 1)[:, 0]
        return np.minimum(number * self._window + (draws * choices).astype(int), counts - self._window)

    def _pair(self, row: int, start: int) -> tuple[str, str]:
        first, _, _ = (int(part) for part in self._locate(np.array(row)))
        if self._lines:
            texts = split_sentences(self._sentences[int(self._tokens.line[first])])[start : start + self._window]
        else:
            texts = [self._sentences[int(self._tokens.line[first + number])] for number in range(start, start + self._window)]
        return " ".join(texts[: self._size]), " ".join(texts[self._shift : self._shift + self._size])

    def _line(self, rows: Any) -> Any:
        first, _, number = self._locate(rows)
        return self._tokens.line[first if self._lines else first + number * self._window]

    def _length(self, rows: Any) -> Any:
        """Return the largest number of tokens of the packs of each row. Longer packs are cut."""
        first, counts, number = self._locate(rows)
        if self._lines:
            return np.minimum(np.asarray(self._tokens.lengths[first]), self.max_seq_length)
        offsets = np.arange(2 * self._window)
        candidates = np.minimum(number[..., None] * self._window + offsets, counts[..., None] - 1)
        longest = np.sort(np.asarray(self._tokens.lengths[first[..., None] + candidates]), axis=-1)[..., -self._size :]
        return np.minimum(longest.sum(axis=-1), self.max_seq_length)

    def _documents(self) -> Int[np.ndarray, "documents 2"]:
        """Return the first token row of each document and its number of sentences."""
        starts, seen = [], 0
        for start in range(0, len(self._tokens), CHUNK):
            lines = np.asarray(self._tokens.line[start : start + CHUNK])
            numbers = np.cumsum(self._sentences.starts_document(seen, int(lines[-1]) + 1))[lines - seen]
            starts.append(start + np.flatnonzero(np.diff(numbers, prepend=0) > 0))
            seen = int(lines[-1]) + 1
        first = np.unique(np.append(0, np.concatenate(starts)))
        return np.stack([first, np.diff(np.append(first, len(self._tokens)))], axis=1)

    def _split_lines(self) -> Int[np.ndarray, "documents 2"]:
        counts = [len(split_sentences(self._sentences[int(line)])) for line in self._tokens.line]
        return np.stack([np.arange(len(counts)), np.array(counts, np.int64)], axis=1)
