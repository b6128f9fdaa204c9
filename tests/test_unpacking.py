"""Limits of what compressed files may become: bytes that are read, bytes in the cache, and space on its disk."""

import bz2
import gzip
import lzma
from types import SimpleNamespace

import pytest

from jax_sentemb.data import conversion, unpacking
from jax_sentemb.data.corpus_files import open_corpus
from jax_sentemb.data.pairs import read_pairs
from jax_sentemb.errors import ConfigError, DataError, ResourceError

LIMIT = 1 << 20


@pytest.fixture(autouse=True)
def limit(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_SENTEMB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(unpacking, "LIMIT", LIMIT)


def bomb(path):
    """A small file that becomes 1.25 MiB, or 2 MiB for parquet."""
    kind = path.name.split(".")[1]
    text = bytes(range(97, 123)) + b" " + bytes(range(65, 91))  # long lines are quick to read
    row = {"csv": text + b",1\n", "tsv": text + b"\t1\n", "jsonl": b'{"text": "%s"}\n' % text, "txt": text + b"\n"}.get(kind, b"")
    head = {"csv": b"text,id\n", "tsv": b"text\tid\n"}.get(kind, b"")
    if kind == "parquet":
        pyarrow = pytest.importorskip("pyarrow.parquet")
        arrow = pytest.importorskip("pyarrow")
        pyarrow.write_table(arrow.table({"text": ["a" * 1000] * (1 << 11)}), path, compression="zstd")
    else:
        packer = {"gz": gzip, "xz": lzma, "bz2": bz2}[path.suffix[1:]]
        path.write_bytes(packer.compress(head + row * (LIMIT * 5 // 4 // len(row))))
    assert path.stat().st_size < LIMIT // unpacking.RATIO
    return str(path)


@pytest.mark.parametrize(
    "ending", [*(f"{kind}.{packed}" for kind in ("txt", "csv", "tsv", "jsonl") for packed in ("gz", "xz")), "parquet"]
)
def test_a_bomb_is_refused_before_the_disk_is_full_unless_the_limit_is_raised(tmp_path, monkeypatch, ending):
    path = bomb(tmp_path / f"a.{ending}")
    with pytest.raises(DataError, match=r"unpacks to more than 1,048,576 bytes.*set JAX_SENTEMB_UNPACKED_GB to more than 0\.0"):
        open_corpus(path)
    assert not [file for file in (tmp_path / "cache").rglob("*.txt") if file.stat().st_size]
    monkeypatch.setenv("JAX_SENTEMB_UNPACKED_GB", "0.1")
    assert len(open_corpus(path)) > 1000


def test_a_text_that_a_parquet_file_repeats_is_held_once_and_counted_each_time(tmp_path):
    pyarrow, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    table = arrow.table({"text": arrow.DictionaryArray.from_arrays(arrow.array([0] * 10_000), ["a b " * 25_000])})
    pyarrow.write_table(table, tmp_path / "a.parquet", compression="zstd")
    before = arrow.total_allocated_bytes()
    with pytest.raises(DataError, match="unpacks to more than 1,048,576 bytes"):
        open_corpus(str(tmp_path / "a.parquet"))
    assert arrow.total_allocated_bytes() - before < 1 << 20


def test_a_long_line_is_refused_by_the_name_of_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr(unpacking, "LIMIT", 4 * LIMIT)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"a b\n" + b"a b " * (1 << 19) + b"\nb c\n"))
    assert len(open_corpus(str(tmp_path / "a.txt.gz"))) == 3
    monkeypatch.setenv("JAX_SENTEMB_CACHE", str(tmp_path / "other"))
    monkeypatch.setattr(conversion, "LONGEST", 1 << 20)
    with pytest.raises(DataError, match=r"a\.txt\.gz has a line of more than 1,048,576 bytes; divide it into lines"):
        open_corpus(str(tmp_path / "a.txt.gz"))


def test_labelled_pairs_have_the_same_limit(tmp_path):
    row = b"a man\ta dog\t1\n"
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress(b"sentence1\tsentence2\tscore\n" + row * ((1 << 21) // len(row))))
    with pytest.raises(DataError, match="unpacks to more than 1,048,576 bytes"):
        read_pairs(str(tmp_path / "a.tsv.gz"))


def test_text_of_ordinary_compression_has_no_limit(tmp_path):
    lines = "".join(f"{number:x} {number * 7919 % 65537:x} {number * 104729 % 7:x}\n" for number in range(400_000))
    assert len(lines) > LIMIT
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(lines.encode()))
    assert len(open_corpus(str(tmp_path / "a.txt.gz"))) == 400_000


@pytest.mark.parametrize("value", ["ten", "-1", "nan", "inf"])
def test_a_limit_that_is_no_number_is_refused(tmp_path, monkeypatch, value):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"a\n"))
    monkeypatch.setenv("JAX_SENTEMB_UNPACKED_GB", value)
    with pytest.raises(ConfigError, match=f"JAX_SENTEMB_UNPACKED_GB={value}: not a number of gigabytes"):
        open_corpus(str(tmp_path / "a.txt.gz"))


@pytest.mark.parametrize("name", ["a.txt.gz", "a.jsonl"])
def test_the_space_on_the_disk_is_checked_before_and_while_a_file_is_converted(tmp_path, monkeypatch, name):
    lines = b"".join(b'{"text": "line %d"}\n' % number for number in range(100_000))
    (tmp_path / name).write_bytes(gzip.compress(lines) if name.endswith("gz") else lines)
    free = [1 << 30]

    def usage(folder):
        free.append(free[-1] // 1000)
        return SimpleNamespace(total=1 << 40, free=free[-2])

    monkeypatch.setattr(unpacking.shutil, "disk_usage", usage)
    monkeypatch.setattr(unpacking, "CHECK_INTERVAL", 1 << 20)
    with pytest.raises(ResourceError, match=r"1,073,741 bytes are free, .* are needed; free space, or use another disk"):
        open_corpus(str(tmp_path / name))
    assert len(free) == 3
    assert not list((tmp_path / "cache").rglob("*.txt"))
    monkeypatch.setattr(unpacking.shutil, "disk_usage", lambda folder: SimpleNamespace(total=1 << 40, free=1 << 20))
    with pytest.raises(ResourceError, match="1,048,576 bytes are free"):
        open_corpus(str(tmp_path / name))
