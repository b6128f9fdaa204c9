"""An order that is computed in parts: a permutation of any number, another one for each key, without a pattern."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_sentemb.data.shuffle import hash64, permuted

SIZES = sorted({1, 2, 3, 5, 99, 9999, *(2**bits + more for bits in range(1, 15) for more in (-1, 0, 1))})


def whole(count, key=(0, 0)):
    return permuted(np.arange(count), count, key)


@pytest.mark.parametrize("count", SIZES)
def test_every_number_stands_at_one_place(count):
    assert np.sort(whole(count, (count, 1))).tolist() == list(range(count))


@settings(max_examples=100, deadline=None)
@given(count=st.integers(1, 10**13), seed=st.integers(0, 2**63), epoch=st.integers(0, 10**6), first=st.integers(0, 10**18))
def test_a_part_of_a_huge_order_is_distinct_and_the_same_whatever_else_is_asked_for(count, seed, epoch, first):
    places = np.unique((first + np.arange(50)) % count)
    values = permuted(places, count, (seed, epoch))
    assert len(set(values.tolist())) == len(places)
    assert 0 <= values.min() <= values.max() < count
    assert permuted(places[::-1], count, (seed, epoch)).tolist() == values[::-1].tolist()


def test_other_seeds_and_epochs_give_other_orders():
    orders = [whole(1000, key) for key in ((0, 0), (0, 1), (1, 0), (1, 1), (2**63, 0))]
    for number, one in enumerate(orders):
        for other in orders[:number]:
            assert (one == other).sum() < 10  # of 1000, one is expected


@pytest.mark.parametrize("count", [4096, 10_007])
def test_neighbours_have_nothing_to_do_with_each_other(count):
    """Two rounds of the network fail here; a random order leaves the bounds less than once in 10^4 draws."""
    squares, neighbours, places = [], [], []
    for seed in range(20):
        order = whole(count, (seed, 3))
        cells = np.bincount(np.arange(count) * 16 // count * 16 + order * 16 // count, minlength=256)
        squares.append(((cells - count / 256) ** 2 / (count / 256)).sum())
        neighbours.append(np.corrcoef(order[:-1], order[1:])[0, 1])
        places.append(np.corrcoef(order, np.arange(count))[0, 1])
    assert 200 < np.mean(squares) < 250  # 15 x 15 = 225 degrees of freedom, twenty times: 4.7 for the mean
    assert np.abs([neighbours, places]).max() * count**0.5 < 5
    assert np.std(neighbours) * count**0.5 < 1.8
    gaps = np.diff(np.sort(whole(count, (7, 0))[:64]))
    assert gaps.max() > 3 * gaps.mean() > 3  # as uneven as chance, not a lattice


def test_mixing_is_one_to_one_and_changes_half_of_the_bits():
    values = hash64(np.arange(1 << 16, dtype=np.uint64))
    assert len(np.unique(values)) == 1 << 16
    changed = values[:-1] ^ values[1:]
    assert 31.5 < np.bitwise_count(changed).mean() < 32.5
