"""Define examples that are a sentence and a changed copy of it: a masked span, repeated tokens, or most of its tokens deleted."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Int

from jax_sentemb.data import perturb
from jax_sentemb.data.examples import LazyArray
from jax_sentemb.data.sentences import Sentences
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.data.tokens import Tokens, pad


class SpanMasked:
    """Sentences, each with a copy in which `span` random characters are replaced by one [MASK] (Mirror-BERT).

    The span is drawn anew each epoch. Sentences of fewer than SHORTEST characters are not masked. The mask is the tokenizer's mask
    token (the published code writes the text " [MASK] ", also for RoBERTa, whose mask token has another name).
    """

    SHORTEST = 30
    GROWTH = 4  # additional tokens that a masked copy may have, because a word that is cut in two gives more pieces

    def __init__(self, tokens: Tokens, sentences: Sentences, tokenizer: Tokenizer, span: int, seed: int) -> None:
        self._tokens, self._sentences, self._span, self._seed = tokens, sentences, span, seed
        # Copies, because batches are made in another thread. Only the left half has the prompt before it.
        self._tokenizers = tokenizer.copy(), tokenizer.with_prompt("")
        self.line, self.report, self.pad_id = tokens.line, tokens.report, tokens.pad_id
        self.max_seq_length = tokens.max_seq_length
        self.lengths = LazyArray(len(tokens), lambda rows: np.minimum(tokens.lengths[rows] + self.GROWTH, tokens.max_seq_length))
        self.fingerprint = f"{tokens.fingerprint}|span {span}"

    def __len__(self) -> int:
        return len(self._tokens)

    def texts(self, rows: Int[np.ndarray, " rows"], epoch: int) -> list[list[Int[np.ndarray, " _"]]]:
        """Return the ids of the sentences, and of the sentences with a masked span."""
        whole = self._tokens.texts(rows, epoch)[0]
        numbered = list(enumerate(rows.tolist()))
        halves = self._sentences.read_unchanged(
            lambda: {index: cut for index, row in numbered if (cut := self._halves(row, epoch))}
        )
        sides = [
            tokenizer.encode([cut[side] for cut in halves.values()], self.max_seq_length)[0]
            for side, tokenizer in enumerate(self._tokenizers)
        ]
        masked = list(whole)
        for index, left, right in zip(halves, *sides, strict=True):
            ids = np.concatenate([left[:-1], [self._tokenizers[0].mask_id], right[1:]]).astype(np.int32)
            limit = int(self.lengths[rows[index]])
            masked[index] = ids if len(ids) <= limit else np.append(ids[: limit - 1], ids[-1])
        return [whole, masked]

    def labels(self, rows: Int[np.ndarray, " rows"], epoch: int) -> None:
        """Return None: these examples have no labels."""
        return None

    def _halves(self, row: int, epoch: int) -> tuple[str, str] | None:
        """Return the text to the left and to the right of the masked span; None for a sentence that is too short to mask."""
        text = self._sentences[int(self.line[row])]
        if len(text) < max(self.SHORTEST, self._span + 1):
            return None
        random = np.random.Generator(np.random.Philox(key=[self._seed, row], counter=[epoch, 0, 0, 0]))
        start = int(random.integers(len(text) - self._span + 1))
        return text[:start], text[start + self._span :]


class WordRepeated:
    """Sentences, each with a copy in which random tokens are repeated (ESimCSE), so that its length does not reveal its sentence.

    They are drawn anew each epoch. A copy that is longer than `max_seq_length` is cut before its last token.
    """

    def __init__(self, tokens: Tokens, rate: float, seed: int) -> None:
        self._tokens, self._rate, self._seed = tokens, rate, seed
        self.line, self.report, self.pad_id = tokens.line, tokens.report, tokens.pad_id
        self.max_seq_length = longest = tokens.max_seq_length
        self.lengths = LazyArray(
            len(tokens), lambda rows: np.minimum(tokens.lengths[rows] + perturb.most_repeated(tokens.lengths[rows], rate), longest)
        )
        self.fingerprint = f"{tokens.fingerprint}|repetition {rate}"

    def __len__(self) -> int:
        return len(self._tokens)

    def texts(self, rows: Int[np.ndarray, " rows"], epoch: int) -> list[list[Int[np.ndarray, " _"]]]:
        """Return the ids of the sentences, and of the sentences with repeated tokens."""
        whole, repeated = _with_changed_copies(self._tokens, rows, epoch, self._seed, perturb.repeat, self._rate)
        longest = self.max_seq_length
        return [whole, [ids if len(ids) <= longest else np.append(ids[: longest - 1], ids[-1]) for ids in repeated]]

    def labels(self, rows: Int[np.ndarray, " rows"], epoch: int) -> None:
        """Return None: these examples have no labels."""
        return None


class TokensDeleted:
    """Sentences, each with a copy in which random tokens are deleted (TSDAE). They are drawn anew each epoch."""

    def __init__(self, tokens: Tokens, rate: float, seed: int) -> None:
        self._tokens, self._rate, self._seed = tokens, rate, seed
        self.line, self.lengths, self.report, self.pad_id = tokens.line, tokens.lengths, tokens.report, tokens.pad_id
        self.max_seq_length = tokens.max_seq_length
        self.fingerprint = f"{tokens.fingerprint}|deletion {rate}"

    def __len__(self) -> int:
        return len(self._tokens)

    def texts(self, rows: Int[np.ndarray, " rows"], epoch: int) -> list[list[Int[np.ndarray, " _"]]]:
        """Return the ids of the sentences, and of the sentences without the deleted tokens."""
        return _with_changed_copies(self._tokens, rows, epoch, self._seed, perturb.delete_share, self._rate)

    def labels(self, rows: Int[np.ndarray, " rows"], epoch: int) -> None:
        """Return None: these examples have no labels."""
        return None


def _with_changed_copies(
    tokens: Tokens, rows: Int[np.ndarray, " rows"], epoch: int, seed: int, change: Callable[..., Any], rate: float
) -> list[list[Int[np.ndarray, " _"]]]:
    """Return the ids of the sentences, and of copies that a function of `perturb` changes by the draws of the epoch."""
    whole = tokens.texts(rows, epoch)[0]
    batch = pad(whole, tokens.max_seq_length, tokens.pad_id)
    lengths = np.asarray(batch.mask).sum(axis=1)
    draws = perturb.Draws(seed, epoch, rows)
    return [whole, perturb.ragged(*change(np.asarray(batch.tokens), lengths, rate, draws))]
