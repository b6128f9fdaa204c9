"""Where chance begins: the cosine that one of 1,000 random pairs reaches."""

import numpy as np
import pytest

from jax_sentemb.errors import NumericsError
from jax_sentemb.retrieval.noise import SAMPLE, group_threshold, noise_level
from jax_sentemb.retrieval.search import community_detection


def test_it_is_the_quantile_of_all_pairs_of_a_small_collection():
    vectors = np.random.default_rng(0).normal(size=(200, 16)).astype(np.float32)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = sorted(float(unit[one] @ unit[other]) for one in range(200) for other in range(one))
    found = noise_level(vectors)
    assert found.pairs == len(cosines) == 19900
    assert cosines[-21] <= found.cosine <= cosines[-20]


def test_of_a_large_one_it_is_estimated_from_a_sample():
    vectors = np.random.default_rng(1).normal(size=(5000, 8)).astype(np.float32)
    found, half = noise_level(vectors), noise_level(vectors[:1000])
    assert found.pairs == SAMPLE * (SAMPLE - 1) // 2
    assert found.cosine == pytest.approx(half.cosine, abs=0.03)
    assert noise_level(vectors) == found


def test_copies_are_no_random_pairs():
    vectors = np.random.default_rng(3).normal(size=(200, 16)).astype(np.float32)
    assert noise_level(np.repeat(vectors, 2, axis=0)).cosine == pytest.approx(noise_level(vectors).cosine, abs=1e-6)
    assert noise_level(np.ones((3, 4), np.float32)) == (pytest.approx(1), 3)


def test_fewer_than_two_rows_have_no_pair_and_nan_is_an_error():
    assert noise_level(np.zeros((1, 4), np.float32)).pairs == 0
    with pytest.raises(NumericsError):
        noise_level(np.full((3, 4), np.nan, np.float32))


def test_at_the_threshold_of_groups_there_is_one_and_above_it_none():
    vectors = np.random.default_rng(2).normal(size=(300, 12)).astype(np.float32)
    least = group_threshold(vectors, 5)
    assert len(community_detection(vectors, least - 1e-5, 5)) >= 1
    assert community_detection(vectors, least + 1e-5, 5) == []
    assert group_threshold(vectors[:4], 5) == -1
