"""A program goes on when its output pipe closes, its terminal is lost, its descriptors are closed or their disk is full."""

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from jax_sentemb.system.streams import print_line

ROOT = Path(__file__).parents[1]
# Everything that speaks: prints, a bar, warnings, logging, a library in C that writes to descriptor 2, and the flush at the end.
SPEAKS = """
import ctypes, logging, os, sys, warnings
from tqdm import tqdm
from jax_sentemb.cli.program import program

def main(argv):
    sys.stdin.readline()  # the test has closed the other end
    with tqdm(total=3, file=sys.stderr) as bar:
        for _ in range(3):
            bar.update()
            tqdm.write("line", file=sys.stderr)
    print("x" * 100_000)
    print("flushed", flush=True)
    warnings.warn("beware")
    logging.getLogger("some").warning("heard")
    ctypes.CDLL(None).dprintf(2, b"from C")
    print(sys.stdout.isatty(), sys.stderr.isatty())
    with open("done", "w") as file:
        file.write("all of it")
    print("buffered until the end")
    return int(argv[1])

sys.exit(program(main, sys.argv))
"""


ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"} | {"PYTHONPATH": str(ROOT)}


def speak(folder, code=0, flags=(), **streams):
    process = subprocess.Popen(
        [sys.executable, *flags, "-c", SPEAKS, str(code)], cwd=folder, env=ENVIRONMENT,
        stdin=subprocess.PIPE, **streams,
    )  # fmt: skip
    return process


def heard(process):
    """Its exit code, after it was told that the other end is closed."""
    process.stdin.write(b"\n")
    process.stdin.close()
    return process.wait(60)


@pytest.mark.parametrize("code", [0, 75])
@pytest.mark.parametrize("flags", [(), ("-u",)])
@pytest.mark.parametrize("streams", ["stdout", "stderr", "both"])
def test_a_closed_pipe_changes_nothing(tmp_path, streams, flags, code):
    read, write = os.pipe()
    with (tmp_path / "other").open("wb") as other:
        places = {name: write if streams in (name, "both") else other for name in ("stdout", "stderr")}
        process = speak(tmp_path, code, flags, **places)
    os.close(write)
    os.close(read)
    assert heard(process) == code
    assert (tmp_path / "done").read_text() == "all of it"
    said = (tmp_path / "other").read_text()
    assert "Error" not in said
    assert ("heard" in said) == (streams == "stdout")
    assert ("buffered until the end" in said) == (streams == "stderr")


def test_a_lost_terminal_changes_nothing(tmp_path):
    ours, theirs = pty.openpty()
    process = speak(tmp_path, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.close(ours)
    assert heard(process) == 0
    assert (tmp_path / "done").read_text() == "all of it"


def test_descriptors_that_are_closed_from_the_start_take_no_file(tmp_path):
    command = [sys.executable, "-c", SPEAKS, "0"]
    closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command]
    assert subprocess.run(closed, cwd=tmp_path, env=ENVIRONMENT, timeout=60).returncode == 0
    assert (tmp_path / "done").read_text() == "all of it"  # and nothing that C wrote to descriptor 2


@pytest.mark.parametrize(("streams", "code"), [(("stdout",), 7), (("stderr",), 0), (("stdout", "stderr"), 7)])
def test_a_full_disk_lets_it_finish_and_lost_results_are_said(tmp_path, streams, code):
    with open("/dev/full", "wb") as full, (tmp_path / "other").open("wb") as other:
        process = speak(tmp_path, **{name: full if name in streams else other for name in ("stdout", "stderr")})
        assert heard(process) == code
    assert (tmp_path / "done").read_text() == "all of it"
    if streams == ("stdout",):
        last = (tmp_path / "other").read_text().splitlines()[-1]
        assert "error: standard output: No space left on device" in last


LIBRARY = """
import os, sys
from jax_sentemb.system.streams import lasting, print_line
before = [(stream, stream.encoding, stream.errors) for stream in (sys.stdout, sys.stderr)]
print("begin", flush=True)
sys.stdin.readline()  # the test has closed the other end
for name in ("stdout", "stderr"):
    print_line("x" * 100_000, name)
    print("\\u4e00", file=lasting(getattr(sys, name)))
with open("done", "w") as file:
    same = before == [(stream, stream.encoding, stream.errors) for stream in (sys.stdout, sys.stderr)]
    file.write(f"{same} {[os.readlink(f'/proc/self/fd/{number}')[:5] for number in (1, 2)]}")
"""


@pytest.mark.parametrize("streams", [("stdout",), ("stderr",), ("stdout", "stderr")])
def test_lines_of_the_library_go_to_streams_that_it_does_not_change(tmp_path, streams):
    read, write = os.pipe()
    with (tmp_path / "other").open("wb") as other:
        places = {name: write if name in streams else other for name in ("stdout", "stderr")}
        environment = {**ENVIRONMENT, "PYTHONIOENCODING": "ascii"}
        command = [sys.executable, "-c", LIBRARY]
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdin=subprocess.PIPE, **places)
    os.close(write)
    os.read(read, 6) if "stdout" in streams else None
    os.close(read)
    assert heard(process) == 0
    links = ["pipe:" if name in streams else str(tmp_path)[:5] for name in ("stdout", "stderr")]
    assert (tmp_path / "done").read_text() == f"True {links}"
    said = (tmp_path / "other").read_text()
    assert said.count("x") == 100_000 * (2 - len(streams))
    assert said.count("\\u4e00") == 2 - len(streams)


@pytest.mark.parametrize("stream", [None, "closed"])
def test_a_line_for_a_stream_that_is_gone_is_dropped(stream, monkeypatch):
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stdout", stream and closed)
    print_line("nobody reads this")


def test_a_full_pipe_that_does_not_block_is_waited_for(tmp_path):
    read, write = os.pipe()
    os.set_blocking(write, False)
    with (tmp_path / "other").open("wb") as other:
        process = speak(tmp_path, stdout=write, stderr=other)
    os.close(write)
    process.stdin.write(b"\n")
    process.stdin.close()
    with os.fdopen(read, "rb") as reader:
        found = reader.read()
    assert process.wait(60) == 0
    assert found.count(b"x") == 100_000
    assert found.endswith(b"buffered until the end\n")
