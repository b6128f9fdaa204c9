"""SHA-256 of inputs: what is read again, and which files of a folder count."""

import hashlib
import os
import time

import pytest

from jax_sentemb.data import digest, text_file
from jax_sentemb.data.digest import file_digest, folder_digest


@pytest.fixture
def read(monkeypatch):
    """The files that are hashed; a file of one byte is large."""
    found, real = [], digest.sha256_of
    monkeypatch.setattr(text_file, "LARGE", 1)
    monkeypatch.setattr(digest, "sha256_of", lambda path: (found.append(path.name), real(path))[1])
    return found


def test_a_large_file_is_hashed_once_and_again_after_an_edit_that_hides_its_time(tmp_path, read):
    file = tmp_path / "a"
    for content in (b"one", b"two"):
        file.write_bytes(content)
        os.utime(file, (1, 1))
        assert {file_digest(file) for _ in range(3)} == {hashlib.sha256(content).hexdigest()}
        time.sleep(0.02)  # a tick of the file system's clock
    assert read == ["a", "a"]


def test_a_small_file_is_always_hashed(tmp_path, monkeypatch):
    file = tmp_path / "a"
    monkeypatch.setattr(digest, "identity_of", lambda paths: pytest.fail("known by its times"))
    for content in (b"one", b"two"):
        file.write_bytes(content)
        assert file_digest(file) == hashlib.sha256(content).hexdigest()


def test_a_folder_is_what_its_files_of_these_names_contain(tmp_path):
    for name, content in (("config.json", "{}"), ("part/model.safetensors", "w"), ("README.md", "text"), ("facts.json", "1")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)

    def now():
        return folder_digest(tmp_path, ["*.json", "*.safetensors"], ["facts.json"])

    before = now()
    (tmp_path / "README.md").write_text("other text")
    (tmp_path / "facts.json").unlink()
    assert now() == before
    (tmp_path / "part" / "model.safetensors").write_text("v")
    assert now() != before
    (tmp_path / "part" / "model.safetensors").write_text("w")
    assert now() == before
    (tmp_path / "part" / "model.safetensors").rename(tmp_path / "model.safetensors")
    assert now() != before
