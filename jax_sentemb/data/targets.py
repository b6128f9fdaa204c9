"""Define examples that have a target vector: the embedding of their sentence by a teacher."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from jax_sentemb.data.tokens import Tokens


@runtime_checkable
class LineVectors(Protocol):
    """Vectors of the lines of a text, read from disk on demand."""

    width: int  # numbers of a vector
    fingerprint: str  # identifies the teacher, its settings and the text

    def take(self, lines: Int[np.ndarray, " rows"]) -> Float[np.ndarray, "rows width"]:
        """Return float32 vectors of length 1 of the lines with these numbers, in this order."""
        ...


class ConcatenatedVectors:
    """The vectors of several teachers side by side, so that a cosine is the mean of the teachers' cosines."""

    def __init__(self, parts: Sequence[LineVectors]) -> None:
        self._parts = parts
        self.width = sum(part.width for part in parts)
        self.fingerprint = "|".join(part.fingerprint for part in parts)

    def take(self, lines: Int[np.ndarray, " rows"]) -> Float[np.ndarray, "rows width"]:
        """Return float32 vectors of length 1 of the lines with these numbers, in this order."""
        return np.concatenate([part.take(lines) for part in self._parts], axis=1) * np.float32(len(self._parts) ** -0.5)


class TaughtSentences:
    """Distinct sentences whose labels are the vectors of a teacher."""

    def __init__(self, tokens: Tokens, vectors: LineVectors) -> None:
        self._tokens, self._vectors = tokens, vectors
        self.line, self.lengths, self.report = tokens.line, tokens.lengths, tokens.report
        self.pad_id, self.max_seq_length = tokens.pad_id, tokens.max_seq_length
        self.fingerprint = f"{tokens.fingerprint}|teacher {vectors.fingerprint}"

    def __len__(self) -> int:
        return len(self._tokens)

    def texts(self, rows: Int[np.ndarray, " rows"], epoch: int) -> list[list[Int[np.ndarray, " _"]]]:
        """Return the ids of the sentences."""
        return self._tokens.texts(rows, epoch)

    def labels(self, rows: Int[np.ndarray, " rows"], epoch: int) -> Float[np.ndarray, "rows width"]:
        """Return the teacher's vectors of the sentences, the same in every epoch."""
        return self._vectors.take(np.asarray(self.line[rows], np.int64))
