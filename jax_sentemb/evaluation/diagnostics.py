"""Embeddings looked at without labels: how far they spread, whether parts of a sentence belong together, whether all is collapsed.

Every function but `halves` takes embeddings [N, E] (NumPy or JAX), brings the rows to unit length and returns a Python float.
"""

import numpy as np

from jax_sentemb.errors import NumericsError
from jax_sentemb.types import Array

# Collapse thresholds. Spread on 600 Wikipedia sentences: all-MiniLM-L6-v2 0.97; the [CLS] of a small BERT after
# masked-language-model training only, 0.16. The [CLS] of an untrained BERT hardly depends on the sentence, 0.002 to
# 0.045, and counts as collapsed until training pulls it apart. Effective rank was above 20 in all of them.
MIN_SPREAD = 0.05  # all vectors point the same way: mean cosine above about 0.9975 (spread^2 is about 1 - mean cosine)
MIN_EFFECTIVE_RANK = 2.0  # what differs between the vectors lies on a line
FEWEST = 16  # rows from which on the effective rank, at most their number - 1, tells of a collapse
MAX_ROWS = 2_000  # `diagnose` looks at this many rows: uniformity costs N^2


def alignment(first: Array, second: Array) -> float:
    """Mean squared distance of two views or parts of a sentence, rows of `first` and `second`; 0 (equal) to 4 (opposite).

    E |f(x) - f(y)|^2, Wang and Isola 2020, with exponent 2.
    """
    return float(np.square(_unit(first) - _unit(second)).sum(-1).mean())


def uniformity(embeddings: Array) -> float:
    """log E exp(-2 |f(x) - f(y)|^2) over pairs of different rows; 0 is collapse, lower is better, about -4 is uniform.

    Wang and Isola 2020, with t = 2. Needs at least two rows; memory grows with N^2.
    """
    vectors = _unit(embeddings)
    cosine = (vectors @ vectors.T)[np.triu_indices(len(vectors), k=1)]
    return float(np.log(np.mean(np.exp(-4 * (1 - cosine)))))


def spread(embeddings: Array) -> float:
    """Standard deviation of unit-length embeddings, mean over dimensions, times sqrt(E): 1 isotropic, 0 collapsed."""
    vectors = _unit(embeddings)
    return float(vectors.std(axis=0).mean() * vectors.shape[1] ** 0.5)


def mean_cosine(embeddings: Array) -> float:
    """Mean cosine similarity over all pairs of different rows; near 0 is isotropic, 1 is collapse. Needs two rows."""
    vectors = _unit(embeddings)
    rows = len(vectors)
    # |sum of the rows|^2 counts every pair twice and each row with itself once.
    return float((np.square(vectors.sum(axis=0)).sum() - np.square(vectors).sum()) / (rows * (rows - 1)))


def effective_rank(embeddings: Array) -> float:
    """Number of directions that the centred unit-length embeddings use: exp of the entropy of their singular values.

    Roy and Vetterli 2007. Between 1 and min(N - 1, E); 0 where all rows are equal.
    """
    vectors = _unit(embeddings)
    values = np.linalg.svd(vectors - vectors.mean(axis=0), compute_uv=False)
    if values[0] < 1e-6 * len(vectors) ** 0.5:  # below float32 rounding of unit vectors
        return 0.0
    share = values[values > 0] / values.sum()
    return float(np.exp(-(share * np.log(share)).sum()))


def halves(sentence: str) -> tuple[str, str]:
    """The first and the second half of the words of a sentence; of a single word, its characters."""
    words = sentence.split()
    if len(words) < 2:
        return sentence[: len(sentence) // 2], sentence[len(sentence) // 2 :]
    return " ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])


def retrieval(first: Array, second: Array) -> float:
    """Mean reciprocal rank x 100 of row i of one side among all rows of the other, by cosine with its row i; both directions.

    100: every part finds its counterpart first. Rows that are equally near share their ranks: all vectors alike are chance.
    """
    cosine = _unit(first) @ _unit(second).T
    own = np.diagonal(cosine)

    # Equal rows have equal cosines up to rounding, which depends on the order in which a processor adds: each of the two
    # dot products of unit vectors that are compared is off by at most E * eps / 2.
    rounding = np.shape(first)[1] * np.finfo(np.float64).eps

    def ranks(cosine: np.ndarray) -> np.ndarray:
        gap = cosine - own[:, None]
        nearer, as_near = (gap > rounding).sum(1), (np.abs(gap) <= rounding).sum(1)
        return nearer + (as_near + 1) / 2

    return float(100 * np.mean(1 / np.stack([ranks(cosine), ranks(cosine.T)])))


def diagnose(embeddings: Array, parts: tuple[Array, Array] | None = None) -> dict:
    """All of the above by name and "collapsed", True where spread or effective rank is under its threshold.

    Looks at no more than MAX_ROWS evenly spaced rows. `parts` (two parts of each sentence) add "alignment" and "retrieval".
    NumericsError where an embedding is not finite, ValueError for fewer than two rows.
    """
    rows = len(embeddings)
    if rows < 2:
        raise ValueError(f"{rows} embeddings: diagnostics compare at least two")
    chosen = np.linspace(0, rows - 1, min(rows, MAX_ROWS)).astype(int)
    vectors = np.asarray(embeddings)[chosen]
    result = {
        "uniformity": uniformity(vectors),
        "spread": spread(vectors),
        "mean_cosine": mean_cosine(vectors),
        "effective_rank": effective_rank(vectors),
    }
    if parts is not None:
        first, second = (np.asarray(part)[chosen] for part in parts)
        result |= {"alignment": alignment(first, second), "retrieval": retrieval(first, second)}
    result["collapsed"] = result["spread"] < MIN_SPREAD or (
        len(vectors) >= FEWEST and result["effective_rank"] < MIN_EFFECTIVE_RANK
    )
    return result


def _unit(embeddings: Array) -> np.ndarray:
    """float64 rows of length 1; a zero row stays zero."""
    vectors = np.asarray(embeddings, np.float64)
    if not np.isfinite(vectors).all():
        raise NumericsError(f"{(~np.isfinite(vectors).all(-1)).sum()} of {len(vectors)} embeddings are not finite (NaN or Inf)")
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)
