"""What other processes, terminals, disks and model directories of others do to a command: one line, or it works."""

import glob
import gzip
import lzma
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jax_sentemb.errors import BusyError, DataError, ResourceError
from jax_sentemb.export import staged
from jax_sentemb.text import files, workers
from jax_sentemb.text.files import open_corpus
from jax_sentemb.text.tokenizer import Tokenizer
from jax_sentemb.vectors import Encoded, write_file

ROOT = Path(__file__).parents[1]
LINES = [f"the {one} of {other}" for one in ("fox", "dog", "owl", "cat") for other in range(500)]


@pytest.fixture(autouse=True)
def corpus(tmp_path, monkeypatch):
    """A file of several pages of memory."""
    monkeypatch.setenv("JAX_SENTEMB_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "corpus.txt"
    file.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return file


def test_a_text_file_that_shrinks_while_it_is_read_is_one_line(corpus):
    sentences = open_corpus(str(corpus))
    os.truncate(corpus, 5000)
    assert sentences[0] == LINES[0]
    for wrong in (lambda: list(sentences), lambda: sentences.place(len(LINES) - 1)):
        with pytest.raises(DataError, match=r"corpus\.txt changed while it was read"):
            wrong()


def test_a_text_file_that_is_overwritten_while_it_is_read_is_one_line(corpus):
    sentences = open_corpus(str(corpus))
    corpus.write_bytes(b"\xff" * corpus.stat().st_size)
    with pytest.raises(DataError, match=r"corpus\.txt changed while it was read"):
        list(sentences)


def test_a_text_file_that_shrinks_under_workers_is_one_line(corpus, monkeypatch):
    monkeypatch.setattr(files, "LARGE", 1)
    monkeypatch.setattr(workers, "PARALLEL", 1)
    monkeypatch.setattr(workers, "SENTENCES", 30)
    sentences = open_corpus(str(corpus))
    tokens = workers.blocks(workers.Job(sentences, Tokenizer.train(LINES, 200), 16), range(len(LINES)), 2)
    next(tokens)
    os.truncate(corpus, 5000)
    with pytest.raises(DataError, match=r"corpus\.txt.* changed while it was read"):
        list(tokens)


def test_of_two_writers_of_a_file_the_second_says_so_and_leaves_the_first_alone(tmp_path):
    def encode(texts):
        with pytest.raises(BusyError, match=r"x\.npy is being written by another process"):
            write_file(tmp_path / "x.npy", "float32", LINES[:9], encode, lambda count: None, 5)
        return Encoded(np.ones((len(texts), 2), np.float32), 0)

    write_file(tmp_path / "x.npy", "float32", LINES[:9], encode, lambda count: None, 5)
    assert np.load(tmp_path / "x.npy").shape == (9, 2)
    with staged(tmp_path / "export") as stage:
        (stage / "jax_sentemb.json").write_text("first")
        with pytest.raises(BusyError, match="export is being written by another process"), staged(tmp_path / "export"):
            pass
    assert (tmp_path / "export" / "jax_sentemb.json").read_text() == "first"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.txt", "export", "x.npy"]
    (tmp_path / ".export.1.partial").mkdir()  # of a writer that was killed
    with staged(tmp_path / "export") as stage:
        (stage / "jax_sentemb.json").write_text("second")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.txt", "export", "x.npy"]


@pytest.mark.parametrize("name", ["x.npy", "x.parquet", "shards"])
def test_encoding_to_a_full_disk_names_the_file_and_ends_with_7(tmp_path, name):
    program = """
import resource, sys
from pathlib import Path
import numpy as np
from jax_sentemb.command_line import program
from jax_sentemb.vectors import SAME, Encoded, write_file, write_shards

def main(argv):
    output, texts = Path(argv[1]), ["a"] * 2000
    facts = {**dict.fromkeys(SAME, ""), "precision": "float32", "rows_per_shard": 1000, "format": "npy"}
    encode = lambda texts: Encoded(np.random.default_rng(0).random((len(texts), 64), np.float32), 0)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    if output.suffix:
        return write_file(output, "float32", texts, encode, lambda count: None, 1000)
    write_shards(output, facts, texts, encode, lambda count: None)
    return 0

sys.exit(program(main, sys.argv))
"""
    done = subprocess.run([sys.executable, "-c", program, tmp_path / name], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == ResourceError.exit_code, done.stderr
    named = tmp_path / ("shards/000000.npy" if name == "shards" else name)
    assert done.stderr.startswith(f"error: {named}: "), done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("text", ["a man is\nplaying a guitar\n", "\u0447\u0435\u043b\u043e\u0432\u0435\u043a \u0438\u0433\n"])
@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.csv", "a.tsv.gz", "a.jsonl"])
def test_text_in_two_or_four_bytes_a_character_is_refused(tmp_path, encoding, text, name):
    content = text.encode(encoding)
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(DataError):
        open_corpus(str(tmp_path / name))
    assert len(open_corpus(str(tmp_path / "corpus.txt"))) == len(LINES)


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.csv", "a.jsonl"])
def test_lines_that_end_in_carriage_returns_alone_are_refused(tmp_path, name):
    content = b"text\ra man\ra dog\r"
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(DataError):
        open_corpus(str(tmp_path / name))
    (tmp_path / "b.txt").write_bytes(b"a man\ra dog\r\na cat\n")
    assert list(open_corpus(str(tmp_path / "b.txt"))) == ["a man\ra dog", "a cat"]


def test_globs_enter_a_folder_once_whatever_links_lead_back_to_it(tmp_path):
    for name in ("x", "x/y", "x/.hidden", "elsewhere"):
        (tmp_path / "tree" / name).mkdir(parents=True)
        (tmp_path / "tree" / name / "a[1].txt").write_text(f"{name}\n")
    for number in range(3):  # glob.glob follows them to 3 ** 40 names
        (tmp_path / "tree" / "x" / f"loop{number}").symlink_to(tmp_path / "tree")
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "b.txt").write_text("linked\n")
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "far")
    found = list(open_corpus(f"{tmp_path}/tree/**/*.txt"))
    assert sorted(found) == ["elsewhere", "linked", "x", "x/y"]
    assert sorted(open_corpus(f"{tmp_path}/t*/**/x/**/*.txt")) == sorted(found)


def test_relative_globs_with_two_stars_are_those_of_the_standard_library(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("c.txt", "p/q/d.txt", "p/e.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a\n")
    for pattern in ("**/*.txt", "p/**/*.txt", "**/q/*.txt", "./**/d.txt", "**/*", "p**/*.txt", "p/**"):
        found, expected = files._matches(pattern), glob.glob(pattern, recursive=True)
        found, expected = (set(filter(os.path.isfile, names)) for names in (found, expected))
        assert found == expected, pattern


@pytest.mark.parametrize("name", ["a.txt.gz", "a.txt.xz", "a.jsonl.gz"])
def test_a_packed_file_that_unpacks_to_more_than_any_text_is_refused_before_the_disk_is_full(tmp_path, monkeypatch, name):
    monkeypatch.setattr(files, "UNPACKED", 1 << 22)
    content = b"a" * (1 << 23)
    (tmp_path / name).write_bytes((gzip if name.endswith("gz") else lzma).compress(content))
    with pytest.raises(DataError, match=r"unpacks to more than 200 times|line 1 has 4,194,304 bytes or more"):
        open_corpus(str(tmp_path / name))
    assert not [file for file in (tmp_path / "cache").rglob("*") if file.is_file() and file.stat().st_size]
