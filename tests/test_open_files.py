"""Text files that are opened as needed: more files than may be open, and files that change meanwhile."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from jax_sentemb.data import open_files
from jax_sentemb.data.corpus_files import open_corpus
from jax_sentemb.errors import DataError

FILES = 300
READ = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from jax_sentemb.data import open_files, text_file
from jax_sentemb.data.corpus_files import open_corpus
open_files.MAX_OPEN = 16
text_file.LARGE = int(sys.argv[2])
sentences = open_corpus(sys.argv[1] + "/*.txt")
assert list(sentences) == [f"text {number}" for number in range(len(sentences))]
assert sentences.starts_document(0, len(sentences)).all()
assert sentences.read_unchanged(lambda: [sentences[number] for number in range(0, len(sentences), 7)])[1] == "text 7"
sentences.check_unchanged(content=True)
print(len(sentences), sentences.rows(range(len(sentences)))[-1])
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_SENTEMB_CACHE", str(tmp_path / "cache"))
    (tmp_path / "texts").mkdir()
    for number in range(FILES):
        (tmp_path / "texts" / f"{number:06d}.txt").write_text(f"\ntext {number}\n")
    return tmp_path / "texts"


@pytest.mark.parametrize("large", [1, 1 << 26])
def test_more_files_than_may_be_open(folder, large):
    done = subprocess.run([sys.executable, "-c", READ, folder, str(large)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"{FILES} {2 * FILES - 1}\n", "")


def test_the_number_of_open_files_does_not_grow(folder, monkeypatch):
    monkeypatch.setattr(open_files, "MAX_OPEN", 8)
    before = len(os.listdir("/proc/self/fd"))
    sentences = open_corpus(f"{folder}/*.txt")
    for number in (*range(FILES), *range(0, FILES, 3)):
        assert sentences[number] == f"text {number}"
        assert len(os.listdir("/proc/self/fd")) <= before + 10
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 0


def test_a_file_that_is_another_one_when_it_is_opened_again_is_refused(folder, monkeypatch):
    monkeypatch.setattr(open_files, "MAX_OPEN", 8)
    sentences = open_corpus(f"{folder}/*.txt")
    assert sentences[5] == "text 5"
    file = Path(folder / "000005.txt")
    for number in range(20, 40):
        assert sentences[number] == f"text {number}"
    file.touch()
    assert sentences[5] == "text 5"  # the same content at another time
    for number in range(20, 40):
        sentences[number]
    file.unlink()
    file.write_text("\ntext 6\n")
    with pytest.raises(DataError, match=r"000005\.txt changed while it was read"):
        sentences[5]
    file.unlink()
    with pytest.raises(DataError, match=r"000005\.txt changed while it was read"):
        sentences[5]
