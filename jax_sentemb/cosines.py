"""Compute cosines that are right at the edges: for rows that are equal, very long, very short or zero."""

import numpy as np
from jaxtyping import Float, Shaped

SHORTEST, LONGEST = 1e-28, 1e30  # squared lengths of rows whose squares float32 computes without loss


def rounding(width: int) -> float:
    """Return how far the cosine of two equal rows of `width` numbers, computed in float32, may be from 1."""
    return float(np.finfo(np.float32).eps) * (4 + width**0.5)


def rounded(cosines: Float[np.ndarray, "..."], width: int) -> Float[np.ndarray, "..."]:
    """Return cosines from -1 to 1, with exactly 1 if rows of `width` numbers differ by float32 rounding only."""
    return np.where(cosines >= 1 - rounding(width), 1, np.maximum(cosines, -1)).astype(cosines.dtype)


def unrounded(threshold: float, width: int) -> float:
    """Return the threshold that computed cosines reach when the `rounded` cosines reach `threshold`."""
    return min(threshold, 1 - rounding(width)) if threshold <= 1 else threshold


def with_usual_lengths(rows: Shaped[np.ndarray, "n width"]) -> Shaped[np.ndarray, "n width"]:
    """Divide rows that are too long or too short for squares in float32 by their largest number; return all rows.

    Directions do not change. Zero rows and rows that are not finite stay as they are.
    """
    if rows.dtype.kind in "iu" and rows.dtype.itemsize == 8:
        rows = rows.astype(np.float64)
    if rows.dtype.kind != "f":
        return rows
    rows = rows.astype(np.float32) if rows.dtype.itemsize < 4 else rows
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        squared = np.vecdot(rows, rows)
        unusual = np.flatnonzero(~((squared > SHORTEST) & (squared < LONGEST)))
        if not len(unusual):
            return rows
        largest = np.abs(rows[unusual]).max(axis=1, initial=0)
        scaled = unusual[(largest > 0) & np.isfinite(largest)]
        rows = rows.copy()
        rows[scaled] = rows[scaled] / np.abs(rows[scaled]).max(axis=1, keepdims=True, initial=0)
    return rows


def unit_length(rows: Float[np.ndarray, "n width"]) -> Float[np.ndarray, "n width"]:
    """Return the rows scaled to length 1; a zero row stays zero, so its cosines are 0."""
    rows = with_usual_lengths(rows if rows.dtype.kind == "f" else rows.astype(np.float64))
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1)
