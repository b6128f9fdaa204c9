"""What optax lacks: BERT's Adam, and an optimiser for each part of the parameters that some steps do not train."""

from collections.abc import Callable, Hashable, Mapping
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import optax

from jax_sentemb.types import Array, Params

REST = ""  # the label of the parts that every step trains


def optimizer_by_part(
    make: Callable[[Fraction], optax.GradientTransformation], shares: Mapping[str, Fraction]
) -> optax.GradientTransformation:
    """`make(share)` for each part of `shares`, the share of the steps in which it has a gradient; `make(1)` for the other parts.

    In a step without a gradient a part keeps its values, its moments and its count of steps, as a model that is trained alone.
    """

    def label(params: Params) -> dict[str, str]:
        return {part: part if part in shares else REST for part in params}

    transforms: dict[Hashable, optax.GradientTransformation] = {
        part: while_trained(make(share)) for part, share in {**shares, REST: Fraction(1)}.items()
    }
    return optax.partition(transforms, label)


def own_schedule(schedule: optax.Schedule, share: Fraction) -> optax.Schedule:
    """`schedule`, a function of the steps of a run, as a function of the steps of a part with that share of them."""

    def rate(count: Array) -> Array:
        return schedule(count * share.denominator // share.numerator)

    return rate if share != 1 else schedule


def while_trained(inner: optax.GradientTransformation) -> optax.GradientTransformation:
    """`inner`, whose state and parameters stay as they are in a step whose gradients are all zero."""

    def update(updates: Params, state: optax.OptState, params: Params | None = None) -> tuple[Params, optax.OptState]:
        trained = jnp.array([(leaf != 0).any() for leaf in jax.tree.leaves(updates)], bool).any()
        return jax.lax.cond(trained, lambda: inner.update(updates, state, params), lambda: (optax.tree.zeros_like(updates), state))

    return optax.GradientTransformation(inner.init, update)


def adam_without_bias_correction(b1: float, b2: float, epsilon: float) -> optax.GradientTransformation:
    """m / (sqrt(v) + epsilon) of the plain moving averages: larger first steps than Adam's (BERT's own optimiser)."""

    def init(params: Params) -> optax.ScaleByAdamState:
        zeros = optax.tree.zeros_like(params)
        return optax.ScaleByAdamState(jnp.zeros((), jnp.int32), zeros, jax.tree.map(jnp.copy, zeros))

    def update(updates: Params, state: Any, params: Any = None) -> tuple[Params, optax.ScaleByAdamState]:
        mean = optax.tree.update_moment(updates, state.mu, b1, 1)
        square = optax.tree.update_moment(updates, state.nu, b2, 2)
        scaled = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + epsilon), mean, square)
        return scaled, optax.ScaleByAdamState(state.count + 1, mean, square)

    return optax.GradientTransformation(init, update)
