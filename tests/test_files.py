"""Files that others see appear whole or not at all, follow no planted link, and name themselves when the disk is full."""

import contextlib
import errno
import fcntl
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jax_sentemb import files
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.errors import BusyError, DataError
from jax_sentemb.files import path_in_errors, replacing, sole_writer, split_name, staging, system_error, write_json, write_text

ROOT = Path(__file__).parents[1]


def test_planted_links_are_not_followed_and_not_published(tmp_path, monkeypatch):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    output = tmp_path / "report.html"
    (tmp_path / "report.html.partial").symlink_to(victim)
    numbers = iter(["0" * 16, "1" * 16])
    monkeypatch.setattr(files.secrets, "token_hex", lambda count: next(numbers))
    (tmp_path / f".report.html.{'0' * 16}.partial").symlink_to(victim)  # a name that was guessed
    with pytest.raises(FileExistsError, match=r"report\.html'"):
        write_text(output, "page")
    write_text(output, "page")
    assert output.read_text() == "page"
    assert not output.is_symlink()
    assert victim.read_text() == "precious"


def test_a_link_that_replaces_the_temporary_file_is_not_published(tmp_path):
    victim, output = tmp_path / "victim", tmp_path / "report.html"
    victim.write_text("precious")

    def replaced():
        with replacing(output) as partial:
            partial.unlink()
            partial.symlink_to(victim)

    with pytest.raises(OSError, match="replaced the temporary file"):
        replaced()
    assert not output.exists()
    assert victim.read_text() == "precious"
    assert os.listdir(tmp_path) == ["victim"]


def test_what_a_killed_writer_left_is_deleted_and_what_a_living_one_writes_is_not(tmp_path):
    output = tmp_path / "table.csv"
    program = f"""
import os, signal, sys
from pathlib import Path
from jax_sentemb.files import replacing, staging
with staging(Path({str(output)!r})), replacing(Path({str(output)!r})):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert len(os.listdir(tmp_path)) == 2
    with replacing(output) as first:
        first.write_text("first")
        with staging(output) as folder:
            write_text(output, "second")
            assert sorted(os.listdir(tmp_path)) == sorted(["table.csv", first.name, folder.name])
    assert os.listdir(tmp_path) == ["table.csv"]
    assert output.read_text() == "first"  # the last one to be complete


def test_a_folder_with_an_equals_sign_is_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert split_name("lr=0.1/model") == ("lr", "0.1/model")
    (tmp_path / "lr=0.1" / "model").mkdir(parents=True)
    assert split_name("lr=0.1/model") == ("", "lr=0.1/model")
    assert split_name("a=lr=0.1/model") == ("a", "lr=0.1/model")


def test_an_error_keeps_the_old_file_and_leaves_nothing(tmp_path):
    output = tmp_path / "table.json"
    write_json(output, [1])

    def failing():
        with replacing(output) as partial:
            partial.write_text("half")
            raise DataError("line 3")

    with pytest.raises(DataError):
        failing()
    assert output.read_text() == "[\n  1\n]\n"
    assert os.listdir(tmp_path) == ["table.json"]


def test_the_longest_names_can_be_written(tmp_path):
    for name in ("x" * 255, "\u754c" * 85):
        with sole_writer(tmp_path / name):
            write_text(tmp_path / name, "text")
    assert sorted(path.read_text() for path in tmp_path.iterdir()) == ["text", "text"]


def test_files_have_the_rights_that_the_umask_leaves(tmp_path):
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "file", "text")
        with staging(tmp_path / "folder") as stage:
            stage.rename(tmp_path / "folder")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o750


def test_a_lock_that_was_deleted_before_it_was_locked_does_not_count(tmp_path, monkeypatch):
    """The second writer opens the lock file, then the first one deletes and releases it, then the second one locks it."""
    path, flock, first = tmp_path / "x.npy", fcntl.flock, contextlib.ExitStack()
    first.enter_context(sole_writer(path))

    def late(descriptor, operation):
        monkeypatch.setattr(fcntl, "flock", flock)
        first.close()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with contextlib.suppress(BusyError), sole_writer(path):  # it may be refused, and may be let in, but then nobody else is
        third = sole_writer(path)
        with pytest.raises(BusyError):
            third.__enter__()
    assert fcntl.flock is flock
    assert os.listdir(tmp_path) == []


def test_a_folder_without_room_for_files_is_not_called_busy(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"/proc/x.npy"), sole_writer(Path("/proc/x.npy")):
        pass


RUST = "No space left on device (os error 28)"
FAISS = "Error in write_index: 'ret == (size)' failed: write error in x: 0 != 4096 (No space left on device)"


@pytest.mark.parametrize(
    ("error", "number"),
    [
        (Exception(RUST), errno.ENOSPC),
        (Exception("Permission denied (os error 13)"), errno.EACCES),
        (RuntimeError(FAISS), errno.ENOSPC),
        (ValueError("RESOURCE_EXHAUSTED: Error writing: No space left on device [source locations]"), errno.ENOSPC),
        (OSError("25600 requested and 4051 written: Disk quota exceeded"), errno.EDQUOT),
        (OSError(errno.EFBIG, "File too large"), errno.EFBIG),
        (DataError(RUST), None),
        (ValueError("no such column"), None),
    ],
)
def test_errors_of_libraries_are_errors_of_the_system(tmp_path, error, number):
    found = system_error(error)
    assert (found and found.errno) == number
    with pytest.raises(OSError if number else type(error)) as raised, path_in_errors(tmp_path / "x.npy"):
        raise error
    if number:
        assert (raised.value.errno, raised.value.filename) == (number, str(tmp_path / "x.npy"))


def test_errors_never_name_the_temporary_file(tmp_path):
    output = tmp_path / "export"
    with pytest.raises(FileNotFoundError, match=f"'{output}'"), path_in_errors(output), staging(output) as folder:
        (folder / "no" / "file").write_text("text")


def test_no_writer_makes_temporary_names_of_its_own():
    """Every other file of the package writes through `files`."""
    for file in sorted((ROOT / "jax_sentemb").rglob("*.py")):
        if file.name != "files.py":
            assert not re.search(r"""["'}.]partial["']""", file.read_text(encoding="utf-8")), file


@pytest.mark.parametrize(
    ("options", "number"),
    [("size=16k", errno.ENOSPC), ("nr_inodes=2", errno.ENOSPC), ("ro", errno.EROFS)],
    ids=lambda value: str(value),
)
def test_a_disk_without_space_inodes_or_rights_is_an_error_that_names_the_file(tmp_path, mount_tmpfs, options, number):
    """A tokenizer is written by a library in Rust, which raised a bare Exception."""
    disk = mount_tmpfs(tmp_path / "disk", "-o", options)
    if options.startswith("nr_inodes"):
        (disk / "last").touch()
    words = [f"word{number}" for number in range(2000)]
    tokenizer = Tokenizer.train(words, 3000)
    with pytest.raises(OSError) as raised:
        tokenizer.save(disk)
    assert (raised.value.errno, raised.value.filename) == (number, str(disk / "tokenizer.json"))
    assert not list(disk.glob(".*"))
