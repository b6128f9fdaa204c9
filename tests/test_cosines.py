"""Cosines at the edge: equal, very long, very short and zero rows, in every function that compares rows."""

import numpy as np
import pytest

from jax_sentemb import community_detection, deduplicate, kmeans, mine_pairs, search
from jax_sentemb.cosines import rounded, unit_length, with_usual_lengths
from jax_sentemb.errors import ConfigError
from jax_sentemb.evaluation import diagnostics, sts
from jax_sentemb.inference.similarity import similarity, similarity_pairwise
from jax_sentemb.reporting.samples import collect_samples
from jax_sentemb.retrieval.noise import noise_level
from jax_sentemb.retrieval.quantize import quantize, ranges_of, restore
from jax_sentemb.retrieval.search import CORPUS_BLOCK

SCALES = [1e38, 1e19, 1.0, 1e-19, 1e-30, 1e-44]


@pytest.mark.parametrize("width", [3, 64, 384, 1024])
def test_equal_rows_reach_a_threshold_of_1(width):
    rows = np.random.default_rng(0).normal(size=(200, width)).astype(np.float32)
    both = np.concatenate([rows, rows])
    pairs = mine_pairs(both, None, 1.0)
    assert sorted(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)) == [(row, row + 200) for row in range(200)]
    assert (pairs.scores == 1).all()
    assert sorted(map(sorted, community_detection(both, 1.0, 2))) == [[row, row + 200] for row in range(200)]
    unique = deduplicate(both, 1.0)
    assert (unique.kept.tolist(), unique.kept_for.tolist()) == ([*range(200)], [*range(200)])
    for queries in (rows, rows[:3]):  # many queries, and few that NumPy compares
        found = search(queries, both, 2)
        assert (found.scores == 1).all()
        assert np.sort(found.indices).tolist() == [[row, row + 200] for row in range(len(queries))]
    assert (np.diagonal(similarity("cosine", rows, rows)) == 1).all()
    assert (similarity_pairwise("cosine", rows, rows) == 1).all()
    groups = kmeans(both, 200, rounds=3)
    assert groups.scores.max() == 1


def test_scores_stay_from_minus_1_to_1():
    rows = np.random.default_rng(1).normal(size=(300, 384)).astype(np.float32)
    rows = np.concatenate([rows, -rows])
    for scores in (search(rows, rows, 600).scores, search(rows[:2], rows, 600).scores, similarity("cosine", rows, rows)):
        assert (scores.min(), scores.max()) == (-1, 1)
    near = rows.copy()
    near[:, 0] += 0.1  # clearly different rows do not become equal
    assert similarity_pairwise("cosine", rows, near).max() < 1


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_length_of_a_row_does_not_change_its_cosines(scale, dtype):
    scale = scale if dtype == np.float32 else scale**6 if scale < 1e19 else 1e300
    directions = np.array([[1, 2, 3, 4], [1, 2, 3, 4], [4, -3, 2, -1], [4, -3, 2, -1]], np.float64) / 8
    rows = (directions * scale).astype(dtype)
    expected = np.array([1, 1, 0, 0])
    tolerance = 0.1 if scale == 1e-44 else 1e-6  # of numbers with few bits
    for found in (
        search(rows, rows, 4).scores[0], search(rows[:1], rows, 4).scores[0], similarity("cosine", rows[:1], rows)[0],
        unit_length(rows)[0] @ unit_length(rows).T, [sts.similarity(rows[:1], rows[row : row + 1])[0] for row in range(4)],
    ):  # fmt: skip
        np.testing.assert_allclose(found, expected, atol=tolerance)
    assert mine_pairs(rows, None, 1.0).scores.tolist() == [1, 1]
    assert community_detection(rows, 1.0, 2) == [[0, 1], [2, 3]]
    assert deduplicate(rows, 1.0).kept.tolist() == [0, 2]
    labels = kmeans(rows, 2).labels
    assert labels[0] == labels[1] != labels[2] == labels[3]
    np.testing.assert_allclose(diagnostics.alignment(rows[:1], rows[1:2]), 0, atol=1e-6)
    near = (np.array([[1, 2, 3, 4], [1, 2, 3, 4.1]]) / 8 * scale).astype(dtype)
    assert noise_level(near).cosine == pytest.approx(1, abs=1e-2)
    if dtype == np.float32:
        vectors = dict(zip("abcdefghijklmnop", np.tile(rows, (4, 1)), strict=True))
        nearest = collect_samples(vectors, {}, {})["neighbours"]["queries"][0]["nearest"][0]
        assert nearest[0] == pytest.approx(1, abs=1e-3)


def test_rows_of_all_lengths_in_one_block():
    rows = np.tile(np.array([[1, 2, 3], [3, 2, -1]], np.float32), (CORPUS_BLOCK // 2 + 3, 1))
    rows *= np.resize(np.array([1e38, 1, 1e-30, 0, 1e10], np.float32) / 4, len(rows))[:, None]
    found = search(rows[:2], rows, len(rows)).scores
    many = search(rows[:20], rows, len(rows)).scores
    np.testing.assert_allclose(many[:2], found, atol=1e-6)
    assert (found[0] == 1).sum() == sum(1 for number in range(0, len(rows), 2) if number % 5 != 3)


def test_a_zero_row_has_the_cosine_0_with_every_row():
    rows = np.array([[0, 0], [1, 0], [0, 0]], np.float32)
    assert search(rows, rows, 3).scores.tolist() == [[0, 0, 0], [1, 0, 0], [0, 0, 0]]
    assert similarity("cosine", rows, rows).tolist() == [[0, 0, 0], [0, 1, 0], [0, 0, 0]]
    assert len(mine_pairs(rows, None, 0.5).first) == 0
    assert community_detection(rows, 0.5, 2) == []
    assert np.isfinite(kmeans(rows, 2).scores).all()


def test_usual_rows_stay_as_they_are():
    rows = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    assert with_usual_lengths(rows) is rows
    assert rounded(np.array([0.5, 0.99], np.float32), 384).tolist() == pytest.approx([0.5, 0.99])
    odd = np.array([[np.nan, 1], [np.inf, 1], [0, 0], [1e38, 1e38]], np.float32)
    np.testing.assert_array_equal(with_usual_lengths(odd), [[np.nan, 1], [np.inf, 1], [0, 0], [1, 1]])


@pytest.mark.parametrize("rows", [np.ones((1, 4)), np.ones((3, 4))])
def test_one_byte_needs_embeddings_that_differ(rows):
    for precision in ("int8", "uint8"):
        with pytest.raises(ConfigError, match="need the ranges of several different embeddings"):
            quantize(rows.astype(np.float32), precision)
    some = np.array([[0.1, 0.5], [0.1, 0.7]], np.float32)  # one dimension that does not vary is kept
    restored = restore(quantize(some, "int8"), "int8", 2, ranges_of(some))
    np.testing.assert_allclose(restored, some, atol=1e-3)
