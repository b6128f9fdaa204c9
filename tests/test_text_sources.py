"""Hugging Face `datasets` and `tensorflow-datasets` as corpora, on small data sets made here."""

import subprocess
import sys

import numpy as np
import pytest

from jax_sentemb.errors import ConfigError, DataError
from jax_sentemb.text.files import open_corpus

TEXTS = ["One sentence.", "caf\u00e9 \u6f22\u5b57", "two\nlines", "", "the last one"]
SENTENCES = ["One sentence.", "caf\u00e9 \u6f22\u5b57", "two lines", "the last one"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_SENTEMB_CACHE", str(tmp_path / "cache"))


def refused(files, error=DataError, **options):
    with pytest.raises(error) as caught:
        open_corpus(files, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def saved(tmp_path):
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict({"text": TEXTS, "label": range(5)})
    data.save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"train": data, "dev": data.select([4])}).save_to_disk(tmp_path / "many")
    (tmp_path / "files").mkdir()
    data.to_json(tmp_path / "files" / "train.jsonl")
    return tmp_path


def test_hugging_face_data_sets_are_corpora(saved, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(saved / "hf"))
    for name in ("one", "many", "many:train", "files", "files:train"):
        corpus = open_corpus(f"hf:{saved / name}")
        assert list(corpus) == SENTENCES, name
        assert corpus.report["lines"] == 5
    assert list(open_corpus(f"hf:{saved}/many:dev")) == ["the last one"]
    assert list(open_corpus(f"hf:{saved}/files:train[:40%]")) == SENTENCES[:2]
    assert list(open_corpus(f"hf:{saved}/many:dev,hf:{saved}/one")) == ["the last one", *SENTENCES]


def test_hugging_face_mistakes_are_one_line(saved):
    assert "no split 'test', only train, dev" in refused(f"hf:{saved}/many:test")
    assert "no column 'sentence', only text, label" in refused(f"hf:{saved}/one", column="sentence")
    assert "row 0: label is int, not text" in refused(f"hf:{saved}/one", column="label")
    assert "cannot be loaded" in refused(f"hf:{saved}/absent")
    assert "write hf:NAME" in refused("hf:", ConfigError)


def test_a_data_set_written_again_is_read_again(tmp_path):
    datasets = pytest.importorskip("datasets")
    for texts in (["first"], ["other"]):
        datasets.Dataset.from_dict({"text": texts}).save_to_disk(tmp_path / "again")
        assert list(open_corpus(f"hf:{tmp_path}/again")) == texts


@pytest.fixture
def prepared(tmp_path):
    """A folder that tensorflow-datasets wrote, without TensorFlow."""
    tfds = pytest.importorskip("tensorflow_datasets")
    pytest.importorskip("array_record")

    class Few(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = {"text": tfds.features.Text(), "n": tfds.features.Scalar(np.int64)}
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, manager):
            return {"train": self._generate_examples(TEXTS), "dev": self._generate_examples(TEXTS[4:])}

        def _generate_examples(self, texts):
            for number, text in enumerate(texts):
                yield number, {"text": text, "n": number}

    builder = Few(data_dir=tmp_path / "tfds", file_format="array_record")
    builder.download_and_prepare()
    return builder.data_dir


@pytest.mark.filterwarnings("ignore")
def test_tensorflow_data_sets_are_corpora(prepared):
    assert sorted(open_corpus(f"tfds:{prepared}")) == sorted(SENTENCES)
    assert list(open_corpus(f"tfds:{prepared}:dev")) == ["the last one"]
    assert "no column 'sentence', only" in refused(f"tfds:{prepared}", column="sentence")
    assert "not text" in refused(f"tfds:{prepared}", column="n")
    assert "cannot be loaded" in refused(f"tfds:{prepared}:test")


@pytest.mark.parametrize(("name", "module", "extra"), [("hf:x", "datasets", "hub"), ("tfds:x", "tensorflow_datasets", "tfds")])
def test_without_the_extra_its_name_is_given(monkeypatch, name, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    assert f'pip install "jax_sentemb[{extra}]"' in refused(name, ConfigError)


def test_text_imports_neither_jax_nor_an_extra():
    modules = "files, sources, tokenizer, tokens, batches"
    heavy = ["jax", "flax", "datasets", "tensorflow_datasets", "tensorflow", "transformers", "torch", "sklearn"]
    code = f"import sys\nfrom jax_sentemb.text import {modules}\nprint([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
