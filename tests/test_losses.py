"""Losses against independent NumPy versions, hand-checked values, finite differences, and their edges."""

import doctest
import importlib

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

torch = pytest.importorskip("torch")
info_nce = jax.jit(losses.info_nce, static_argnums=2)


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
        loss, _ = losses.info_nce_without_negatives(jnp.array(first), jnp.array(second), 0.05)
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


def test_unit_of_zero_is_zero_with_zero_gradient():
    value, gradient = jax.value_and_grad(lambda x: l2_normalize(x).sum())(jnp.zeros(3))
    assert value == 0
    assert not gradient.any()


QUEUE = jnp.array(np.random.default_rng(4).normal(size=(7, 5)), jnp.float32)
IN_PARTS = {
    "info_nce": lambda first, second: losses.info_nce(first, second, 0.1),
    "info_nce with a queue": lambda first, second: losses.info_nce(first, second, 0.1, QUEUE, jnp.arange(7) < 4),
    "rank consistency": lambda first, second: (losses.rank_consistency(first, second, 0.1), 0.0),
    "cross view": lambda first, second: (losses.cross_view(first, second, QUEUE, jnp.arange(7) < 4, (0.1, 0.2)), 0.0),
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
    monkeypatch.setattr(losses.arrays, "PAIRS", 48)  # three rows at a time, or one
    (parts, same), others, program = found()
    assert "scan" in program
    assert float(parts) == pytest.approx(float(whole), rel=1e-6)
    assert float(same) == pytest.approx(float(other), rel=1e-6)
    for one, two in zip(gradients, others, strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-5, atol=1e-6)


def torch_shares(vectors, candidates, temperature, excluded):
    products = torch.nn.functional.normalize(vectors, dim=1) @ torch.nn.functional.normalize(candidates, dim=1).T
    return torch.log_softmax((products / temperature).masked_fill(excluded, -torch.inf), dim=1)


def torch_divergence(log_p, log_q):
    shares = log_p.exp()
    return torch.where(shares > 0, shares * (log_p - log_q), 0.0).nansum(1)


def test_rank_consistency_and_its_gradients_are_those_of_torch():
    views = [np.random.default_rng(number).normal(size=(6, 5)).astype(np.float32) for number in (0, 1)]
    found, gradients = jax.value_and_grad(lambda *views: losses.rank_consistency(*views, 0.3), (0, 1))(*map(jnp.array, views))
    first, second = leaves = [torch.tensor(view, requires_grad=True) for view in views]
    others = ~torch.eye(6, dtype=bool)  # without itself, so that no share is 0

    def shares(view):
        cosines = torch.nn.functional.cosine_similarity(view[:, None], view[None], dim=2)
        return torch.log_softmax(cosines[others].reshape(6, 5) / 0.3, dim=1)

    log_p, log_q = shares(first), shares(second)
    mean = (log_p.exp() + log_q.exp()) / 2
    loss = sum((log.exp() * (log - mean.log())).sum(1) for log in (log_p, log_q)).mean() / 2
    loss.backward()
    assert float(found) == pytest.approx(loss.item(), rel=1e-5)
    for gradient, leaf in zip(gradients, leaves, strict=True):
        np.testing.assert_allclose(gradient, leaf.grad, rtol=1e-4, atol=1e-7)


def test_equal_lists_are_consistent_and_opposite_ones_differ_by_at_most_ln_2():
    view = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    assert float(losses.rank_consistency(view, 3 * view, 0.05)) == pytest.approx(0.0, abs=1e-6)
    first = jnp.array([[1.0, 0], [1, 0.01], [0, 1]])
    second = jnp.array([[1.0, 0], [0, 1], [1, 0.01]])
    apart = float(losses.rank_consistency(first, second, 1e-3))
    assert 0.6 * np.log(2) < apart <= np.log(2)


@pytest.mark.parametrize("filled", [0, 3, 7])
def test_cross_view_and_its_gradient_are_those_of_torch(filled):
    predicted, reference = (np.random.default_rng(number).normal(size=(4, 5)).astype(np.float32) for number in (0, 1))

    def loss(predicted, reference, queue):
        return losses.cross_view(predicted, reference, queue, jnp.arange(7) < filled, (0.1, 0.3))

    found, gradients = jax.value_and_grad(loss, (0, 1, 2))(jnp.array(predicted), jnp.array(reference), QUEUE)
    leaf, fixed = torch.tensor(predicted, requires_grad=True), torch.tensor(reference)
    candidates = torch.cat([fixed, torch.tensor(np.array(QUEUE))[:filled]])
    none = torch.zeros(4, 4 + filled, dtype=bool)
    expected = torch_divergence(torch_shares(fixed, candidates, 0.1, none), torch_shares(leaf, candidates, 0.3, none)).mean()
    expected.backward()
    assert float(found) == pytest.approx(expected.item(), rel=1e-5)
    np.testing.assert_allclose(gradients[0], leaf.grad, rtol=1e-4, atol=1e-6)
    assert not np.any(gradients[1])
    assert not np.any(gradients[2])


@pytest.mark.parametrize(
    ("module", "functions"), [("contrastive", 7), ("context", 5), ("information", 3), ("words", 3), ("similarities", 4)]
)
def test_examples_of_docstrings_are_right(module, functions):
    module = importlib.import_module(f"jax_sentemb.losses.{module}")
    examples = [test for test in doctest.DocTestFinder().find(module) if test.examples]
    assert len(examples) == functions
    for test in examples:
        result = doctest.DocTestRunner().run(test)
        assert result.failed == 0, test.name
