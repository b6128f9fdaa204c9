"""Plots: the files, their numbers and their errors; attention of pairs against NumPy and against the term that is trained."""

import csv
import dataclasses
import functools
import json
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import spearmanr

from jax_sentemb.cli import plots as cli_plots
from jax_sentemb.cli.program import program
from jax_sentemb.errors import ConfigError, DataError, ModelFileError, NumericsError
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.models.bert import Bert, BertConfig, Capture
from jax_sentemb.reporting import pair_plots, plot_data, plots
from jax_sentemb.reporting.attention import attention_values, compare_attention, comparison, slice_names, view_seeds
from jax_sentemb.types import Rows

CONFIG = BertConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=4, num_attention_heads=2, intermediate_size=32,
    max_position_embeddings=20, initializer_range=0.5,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _matplotlib(request):
    if "bert" not in request.fixturenames:  # the attention tests draw nothing
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
    """The text chunk "Title", and with it that the file is a PNG that opens."""
    from PIL import Image

    assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    with Image.open(picture) as image:
        image.load()
        assert 600 < image.width < 3000
        assert 300 < image.height < 3000
        return image.text["Title"]


def drawn(picture):
    """The picture as numbers: an empty one differs from one with points."""
    from PIL import Image

    with Image.open(picture) as image:
        return np.asarray(image.convert("RGB"))


# Pictures


def test_similarity_against_gold_keeps_the_numbers_and_prints_their_correlation(tmp_path):
    random = np.random.default_rng(0)
    gold = random.uniform(0, 5, 60)
    cosine = gold / 10 + random.normal(size=60) / 10
    picture = plots.similarity_against_gold(tmp_path / "new" / "STS12", cosine, gold, r"STS12, $\cost$")
    assert picture == tmp_path / "new" / "STS12.png"
    np.testing.assert_array_equal(column(picture, "cosine"), cosine)
    np.testing.assert_array_equal(column(picture, "gold"), gold)
    pearson = np.corrcoef(cosine, gold)[0, 1]
    ranks = np.corrcoef(cosine.argsort().argsort(), gold.argsort().argsort())[0, 1]
    assert heading(picture) == f"STS12, $\\cost$\nSpearman {100 * ranks:.2f}, Pearson {100 * pearson:.2f}, 60 pairs"


def test_a_dot_in_the_name_is_no_suffix(tmp_path):
    assert plots.similarity_against_gold(tmp_path / "model.v2", [0.1, 0.4], [1, 2], "").name == "model.v2.png"


@pytest.mark.parametrize(
    ("gold", "ticks", "place"),
    [
        ([0, 1, 1, 0], [0, 1], [0, 1, 1, 0]),  # labels
        ([3, 3], [3], [0, 0]),
        ([0, 0.5, 1, 1.9, 2.2, 3.1, 4, 4.9, 5], [0, 1, 2, 3, 4, 5], [0, 0, 1, 1, 2, 3, 4, 4, 4]),
        (np.arange(0, 101, 10), [0, 20, 40, 60, 80, 100], [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 4]),
    ],
)
def test_ranges_of_gold_scores(gold, ticks, place):
    found_ticks, centres, found_place = plots.gold_ranges(np.array(gold, float))
    np.testing.assert_allclose(found_ticks, ticks)
    assert found_place.tolist() == place
    assert len(centres) > max(place)


def test_equal_similarities_have_no_correlation(tmp_path):
    picture = plots.similarity_against_gold(tmp_path / "flat.png", [0.5] * 4, [1, 2, 3, 4], "flat")
    assert "no correlation (all values equal)" in heading(picture)


def test_attention_histograms_give_each_slice_its_correlation(tmp_path):
    first = np.random.default_rng(1).normal(size=(5, 40))
    second = np.stack([first[0], -first[1], first[2] ** 2, first[3] + 1, np.zeros(40)])
    names = [f"slice {letter}" for letter in "abcde"]
    picture = plots.attention_histograms(tmp_path / "a.png", first, second, "two views", names)
    rho = [1, -1, np.corrcoef(first[2], second[2])[0, 1], 1]
    assert heading(picture) == f"two views\nmean ρ {np.mean(rho):.3f}, 5 slices of 40 entries"
    np.testing.assert_array_equal(column(picture, "first"), first.ravel())
    np.testing.assert_array_equal(column(picture, "second"), second.ravel())
    assert [row["slice"] for row in table(picture)] == [name for name in names for _ in range(40)]


def test_semantic_against_attention_prints_the_distance_of_the_means(tmp_path):
    positive, negative = ([0.9, 0.7, 0.8], [1.0, 2.0, 3.0]), ([0.1, 0.3], [0.5, 0.5])
    picture = pair_plots.semantic_against_attention(tmp_path / "s.png", positive, negative, "pairs")
    assert heading(picture) == "pairs\npositive minus negative mean: cosine +0.600, attention +1.500"
    assert [row["pair"] for row in table(picture)] == ["positive"] * 3 + ["negative"] * 2
    assert column(picture, "semantic").tolist() == [0.9, 0.7, 0.8, 0.1, 0.3]
    assert column(picture, "attention").tolist() == [1, 2, 3, 0.5, 0.5]


def diagnostics(step, **values):
    return {"step": step, **{f"diagnostics/{name}": value for name, value in values.items()}}


def test_alignment_and_uniformity_of_a_run(tmp_path):
    records = [
        {"step": 5, "train/alignment": 0.5, "train/loss": 1.0},
        diagnostics(10, alignment=0.3, uniformity=-1.5, spread=0.7, collapsed=False),
        diagnostics(0, alignment=0.4, uniformity=-1.0, spread=0.6),
        diagnostics(20, alignment=0.2, uniformity=float("nan"), spread=0.8),
    ]
    picture = plots.alignment_uniformity(tmp_path / "r.png", records, "run")
    assert heading(picture) == "run\nat the end: alignment 0.200, uniformity -1.500, spread 0.800; 1 values not finite, left out"
    assert table(picture) == [
        {"step": "0", "alignment": "0.4", "uniformity": "-1.0", "spread": "0.6"},
        {"step": "10", "alignment": "0.3", "uniformity": "-1.5", "spread": "0.7"},
        {"step": "20", "alignment": "0.2", "uniformity": "", "spread": "0.8"},
    ]


def test_a_run_without_measured_alignment_shows_that_of_its_batches_or_none(tmp_path):
    records = [diagnostics(0, uniformity=-1.0, spread=0.5), diagnostics(4, uniformity=-2.0, spread=0.9)]
    without = plots.alignment_uniformity(tmp_path / "without.png", records, "old")
    assert list(table(without)[0]) == ["step", "uniformity", "spread"]
    batches = plots.alignment_uniformity(tmp_path / "batches.png", [*records, {"step": 2, "train/alignment": 0.25}], "old")
    assert [row["training_alignment"] for row in table(batches)] == ["", "0.25", ""]
    assert len(drawn(batches)) > len(drawn(without))


def test_metrics_are_read_back_and_a_line_cut_by_a_crash_is_left_out(tmp_path, monkeypatch):
    from jax_sentemb.training.logger import Log

    monkeypatch.setattr("jax_sentemb.training.logger.time.time", lambda: 12.5)
    log = Log(tmp_path)
    log.event(0, {"diagnostics/uniformity": np.float32(-1.5)})
    log.event(3, {"train/loss": jnp.float32(0.5)})
    expected = [{"step": 0, "time": 12.5, "diagnostics/uniformity": -1.5}, {"step": 3, "time": 12.5, "train/loss": 0.5}]
    assert plot_data.read_metrics(tmp_path) == expected
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "tra')
    assert plot_data.read_metrics(tmp_path) == expected
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('\n{"step": 5}\n')
    with pytest.raises(ModelFileError, match=r"metrics\.jsonl:3: not an event"):
        plot_data.read_metrics(tmp_path)


@pytest.mark.parametrize(("content", "line"), [("", 1), ("damaged", 1), ('{"step": 1}\n\0\0\0', 2), ('{"step": 1}\n\n', 2)])
def test_a_log_without_events_or_with_other_text_is_damaged(tmp_path, content, line):
    (tmp_path / "metrics.jsonl").write_text(content)
    with pytest.raises(ModelFileError, match=rf"metrics\.jsonl:{line}: not an event"):
        plot_data.read_metrics(tmp_path)


def test_low_shot_curves_and_their_table(tmp_path):
    curves = {"untrained": [(0, 36.5, 0.0)], "A": [(1000, 45.0, 0.5), (100, 40.0, 1.5)], "B": [(100, 41.0, 0.0)]}
    picture = plots.low_shot_curves(tmp_path / "l.png", curves, "few")
    heading(picture)
    names = ("method", "sentences", "mean", "standard_deviation")
    rows = [("untrained", 0, 36.5, 0), ("A", 100, 40, 1.5), ("A", 1000, 45, 0.5), ("B", 100, 41, 0)]
    assert table(picture) == [dict(zip(names, [row[0], *(str(float(x)) for x in row[1:])], strict=True)) for row in rows]


def test_the_seeds_of_a_study_become_mean_and_standard_deviation(tmp_path):
    file = tmp_path / "results.csv"
    file.write_text("method,sentences,seed,average\nA,100,0,1\nA,100,1,2\nA,100,2,6\nA,10,0,4\n", encoding="utf-8")
    assert plot_data.read_low_shot(file) == {"A": [(10, 4.0, 0.0), (100, 3.0, pytest.approx(7**0.5))]}
    file.write_text("method,sentences,average\nA,100,1\nA,100,oops\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"results\.csv line 3: sentences='100' or average='oops' is not a number"):
        plot_data.read_low_shot(file)
    with pytest.raises(DataError, match="no column 'STS12', only method, sentences, average"):
        plot_data.read_low_shot(file, "STS12")


def test_what_is_drawn(tmp_path, monkeypatch):
    figures = []
    save = plots._save
    monkeypatch.setattr(plots, "_save", lambda figure, *rest: (figures.append(figure), save(figure, *rest))[1])
    random = np.random.default_rng(0)
    gold, cosine, other = np.repeat([0.0, 1.0], 20), random.random(40), random.random(40)
    plots.similarity_against_gold(tmp_path / "a", cosine, gold, "a")
    pair_plots.semantic_against_attention(tmp_path / "b", (cosine, other), (other[:5], cosine[:5]), "b")
    plots.alignment_uniformity(tmp_path / "c", [diagnostics(n, uniformity=-n, spread=n / 9) for n in range(9)], "c")
    plots.low_shot_curves(tmp_path / "d", {"A $x$": [(10, 1.0, 0.5), (100, 2.0, 0.25)], "none": [(0, 0.5, 0.0)]}, "d")
    plots.attention_histograms(tmp_path / "e", [cosine] * 7, [other] * 7, "e")
    for figure in figures:
        panels = [axes for axes in figure.axes if axes.get_visible()]
        assert any(axes.get_xlabel() for axes in panels) or figure.get_supxlabel()
        assert any(axes.get_ylabel() for axes in panels)
        assert figure.legends or figure is figures[-1]  # that one has a colour bar
    similarity, pairs, run, low_shot, histograms = figures
    np.testing.assert_array_equal(similarity.axes[0].collections[0].get_offsets(), np.stack([gold, cosine], 1))
    for box, values in zip(similarity.axes[0].patches, (cosine[:20], cosine[20:]), strict=True):
        np.testing.assert_allclose([box.get_y(), box.get_y() + box.get_height()], np.quantile(values, [0.25, 0.75]))
    groups = [points.get_offsets() for points in pairs.axes[0].collections]
    np.testing.assert_array_equal(groups[0], np.stack([cosine, other], 1))
    np.testing.assert_array_equal(groups[1], np.stack([other[:5], cosine[:5]], 1))
    np.testing.assert_allclose(groups[2:], [groups[0].mean(0, keepdims=True), groups[1].mean(0, keepdims=True)])
    assert [list(axes.lines[0].get_ydata()) for axes in run.axes] == [[-n for n in range(9)], [n / 9 for n in range(9)]]
    assert low_shot.axes[0].get_xscale() == "log"
    bars = low_shot.axes[0].containers[0]
    np.testing.assert_allclose(bars[0].get_xydata(), [[10, 1], [100, 2]])  # a method alone is not set aside
    np.testing.assert_allclose([[y[1] for y in bar] for bar in bars[2][0].get_segments()], [[0.5, 1.5], [1.75, 2.25]])
    shown = [axes for axes in histograms.axes if axes.get_visible() and axes.collections and axes.get_title()]
    assert [axes.collections[0].get_array().sum() for axes in shown] == [40] * 7


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda path: plots.similarity_against_gold(path, [], [], ""), DataError, "cosine is empty"),
        (lambda path: plots.similarity_against_gold(path, [0.1, np.nan], [1, 2], ""), NumericsError, "1 of 2 values of cosine"),
        (lambda path: plots.attention_histograms(path, np.zeros((0, 4)), np.zeros((0, 4)), ""), DataError, "first is empty"),
        (lambda path: plots.attention_histograms(path, [[0.0]], [[-np.inf]], ""), NumericsError, "values of second"),
        (
            lambda path: pair_plots.semantic_against_attention(path, ([1], [1]), ([], []), ""),
            DataError,
            "negative pairs: nothing to draw",
        ),
        (lambda path: plots.alignment_uniformity(path, [{"step": 1, "train/loss": 2.0}], ""), DataError, "nothing to draw"),
        (lambda path: plots.low_shot_curves(path, {}, ""), DataError, "nothing to draw"),
        (lambda path: plots.low_shot_curves(path, {"A": [(10, np.nan, 0.0)]}, ""), NumericsError, "values of mean"),
    ],
)
def test_what_cannot_be_drawn_is_one_line_and_no_file(tmp_path, call, error, says):
    with pytest.raises(error, match=says) as caught:
        call(tmp_path / "x.png")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_nothing_is_left_in_matplotlibs_global_state(tmp_path):
    code = (
        "import sys; from jax_sentemb.reporting import plots; assert 'matplotlib' not in sys.modules; "
        f"path = {str(tmp_path / 'x.png')!r}; plots.similarity_against_gold(path, [0.1, 0.2], [1, 2], ''); "
        "plots.attention_histograms(path, [[0.1, 0.2]], [[1, 2]], ''); plots.low_shot_curves(path, {'A': [(1, 2, 3)]}, ''); "
        "assert 'matplotlib.pyplot' not in sys.modules and 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PATH": "", "HOME": str(tmp_path)}, timeout=60)


def test_without_matplotlib_one_line_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r"pip install 'jax_sentemb\[plots\]'"):
        plots.similarity_against_gold(tmp_path / "x.png", [0.1, 0.2], [1, 2], "")
    assert program(cli_plots.main, ["plots", "run", "--workdir", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "error: plots need matplotlib: pip install 'jax_sentemb[plots]'\n"


# Command line


def test_the_run_command_writes_into_the_work_directory(tmp_path, capsys):
    events = [diagnostics(0, uniformity=-1.0, spread=0.5), diagnostics(4, uniformity=-2.0, spread=0.9)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    assert program(cli_plots.main, ["plots", "run", "--workdir", str(tmp_path)]) == 0
    assert "written" in capsys.readouterr().out
    assert "uniformity -2.000" in heading(tmp_path / "plots" / "alignment_uniformity.png")


def test_the_low_shot_command_does_not_overwrite_its_input(tmp_path, capsys):
    results = tmp_path / "results.csv"
    results.write_text("method,sentences,average\nA,100,1\n")
    options = ["plots", "low-shot", "--results", str(results), "--output"]
    assert program(cli_plots.main, [*options, str(tmp_path / "results.png")]) == 2
    assert "would replace --results" in capsys.readouterr().err
    assert results.read_text() == "method,sentences,average\nA,100,1\n"
    assert program(cli_plots.main, [*options, str(tmp_path / "curve.png")]) == 0


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["run", "--workdir", "nowhere"], 4, "nowhere/metrics.jsonl: No such file"),
        (["low-shot", "--results", "nowhere.csv", "--output", "x"], 3, "nowhere.csv: No such file"),
        (["attention", "--model", "nowhere", "--data", "d", "--output", "o"], 4, "nowhere"),
        (["attention", "--model", "m", "--data", "d", "--output", "o", "--dropout", "1"], 2, "--dropout 1.0"),
        (["attention", "--model", "a", "b", "c", "--data", "d", "--output", "o"], 2, "3 models"),
        (["pie"], 2, "invalid choice: 'pie'"),
        ([], 2, "KIND"),
    ],
)
def test_mistakes_on_the_command_line_are_one_line(arguments, code, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert program(cli_plots.main, ["plots", *arguments]) == code
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert says in error


@pytest.mark.parametrize("views", ["dropout", "gold"])
def test_the_attention_command_on_a_tiny_encoder(views, tmp_path, monkeypatch, capsys):
    from jax_sentemb.data.tokenizer import Tokenizer
    from jax_sentemb.formats.sentence_transformers import SentenceModel, write_export

    monkeypatch.setattr("jax_sentemb.parallel.use_compilation_cache", lambda: None)  # tests have their own
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
    assert program(cli_plots.main, ["plots", "attention", *options, "--views", views]) == 0
    kinds = [row["pair"] for row in table(output / "semantic_against_attention.png")]
    count = 2 if views == "gold" else 7
    assert kinds == ["positive"] * count + ["negative"] * count
    assert plots.FIGURE_8 in heading(output / "attention_histograms.png")
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
    assert program(cli_plots.main, ["plots", "attention", *models, *options[:2], "--output", str(output), *options[4:]]) == 0
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


def test_real_study(shared, tmp_path):
    from pathlib import Path

    results = Path(__file__).parents[1] / "experiments" / "micse_low_shot" / "results.csv"
    curves = plot_data.read_low_shot(results)
    assert curves["miCSE"][0][:2] == (1000, pytest.approx(46.89, abs=0.005))  # as results.md has it
    assert curves["miCSE"][0][2] == pytest.approx(0.54, abs=0.005)
    heading(plots.low_shot_curves(tmp_path / "x.png", curves, "study"))


def test_correlations_of_ties_are_those_of_scipy():
    gold, cosine = [1, 1, 2, 3, 3], [0.2, 0.2, 0.1, 0.4, 0.5]
    assert plots.correlations(cosine, gold).startswith(f"Spearman {100 * spearmanr(cosine, gold).statistic:.2f}, ")
