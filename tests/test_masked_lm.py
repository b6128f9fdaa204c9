"""Masked-language-model loss: what is selected, what becomes of it, and the cross entropy of exactly that."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb.errors import ConfigError
from jax_sentemb.methods.masked_lm import MaskedLM, masked_lm_loss
from jax_sentemb.models.bert import Bert, BertConfig
from jax_sentemb.models.head import init_token_head, token_logits
from jax_sentemb.types import Rows

CONFIG = BertConfig(
    vocab_size=50, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
    max_position_embeddings=40, mask_token_id=4, initializer_range=0.3,
)  # fmt: skip


class Recorder:
    """Stands for an encoder: keeps the rows that it is given, answers with fixed states."""

    config, dtype = CONFIG, jnp.float32

    def apply(self, variables, rows, seeds):
        self.rows = rows
        random = np.random.default_rng(0)
        return SimpleNamespace(hidden=[jnp.array(random.normal(size=(*rows.tokens.shape, 8)), jnp.float32)])


@pytest.fixture(scope="module")
def params():
    random = np.random.default_rng(1)
    head = jax.tree.map(lambda leaf: leaf + 0.1 * random.normal(size=leaf.shape), init_token_head(jax.random.key(0), 8, 50))
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
    encoder, given = Recorder(), rows(4000)
    seeds = jnp.arange(4000, dtype=jnp.uint32)
    _, count, _ = masked_lm_loss(encoder, params, given, seeds, 0.15)
    seen = np.asarray(encoder.rows.tokens)
    changed = seen != given.tokens
    inner = given.mask & ~np.isin(given.tokens, (2, 3))
    assert not changed[~inner].any()  # [CLS], [SEP], [PAD]
    selected = float(count.sum())
    assert selected / inner.sum() == pytest.approx(0.15, abs=0.005)
    assert (seen == 4).sum() / selected == pytest.approx(0.8, abs=0.015)
    # A random token is the token itself one time in fifty.
    assert (changed & (seen != 4)).sum() / selected == pytest.approx(0.1 * 49 / 50, abs=0.01)
    assert np.unique(seen[changed & (seen != 4)]).size > 40


def test_the_loss_is_the_cross_entropy_of_the_selected_tokens(params):
    encoder, given = Recorder(), rows(6)
    loss, count, right = masked_lm_loss(encoder, params, given, jnp.arange(6, dtype=jnp.uint32), 0.999)
    states = encoder.apply(None, given, None).hidden[-1]
    logits = np.asarray(token_logits(params["token_head"], params["encoder"]["embeddings"]["word"], states, encoder), np.float64)
    inner = given.mask & ~np.isin(given.tokens, (2, 3))
    log_probability = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    taken = np.take_along_axis(log_probability, given.tokens[..., None], -1)[..., 0]
    np.testing.assert_array_equal(count, inner.sum(1))
    np.testing.assert_allclose(loss, -(taken * inner).sum(1), rtol=1e-4)
    np.testing.assert_array_equal(right, ((logits.argmax(-1) == given.tokens) & inner).sum(1))


def test_few_are_asked_for_but_none_is_lost_and_padding_changes_nothing(params):
    given = rows(200)
    seeds = jnp.arange(200, dtype=jnp.uint32)
    encoder = Bert(CONFIG, jnp.float32, 0.0)
    real = {**params, "encoder": jax.jit(encoder.init)(jax.random.key(0), Rows(given.tokens[:1], given.mask[:1]))["params"]}
    loss, count, _ = masked_lm_loss(encoder, real, given, seeds, 0.15)
    wide = Rows(*(np.pad(values, ((0, 0), (0, 16))) for values in given))
    more, same_count, _ = masked_lm_loss(encoder, real, wide, seeds, 0.15)
    np.testing.assert_array_equal(count, same_count)
    np.testing.assert_allclose(loss, more, atol=1e-4)


def test_masks_differ_between_seeds(params):
    encoder, given = Recorder(), rows(50)
    seen = []
    for start in (0, 1000):
        masked_lm_loss(encoder, params, given, start + jnp.arange(50, dtype=jnp.uint32), 0.15)
        seen.append(np.asarray(encoder.rows.tokens))
    assert (seen[0] != seen[1]).any(axis=1).mean() > 0.5


def test_the_objective_is_a_mean_over_selected_tokens():
    method = MaskedLM()
    encoded = SimpleNamespace(loss=jnp.array([4.0, 2.0]), count=jnp.array([2.0, 1.0]), right=jnp.array([1.0, 0.0]))
    loss, (metrics, _) = method.objective({}, None, encoded)
    assert float(loss) == pytest.approx(2.0)
    assert float(metrics["accuracy"]) == pytest.approx(1 / 3)
    for probability in (0.0, 1.0):
        with pytest.raises(ConfigError, match="must be inside 0 to 1"):
            MaskedLM(probability=probability).check(None, 8)


def test_a_head_that_the_directory_has_is_gone_on_with(params):
    encoder = Bert(CONFIG)
    kept = MaskedLM().init(encoder, params, jax.random.key(0)).params["token_head"]
    assert kept is params["token_head"]
    fresh = MaskedLM().init(encoder, {"encoder": params["encoder"]}, jax.random.key(0)).params["token_head"]
    assert fresh["bias"].shape == (50,)
