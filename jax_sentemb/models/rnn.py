"""GRU and LSTM of one layer, in one or both directions, equal to torch's. Padding does not change the states of words."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Key

from jax_sentemb.models.layers import matmul
from jax_sentemb.types import Array, Params

GATES = {"gru": 3, "lstm": 4}  # reset, update, new; input, forget, cell, output: torch's orders
DIRECTIONS = ("forward", "backward")


class Recurrent(NamedTuple):
    """States of a recurrent network."""

    states: Float[Array, "rows tokens width"]  # float32, both directions of each word side by side; 0 at padding
    last: Float[Array, "rows width"]  # float32: the forward state of the last word, the backward state of the first


def init_rnn(
    key: Key[Array, ""],
    kind: str,
    inputs: int,
    hidden: int,
    gate_bias: float | None = None,
    directions: tuple[str, ...] = DIRECTIONS,
) -> Params:
    """Parameters {direction: {"input": kernel [I, G H] and bias, "recurrent": kernel [H, G H] and bias}}.

    With a `gate_bias`, kernels are drawn from He's N(0, 2 / inputs), the input biases of the gates are `gate_bias`, and all other
    biases are 0. Without it everything is drawn from U(-b, b), b = 1 / sqrt(H), as in torch.
    """
    params: Params = {}
    if gate_bias is None:
        shapes = {"input": inputs, "recurrent": hidden}
        for direction in directions:
            params[direction] = {}
            for name, size in shapes.items():
                key, *keys = jax.random.split(key, 3)
                width, bound = GATES[kind] * hidden, hidden**-0.5
                draws = [
                    jax.random.uniform(k, shape, jnp.float32, -bound, bound)
                    for k, shape in zip(keys, ((size, width), (width,)), strict=True)
                ]
                params[direction][name] = dict(zip(("kernel", "bias"), draws, strict=True))
        return params
    candidate = 2  # index of the new state (GRU) or cell input (LSTM), which is not a gate
    gates = jnp.concatenate([jnp.full(hidden, 0.0 if place == candidate else gate_bias) for place in range(GATES[kind])])
    for direction, direction_key in zip(directions, jax.random.split(key, len(directions)), strict=True):
        keys = jax.random.split(direction_key)
        params[direction] = {
            name: {
                "kernel": jax.random.normal(part_key, (size, GATES[kind] * hidden)) * (2.0 / size) ** 0.5,
                "bias": gates if name == "input" else jnp.zeros_like(gates),
            }
            for name, size, part_key in zip(("input", "recurrent"), (inputs, hidden), keys, strict=True)
        }
    return params


def run_rnn(
    kind: str,
    params: Params,
    vectors: Float[Array, "rows tokens inputs"],
    mask: Bool[Array, "rows tokens"],
    dtype: DTypeLike = jnp.float32,
) -> Recurrent:
    """Run the directions that `params` has over `vectors` [R, T, I] with `mask` bool [R, T], right-padded."""
    names = [name for name in DIRECTIONS if name in params]
    outputs = [_direction(kind, params[name], vectors, mask, dtype, name == "backward") for name in names]
    states = jnp.concatenate([states for states, _ in outputs], axis=-1)
    return Recurrent(jnp.where(mask[..., None], states, 0.0), jnp.concatenate([last for _, last in outputs], axis=-1))


def _direction(kind: str, params: Params, vectors: Array, mask: Array, dtype: DTypeLike, backward: bool) -> tuple[Array, Array]:
    # All input products are computed at once: only the recurrent product depends on the previous state.
    inputs = (matmul(vectors, params["input"]["kernel"], dtype) + params["input"]["bias"]).swapaxes(0, 1)
    recurrent = params["recurrent"]
    found: tuple[Array, Array] = _recur(kind, dtype, backward, inputs, recurrent["kernel"], recurrent["bias"], mask.T)
    return found[0].swapaxes(0, 1), found[1]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _recur(
    kind: str, dtype: DTypeLike, backward: bool, inputs: Array, kernel: Array, bias: Array, mask: Array
) -> tuple[Array, Array]:
    """States [T, R, H] and the last one [R, H], from input products [T, R, G H].

    The backward pass is written by hand: it keeps the two factors of each step's gradient of `kernel` and multiplies them for all
    steps at once. Automatic differentiation adds to a whole kernel in each step.
    """
    return _recur_forward(kind, dtype, backward, inputs, kernel, bias, mask)[0]


def _recur_forward(
    kind: str, dtype: DTypeLike, backward: bool, inputs: Array, kernel: Array, bias: Array, mask: Array
) -> tuple[tuple[Array, Array], tuple[Any, ...]]:
    start = jnp.zeros((inputs.shape[1], kernel.shape[0]))

    def step(carry: tuple[Array, ...], now: tuple[Array, Array]) -> tuple[tuple[Array, ...], Any]:
        from_state = matmul(carry[0], kernel, dtype) + bias
        following = _masked_cell(kind, now[0], from_state, carry, now[1])
        return following, (following[0], carry, from_state)

    carry, (states, before, from_state) = lax.scan(step, (start,) * (1 if kind == "gru" else 2), (inputs, mask), reverse=backward)
    return (states, carry[0]), (inputs, kernel, mask, before, from_state)


def _recur_backward(
    kind: str, dtype: DTypeLike, backward: bool, saved: tuple[Any, ...], gradients: tuple[Array, Array]
) -> tuple[Array, Array, Array, None]:
    inputs, kernel, mask, before, from_state = saved
    to_states, to_last = gradients
    transposed = kernel.T

    def step(to_carry: tuple[Array, ...], now: Any) -> tuple[tuple[Array, ...], tuple[Array, Array]]:
        values, real, carry, recurrent, to_state = now
        pull_back: Any = jax.vjp(lambda a, b, c: _masked_cell(kind, a, b, c, real), values, recurrent, carry)[1]
        to_values, to_recurrent, to_before = pull_back((to_carry[0] + to_state, *to_carry[1:]))
        return (to_before[0] + matmul(to_recurrent, transposed, dtype), *to_before[1:]), (to_values, to_recurrent)

    start = (to_last, *(jnp.zeros_like(to_last) for _ in before[1:]))
    each = (inputs, mask, before, from_state, to_states)
    _, (to_inputs, to_recurrent) = lax.scan(step, start, each, reverse=not backward)
    flat = to_recurrent.reshape(-1, to_recurrent.shape[-1])
    _, to_kernel = jax.vjp(lambda kernel: matmul(before[0].reshape(-1, kernel.shape[0]), kernel, dtype), kernel)
    return to_inputs, to_kernel(flat)[0], flat.sum(0), None


_recur.defvjp(_recur_forward, _recur_backward)


def _masked_cell(kind: str, values: Array, from_state: Array, carry: tuple[Array, ...], real: Array) -> tuple[Array, ...]:
    # Padding keeps the state as it is, so the backward direction starts at the last word.
    following = (_gru if kind == "gru" else _lstm)(values, from_state, carry)
    return tuple(jnp.where(real[:, None], new, old) for new, old in zip(following, carry, strict=True))


def _gru(inputs: Array, from_state: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
    (state,) = carry
    (reset, update, new), (state_reset, state_update, state_new) = (jnp.split(part, 3, axis=-1) for part in (inputs, from_state))
    update = jax.nn.sigmoid(update + state_update)
    candidate = jnp.tanh(new + jax.nn.sigmoid(reset + state_reset) * state_new)
    return ((1.0 - update) * candidate + update * state,)


def _lstm(inputs: Array, from_state: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
    _, cell = carry
    entry, forget, candidate, output = jnp.split(inputs + from_state, 4, axis=-1)
    cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(entry) * jnp.tanh(candidate)
    return jax.nn.sigmoid(output) * jnp.tanh(cell), cell
