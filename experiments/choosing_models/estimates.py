"""Estimates of the quality of models from vectors of the same texts, without labels. All are oriented so that higher is better.

Every definition was fixed before the first comparison with labels. README.md says where they depart from the publications.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.stats import rankdata

from jax_sentemb.cosines import unit_length
from jax_sentemb.evaluation import diagnostics

SOURCE, TARGET = 64, 32  # principal components of a model that predicts, and of one that is predicted
MODES, HIDDEN, LAYERS, BOTTLENECK = 4, 32, 4, 64
BATCH, ROUND, ROUNDS, RATE, DECAY = 128, 10, 20, 5e-3, 1e-2  # of training; the held-out rows are looked at after each round
PAIRS, NEIGHBOURS = 20_000, 10
LOG_SCALE = 3.0  # bound of the logarithm of a scale
Params = dict[str, jax.Array]
Matrix = np.ndarray  # [sources, targets]: how much a source says about a target, in nats


class Split(NamedTuple):
    """Rows to train on, to stop by and to measure on. Each is (source, target)."""

    train: tuple[jax.Array, jax.Array]
    stop: tuple[jax.Array, jax.Array]
    test: tuple[jax.Array, jax.Array]


def single(vectors: np.ndarray, first: np.ndarray, second: np.ndarray) -> dict[str, float]:
    """Return the estimates that need one model: its vectors, and those of two halves of some texts."""
    return {
        "split-half retrieval": diagnostics.retrieval(first, second),
        "alignment of halves": -diagnostics.alignment(first, second),
        "uniformity": -diagnostics.uniformity(vectors),
        "isotropy (mean cosine)": -diagnostics.mean_cosine(vectors),
        "effective rank (RankMe)": diagnostics.effective_rank(vectors),
        "dimension": float(vectors.shape[1]),
    }


def components(vectors: np.ndarray, width: int, is_white: bool) -> np.ndarray:
    """Return the first principal components of unit-length vectors, float32 [N, width].

    White: each has variance 1. Otherwise their mean variance is 1. Missing components are 0.
    """
    unit = unit_length(vectors.astype(np.float64))
    left, values, _ = np.linalg.svd(unit - unit.mean(axis=0), full_matrices=False)
    rows, kept = len(unit), min(width, int((values > 1e-6 * values[0]).sum()))
    scores = left[:, :kept] * (rows**0.5 if is_white else values[:kept] * (rows * kept / (values[:kept] ** 2).sum()) ** 0.5)
    return np.pad(scores, ((0, 0), (0, width - kept))).astype(np.float32)


def split(sources: np.ndarray, targets: np.ndarray, seed: int = 0) -> Split:
    """Split the rows of sources [M, N, S] and targets [M, N, T]: random 70 % to train on, 15 % to stop by, 15 % to measure on."""
    rows = sources.shape[1]
    order = np.random.default_rng(seed).permutation(rows)
    parts = np.split(order, [rows * 14 // 20, rows * 17 // 20])
    return Split(*((jnp.asarray(sources[:, part]), jnp.asarray(targets[:, part])) for part in parts))


def gaussian(parts: Split) -> Matrix:
    """Return the information by a linear model with Gaussian errors: the entropy of a target less that given a source."""
    (sources, targets), _, (tested_sources, tested) = (tuple(np.asarray(side, np.float64) for side in part) for part in parts)
    matrix = np.zeros((len(sources), len(targets)))
    for row, (inputs, tested_inputs) in enumerate(zip(sources, tested_sources, strict=True)):
        solution = np.linalg.solve(inputs.T @ inputs + np.eye(inputs.shape[1]), inputs.T)
        for column, (outputs, tested_outputs) in enumerate(zip(targets, tested, strict=True)):
            weight = solution @ outputs
            errors = outputs - inputs @ weight, tested_outputs - tested_inputs @ weight
            matrix[row, column] = _normal_entropy(outputs, tested_outputs) - _normal_entropy(*errors)
    return matrix


def _normal_entropy(train: np.ndarray, test: np.ndarray) -> float:
    """Return the mean negative log density of `test` under a normal distribution around 0 that was fitted to `train`."""
    covariance = train.T @ train / len(train) + 1e-3 * np.eye(train.shape[1])
    _, log_det = np.linalg.slogdet(2 * np.pi * covariance)
    return float(log_det / 2 + (test * np.linalg.solve(covariance, test.T).T).sum(axis=1).mean() / 2)


def mixture(parts: Split) -> Matrix:
    """Return the information by Gaussian mixtures (KNIFE): of the target alone, and by a network of the source."""
    return _information(parts, start_mixture, mixture_entropy, start_conditional_mixture, conditional_mixture_entropy)


def flow(parts: Split) -> Matrix:
    """Return the information by normalising flows (FLARE): of the target alone, and with a low-rank branch of the source."""
    return _information(parts, start_flow, flow_entropy, start_branch, flow_entropy)


def _information(parts: Split, start_alone: Any, alone: Any, start_given: Any, given: Any) -> Matrix:
    """Return the held-out entropies of each target less those given each source; one call trains all sources of a target."""
    models = len(parts.train[0])
    matrix = np.zeros((models, models))
    for target in range(models):
        rows = tuple((sources, targets[target]) for sources, targets in parts)
        rows_alone = tuple((sources[:1], outputs) for sources, outputs in rows)
        base, entropy = _trained(alone, jax.vmap(start_alone, (0, None))(*rows_alone[0]), rows_alone)
        start = functools.partial(start_given, jax.tree.map(lambda each: each[0], base))
        _, entropies = _trained(given, jax.vmap(start, (0, None))(*rows[0]), rows)
        matrix[:, target] = np.asarray(entropy[0] - entropies)
    return matrix


@functools.partial(jax.jit, static_argnums=0)
def _trained(entropy: Callable[..., jax.Array], params: Params, rows: Any) -> tuple[Params, jax.Array]:
    """Minimise the entropy of one target for a stack of sources.

    Args:
        entropy: (params, source [N, S], target [N, T]) -> mean negative log density of the target.
        params: The first parameters, with a leading axis for the sources.
        rows: Train, stop and test, each sources [M, N, S] and a target [N, T].

    Returns:
        The parameters of the round with the lowest entropy on the rows to stop by, and their entropies on the test rows.
    """
    (inputs, outputs), stop, test = rows
    optimizer = optax.adamw(RATE, weight_decay=DECAY)
    losses = lambda params, source, target: jax.vmap(entropy, (0, 0, None))(params, source, target)  # noqa: E731

    def one_step(state: Any, key: jax.Array) -> tuple[Any, None]:
        params, moments = state
        chosen = jax.random.randint(key, (BATCH,), 0, len(outputs))
        grads = jax.grad(lambda params: losses(params, inputs[:, chosen], outputs[chosen]).sum())(params)
        updates, moments = optimizer.update(grads, moments, params)
        return (optax.apply_updates(params, updates), moments), None

    def one_round(state: Any, key: jax.Array) -> tuple[Any, None]:
        params, moments, best, lowest, tested = state
        (params, moments), _ = jax.lax.scan(one_step, (params, moments), jax.random.split(key, ROUND))
        stopped = losses(params, *stop)
        better = stopped < lowest
        best = jax.tree.map(lambda new, old: jnp.where(better.reshape(-1, *[1] * (new.ndim - 1)), new, old), params, best)
        return (params, moments, best, jnp.minimum(stopped, lowest), jnp.where(better, losses(params, *test), tested)), None

    begin = params, optimizer.init(params), params, losses(params, *stop), losses(params, *test)
    (_, _, best, _, tested), _ = jax.lax.scan(one_round, begin, jax.random.split(jax.random.key(0), ROUNDS))
    return best, tested


def start_mixture(source: jax.Array, target: jax.Array) -> Params:
    """Return the first parameters of a mixture: its centres are rows of the target."""
    return {"means": target[:MODES], "scales": jnp.zeros((MODES, target.shape[1])), "weights": jnp.zeros(MODES)}


def mixture_entropy(params: Params, source: jax.Array, target: jax.Array) -> jax.Array:
    """Return the mean negative log density of the target [N, T] under the mixture."""
    return -_mixture(target[:, None], params["means"], params["scales"], params["weights"]).mean()


def start_conditional_mixture(base: Params, source: jax.Array, target: jax.Array) -> Params:
    """Return the first parameters of a network whose output is that of the mixture alone."""
    outputs = jnp.concatenate([base["means"].ravel(), base["scales"].ravel(), base["weights"]])
    first = jax.random.normal(jax.random.key(1), (source.shape[1], HIDDEN)) / source.shape[1] ** 0.5
    second, linear = (jnp.zeros((rows, len(outputs))) for rows in (HIDDEN, source.shape[1]))
    return {"first": first, "bias": jnp.zeros(HIDDEN), "second": second, "linear": linear, "outputs": outputs}


def conditional_mixture_entropy(params: Params, source: jax.Array, target: jax.Array) -> jax.Array:
    """Return the mean negative log density of the target [N, T] given the source [N, S]."""
    hidden = jax.nn.relu(source @ params["first"] + params["bias"])
    outputs = hidden @ params["second"] + source @ params["linear"] + params["outputs"]
    means, scales, weights = jnp.split(outputs, [MODES * target.shape[1], 2 * MODES * target.shape[1]], axis=1)
    shape = (len(target), MODES, target.shape[1])
    return -_mixture(target[:, None], means.reshape(shape), scales.reshape(shape), weights).mean()


def _mixture(target: jax.Array, means: jax.Array, scales: jax.Array, weights: jax.Array) -> jax.Array:
    """Return the log density of rows [N, 1, T] under diagonal Gaussians."""
    scales = LOG_SCALE * jnp.tanh(scales / LOG_SCALE)
    terms = -jnp.square((target - means) * jnp.exp(-scales)) / 2 - scales - jnp.log(2 * jnp.pi) / 2
    return jax.nn.logsumexp(terms.sum(-1) + jax.nn.log_softmax(weights), axis=-1)


def start_flow(source: jax.Array, target: jax.Array) -> Params:
    """Return the first parameters of affine coupling layers; "down" and "up" are the branch of the source, here off."""
    half = target.shape[1] // 2
    keys = jax.random.split(jax.random.key(2), LAYERS)
    first = jnp.stack([jax.random.normal(key, (half, HIDDEN)) / half**0.5 for key in keys])
    second = [0.1 * jax.random.normal(key, (HIDDEN, 2 * half)) / HIDDEN**0.5 for key in keys]
    down = jax.random.normal(jax.random.key(3), (source.shape[1], BOTTLENECK)) / source.shape[1] ** 0.5
    return {
        "first": first, "bias": jnp.zeros((LAYERS, HIDDEN)), "second": jnp.stack(second),
        "shift": jnp.zeros((LAYERS, 2 * half)), "down": jnp.zeros_like(down), "up": jnp.zeros((LAYERS, BOTTLENECK, 2 * half)),
    }  # fmt: skip


def start_branch(base: Params, source: jax.Array, target: jax.Array) -> Params:
    """Return the flow of the target with a branch of the source whose last matrix is 0, so it begins as the flow alone."""
    down = jax.random.normal(jax.random.key(3), (source.shape[1], BOTTLENECK)) / source.shape[1] ** 0.5
    return base | {"down": down, "up": jnp.zeros_like(base["up"])}


def flow_entropy(params: Params, source: jax.Array, target: jax.Array) -> jax.Array:
    """Return the mean negative log density of the target [N, T] under the flow, given the source if its branch is not 0."""
    halves = target[:, ::2], target[:, 1::2]
    compressed, log_det = source @ params["down"], jnp.zeros(len(target))
    for layer in range(LAYERS):
        hidden = jax.nn.relu(halves[0] @ params["first"][layer] + params["bias"][layer])
        outputs = hidden @ params["second"][layer] + params["shift"][layer] + compressed @ params["up"][layer]
        scale, shift = jnp.split(outputs, 2, axis=1)
        scale = LOG_SCALE * jnp.tanh(scale / LOG_SCALE)
        halves = halves[1] * jnp.exp(scale) + shift, halves[0]
        log_det += scale.sum(1)
    latent = jnp.concatenate(halves, axis=1)
    return (jnp.square(latent).sum(1) / 2 + latent.shape[1] * jnp.log(2 * jnp.pi) / 2 - log_det).mean()


def sufficiency(matrix: Matrix) -> np.ndarray:
    """Return the median over the other models of what each model says about them [M]."""
    return np.nanmedian(_without_own(matrix), axis=1)


def normalised_sufficiency(matrix: Matrix) -> np.ndarray:
    """Return the same median after scaling each target to mean 0 and deviation 1 over its sources [M]."""
    others = _without_own(matrix)
    deviation = np.maximum(np.nanstd(others, axis=0), 1e-12)
    return np.nanmedian((others - np.nanmean(others, axis=0)) / deviation, axis=1)


def _without_own(matrix: Matrix) -> Matrix:
    return np.where(np.eye(len(matrix), dtype=bool), np.nan, matrix)


class Similarities(NamedTuple):
    """The cosines of one model, as ranks from 0 to 1."""

    pairs: np.ndarray  # float32 [P], of random pairs of texts
    rows: np.ndarray  # float32 [N, N], within each row; a text is last in its own row


def similarities(vectors: np.ndarray, seed: int = 0) -> Similarities:
    """Return the ranks of the cosines of a model; equal seeds give the same pairs for every model."""
    unit = unit_length(vectors.astype(np.float64))
    cosine = np.round(unit @ unit.T, 9)
    count = len(unit)
    draw = np.random.default_rng(seed)
    first = draw.integers(count, size=PAIRS)
    second = (first + draw.integers(1, count, size=PAIRS)) % count
    np.fill_diagonal(cosine, -np.inf)
    ranks = rankdata(cosine, axis=1) / count
    return Similarities((rankdata(cosine[first, second]) / PAIRS).astype(np.float32), ranks.astype(np.float32))


def agreement(models: Sequence[Similarities]) -> Mapping[str, np.ndarray]:
    """Return how well each model agrees with the mean rank of the others [M]: over pairs, and in the nearest neighbours."""
    pairs, rows = (np.sum([model[part] for model in models], axis=0, dtype=np.float64) for part in (0, 1))
    by_pairs, by_neighbours = [], []
    for model in models:
        by_pairs.append(np.corrcoef(rankdata(pairs - model.pairs), model.pairs)[0, 1])
        nearest = (np.argsort(-ranks, axis=1, kind="stable")[:, :NEIGHBOURS] for ranks in (rows - model.rows, model.rows))
        by_neighbours.append(np.mean([len(np.intersect1d(*both)) / NEIGHBOURS for both in zip(*nearest, strict=True)]))
    return {"agreement of pairs": np.array(by_pairs), "agreement of neighbours": np.array(by_neighbours)}
