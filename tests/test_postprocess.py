"""jax-sentemb postprocess: components are removed, covariance becomes 1, the export computes the same."""

import json

import numpy as np
import pytest
from tiny_models import tiny_model

from jax_sentemb.__main__ import main
from jax_sentemb.cli.program import program
from jax_sentemb.data import synthetic
from jax_sentemb.errors import ConfigError, DataError, NumericsError
from jax_sentemb.formats.sentence_transformers import write_export
from jax_sentemb.inference.load import load
from jax_sentemb.inference.postprocess import before_length, whitening, without_components

SENTENCES = list(dict.fromkeys(synthetic.sentences(150, 0)))
VECTORS = np.random.default_rng(0).normal(size=(200, 6)) * np.array([9.0, 5, 2, 1, 1, 0.5]) + 3


def applied(layer, vectors):
    return vectors @ layer["kernel"] + layer["bias"]


def test_the_strongest_components_and_the_mean_are_gone():
    found = applied(without_components(VECTORS, 2), VECTORS)
    np.testing.assert_allclose(found.mean(0), 0, atol=1e-5)
    variances = np.linalg.eigvalsh(np.cov(found.T))
    before = np.linalg.eigvalsh(np.cov(VECTORS.T))
    np.testing.assert_allclose(variances[:2], 0, atol=1e-6)
    np.testing.assert_allclose(variances[2:], before[:4], rtol=1e-4)


@pytest.mark.parametrize("width", [0, 3])
def test_whitened_vectors_have_covariance_one(width):
    found = applied(whitening(VECTORS, width), VECTORS)
    assert found.shape[1] == (width or 6)
    np.testing.assert_allclose(found.T @ found / len(found), np.eye(found.shape[1]), atol=1e-4)


def test_what_cannot_be_fitted_is_refused():
    flat = np.concatenate([VECTORS[:, :2], np.ones((200, 4))], axis=1)
    with pytest.raises(ConfigError, match="vary in 2 of them"):
        whitening(flat, 3)
    with pytest.raises(ConfigError, match="from 1 to 5"):
        without_components(VECTORS, 6)
    with pytest.raises(DataError):
        whitening(VECTORS[:1])
    with pytest.raises(NumericsError):
        whitening(np.where(VECTORS > 10, np.nan, VECTORS))


def test_the_export_has_the_layer_and_unit_length(tmp_path, capsys):
    write_export(tmp_path / "model", tiny_model(SENTENCES, 200, normalize=True))
    (tmp_path / "corpus.txt").write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    common = ["jax-sentemb", "postprocess", "--model", f"{tmp_path}/model", "--corpus", f"{tmp_path}/corpus.txt"]
    assert program(main, [*common, "--whiten", "--width", "5", "--output", f"{tmp_path}/white"]) == 0
    assert "16 dimensions become 5" in capsys.readouterr().out
    vectors = load(tmp_path / "white")(SENTENCES)
    raw = before_length(load(tmp_path / "white"), SENTENCES)
    np.testing.assert_allclose(raw.T @ raw / len(raw), np.eye(5), atol=1e-3)
    np.testing.assert_allclose(vectors, raw / np.linalg.norm(raw, axis=1, keepdims=True), atol=1e-5)
    assert "5-dimensional, unit-length" in (tmp_path / "white" / "README.md").read_text(encoding="utf-8")
    settings = tmp_path / "model" / "config_sentence_transformers.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "truncate_dim": 3}))
    for way, width in ((["--whiten", "--width", "5"], 5), (["--remove", "1"], 3)):
        assert program(main, [*common, *way, "--output", f"{tmp_path}/white"]) == 0
        assert f"16 dimensions become {width}," in capsys.readouterr().out
        assert load(tmp_path / "white")(SENTENCES[:2]).shape == (2, width)
    assert "to 3-dimensional vectors" in (tmp_path / "white" / "README.md").read_text(encoding="utf-8")
    few = tmp_path / "few.txt"
    few.write_text("\n".join(SENTENCES[:5]) + "\n", encoding="utf-8")
    capsys.readouterr()
    assert program(main, [*common[:-1], str(few), "--whiten", "--output", f"{tmp_path}/few"]) == 0
    said = capsys.readouterr()
    assert "5 sentences are too few for 16 dimensions" in said.err
    assert "16 dimensions become 4" in said.out
    for wrong in (["--whiten", "--remove", "1"], ["--remove", "1", "--width", "3"], []):
        assert program(main, [*common, *wrong, "--output", f"{tmp_path}/x"]) == 2
