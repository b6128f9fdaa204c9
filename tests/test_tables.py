"""Parquet files, Hugging Face `datasets` and `tensorflow-datasets` as corpora, on small data sets made here."""

import csv
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from jax_sentemb.data.corpus_files import open_corpus
from jax_sentemb.data.pairs import read_pairs
from jax_sentemb.data.tables import read_rows
from jax_sentemb.errors import ConfigError, DataError

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
    for split in ("test", "train[:1]"):
        assert f"is a single data set, without a split '{split}'; leave :{split} out" in refused(f"hf:{saved}/one:{split}")
    assert "no column 'sentence', only text, label" in refused(f"hf:{saved}/one", column="sentence")
    assert "row 0: label is a number, not text" in refused(f"hf:{saved}/one", column="label")
    assert "cannot be loaded" in refused(f"hf:{saved}/absent")
    assert "write hf:NAME" in refused("hf:", ConfigError)


def test_a_data_set_written_again_is_read_again(tmp_path):
    datasets = pytest.importorskip("datasets")
    for texts in (["first"], ["other"]):
        datasets.Dataset.from_dict({"text": texts}).save_to_disk(tmp_path / "again")
        assert list(open_corpus(f"hf:{tmp_path}/again")) == texts


def test_a_file_that_changed_with_its_time_kept_is_read_again(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "hf"))
    (tmp_path / "files").mkdir()
    file = tmp_path / "files" / "train.jsonl"
    for text in ("first", "other"):
        file.write_text(json.dumps({"text": text}) + "\n", encoding="utf-8")
        os.utime(file, (1_700_000_000, 1_700_000_000))
        assert list(open_corpus(f"hf:{tmp_path}/files")) == [text]


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


def write_parquet(path, columns, **options):
    pyarrow = pytest.importorskip("pyarrow")
    pyarrow.parquet.write_table(pyarrow.table(columns), path, **options)
    return str(path)


@pytest.fixture
def parquet(tmp_path):
    """Row groups of two rows."""
    pytest.importorskip("pyarrow.parquet")
    columns = {"text": [*TEXTS[:3], None, TEXTS[4]], "label": [None, 1, 2, 3, 4], "raw": [text.encode() for text in TEXTS]}
    return write_parquet(tmp_path / "a.parquet", columns, row_group_size=2)


@pytest.mark.parametrize("kind", ["string", "large_string", "string_view", "dictionary"])
def test_parquet_files_are_corpora_and_nulls_are_blank(tmp_path, parquet, kind):
    import pyarrow

    types = {"dictionary": pyarrow.dictionary(pyarrow.int32(), pyarrow.string())}
    column = pyarrow.array([*TEXTS[:3], None, TEXTS[4]], types.get(kind) or pyarrow.type_for_alias(kind))
    (tmp_path / "a.txt").write_text("\n".join([*SENTENCES[:3], "", SENTENCES[3], ""]), encoding="utf-8")
    corpus = open_corpus(write_parquet(tmp_path / "b.parquet", {"text": column}))
    assert list(corpus) == SENTENCES
    assert corpus.report["lines"] == 5
    assert corpus.report["blank"] == 1
    assert corpus.fingerprint == open_corpus(str(tmp_path / "a.txt")).fingerprint
    assert list(open_corpus(f"{tmp_path}/*.parquet", column="text,text")) == [text for text in SENTENCES * 2 for _ in range(2)]


def test_parquet_mistakes_are_one_line(tmp_path, parquet):
    found = "a.parquet has no column 'sentence', only text, label, raw: name the column of the text with data.column"
    assert found in refused(parquet, column="sentence")
    assert "a.parquet row 1: label is a number, not text" in refused(parquet, column="label")
    assert "a.parquet: column 'raw' has the type binary; give a column of text" in refused(parquet, column="raw")
    empty = write_parquet(tmp_path / "empty.parquet", {"text": [None, ""]})
    assert "contains no sentence (2 lines" in refused(empty)
    whole = (tmp_path / "a.parquet").read_bytes()
    for name, content in {
        "cut": whole[:-9],
        "text": b"a sentence\n",
        "none": b"",
        "torn": whole[:4] + b"\xff" * 60 + whole[64:],
    }.items():
        (tmp_path / f"{name}.parquet").write_bytes(content)
        assert f"{name}.parquet cannot be loaded: " in refused(str(tmp_path / f"{name}.parquet"))


def test_a_row_group_of_a_parquet_file_may_be_larger_than_memory(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    texts = [f"{number:0200d}" for number in range(60_000)]
    large = write_parquet(tmp_path / "large.parquet", {"text": texts}, compression="none", use_dictionary=False)
    before = pyarrow.total_allocated_bytes()
    rows = read_rows(large, ("text",))
    next(iter(rows))
    assert pyarrow.total_allocated_bytes() - before < (tmp_path / "large.parquet").stat().st_size / 2


def test_a_row_of_pairs_without_a_label_in_a_parquet_file_is_left_out(tmp_path):
    columns = {"sentence1": ["a", "b", None], "sentence2": ["c", "d", "e"], "score": [1.5, None, 2.0]}
    pairs = read_pairs(write_parquet(tmp_path / "a.parquet", columns))
    assert (pairs.first, pairs.labels.tolist(), pairs.unlabelled) == (["a"], [1.5], 2)


@pytest.mark.parametrize(
    ("name", "module", "package"),
    [
        ("hf:x", "datasets", "datasets"),
        ("tfds:x", "tensorflow_datasets", "tensorflow-datasets"),
        ("a.parquet", "pyarrow", "pyarrow"),
    ],
)
def test_a_missing_package_is_named(tmp_path, monkeypatch, name, module, package):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, module, None)
    assert f"pip install {package}" in refused(name, ConfigError)


def test_text_imports_neither_jax_nor_an_extra():
    modules = "corpus_files, tables, tokenizer, tokens, batches"
    heavy = ["jax", "flax", "datasets", "pyarrow", "tensorflow_datasets", "tensorflow", "transformers", "torch", "sklearn"]
    code = f"import sys\nfrom jax_sentemb.data import {modules}\nprint([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def refused_table(path, content, **options):
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError) as caught:
        list(open_corpus(str(path), **options))
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{path} ")


@pytest.mark.parametrize("separator", [",", "\t"])
def test_a_row_longer_or_shorter_than_the_header_is_refused_with_its_line(tmp_path, separator):
    path = tmp_path / ("a.csv" if separator == "," else "a.tsv")
    for row, count in (("2,a man, who plays", 3), ("2", 1), (",,", 3)):
        content = "id,text\n1,good\n".replace(",", separator) + row.replace(",", separator) + "\n"
        assert refused_table(path, content).startswith(f"line 3 has {count} field{'s' * (count != 1)}, the header has 2; "), row
    assert refused_table(path, "text,id\n1\n".replace(",", separator)).startswith("line 2 has 1 field,")  # the column that is there


def test_columns_of_one_name_are_refused(tmp_path):
    assert refused_table(tmp_path / "a.csv", "text,id,text\na,1,b\n") == "line 1: two columns are named 'text'; rename one"
    assert refused_table(tmp_path / "a.tsv", "id\tid\ttext\n1\t2\tb\n") == "line 1: two columns are named 'id'; rename one"
    (tmp_path / "b.csv").write_text('text,,\n"a ""b"", c\nd",,\n', encoding="utf-8")
    assert list(open_corpus(str(tmp_path / "b.csv"))) == ['a "b", c d']  # columns without a name may repeat
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    table = arrow.Table.from_arrays([arrow.array(["a"]), arrow.array(["b"])], names=["text", "text"])
    parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DataError, match="two columns are named 'text'"):
        open_corpus(str(tmp_path / "a.parquet"))


def test_keys_of_one_name_are_refused_with_the_line(tmp_path):
    problem = refused_table(tmp_path / "a.jsonl", '{"text": "a"}\n{"text": "b", "id": 1, "text": "c"}\n')
    assert problem == "line 2: not JSON (key 'text' occurs twice in an object); write one object on each line"
    assert "key 'x' occurs twice" in refused_table(tmp_path / "a.jsonl", '{"text": "a", "more": [{"x": 1, "x": 1}]}\n')
    (tmp_path / "b.jsonl").write_text('\ufeff{"text": "a"}\n{"id": 1, "text": "b", "more": {"text": 1}}\n', encoding="utf-8")
    assert list(open_corpus(str(tmp_path / "b.jsonl"))) == ["a", "b"]


def test_a_blank_line_of_a_table_with_one_column_is_an_empty_text(tmp_path):
    (tmp_path / "a.csv").write_text("text\na\n\nb\n", encoding="utf-8")
    corpus = open_corpus(str(tmp_path / "a.csv"))
    assert (list(corpus), corpus.report["lines"]) == (["a", "b"], 3)
    (tmp_path / "b.csv").write_text("text,id\na,1\n\nb,2\n", encoding="utf-8")
    assert open_corpus(str(tmp_path / "b.csv")).report["lines"] == 2


def test_a_long_field_is_read_and_the_limit_of_the_program_stays(tmp_path):
    limit = csv.field_size_limit()
    assert limit < 200_000
    for suffix, separator in ((".csv", ","), (".tsv", "\t")):
        (tmp_path / f"long{suffix}").write_text(f"id{separator}text\n1{separator}{'x' * 200_000}\n", encoding="utf-8")
        ((_, values),) = read_rows(str(tmp_path / f"long{suffix}"), ("text",))
        assert values == ["x" * 200_000]
    assert csv.field_size_limit() == limit
    with pytest.raises(csv.Error):
        list(csv.reader(["x" * 200_000]))
