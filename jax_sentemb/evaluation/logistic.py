"""Fit L2-regularised logistic regression to its optimum, for all folds and all strengths of the penalty in one program.

The objective is that of scikit-learn: 1/2 |w|^2 + C * sum of the losses, without a penalty on the bias. Two classes have one weight
vector; more classes have one each (a softmax). All fits share one matrix product over all rows, and each fit masks its own rows.

The features are first centred and rotated to their principal axes. This does not change the penalty, and a diagonal preconditioner
works well in these axes: L-BFGS needs tens of products instead of thousands.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Bool, Float, Int

from jax_sentemb.errors import RETRAIN, NumericsError
from jax_sentemb.types import Array

HISTORY = 10
MAX_PRODUCTS = 1000
# A fit stops when the estimated distance of its objective (divided by C and by the number of rows) from the optimum is below
# TOLERANCE; the estimate uses the gradient and a bound on the curvature. float32 may stop a little earlier. A fit whose distance
# exceeds LIMIT has not converged.
TOLERANCE, LIMIT = 1e-12, 1e-7
SHORTEST = 2.0**-20  # a step that was shortened to this factor no longer lowers the objective in float32
AXES = 2048  # wider features are not rotated, because computing their principal axes takes longer than it saves
SCORES = 2**27  # largest size of the matrix of scores [fits, classes, rows]; more fits are done in portions


class LogisticFits(NamedTuple):
    """Coefficients like scikit-learn's `coef_` and `intercept_`, with one output for two classes."""

    weight: Float[np.ndarray, "fits outputs width"]  # float32
    bias: Float[np.ndarray, "fits outputs"]  # float32


def fit(
    features: Float[Array, "rows width"],
    labels: Int[np.ndarray, " rows"],
    rows: Bool[np.ndarray, "fits rows"],
    inverse_l2: Float[np.ndarray, " fits"],
) -> LogisticFits:
    """Fit a logistic regression to each row of `rows`.

    Args:
        features: Finite embeddings.
        labels: Classes from 0.
        rows: Masks of the training rows.
        inverse_l2: The strength C of each fit, the inverse of the penalty.

    Raises:
        NumericsError: A feature is not finite, a fit has rows of one class only, or the optimum is not reached.
    """
    features = np.asarray(features, np.float32)
    if not np.isfinite(features).all():
        raise NumericsError(f"features of the classifier are not finite (NaN or Inf); {RETRAIN}")
    classes = int(labels.max()) + 1
    outputs = 1 if classes == 2 else classes
    class_counts = rows.astype(np.float32) @ np.eye(classes, dtype=np.float32)[labels]
    if (class_counts > 0).sum(axis=1).min() < 2:
        raise NumericsError("the training rows of a fold have one class only; give more examples of each class")
    mean = features.mean(axis=0, dtype=np.float64)
    centred = jnp.asarray(features - mean.astype(np.float32))
    # One scale for all features avoids overflow and underflow of float32. The penalty is scaled as well, so the optimum is the
    # same.
    scale = float(jnp.sqrt(jnp.square(centred).sum(axis=1).mean())) or 1.0
    rotated, axes, spread = _principal_axes(centred / scale)
    portion = max(1, SCORES // (len(features) * outputs))
    weights, biases = [], []
    for first in range(0, len(rows), portion):
        portion_rows = slice(first, first + portion)
        weight, bias, distance = _solve(
            rotated,
            jnp.asarray(labels, jnp.int32),
            jnp.asarray(rows[portion_rows]),
            jnp.asarray(inverse_l2[portion_rows] * scale**2, jnp.float32),
            spread,
            outputs=outputs,
        )
        if not float(distance.max()) <= LIMIT:
            raise NumericsError(f"logistic regression did not converge: {float(distance.max()):.1e} from the optimum; {RETRAIN}")
        weights.append(np.asarray(weight @ axes.T) / scale)
        biases.append(np.asarray(bias, np.float64))
    weight, bias = np.concatenate(weights), np.concatenate(biases)
    return LogisticFits(weight, (bias - weight @ mean).astype(np.float32))


def probabilities(
    weight: Float[np.ndarray, "outputs width"], bias: Float[np.ndarray, " outputs"], features: Float[Array, "rows width"]
) -> Float[np.ndarray, "rows classes"]:
    """Return the class probabilities of one fit."""
    scores = np.asarray(features, np.float64) @ weight.T + bias
    if scores.shape[1] == 1:
        scores = np.concatenate([np.zeros_like(scores), scores], axis=1)
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True)


def _principal_axes(features: Array) -> tuple[Array, Array, Array]:
    """Return the features in their principal axes, the axes [D, D] and the sum of squares along each [D]."""
    width = features.shape[1]
    if width > AXES:
        return features, jnp.eye(width), jnp.square(features).sum(axis=0)
    _, axes = np.linalg.eigh(np.asarray(features.T @ features, np.float64))
    axes = jnp.asarray(axes, jnp.float32)
    rotated = features @ axes
    return rotated, axes, jnp.square(rotated).sum(axis=0)


class _Problem(NamedTuple):
    """The data of the objectives of all fits."""

    features: Array  # float32 [N, D], in principal axes
    hot: Array  # bool [outputs, N], the class of every row
    rows: Array  # bool [fits, N], the training rows of each fit
    size: Array  # int32 [fits], the number of training rows
    inverse_l2: Array  # float32 [fits]
    diagonal: Array  # float32 [fits, P], bound on the curvature of the objective: the preconditioner


class _State(NamedTuple):
    """The L-BFGS state of every fit. A fit whose step did not lower its objective shortens the step for the next product."""

    point: Array  # float32 [fits, P]
    value: Array  # float32 [fits]
    gradient: Array  # float32 [fits, P]
    direction: Array  # float32 [fits, P]
    length: Array  # float32 [fits], of the step
    steps: Array  # float32 [HISTORY, fits, P], newest last
    changes: Array  # float32 [HISTORY, fits, P], of the gradient
    inverse: Array  # float32 [HISTORY, fits], 1 / (step . change); 0 for an empty entry
    products: Array  # int32 []


@functools.partial(jax.jit, static_argnames="outputs")
def _solve(
    features: Array, labels: Array, rows: Array, inverse_l2: Array, spread: Array, *, outputs: int
) -> tuple[Array, Array, Array]:
    """Return weights [fits, outputs, D], biases [fits, outputs] and the distance of each fit from its optimum (see TOLERANCE)."""
    fits, width = len(rows), features.shape[1]
    problem = _problem(features, labels, rows, inverse_l2, spread, outputs)

    def is_running(state: _State) -> Array:
        return _unfinished(problem, state).any() & (state.products < MAX_PRODUCTS)

    start = jnp.zeros((fits, outputs * (width + 1)))
    value, gradient = _objective(problem, start)
    history, no_inverse = jnp.zeros((HISTORY, *start.shape)), jnp.zeros((HISTORY, fits))
    first = -gradient / problem.diagonal
    state = _State(start, value, gradient, first, jnp.ones(fits), history, history, no_inverse, jnp.int32(1))
    state = lax.while_loop(is_running, functools.partial(_advance, problem), state)
    point = state.point.reshape(fits, outputs, width + 1)
    return point[..., :-1], point[..., -1], _distance(problem, state.gradient)


def _problem(features: Array, labels: Array, rows: Array, inverse_l2: Array, spread: Array, outputs: int) -> _Problem:
    fits, width = len(rows), features.shape[1]
    count = rows.sum(axis=1)
    # p (1 - p) is at most 1/4, which bounds the curvature along a principal axis.
    share = count[:, None] / len(features)
    curvature = jnp.concatenate([inverse_l2[:, None] * share * spread / 4 + 1, (inverse_l2 * count / 4)[:, None]], axis=1)
    curvature = jnp.broadcast_to(curvature[:, None], (fits, outputs, width + 1)).reshape(fits, -1)
    hot = labels == jnp.arange(outputs)[:, None] if outputs > 1 else (labels == 1)[None]
    return _Problem(features, hot, rows, count, inverse_l2, curvature / (inverse_l2 * count)[:, None])


def _objective(problem: _Problem, point: Array) -> tuple[Array, Array]:
    """Return value [fits] and gradient [fits, P], all divided by C and the number of rows."""
    features, hot, rows = problem.features, problem.hot, problem.rows
    fits, outputs, width = len(rows), len(hot), features.shape[1]
    point = point.reshape(fits, outputs, width + 1)
    weight, bias = point[..., :-1], point[..., -1]
    scores = (weight.reshape(-1, width) @ features.T).reshape(fits, outputs, -1) + bias[..., None]
    if outputs == 1:
        losses = jax.nn.softplus(jnp.where(hot, -scores, scores))[:, 0]
        residual = jax.nn.sigmoid(scores) - hot
    else:
        losses = jax.nn.logsumexp(scores, axis=1) - (scores * hot).sum(axis=1)
        residual = jax.nn.softmax(scores, axis=1) - hot
    residual = jnp.where(rows[:, None], residual, 0.0)
    penalty = 1 / problem.inverse_l2
    slope = (residual.reshape(fits * outputs, -1) @ features).reshape(fits, outputs, width)
    slope = jnp.concatenate([slope + penalty[:, None, None] * weight, residual.sum(-1)[..., None]], axis=-1)
    value = jnp.where(rows, losses, 0.0).sum(-1) + penalty * jnp.square(weight).sum((1, 2)) / 2
    return value / problem.size, slope.reshape(fits, -1) / problem.size[:, None]


def _direction(diagonal: Array, gradient: Array, steps: Array, changes: Array, inverse: Array) -> Array:
    """Return minus the approximate inverse Hessian times the gradient, by the two-loop recursion (Nocedal and Wright, 7.4)."""
    result, factors = gradient, {}
    for age in reversed(range(HISTORY)):
        factors[age] = inverse[age] * (steps[age] * result).sum(-1)
        result = result - factors[age][:, None] * changes[age]
    newest = (changes[-1] ** 2 / diagonal).sum(-1) * inverse[-1]
    result = result / diagonal / jnp.where(newest > 0, newest, 1.0)[:, None]
    for age in range(HISTORY):
        back = inverse[age] * (changes[age] * result).sum(-1)
        result = result + (factors[age] - back)[:, None] * steps[age]
    return -result


def _push(history: Array, new: Array, when: Array) -> Array:
    """Append `new` to a history [HISTORY, fits, ...] and drop its oldest entry, for the fits at which `when` is True."""
    shifted = jnp.concatenate([history[1:], new[None]])
    return jnp.where(when.reshape(1, len(when), *[1] * (history.ndim - 2)), shifted, history)


def _advance(problem: _Problem, state: _State) -> _State:
    """Advance by one product: each unfinished fit takes its step, or shortens it if the objective did not decrease."""
    step = state.length[:, None] * state.direction
    value, gradient = _objective(problem, state.point + step)
    slope = (state.gradient * step).sum(-1)
    # Near the optimum, values in float32 differ by rounding errors only, so an increase in the last digits is accepted.
    better = value <= state.value + 1e-4 * slope + 4e-7 * jnp.abs(state.value)
    take = better & _unfinished(problem, state)
    change = gradient - state.gradient
    agreement = (step * change).sum(-1)
    is_curved = take & (agreement > 1e-12 * (change**2).sum(-1))
    steps, changes = _push(state.steps, step, is_curved), _push(state.changes, change, is_curved)
    inverse = _push(state.inverse, jnp.where(is_curved, 1 / jnp.where(is_curved, agreement, 1.0), 0.0), is_curved)
    gradient = jnp.where(take[:, None], gradient, state.gradient)
    following = _direction(problem.diagonal, gradient, steps, changes, inverse)
    return _State(
        point=jnp.where(take[:, None], state.point + step, state.point),
        value=jnp.where(take, value, state.value),
        gradient=gradient,
        direction=jnp.where(take[:, None], following, state.direction),
        length=jnp.where(take, 1.0, state.length / 2),
        steps=steps,
        changes=changes,
        inverse=inverse,
        products=state.products + 1,
    )


def _distance(problem: _Problem, gradient: Array) -> Array:
    """Return the estimated distance of each objective from its optimum [fits]."""
    return (gradient**2 / problem.diagonal).sum(-1) / 2


def _unfinished(problem: _Problem, state: _State) -> Array:
    return (_distance(problem, state.gradient) > TOLERANCE) & (state.length > SHORTEST)
