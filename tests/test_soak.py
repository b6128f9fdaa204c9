"""A long run that is killed, told to stop and starved of disk: `pytest -m soak` takes JAX_SENTEMB_SOAK_MINUTES (a day)."""

import contextlib
import itertools
import math
import os
import random
import resource
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from test_faults import digest, start, trained

from jax_sentemb.errors import PREEMPTED, ResourceError


@pytest.fixture
def disk(tmp_path):
    """A function: size in bytes -> a folder on a file system of that size, where one can be mounted; else a plain folder."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mounted(size):
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True, check=False)
        return folder

    yield mounted
    subprocess.run(["umount", folder], capture_output=True, check=False)


def without_room(process, disk):
    """Fill the disk of a run, or forbid it files that it could save with, until it ends; the disk has room afterwards."""
    ballast = disk / "ballast"
    if disk.is_mount():
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while file.write(b"0" * (1 << 16)):
                pass
    else:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    process.wait(7200)
    ballast.unlink(missing_ok=True)


def soaked(workdir, disk, pause, **options):
    """How each process of a run ended, the last one by itself.

    After about `pause` seconds of training each is killed, told to stop, or loses the room on its disk, in turn.
    """
    draw, ends, log = random.Random(0), [], workdir / "metrics.jsonl"
    for kind in itertools.cycle(("kill", "full", "SIGTERM", "SIGHUP")):
        process, size = start(workdir, **options), math.inf
        while process.poll() is None and (log.stat().st_size if log.exists() else 0) <= size:  # it trains when its log grows
            size = log.stat().st_size if log.exists() else 0
            time.sleep(0.5)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(draw.uniform(0.5, 1.5) * pause)
        if process.poll() is None and kind == "full":
            without_room(process, disk)
        elif process.poll() is None:
            process.send_signal({"kill": signal.SIGKILL, "SIGTERM": signal.SIGTERM, "SIGHUP": signal.SIGHUP}[kind])
        ends.append((kind, process.wait()))
        if ends[-1][1] == 0:
            return ends
        assert ends[-1][1] == {"kill": -signal.SIGKILL, "full": ResourceError.exit_code}.get(kind, PREEMPTED), ends
    raise AssertionError


@pytest.mark.soak
def test_a_long_run_keeps_its_memory_files_and_bits(tmp_path, disk):
    """A run of half the time without disturbance, then the same one, disturbed every ten minutes or five times."""
    minutes = float(os.environ.get("JAX_SENTEMB_SOAK_MINUTES", "1440")) / 2
    signal.signal(signal.SIGHUP, lambda number, frame: None)  # under nohup it is ignored, and processes would inherit that
    begin, steps = time.monotonic(), 2000 if minutes > 10 else 300
    said = (tmp_path / "said").open("a")  # a pipe that no one empties would stop a run when it is full
    assert start(tmp_path / "trial", steps=steps, save=steps // 4, stderr=said).wait(3600) == 0
    size = sum(file.stat().st_size for file in (tmp_path / "trial").rglob("*"))
    steps = int(steps * minutes * 60 / (time.monotonic() - begin))
    options = {"steps": steps, "save": max(steps // 100, 1), "stderr": said}
    memory, opened = watched(start(tmp_path / "straight", **options), minutes * 60 / 500)
    parts = [float(np.median(part)) for part in np.array_split(np.array(memory), 10)]
    print(f"{steps} steps; resident MB in ten parts: {[round(part / 1000) for part in parts]}; files {max(opened)}")
    if minutes >= 10:  # before that it still warms up, by 3 %
        assert parts[8] < 1.02 * parts[3]
        assert np.median(opened[len(opened) // 2 :]) <= np.median(opened[len(opened) // 10 : len(opened) // 2])
    folder = disk(3 * size + 300 * steps)
    ends = soaked(folder / "run", folder, min(600.0, minutes * 12), **options)
    said.close()
    print(f"ends of the disturbed run on a {'disk of its own' if folder.is_mount() else 'plain folder'}: {ends}")
    assert trained(folder / "run") == trained(tmp_path / "straight")
    arrays = [digest(workdir / "checkpoints" / str(steps)) for workdir in (tmp_path / "straight", folder / "run")]
    assert arrays[0] == arrays[1]


def watched(process, pause):
    """Resident kB and open files of a run every `pause` seconds, until it ended well."""
    memory, opened = [], []
    while process.poll() is None:
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
        memory += [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")]
        opened.append(len(list(Path(f"/proc/{process.pid}/fd").iterdir())))
        time.sleep(pause)
    assert process.returncode == 0
    return memory, opened
