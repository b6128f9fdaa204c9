"""GRU and LSTM of one layer, in one or both directions, equal to torch's; padding changes nothing in either direction."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jax_sentemb.models.layers import matmul
from jax_sentemb.types import Array, Params

GATES = {"gru": 3, "lstm": 4}  # reset, update, new; input, forget, cell, output: torch's orders
DIRECTIONS = ("forward", "backward")


class Recurrent(NamedTuple):
    states: Array  # float32 [R, T, 2H], both directions of each word (H with one); 0 at padding
    last: Array  # float32 [R, 2H]: the forward state of the last word, the backward state of the first


def init_rnn(
    key: Array, kind: str, inputs: int, hidden: int, gate_bias: float | None = None, directions: tuple[str, ...] = DIRECTIONS
) -> Params:
    """For each of the directions "input" [I, G H] and "recurrent" [H, G H], kernel and bias.

    With a `gate_bias`: kernels are He's normal, N(0, 2 / inputs), biases 0 but those of the gates (the new or cell input is none).
    Without: everything from U(-b, b), b = 1 / sqrt(H), as torch does.
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
    candidate = 2  # place of the part that is no gate, in both kinds
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


def run_rnn(kind: str, params: Params, vectors: Array, mask: Array, dtype: jnp.dtype = jnp.float32) -> Recurrent:
    """The directions that `params` has over `vectors` [R, T, I] with `mask` bool [R, T], right-padded."""
    names = [name for name in DIRECTIONS if name in params]
    outputs = [_direction(kind, params[name], vectors, mask, dtype, name == "backward") for name in names]
    states = jnp.concatenate([states for states, _ in outputs], axis=-1)
    return Recurrent(jnp.where(mask[..., None], states, 0.0), jnp.concatenate([last for _, last in outputs], axis=-1))


def _direction(kind: str, params: Params, vectors: Array, mask: Array, dtype: jnp.dtype, backward: bool) -> tuple[Array, Array]:
    # All input products at once; only what depends on the state before is left to the scan.
    inputs = (matmul(vectors, params["input"]["kernel"], dtype) + params["input"]["bias"]).swapaxes(0, 1)
    recurrent = params["recurrent"]
    rows, hidden = vectors.shape[0], recurrent["kernel"].shape[0]
    start = jnp.zeros((rows, hidden))
    cell = _gru if kind == "gru" else _lstm

    def step(carry: tuple[Array, ...], now: tuple[Array, Array]) -> tuple[tuple[Array, ...], Array]:
        values, real = now
        from_state = matmul(carry[0], recurrent["kernel"], dtype) + recurrent["bias"]
        following = cell(values, from_state, carry)
        # A padded place hands on the state as it is, so the backward direction starts at the last word.
        following = tuple(jnp.where(real[:, None], new, old) for new, old in zip(following, carry, strict=True))
        return following, following[0]

    carry, states = lax.scan(step, (start,) * (1 if kind == "gru" else 2), (inputs, mask.T), reverse=backward)
    return states.swapaxes(0, 1), carry[0]


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
