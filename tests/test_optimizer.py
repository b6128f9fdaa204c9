"""Optimisers and schedules of the papers against loops in NumPy."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jax_sentemb.config import Config, Data, Optimizer, check
from jax_sentemb.errors import ConfigError
from jax_sentemb.methods.simcse import SimCSE
from jax_sentemb.training.optimizer import make_optimizer, make_schedule, warmup_notes

STEPS = 6


def run(options):
    """Parameters after every step on fixed gradients; "kernel" decays, "bias" does not."""
    random = np.random.default_rng(0)
    gradients = [{"kernel": random.normal(size=(2, 3)), "bias": random.normal(size=3)} for _ in range(STEPS)]
    params = {"kernel": random.normal(size=(2, 3)), "bias": random.normal(size=3)}
    optimizer = make_optimizer(options, STEPS)
    ours, state, path = {name: jnp.array(value, jnp.float32) for name, value in params.items()}, None, []
    state = optimizer.init(ours)
    for gradient in gradients:
        updates, state = optimizer.update({name: jnp.array(value, jnp.float32) for name, value in gradient.items()}, state, ours)
        ours = optax.apply_updates(ours, updates)
        path.append(ours)
    return params, gradients, path


def test_rmsprop_is_tensorflows_epsilon_outside_the_root():
    options = Optimizer(name="rmsprop", learning_rate=0.1, lr_scheduler_type="constant", adam_epsilon=0.3, max_grad_norm=0.0)
    params, gradients, path = run(options)
    for name, value in params.items():
        square = 0.0
        for step, gradient in enumerate(gradients):
            square = 0.9 * square + 0.1 * gradient[name] ** 2
            value = value - 0.1 * gradient[name] / (np.sqrt(square) + 0.3)
            np.testing.assert_allclose(path[step][name], value, atol=1e-5)


def test_adam_without_bias_correction_and_with_decoupled_decay_of_kernels():
    options = Optimizer(
        learning_rate=0.1, lr_scheduler_type="constant", adam_bias_correction=False, weight_decay=0.5, adam_epsilon=0.2,
        max_grad_norm=0.0,
    )  # fmt: skip
    params, gradients, path = run(options)
    for name, value in params.items():
        mean, square = 0.0, 0.0
        for step, gradient in enumerate(gradients):
            mean = 0.9 * mean + 0.1 * gradient[name]
            square = 0.999 * square + 0.001 * gradient[name] ** 2
            decay = 0.5 * value if name == "kernel" else 0.0
            value = value - 0.1 * (mean / (np.sqrt(square) + 0.2) + decay)
            np.testing.assert_allclose(path[step][name], value, atol=1e-5)


def test_a_linear_rate_warms_up_and_ends_at_zero_and_others_have_their_shape():
    linear = make_schedule(Optimizer(learning_rate=1e-2, warmup_steps=2), 10)
    assert [float(linear(step)) for step in (0, 1, 2, 6, 10)] == pytest.approx([0, 5e-3, 1e-2, 5e-3, 0])
    constant = make_schedule(Optimizer(learning_rate=0.1, lr_scheduler_type="constant"), 10)
    assert float(constant(9)) == pytest.approx(0.1)
    cosine = make_schedule(Optimizer(learning_rate=0.1, lr_scheduler_type="cosine"), 10)
    assert [float(cosine(step)) for step in (0, 5, 10)] == pytest.approx([0.1, 0.05, 0.0])


def test_a_rate_that_falls_in_steps():
    options = Optimizer(learning_rate=1e-5, lr_scheduler_type="steps", lr_steps="500:8e-6,1000:6e-6", warmup_steps=100)
    rate = make_schedule(options, 5000)
    assert [float(rate(step)) for step in (0, 50, 100, 499, 500, 999, 1000, 4999)] == pytest.approx(
        [0, 5e-6, 1e-5, 1e-5, 8e-6, 8e-6, 6e-6, 6e-6]
    )


def test_a_share_of_all_steps_warms_up():
    rate = make_schedule(Optimizer(learning_rate=1.0, warmup_ratio=0.1), 200)
    assert [float(rate(step)) for step in (10, 20, 110, 200)] == pytest.approx([0.5, 1.0, 0.5, 0.0])
    assert warmup_notes(Optimizer(warmup_steps=10), 11) == warmup_notes(Optimizer(warmup_ratio=0.5), 2) == []
    assert warmup_notes(Optimizer(warmup_steps=10), 0) == []
    (note,) = warmup_notes(Optimizer(learning_rate=0.5, warmup_steps=10), 10)
    assert note == (
        "--config.optimizer.warmup_steps=10: the run has 10 steps, so --config.optimizer.learning_rate=0.5 is not reached; "
        "lower the warm-up"
    )
    explicit = make_schedule(Optimizer(learning_rate=1.0, warmup_ratio=0.1, warmup_steps=10), 200)
    assert float(explicit(10)) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"lr_scheduler_type": "steps"}, "do not fit"),
        ({"lr_steps": "5:1e-3"}, "do not fit"),
        ({"lr_scheduler_type": "steps", "lr_steps": "5"}, "write rising"),
        ({"lr_scheduler_type": "steps", "lr_steps": "9:1e-3,5:1e-4"}, "write rising"),
        ({"lr_scheduler_type": "steps", "lr_steps": "5:fast"}, "write rising"),
        ({"name": "adam"}, "not one of adamw, rmsprop, sgd"),
        ({"warmup_ratio": 1.0}, "at least 0 and below 1"),
    ],
)
def test_settings_that_do_not_fit_are_one_line(options, says):
    with pytest.raises(ConfigError, match=says) as caught:
        check(Config(method=SimCSE(), data=Data(files="corpus.txt"), optimizer=Optimizer(**options)))
    assert "\n" not in str(caught.value)


def test_an_exponential_rate_falls_once_an_epoch_and_stays_between():
    options = Optimizer(learning_rate=0.1, lr_scheduler_type="exponential", lr_decay=0.9)
    rate = make_schedule(options, 30, 10)
    assert [float(rate(step)) for step in (0, 5, 9, 10, 19, 20)] == pytest.approx([0.1, 0.1, 0.1, 0.09, 0.09, 0.081])


def test_gradients_are_clipped_by_their_global_norm():
    optimizer = make_optimizer(Optimizer(name="sgd", learning_rate=1.0, lr_scheduler_type="constant", max_grad_norm=1.0), STEPS)
    params = {"kernel": jnp.zeros((1, 2)), "bias": jnp.zeros(1)}
    gradients = {"kernel": jnp.array([[3.0, 0.0]]), "bias": jnp.array([4.0])}
    updates, _ = optimizer.update(gradients, optimizer.init(params), params)
    assert updates["kernel"][0].tolist() == pytest.approx([-0.6, 0.0])
    assert updates["bias"].tolist() == pytest.approx([-0.8])
