"""Label-free diagnostics against brute force and hand-made geometry."""

import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb.errors import ConfigError, NumericsError
from jax_sentemb.evaluation.diagnostics import (
    MAX_ROWS,
    alignment,
    diagnose,
    effective_rank,
    halves,
    mean_cosine,
    retrieval,
    spread,
    uniformity,
)


def gaussian(rows: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, width))


def test_uniformity_and_mean_cosine_equal_a_loop_over_pairs():
    vectors = gaussian(7, 5) + 0.5
    unit = [vector / np.sqrt((vector**2).sum()) for vector in vectors]
    pairs = [(unit[i], unit[j]) for i in range(7) for j in range(i)]
    potential = np.mean([np.exp(-2 * ((x - y) ** 2).sum()) for x, y in pairs])
    assert uniformity(vectors) == pytest.approx(np.log(potential), abs=1e-12)
    assert mean_cosine(vectors) == pytest.approx(np.mean([x @ y for x, y in pairs]), abs=1e-12)


def test_alignment_of_equal_opposite_and_orthogonal_views():
    first = np.eye(4)
    assert alignment(first, 3 * first) == 0  # length does not count
    assert alignment(first, -first) == pytest.approx(4)
    assert alignment(first, np.roll(first, 1, axis=0)) == pytest.approx(2)


def test_spread_is_one_for_isotropic_and_zero_for_constant_embeddings():
    assert spread(gaussian(20_000, 64)) == pytest.approx(1, abs=0.01)
    assert spread(np.ones((5, 8))) == pytest.approx(0, abs=1e-12)


def test_spread_squared_is_one_minus_mean_cosine_when_dimensions_are_alike():
    vectors = gaussian(20_000, 64) + 1.0
    assert spread(vectors) ** 2 == pytest.approx(1 - mean_cosine(vectors), abs=0.01)


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_effective_rank_counts_equally_used_directions(rank):
    vectors = np.concatenate([np.eye(8)[:rank], -np.eye(8)[:rank]])
    assert effective_rank(vectors) == pytest.approx(rank, abs=1e-9)


def test_effective_rank_of_equal_rows_is_zero():
    assert effective_rank(np.ones((5, 8)) + 1e-9 * gaussian(5, 8)) == 0


def test_retrieval_equals_a_loop_over_ranks_of_both_directions():
    first, second = gaussian(9, 4), gaussian(9, 4, seed=1)
    second += first  # some find their counterpart first, some do not
    reciprocal = []
    for one, other in ((first, second), (second, first)):
        for row in range(9):
            cosine = [one[row] @ vector / np.linalg.norm(vector) for vector in other]
            reciprocal.append(1 / (1 + sum(value > cosine[row] for value in cosine)))
    assert 20 < retrieval(first, second) < 90
    assert retrieval(first, second) == pytest.approx(100 * np.mean(reciprocal), abs=1e-9)


def test_retrieval_is_a_hundred_where_parts_agree_and_chance_where_all_are_alike():
    assert retrieval(gaussian(50, 8), 3 * gaussian(50, 8)) == 100
    assert retrieval(np.ones((49, 8)), np.ones((49, 8))) == pytest.approx(100 / 25)  # rank 25 of 49


@pytest.mark.parametrize(
    ("sentence", "parts"),
    [
        ("the cat sat on  the mat", ("the cat sat", "on the mat")),
        ("a cat sat", ("a", "cat sat")),
        ("word", ("wo", "rd")),  # as languages that do not separate words
        ("a", ("", "a")),
    ],
)
def test_halves_share_no_word(sentence, parts):
    assert halves(sentence) == parts


def test_diagnose_passes_what_is_spread_and_flags_what_has_collapsed():
    healthy = diagnose(jnp.asarray(gaussian(300, 16)))
    assert not healthy["collapsed"]
    assert not {"alignment", "retrieval"} & set(healthy)
    assert diagnose(np.ones((300, 16)) + 1e-3 * gaussian(300, 16))["collapsed"]  # one direction
    line = gaussian(300, 1) * np.eye(16)[:1]
    assert diagnose(line)["collapsed"]  # well spread, but two points on one line
    assert diagnose(line)["spread"] > 0.2


def test_diagnose_looks_at_the_same_evenly_spaced_rows_of_sentences_and_parts():
    vectors = gaussian(MAX_ROWS * 3, 4)
    chosen = np.linspace(0, len(vectors) - 1, MAX_ROWS).astype(int)
    second = gaussian(MAX_ROWS * 3, 4, seed=1)
    second[chosen] = 2 * vectors[chosen]
    found = diagnose(vectors, (vectors, second))
    assert found["alignment"] == pytest.approx(0, abs=1e-12)
    assert found["retrieval"] == 100
    assert found["mean_cosine"] == pytest.approx(mean_cosine(vectors[chosen]), abs=1e-12)


def test_what_is_not_finite_or_too_few_is_refused():
    vectors = gaussian(6, 4)
    vectors[2, 1] = np.nan
    with pytest.raises(NumericsError, match="1 of 6 embeddings"):
        diagnose(vectors)
    with pytest.raises(ConfigError, match="at least two"):
        diagnose(vectors[:1])
