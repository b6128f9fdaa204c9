"""Masked-language-model loss: how many tokens are selected, what becomes of them, and the cross entropy of exactly those."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb.errors import ConfigError
from jax_sentemb.methods.masked_lm import MaskedLM, MaskedLosses, masked_lm_loss, select_tokens
from jax_sentemb.models.bert import Bert
from jax_sentemb.models.heads import init_token_head, token_states
from jax_sentemb.types import Rows, TrainState
from tests.tiny_models import bert_config

NO_STATE = TrainState({}, None, None, None, None, None)

CONFIG = bert_config(vocab_size=50, hidden_size=8, intermediate_size=16, max_position_embeddings=40, mask_token_id=4)


class Recorder:
    """Stands for an encoder: keeps the rows that it is given, answers with fixed states of the places that are asked for."""

    config, dtype, dropout, last_layers = CONFIG, jnp.float32, 0.0, 0

    def apply(self, variables, rows, seeds, token_indices):
        self.rows = rows
        states = jnp.array(np.random.default_rng(0).normal(size=(*rows.tokens.shape, 8)), jnp.float32)
        return SimpleNamespace(hidden=[jnp.take_along_axis(states, token_indices[..., None], axis=1)])


def masked(params, given, seeds, probability):
    """What the Recorder is given in place of `given`, and the loss, the count and the right answers."""

    @jax.jit
    def found(params, seeds):
        encoder = Recorder()
        return *masked_lm_loss(encoder, params, given, seeds, probability), encoder.rows.tokens

    *found, seen = found(params, seeds)
    return np.asarray(seen), *found


@pytest.fixture(scope="module")
def params():
    random = np.random.default_rng(1)
    head = jax.tree.map(lambda leaf: leaf + 0.1 * random.normal(size=leaf.shape), init_token_head(jax.random.key(0), CONFIG))
    return {"encoder": {"embeddings": {"word": jnp.array(random.normal(size=(50, 8)), jnp.float32)}}, "token_head": head}


def rows(count, width=24):
    random = np.random.default_rng(2)
    lengths = random.integers(3, width + 1, (count, 1))
    place = np.arange(width)
    tokens = np.where(place < lengths, random.integers(10, 50, (count, width)), 0)
    tokens[:, 0] = 2
    np.put_along_axis(tokens, lengths - 1, 3, axis=1)
    return Rows(tokens.astype(np.int32), place < lengths)


def test_a_share_of_the_inner_tokens_is_selected_most_are_masked_some_replaced_some_kept(params):
    given = rows(4000)
    seen, _, count, _ = masked(params, given, jnp.arange(4000, dtype=jnp.uint32), 0.15)
    changed = seen != given.tokens
    inner = given.mask & ~np.isin(given.tokens, (2, 3))
    assert not changed[~inner].any()  # [CLS], [SEP], [PAD]
    np.testing.assert_array_equal(count, [max(round(0.15 * number), min(number, 1)) for number in inner.sum(1).tolist()])
    selected = float(count.sum())
    assert (seen == 4).sum() / selected == pytest.approx(0.8, abs=0.015)
    # A random token is the token itself one time in fifty.
    assert (changed & (seen != 4)).sum() / selected == pytest.approx(0.1 * 49 / 50, abs=0.01)
    assert np.unique(seen[changed & (seen != 4)]).size > 40


def test_the_loss_is_the_cross_entropy_of_the_selected_tokens(params):
    encoder, given = Recorder(), rows(6)
    _, loss, count, right = masked(params, given, jnp.arange(6, dtype=jnp.uint32), 0.999)
    everywhere = jnp.tile(jnp.arange(given.tokens.shape[1]), (6, 1))
    states = encoder.apply(None, given, None, everywhere).hidden[-1]
    head, words = params["token_head"], params["encoder"]["embeddings"]["word"]
    logits = np.asarray(token_states(head, states, encoder), np.float64) @ np.asarray(words, np.float64).T + head["bias"]
    inner = given.mask & ~np.isin(given.tokens, (2, 3))
    log_probability = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    taken = np.take_along_axis(log_probability, given.tokens[..., None], -1)[..., 0]
    np.testing.assert_array_equal(count, inner.sum(1))
    np.testing.assert_allclose(loss, -(taken * inner).sum(1), rtol=1e-4)
    np.testing.assert_array_equal(right, ((logits.argmax(-1) == given.tokens) & inner).sum(1))


@pytest.mark.parametrize("probability", [0.15, 0.3])
def test_the_selection_is_exact_even_and_spares_separators(probability):
    given = rows(2000)
    given.tokens[:, 7] = 3  # a separator inside a packed row
    maskable = given.mask & ~np.isin(given.tokens, (2, 3))
    select = jax.jit(lambda seeds: select_tokens(given, seeds, probability, 3))
    selected, places, real = select(jnp.arange(2000, dtype=jnp.uint32))
    expected = [max(round(probability * number), min(number, 1)) for number in maskable.sum(1).tolist()]
    np.testing.assert_array_equal(selected.sum(1), expected)
    np.testing.assert_array_equal(real.sum(1), expected)
    assert places.shape[1] == round(probability * 22)  # no room that no row can need
    assert not (np.asarray(selected) & ~maskable).any()
    for chosen, at, some in zip(np.asarray(selected), np.asarray(places), np.asarray(real), strict=True):
        assert sorted(at[some]) == np.flatnonzero(chosen).tolist()
    full = maskable.sum(1) == 21
    share = np.asarray(selected)[full].mean(0)[maskable[full].all(0)]
    assert np.ptp(share) < 6 * (0.25 / full.sum()) ** 0.5  # every place as often as any other


def test_padding_changes_nothing(params):
    given = rows(200)
    seeds = jnp.arange(200, dtype=jnp.uint32)
    encoder = Bert(CONFIG, jnp.float32, 0.0)
    real = {**params, "encoder": jax.jit(encoder.init)(jax.random.key(0), Rows(given.tokens[:1], given.mask[:1]))["params"]}
    encoder = Bert(CONFIG, jnp.float32, 0.2)
    loss, count, _ = jax.jit(lambda params: masked_lm_loss(encoder, params, given, seeds, 0.15))(real)
    wide = Rows(*(np.pad(values, ((0, 0), (0, 16))) for values in given))
    more, same_count, _ = jax.jit(lambda params: masked_lm_loss(encoder, params, wide, seeds, 0.15))(real)
    np.testing.assert_array_equal(count, same_count)
    np.testing.assert_allclose(loss, more, atol=1e-4)


def test_only_selected_tokens_of_the_last_layer_are_computed_and_dropout_is_a_setting(params):
    """Without dropout the loss is that of all states; with it another one."""
    given, seeds = rows(20), jnp.arange(20, dtype=jnp.uint32)
    config = dataclasses.replace(CONFIG, num_hidden_layers=2)
    plain, dropping = Bert(config, jnp.float32, 0.0), Bert(config, jnp.float32, 0.3)
    real = {**params, "encoder": jax.jit(plain.init)(jax.random.key(0), Rows(given.tokens[:1], given.mask[:1]))["params"]}

    class Whole:
        """Computes every state, then takes those that are asked for."""

        config, dtype, dropout, last_layers = plain.config, jnp.float32, 0.0, 0

        def apply(self, variables, rows, seeds, token_indices):
            states = plain.apply(variables, rows).hidden[-1]
            return SimpleNamespace(hidden=[jnp.take_along_axis(states, token_indices[..., None], axis=1)])

    def loss_and_gradient(encoder):
        return jax.jit(jax.value_and_grad(lambda params: masked_lm_loss(encoder, params, given, seeds, 0.3)[0].sum()))(real)

    few, whole, dropped = map(loss_and_gradient, (plain, Whole(), dropping))
    for ours, expected in zip(jax.tree.leaves(few), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-4)
    assert abs(float(dropped[0] - few[0])) > 1e-2


def test_masks_differ_between_seeds(params):
    seen = [masked(params, rows(50), start + jnp.arange(50, dtype=jnp.uint32), 0.15)[0] for start in (0, 1000)]
    assert (seen[0] != seen[1]).any(axis=1).mean() > 0.5


def test_the_objective_is_a_mean_over_selected_tokens():
    method = MaskedLM()
    encoded = MaskedLosses(loss=jnp.array([4.0, 5.0]), selected=jnp.array([2.0, 1.0]), right=jnp.array([1.0, 0.0]))
    loss, (metrics, _) = method.objective({}, NO_STATE, encoded)
    assert float(loss) == pytest.approx(3.0)
    assert float(metrics["accuracy"]) == pytest.approx(1 / 3)
    for probability in (0.0, 1.0):
        with pytest.raises(ConfigError, match="must be above 0 and below 1"):
            MaskedLM(mlm_probability=probability).check(Bert(CONFIG), 8)


def test_a_head_that_the_directory_has_is_gone_on_with(params):
    encoder = Bert(CONFIG)
    kept = MaskedLM().init(encoder, params, jax.random.key(0)).params["token_head"]
    assert kept is params["token_head"]
    fresh = MaskedLM().init(encoder, {"encoder": params["encoder"]}, jax.random.key(0)).params["token_head"]
    assert fresh["bias"].shape == (50,)
