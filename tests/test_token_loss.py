"""The cross entropy over a vocabulary in blocks against its plain form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb.models import token_loss as module
from jax_sentemb.models.token_loss import token_loss


def plain(states, words, bias, targets):
    logits = jnp.matmul(states, words.T, precision="highest") + bias
    taken = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[:, None], axis=1)[:, 0]
    return -taken, logits.argmax(1) == targets


@pytest.mark.parametrize(("count", "vocab"), [(7, 50), (30, 64), (5, 33)])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_loss_and_gradients_equal_autodiff(monkeypatch, count, vocab, dtype):
    monkeypatch.setattr(module, "BLOCK", 16)  # whole blocks, and a last one that is not
    random = np.random.default_rng(0)
    states, words, bias = (jnp.array(random.normal(size=shape), jnp.float32) for shape in ((count, 12), (vocab, 12), (vocab,)))
    targets, weights = jnp.array(random.integers(0, vocab, count)), jnp.array(random.normal(size=count), jnp.float32)
    targets = targets.at[0].set(vocab - 1).at[1].set(16)

    def value(function, *inputs):
        loss, right = function(*inputs)
        return (weights * loss).sum(), (loss, right)

    gradient = jax.jit(jax.value_and_grad(value, (1, 2, 3), has_aux=True), static_argnums=0)
    (_, ours), to_inputs = gradient(lambda *inputs: token_loss(*inputs, targets, dtype), states, words, bias)
    (_, expected), wanted = gradient(lambda *inputs: plain(*inputs, targets), states, words, bias)
    tolerance = 2e-5 if dtype == jnp.float32 else 6e-2
    np.testing.assert_allclose(ours[0], expected[0], atol=tolerance)
    if dtype == jnp.float32:
        np.testing.assert_array_equal(ours[1], expected[1])
    for got, right in zip(to_inputs, wanted, strict=True):
        assert got.dtype == jnp.float32
        np.testing.assert_allclose(got, right, atol=tolerance)


def test_large_logits_stay_finite(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 2)
    bias, targets = jnp.array([0.0, 1.0, 500.0, -500.0, 3.0]), jnp.array([2, 3])

    def total(bias):
        loss, right = token_loss(jnp.zeros((2, 3)), jnp.ones((5, 3)), bias, targets, jnp.float32)
        return loss.sum(), right

    (value, right), gradient = jax.value_and_grad(total, has_aux=True)(bias)
    assert float(value) == pytest.approx(1000.0)
    assert right.tolist() == [True, False]
    np.testing.assert_allclose(gradient, [0, 0, 1, -1, 0], atol=1e-6)
