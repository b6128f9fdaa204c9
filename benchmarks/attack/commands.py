"""Run the commands as processes with a time limit, and make small corpora and models for them."""

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
LIMIT = 900  # seconds for a command; only a command that hangs needs so many, even if other programs use the processors
PROCESSOR = 150  # processor seconds for a command
TINY = ["train", f"--config={ROOT}/configs/simcse.py:tiny", "--config.eval.report_sentences=0", "--config.train.logging_steps=1"]
CASES: list[tuple[int, str, Callable[[], None]]] = []


def case(number: int, name: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Add a function to CASES. It raises an exception if the attack succeeds."""

    def register(attack: Callable[[], None]) -> Callable[[], None]:
        CASES.append((number, name, attack))
        return attack

    return register


def start(*arguments, python=("-m", "jax_sentemb"), env=None, processor=PROCESSOR, **options) -> subprocess.Popen:
    """Start a command with a limit on its processor seconds."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "JAX_PLATFORMS": "cpu",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        "JAX_SENTEMB_CACHE": str(WORK / "cache"),
        **(env or {}),
    }
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    process = subprocess.Popen([sys.executable, *python, *arguments], env=environment, cwd=WORK, errors="surrogateescape", **pipes)
    resource.prlimit(process.pid, resource.RLIMIT_CPU, (processor, processor))
    return process


def ended(process: subprocess.Popen) -> tuple[int, str, str]:
    """Wait for a process and return its exit code, stdout and stderr."""
    try:
        out, err = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    return process.returncode, out or "", err or ""


def watched(process: subprocess.Popen, ceiling: int) -> int:
    """Wait for a process and return the most memory that it had, in bytes. It is killed if it has `ceiling` bytes."""
    peak = 0
    while process.poll() is None and peak < ceiling:
        with contextlib.suppress(OSError, ValueError):  # the process has ended, or has not started yet
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
    """Check that the command ends with `code` and that its last line is an error that contains `named`."""
    actual, _, err = run(*arguments, **options)
    assert actual == code, f"exit code {actual}, not {code}: {err[-200:]}"
    assert "Traceback" not in err, "a traceback"
    last = (err.strip().splitlines() or [""])[-1]
    assert last.startswith("error: "), f"the last line is {last[:100]!r}"
    assert named in last, f"{named!r} is not in {last[:200]!r}"


def done(*arguments, **options) -> str:
    """Check that a command succeeds, and return its stdout."""
    code, out, err = run(*arguments, **options)
    assert code == 0, f"exit code {code}: {err[-200:]}"
    return out


def await_file(process: subprocess.Popen, file: Path, is_ready: Callable[[Path], bool] = Path.exists) -> None:
    """Wait until `is_ready(file)`; raise AssertionError if the process ends earlier."""
    deadline = time.monotonic() + LIMIT
    while not is_ready(file) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    assert process.poll() is None, f"ended before {file.name} was ready: {process.communicate()[1][-200:]}"


def fresh(name: str) -> Path:
    """Return a new folder."""
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=WORK))


def corpus(lines: int = 600) -> Path:
    """Write a text with words of the generated sentences that the small run knows, and return its file."""
    file = fresh("corpus") / "corpus.txt"
    people, things = ("cellist", "farmer", "surgeon", "cook", "porter"), ("gravy", "cargo", "hull", "parchment", "turnips", "cut")
    texts = (f"a man number {n} was the {people[n % 5]} who treated the {things[n // 5 % 6]}\n" for n in range(lines))
    file.write_text("".join(texts), encoding="utf-8")
    return file


def train(workdir: Path, *more: str, steps: int = 30) -> list[str]:
    return [*TINY, f"--workdir={workdir}", f"--config.train.max_steps={steps}", "--config.train.save_steps=10", *more]


def trained() -> Path:
    """Return the work directory of a small run, which is trained once. Attacks must not change it."""
    workdir = WORK / "trained"
    if not (workdir / "export").is_dir():
        done(*train(workdir, steps=2))
    return workdir


def model() -> Path:
    """Return a copy of the export of a small run."""
    return Path(shutil.copytree(trained() / "export", fresh("model") / "export"))


def damage_model(file: str, change: Callable[[object], object]) -> Path:
    """Return a copy of the export with one file changed, without the list of hashes that would reveal the change."""
    folder = model()
    (folder / "jax_sentemb.json").unlink()
    path = folder / file
    content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    path.write_text(json.dumps(change(content)), encoding="utf-8")
    return folder


def static_table() -> Path:
    """Return a copy of a static table that was distilled from the export of a small run."""
    folder = WORK / "static"
    if not folder.is_dir():
        done(*distill(trained() / "export", corpus(), folder))
    return Path(shutil.copytree(folder, fresh("static") / "static"))


def distill(folder: Path, text: Path, output: Path, *more: str) -> list[str]:
    return ["distill", "--model", str(folder), "--corpus", str(text), "--output", str(output), "--width", "8", *more]


def encode(folder: Path, text: Path, output: Path, *more: str) -> list[str]:
    return ["encode", "--model", str(folder), "--input", str(text), "--output", str(output), *more]
