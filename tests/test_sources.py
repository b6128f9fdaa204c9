"""Vectors may be arrays, tensors, lists and frames of every library; what has no real numbers is refused by its name."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

from jax_sentemb import community_detection, kmeans, mine_pairs, search
from jax_sentemb.errors import ConfigError
from jax_sentemb.evaluation.diagnostics import diagnose
from jax_sentemb.inference.similarity import similarity, similarity_pairwise
from jax_sentemb.retrieval.sources import vectors_of

ROWS = np.eye(4, 3, dtype=np.float32) + 0.1
NO_ARRAYS = [
    np.ones((2, 3), complex), np.ones((2, 3), object), [["a"]], "abc", None, [[1, 2], [3]], scipy.sparse.eye(3).tocsr(),
    np.ma.masked_array(ROWS, ROWS > 1), np.zeros((2, 3), "M8[s]"), {"a": 1}, {1, 2},
]  # fmt: skip


@pytest.mark.parametrize("value", NO_ARRAYS, ids=lambda value: type(value).__name__)
def test_what_is_no_array_of_real_numbers_is_refused_by_every_function(value):
    calls = {
        "queries": lambda: search(value, ROWS),
        "corpus": lambda: search(ROWS, value),
        "vectors": lambda: mine_pairs(value),
        "vectors ": lambda: kmeans(value, 1),
        " vectors": lambda: community_detection(value),
        "embeddings": lambda: similarity("cosine", value, ROWS),
        "embeddings ": lambda: similarity_pairwise("dot", value, ROWS),
        " embeddings": lambda: diagnose(value),
    }
    for name, call in calls.items():
        with pytest.raises((ConfigError, TypeError), match=name.strip() if value is not None else None):
            call()


def test_every_kind_of_array_gives_the_same_results():
    torch = pytest.importorskip("torch")
    expected = search(ROWS, ROWS, 2), mine_pairs(ROWS, 3), kmeans(ROWS, 2).labels, community_detection(ROWS, 0.5, 1)
    for kind in (torch.tensor, jnp.asarray, np.ndarray.tolist, np.float64):
        rows = kind(ROWS)
        found = search(rows, rows, 2), mine_pairs(rows, 3), kmeans(rows, 2).labels, community_detection(rows, 0.5, 1)
        np.testing.assert_array_equal(found[0].indices, expected[0].indices)
        np.testing.assert_array_equal(found[1].first, expected[1].first)
        np.testing.assert_array_equal(found[2], expected[2])
        assert found[3] == expected[3]
    assert search(jnp.asarray(ROWS[0]), ROWS, 1).indices.tolist() == [[0]]


class Stored:
    """Rows that are read in slices, as from a file; in doubles."""

    shape = ROWS.shape

    def __len__(self):
        return len(ROWS)

    def __getitem__(self, rows):
        return ROWS[rows].astype(np.float64)


def test_sources_are_read_in_slices():
    stored = Stored()
    assert vectors_of("vectors", stored) is stored
    np.testing.assert_array_equal(search(stored, stored, 2).indices, search(ROWS, ROWS, 2).indices)
    np.testing.assert_array_equal(mine_pairs(stored, 3).first, mine_pairs(ROWS, 3).first)
