"""Search in int8 vectors: the same rows as in float32, from every shard, whatever the sizes of blocks."""

import numpy as np
import pytest

from jax_sentemb.errors import NumericsError
from jax_sentemb.retrieval import int8_search
from jax_sentemb.retrieval.search import search
from jax_sentemb.retrieval.vector_manifest import marked
from jax_sentemb.retrieval.vector_store import EncodedSentences, Vectors, write_shards

pytest.importorskip("numkong")
RANDOM = np.random.default_rng(0)
CENTRES = RANDOM.normal(size=(30, 24))
ROWS = (CENTRES[RANDOM.integers(0, 30, 900)] + 0.3 * RANDOM.normal(size=(900, 24)) + 1.0).astype(np.float32)
ROWS *= RANDOM.uniform(0.5, 2, (900, 1)).astype(np.float32)  # of different lengths
QUERIES = (CENTRES[:12] + 0.3 * RANDOM.normal(size=(12, 24))).astype(np.float32)
QUERIES = np.concatenate([QUERIES[:11], -np.ones((1, 24), np.float32)])  # the last one's products with the rows are far below 0


def vectors_of(rows, folder, precision):
    facts = marked({"precision": precision, "rows_per_shard": 400, "format": "npy"})
    texts = [str(row) for row in range(len(rows))]
    write_shards(folder, facts, texts, lambda part: EncodedSentences(rows[[int(text) for text in part]], 0), lambda count: None)
    return Vectors(folder)


@pytest.fixture(scope="module", params=["int8", "uint8"])
def stored(request, tmp_path_factory):
    return vectors_of(ROWS, tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    for name, size in {"PRODUCTS": 320, "QUERY_BLOCK": 5, "POOL_FACTOR": 2}.items():
        monkeypatch.setattr(int8_search, name, size)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("top_k", [1, 10, 900])
def test_it_finds_what_float32_finds(stored, similarity, top_k, monkeypatch):
    expected = search(QUERIES, stored, top_k, similarity, rescore=0)
    called = []
    inner = int8_search.search_int8
    monkeypatch.setattr(int8_search, "search_int8", lambda *arguments: called.append(1) or inner(*arguments))
    found = search(QUERIES, stored, top_k, similarity)
    assert called
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-4)
    common = [len({*one} & {*other}) for one, other in zip(found.indices.tolist(), expected.indices.tolist(), strict=True)]
    assert sum(common) >= 0.99 * expected.indices.size
    assert found.indices.dtype == np.int64


@pytest.mark.parametrize("value", [0.0, 0.3])
def test_a_constant_dimension_does_not_hide_the_others(tmp_path, value):
    rows, queries = ROWS.copy(), QUERIES.copy()
    rows[:, 0] = queries[:, 0] = value
    rows[:, 1:] *= 0.01  # their steps are far below 1
    stored = vectors_of(rows, tmp_path, "int8")
    unit = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    found, expected = int8_search.search_int8(unit, stored, 10, True, 20)[1], search(queries, stored, 10, rescore=0).indices
    assert np.mean([len({*one} & {*other}) for one, other in zip(found, expected, strict=True)]) > 9


def test_the_progress_counts_each_product_once(stored):
    counts = []
    search(QUERIES, stored, 10, progress=lambda *numbers: counts.append(numbers))
    assert counts[0] == (0, 12 * 900)
    assert counts[-1] == (12 * 900, 12 * 900)
    assert len(counts) > 3 * 2  # more than the passes: blocks of each
    assert counts == sorted(counts)


@pytest.mark.parametrize("precision", ["int8", "uint8"])
def test_without_rescoring_enough_rows_some_are_missed(tmp_path, precision):
    near = np.repeat(CENTRES, 30, axis=0) + 0.02 * np.random.default_rng(0).normal(size=(900, 24))  # alike in int8
    stored = vectors_of(near.astype(np.float32), tmp_path / "near", precision)
    exact = search(QUERIES, stored, 10, rescore=0).indices
    unit = QUERIES / np.linalg.norm(QUERIES, axis=1, keepdims=True)
    few, many = (int8_search.search_int8(unit, stored, 10, True, count)[1] for count in (10, 100))
    right = [np.mean([len({*one} & {*other}) for one, other in zip(found, exact, strict=True)]) for found in (few, many)]
    assert right[0] < right[1] == 10


def test_rows_are_taken_from_every_shard_in_the_order_asked_for(stored):
    wanted = np.array([899, 0, 400, 399, 400])
    np.testing.assert_array_equal(stored.take(wanted), stored[:][wanted])


def test_queries_that_are_not_finite_are_refused(stored):
    with pytest.raises(NumericsError):
        search(np.full((2, 24), np.nan, np.float32), stored)


def test_without_the_package_the_search_is_exact(stored, monkeypatch):
    monkeypatch.setattr(int8_search, "is_available", lambda: False)
    monkeypatch.delattr(int8_search, "search_int8")
    assert search(QUERIES, stored, 3).indices.shape == (12, 3)
