"""A random-looking order of any number of things, of which any part can be computed alone."""

import math

import numpy as np

ROUNDS = 6  # from 4 on such a network cannot be told from a random permutation (Luby and Rackoff 1988), if its rounds cannot


def hash64(values: np.ndarray) -> np.ndarray:
    """uint64 to random-looking uint64, one to one: the step and the finaliser of splitmix64."""
    with np.errstate(over="ignore"):
        values = values + np.uint64(0x9E3779B97F4A7C15)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def permuted(positions: np.ndarray, count: int, key: tuple[int, int]) -> np.ndarray:
    """What stands at `positions` of a permutation of 0 .. count - 1 that belongs to `key`; int64, memory of the positions only.

    A Feistel network over pairs (left, right) with left < a, right < b and a b just above `count`; sums modulo a and b in place of
    exclusive ors, so that hardly a position comes out at `count` or above. Those that do go through it again, until they are below
    (Black and Rogaway 2002).
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
