"""Plots: the files, their numbers and their errors."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import spearmanr

from jax_sentemb.cli import plots as cli_plots
from jax_sentemb.cli.program import program
from jax_sentemb.errors import ConfigError, DataError, ModelFileError, NumericsError
from jax_sentemb.reporting import plot_data, plots


@pytest.fixture(autouse=True)
def _matplotlib():
    pytest.importorskip("matplotlib")


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
    save = plots.save
    monkeypatch.setattr(plots, "save", lambda figure, *rest: (figures.append(figure), save(figure, *rest))[1])
    random = np.random.default_rng(0)
    gold, cosine = np.repeat([0.0, 1.0], 20), random.random(40)
    plots.similarity_against_gold(tmp_path / "a", cosine, gold, "a")
    plots.alignment_uniformity(tmp_path / "c", [diagnostics(n, uniformity=-n, spread=n / 9) for n in range(9)], "c")
    plots.low_shot_curves(tmp_path / "d", {"A $x$": [(10, 1.0, 0.5), (100, 2.0, 0.25)], "none": [(0, 0.5, 0.0)]}, "d")
    for figure in figures:
        panels = [axes for axes in figure.axes if axes.get_visible()]
        assert any(axes.get_xlabel() for axes in panels) or figure.get_supxlabel()
        assert any(axes.get_ylabel() for axes in panels)
        assert figure.legends
    similarity, run, low_shot = figures
    np.testing.assert_array_equal(similarity.axes[0].collections[0].get_offsets(), np.stack([gold, cosine], 1))
    for box, values in zip(similarity.axes[0].patches, (cosine[:20], cosine[20:]), strict=True):
        np.testing.assert_allclose([box.get_y(), box.get_y() + box.get_height()], np.quantile(values, [0.25, 0.75]))
    assert [list(axes.lines[0].get_ydata()) for axes in run.axes] == [[-n for n in range(9)], [n / 9 for n in range(9)]]
    assert low_shot.axes[0].get_xscale() == "log"
    bars = low_shot.axes[0].containers[0]
    np.testing.assert_allclose(bars[0].get_xydata(), [[10, 1], [100, 2]])  # a method alone is not set aside
    np.testing.assert_allclose([[y[1] for y in bar] for bar in bars[2][0].get_segments()], [[0.5, 1.5], [1.75, 2.25]])


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda path: plots.similarity_against_gold(path, [], [], ""), DataError, "cosine is empty"),
        (lambda path: plots.similarity_against_gold(path, [0.1, np.nan], [1, 2], ""), NumericsError, "1 of 2 values of cosine"),
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
        "plots.low_shot_curves(path, {'A': [(1, 2, 3)]}, ''); "
        "assert 'matplotlib.pyplot' not in sys.modules and 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PATH": "", "HOME": str(tmp_path)}, timeout=60)


def test_without_matplotlib_one_line_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match="pip install matplotlib"):
        plots.similarity_against_gold(tmp_path / "x.png", [0.1, 0.2], [1, 2], "")
    assert program(cli_plots.main, ["plots", "run", "--workdir", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "error: plots need matplotlib: pip install matplotlib\n"


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
        (["low-shot", "--results", "nowhere.csv", "--output", "x"], 3, "nowhere.csv: no such file"),
        (["pie"], 2, "invalid choice: 'pie'"),
        ([], 2, "PLOT"),
    ],
)
def test_mistakes_on_the_command_line_are_one_line(arguments, code, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert program(cli_plots.main, ["plots", *arguments]) == code
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert says in error


def test_real_study(tmp_path):
    study = Path(__file__).parents[1] / "experiments" / "micse_low_shot"
    curves = plot_data.read_low_shot(study / "results.csv")
    rows = (line.split("|") for line in (study / "README.md").read_text(encoding="utf-8").splitlines())
    stated = {(row[2].strip(), row[1].strip()): row[-2].strip() for row in rows if len(row) == 10 and "±" in row[-2]}
    drawn = {(name, str(size)): f"{mean:.2f} ± {spread:.2f}" for name in curves for size, mean, spread in curves[name] if size}
    assert len(drawn) == 8
    assert drawn == stated
    heading(plots.low_shot_curves(tmp_path / "x.png", curves, "study"))


def test_correlations_of_ties_are_those_of_scipy():
    gold, cosine = [1, 1, 2, 3, 3], [0.2, 0.2, 0.1, 0.4, 0.5]
    assert plots.correlations(cosine, gold).startswith(f"Spearman {100 * spearmanr(cosine, gold).statistic:.2f}, ")
