"""experiments/attention_figures: dependency trees, pairs of them, attention of pairs against NumPy, and the pictures."""

import csv
import dataclasses
import functools
import shutil
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb.errors import ConfigError, DataError, NumericsError
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.models.bert import Bert, Capture
from jax_sentemb.reporting import plots
from jax_sentemb.types import Rows
from tests.pages import ROOT
from tests.tiny_models import bert_config

sys.path.insert(0, str(ROOT / "experiments" / "attention_figures"))
import pair_plots
import run as figures
from attention_pairs import attention_values, compare_attention, comparison, slice_names, view_seeds
from conllu import Parse, read_conllu, syntax_pairs
from pair_plots import model_names, pair_panels

CONFIG = bert_config(vocab_size=50, num_hidden_layers=4, max_position_embeddings=20, initializer_range=0.5)


@pytest.fixture(autouse=True)
def _matplotlib():
    pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def bert():
    rows = Rows(np.ones((1, 4), np.int32), np.ones((1, 4), bool))
    return jax.jit(Bert(CONFIG, dropout=0.2).init)(jax.random.key(0), rows)["params"]


def table(picture):
    with picture.with_suffix(".csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def column(picture, name):
    return np.array([float(row[name]) for row in table(picture)])


def heading(picture):
    """The text chunk "Title" of a PNG that opens."""
    from PIL import Image

    with Image.open(picture) as image:
        image.load()
        return image.text["Title"]


def drawn_pairs(path, positive, negative, title):
    return pair_panels(path, {"": {"positive": positive, "negative": negative}}, title)


def word(number, form, head, relation, misc="_"):
    return "\t".join([str(number), form, "_", "_", "_", "_", str(head), relation, "_", misc])


LIFE = [
    word(1, "Life", 2, "nsubj"),
    word(2, "is", 0, "root"),
    word(3, "good", 2, "acomp", "SpaceAfter=No"),
    word(4, ".", 2, "punct"),
]
SPANISH = [
    "# sent_id = 2",
    "# text = Vámonos al mar",
    "1-2\tVámonos" + "\t_" * 8,
    word(1, "Vamos", 0, "root"),
    word(2, "nos", 1, "obj"),
    word(3, "al", 4, "case"),
    "3.1\tx" + "\t_" * 8,
    word(4, "mar", 1, "obl"),
]


def written(tmp_path, *sentences, end="\n\n"):
    file = tmp_path / "parses.conllu"
    file.write_text("\n\n".join("\n".join(lines) for lines in sentences) + end, encoding="utf-8")
    return file


@pytest.mark.parametrize("end", ["\n\n", "\n", ""])
def test_words_and_text_of_sentences(tmp_path, end):
    life, spanish = read_conllu(written(tmp_path, LIFE, SPANISH, end=end))
    assert life == Parse("Life is good.", ((2, "nsubj"), (0, "root"), (2, "acomp"), (2, "punct")))
    assert spanish == Parse("Vámonos al mar", ((0, "root"), (1, "obj"), (4, "case"), (1, "obl")))


def test_a_text_belongs_to_one_sentence(tmp_path):
    assert [parse.text for parse in read_conllu(written(tmp_path, ["# text = A b", *LIFE], LIFE))] == ["A b", "Life is good."]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "no parsed sentence"),
        (["# text = only a comment"], "no parsed sentence"),
        (["1 Life _ _ _ _ 0 root _ _"], ":1: 1 tab-separated fields instead of 10"),
        ([*LIFE[:3], word(4, ".", "_", "punct")], ":4: the head '_' of word 4 is not a number"),
        ([*LIFE[:2], word(4, ".", 2, "punct")], ":3: the words of this sentence are not numbered"),
        ([*LIFE[:3], word(4, ".", 9, "punct")], ":4: head 9 is beyond the 4 words"),
        ([*LIFE[:3], word(4, ".", 0, "root")], ":4: this sentence has 2 roots"),
        ([word(1, "a", 2, "x"), word(2, "b", 1, "y"), word(3, "c", 0, "root")], ":3: word 1 of this sentence is not connected"),
    ],
)
def test_what_is_no_tree_is_refused_with_its_line(tmp_path, lines, says):
    with pytest.raises(DataError, match=says) as caught:
        read_conllu(written(tmp_path, lines))
    assert "\n" not in str(caught.value)


def test_files_that_are_none(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        read_conllu(tmp_path / "absent.conllu")
    (tmp_path / "x").write_bytes(b"\xff")
    with pytest.raises(DataError, match="byte 0 is not UTF-8"):
        read_conllu(tmp_path / "x")


A, B, C = ((0, "root"),), ((2, "det"), (0, "root")), ((2, "amod"), (0, "root"))


def test_pairs_have_the_same_or_different_trees_and_share_their_first_sentence():
    parses = [Parse(f"{name}{number}", tree) for name, tree in (("a", A), ("b", B), ("c", C)) for number in range(6)]
    parses += [Parse("b0", B)] * 5  # a sentence is not paired with itself
    same, different = syntax_pairs(parses, 10)
    assert len(same) == len(different) == 10
    for first, second in same:
        assert parses[first].tree == parses[second].tree
        assert parses[first].text != parses[second].text
    assert all(parses[first].tree != parses[second].tree for first, second in different)
    assert [first for first, _ in same] == [first for first, _ in different]
    assert {parses[first].tree for first, _ in same} == {A, B, C}
    assert len(syntax_pairs(parses, 100)[0]) == 15
    assert (same, different) == syntax_pairs(parses, 10)


@pytest.mark.parametrize("parses", [[Parse("a", A), Parse("b", B)], [Parse("a", A), Parse("b", A)], [Parse("a", A)] * 3])
def test_without_both_kinds_of_pairs_there_is_an_error(parses):
    with pytest.raises(DataError, match="distinct parsed sentences have"):
        syntax_pairs(parses, 5)


def test_models_are_named_by_what_tells_them_apart(tmp_path):
    assert model_names([tmp_path / "simcse"]) == ["simcse"]
    assert model_names([tmp_path / "a" / "export", tmp_path / "b" / "export"]) == ["a/export", "b/export"]
    with pytest.raises(DataError, match="same model twice"):
        model_names([tmp_path, tmp_path])


def test_attention_histograms_give_each_slice_its_correlation(tmp_path):
    first = np.random.default_rng(1).normal(size=(5, 40))
    second = np.stack([first[0], -first[1], first[2] ** 2, first[3] + 1, np.zeros(40)])
    names = [f"slice {letter}" for letter in "abcde"]
    picture = pair_plots.attention_histograms(tmp_path / "a.png", first, second, "two views", names)
    rho = [1, -1, np.corrcoef(first[2], second[2])[0, 1], 1]
    assert heading(picture) == f"two views\nmean ρ {np.mean(rho):.3f}, 5 slices of 40 entries"
    np.testing.assert_array_equal(column(picture, "first"), first.ravel())
    np.testing.assert_array_equal(column(picture, "second"), second.ravel())
    assert [row["slice"] for row in table(picture)] == [name for name in names for _ in range(40)]


def test_semantic_against_attention_prints_the_distance_of_the_means(tmp_path):
    positive, negative = ([0.9, 0.7, 0.8], [1.0, 2.0, 3.0]), ([0.1, 0.3], [0.5, 0.5])
    picture = drawn_pairs(tmp_path / "s.png", positive, negative, "pairs")
    assert heading(picture) == "pairs\npositive minus negative mean: cosine +0.600, attention +1.500"
    assert [row["pair"] for row in table(picture)] == ["positive"] * 3 + ["negative"] * 2
    assert column(picture, "semantic").tolist() == [0.9, 0.7, 0.8, 0.1, 0.3]
    assert column(picture, "attention").tolist() == [1, 2, 3, 0.5, 0.5]


def test_what_is_drawn(tmp_path, monkeypatch):
    drawn = []
    save = plots.save
    monkeypatch.setattr(plots, "save", lambda figure, *rest: (drawn.append(figure), save(figure, *rest))[1])
    random = np.random.default_rng(0)
    cosine, other = random.random(40), random.random(40)
    drawn_pairs(tmp_path / "b", (cosine, other), (other[:5], cosine[:5]), "b")
    pair_plots.attention_histograms(tmp_path / "e", [cosine] * 7, [other] * 7, "e")
    pairs, histograms = drawn
    groups = [points.get_offsets() for points in pairs.axes[0].collections]
    np.testing.assert_array_equal(groups[0], np.stack([cosine, other], 1))
    np.testing.assert_array_equal(groups[1], np.stack([other[:5], cosine[:5]], 1))
    np.testing.assert_allclose(groups[2:], [groups[0].mean(0, keepdims=True), groups[1].mean(0, keepdims=True)])
    shown = [axes for axes in histograms.axes if axes.get_visible() and axes.collections and axes.get_title()]
    assert [axes.collections[0].get_array().sum() for axes in shown] == [40] * 7


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda path: pair_plots.attention_histograms(path, np.zeros((0, 4)), np.zeros((0, 4)), ""), DataError, "first is empty"),
        (lambda path: pair_plots.attention_histograms(path, [[0.0]], [[-np.inf]], ""), NumericsError, "values of second"),
        (lambda path: drawn_pairs(path, ([1], [1]), ([], []), ""), DataError, "negative pairs: nothing to draw"),
    ],
)
def test_what_cannot_be_drawn_is_one_line_and_no_file(tmp_path, call, error, says):
    with pytest.raises(error, match=says):
        call(tmp_path / "x.png")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--model", "nowhere", "--data", "d", "--output", "o"], 4, "nowhere"),
        (["--model", "m", "--data", "d", "--output", "o", "--dropout", "1"], 2, "--dropout 1.0"),
        (["--model", "a", "b", "c", "--data", "d", "--output", "o"], 2, "3 models"),
    ],
)
def test_mistakes_on_the_command_line_are_one_line(arguments, code, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert figures.main(arguments) == code
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert says in error


@pytest.mark.parametrize("views", ["dropout", "gold"])
def test_the_command_on_a_tiny_encoder(views, tmp_path, monkeypatch):
    from jax_sentemb.data.tokenizer import Tokenizer
    from jax_sentemb.formats.sentence_transformers import SentenceModel, write_export

    monkeypatch.setattr(figures, "use_compilation_cache", lambda: None)  # tests have their own
    sentences = [f"{who} {what} a {thing}" for who in ("she", "he", "tom") for what in ("sees", "has") for thing in ("dog", "cat")]
    tokenizer = Tokenizer.train(sentences, 60)
    config = dataclasses.replace(CONFIG, vocab_size=tokenizer.vocab_size)
    params = jax.jit(Bert(config).init)(jax.random.key(0), Rows(np.ones((1, 4), np.int32), np.ones((1, 4), bool)))["params"]
    write_export(tmp_path / "model", SentenceModel(config, {"encoder": params}, tokenizer, pooling="mean", max_seq_length=20))
    folder = tmp_path / "data" / "downstream" / "STS" / "STSBenchmark"
    folder.mkdir(parents=True)
    pairs = [(score, sentences[n], sentences[-n - 1]) for n, score in enumerate((5, 4, 3.9, 1, 0.5, 1.1))]
    pairs += [(5, "Tom has a dog", "tom has a dog")]
    lines = [f"news\tf\t2012\t{n}\t{score}\t{one}\t{other}\n" for n, (score, one, other) in enumerate(pairs)]
    (folder / "sts-dev.csv").write_text("".join(lines))
    output = tmp_path / "plots"
    options = ["--model", str(tmp_path / "model"), "--data", str(tmp_path / "data"), "--output", str(output), "--pairs", "7"]
    assert figures.main([*options, "--views", views]) == 0
    kinds = [row["pair"] for row in table(output / "semantic_against_attention.png")]
    count = 2 if views == "gold" else 7
    assert kinds == ["positive"] * count + ["negative"] * count
    assert figures.FIGURE_8 in heading(output / "attention_histograms.png")
    assert len({row["slice"] for row in table(output / "attention_histograms.png")}) == 4
    attention = column(output / "semantic_against_attention.png", "attention")
    if views == "dropout":  # one sentence is more like itself than like another, whatever is dropped
        assert attention[:count].mean() > attention[count:].mean()
    two_models_by_syntax(tmp_path, sentences, [*options[2:], "--views", views])


def two_models_by_syntax(tmp_path, sentences, options):
    """Figures 5 and 6 of two models whose weights are the same: equal panels, each with the pairs of the parses."""
    shutil.copytree(tmp_path / "model", tmp_path / "other")
    parses = []
    for number, text in enumerate(sentences[:6]):
        words = text.split()
        relations = ["nsubj", "root", "det", "obj" if number % 2 else "obl"]
        heads = [2, 0, 4, 2]
        lines = [f"{n}\t{w}" + "\t_" * 4 + f"\t{h}\t{r}\t_\t_" for n, w, h, r in zip("1234", words, heads, relations, strict=True)]
        parses.append("\n".join(lines) + "\n")
    (tmp_path / "parses.conllu").write_text("\n".join(parses))
    output = tmp_path / "two"
    models = ["--model", str(tmp_path / "model"), str(tmp_path / "other"), "--parses", str(tmp_path / "parses.conllu")]
    assert figures.main([*models, *options[:2], "--output", str(output), *options[4:]]) == 0
    for name, kinds in (
        ("semantic_against_attention", {"positive", "negative"}),
        ("same_and_different_trees", {"same tree", "different trees"}),
    ):
        rows = table(output / f"{name}.png")
        one, other = ([{**row, "model": ""} for row in rows if row["model"] == model] for model in ("model", "other"))
        assert one == other
        assert {row["pair"] for row in one} == kinds
        difference = [
            np.mean([float(row["attention"]) for row in one if row["pair"] == kind])
            for kind in dict.fromkeys(row["pair"] for row in one)
        ]
        assert f"model: {' minus '.join(dict.fromkeys(row['pair'] for row in one))} mean: cosine" in heading(output / f"{name}.png")
        assert f"attention {difference[0] - difference[1]:+.3f}" in heading(output / f"{name}.png")
    assert {path.name for path in output.glob("attention_histograms*.png")} == {
        "attention_histograms_1.png",
        "attention_histograms_2.png",
    }


# Attention of pairs


def ids(lengths, seed=0):
    return [np.random.default_rng(seed + n).integers(5, 50, length).astype(np.int32) for n, length in enumerate(lengths)]


@functools.cache
def compiled(length, dropout):
    """Log attention {layer: [1, H, T, T]} and states [1, T, D] of a row of that length, alone and without padding."""

    @jax.jit
    def encode(params, row, seed):
        rows, seeds = Rows(row[None], jnp.ones((1, length), bool)), seed if dropout else None
        look = {"capture": Capture((1, 2, 3, 4), lambda _, attention: attention.probabilities)}
        output = Bert(CONFIG, dropout=0.3).apply({"params": params}, rows, seeds, **look)
        return output.observed, output.hidden[-1]

    return encode


def alone(params, row, seed):
    """{(layer, head): log attention [T, T]} and states [T, D]; no dropout where the seed is None."""
    observed, hidden = compiled(len(row), seed is not None)(params, row, np.array([seed or 0], np.uint32))
    maps = {(layer, head): np.log(np.float64(values[0, head])) for layer, values in observed.items() for head in range(2)}
    return maps, np.float64(hidden[0])


MAPS = {
    "layers": [((1, 0), (3, 0)), ((1, 1), (3, 1)), ((2, 0), (4, 0)), ((2, 1), (4, 1))],
    "heads": [((layer, 0), (layer, 1)) for layer in (1, 2, 3, 4)],
}


def by_hand(params, one, other, seeds, pairing):
    """Cosine, correlation of every slice, mean mutual information and log attention of both rows, in float64 after the encoder."""
    (maps_a, states_a), (maps_b, states_b) = (alone(params, row, seed) for row, seed in zip((one, other), seeds, strict=True))
    u, v = states_a.mean(0), states_b.mean(0)
    c = min(len(one), len(other))
    x, y = (
        np.array([np.concatenate([maps[place][:c, :c].ravel() for place in pooled]) for pooled in MAPS[pairing]])
        for maps in (maps_a, maps_b)
    )
    rho = np.array([np.corrcoef(p, q)[0, 1] for p, q in zip(x, y, strict=True)])
    return u @ v / np.linalg.norm(u) / np.linalg.norm(v), rho, (-0.5 * np.log(1 - rho**2)).mean(), x, y


def rounding(params, *arguments):
    """How far each result of `by_hand` may be off in float32: what the rounding of the encoder's sums makes of it.

    A float32 sum of n products is the exact one of weights that are off by n * eps / 2 at most (backward error), and by about
    sqrt(n) * eps / 2, because the roundings are independent (Higham and Mary 2019). So weights are moved by sqrt(n) * eps, with n
    the longest sum of the encoder, and the change of the results is measured: their condition is in it. Two computations are
    compared, ours and the one by hand; the sums behind the encoder add at most n * eps.
    """
    longest, random = CONFIG.intermediate_size, np.random.default_rng(0)
    eps = float(np.finfo(np.float32).eps)
    exact = by_hand(params, *arguments)
    worst = [0.0] * len(exact)
    for _ in range(3):
        signs = jax.tree.map(lambda leaf: random.choice([-1, 1], leaf.shape), params)
        moved = jax.tree.map(lambda leaf, sign: np.float32(np.float64(leaf) * (1 + longest**0.5 * eps * sign)), params, signs)
        changed = by_hand(moved, *arguments)
        worst = [max(most, np.abs(new - old).max()) for most, new, old in zip(worst, changed, exact, strict=True)]
    return [2 * most + longest * eps * max(1, np.abs(value).max()) for most, value in zip(worst, exact, strict=True)]


@pytest.mark.parametrize(("pairing", "dropout"), [("layers", True), ("heads", False)])
def test_pairs_equal_a_loop_in_numpy(bert, pairing, dropout):
    first, second = ids((4, 4, 9)), ids((9, 4, 9), seed=50)
    seeds = view_seeds(3) if dropout else None
    compared = comparison(CONFIG, AttentionMI(pairing=pairing), dropout=0.3)
    found = compare_attention(compared, bert, first, second, seeds, batch_size=2)
    for number, (one, other) in enumerate(zip(first, second, strict=True)):
        own = None if seeds is None else seeds[number]
        arguments = one, other, (None, None) if own is None else own, pairing
        logs = attention_values(compared, bert, one, other, own)
        ours = found.semantic[number], found.correlation[number], found.attention[number], *logs
        for mine, expected, error in zip(ours, by_hand(bert, *arguments), rounding(bert, *arguments), strict=True):
            assert error < 5e-3  # else the comparison says nothing
            np.testing.assert_allclose(mine, expected, rtol=0, atol=error)


def test_the_similarity_is_the_term_that_training_maximises(bert):
    # Stratified sampling of as many positions as there are takes each exactly once.
    row, seeds = ids((6,))[0], view_seeds(1)
    ami = AttentionMI(samples=2 * 6 * 6, post_dropout=False, layers=(2, 3))
    rows = Rows(np.stack([row, row]), np.ones((2, 6), bool))
    positions = ami.sample(jnp.array([7], jnp.uint32), jnp.array([6]), 6, 2)
    capture = ami.capture_attention(positions, (2, 3), 2)
    encode = jax.jit(functools.partial(Bert(CONFIG, dropout=0.3).apply, capture=capture))
    information, _ = ami.mutual_information(encode({"params": bert}, rows, seeds[0]).observed, positions)
    found = compare_attention(comparison(CONFIG, ami, dropout=0.3), bert, [row], [row], seeds, batch_size=2)
    assert found.attention[0] == pytest.approx(float(information.mean()), rel=1e-4)


def test_a_row_is_wholly_like_itself_without_dropout_and_less_with(bert):
    rows = ids((6, 11))
    compared = comparison(CONFIG, dropout=0.3)
    same = compare_attention(compared, bert, rows, rows, batch_size=2)
    np.testing.assert_allclose(same.semantic, 1, atol=1e-6)
    np.testing.assert_allclose(same.correlation, 1, atol=1e-6)
    assert np.isfinite(same.attention).all()
    other = compare_attention(compared, bert, rows, rows, view_seeds(2), batch_size=2)
    assert (other.attention < same.attention).all()
    assert (other.semantic < 0.9999).all()


def test_seeds_of_views_are_all_different_and_reproducible():
    seeds = view_seeds(100, seed=3)
    assert seeds.shape == (100, 2)
    assert len(np.unique(seeds)) == 200
    np.testing.assert_array_equal(seeds, view_seeds(100, seed=3))


def test_names_of_slices():
    names = ["layers 1 + 3, head 1", "layers 1 + 3, head 2", "layers 2 + 4, head 1", "layers 2 + 4, head 2"]
    assert slice_names(comparison(CONFIG)) == names
    assert slice_names(comparison(CONFIG, AttentionMI(pairing="heads")))[3] == "layer 4, heads 1 + 2"
    with pytest.raises(ConfigError, match="even number"):
        comparison(CONFIG, AttentionMI(layers=(1, 2, 3)))


def test_embeddings_that_are_not_finite_are_refused(bert):
    broken = jax.tree.map(lambda leaf: leaf * np.nan, bert)
    with pytest.raises(NumericsError, match="2 of 2 pairs"):
        compare_attention(comparison(CONFIG), broken, ids((4, 4)), ids((5, 5)), batch_size=2)
