"""What a method reads from its corpus: sentences, sentences beside a copy with a masked span, or labelled pairs."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from jax_sentemb.text.files import open_corpus
from jax_sentemb.text.pairs import Pairs, PairTokens, read_pairs
from jax_sentemb.text.tokenizer import Lines, Tokenizer
from jax_sentemb.text.tokens import Tokens, draw, tokenize


class Examples(Protocol):
    """Rows that batches are made of."""

    line: np.ndarray  # int64 [N]: the number of the (first) sentence of a row in the corpus
    lengths: np.ndarray  # int [N]: tokens of the longest text of a row
    report: dict[str, Any]  # counts for people
    fingerprint: str  # stands for the content: a run with another one does not continue
    pad_id: int
    max_seq_length: int

    def __len__(self) -> int: ...

    def texts(self, rows: np.ndarray, epoch: int) -> list[list[np.ndarray]]:
        """int32 ids of every text of the rows: V lists of one array a row; pure in (rows, epoch)."""
        ...

    def labels(self, rows: np.ndarray) -> np.ndarray | None:
        """float32 [B], or None without labels."""
        ...


class Corpus:
    """The files of a run. A method asks once for what it reads; `sentences` and `tokenizer` are there afterwards."""

    sentences: Lines
    tokenizer: Tokenizer

    def __init__(
        self,
        files: Callable[[bool], tuple[str, str]],
        make_tokenizer: Callable[[Lines], Tokenizer],
        max_seq_length: int,
        subset: float = 0.0,
        subset_seed: int = 0,
    ) -> None:
        """`files` gives names and column(s): of sentences for False, of labelled pairs for True."""
        self._files, self._max_seq_length = files, max_seq_length
        self._make_tokenizer, self._subset, self._subset_seed = make_tokenizer, subset, subset_seed

    def plain(self) -> Tokens:
        """Distinct sentences, one text a row."""
        sentences = open_corpus(*self._files(False))
        self.sentences, self.tokenizer = sentences, self._make_tokenizer(sentences)
        return tokenize(sentences, self.tokenizer, self._max_seq_length, None, self._subset or None, self._subset_seed)

    def span_masked(self, span: int, seed: int) -> "SpanMasked":
        """Distinct sentences, each beside a copy in which `span` characters are masked."""
        tokens = self.plain()
        return SpanMasked(tokens, self.sentences, self.tokenizer, span, seed)

    def pairs(self, classes: tuple[str, ...] = (), joined: bool = False) -> PairTokens:
        """Labelled pairs: a class of `classes`, or a score. Two texts a row, or `joined` to one."""
        pairs = read_pairs(self._files(True)[0], classes)
        if self._subset:
            pairs = _some(pairs, self._subset, self._subset_seed)
        self.sentences, self.tokenizer = pairs.sentences, self._make_tokenizer(pairs.sentences)
        return PairTokens(pairs, self.tokenizer, self._max_seq_length, joined)


def _some(pairs: Pairs, subset: float, seed: int) -> Pairs:
    rows = draw(len(pairs.first), subset, seed)
    return Pairs([pairs.first[row] for row in rows], [pairs.second[row] for row in rows], pairs.labels[rows], pairs.unlabelled)


class SpanMasked:
    """Sentences beside a copy with a masked span (Mirror-BERT): `span` characters, drawn anew each epoch, become one [MASK].

    Sentences of fewer than SHORTEST characters stay as they are. The mask is the tokenizer's own (the published code writes the
    text " [MASK] ", also for RoBERTa, whose mask token has another name).
    """

    SHORTEST = 30
    GROWTH = 4  # tokens that a masked copy may have more than its sentence: pieces of a word that was cut apart

    def __init__(self, tokens: Tokens, sentences: Lines, tokenizer: Tokenizer, span: int, seed: int) -> None:
        self._tokens, self._sentences, self._span, self._seed = tokens, sentences, span, seed
        self._tokenizer = tokenizer.copy()  # batches are made in a thread of their own
        self.line, self.report, self.pad_id = tokens.line, tokens.report, tokens.pad_id
        self.max_seq_length = tokens.max_seq_length
        self.lengths = np.minimum(tokens.lengths + self.GROWTH, tokens.max_seq_length)
        self.fingerprint = f"{tokens.fingerprint}|span {span}"

    def __len__(self) -> int:
        return len(self._tokens)

    def texts(self, rows: np.ndarray, epoch: int) -> list[list[np.ndarray]]:
        """The sentences, and the sentences with a masked span."""
        whole = self._tokens.texts(rows, epoch)[0]
        halves = {place: cut for place, row in enumerate(rows.tolist()) if (cut := self._halves(row, epoch))}
        sides = [self._tokenizer.encode([cut[side] for cut in halves.values()], self.max_seq_length)[0] for side in (0, 1)]
        masked = list(whole)
        for place, left, right in zip(halves, *sides, strict=True):
            ids = np.concatenate([left[:-1], [self._tokenizer.mask_id], right[1:]]).astype(np.int32)
            limit = int(self.lengths[rows[place]])
            masked[place] = ids if len(ids) <= limit else np.append(ids[: limit - 1], ids[-1])
        return [whole, masked]

    def labels(self, rows: np.ndarray) -> None:
        """There are none."""
        return None

    def _halves(self, row: int, epoch: int) -> tuple[str, str] | None:
        """What is left and right of the masked span of a sentence; None for one that is too short to mask."""
        text = self._sentences[int(self.line[row])]
        if len(text) < max(self.SHORTEST, self._span + 1):
            return None
        random = np.random.Generator(np.random.Philox(key=[self._seed, row], counter=[epoch, 0, 0, 0]))
        start = int(random.integers(len(text) - self._span + 1))
        return text[:start], text[start + self._span :]
