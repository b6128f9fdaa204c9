"""Sentences from `datasets` and `tensorflow-datasets`."""

import sys
import warnings

import pytest

from jax_sentemb.errors import ConfigError, DataError
from jax_sentemb.text.files import open_corpus

TEXTS = ["plain", "two\nlines", "é 漢字\u2028x", "last\r\none"]
EXPECTED = ["plain", "two lines", "é 漢字\u2028x", "last one"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_SENTEMB_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def datasets():
    return pytest.importorskip("datasets")


@pytest.fixture
def prepared(tmp_path):
    """The folder of a data set prepared as array_record, without TensorFlow."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("array_record")
        tfds = pytest.importorskip("tensorflow_datasets")

        class Tiny(tfds.core.GeneratorBasedBuilder):
            VERSION = tfds.core.Version("1.0.0")

            def _info(self):
                features = tfds.features.FeaturesDict({"text": tfds.features.Text(), "number": tfds.features.Scalar("int64")})
                return tfds.core.DatasetInfo(builder=self, features=features)

            def _split_generators(self, manager):
                return {"train": self._generate_examples()}

            def _generate_examples(self):
                yield from ((row, {"text": text, "number": row}) for row, text in enumerate(TEXTS))

        builder = Tiny(data_dir=str(tmp_path / "tfds"), file_format="array_record")
        builder.download_and_prepare()
        yield builder.data_path


def refusal(kind, source, column="text"):
    with pytest.raises(kind) as error:
        open_corpus(source, column)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_saved_data_set(datasets, tmp_path):
    folder = tmp_path / "saved"
    datasets.Dataset.from_dict({"text": TEXTS, "number": [1, 2, 3, 4], "other": ["a", "b", "c", "d"]}).save_to_disk(folder)
    assert list(open_corpus(f"hf:{folder}")) == EXPECTED
    assert list(open_corpus(f"hf:{folder}", "other")) == ["a", "b", "c", "d"]
    assert "no column 'txt', only text, number, other" in refusal(DataError, f"hf:{folder}", "txt")
    assert "number" in (message := refusal(DataError, f"hf:{folder}", "number")) or "int" in message


def test_splits_of_a_saved_data_set(datasets, tmp_path):
    parts = {"train": datasets.Dataset.from_dict({"text": ["a", "b"]}), "test": datasets.Dataset.from_dict({"text": ["c"]})}
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "saved")
    assert list(open_corpus(f"hf:{tmp_path}/saved")) == ["a", "b"]
    assert list(open_corpus(f"hf:{tmp_path}/saved:test")) == ["c"]
    assert "no split 'dev', only train, test" in refusal(DataError, f"hf:{tmp_path}/saved:dev")


def test_a_saved_data_set_beside_a_file(datasets, tmp_path):
    datasets.Dataset.from_dict({"text": ["a", None][:1]}).save_to_disk(tmp_path / "saved")
    (tmp_path / "more.txt").write_text("b\n")
    assert list(open_corpus(f"hf:{tmp_path}/saved,{tmp_path}/more.txt")) == ["a", "b"]


def test_missing_texts_are_refused_by_row(datasets, tmp_path):
    datasets.Dataset.from_dict({"text": ["a", None]}).save_to_disk(tmp_path / "saved")
    message = refusal(DataError, f"hf:{tmp_path}/saved")
    assert "row 1" in message
    assert "NoneType" in message


def test_a_prepared_tfds_folder(prepared):
    assert sorted(open_corpus(f"tfds:{prepared}")) == sorted(EXPECTED)
    assert len(open_corpus(f"tfds:{prepared}:train[:50%]")) == 2
    assert "no column 'txt'" in refusal(DataError, f"tfds:{prepared}", "txt")
    assert "cannot be loaded" in refusal(DataError, f"tfds:{prepared}:dev")
    assert "tensorflow" not in sys.modules


def test_what_cannot_be_loaded(datasets, tmp_path, monkeypatch):
    assert "write hf:NAME" in refusal(ConfigError, "hf:")
    assert "write tfds:NAME" in refusal(ConfigError, "tfds::train")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "state.json").write_text("{")
    (tmp_path / "damaged" / "dataset_info.json").write_text("{")
    assert "cannot be loaded" in refusal(DataError, f"hf:{tmp_path}/damaged")
    assert "cannot be loaded" in refusal(DataError, f"hf:{tmp_path}/absent")


@pytest.mark.parametrize(("source", "module", "extra"), [("hf:x", "datasets", "hub"), ("tfds:x", "tensorflow_datasets", "tfds")])
def test_an_absent_extra_is_named(monkeypatch, source, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    assert f'pip install "jax_sentemb[{extra}]"' in refusal(ConfigError, source)
