"""Spherical k-means: the best of all partitions of a few rows, separable groups, a fixed point, whatever the size of the blocks."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb.errors import ConfigError, NumericsError
from jax_sentemb.retrieval import kmeans as module
from jax_sentemb.retrieval.kmeans import Groups, kmeans
from jax_sentemb.retrieval.vector_manifest import marked
from jax_sentemb.retrieval.vector_store import EncodedSentences, Vectors, write_shards


def unit(rows):
    return rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-12)


@pytest.fixture(scope="module")
def rows():
    """300 rows of all lengths in ten directions, 30 each, in turn."""
    random = np.random.default_rng(0)
    directions = np.linalg.qr(random.normal(size=(12, 12)))[0][:10]
    found = np.tile(directions, (30, 1)) + 0.1 * random.normal(size=(300, 12))
    return (found * random.uniform(0.1, 10, (300, 1))).astype(np.float32)


@pytest.fixture(params=["one block", "many blocks"])
def blocks(request, monkeypatch):
    if request.param == "many blocks":
        monkeypatch.setattr(module, "CORPUS_BLOCK", 64)  # another shape, so that it is not the compiled program of one block
        monkeypatch.setattr(module, "SCORES", 500)
        monkeypatch.setattr(module, "MIN_ROWS", 8)


def test_it_finds_the_best_of_all_partitions():
    random = np.random.default_rng(3)
    few = random.normal(size=(8, 3)).astype(np.float32)
    sums = [
        sum(np.linalg.norm(unit(few)[np.array(labels) == group].sum(axis=0)) for group in range(3))
        for labels in itertools.product(range(3), repeat=8)
    ]
    found = [kmeans(few, 3, seed).scores.sum() for seed in range(8)]
    assert max(found) == pytest.approx(max(sums), abs=1e-5)
    assert min(found) > 0.8 * max(sums)


def test_separable_groups_are_found_from_any_seed(rows, blocks):
    for seed in range(5):
        found = kmeans(rows, 10, seed)
        assert sorted(map(sorted, found.rows())) == [list(range(first, 300, 10)) for first in range(10)], seed


@pytest.mark.parametrize("k", [1, 4, 25])
def test_rows_are_at_the_nearest_centre_and_centres_in_the_middle(rows, blocks, k):
    labels, scores, centres = kmeans(rows, k, tolerance=0.0)
    cosines = unit(rows.astype(np.float64)) @ centres.T
    np.testing.assert_array_equal(labels, cosines.argmax(axis=1))
    np.testing.assert_allclose(scores, cosines.max(axis=1), atol=1e-5)
    means = np.stack([unit(rows.astype(np.float64))[labels == group].mean(axis=0) for group in range(k)])
    np.testing.assert_allclose(centres, unit(means), atol=1e-5)


def test_groups_are_listed_by_size_with_the_row_nearest_to_the_centre_first():
    scores = np.array([0.5, 0.9, 0.7, 0.9, 0.8], np.float32)
    groups = Groups(np.array([2, 0, 2, 2, 0]), scores, np.zeros((4, 2), np.float32))
    assert groups.rows() == [[3, 2, 0], [1, 4]]


def test_the_centres_are_improved_on_the_sample_before_all_rows_are_read(rows, monkeypatch):
    passes, assign = [], module._assign
    monkeypatch.setattr(module, "SAMPLE", 40)
    monkeypatch.setattr(module, "SAMPLE_OF_GROUP", 4)
    monkeypatch.setattr(module, "_assign", lambda vectors, centres: passes.append(len(vectors)) or assign(vectors, centres))
    kmeans(rows, 5)
    assert passes[:2] == [40, 40]
    assert passes == sorted(passes)
    assert passes[-1] == len(rows)


def test_a_seed_is_repeated_and_another_one_is_not(rows, monkeypatch):
    monkeypatch.setattr(module, "SAMPLE", 100)
    monkeypatch.setattr(module, "SAMPLE_OF_GROUP", 2)
    first, again, other = (kmeans(rows, 25, seed, rounds=1) for seed in (7, 7, 8))
    for one, two in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, two)
    assert not np.array_equal(first.centres, other.centres)


def test_an_empty_group_starts_anew(rows, monkeypatch):
    monkeypatch.setattr(module, "_draw_centres", lambda rows, key, k: module.prepare(np.tile(rows[:1], (k, 1)), True))
    found = kmeans(rows, 10, tolerance=1e9)  # not at its end while a group is empty
    assert np.bincount(found.labels, minlength=10).min() > 0
    assert len(kmeans(rows, 300).rows()) > 290


def test_fewer_different_rows_than_groups_leave_groups_empty_and_it_ends(rows, monkeypatch):
    passes, assign = [], module._assign
    monkeypatch.setattr(module, "_assign", lambda *arguments: (passes.append(1), assign(*arguments))[1])
    same = np.tile(rows[:3], (5, 1))
    assert sorted(kmeans(same, 6).rows()) == [[0, 3, 6, 9, 12], [1, 4, 7, 10, 13], [2, 5, 8, 11, 14]]
    assert len(passes) < 5


def test_vectors_on_disk_are_the_same(rows, tmp_path):
    facts = marked({"precision": "float32", "rows_per_shard": 70, "format": "npy"})
    texts = [str(row) for row in range(300)]
    write_shards(tmp_path, facts, texts, lambda part: EncodedSentences(rows[[int(text) for text in part]], 0), lambda count: None)
    for one, two in zip(kmeans(Vectors(tmp_path), 10), kmeans(rows, 10), strict=True):
        np.testing.assert_array_equal(one, two)


def test_numbers_that_cannot_be_and_vectors_that_are_not_finite(rows):
    for k in (0, 301):
        with pytest.raises(ConfigError, match=f"k={k}: must be a whole number from 1 to 300"):
            kmeans(rows, k)
    broken = rows.copy()
    broken[299, 3] = np.nan
    with pytest.raises(NumericsError):
        kmeans(broken, 3)


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_sums_are_of_the_rows_of_each_centre_on_every_device(rows, monkeypatch, backend):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    rows, centres, before = rows[:256], jnp.asarray(unit(rows[:7])), np.full((7, 12), 0.5, np.float32)
    labels, _, sums = module._nearest.__wrapped__(jnp.asarray(rows), centres, jnp.asarray(before))
    expected = before + np.stack([unit(rows)[np.array(labels) == group].sum(axis=0) for group in range(7)])
    np.testing.assert_allclose(sums, expected, atol=1e-4)
