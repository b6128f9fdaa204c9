"""Losses against independent NumPy versions, hand-checked values, finite differences, and their edges."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb import losses
from jax_sentemb.losses import (
    alignment,
    context_loss,
    correlation,
    gaussian_mutual_information,
    l2_normalize,
    neighbour_loss,
    nt_xent,
    symmetric_info_nce,
    token_sentence_jsd,
)

info_nce = jax.jit(losses.info_nce, static_argnums=2, static_argnames="negatives")


def vectors_with_cosines(cosines):
    """first [B, E] and second [M, E] whose cosines are the given [B, M]: a basis for second, coordinates for first."""
    cosines = np.asarray(cosines, np.float64)
    rows, columns = cosines.shape
    rest = np.sqrt(1 - (cosines**2).sum(1))
    first = np.concatenate([cosines, np.diag(rest)], axis=1)
    second = np.concatenate([np.eye(columns), np.zeros((columns, rows))], axis=1)
    return first, second


def numpy_info_nce(first, second, temperature, queue=None):
    first, second = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (first, second))
    total = 0.0
    for i in range(len(first)):
        logits = [first[i] @ other / temperature for other in second]
        if queue is not None:
            logits += [first[i] @ row / np.linalg.norm(row) / temperature for row in queue]
        total += np.log(np.sum(np.exp(np.array(logits) - logits[i])))
    return total / len(first)


def finite_difference(function, at, direction, step=1e-4):
    return float((function(at + step * direction) - function(at - step * direction)) / (2 * step))


class TestInfoNCE:
    def test_hand_checked_value_with_queue(self):
        first, others = vectors_with_cosines([[0.9, 0.1, 0.3], [0.2, 0.8, 0.5]])
        loss, _ = info_nce(jnp.array(first), jnp.array(others[:2]), 0.05, jnp.array(others[2:]))
        assert loss == pytest.approx(0.00124404, abs=2e-7)

    @pytest.mark.parametrize(("batch", "width", "queue_rows"), [(2, 3, 0), (5, 7, 0), (5, 7, 11), (1, 4, 3)])
    def test_equals_numpy(self, batch, width, queue_rows):
        random = np.random.default_rng(batch)
        first, second = random.normal(size=(2, batch, width))
        queue = random.normal(size=(queue_rows, width)) if queue_rows else None
        loss, _ = info_nce(jnp.array(first), jnp.array(second), 0.05, None if queue is None else jnp.array(queue))
        assert loss == pytest.approx(numpy_info_nce(first, second, 0.05, queue), rel=2e-5, abs=1e-6)

    def test_unfilled_queue_rows_do_not_count(self):
        random = np.random.default_rng(0)
        first, second, queue = random.normal(size=(4, 6)), random.normal(size=(4, 6)), random.normal(size=(5, 6))
        valid = jnp.arange(5) < 2
        masked, _ = info_nce(first, second, 0.1, queue, valid)
        short, _ = info_nce(first, second, 0.1, queue[:2])
        none, _ = info_nce(first, second, 0.1, queue, jnp.zeros(5, bool))
        assert masked == pytest.approx(float(short), rel=1e-6)
        assert none == pytest.approx(float(info_nce(first, second, 0.1)[0]), rel=1e-6)

    def test_gradient_by_finite_differences_and_none_for_the_queue(self):
        random = np.random.default_rng(1)
        first, second, queue, direction = (jnp.array(random.normal(size=(4, 6)), jnp.float32) for _ in range(4))
        with jax.enable_x64():
            args = [jnp.array(np.asarray(x), jnp.float64) for x in (first, second, queue, direction)]

            def loss(at):
                return info_nce(at, args[1], 0.5, args[2])[0]

            slope = (jax.jit(jax.grad(loss))(args[0]) * args[3]).sum()
            assert slope == pytest.approx(finite_difference(loss, args[0], args[3]), rel=1e-6)
        to_queue = jax.jit(jax.grad(lambda rows: info_nce(first, second, 0.5, rows)[0]))(queue)
        assert not to_queue.any()

    def test_without_negatives_is_the_formula_of_the_code(self):
        random = np.random.default_rng(2)
        first, second = random.normal(size=(2, 5, 6))
        cosines = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(first, second, strict=True)]
        expected = np.mean([np.log(1 + 4 * np.exp(-c / 0.05)) for c in cosines])
        loss, _ = info_nce(jnp.array(first), jnp.array(second), 0.05, negatives=False)
        assert loss == pytest.approx(expected, rel=1e-5)

    def test_accuracy_counts_rows_whose_positive_wins(self):
        first, second = vectors_with_cosines([[0.9, 0.1], [0.7, 0.2]])
        assert info_nce(jnp.array(first), jnp.array(second), 0.05)[1] == 0.5


class TestAttentionMutualInformation:
    def test_hand_checked_value(self):
        one, other = jnp.array([1.0, 2, 3, 4]), jnp.array([1.0, 2, 4, 3])
        rho = correlation(one, other, jnp.ones(4, bool))
        assert rho == pytest.approx(0.8, abs=1e-6)
        assert gaussian_mutual_information(rho) == pytest.approx(0.5108256, abs=1e-6)

    def test_correlation_equals_numpy_where_valid(self):
        random = np.random.default_rng(0)
        first, second = random.normal(size=(2, 6, 40)).astype(np.float32)
        valid = random.random((6, 40)) < 0.7
        got = jax.jit(correlation)(jnp.array(first), jnp.array(second), jnp.array(valid))
        for row in range(6):
            expected = np.corrcoef(first[row][valid[row]], second[row][valid[row]])[0, 1]
            assert got[row] == pytest.approx(expected, abs=1e-5)

    @pytest.mark.parametrize("second", ["same", "constant", "nothing valid"])
    def test_finite_with_finite_gradient_at_the_edges(self, second):
        first = jnp.array([[1.0, 2, 3, 5]])
        valid = jnp.zeros((1, 4), bool) if second == "nothing valid" else jnp.ones((1, 4), bool)
        other = jnp.full((1, 4), 2.0) if second == "constant" else first

        def information(x):
            return gaussian_mutual_information(correlation(x, other, valid)).sum()

        value, gradient = jax.jit(jax.value_and_grad(information))(first)
        assert np.isfinite(value)
        assert np.isfinite(gradient).all()
        assert value == pytest.approx(6.9078 if second == "same" else 0.0, abs=1e-2)

    def test_gradient_by_finite_differences(self):
        random = np.random.default_rng(3)
        with jax.enable_x64():
            first, second, direction = (jnp.array(random.normal(size=12)) for _ in range(3))
            valid = jnp.array(random.random(12) < 0.8)

            @jax.jit
            def information(x):
                return gaussian_mutual_information(correlation(x, second, valid))

            slope = (jax.jit(jax.grad(information))(first) * direction).sum()
            assert slope == pytest.approx(finite_difference(information, first, direction), rel=1e-5)


def test_alignment_is_the_squared_distance_of_unit_vectors():
    first, second = jnp.array([[2.0, 0], [0, 3]]), jnp.array([[0, 5.0], [0, 1]])
    assert alignment(first, second) == pytest.approx(1.0)  # (2 + 0) / 2


def test_unit_of_zero_has_no_nan():
    value, gradient = jax.value_and_grad(lambda x: l2_normalize(x).sum())(jnp.zeros(3))
    assert value == 0
    assert np.isfinite(gradient).all()


QUEUE = jnp.array(np.random.default_rng(4).normal(size=(7, 5)), jnp.float32)
IN_PARTS = {
    "info_nce": lambda first, second: losses.info_nce(first, second, 0.1),
    "info_nce with a queue": lambda first, second: losses.info_nce(first, second, 0.1, QUEUE, jnp.arange(7) < 4),
    "nt_xent": lambda first, second: nt_xent(first, second, 0.1),
    "symmetric": lambda first, second: symmetric_info_nce(first, second, jnp.float32(4.0)),
    "jsd": lambda first, second: token_sentence_jsd(jnp.stack([first, -first], 1), jnp.ones((12, 2)), second)[:2],
    "context": lambda first, second: context_loss(first, second, 2, itself=False),
    "neighbours": lambda first, second: neighbour_loss(first, second, 1, "zero"),
}


@pytest.mark.parametrize("name", IN_PARTS)
def test_a_large_batch_is_compared_in_parts_with_the_same_gradients(monkeypatch, name):
    random = np.random.default_rng(3)
    views = [jnp.array(random.normal(size=(12, 5)), jnp.float32) for _ in range(2)]

    def found():
        together = jax.value_and_grad(lambda *views: IN_PARTS[name](*views), (0, 1), has_aux=True)  # a new function: traced anew
        traced = jax.jit(together).trace(*views)
        return *traced.lower().compile()(*views), str(traced.jaxpr)

    (whole, other), gradients, program = found()
    assert "scan" not in program
    monkeypatch.setattr(losses, "PAIRS", 48)  # three rows at a time, or one
    (parts, same), others, program = found()
    assert "scan" in program
    assert float(parts) == pytest.approx(float(whole), rel=1e-6)
    assert float(same) == pytest.approx(float(other), rel=1e-6)
    for one, two in zip(gradients, others, strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-5, atol=1e-6)
