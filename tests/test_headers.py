"""Files that promise more than they hold, or more than memory holds, are refused by their headers before they are read."""

import json
import lzma
import os
import struct
import time

import numpy as np
import pytest
from safetensors.numpy import save
from test_hostile_files import CONFIG, SENTENCES, tensors_of

from jax_sentemb import files, provenance
from jax_sentemb.data import tables, unpacking
from jax_sentemb.data.corpus_files import open_corpus, open_text
from jax_sentemb.data.delimited import decode_file
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.data.word_vectors import read_word_vectors
from jax_sentemb.errors import DataError, ModelFileError
from jax_sentemb.formats import model_dir
from jax_sentemb.inference.load import load
from jax_sentemb.reporting.report_data import read_json_file
from jax_sentemb.retrieval.vector_manifest import read_list

HUGE = 93 * 10**9


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_SENTEMB_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path):
    """A model directory, to spoil."""
    folder = tmp_path / "model"
    folder.mkdir()
    Tokenizer.train(SENTENCES, 40).save(folder)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "model.safetensors").write_bytes(save(tensors_of()))
    return folder


def promising(size, name="more"):
    """A safetensors file that promises `size` bytes of one more tensor."""
    content = save(tensors_of())
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    header[name] = {"dtype": "F32", "shape": [size // 4], "data_offsets": [len(data), len(data) + size]}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def grow(file, size=HUGE):
    """Make a file larger without using space on the disk."""
    os.truncate(file, file.stat().st_size + size)


WEIGHTS = {
    "a header that promises more": (lambda file: file.write_bytes(promising(HUGE)), "describes 93,000,.* bytes of tensors"),
    "93 GB after the tensors": (grow, "describes 1,440 bytes of tensors, the file has 93,000,001,440"),
    "93 GB for one more tensor": (lambda file: (file.write_bytes(promising(HUGE)), grow(file)), "bytes of tensors; this machine"),
    "1 GB for one more tensor": (
        lambda file: (file.write_bytes(promising(10**9)), grow(file, 10**9)),
        r"more \[250000000\] is not part of a bert encoder",
    ),
    "93 GB for a head that is not read": (
        lambda file: (file.write_bytes(promising(HUGE, "cls.seq_relationship.weight")), grow(file)),
        "bytes of tensors; this machine",
    ),
    "a shape that is no list of numbers": (
        lambda file: file.write_bytes(promising(8).replace(b"[2]", b"2.5")),
        "its header cannot",
    ),
    "an unknown number type": (
        lambda file: file.write_bytes(promising(8).replace(b'{"dtype": "F32"', b'{"dtype": "Q32"', 1)),
        "Q32",
    ),
}


@pytest.mark.parametrize("title", WEIGHTS)
def test_weights_are_refused_by_their_header(folder, title):
    change, message = WEIGHTS[title]
    change(folder / "model.safetensors")
    begin = time.monotonic()
    with pytest.raises(ModelFileError, match=message):
        load(str(folder))
    assert time.monotonic() - begin < 5


def test_shards_are_refused_by_their_headers_and_together(folder, monkeypatch):
    names = sorted(tensors_of())
    for number, part in enumerate((names[::2], names[1::2])):
        (folder / f"{number}.safetensors").write_bytes(save({name: tensors_of()[name] for name in part}))
    index = {"weight_map": {name: f"{place % 2}.safetensors" for place, name in enumerate(names)}}
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert set(load(str(folder)).metadata["sha256"]) == {"0.safetensors", "1.safetensors"}
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 1, "SC_PAGE_SIZE": 1400}.__getitem__)
    with pytest.raises(ModelFileError, match="has 1,440 bytes of tensors; this machine has 1,400 bytes of memory"):
        load(str(folder))
    monkeypatch.undo()
    grow(folder / "1.safetensors")
    with pytest.raises(ModelFileError, match=r"1\.safetensors is damaged: its header describes"):
        load(str(folder))


def test_only_weights_that_are_read_are_hashed(folder):
    (folder / "onnx").mkdir()
    (folder / "onnx" / "other.safetensors").touch()
    grow(folder / "onnx" / "other.safetensors")
    begin = time.monotonic()
    assert set(load(str(folder)).metadata["sha256"]) == {"model.safetensors"}
    assert time.monotonic() - begin < 10


def test_files_of_an_export_are_refused_before_they_are_hashed(folder, monkeypatch):
    marked = {provenance.KEY: provenance.mark(provenance.EXPORT, {})}
    hashes = {name: files.sha256(folder / name) for name in ("model.safetensors", "tokenizer.json")}
    (folder / "jax_sentemb.json").write_text(json.dumps({"sha256": hashes, **marked}))
    load(str(folder))
    monkeypatch.setattr(model_dir, "HASH_LIMIT", 10**6)
    for name, message in (
        ("tokenizer.json", "too many for a file next to the weights"),
        ("model.safetensors", "its header describes"),
    ):
        size = (folder / name).stat().st_size
        grow(folder / name)
        with pytest.raises(ModelFileError, match=f"{name} .*{message}"):
            load(str(folder))
        os.truncate(folder / name, size)


def test_words_of_an_archive_without_width_are_refused(tmp_path):
    np.savez_compressed(tmp_path / "v.npz", words=np.zeros(10**7, "S1"), vectors=np.zeros((10**7, 0), np.float32))
    with pytest.raises(ModelFileError, match=r"vectors \[10000000, 0\] do not match"):
        read_word_vectors(tmp_path / "v.npz")


def test_an_xz_file_may_have_several_streams_but_no_large_dictionary(tmp_path, monkeypatch):
    lines = "".join(f"line {number} of a text\n" for number in range(30_000)).encode()
    file = tmp_path / "a.txt.xz"
    file.write_bytes(lzma.compress(lines, preset=9) + bytes(8) + lzma.compress(lines[::-1]) + bytes(4))
    with unpacking.open_unpacked(file, unpacking.COMPRESSED[".xz"]) as opened:
        assert opened.read() == lines + lines[::-1]
    file.write_bytes(lzma.compress(lines) + b"no stream")
    with pytest.raises(DataError, match="cannot be read: Input format not supported"):
        open_corpus(str(file))
    monkeypatch.setattr(unpacking, "XZ_MEMORY", 32 << 20)
    file.write_bytes(lzma.compress(lines, preset=9))
    with pytest.raises(DataError, match="cannot be read: Memory usage limit exceeded"):
        open_corpus(str(file))


@pytest.mark.parametrize("ending", ["gz", "xz"])
def test_a_file_that_is_not_compressed_is_refused_before_it_is_hashed(tmp_path, ending):
    file = tmp_path / f"a.txt.{ending}"
    file.write_bytes(b"a b\n")
    grow(file)
    begin = time.monotonic()
    with pytest.raises(DataError, match="cannot be read"):
        open_corpus(str(file))
    assert time.monotonic() - begin < 5


ROWS = {
    "a.jsonl": '{"text": "a b", "x": [[],' + "[],[],[],[]," * 9 + "[]]}\n",
    "a.csv": "text" + "," * 40 + "\n",
    "a.tsv": "text" + "\t" * 40 + "\n",
}


@pytest.mark.parametrize("name", ROWS)
def test_a_line_has_a_limited_number_of_values(tmp_path, monkeypatch, name):
    (tmp_path / name).write_text(ROWS[name])
    monkeypatch.setattr(tables, "MAX_VALUES", 30)
    with pytest.raises(DataError, match=f"{name} line 1 has more than 30 values; divide it into rows"):
        open_corpus(str(tmp_path / name))


@pytest.mark.parametrize("values", ["binary", "list", "struct", "dictionary"])
def test_columns_of_bytes_and_lists_are_refused_before_their_values_are_read(tmp_path, values):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    column = {
        "binary": lambda: arrow.array([b"a b"] * 3),
        "list": lambda: arrow.array([["a b"]] * 3),
        "struct": lambda: arrow.array([{"a": "b"}] * 3),
        "dictionary": lambda: arrow.DictionaryArray.from_arrays(arrow.array([0] * 3), [b"a b"]),
    }[values]()
    parquet.write_table(arrow.table({"text": ["a", "b", "c"], "_id": column}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet: column '_id' has the type .*; give a column of text, or ids of text"):
        open_text("--corpus", str(tmp_path / "a.parquet"))
    with pytest.raises(DataError, match=r"a\.parquet: column '_id' has the type"):
        open_corpus(str(tmp_path / "a.parquet"), "_id")


def test_descriptions_and_data_have_limits(tmp_path):
    file = tmp_path / "vectors.json"
    file.write_text("{}")
    grow(file)
    with pytest.raises(DataError, match=r"vectors\.json is damaged .*more than 67,108,864 bytes"):
        read_list(file)
    with pytest.raises(ModelFileError, match=r"vectors\.json: the file has more than 16,777,216 bytes"):
        read_json_file(file)
    with pytest.raises(DataError, match=r"vectors\.json: the file has more than 268,435,456 bytes"):
        decode_file(file)
