"""GRU and LSTM against torch on packed sequences: states, last states and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb.models.rnn import GATES, init_rnn, run_rnn

LENGTHS, WIDTH, INPUTS, HIDDEN = (7, 1, 4), 7, 5, 6


@pytest.fixture(scope="module", params=["gru", "lstm"])
def made(request):
    random = np.random.default_rng(0)
    params = jax.device_get(init_rnn(jax.random.key(0), request.param, INPUTS, HIDDEN, gate_bias=1.0))
    params = jax.tree.map(lambda leaf: leaf + random.normal(0, 0.1, leaf.shape).astype(np.float32), params)
    vectors = random.normal(size=(len(LENGTHS), WIDTH, INPUTS)).astype(np.float32)
    return request.param, params, vectors, np.arange(WIDTH) < np.array(LENGTHS)[:, None]


def test_states_and_gradients_are_torchs_on_packed_sequences(made):
    torch = pytest.importorskip("torch")
    kind, params, vectors, mask = made
    module = {"gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[kind](INPUTS, HIDDEN, batch_first=True, bidirectional=True)
    for direction, ending in (("forward", ""), ("backward", "_reverse")):
        for name, torch_name in (("input", "ih"), ("recurrent", "hh")):
            part = params[direction][name]
            getattr(module, f"weight_{torch_name}_l0{ending}").data = torch.tensor(part["kernel"].T)
            getattr(module, f"bias_{torch_name}_l0{ending}").data = torch.tensor(part["bias"])
    packed = torch.nn.utils.rnn.pack_padded_sequence(torch.tensor(vectors), LENGTHS, batch_first=True, enforce_sorted=False)
    states, last = module(packed)
    states = torch.nn.utils.rnn.pad_packed_sequence(states, batch_first=True)[0]
    last = (last[0] if kind == "lstm" else last).transpose(0, 1).reshape(len(LENGTHS), -1)
    ours = run_rnn(kind, params, vectors, mask)
    np.testing.assert_allclose(ours.states, states.detach().numpy(), atol=2e-6)
    np.testing.assert_allclose(ours.last, last.detach().numpy(), atol=2e-6)
    weights = np.random.default_rng(1).normal(size=(2 * HIDDEN,)).astype(np.float32)
    ((states.square() * torch.tensor(weights)).sum() + last.sum()).backward()

    def loss(params):
        found = run_rnn(kind, params, vectors, mask)
        return (jnp.square(found.states) * weights).sum() + found.last.sum()

    gradients = jax.jit(jax.grad(loss))(params)
    for direction, ending in (("forward", ""), ("backward", "_reverse")):
        for name, torch_name in (("input", "ih"), ("recurrent", "hh")):
            theirs = getattr(module, f"weight_{torch_name}_l0{ending}").grad.numpy().T
            np.testing.assert_allclose(gradients[direction][name]["kernel"], theirs, atol=1e-4)
            theirs = getattr(module, f"bias_{torch_name}_l0{ending}").grad.numpy()
            np.testing.assert_allclose(gradients[direction][name]["bias"], theirs, atol=1e-4)


def test_padding_changes_nothing(made):
    kind, params, vectors, mask = made
    wide = np.pad(vectors, ((0, 0), (0, 3), (0, 0)), constant_values=9.0), np.pad(mask, ((0, 0), (0, 3)))
    for one, other in zip(run_rnn(kind, params, vectors, mask), run_rnn(kind, params, *wide), strict=True):
        np.testing.assert_allclose(one, other[:, :WIDTH] if other.ndim == 3 else other, atol=1e-6)


@pytest.mark.parametrize("kind", GATES)
def test_gates_start_open_and_the_rest_at_zero(kind):
    params = init_rnn(jax.random.key(0), kind, 4, 3, gate_bias=1.0)
    expected = [1, 1, 0] if kind == "gru" else [1, 1, 0, 1]
    assert params["forward"]["input"]["bias"].reshape(-1, 3)[:, 0].tolist() == expected
    assert not np.any(params["backward"]["recurrent"]["bias"])
    he = init_rnn(jax.random.key(0), kind, 50, 40, gate_bias=0.0)["forward"]["input"]["kernel"]
    assert np.std(he) == pytest.approx((2 / 50) ** 0.5, rel=0.1)
    for leaf in jax.tree.leaves(init_rnn(jax.random.key(0), kind, 50, 40)):  # torch's
        assert 0.9 * 40**-0.5 < np.abs(leaf).max() <= 40**-0.5
