"""Run a GRU or LSTM of one layer, in one or both directions, equal to torch's. Padding does not change the states of words."""

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
States = tuple[Array, ...]  # of one word: state, and the cell of an LSTM; or gates


class Recurrent(NamedTuple):
    """States of a recurrent network."""

    states: Float[Array, "rows tokens width"]  # float32, both directions of each word side by side; 0 at padding
    last: Float[Array, "rows width"]  # float32: the forward state of the last word, the backward state of the first


def init_rnn(
    key: Key[Array, ""],
    cell_type: str,
    inputs: int,
    hidden: int,
    gate_bias: float | None = None,
    directions: tuple[str, ...] = DIRECTIONS,
) -> Params:
    """Return new parameters {direction: {"input": kernel [I, G H] and bias, "recurrent": kernel [H, G H] and bias}}.

    Args:
        key: The key of the random numbers.
        cell_type: "gru" or "lstm".
        inputs: The width I of a word.
        hidden: The width H of a state.
        gate_bias: If given, kernels are drawn from He's N(0, 2 / inputs), the input biases of the gates are `gate_bias`, and all
            other biases are 0. Without it everything is drawn from U(-b, b), b = 1 / sqrt(H), as in torch.
        directions: "forward", "backward" or both.
    """
    params: Params = {}
    if gate_bias is None:
        shapes = {"input": inputs, "recurrent": hidden}
        for direction in directions:
            params[direction] = {}
            for name, size in shapes.items():
                key, *keys = jax.random.split(key, 3)
                width, bound = GATES[cell_type] * hidden, hidden**-0.5
                draws = [
                    jax.random.uniform(k, shape, jnp.float32, -bound, bound)
                    for k, shape in zip(keys, ((size, width), (width,)), strict=True)
                ]
                params[direction][name] = dict(zip(("kernel", "bias"), draws, strict=True))
        return params
    candidate = 2  # index of the new state (GRU) or cell input (LSTM), which is not a gate
    gates = jnp.concatenate([jnp.full(hidden, 0.0 if index == candidate else gate_bias) for index in range(GATES[cell_type])])
    for direction, direction_key in zip(directions, jax.random.split(key, len(directions)), strict=True):
        keys = jax.random.split(direction_key)
        params[direction] = {
            name: {
                "kernel": jax.random.normal(part_key, (size, GATES[cell_type] * hidden)) * (2.0 / size) ** 0.5,
                "bias": gates if name == "input" else jnp.zeros_like(gates),
            }
            for name, size, part_key in zip(("input", "recurrent"), (inputs, hidden), keys, strict=True)
        }
    return params


def run_rnn(
    cell_type: str,
    params: Params,
    vectors: Float[Array, "rows tokens inputs"],
    mask: Bool[Array, "rows tokens"],
    dtype: DTypeLike = jnp.float32,
) -> Recurrent:
    """Run the directions that `params` has over `vectors` [R, T, I] with `mask` bool [R, T], right-padded."""
    names = [name for name in DIRECTIONS if name in params]
    # Words first, as the scan reads them: the input products are wider, and would be transposed twice.
    words = vectors.swapaxes(0, 1)
    outputs = [_direction(cell_type, params[name], words, mask, dtype, name == "backward") for name in names]
    states = jnp.concatenate([states for states, _ in outputs], axis=-1)
    return Recurrent(jnp.where(mask[..., None], states, 0.0), jnp.concatenate([last for _, last in outputs], axis=-1))


def _direction(cell_type: str, params: Params, words: Array, mask: Array, dtype: DTypeLike, backward: bool) -> tuple[Array, Array]:
    # All input products are computed at once: only the recurrent product depends on the previous state.
    inputs = matmul(words, params["input"]["kernel"], dtype) + params["input"]["bias"]
    recurrent = params["recurrent"]
    outputs: tuple[Array, Array] = _recur(cell_type, dtype, backward, inputs, recurrent["kernel"], recurrent["bias"], mask.T)
    return outputs[0].swapaxes(0, 1), outputs[1]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _recur(
    cell_type: str, dtype: DTypeLike, backward: bool, inputs: Array, kernel: Array, bias: Array, mask: Array
) -> tuple[Array, Array]:
    """Return the states [T, R, H] and the last state [R, H], from input products [T, R, G H].

    The backward pass is written by hand. It keeps the gates, so it computes no sigmoid or tanh again. It also keeps the two factors
    of each step's gradient of `kernel`, and multiplies them for all steps at once. Automatic differentiation adds to a whole kernel
    in each step.
    """
    return _recur_forward(cell_type, dtype, backward, inputs, kernel, bias, mask)[0]


def _recur_forward(
    cell_type: str, dtype: DTypeLike, backward: bool, inputs: Array, kernel: Array, bias: Array, mask: Array
) -> tuple[tuple[Array, Array], tuple[Any, ...]]:
    start = (jnp.zeros((inputs.shape[1], kernel.shape[0])),) * (1 if cell_type == "gru" else 2)
    cell = _gru if cell_type == "gru" else _lstm

    def step(carry: States, now: tuple[Array, Array]) -> tuple[States, Any]:
        following, gates = cell(now[0], matmul(carry[0], kernel, dtype) + bias, carry)
        following = _where(now[1], following, carry)  # padding keeps the state: the backward direction starts at the last word
        return following, (following[0], carry, gates)

    carry, (states, before, gates) = lax.scan(step, start, (inputs, mask), reverse=backward)
    return (states, carry[0]), (kernel, mask, before, gates)


def _recur_backward(
    cell_type: str, dtype: DTypeLike, backward: bool, saved: tuple[Any, ...], gradients: tuple[Array, Array]
) -> tuple[Array, Array, Array, None]:
    kernel, mask, before, gates = saved
    to_states, to_last = gradients
    transposed, pull_back = kernel.T, _gru_gradient if cell_type == "gru" else _lstm_gradient

    def step(to_carry: States, now: Any) -> tuple[States, tuple[Array, Array]]:
        carry, gate_values, real, to_state = now
        to_carry = (to_carry[0] + to_state, *to_carry[1:])
        zeros = tuple(jnp.zeros_like(gradient) for gradient in to_carry)
        to_values, to_recurrent, to_before = pull_back(_where(real, to_carry, zeros), gate_values, carry)
        to_before = _where(real, to_before, to_carry)
        return (to_before[0] + matmul(to_recurrent, transposed, dtype), *to_before[1:]), (to_values, to_recurrent)

    start = (to_last, *(jnp.zeros_like(to_last) for _ in before[1:]))
    _, (to_inputs, to_recurrent) = lax.scan(step, start, (before, gates, mask, to_states), reverse=not backward)
    flat = to_recurrent.reshape(-1, to_recurrent.shape[-1])
    _, to_kernel = jax.vjp(lambda kernel: matmul(before[0].reshape(-1, kernel.shape[0]), kernel, dtype), kernel)
    return to_inputs, to_kernel(flat)[0], flat.sum(0), None


_recur.defvjp(_recur_forward, _recur_backward)


def _where(real: Array, new: States, old: States) -> States:
    return tuple(jnp.where(real[:, None], new_part, old_part) for new_part, old_part in zip(new, old, strict=True))


def _gru(inputs: Array, from_state: Array, carry: States) -> tuple[States, States]:
    """Return the state after a word, and what the gradient needs."""
    (state,) = carry
    (reset, update, new), (state_reset, state_update, state_new) = (jnp.split(part, 3, axis=-1) for part in (inputs, from_state))
    reset, update = jax.nn.sigmoid(reset + state_reset), jax.nn.sigmoid(update + state_update)
    candidate = jnp.tanh(new + reset * state_new)
    return ((1.0 - update) * candidate + update * state,), (reset, update, candidate, state_new)


def _gru_gradient(to_following: States, gates: States, carry: States) -> tuple[Array, Array, States]:
    """Return the gradients of the inputs, of the recurrent products and of the carry."""
    (to_state,), (reset, update, candidate, state_new), (state,) = to_following, gates, carry
    to_new = to_state * (1.0 - update) * (1.0 - candidate * candidate)
    to_update = to_state * (state - candidate) * update * (1.0 - update)
    to_reset = to_new * state_new * reset * (1.0 - reset)
    to_values, to_recurrent = (jnp.concatenate([to_reset, to_update, last], axis=-1) for last in (to_new, to_new * reset))
    return to_values, to_recurrent, (to_state * update,)


def _lstm(inputs: Array, from_state: Array, carry: States) -> tuple[States, States]:
    """Return the state and cell after a word, and what the gradient needs."""
    entry, forget, candidate, output = jnp.split(inputs + from_state, 4, axis=-1)
    entry, forget, output = jax.nn.sigmoid(entry), jax.nn.sigmoid(forget), jax.nn.sigmoid(output)
    candidate = jnp.tanh(candidate)
    cell = forget * carry[1] + entry * candidate
    cell_tanh = jnp.tanh(cell)
    return (output * cell_tanh, cell), (entry, forget, candidate, output, cell_tanh)


def _lstm_gradient(to_following: States, gates: States, carry: States) -> tuple[Array, Array, States]:
    """Return the gradients of the inputs, of the recurrent products and of the carry."""
    (to_state, to_cell), (entry, forget, candidate, output, cell_tanh) = to_following, gates
    to_cell = to_cell + to_state * output * (1.0 - cell_tanh * cell_tanh)
    to_each = (
        to_cell * candidate * entry * (1.0 - entry),
        to_cell * carry[1] * forget * (1.0 - forget),
        to_cell * entry * (1.0 - candidate * candidate),
        to_state * cell_tanh * output * (1.0 - output),
    )
    to_values = jnp.concatenate(to_each, axis=-1)
    return to_values, to_values, (jnp.zeros_like(to_state), to_cell * forget)
