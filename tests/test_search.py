"""Search, pair mining and communities against NumPy, whatever the sizes of the blocks."""

import numpy as np
import pytest

from jax_sentemb.errors import ConfigError, DataError, NumericsError
from jax_sentemb.retrieval import index
from jax_sentemb.retrieval import search as module
from jax_sentemb.retrieval.deduplication import deduplicate
from jax_sentemb.retrieval.index import build_index, search_index, vector_sources
from jax_sentemb.retrieval.kmeans import kmeans
from jax_sentemb.retrieval.search import community_detection, mine_pairs, search


@pytest.fixture(scope="module")
def vectors():
    random = np.random.default_rng(0)
    found = random.normal(size=(700, 12)).astype(np.float32)
    found[300:330] = found[5] + 0.1 * random.normal(size=(30, 12))
    found[600:612] = found[40] + 0.1 * random.normal(size=(12, 12))
    return found


@pytest.fixture(params=["one block", "many blocks"])
def blocks(request, monkeypatch):
    if request.param == "many blocks":
        for name, size in {
            "QUERY_BLOCK": 16,
            "CORPUS_BLOCK": 256,
            "TILE": 128,
            "CENTRE_BLOCK": 4,
            "STRIP": 32,
            "STRIPS": 4,
        }.items():
            monkeypatch.setattr(module, name, size)


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("top_k", [1, 7, 700])
@pytest.mark.parametrize("count", [3, 37])  # few queries are compared by NumPy
def test_search_finds_what_sorting_all_scores_finds(vectors, blocks, similarity, top_k, count):
    queries = np.random.default_rng(1).normal(size=(count, 12)).astype(np.float32)
    scores = unit(queries) @ unit(vectors).T if similarity == "cosine" else queries @ vectors.T
    hits = search(queries, vectors, top_k, similarity)
    np.testing.assert_allclose(hits.scores, -np.sort(-scores, axis=1)[:, :top_k], atol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(scores, hits.indices, axis=1), hits.scores, atol=1e-5)
    assert all(len(set(row)) == top_k for row in hits.indices.tolist())


@pytest.mark.parametrize(
    ("count_blocks", "total"),
    [
        (lambda vectors, _, progress: search(vectors[:37], vectors, progress=progress), 3 * 3),
        (lambda vectors, _, progress: search(vectors[:3], vectors, progress=progress), 6),
        (lambda vectors, _, progress: mine_pairs(vectors, progress=progress), 6 * 7 // 2),
        (lambda vectors, _, progress: deduplicate(vectors, progress=progress), 6 * 7 // 2),
        (lambda vectors, file, progress: build_index(vectors, file, progress=progress), 700),
    ],
)
def test_the_progress_counts_each_block_once(vectors, monkeypatch, tmp_path, count_blocks, total):
    for name, size in {"QUERY_BLOCK": 16, "CORPUS_BLOCK": 256, "TILE": 128, "STRIP": 32, "STRIPS": 4}.items():
        monkeypatch.setattr(module, name, size)
    monkeypatch.setattr(index, "CORPUS_BLOCK", 256)
    counts = []
    count_blocks(vectors, tmp_path / "index", lambda *numbers: counts.append(numbers))
    done = [done for done, _ in counts]
    assert {total for _, total in counts} == {total}
    assert done[0] == 0
    assert done[-1] == total
    assert len(done) > 3
    assert done == sorted(done)


def test_the_progress_of_groups_begins_again_for_each_part(vectors):
    counts = []
    community_detection(vectors, min_community_size=2, progress=lambda *numbers: counts.append(numbers))
    assert [done for done, _ in counts].count(0) == 2
    counts = []
    kmeans(vectors, 5, progress=lambda *numbers: counts.append(numbers))
    assert counts[0] == (0, 100)
    assert len(counts) > 2


@pytest.mark.parametrize("count", [1, 20])
def test_of_equal_scores_the_smaller_row_comes_first(vectors, blocks, count):
    repeated = np.tile(vectors[:3], (300, 1))
    hits = search(np.tile(vectors[1], (count, 1)), repeated, 6)
    assert hits.indices.tolist() == [[1, 4, 7, 10, 13, 16]] * count


def test_groups_find_exactly_what_a_full_sort_finds(vectors):
    scores = np.random.default_rng(2).integers(0, 3000, (20, 4096)).astype(np.float32)  # many are equal
    values, places = module._largest(scores, 9)
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :9]
    np.testing.assert_array_equal(places, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(scores, expected, axis=1))


def test_sizes_that_do_not_fit_and_vectors_that_are_not_finite(vectors):
    for queries, corpus, options in (
        (vectors[:2, :5], vectors, {}),
        (vectors[:2], vectors, {"top_k": 0}),
        (vectors[:2], vectors, {"similarity": "euclidean"}),
    ):
        with pytest.raises(ConfigError) as caught:
            search(queries, corpus, **options)
        assert "top_k" in options or "similarity" in options or "; encode both with the same model" in str(caught.value)
    broken = vectors.copy()
    broken[17, 3] = np.nan
    for function in (
        lambda: search(vectors[:2], broken),
        lambda: search(vectors, broken),
        lambda: mine_pairs(broken),
        lambda: community_detection(broken),
    ):
        with pytest.raises(NumericsError):
            function()
    far = vectors.copy()
    far[17] = -np.inf
    for count in (2, len(vectors)):
        with pytest.raises(NumericsError):
            search(np.abs(vectors[:count]), far, similarity="dot")
    single = vectors[:1] * np.nan  # in no pair
    for function in (lambda: mine_pairs(single, 1), lambda: community_detection(single), lambda: deduplicate(single)):
        with pytest.raises(NumericsError):
            function()


def test_search_in_nothing_and_for_nothing(vectors):
    assert search(vectors[:3], vectors[:0]).indices.shape == (3, 0)
    assert search(vectors[:0], vectors, 4).indices.shape == (0, 4)


def all_pairs(vectors):
    first, second = np.triu_indices(len(vectors), 1)
    scores = (unit(vectors) @ unit(vectors).T)[first, second]
    order = np.argsort(-scores, kind="stable")
    return first[order], second[order], scores[order]


@pytest.mark.parametrize(
    "options", [{"top_k": 1}, {"top_k": 50}, {"top_k": 1000, "threshold": 0.95}, {"top_k": None, "threshold": 0.9}]
)
def test_pairs_are_those_of_the_whole_matrix(vectors, blocks, options):
    first, second, scores = all_pairs(vectors)
    count = int((scores >= options.get("threshold", -2)).sum())
    count = min(count, options["top_k"] or count)
    found = mine_pairs(vectors, **options)
    assert len(found.scores) == count
    np.testing.assert_allclose(found.scores, scores[:count], atol=1e-6)
    assert set(zip(found.first.tolist(), found.second.tolist(), strict=True)) == set(
        zip(first[:count].tolist(), second[:count].tolist(), strict=True)
    )
    assert (np.diff(found.scores) <= 0).all()


def test_pairs_of_equal_rows_are_all_there_and_in_order(vectors, blocks):
    same = np.tile(vectors[:1], (200, 1))
    found = mine_pairs(same, top_k=300)
    assert list(zip(found.first.tolist(), found.second.tolist(), strict=True))[:3] == [(0, 1), (0, 2), (0, 3)]
    assert len(mine_pairs(same, top_k=None, threshold=0.5).scores) == 200 * 199 // 2


def test_pairs_of_one_row_and_of_none(vectors):
    assert len(mine_pairs(vectors[:1]).scores) == len(mine_pairs(vectors[:0]).scores) == 0
    with pytest.raises(ConfigError, match="threshold"):
        mine_pairs(vectors, top_k=None)


def test_a_threshold_that_no_cosine_reaches_is_refused(vectors):
    for function in (mine_pairs, community_detection):
        with pytest.raises(ConfigError, match=r"threshold=85\.0: must be a cosine, from -1 to 1"):
            function(vectors, threshold=85.0)


@pytest.mark.parametrize("options", [(0.9, 10), (0.6, 2), (0.5, 1), (0.9999, 10)])
def test_communities_are_those_of_sentence_transformers(vectors, blocks, options):
    util = pytest.importorskip("sentence_transformers.util")
    expected = util.community_detection(vectors, *options)
    found = community_detection(vectors, *options)
    assert [group[0] for group in found] == [group[0] for group in expected]
    assert [set(group) for group in found] == [set(group) for group in expected]


def test_communities_of_equal_rows_end(vectors, blocks):
    assert community_detection(np.tile(vectors[:1], (500, 1))) == [list(range(500))]
    assert community_detection(vectors[:0]) == []


def test_an_approximate_index_finds_nearly_all(vectors, tmp_path):
    pytest.importorskip("faiss")
    build_index(vectors, tmp_path / "index")
    exact, found = search(vectors, vectors, 5), search_index(vectors, tmp_path / "index", 5)
    assert np.mean([len(set(a) & set(b)) / 5 for a, b in zip(exact.indices, found.indices, strict=True)]) > 0.95
    with pytest.raises(ConfigError, match="12 dimensions"):
        search_index(vectors[:, :5], tmp_path / "index")


def test_without_faiss_one_line_says_what_to_install(vectors, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    with pytest.raises(ConfigError, match="pip install faiss-cpu"):
        build_index(vectors, tmp_path / "index")


def test_an_index_knows_its_vectors_and_damage_is_found(vectors, tmp_path):
    faiss = pytest.importorskip("faiss")
    index = tmp_path / "index"
    build_index(vectors, index)
    assert search_index(vectors, index, 3, sources=vector_sources(vectors)).indices[:, 0].tolist() == list(range(len(vectors)))
    assert faiss.read_index(str(index)).ntotal == len(vectors)  # faiss itself reads the file
    with pytest.raises(DataError, match="from vectors an array"):
        search_index(vectors, index, sources=vector_sources(vectors[::-1].copy()))
    content = index.read_bytes()
    last = content.removesuffix(b"\n").rpartition(b"\n")[2]
    damages = {
        "is damaged": (content[:3000] + bytes([content[3000] ^ 1]) + content[3001:], content[100:]),
        "does not record its sources": (b"", b"no index", content[: -len(last)], content[:-5], content + b"more\n"),
        "has format 3": (content.replace(b'"format": 2', b'"format": 3'),),
    }
    for problem, contents in damages.items():
        for damaged in contents:
            index.write_bytes(damaged)
            with pytest.raises(DataError, match=problem):
                search_index(vectors, index)
    with pytest.raises(DataError, match="directory"):
        search_index(vectors, tmp_path)


def test_vectors_and_queries_that_are_not_finite_are_in_no_index(vectors, tmp_path):
    pytest.importorskip("faiss")
    broken = vectors.copy()
    broken[1, 0] = np.nan
    with pytest.raises(NumericsError):
        build_index(broken, tmp_path / "index")
    assert not list(tmp_path.iterdir())
    build_index(vectors, tmp_path / "index")
    with pytest.raises(NumericsError):
        search_index(broken[:2], tmp_path / "index", 3)


def test_numbers_beyond_float32_do_not_crash_a_program_that_makes_exceptions_of_warnings():
    rows = np.array([[1.0, 1e-50], [0.2, 1.0]])
    search(rows.astype(np.float32), rows.astype(np.float32))  # compiles what the crash needs
    with np.errstate(all="raise"):
        assert search(rows, rows, top_k=1).indices.tolist() == [[0], [1]]
        with pytest.raises(NumericsError):
            search(rows, 1e39 * rows, top_k=1, similarity="dot")
