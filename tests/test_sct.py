"""SCT: loss and gradients against torch, the predictors, the queues, and two ways to make the second view."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb.errors import ConfigError
from jax_sentemb.methods.matryoshka import in_prefixes
from jax_sentemb.methods.sct import SCT
from jax_sentemb.methods.views import TwoViews
from jax_sentemb.models.bert import Bert
from jax_sentemb.types import Batch, TrainState
from tests.tiny_models import bert_config

torch = pytest.importorskip("torch")
ENCODER = Bert(
    bert_config(vocab_size=20, hidden_size=8, intermediate_size=16, max_position_embeddings=6, initializer_range=0.02),
    jnp.float32,
    0.2,
)
METHOD = SCT(queue_size=6, reference_temperature=0.2, temperature=0.3)


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def started(method=METHOD):
    encoder = jax.jit(ENCODER.init)(jax.random.key(0), Batch(np.ones((1, 3), np.int32), np.ones((1, 3), bool)).rows)["params"]
    return method.init(ENCODER, {"encoder": encoder}, jax.random.key(1))


def state_of(params, queue, step):
    return TrainState(params, None, jnp.array(queue), None, None, jnp.int32(step))


def torch_loss(method, views, layers, queues, filled):
    """The loss by formulas of torch; `layers` are (inner kernel, inner bias, outer kernel, outer bias) of each MLP."""
    unit = torch.nn.functional.normalize

    def predict(view):
        values, outputs = view, []
        for kernel, bias, outer, outer_bias in layers:
            outputs.append(torch.relu(values @ kernel + bias) @ outer + outer_bias)
            values = outputs[-1] if method.predictor == "chain" else view
        return outputs[-1] if method.predictor == "chain" else sum(outputs) / 3

    def direction(view, reference, queue):
        reference = reference.detach()
        candidates = torch.cat([unit(reference, dim=1), unit(queue[:filled], dim=1)])
        shares = torch.softmax(unit(reference, dim=1) @ candidates.T / method.reference_temperature, dim=1)
        logs = torch.log_softmax(unit(predict(view), dim=1) @ candidates.T / method.temperature, dim=1)
        return torch.nn.functional.kl_div(logs, shares, reduction="batchmean")

    return direction(views[1], views[0], queues[0]) + direction(views[0], views[1], queues[1])


def some_mlps():
    return {
        f"mlp_{number}": {
            "inner": {"kernel": normal(10 + number, 8, 80) / 3, "bias": normal(20 + number, 80)},
            "outer": {"kernel": normal(30 + number, 80, 8) / 9, "bias": normal(40 + number, 8)},
        }
        for number in range(3)
    }


def torch_layers(mlps, requires_grad=False):
    """(inner kernel, inner bias, outer kernel, outer bias) of each MLP."""
    return [
        [torch.tensor(mlp[part][name], requires_grad=requires_grad) for part in ("inner", "outer") for name in ("kernel", "bias")]
        for mlp in mlps.values()
    ]


@pytest.mark.parametrize("predictor", ["average", "chain"])
@pytest.mark.parametrize(("step", "filled"), [(0, 0), (1, 4), (5, 6)])
def test_loss_and_gradients_are_those_of_torch(predictor, step, filled):
    method = SCT(queue_size=6, reference_temperature=0.2, temperature=0.3, predictor=predictor)
    views, queue, mlps = [normal(0, 4, 8), normal(1, 4, 8)], normal(2, 12, 8), some_mlps()

    def loss(first, second, mlps):
        params = {"predictor": mlps}
        return method.objective(params, state_of(params, queue, step), TwoViews(first, second, jnp.ones(4)))[0]

    found, gradients = jax.value_and_grad(loss, (0, 1, 2))(*map(jnp.array, views), mlps)
    leaves = [torch.tensor(view, requires_grad=True) for view in views]
    layers = torch_layers(mlps, requires_grad=True)
    expected = torch_loss(method, leaves, layers, torch.tensor(queue).split(6), filled)
    expected.backward()
    assert float(found) == pytest.approx(expected.item(), rel=1e-5)
    for gradient, leaf in zip(gradients[:2], leaves, strict=True):
        np.testing.assert_allclose(gradient, leaf.grad, rtol=1e-3, atol=1e-6)
    for mlp, tensors in zip(gradients[2].values(), layers, strict=True):
        ours = [mlp[part][name] for part in ("inner", "outer") for name in ("kernel", "bias")]
        for gradient, tensor in zip(ours, tensors, strict=True):
            np.testing.assert_allclose(gradient, tensor.grad, rtol=1e-3, atol=1e-6)


def test_the_newest_references_stand_first_in_the_queue_of_their_view():
    state = state_of({}, jnp.zeros((12, 2)), 0)
    for number in range(2):
        carry = (jnp.array([[2.0, 0.0]] * 4), jnp.array([[0.0, number + 1.0]] * 4))
        state = METHOD.post_update(state, carry)
        assert state.queue.shape == (12, 2)
    np.testing.assert_array_equal(state.queue[:6], [[1.0, 0.0]] * 6)  # of length 1
    np.testing.assert_array_equal(state.queue[6:], [[0.0, 1.0]] * 6)
    state = METHOD.post_update(state, (jnp.array([[0.0, 3.0]]), jnp.array([[-5.0, 0.0]])))
    assert state.queue[0].tolist() == [0.0, 1.0]
    assert state.queue[1].tolist() == [1.0, 0.0]
    assert state.queue[6].tolist() == [-1.0, 0.0]


def test_equal_views_that_predict_themselves_have_no_loss_at_equal_temperatures():
    method = SCT(queue_size=6, reference_temperature=0.3, temperature=0.3)
    view, wide = jnp.array(normal(0, 4, 8)), np.zeros((8, 80), np.float32)
    wide[:, :8], wide[:, 8:16] = np.eye(8), -np.eye(8)  # relu(x) - relu(-x) = x
    outer = np.zeros((80, 8), np.float32)
    outer[:8], outer[8:16] = np.eye(8), -np.eye(8)
    mlp = {"inner": {"kernel": wide, "bias": np.zeros(80)}, "outer": {"kernel": outer, "bias": np.zeros(8)}}
    params = {"predictor": dict.fromkeys(("mlp_0", "mlp_1", "mlp_2"), mlp)}
    loss, _ = method.objective(params, state_of(params, normal(1, 12, 8), 9), TwoViews(view, view, jnp.ones(4)))
    assert float(loss) == pytest.approx(0.0, abs=1e-6)


def test_the_views_differ_in_dropout_and_the_predictor_is_new():
    learned = started()
    assert learned.queue.shape == (12, 8)
    assert learned.params["predictor"]["mlp_2"]["inner"]["kernel"].shape == (8, 80)
    batch = Batch(np.full((3, 5), 7, np.int32), np.ones((3, 5), bool))
    state = state_of(learned.params, learned.queue, 0)
    encoded = METHOD.encode(ENCODER, learned.params, state, batch, jnp.arange(3, dtype=jnp.uint32))
    assert (np.abs(encoded.first - encoded.second).max(axis=1) > 1e-3).all()


@pytest.mark.parametrize("predictor", ["average", "chain"])
def test_a_prefix_has_the_loss_of_short_views_queues_and_predictions(predictor):
    whole = SCT(queue_size=6, reference_temperature=0.2, temperature=0.3, predictor=predictor)
    views, queue, params = [normal(0, 4, 8), normal(1, 4, 8)], normal(2, 12, 8), {"predictor": some_mlps()}
    method, encoded = in_prefixes(whole, (3,), 8), TwoViews(*map(jnp.array, views), jnp.ones(4))
    _, (metrics, carry) = method.objective(params, state_of(params, queue, 9), encoded)
    for name, width in (("cross_view", 8), ("loss_3", 3)):
        first, second, queued = (torch.tensor(vectors[:, :width]) for vectors in (*views, queue))
        layers = [
            (kernel[:width], bias, outer[:, :width], outer_bias[:width])
            for kernel, bias, outer, outer_bias in torch_layers(params["predictor"])
        ]
        expected = torch_loss(whole, (first, second), layers, queued.split(6), 6)
        assert float(metrics[name]) == pytest.approx(expected.item(), rel=1e-5), name
    np.testing.assert_array_equal(carry[0], views[0])


@pytest.mark.parametrize("settings", [{"queue_size": 0}, {"temperature": 0.0}, {"predictor": "none"}, {"repetition": 1.5}])
def test_settings_outside_their_limits_are_one_line(settings):
    with pytest.raises(ConfigError, match=rf"method\.{next(iter(settings))}="):
        SCT(**settings).check(ENCODER, 4)
