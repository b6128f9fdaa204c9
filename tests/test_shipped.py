"""What ships with the package: recipes, the encoder mini-distilled and sample sentences."""

import numpy as np
import pytest

import jax_sentemb
from jax_sentemb.data import shipped
from jax_sentemb.errors import ConfigError
from jax_sentemb.formats.huggingface import resolve


def test_the_sample_has_500_distinct_sentences_in_the_order_of_its_file():
    sentences = jax_sentemb.sample_sentences()
    assert len(sentences) == len({*sentences}) == 500
    assert sentences[0].startswith("Cryopreservation or cryoconservation is a process")


def test_a_model_of_the_package_has_a_name_unless_a_folder_has_it(tmp_path, monkeypatch):
    assert (resolve("mini-distilled") / "modules.json").is_file()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mini-distilled").mkdir()
    assert resolve("mini-distilled").resolve() == tmp_path / "mini-distilled"


def test_an_error_names_a_model_that_needs_no_download():
    with pytest.raises(ConfigError, match=r"no such directory; give a directory, a name of the hub, or mini-distilled, which"):
        resolve("path/to/bert")


def test_an_installed_package_has_the_folders_inside(tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "__file__", str(tmp_path / "jax_sentemb" / "data" / "shipped.py"))
    assert shipped.shipped_folder("configs") == tmp_path / "configs"
    (tmp_path / "jax_sentemb" / "configs").mkdir(parents=True)
    assert shipped.shipped_folder("configs") == tmp_path / "jax_sentemb" / "configs"


def test_the_encoder_of_the_package_finds_the_subject_of_a_sentence():
    sentences = jax_sentemb.sample_sentences()
    encoder = jax_sentemb.SentenceEncoder("mini-distilled")
    vectors = np.asarray(encoder.encode(sentences, normalize_embeddings=True))
    nearest = vectors @ vectors.T - 2 * np.eye(len(vectors))
    same_article = nearest.argmax(axis=1) // 20 == np.arange(len(vectors)) // 20  # 25 articles of 20 sentences
    assert same_article.mean() > 0.6  # mini-2, its start: 0.55 at best
