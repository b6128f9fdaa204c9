"""Multi-view losses against NumPy and finite differences, the shapes of the paper, and what the method refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb.errors import ConfigError
from jax_sentemb.losses import context_loss, negative_sampling, remove_top_direction, towards_orthonormal_rows
from jax_sentemb.methods.multi_view import MultiView, draw_words
from jax_sentemb.models.bert import Bert, BertConfig
from jax_sentemb.models.rnn import run_rnn
from jax_sentemb.models.word_vectors import WordsConfig, WordVectors
from jax_sentemb.types import Batch, Rows, TrainState

NO_STATE = TrainState({}, None, None, None, None, None)
SEEDS = np.zeros(8, np.uint32)  # of dropout, which these encoders do not have

ENCODER = WordVectors(WordsConfig(30, 4))
RANDOM = np.random.default_rng(0)
LOADED = {
    "frozen": {
        "vectors": RANDOM.normal(size=(30, 4)).astype(np.float32),
        "counts": np.r_[0, 0, RANDOM.integers(1, 9, 28)].astype(np.float32),
    }
}


def objective(method, params, state, given):
    return jax.jit(
        lambda params, state: method.objective(params, state, method.encode(ENCODER, params, state, given, SEEDS))
    )(params, state)  # fmt: skip


def embed(method, params, rows):
    return jax.jit(lambda params: method.embed(ENCODER, params, rows))(params)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_the_top_direction_is_the_singular_vector():
    vectors = RANDOM.normal(size=(9, 14)) + 0.5
    top = np.linalg.svd(vectors)[2][0]
    expected = vectors - np.outer(vectors @ top, top)
    remove = jax.jit(remove_top_direction, static_argnums=1)
    np.testing.assert_allclose(remove(jnp.array(vectors, jnp.float32), 60), expected, atol=1e-5)
    np.testing.assert_allclose(remove(jnp.zeros((3, 4)), 5), 0.0)
    # The direction counts as fixed: the gradient of the sum of what remains is 1 - (sum of the direction) * direction.
    gradient = jax.jit(jax.grad(lambda values: remove(values, 60).sum()))(jnp.array(vectors, jnp.float32))
    np.testing.assert_allclose(gradient, np.tile(1 - top.sum() * top, (9, 1)), atol=1e-4)


@pytest.mark.parametrize(("context", "itself"), [(1, True), (3, True), (2, False)])
def test_neighbours_in_the_corpus_are_the_right_answers(context, itself):
    agreement = RANDOM.normal(size=(7, 7))
    losses, first = [], 0
    for i in range(7):
        columns = [j for j in range(7) if itself or j != i]
        total = sum(np.exp(agreement[i, j]) for j in columns)
        near = [j for j in columns if abs(i - j) <= context]
        losses += [-np.log(np.exp(agreement[i, j]) / total) for j in near]
        first += max(columns, key=lambda j: agreement[i, j]) in near
    unit_vectors = jnp.eye(7)  # the products with them are the agreement
    ours = jax.jit(lambda values: context_loss(values, unit_vectors, context, itself))
    loss, accuracy = ours(jnp.array(agreement))
    assert float(loss) == pytest.approx(np.mean(losses), rel=1e-5)
    assert float(accuracy) == pytest.approx(first / 7)
    step = RANDOM.normal(size=(7, 7))
    ends = [float(ours(jnp.array(agreement + sign * 1e-2 * step))[0]) for sign in (1, -1)]
    gradient = jax.jit(jax.grad(lambda values: ours(values)[0]))(jnp.array(agreement))
    assert np.isfinite(gradient).all()
    assert float((gradient * step).sum()) == pytest.approx((ends[0] - ends[1]) / 2e-2, rel=1e-2)


def test_words_of_the_next_sentence_against_drawn_ones():
    predicted, words, negatives = RANDOM.normal(size=(2, 3)), RANDOM.normal(size=(2, 4, 3)), RANDOM.normal(size=(2, 4, 5, 3))
    mask = np.array([[1, 1, 0, 0], [1, 1, 1, 1]], np.float32)
    losses = [
        -np.log(sigmoid(predicted[i] @ words[i, t])) - sum(np.log(sigmoid(-predicted[i] @ other)) for other in negatives[i, t])
        for i in range(2)
        for t in range(4)
        if mask[i, t]
    ]
    found = jax.jit(negative_sampling)(*(jnp.array(values) for values in (predicted, words, negatives, mask)))
    assert float(found) == pytest.approx(np.mean(losses), rel=1e-5)


def test_rows_come_closer_to_orthonormal():
    np.testing.assert_allclose(towards_orthonormal_rows(jnp.diag(jnp.array([2.0, 1.0])), 0.01), [[1.94, 0], [0, 1]], atol=1e-6)
    matrix = jnp.array(RANDOM.normal(size=(3, 8)) * 0.5)
    matrix = jax.jit(lambda matrix: jax.lax.fori_loop(0, 2000, lambda _, rows: towards_orthonormal_rows(rows, 0.01), matrix))(
        matrix
    )
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(3), atol=1e-5)


def test_the_published_shape_has_the_published_number_of_parameters():
    encoder = WordVectors(WordsConfig(10, 300))
    learned = jax.eval_shape(lambda key: MultiView().init(encoder, {}, key).params, jax.random.key(0))
    trained = {name: part for name, part in learned.items() if name != "log_temperature"}
    # 2 directions x 3 gates x 1024 x (300 + 1024 + two biases), and 300 x 2048.
    assert sum(leaf.size for leaf in jax.tree.leaves(trained)) == 8_761_344


def test_linear_maps_start_as_he_has_it():
    encoder, loaded = WordVectors(WordsConfig(10, 60)), {"frozen": {"vectors": np.zeros((10, 60), np.float32)}}
    params = MultiView(form="both", hidden=40).init(encoder, loaded, jax.random.key(0)).params
    assert params["U"].shape == params["g"]["kernel"].shape == (60, 80)
    assert float(params["U"].std()) == pytest.approx((2 / 80) ** 0.5, rel=0.03)  # U maps views of 80 to words of 60
    assert float(params["g"]["kernel"].std()) == pytest.approx((2 / 60) ** 0.5, rel=0.03)
    assert (params["U"] != params["g"]["kernel"] * (60 / 80) ** 0.5).all()
    for direction in params["f"].values():
        assert direction["input"]["bias"].tolist() == [1.0] * 80 + [0.0] * 40  # two gates and the candidate


def test_both_objectives_are_added_and_three_views_embed():
    method = MultiView(form="both", hidden=3, context=2, invertible=False)
    method.check(ENCODER, 6)
    params, given = method.init(ENCODER, LOADED, jax.random.key(1)).params, batch()
    state = TrainState(params, None, None, None, jax.random.key_data(jax.random.key(3)), jnp.int32(5))
    loss, (metrics, _) = objective(method, params, state, given)
    parts = []
    for form in ("discriminative", "generative"):
        alone = MultiView(form=form, hidden=3, context=2)
        parts.append(float(objective(alone, params, state, given)[0]))
    assert float(loss) == pytest.approx(sum(parts), rel=1e-5)
    u = np.array(params["U"], np.float64)
    assert float(metrics["orthonormality"]) == pytest.approx(np.sqrt(((u @ u.T - np.eye(4)) ** 2).sum()), rel=1e-5)
    words = LOADED["frozen"]["vectors"][given.tokens] * given.mask[..., None]
    h = words.sum(1) / given.mask.sum(1, keepdims=True) @ u
    h = h / np.linalg.norm(h, axis=1, keepdims=True)
    view = {name: embed(MultiView(form="both", hidden=3, ensemble=name), params, given.rows) for name in "fgh"}
    np.testing.assert_allclose(view["h"], h, atol=1e-5)
    np.testing.assert_allclose(embed(method, params, given.rows), (view["f"] + view["g"] + view["h"]) / 3, atol=1e-6)
    wide = embed(MultiView(form="both", hidden=3, ensemble="concatenation"), params, given.rows)
    np.testing.assert_allclose(wide, np.concatenate([view["f"], view["g"], view["h"]], axis=1), atol=1e-6)
    assert wide.shape == (6, 3 * 6)


def batch():
    tokens = RANDOM.integers(2, 30, (6, 5)).astype(np.int32)
    mask = np.arange(5) < np.array([[5], [1], [3], [4], [2], [5]])
    return Batch(np.where(mask, tokens, 0).astype(np.int32), mask)


@pytest.mark.parametrize("views", ["fg", "f", "g", "ff", "gg"])
def test_the_discriminative_objective_is_that_of_its_views(views):
    method = MultiView(views=views, hidden=3, context=2, iterations=80, temperature=0.7)
    method.check(ENCODER, 6)
    params = method.init(ENCODER, LOADED, jax.random.key(1)).params
    given = batch()
    loss, (metrics, _) = objective(method, params, NO_STATE, given)
    words = LOADED["frozen"]["vectors"][given.tokens] * given.mask[..., None]
    made = []
    for name in {"fg": ("f", "g"), "f": ("f",), "g": ("g",), "ff": ("f", "f2"), "gg": ("g", "g2")}[views]:
        if name[0] == "f":
            view = np.array(run_rnn("gru", params[name], words, given.mask).last, np.float64)
        else:
            view = words.sum(1) / given.mask.sum(1, keepdims=True) @ np.array(params[name]["kernel"], np.float64)
        top = np.linalg.svd(view)[2][0]
        view = view - np.outer(view @ top, top)
        made.append(view / np.linalg.norm(view, axis=1, keepdims=True))
    cosines = made[0] @ made[-1].T
    agreement = cosines if len(made) == 1 else cosines + cosines.T
    expected, _ = context_loss(jnp.array(agreement / 0.7, jnp.float32), jnp.eye(len(cosines)), 2, views == "fg")
    assert float(loss) == pytest.approx(float(expected), rel=1e-3)
    assert float(metrics["temperature"]) == pytest.approx(0.7)


def test_negative_words_follow_the_counts():
    counts = np.zeros(30, np.float32)
    counts[[5, 9]] = 1, 16  # to the power of 0.75: 1 and 8
    drawn = np.asarray(jax.jit(draw_words, static_argnums=2)(jax.random.key(0), jnp.array(counts), (100, 200)))
    assert set(np.unique(drawn)) == {5, 9}
    assert (drawn == 9).mean() == pytest.approx(8 / 9, abs=0.01)


def test_the_generative_objective_looks_at_the_next_sentence_with_new_negatives_each_step():
    method = MultiView(form="generative", hidden=3, context=1)
    params = method.init(ENCODER, LOADED, jax.random.key(0)).params
    given = batch()

    @jax.jit
    def objective_of(params, step, tokens):
        state = TrainState(params, None, None, None, jax.random.key_data(jax.random.key(3)), step)
        encoded = method.encode(ENCODER, params, state, Batch(tokens, given.mask), SEEDS)
        encoded = encoded._replace(views=method.encode(ENCODER, params, state, given, SEEDS).views)
        return method.objective(params, state, encoded)[0]

    def loss(params, step, tokens=given.tokens):
        return float(objective_of(params, jnp.int32(step), tokens))

    assert loss({**params, "U": 0 * params["U"]}, 0) == pytest.approx(6 * np.log(2), rel=1e-5)  # a word and five others
    assert loss(params, 0) != loss(params, 1)
    first, last = given.tokens.copy(), given.tokens.copy()
    first[0], last[-1] = first[0] % 20 + 3, last[-1] % 20 + 3
    assert loss(params, 0, first) == pytest.approx(loss(params, 0))  # nobody predicts the first sentence
    assert loss(params, 0, last) != pytest.approx(loss(params, 0), rel=1e-4)


def test_the_embedding_is_of_unit_views_and_knows_no_padding():
    params = MultiView(hidden=3).init(ENCODER, LOADED, jax.random.key(0)).params
    given = batch().rows
    parts = {name: embed(MultiView(hidden=3, ensemble=name), params, given) for name in ("f", "g", "concatenation", "average")}
    np.testing.assert_allclose(np.linalg.norm(parts["f"], axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(parts["concatenation"], np.concatenate([parts["f"], parts["g"]], axis=1), atol=1e-6)
    np.testing.assert_allclose(parts["average"], (parts["f"] + parts["g"]) / 2, atol=1e-6)
    empty = embed(MultiView(hidden=3), params, Rows(given.tokens, np.zeros_like(given.mask)))
    np.testing.assert_allclose(empty, 0.0)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"form": "contrastive"}, "is not one of discriminative, generative, both"),
        ({"views": "h"}, "is not one of fg"),
        ({"views": "ff", "form": "generative"}, "give fg or"),
        ({"ensemble": "g", "views": "f"}, "is not average, concatenation or f"),
        ({"ensemble": "h"}, "is not average, concatenation or f or g"),
        ({"ensemble": "h", "pooling": "last", "form": "both"}, "a linear view has no last state"),
        ({"pooling": "mean+last", "form": "both"}, "f is wider than g"),
        ({"hidden": 0}, "at least 1"),
        ({"temperature": 0.0}, "must be above 0"),
        ({"context": 8}, "below data.batch_size=8"),
    ],
)
def test_settings_that_do_not_fit_are_one_line(settings, says):
    with pytest.raises(ConfigError, match=says) as caught:
        MultiView(**settings).check(ENCODER, 8)
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="works on word vectors"):
        MultiView().check(Bert(BertConfig()), 8)
    MultiView(form="generative").check(ENCODER, 3)  # which has no `context`
