"""Attention mutual information: positions, slices, and the whole term against NumPy from full attention tensors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb.errors import ConfigError
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.models.bert import Bert, Capture
from jax_sentemb.types import Rows
from tests.tiny_models import bert_config

CONFIG = bert_config(vocab_size=50, num_hidden_layers=4, initializer_range=0.5)
LENGTHS = np.array([3, 9, 6])

SEEDS = jnp.array([11, 22, 33], jnp.uint32)


def two_views(width):
    random = np.random.default_rng(0)
    tokens = random.integers(5, 50, (3, width))
    mask = np.arange(width) < LENGTHS[:, None]
    rows = Rows(np.repeat(tokens, 2, 0).astype(np.int32), np.repeat(mask, 2, 0))
    return rows, jnp.arange(6, dtype=jnp.uint32) + 100


@pytest.fixture(scope="module")
def bert():
    model = Bert(CONFIG, dropout=0.2)
    rows, _ = two_views(9)
    return model, jax.jit(model.init)(jax.random.key(0), rows)["params"]


def full_attention(bert, rows, seeds):
    model, params = bert

    @jax.jit
    def observed(params):
        output = model.apply({"params": params}, rows, seeds, capture=Capture((1, 2, 3, 4), lambda _, attention: attention))
        return output.observed

    return observed(params)


def information(bert, ami, rows, seeds):
    model, params = bert
    layers = ami.chosen_layers(4)
    positions = ami.sample(SEEDS, jnp.array(LENGTHS), rows.tokens.shape[1], ami.slices(layers, 2))
    capture = ami.capture_attention(positions, layers, 2)

    @jax.jit
    def found(params):
        output = model.apply({"params": params}, rows, seeds, capture=capture)
        return ami.mutual_information(output.observed, positions)

    return positions, *found(params)


@pytest.mark.parametrize("pairing", ["layers", "heads"])
@pytest.mark.parametrize("post_dropout", [True, False])
def test_equals_numpy_on_full_attention_tensors(bert, pairing, post_dropout):
    ami = AttentionMI(samples=40, pairing=pairing, post_dropout=post_dropout)
    rows, seeds = two_views(9)
    positions, got, valid = information(bert, ami, rows, seeds)
    attention = full_attention(bert, rows, seeds)
    maps = {
        "layers": [((1, h), (3, h)) for h in (0, 1)] + [((2, h), (4, h)) for h in (0, 1)],
        "heads": [((layer, 0), (layer, 1)) for layer in (1, 2, 3, 4)],
    }[pairing]
    member, query, key = (np.array(axis) for axis in positions)
    for sentence in range(3):
        for number, pair in enumerate(maps):
            drawn = list(zip(member[sentence, number], query[sentence, number], key[sentence, number], strict=True))
            views, kept = [], []
            for view in (2 * sentence, 2 * sentence + 1):
                maps_of = [(np.array(attention[layer].probabilities), np.array(attention[layer].kept), h) for layer, h in pair]
                views.append([np.log(maps_of[m][0][view, maps_of[m][2], q, k]) for m, q, k in drawn])
                kept.append([maps_of[m][1][view, maps_of[m][2], q, k] for m, q, k in drawn])
            both = np.all(kept, axis=0) if post_dropout else np.ones(40, bool)
            rho = np.corrcoef(np.array(views[0])[both], np.array(views[1])[both])[0, 1]
            assert got[sentence, number] == pytest.approx(-0.5 * np.log(1 - rho**2), rel=2e-3, abs=1e-4)
            assert valid[sentence, number] == pytest.approx(both.mean(), abs=1e-6)


def test_the_order_in_which_layers_are_given_changes_nothing(bert):
    rows, seeds = two_views(9)
    values = [information(bert, AttentionMI(samples=40, layers=layers), rows, seeds)[1] for layers in ((3, 1, 4, 2), (1, 2, 3, 4))]
    np.testing.assert_array_equal(*values)


@pytest.mark.parametrize("sampling", ["stratified", "gumbel", "replacement"])
def test_padding_changes_nothing(bert, sampling):
    ami = AttentionMI(samples=40, sampling=sampling)
    _, narrow, _ = information(bert, ami, *two_views(9))
    rows, seeds = two_views(9)
    wide = Rows(np.pad(rows.tokens, ((0, 0), (0, 3))), np.pad(rows.mask, ((0, 0), (0, 3))))
    _, padded, _ = information(bert, ami, wide, seeds)
    np.testing.assert_allclose(padded, narrow, atol=1e-4)


@pytest.mark.parametrize("sampling", ["stratified", "gumbel", "replacement"])
@pytest.mark.parametrize("padding_queries", [False, True])
def test_positions_lie_inside_and_cover_the_pool(sampling, padding_queries):
    ami = AttentionMI(samples=30, sampling=sampling, padding_queries=padding_queries)
    lengths = jnp.array([4, 7] * 800)
    member, query, key = (np.array(x) for x in ami.sample(jnp.arange(1600, dtype=jnp.uint32), lengths, 10, 3))
    limit = np.array(lengths)[:, None, None]
    assert (key < limit).all()
    assert (query < (10 if padding_queries else limit)).all()
    counts = np.zeros((2, 10 if padding_queries else 7, 7))
    np.add.at(counts, (member[1::2], query[1::2], key[1::2]), 1)
    assert counts.min() > 0.8 * counts.mean()  # every entry equally often: 360 to 514 draws each, four standard errors
    assert counts.max() < 1.2 * counts.mean()


@pytest.mark.parametrize("sampling", ["stratified", "replacement"])
@pytest.mark.parametrize("samples", [2, 150, 3000])
def test_positions_cover_the_pool_of_the_longest_sentences(sampling, samples):
    ami, length = AttentionMI(samples=samples, sampling=sampling), 8192
    seeds, lengths = jnp.arange(8, dtype=jnp.uint32), jnp.full(8, length)
    positions = ami.sample(seeds, lengths, length, 16)
    member, query, key = (np.array(axis, np.int64) for axis in positions)
    index = ((member * length + query) * length + key).reshape(-1, samples)
    if sampling == "stratified":
        assert all(len(set(row)) == samples for row in index.tolist())
        gaps = np.diff(np.sort(index))  # of entries of neighbouring parts: less than two parts
        assert gaps.max() < 2 * 2 * length**2 / samples + 2
    for axis, middle in ((member, 0.5), (query, (length - 1) / 2), (key, (length - 1) / 2)):
        error = 6 * middle / np.sqrt(axis.size)  # more than six standard errors
        assert axis.mean() == pytest.approx(middle, abs=error)
        assert axis.max() == pytest.approx(2 * middle, rel=0.05)


@pytest.mark.parametrize(
    ("sampling", "sums"),
    [("stratified", [600600306, 720207213, 1201535725]), ("replacement", [620594305, 708849066, 1081857018])],
)
def test_the_draws_for_usual_lengths_stay_the_same(sampling, sums):
    """The sums were computed before pools of more than 2^24 entries were drawn from; results of all tables depend on the draws."""
    positions = AttentionMI(samples=150, sampling=sampling).sample(SEEDS, jnp.array([3, 400, 2000]), 2000, 2)
    index = (np.array(positions.member, np.int64) * 2000 + np.array(positions.query)) * 2000 + np.array(positions.key)
    assert index.sum(axis=(1, 2)).tolist() == sums


@pytest.mark.parametrize("sampling", ["stratified", "gumbel"])
def test_a_large_pool_repeats_no_entry(sampling):
    ami = AttentionMI(samples=30, sampling=sampling)
    member, query, key = ami.sample(jnp.arange(20, dtype=jnp.uint32), jnp.full(20, 5), 8, 2)
    index = np.array((member * 8 + query) * 8 + key).reshape(-1, 30)
    assert all(len(set(row)) == 30 for row in index)


def test_identical_views_are_finite_with_finite_gradient(bert):
    model, params = bert
    ami = AttentionMI(samples=20)
    rows, _ = two_views(9)

    def term(params):
        _, value, valid = information((model, params), ami, rows, None)
        return ami.term(value, valid, jnp.array(LENGTHS, jnp.float32))[0]

    value, gradient = jax.jit(jax.value_and_grad(term))(params)
    assert np.isfinite(value)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_term_is_minus_weight_times_mean_with_the_density_factor():
    information, valid = jnp.array([[1.0, 3.0], [2.0, 2.0]]), jnp.array([[0.8, 0.8], [0.5, 0.7]])
    lengths = jnp.array([10.0, 5.0])
    plain, mean = AttentionMI(weight=0.1, density=False).term(information, valid, lengths)
    assert mean == pytest.approx(2.0)
    assert plain == pytest.approx(-0.2)
    dense, _ = AttentionMI(weight=0.1).term(information, valid, lengths)
    density = np.mean([[0.8, 0.8], [0.25, 0.35]])
    assert dense == pytest.approx(-0.2 * (density**2 + 1e-6), rel=1e-5)


def test_short_slices_are_discarded_when_asked_and_kept_if_all_are_short():
    information, valid = jnp.array([[1.0], [5.0]]), jnp.ones((2, 1))
    ami = AttentionMI(weight=1.0, density=False, discard_short=True, samples=150)
    assert ami.term(information, valid, jnp.array([10.0, 4.0]))[1] == pytest.approx(1.0)
    assert ami.term(information, valid, jnp.array([5.0, 4.0]))[1] == pytest.approx(3.0)


def test_default_layers_are_those_of_the_published_code():
    assert AttentionMI().chosen_layers(12) == (8, 9, 10, 11)
    assert AttentionMI().chosen_layers(4) == (1, 2, 3, 4)
    assert AttentionMI().chosen_layers(6) == (2, 3, 4, 5)
    assert AttentionMI().chosen_layers(2) == (1, 2)
    assert AttentionMI().slices((8, 9, 10, 11), 12) == 24


@pytest.mark.parametrize(
    ("depth", "pairing", "expected"),  # of encoders of 12, 6, 4 and 2 layers
    [
        ("paper", "layers", [(9, 10, 11, 12), (3, 4, 5, 6), (1, 2, 3, 4), (1, 2)]),
        ("upper", "layers", [(7, 8, 9, 10, 11, 12), (3, 4, 5, 6), (3, 4), (1, 2)]),
        ("upper", "heads", [(7, 8, 9, 10, 11, 12), (4, 5, 6), (3, 4), (2,)]),
    ],
)
def test_depth_names_the_layers_of_the_paper_and_the_upper_half(depth, pairing, expected):
    ami = AttentionMI(depth=depth, pairing=pairing)
    assert [ami.chosen_layers(layers) for layers in (12, 6, 4, 2)] == expected
    for layers in (12, 6, 4, 2):
        ami.check(layers, 2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"depth": "lower"}, {"depth": "upper", "layers": (3, 4)},
        {"layers": (0, 1)}, {"layers": (1, 5)}, {"layers": (1, 2, 3)}, {"layers": (2, 2)}, {"pairing": "rows"},
        {"sampling": "all"}, {"samples": 1}, {"weight": -1.0},
    ],
)  # fmt: skip
def test_settings_that_cannot_work_are_refused(wrong):
    with pytest.raises(ConfigError) as error:
        AttentionMI(**wrong).check(4, 2)
    assert "\n" not in str(error.value)
    assert "method.ami" in str(error.value)
