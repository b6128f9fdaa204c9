"""Pseudo-random permutations of any size, of which each entry can be computed alone."""

import math

import numpy as np
from jaxtyping import Int, UInt64

# With 4 rounds or more, a Feistel network of pseudo-random functions is indistinguishable from a random permutation (Luby and
# Rackoff 1988).
ROUNDS = 6


def hash64(values: UInt64[np.ndarray, "*shape"]) -> UInt64[np.ndarray, "*shape"]:
    """A pseudo-random bijection of uint64: the step and the finaliser of splitmix64."""
    with np.errstate(over="ignore"):
        values = values + np.uint64(0x9E3779B97F4A7C15)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def permuted(positions: Int[np.ndarray, " positions"], count: int, key: tuple[int, int]) -> Int[np.ndarray, " positions"]:
    """The entries at `positions` of the permutation of 0 .. count - 1 that `key` determines; int64.

    It is a Feistel network over pairs (left, right) with left < a, right < b and a b slightly above `count`. It adds modulo a and b
    instead of using exclusive or, so that few results are `count` or more. Those pass the network again until they are below
    (Black and Rogaway 2002). Memory is proportional to the positions.
    """
    # Philox is counter-based and gives the same numbers on every platform.
    keys = np.random.Generator(np.random.Philox(key=list(key))).integers(2**64, size=ROUNDS, dtype=np.uint64)
    height = math.isqrt(max(count - 1, 0)) + 1
    sides = np.uint64(height), np.uint64(-(-count // height))

    def network(values: np.ndarray) -> np.ndarray:
        pair = [values // sides[1], values % sides[1]]
        for number in range(ROUNDS):
            changed = number % 2
            pair[changed] = (pair[changed] + hash64(pair[1 - changed] ^ keys[number]) % sides[changed]) % sides[changed]
        return pair[0] * sides[1] + pair[1]

    values = network(np.asarray(positions, np.uint64))
    while len(outside := np.flatnonzero(values >= count)):
        values[outside] = network(values[outside])
    return values.astype(np.int64)
