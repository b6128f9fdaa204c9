"""Diagnose embeddings without labels: alignment, uniformity, spread, retrieval of sentence halves, and collapse.

Every function except `halves` takes embeddings [N, E] (NumPy or JAX) and scales the rows to unit length. Measures are floats.
"""

import numpy as np
from jaxtyping import Float

from jax_sentemb.checks import array
from jax_sentemb.cosines import unit_length
from jax_sentemb.errors import RETRAIN, ConfigError, NumericsError
from jax_sentemb.types import Array

Embeddings = Float[Array, "n width"]

# Collapse thresholds. The spread on 600 Wikipedia sentences is 0.97 for all-MiniLM-L6-v2, and 0.16 for the [CLS] of a small BERT
# after masked-language-model training only. The [CLS] of an untrained BERT hardly depends on the sentence (0.002 to 0.045); it
# counts as collapsed until training separates the sentences. The effective rank was above 20 in all of these.
MIN_SPREAD = 0.05  # below, the mean cosine is above about 0.9975 (spread^2 is about 1 - mean cosine)
MIN_EFFECTIVE_RANK = 2.0  # below, the centred vectors lie close to a line
FEWEST = 16  # fewest rows for which the effective rank, which is at most their number - 1, indicates a collapse
MAX_ROWS = 2_000  # rows that `diagnose` uses: the cost of uniformity grows with N^2


def alignment(first: Embeddings, second: Embeddings) -> float:
    """Return the mean squared distance of paired rows, two views or parts of a sentence; from 0 (equal) to 4 (opposite).

    E |f(x) - f(y)|^2 (Wang and Isola 2020, with exponent 2).
    """
    return float(np.square(_unit(first) - _unit(second)).sum(-1).mean())


def uniformity(embeddings: Embeddings) -> float:
    """Return log E exp(-2 |f(x) - f(y)|^2) over pairs of different rows; 0 is collapse, lower is better, about -4 is uniform.

    Wang and Isola 2020, with t = 2. It needs at least two rows; memory grows with N^2.
    """
    vectors = _unit(embeddings)
    cosine = (vectors @ vectors.T)[np.triu_indices(len(vectors), k=1)]
    return float(np.log(np.mean(np.exp(-4 * (1 - cosine)))))


def spread(embeddings: Embeddings) -> float:
    """Return the mean over dimensions of the standard deviation of unit-length rows, times sqrt(E): 1 isotropic, 0 collapsed."""
    vectors = _unit(embeddings)
    return float(vectors.std(axis=0).mean() * vectors.shape[1] ** 0.5)


def mean_cosine(embeddings: Embeddings) -> float:
    """Return the mean cosine of all pairs of different rows: near 0 isotropic, 1 collapsed. It needs at least two rows."""
    vectors = _unit(embeddings)
    rows = len(vectors)
    # |sum of the rows|^2 contains every pair twice and the product of each row with itself once.
    return float((np.square(vectors.sum(axis=0)).sum() - np.square(vectors).sum()) / (rows * (rows - 1)))


def effective_rank(embeddings: Embeddings) -> float:
    """Return the effective rank of the centred unit-length embeddings: exp of the entropy of their singular values.

    Roy and Vetterli 2007. It is between 1 and min(N - 1, E), or 0 if all rows are equal.
    """
    vectors = _unit(embeddings)
    values = np.linalg.svd(vectors - vectors.mean(axis=0), compute_uv=False)
    if values[0] < 1e-6 * len(vectors) ** 0.5:  # below float32 rounding of unit vectors
        return 0.0
    share = values[values > 0] / values.sum()
    return float(np.exp(-(share * np.log(share)).sum()))


def halves(sentence: str) -> tuple[str, str]:
    """Return the first and the second half of the words of a sentence, or of the characters of a single word."""
    words = sentence.split()
    if len(words) < 2:
        return sentence[: len(sentence) // 2], sentence[len(sentence) // 2 :]
    return " ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])


def retrieval(first: Embeddings, second: Embeddings) -> float:
    """Return the mean reciprocal rank x 100 of each row's counterpart among all rows of the other side, by cosine; both directions.

    100: every row ranks its counterpart first. Rows at equal distance get their mean rank, so equal vectors have chance level.
    """
    cosine = _unit(first) @ _unit(second).T
    counterpart = np.diagonal(cosine)

    # Equal rows have equal cosines up to rounding, which depends on the order of additions on a processor. The error of each of the
    # two compared dot products of unit vectors is at most E * eps / 2.
    rounding = np.shape(first)[1] * np.finfo(np.float64).eps

    def ranks(cosine: np.ndarray) -> np.ndarray:
        gap = cosine - counterpart[:, None]
        nearer, as_near = (gap > rounding).sum(1), (np.abs(gap) <= rounding).sum(1)
        return nearer + (as_near + 1) / 2

    return float(100 * np.mean(1 / np.stack([ranks(cosine), ranks(cosine.T)])))


def diagnose(embeddings: Embeddings, parts: tuple[Embeddings, Embeddings] | None = None) -> dict[str, float | bool]:
    """Return all measures by name, and "collapsed": whether spread or effective rank is below its threshold.

    At most MAX_ROWS evenly spaced rows are used.

    Args:
        embeddings: At least two rows.
        parts: Embeddings of two parts of each sentence, for "alignment" and "retrieval"; None leaves these out.

    Raises:
        NumericsError: An embedding is not finite.
        ConfigError: There are fewer than two rows.
    """
    rows = len(embeddings)
    if rows < 2:
        raise ConfigError(f"diagnostics need at least two embeddings, not {rows}; give more text")
    chosen = np.linspace(0, rows - 1, min(rows, MAX_ROWS)).astype(int)
    vectors = array("embeddings", embeddings)[chosen]
    result: dict[str, float | bool] = {
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


def _unit(embeddings: Embeddings) -> Float[np.ndarray, "n width"]:
    """Return float64 rows of length 1; a zero row stays zero."""
    vectors = array("embeddings", embeddings).astype(np.float64)
    if vectors.ndim != 2:
        raise ConfigError(f"embeddings have shape {list(vectors.shape)}: expected [rows, width]")
    if not np.isfinite(vectors).all():
        raise NumericsError(
            f"{(~np.isfinite(vectors).all(-1)).sum()} of {len(vectors)} embeddings are not finite (NaN or Inf); {RETRAIN}"
        )
    return unit_length(vectors)
