"""Train a static table to give the sentence vectors of an encoder: cosine regression over the user's text.

The sentence vectors are read from disk a block at a time, so memory is that of the table, of its optimiser state and of a block.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Float

from jax_sentemb.cosines import unit_length
from jax_sentemb.data.batches import bucket
from jax_sentemb.data.tokenizer import Lines, Tokenizer
from jax_sentemb.data.tokens import pad
from jax_sentemb.errors import DataError, NotFinite
from jax_sentemb.inference.static import Pieces, mean_of_pieces
from jax_sentemb.losses.arrays import l2_normalize
from jax_sentemb.retrieval.sources import RowSubset, VectorSource
from jax_sentemb.types import Array, Params, Rows

BLOCK = 1 << 13  # rows that are read at once, and shuffled
WIDTHS = (16, 32, 64, 128, 256)  # pieces of a row: a batch is cut to the last, and padded to the next
RIDGE = 1e-4  # of the first linear map, as a share of the mean variance


class Regression(NamedTuple):
    """The settings with which a table is trained."""

    epochs: int = 3
    batch_size: int = 256
    learning_rate: float = 5e-3
    seed: int = 0


class Projection(NamedTuple):
    """The principal components of the encoder's sentence vectors: the targets are `(vectors - mean) @ axes`."""

    mean: Float[np.ndarray, " inputs"]
    axes: Float[np.ndarray, "inputs width"]

    def __call__(self, vectors: Float[np.ndarray, "n inputs"]) -> Float[np.ndarray, "n width"]:
        """Return the targets float32 [N, W] of vectors [N, D]."""
        return ((vectors - self.mean) @ self.axes).astype(np.float32)


def project(targets: VectorSource, width: int) -> Projection:
    """Return the first `width` principal components of the rows of `targets` [N, D]; all of them if D is smaller.

    Raises:
        DataError: A row is not finite, or all rows are equal.
    """
    total, products = np.zeros(targets.shape[1]), np.zeros((targets.shape[1],) * 2)
    for start in range(0, len(targets), BLOCK):
        block = np.asarray(targets[start : start + BLOCK], np.float64)
        if len(bad_rows := np.flatnonzero(~np.isfinite(block).all(axis=1))):
            row = start + int(bad_rows[0])
            row = int(targets.rows[row]) if isinstance(targets, RowSubset) else row
            raise DataError(
                f"the vector of row {row} has NaN or Inf: a table cannot be trained on it; remove the row, or choose another model"
            )
        total += block.sum(axis=0)
        products += block.T @ block
    mean = total / len(targets)
    covariance = products / len(targets) - np.outer(mean, mean)
    if np.trace(covariance) <= 1e-12 * np.trace(products) / len(targets):
        raise DataError("all sentences have the same vector: a table cannot be trained on them; give other text or another model")
    return Projection(mean, np.linalg.eigh(covariance)[1][:, ::-1][:, :width])


def linear_start(
    table: Float[np.ndarray, "pieces width"],
    means: Callable[[slice], Float[np.ndarray, "n width"]],
    targets: VectorSource,
    projection: Projection,
) -> Float[np.ndarray, "pieces width"]:
    """Return the table times the ridge map from its sentence vectors to the targets, float32.

    The result is scaled to sentence vectors of length 1 on average, so that one learning rate fits every encoder.

    Args:
        table: The vectors of the pieces.
        means: Returns the sentence vectors of a slice of rows by `table`.
        targets: The encoder's vectors of the sentences.
        projection: The map from the targets to vectors as wide as the table.
    """
    width = table.shape[1]
    gram, cross = np.zeros((width, width)), np.zeros((width, projection.axes.shape[1]))
    for start in range(0, len(targets), BLOCK):
        rows = slice(start, min(start + BLOCK, len(targets)))
        inputs = np.asarray(means(rows), np.float64)
        gram += inputs.T @ inputs
        cross += inputs.T @ projection(targets[rows])
    linear = np.linalg.solve(gram + RIDGE * np.trace(gram) / width * np.eye(width), cross)
    mean_square = (linear * (gram @ linear)).sum() / len(targets)
    return (table @ linear / np.sqrt(max(mean_square, 1e-24))).astype(np.float32)


def loss_of(params: Params, rows: Rows, targets: Float[Array, "batch width"]) -> Float[Array, ""]:
    """Return the mean over the batch of 1 - cosine of the rows' embeddings and their targets."""
    return 1 - (l2_normalize(mean_of_pieces(params["table"], rows, False)) * targets).sum(-1).mean()


def fit_table(
    table: Float[np.ndarray, "pieces width"],
    sentences: Lines,
    tokenizer: Tokenizer,
    targets: VectorSource,
    projection: Projection,
    settings: Regression,
    progress: Callable[[int, float], object] = lambda rows, loss: None,
) -> Float[np.ndarray, "pieces width"]:
    """Train the table with Adam, whose learning rate decays linearly to 0, and return it.

    Args:
        table: The first vectors of the pieces.
        sentences: The text.
        tokenizer: The tokenizer of the table.
        targets: The encoder's vectors of the sentences, in the same order.
        projection: The map from the targets to vectors as wide as the table.
        settings: Epochs, batch size, learning rate and seed.
        progress: Called with the number of rows done since the last call, and the loss of the previous step.

    Raises:
        NotFinite: The loss is NaN or Inf, or the rows of the table have no finite length.
    """
    settings = settings._replace(batch_size=min(settings.batch_size, BLOCK))
    blocks = (min(BLOCK, len(targets) - start) for start in range(0, len(targets), BLOCK))
    steps = settings.epochs * sum(-(-rows // settings.batch_size) for rows in blocks)
    optimizer = optax.adam(optax.linear_schedule(settings.learning_rate, 0.0, steps))

    @jax.jit
    def step(params: Params, state: Any, rows: Rows, unit_targets: Array) -> tuple[Params, Any, Array]:
        loss, gradients = jax.value_and_grad(loss_of)(params, rows, unit_targets)
        updates, state = optimizer.update(gradients, state, params)
        changed: Any = optax.apply_updates(params, updates)
        return changed, state, loss

    def check(number: int, loss: float) -> None:
        if not np.isfinite(loss):
            raise NotFinite(number, f"loss {loss} of the regression: lower --learning-rate")

    params: Params = {"table": jnp.asarray(table)}
    number, state, loss, pending_loss = 0, optimizer.init(params), 0.0, None
    for number, (rows, unit_targets, count) in enumerate(_batches(sentences, tokenizer, targets, projection, settings), 1):
        params, state, step_loss = step(params, state, rows, unit_targets)
        if pending_loss is not None:  # of the step before, so that the device is never waited for
            loss = float(pending_loss)
            check(number - 1, loss)
        pending_loss = step_loss
        progress(count, loss)
    if pending_loss is not None:
        check(number, float(pending_loss))
    if not np.isfinite(lengths := float((params["table"] ** 2).sum())):
        raise NotFinite(number, f"squared lengths of {lengths} in the table: lower --learning-rate")
    return np.array(params["table"])


def _batches(
    sentences: Lines, tokenizer: Tokenizer, targets: VectorSource, projection: Projection, settings: Regression
) -> Iterator[tuple[Rows, np.ndarray, int]]:
    """Yield batches of pieces and unit targets, and the number of different rows in each.

    Blocks and their rows are in random order, which is the same in every run.
    """
    for epoch in range(settings.epochs):
        random = np.random.default_rng([settings.seed, epoch])
        for start in random.permutation(range(0, len(targets), BLOCK)).tolist():
            end = min(start + BLOCK, len(targets))
            pieces, _ = Pieces(tokenizer).encode([sentences[row] for row in range(start, end)], WIDTHS[-1])
            unit_targets = unit_length(projection(targets[start:end]))
            order = random.permutation(end - start)
            for first in range(0, len(order), settings.batch_size):
                distinct = order[first : first + settings.batch_size]
                chosen = np.resize(distinct, settings.batch_size)  # one shape: the last batch of a block repeats rows
                batch = [pieces[row] for row in chosen]
                yield pad(batch, bucket(max(map(len, batch)), WIDTHS), tokenizer.pad_id), unit_targets[chosen], len(distinct)
