"""Compute pseudo-random permutations of any size, each entry independently of the others."""

import math

import numpy as np
from jaxtyping import Int, UInt64

# With 4 rounds or more, a Feistel network of pseudo-random functions is indistinguishable from a random permutation (Luby and
# Rackoff 1988).
ROUNDS = 6


def hash64(values: UInt64[np.ndarray, "*shape"]) -> UInt64[np.ndarray, "*shape"]:
    """Apply a pseudo-random bijection of uint64: the step and the finaliser of splitmix64."""
    with np.errstate(over="ignore"):
        values = values + np.uint64(0x9E3779B97F4A7C15)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def permuted(positions: Int[np.ndarray, " positions"], count: int, key: tuple[int, int]) -> Int[np.ndarray, " positions"]:
    """Return the entries at `positions` of the permutation of 0 .. count - 1 that `key` determines; int64.

    The permutation is a Feistel network over pairs (left, right) with left < a, right < b and a * b slightly above `count`. It adds
    modulo a and b instead of using exclusive or, so few results are `count` or more. Those pass through the network again until
    they are below `count` (Black and Rogaway 2002). Memory is proportional to the number of positions.
    """
    # Philox is counter-based and gives the same numbers on every platform.
    keys = np.random.Generator(np.random.Philox(key=list(key))).integers(2**64, size=ROUNDS, dtype=np.uint64)
    height = math.isqrt(max(count - 1, 0)) + 1
    sides = np.uint64(height), np.uint64(-(-count // height))

    def network(values: np.ndarray) -> np.ndarray:
        pair = [values // sides[1], values % sides[1]]
        for number in range(ROUNDS):
            side = number % 2
            pair[side] = (pair[side] + hash64(pair[1 - side] ^ keys[number]) % sides[side]) % sides[side]
        return pair[0] * sides[1] + pair[1]

    values = network(np.asarray(positions, np.uint64))
    while len(too_large := np.flatnonzero(values >= count)):
        values[too_large] = network(values[too_large])
    return values.astype(np.int64)
