"""The stage `matryoshka` of experiments/stronger/distil.py: which runs are chosen, and how embeddings are cut."""

import argparse
import importlib
import sys

import numpy as np
import pytest

from tests.pages import ROOT


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "experiments")
    monkeypatch.syspath_prepend(ROOT / "experiments" / "stronger")
    for name in ("distil", "study_data", "data"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("distil")


def options(**given):
    return argparse.Namespace(stage="matryoshka", settings=None, seeds=None, **{"senteval": "", "precision": "float32", **given})


def test_settings_and_seeds_choose_the_runs(study):
    parser = argparse.ArgumentParser()
    runs = [(setting, seed, None) for seed in (1, 2) for setting in ("a", "b")]
    assert study.chosen(options(), runs, parser) == runs
    some = argparse.Namespace(stage="matryoshka", settings=["b"], seeds=[2])
    assert study.chosen(some, runs, parser) == [("b", 2, None)]
    for unknown in ({"settings": ["c"], "seeds": None}, {"settings": None, "seeds": [3]}):
        with pytest.raises(SystemExit):
            study.chosen(argparse.Namespace(stage="matryoshka", **unknown), runs, parser)


def test_every_stage_yields_settings_that_the_package_accepts(study, tmp_path):
    given = options(mini="mini", teacher="teacher", texts=tmp_path)
    for settings in (*study.FINAL.values(), *study.CHOICES.values(), *study.CURVE.values(), *study.MATRYOSHKA.values()):
        config = study.config_of(given, settings, 3)
        assert config.train.seed == 3
    assert study.config_of(given, study.MATRYOSHKA["mini-2; prefixes; rank"], 1).train.matryoshka == study.WIDTHS
    assert [run[:2] for run in study.matryoshka(given)][: len(study.MATRYOSHKA)] == [(name, 1) for name in study.MATRYOSHKA]


def test_pca_keeps_the_directions_that_vary_most(study):
    """Texts are numbers; their embeddings lie on a line, far from the origin."""
    line = np.array([0.6, 0.0, 0.8])
    embed = lambda texts: np.array([[0.0, 5.0, 0.0] + int(text) * line for text in texts])  # noqa: E731
    cuts = study.pca("s", embed, ["1", "2", "6"])
    assert sorted(cuts) == ["PCA of s", "PCA of s, mean not subtracted"]
    np.testing.assert_allclose(abs(cuts["PCA of s"](["3", "5"], 1)).ravel(), [0, 2], atol=1e-9)
    np.testing.assert_allclose(abs(cuts["PCA of s, mean not subtracted"](["3", "5"], 1)).ravel(), [3, 5], atol=1e-9)


def test_rows_have_the_share_of_the_full_width(study, monkeypatch):
    monkeypatch.setattr(study, "Scores", lambda folder: lambda embed: {"mean": 2.0 * embed(["x"]).shape[1]})
    cut = lambda texts, width: np.ones((1, 256))[:, :width]  # noqa: E731
    rows = study.width_rows(options(), {"setting": "s", "seed": 1}, {"prefix": cut})
    shares = [(row["width"], row["embedding"], row["mean"], row["of the full width, %"]) for row in rows]
    assert shares == [
        (64, "prefix", "128.00", "25.00"),
        (128, "prefix", "256.00", "50.00"),
        (256, "prefix", "512.00", "100.00"),
    ]


def test_an_embedding_is_computed_once(study):
    calls = []
    embed = study.remembering(lambda texts: calls.append(texts) or np.arange(len(texts))[:, None])
    first = embed(["a", "b", "a"])
    assert embed(["b", "a"]).tolist() == [[1], [0]]
    assert first.tolist() == [[0], [1], [0]]
    assert calls == [["a", "b"]]
