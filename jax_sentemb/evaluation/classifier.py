"""Train SentEval's classifier: the same folds, initial weights, batches, optimiser and early stopping, many fits in one program.

A *job* is a set of training rows with a set of validation rows. It is trained once for each of its *fits*, which differ in L2 and
dropout and share every batch. Several jobs are trained at the same time in slots; a slot whose job has stopped starts the next job.
Weights [fit, class, width] have torch's layout, in which a CPU computes batched products fastest.

Random numbers are those of SentEval, drawn on the host. NumPy's legacy generator orders the batches, and torch's generator (the
same Mersenne Twister) initialises the layers. Only dropout masks are different.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Float, Int, PRNGKeyArray

from jax_sentemb.errors import RETRAIN, NumericsError
from jax_sentemb.types import Array

SLOTS = 16  # jobs that are trained at the same time: enough work for two cores, and their batches stay in the processor's cache
Layers = dict[str, dict[str, Float[Array, "..."]]]  # "output" and, with a hidden layer, "hidden" -> "weight", "bias"


class ClassifierSettings(NamedTuple):
    """Training of a classifier. The defaults are those with which SentEval's published results were computed."""

    hidden: int = 0  # units of a sigmoid layer; 0: logistic regression
    optimizer: str = "adam"  # or "rmsprop"
    batch_size: int = 64
    tenacity: int = 5  # training stops at the first check without a new best after this many; the count is never reset
    epoch_size: int = 4  # passes over the data between checks
    max_epoch: int = 200  # training stops after this many passes
    loss: str = "cross_entropy"  # or "squared": mean squared error of the class probabilities (relatedness)
    summed: bool = False  # sum of the losses of a batch instead of their mean, as PyTorch <= 0.4.0 computed for SentEval
    seed: int = 1111


class ClassifierJob(NamedTuple):
    """Rows to train on, in the order from which batches are drawn, and rows for early stopping."""

    train: Int[np.ndarray, " train"]
    valid: Int[np.ndarray, " valid"]
    drawn_before: int = 0  # length of the permutation that `validation_job` drew before from the same generator; 0: none


class ClassifierFits(NamedTuple):
    """The best weights of every fit and their scores on the validation rows."""

    params: Layers  # leaves [jobs, fits, ...]
    valid: Float[np.ndarray, "jobs fits"]  # accuracy, or Pearson correlation for the squared loss


def validation_job(rows: Int[np.ndarray, " rows"], seed: int, share: float = 0.05) -> ClassifierJob:
    """Return a job that uses a share of `rows`, drawn as SentEval draws them, for early stopping."""
    order = np.random.RandomState(seed).permutation(len(rows))  # SentEval's generator
    cut = int(share * len(rows))
    return ClassifierJob(rows[order[cut:]], rows[order[:cut]], len(rows))


def fit(
    features: Float[Array, "rows width"],
    targets: Int[np.ndarray, " rows"] | Float[np.ndarray, "rows classes"],
    jobs: Sequence[ClassifierJob],
    l2: Float[np.ndarray, "jobs fits"],
    settings: ClassifierSettings,
    dropout: Float[np.ndarray, " fits"] | None = None,
) -> ClassifierFits:
    """Train each job with each L2 penalty of its row.

    Args:
        features: Finite embeddings.
        targets: Classes from 0. For the squared loss, probabilities of the scores 1..C, whose expectation is the gold score.
        jobs: Training and validation rows.
        l2: Penalties, a row for each job.
        settings: The training; the same for all jobs.
        dropout: Dropout of the hidden layer for each fit; None for no dropout.

    Raises:
        NumericsError: A feature is not finite.
    """
    features = jnp.asarray(features, jnp.float32)
    if not bool(jnp.isfinite(features).all()):
        raise NumericsError(f"features of the classifier are not finite (NaN or Inf); {RETRAIN}")
    squared = settings.loss == "squared"
    classes = targets.shape[1] if squared else int(targets.max()) + 1
    fits = l2.shape[1]
    start = _initial(classes, features.shape[1], settings)
    start = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (fits, *leaf.shape)), start)
    drops = dropout is not None and (dropout > 0).any()
    data = _Data(
        features,
        jnp.asarray(targets, jnp.float32 if squared else jnp.int32),
        _plan(jobs, settings),
        start,
        jnp.asarray(np.concatenate([l2, np.zeros((1, fits))]), jnp.float32),
        jnp.asarray(dropout, jnp.float32) if drops else None,
        jnp.int32(settings.seed),
    )
    # The seed and the number of hidden units are contained in the arrays. Removing them here avoids compiling a program for each.
    best, scores = _train(data, settings=settings._replace(seed=0, hidden=0), slots=min(SLOTS, len(jobs)))
    return ClassifierFits(jax.device_get(best), np.asarray(scores, np.float64))


@jax.jit
def probabilities(params: Layers, features: Float[Array, "rows width"]) -> Float[Array, "rows classes"]:
    """Return the class probabilities of one fit, whose leaves do not have the axes of jobs and fits."""
    params = jax.tree.map(lambda leaf: leaf[None], params)
    return jax.nn.softmax(_logits(params, jnp.asarray(features, jnp.float32), None)[0], axis=0).T


# ------------------------------------------------------------------------------------- random numbers, drawn on the host


class _Plan(NamedTuple):
    """The rows and batch orders of all jobs, as arrays."""

    train: Array  # int32 [jobs + 1, n]: rows of X; the last job is empty, for slots without work
    train_rows: Array  # int32 [jobs + 1]
    valid: Array  # int32 [jobs + 1, m]
    valid_rows: Array  # int32 [jobs + 1]
    orders: Array  # int32 [streams, passes, n]: the order of the training rows in each pass
    stream: Array  # int32 [jobs + 1]: which of the orders a job follows


def _plan(jobs: Sequence[ClassifierJob], settings: ClassifierSettings) -> _Plan:
    """Return the jobs as arrays. Jobs with equally many rows share their orders, because every fit starts from the same seed."""
    steps = -(-max(len(job.train) for job in jobs) // settings.batch_size)
    rounds = settings.max_epoch // settings.epoch_size + 1
    streams: dict[tuple[int, int], int] = {}
    for job in jobs:
        streams.setdefault((job.drawn_before, len(job.train)), len(streams))
    orders = np.zeros((len(streams), rounds * settings.epoch_size, steps * settings.batch_size), np.int32)
    for (drawn_before, rows), stream in streams.items():
        generator = np.random.RandomState(settings.seed)  # SentEval's generator
        if drawn_before:
            generator.permutation(drawn_before)
        for index in range(orders.shape[1]):
            orders[stream, index, :rows] = generator.permutation(rows)
    return _Plan(
        *_padded([job.train for job in jobs]),
        *_padded([job.valid for job in jobs]),
        jnp.asarray(orders),
        jnp.array([streams[job.drawn_before, len(job.train)] for job in jobs] + [0], jnp.int32),
    )


def _padded(rows: list[np.ndarray]) -> tuple[Array, Array]:
    table = np.zeros((len(rows) + 1, max(len(row) for row in rows)), np.int32)
    for index, row in enumerate(rows):
        table[index, : len(row)] = row
    return jnp.asarray(table), jnp.array([len(row) for row in rows] + [0], jnp.int32)


def _initial(classes: int, width: int, settings: ClassifierSettings) -> Layers:
    """Return linear layers as torch.manual_seed(seed) leaves them: U(-1/sqrt(in), 1/sqrt(in)), weights first, then biases."""
    generator = np.random.RandomState(settings.seed)  # torch draws from the same Mersenne Twister

    def layer(outputs: int, inputs: int) -> dict[str, Array]:
        bound = 1 / np.sqrt(inputs)

        def draw(*shape: int) -> np.ndarray:
            words = generator.randint(0, 1 << 32, size=shape, dtype=np.uint32)
            return ((words & 0xFFFFFF) / np.float32(1 << 24) * (2 * bound) - bound).astype(np.float32)

        return {"weight": draw(outputs, inputs), "bias": draw(outputs)}

    if not settings.hidden:
        return {"output": layer(classes, width)}
    return {"hidden": layer(settings.hidden, width), "output": layer(classes, settings.hidden)}


# -------------------------------------------------------------------------------------------- training on the device


class _Data(NamedTuple):
    """Features, targets, plan and initial weights of all jobs."""

    features: Array  # float32 [N, D]
    targets: Array  # int32 [N] or float32 [N, C]
    plan: _Plan
    start: Layers  # leaves [fits, ...]
    l2: Array  # float32 [jobs + 1, fits]
    dropout: Array | None  # float32 [fits]; None: no fit uses dropout
    seed: Array  # int32 []


class _Slot(NamedTuple):
    """The state of one job in training."""

    job: Array  # int32 []
    params: Layers  # leaves [fits, ...]
    moments: optax.OptState
    passes: Array  # int32 []
    best: Layers
    score: Array  # float32 [fits], of `best`
    failures: Array  # int32 [fits]
    running: Array  # bool [fits]


@functools.partial(jax.jit, static_argnames=("settings", "slots"))
def _train(data: _Data, *, settings: ClassifierSettings, slots: int) -> tuple[Layers, Array]:
    """Return the best parameters (leaves [jobs, fits, ...]) and their validation scores [jobs, fits]."""
    jobs, fits = len(data.l2) - 1, data.l2.shape[1]
    optimizer = _optimizer(settings)
    new = jax.vmap(functools.partial(_new, data, optimizer))

    def one_round(state: tuple) -> tuple:
        table, results, scores, following = state
        table = _round(data, optimizer, settings, table)
        finished = ~jnp.any(table.running, axis=1)
        row = jnp.where(finished, table.job, jobs)  # unfinished jobs write to the row after the last job, which is discarded
        results = jax.tree.map(lambda saved, best: saved.at[row].set(best), results, table.best)
        scores = scores.at[row].set(table.score)
        job = jnp.minimum(following + jnp.cumsum(finished) - 1, jobs)
        table = jax.tree.map(functools.partial(_where, finished), new(job), table)
        return table, results, scores, following + finished.sum()

    results = jax.tree.map(lambda leaf: jnp.zeros((jobs + 1, *leaf.shape)), data.start)
    state = (new(jnp.arange(slots)), results, jnp.zeros((jobs + 1, fits)), jnp.int32(slots))
    _, results, scores, _ = lax.while_loop(lambda state: state[0].running.any(), one_round, state)
    return jax.tree.map(lambda leaf: leaf[:jobs], results), scores[:jobs]


def _optimizer(settings: ClassifierSettings) -> optax.GradientTransformation:
    """Return PyTorch's Adam or RMSprop, with the learning rates of SentEval."""
    if settings.optimizer == "adam":
        return optax.adam(1e-3)
    return optax.rmsprop(1e-2, decay=0.99, eps=1e-8, eps_in_sqrt=False)


def _where(condition: Array, new: Array, old: Array) -> Array:
    """Return `new` for the leading entries at which the condition [n] is true, else `old`; arrays [n, ...]."""
    return jnp.where(condition.reshape(-1, *[1] * (old.ndim - 1)), new, old)


def _new(data: _Data, optimizer: optax.GradientTransformation, job: Array) -> _Slot:
    """Return a slot at the start of a job; an idle slot if `job` is beyond the last job."""
    fits = data.l2.shape[1]
    return _Slot(
        job=job,
        params=data.start,
        moments=optimizer.init(data.start),
        passes=jnp.int32(0),
        best=data.start,
        score=jnp.full(fits, -1.0),
        failures=jnp.zeros(fits, jnp.int32),
        running=jnp.full(fits, job < len(data.l2) - 1),
    )


def _round(data: _Data, optimizer: optax.GradientTransformation, settings: ClassifierSettings, table: _Slot) -> _Slot:
    """Train every slot (leaves [slots, ...]) for `epoch_size` passes, then check it."""
    steps = data.plan.orders.shape[2] // settings.batch_size

    def batch(slot: _Slot, step: Array) -> tuple[Layers, optax.OptState]:
        return _batch(data, optimizer, settings, slot, step)

    def advance(step: Array, trained: tuple[Layers, optax.OptState]) -> tuple[Layers, optax.OptState]:
        return jax.vmap(batch, (0, None))(table._replace(params=trained[0], moments=trained[1]), step)

    params, moments = lax.fori_loop(0, steps * settings.epoch_size, advance, (table.params, table.moments))
    table = table._replace(params=params, moments=moments, passes=table.passes + settings.epoch_size)
    return jax.vmap(functools.partial(_check, data, settings))(table)


def _batch(
    data: _Data, optimizer: optax.GradientTransformation, settings: ClassifierSettings, slot: _Slot, step: Array
) -> tuple[Layers, optax.OptState]:
    """Parameters and moments after one batch; unchanged if the job has no batch left in this pass."""
    plan = data.plan
    steps = plan.orders.shape[2] // settings.batch_size
    first = step % steps * settings.batch_size
    order = lax.dynamic_slice(plan.orders, (plan.stream[slot.job], slot.passes + step // steps, first), (1, 1, settings.batch_size))
    rows = plan.train[slot.job].at[order[0, 0]].get(mode="promise_in_bounds")
    valid = first + jnp.arange(settings.batch_size) < plan.train_rows[slot.job]
    weight = valid if settings.summed else valid / jnp.maximum(valid.sum(), 1)
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(data.seed), slot.job), slot.passes * steps + step)

    def loss(params: Layers) -> Array:
        x = jnp.asarray(data.features).at[rows].get(mode="promise_in_bounds")
        values = _losses(_logits(params, x, data.dropout, key), data.targets[rows], settings)
        return (values * weight).sum()  # also over the fits, each of which has its own parameters

    gradient = jax.grad(loss)(slot.params)
    gradient = jax.tree.map(lambda g, p: g + data.l2[slot.job].reshape(-1, *[1] * (p.ndim - 1)) * p, gradient, slot.params)
    updates, moments = optimizer.update(gradient, slot.moments)
    moved = optax.apply_updates(slot.params, updates), moments
    return jax.tree.map(lambda new, old: jnp.where(valid.any(), new, old), moved, (slot.params, slot.moments))


def _check(data: _Data, settings: ClassifierSettings, slot: _Slot) -> _Slot:
    """Check a slot after a round: keep better weights, count failures, and stop fits after too many of them."""
    rows = data.plan.valid[slot.job]
    valid = jnp.arange(rows.shape[0]) < data.plan.valid_rows[slot.job]
    score = _scores(_logits(slot.params, data.features[rows], None), data.targets[rows], valid, settings)
    better = slot.running & (score > slot.score)
    stop = slot.running & ~better & (slot.failures >= settings.tenacity)
    return slot._replace(
        best=jax.tree.map(functools.partial(_where, better), slot.params, slot.best),
        score=jnp.where(better, score, slot.score),
        failures=slot.failures + ~better,
        running=slot.running & ~stop & (slot.passes <= settings.max_epoch),
    )


def _logits(params: Layers, x: Array, dropout: Array | None, key: PRNGKeyArray | None = None) -> Array:
    """Return the scores [fits, C, n] of x [n, D] minus those of class 0: the softmax is the same, and one product is saved."""
    if "hidden" in params:
        hidden = _linear(params["hidden"]["weight"], params["hidden"]["bias"], x)
        if dropout is not None and key is not None:  # before the sigmoid, as in SentEval
            keep = jax.random.uniform(key, hidden.shape) >= dropout[:, None, None]
            hidden = jnp.where(keep, hidden / (1 - dropout[:, None, None]), 0.0)
        weight, bias = _contrast(params["output"])
        values = jnp.einsum("fch,fhn->fcn", weight, jax.nn.sigmoid(hidden)) + bias[..., None]
    else:
        values = _linear(*_contrast(params["output"]), x)
    return jnp.concatenate([jnp.zeros_like(values[:, :1]), values], axis=1)


def _contrast(layer: dict[str, Array]) -> tuple[Array, Array]:
    return layer["weight"][:, 1:] - layer["weight"][:, :1], layer["bias"][:, 1:] - layer["bias"][:, :1]


def _linear(weight: Array, bias: Array, x: Array) -> Array:
    """Return [fits, outputs, n], computed as one product over all fits."""
    fits, outputs, width = weight.shape
    return (x @ weight.reshape(fits * outputs, width).T).T.reshape(fits, outputs, len(x)) + bias[..., None]


def _losses(logits: Array, targets: Array, settings: ClassifierSettings) -> Array:
    """Return the loss of every fit and row [fits, n]."""
    if settings.loss == "squared":  # torch takes the mean over rows and classes
        return jnp.square(jax.nn.softmax(logits, axis=1) - targets.T).mean(axis=1)
    picked = jnp.take_along_axis(logits, targets[None, None], axis=1)[:, 0]
    return jax.nn.logsumexp(logits, axis=1) - picked


def _scores(logits: Array, targets: Array, valid: Array, settings: ClassifierSettings) -> Array:
    """Return the accuracy [fits], or for the squared loss Pearson's r of expectation and gold (0 if either is constant)."""
    if settings.loss != "squared":
        return ((logits.argmax(axis=1) == targets) * valid).sum(axis=1) / jnp.maximum(valid.sum(), 1)
    grades = jnp.arange(1, logits.shape[1] + 1)
    expected, gold = jnp.einsum("fcn,c->fn", jax.nn.softmax(logits, axis=1), grades), targets @ grades
    count = jnp.maximum(valid.sum(), 1)
    expected = jnp.where(valid, expected - (expected * valid).sum(axis=1, keepdims=True) / count, 0.0)
    gold = jnp.where(valid, gold - (gold * valid).sum() / count, 0.0)
    return jnp.nan_to_num((expected @ gold) / jnp.sqrt(jnp.square(expected).sum(axis=1) * jnp.square(gold).sum()))
