"""The convolution: torch's Conv1d with shared padding, blind to masked positions unless asked otherwise, refusals, its start."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb.errors import ConfigError
from jax_sentemb.models.cnn import Convolution

INPUTS, FILTERS, WIDTH = 16, 3, 5  # narrower than the widest window reaches
MASK = np.arange(WIDTH) < np.array([[5], [3]])


def states_of(seed=0):
    return np.random.default_rng(seed).normal(size=(2, WIDTH, INPUTS)).astype(np.float32)


def made(windows=(1, 3, 5), **options):
    convolution = Convolution(windows, FILTERS, **options)
    return convolution, jax.device_get(convolution.init(jax.random.key(0), INPUTS))


def torch_features(windows, params, states):
    torch = pytest.importorskip("torch")
    features = []
    for window in windows:
        module = torch.nn.Conv1d(INPUTS, FILTERS, window, padding=(window - 1) // 2)
        with torch.no_grad():
            module.weight.copy_(torch.tensor(params[f"window_{window}"]["kernel"].transpose(2, 1, 0)))
            module.bias.copy_(torch.tensor(params[f"window_{window}"]["bias"]))
            features.append(module(torch.tensor(states).mT).mT.numpy())
    return np.concatenate(features, axis=-1)


@pytest.mark.parametrize("windows", [(1, 3, 5), (3, 5, 7)])
@pytest.mark.parametrize("relu", [False, True])
def test_it_is_torchs_conv1d_concatenated(windows, relu):
    convolution, params = made(windows, relu=relu)
    features = convolution.apply(params, states_of(), np.ones((2, WIDTH), bool))
    expected = torch_features(windows, params, states_of())
    assert features.shape == (2, WIDTH, convolution.width)
    assert (expected < 0).any()  # so that the activation has something to do
    np.testing.assert_allclose(features, np.maximum(expected, 0) if relu else expected, atol=1e-5)


def test_masked_positions_are_zero_to_it_and_to_the_reference_what_they_are():
    states = states_of()
    convolution, params = made()
    expected = torch_features((1, 3, 5), params, states * MASK[..., None])
    np.testing.assert_allclose(convolution.apply(params, states, MASK), expected, atol=1e-5)
    reference, _ = made(reference=True)
    np.testing.assert_allclose(reference.apply(params, states, MASK), torch_features((1, 3, 5), params, states), atol=1e-5)


def test_what_stands_at_masked_positions_matters_to_the_reference_alone():
    other = np.where(MASK[..., None], states_of(0), states_of(1))
    for reference in (False, True):
        convolution, params = made(reference=reference)
        one, two = (np.asarray(convolution.apply(params, states, MASK)) for states in (states_of(), other))
        assert (one[MASK] != two[MASK]).any() == reference
        np.testing.assert_array_equal(one[0], two[0])  # a row without padding


def test_more_padding_matters_to_the_reference_alone():
    states = np.concatenate([states_of(), states_of(1)], axis=1)
    mask = np.pad(MASK, ((0, 0), (0, WIDTH)))
    for reference in (False, True):
        convolution, params = made(reference=reference)
        narrow = convolution.apply(params, states[:, :WIDTH], MASK)
        wide = convolution.apply(params, states, mask)[:, :WIDTH]
        difference = np.abs(wide - narrow)[MASK].max()
        assert difference > 0.1 if reference else difference < 1e-6


def test_masked_states_get_no_gradient():
    convolution, params = made()
    weights = np.random.default_rng(2).normal(size=(2, WIDTH, convolution.width))
    gradient = jax.jit(jax.grad(lambda states: (convolution.apply(params, states, MASK) * weights).sum()))(states_of())
    assert not np.asarray(gradient)[~MASK].any()
    assert (np.asarray(gradient)[MASK] != 0).all()


def test_lower_precision_is_for_the_products_alone():
    convolution, params = made()
    exact = convolution.apply(params, states_of(), MASK)
    rough = convolution.apply(params, states_of(), MASK, jnp.bfloat16)
    assert exact.dtype == rough.dtype == jnp.float32
    assert 1e-4 < np.abs(exact - rough).max() < 3e-2


@pytest.mark.parametrize("windows", [(), (2,), (1, 4), (3, 3), (0,), (0, 1), (-1,)])
def test_windows_that_cannot_be_are_refused_in_one_line(windows):
    with pytest.raises(ConfigError, match=r"method\.convolution\.windows=.* must be (different odd numbers|at least 1)") as caught:
        Convolution(windows).check()
    assert "\n" not in str(caught.value)


def test_filters_that_cannot_be_are_refused_and_what_fits_is_not():
    with pytest.raises(ConfigError, match=r"method\.convolution\.filters=0"):
        Convolution(filters=0).check()
    Convolution().check()
    Convolution((7, 3), 1).check()
    assert Convolution().width == 768


def test_it_starts_as_torch_does():
    convolution = Convolution((1, 3, 5), 400)
    params = convolution.init(jax.random.key(1), INPUTS)
    assert list(params) == ["window_1", "window_3", "window_5"]
    for window in (1, 3, 5):
        kernel, bias = (np.asarray(params[f"window_{window}"][name]) for name in ("kernel", "bias"))
        assert (kernel.shape, bias.shape) == ((window, INPUTS, 400), (400,))
        bound = (window * INPUTS) ** -0.5
        for values in (kernel, bias):
            assert -bound <= values.min() < -0.98 * bound
            assert 0.98 * bound < values.max() <= bound
            assert abs(values.mean()) < 0.15 * bound  # five standard errors of the 400 biases
    # Different draws: no window is a scaled copy of another one, no bias of its kernel.
    draws = [np.ravel(leaf)[:400] for leaf in jax.tree.leaves(params)]
    assert np.abs(np.corrcoef(draws) - np.eye(6)).max() < 0.25
