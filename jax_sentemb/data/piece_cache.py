"""Cache the word pieces of words. Most words of a text have occurred before, and a lookup is several times faster."""

import threading
from itertools import chain
from typing import Any

import numpy as np
import tokenizers
from jaxtyping import Int

from jax_sentemb.data.tokenizer_checks import damage

MAX_WORDS = 1 << 19  # words in the cache, which take about 100 MB
WORDS_PER_TEXT = 64  # new words that are tokenised as one text


class PieceCache:
    """The pieces of words that occurred before. A word is the text between two spaces, punctuation included.

    It works only for tokenizers that are `separable`. Threads may share an instance.
    """

    def __init__(self, inner: tokenizers.Tokenizer) -> None:
        self._inner = inner
        self._lock = threading.Lock()  # held while words are numbered and new words are tokenised
        self._clear()

    def pieces(self, texts: list[str]) -> tuple[Int[np.ndarray, " pieces"], Int[np.ndarray, " texts"]]:
        """Return the ids of all texts, concatenated, without [CLS] and [SEP] (int32), and the number of pieces of each (int64)."""
        lines = [text.split(" ") for text in texts]
        with self._lock:
            interrupted = len(self._numbers) != len(self._starts)  # an interrupted call left words without pieces
            if interrupted or len(self._numbers) > MAX_WORDS:
                self._clear()
            number = np.fromiter(map(self._numbers.__getitem__, chain.from_iterable(lines)), np.int64)
            self._tokenize_new()
            all_ids, all_starts, all_counts = self._ids, self._starts, self._counts  # later calls replace these arrays
        counts = all_counts[number]
        ids = all_ids[np.repeat(all_starts[number], counts) + positions_within(counts)]
        words = np.array([len(line) for line in lines])
        return ids, np.add.reduceat(counts, np.cumsum(words) - words)

    def _clear(self) -> None:
        self._numbers = _WordNumbers()
        self._ids, self._starts, self._counts = np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64)

    def _tokenize_new(self) -> None:
        """Tokenise the new words, many in one text. One by one, they would take three times as long."""
        new, self._numbers.new = self._numbers.new, []
        texts = [" ".join(new[start : start + WORDS_PER_TEXT]) for start in range(0, len(new), WORDS_PER_TEXT)]
        with damage("the tokenizer"):
            encodings = self._inner.encode_batch(texts, add_special_tokens=False)
        # Offsets of each piece and of each word in all texts, joined with a space. A piece belongs to the last word before it.
        bases = np.cumsum([0, *(len(text) + 1 for text in texts)])
        offsets = [base + start for base, encoding in zip(bases.tolist(), encodings, strict=False) for start, _ in encoding.offsets]
        word_ends = np.cumsum([len(word) + 1 for word in new], dtype=np.int64)
        counts = np.bincount(np.searchsorted(word_ends, offsets, side="right"), minlength=len(new))
        ids = np.fromiter(chain.from_iterable(encoding.ids for encoding in encodings), np.int32)
        starts = np.concatenate([self._starts, len(self._ids) + np.cumsum(counts) - counts])
        self._ids, self._counts = np.concatenate([self._ids, ids]), np.concatenate([self._counts, counts])
        self._starts = starts  # assigned last: its length tells an interrupted call from a complete one


class _WordNumbers(dict[str, int]):
    """The numbers of words. A new word gets the next number and is appended to `new`."""

    def __init__(self) -> None:
        self.new: list[str] = []

    def __missing__(self, word: str) -> int:
        self.new.append(word)
        number = self[word] = len(self)
        return number


def separable(state: dict[str, Any]) -> bool:
    """Return whether the pieces of a text are the pieces of its parts between spaces. BERT's rules never cross a space.

    Args:
        state: The tokenizer as its library writes it to tokenizer.json.
    """
    types = [(state[part] or {}).get("type") for part in ("normalizer", "pre_tokenizer", "model")]
    return types == ["BertNormalizer", "BertPreTokenizer", "WordPiece"] and all(token["special"] for token in state["added_tokens"])


def positions_within(counts: Int[np.ndarray, " groups"]) -> Int[np.ndarray, " items"]:
    """Return 0 .. count - 1 for each of `counts`, concatenated."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)
