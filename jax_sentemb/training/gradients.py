"""Loss and gradients of a batch: encoded whole, in parts of different widths, in chunks whose activations are not kept."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jax_sentemb.losses import merge_microbatches, split_microbatches
from jax_sentemb.methods.base import Method
from jax_sentemb.models.word_vectors import FROZEN
from jax_sentemb.types import Array, Batch, Params, TrainState

Encode = Callable[[Params, Batch, Array], Any]


def split_frozen(params: Params) -> tuple[Params, Params]:
    """What the optimiser works on, and the rest: word vectors that stay as they are."""
    frozen = {name: part for name, part in params.items() if name == FROZEN}
    return {name: part for name, part in params.items() if name != FROZEN}, frozen


def encode_parts(method: Method, encoder: Any, params: Params, state: TrainState, parts: tuple[Batch, ...], key: Array) -> Any:
    """What `method` encodes of a batch, in the batch's order; `key` gives every sentence its seed."""
    seeds = _seeds(parts, key)
    encoded = [method.encode(encoder, params, state, part, own) for part, own in zip(parts, seeds, strict=True)]
    return _together(parts, encoded)


def loss_and_gradients(
    method: Method, encoder: Any, state: TrainState, parts: tuple[Batch, ...], key: Array, chunk: int = 0
) -> tuple[Array, dict[str, Array], Any, Params]:
    """Loss, metrics, carry and the gradients of what is trained; `chunk` as in `train.make_step`."""
    trained, frozen = split_frozen(state.params)
    if chunk and chunk < sum(len(part.tokens) for part in parts):

        def encode(trained: Params, part: Batch, seeds: Array) -> Any:
            return method.encode(encoder, {**trained, **frozen}, state, part, seeds)

        return _cached_gradients(method, encode, state, parts, _seeds(parts, key), chunk)

    def loss_of(trained: Params) -> tuple[Array, tuple[dict[str, Array], Any]]:
        params = {**trained, **frozen}
        return method.objective(params, state, encode_parts(method, encoder, params, state, parts, key))

    (loss, (metrics, carry)), gradients = jax.value_and_grad(loss_of, has_aux=True)(trained)
    return loss, metrics, carry, gradients


def _cached_gradients(
    method: Method, encode: Encode, state: TrainState, parts: tuple[Batch, ...], seeds: list[Array], chunk: int
) -> tuple[Array, dict[str, Array], Any, Params]:
    trained, frozen = split_frozen(state.params)
    chunks = [split_microbatches(part, chunk) for part in zip(parts, seeds, strict=True)]
    encoded = [merge_microbatches(jax.lax.map(lambda one: encode(trained, *one), part)) for part in chunks]

    def loss_of(trained: Params, encoded: list[Any]) -> tuple[Array, tuple[dict[str, Array], Any]]:
        return method.objective({**trained, **frozen}, state, _together(parts, encoded))

    (loss, (metrics, carry)), (gradients, to_encoded) = jax.value_and_grad(loss_of, (0, 1), has_aux=True)(trained, encoded)

    def add(total: Params, one: Any) -> tuple[Params, None]:
        (batch, own), cotangent = one
        _, pull_back = jax.vjp(lambda trained: encode(trained, batch, own), trained)
        return jax.tree.map(jnp.add, total, pull_back(cotangent)[0]), None

    for part, cotangents in zip(chunks, to_encoded, strict=True):
        gradients, _ = jax.lax.scan(add, gradients, (part, split_microbatches(cotangents, chunk)))
    return loss, metrics, carry, gradients


def _seeds(parts: tuple[Batch, ...], key: Array) -> list[Array]:
    """Of each part the seeds of its sentences, uint32: those that they have in the whole batch."""
    seeds = jax.random.bits(key, (sum(len(part.tokens) for part in parts),), jnp.uint32)
    return [seeds if part.place is None else seeds[part.place] for part in parts]


def _together(parts: tuple[Batch, ...], encoded: list[Any]) -> Any:
    """What was encoded of the parts as if of the whole batch; zeros make the narrower ones as wide as the widest."""
    if len(parts) == 1:
        return encoded[0]
    order = jnp.argsort(jnp.concatenate([part.place for part in parts]))

    def join(*leaves: Array) -> Array:
        full = [max(sizes) for sizes in zip(*(leaf.shape[1:] for leaf in leaves), strict=True)]
        padded = [
            jnp.pad(leaf, [(0, 0), *((0, size - own) for size, own in zip(full, leaf.shape[1:], strict=True))]) for leaf in leaves
        ]
        return jnp.concatenate(padded)[order]

    return jax.tree.map(join, *encoded)
