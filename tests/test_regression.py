"""Regression of a static table on sentence vectors: the start is the least-squares map, and training comes nearer."""

import jax
import numpy as np
import pytest

from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.distillation import regression
from jax_sentemb.distillation.regression import BLOCK, Regression, fit_table, linear_start, loss_of, project
from jax_sentemb.errors import DataError, NotFinite
from jax_sentemb.inference.static import LONGEST, Pieces
from jax_sentemb.types import Rows

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "red", "green", "blue"]
RANDOM = np.random.default_rng(0)
SENTENCES = [" ".join(RANDOM.choice(WORDS, RANDOM.integers(1, 9))) for _ in range(300)]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(SENTENCES, 80)


def shares(tokenizer, rows=None):
    return Pieces(tokenizer).share_matrix(SENTENCES if rows is None else SENTENCES[rows], LONGEST, tokenizer.vocab_size)[0]


@pytest.fixture(scope="module")
def targets(tokenizer):
    """Sentence vectors that are exactly means of hidden piece vectors."""
    return np.asarray(shares(tokenizer) @ RANDOM.normal(size=(tokenizer.vocab_size, 6)), np.float32)


def cosine(tokenizer, table, wanted):
    found = shares(tokenizer) @ table
    found = found / np.linalg.norm(found, axis=1, keepdims=True)
    return float((found * wanted / np.linalg.norm(wanted, axis=1, keepdims=True)).sum(1).mean())


def test_the_projection_keeps_all_variance_at_full_width(targets):
    projection = project(targets, 6)
    centred = targets - targets.mean(axis=0)
    np.testing.assert_allclose(np.linalg.norm(projection(targets), axis=1), np.linalg.norm(centred, axis=1), rtol=1e-4)
    assert project(targets, 2)(targets).std(axis=0)[0] >= project(targets, 2)(targets).std(axis=0)[1]


def test_the_start_is_the_map_of_least_squares_at_length_one(tokenizer, targets):
    table = RANDOM.normal(size=(tokenizer.vocab_size, 6))
    projection = project(targets, 6)
    found = shares(tokenizer) @ linear_start(table, lambda rows: shares(tokenizer, rows) @ table, targets, projection)
    inputs = np.asarray(shares(tokenizer) @ table)
    expected = inputs @ np.linalg.lstsq(inputs, projection(targets), rcond=None)[0]
    np.testing.assert_allclose(found / found.std(), expected / expected.std(), atol=2e-2)
    assert np.sqrt((np.asarray(found) ** 2).sum(1).mean()) == pytest.approx(1, abs=1e-3)


@pytest.fixture
def sizes(monkeypatch):
    """The number of rows of each batch, with those that are repeated."""
    pad, rows = regression.pad, []
    monkeypatch.setattr(regression, "pad", lambda batch, *arguments: rows.append(len(batch)) or pad(batch, *arguments))
    return rows


def test_training_comes_near_to_the_targets_and_is_reproducible(tokenizer, targets, sizes):
    projection = project(targets, 6)
    start = RANDOM.normal(0, 0.1, (tokenizer.vocab_size, 6)).astype(np.float32)
    settings, seen = Regression(epochs=25, batch_size=64, learning_rate=0.03), []
    table = fit_table(start, SENTENCES, tokenizer, targets, projection, settings, lambda rows, loss: seen.append(rows))
    wanted = projection(targets)
    assert cosine(tokenizer, start, wanted) < 0.5 < 0.95 < cosine(tokenizer, table, wanted)
    assert sizes == 25 * 5 * [64]  # one shape: the last batch of an epoch repeats rows
    assert seen == 25 * [64, 64, 64, 64, 300 - 4 * 64]  # which are not counted again
    np.testing.assert_array_equal(fit_table(start, SENTENCES, tokenizer, targets, projection, settings), table)


def test_a_rate_that_is_too_high_is_named(tokenizer, targets):
    start = np.full((tokenizer.vocab_size, 6), np.nan, np.float32)
    with pytest.raises(NotFinite, match="lower --learning-rate"):
        fit_table(start, SENTENCES, tokenizer, targets, project(targets, 6), Regression(2, 64))


def test_a_last_step_that_spoils_the_table_is_named(tokenizer, targets):
    table = np.ones((tokenizer.vocab_size, 6), np.float32)
    with pytest.raises(NotFinite, match="squared lengths of inf"):
        fit_table(table, SENTENCES, tokenizer, targets, project(targets, 6), Regression(1, 300, 1e30))


def test_a_batch_is_at_most_a_block(tokenizer, targets, sizes):
    table = np.ones((tokenizer.vocab_size, 6), np.float32)
    fit_table(table, SENTENCES, tokenizer, targets, project(targets, 6), Regression(1, 10**6))
    assert sizes == [BLOCK]


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (lambda rows: rows * 0 + 3, "the same vector"),
        (lambda rows: np.where(np.arange(len(rows))[:, None] == 6, np.nan, rows), "row 6 has NaN"),
    ],
)
def test_vectors_that_teach_nothing_are_refused(targets, spoil, named):
    with pytest.raises(DataError, match=named):
        project(spoil(targets), 3)


def test_a_sentence_without_pieces_has_no_gradient():
    mask = np.array([[True, True], [False, False]])
    rows, targets = Rows(np.array([[1, 2], [0, 0]], np.int32), mask), np.eye(2, dtype=np.float32)
    gradient = jax.grad(lambda table: loss_of({"table": table}, rows, targets))(np.ones((3, 2), np.float32))
    assert np.isfinite(gradient).all()
    assert np.abs(gradient[1:]).min() > 0 == np.abs(gradient[0]).max()
