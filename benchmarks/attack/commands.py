"""The commands as processes with a time limit, and small corpora and models for them."""

import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORK = Path(tempfile.mkdtemp(prefix="attack-"))
LIMIT = 900  # seconds for a command, so many that only one that hangs needs them, also where other programs use the processors
PROCESSOR = 150  # processor seconds for a command
TINY = ["train", f"--config={ROOT}/configs/simcse.py:tiny", "--config.eval.report_sentences=0", "--config.train.logging_steps=1"]
CASES: list[tuple[int, str, Callable[[], None]]] = []


def case(number: int, name: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Adds a function to CASES. It raises an exception if the attack succeeds."""

    def register(attack: Callable[[], None]) -> Callable[[], None]:
        CASES.append((number, name, attack))
        return attack

    return register


def start(*arguments, python=("-m", "jax_sentemb"), env=None, processor=PROCESSOR, **options) -> subprocess.Popen:
    """Start a command with a limit on its processor seconds."""
    known = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "JAX_PLATFORMS": "cpu",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        "JAX_SENTEMB_CACHE": str(WORK / "cache"),
        **(env or {}),
    }
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    process = subprocess.Popen([sys.executable, *python, *arguments], env=known, cwd=WORK, errors="surrogateescape", **pipes)
    resource.prlimit(process.pid, resource.RLIMIT_CPU, (processor, processor))
    return process


def ended(process: subprocess.Popen) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    try:
        out, err = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    return process.returncode, out or "", err or ""


def watched(process: subprocess.Popen, ceiling: int) -> int:
    """Wait for a process and return the most memory that it had, in bytes. It is killed if it has `ceiling` bytes."""
    peak = 0
    while process.poll() is None and peak < ceiling:
        with contextlib.suppress(OSError, ValueError):  # it has ended, or has not begun
            status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
            peak = max(peak, int(status.split("VmHWM:")[1].split()[0]) << 10) if "VmHWM:" in status else peak
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
    if peak >= ceiling:
        process.kill()
    return peak


def run(*arguments, **options) -> tuple[int, str, str]:
    return ended(start(*arguments, **options))


def refused(code: int, *arguments, named: str = "", **options) -> None:
    """Checks that the command ends with `code` and that its last line is an error that contains `named`."""
    found, _, err = run(*arguments, **options)
    assert found == code, f"exit code {found}, not {code}: {err[-200:]}"
    assert "Traceback" not in err, "a traceback"
    last = (err.strip().splitlines() or [""])[-1]
    assert last.startswith("error: "), f"says {last[:100]!r}"
    assert named in last, f"{named!r} is not in {last[:200]!r}"


def done(*arguments, **options) -> str:
    """Checks that a command succeeds; returns its stdout."""
    code, out, err = run(*arguments, **options)
    assert code == 0, f"exit code {code}: {err[-200:]}"
    return out


def await_file(process: subprocess.Popen, file: Path, there: Callable[[Path], bool] = Path.exists) -> None:
    """Waits until `there(file)`; AssertionError if the process ends before."""
    deadline = time.monotonic() + LIMIT
    while not there(file) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    assert process.poll() is None, f"ended before {file.name}: {process.communicate()[1][-200:]}"


def fresh(name: str) -> Path:
    """A new folder."""
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=WORK))


def corpus(lines: int = 600) -> Path:
    """A text with words of the generated sentences that the small run knows."""
    file = fresh("corpus") / "corpus.txt"
    people, things = ("cellist", "farmer", "surgeon", "cook", "porter"), ("gravy", "cargo", "hull", "parchment", "turnips", "cut")
    texts = (f"a man number {n} was the {people[n % 5]} who treated the {things[n // 5 % 6]}\n" for n in range(lines))
    file.write_text("".join(texts), encoding="utf-8")
    return file


def train(workdir: Path, *more: str, steps: int = 30) -> list[str]:
    return [*TINY, f"--workdir={workdir}", f"--config.train.max_steps={steps}", "--config.train.save_steps=10", *more]


def trained() -> Path:
    """The work directory of a small run, trained once; not to be changed."""
    workdir = WORK / "trained"
    if not (workdir / "export").is_dir():
        done(*train(workdir, steps=2))
    return workdir


def model() -> Path:
    """A copy of the export of a small run."""
    return Path(shutil.copytree(trained() / "export", fresh("model") / "export"))


def damage_model(file: str, change: Callable[[object], object]) -> Path:
    """A copy of the export with one file changed, without the list of hashes that would reveal it."""
    folder = model()
    (folder / "jax_sentemb.json").unlink()
    place = folder / file
    content = json.loads(place.read_text(encoding="utf-8")) if place.is_file() else {}
    place.write_text(json.dumps(change(content)), encoding="utf-8")
    return folder


def static_table() -> Path:
    """A copy of a static table that is distilled from the export of a small run once."""
    folder = WORK / "static"
    if not folder.is_dir():
        done(*distill(trained() / "export", corpus(), folder))
    return Path(shutil.copytree(folder, fresh("static") / "static"))


def distill(folder: Path, text: Path, output: Path, *more: str) -> list[str]:
    return ["distill", "--model", str(folder), "--corpus", str(text), "--output", str(output), "--width", "8", *more]


def encode(folder: Path, text: Path, output: Path, *more: str) -> list[str]:
    return ["encode", "--model", str(folder), "--input", str(text), "--output", str(output), *more]
