"""A long run that is killed, stopped by signals, left without disk space: `pytest -s -m soak`, about JAX_SENTEMB_SOAK_MINUTES.

The figures are appended to the JSON list in JAX_SENTEMB_SOAK_JSON (default: build/soak.json) after every event, so that a soak
that is itself interrupted leaves what it found. With JAX_SENTEMB_SOAK_FOLDER, the next soak with that folder continues the same
two runs: its undisturbed and disturbed steps come after those of the soaks before, and losses are compared from the first step on.
"""

import contextlib
import itertools
import json
import os
import platform
import random
import resource
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from test_faults import ROOT, digest, start, trained

from jax_sentemb.errors import PREEMPTED, ResourceError
from jax_sentemb.files import write_json

ENDLESS = 100_000_000  # steps; the schedule depends on it, so that both runs have the same
A_SAVE = 0.25  # MB that memory may grow by with each save and the steps before it; TensorStore alone leaks 0.09
NOISE = 10.0  # MB by which it may grow once: allocators keep what was free
EVENTS = ("full disk", "kill", "SIGTERM", "SIGHUP")
CODES = {"kill": -signal.SIGKILL, "full disk": ResourceError.exit_code, "SIGTERM": PREEMPTED, "SIGHUP": PREEMPTED}


@pytest.fixture
def folder(tmp_path):
    """Where both runs are kept from one stretch of a soak to the next."""
    folder = Path(os.environ.get("JAX_SENTEMB_SOAK_FOLDER", tmp_path / "soak")).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def disk(tmp_path):
    """A function: size in bytes -> a folder on a file system of that size if one can be mounted, otherwise a plain folder."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mounted(size):
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True, check=False)
        return folder

    yield mounted
    subprocess.run(["umount", folder], capture_output=True, check=False)


def fill(process, disk):
    """Fills the disk of a run until the run ends. Where nothing can be mounted: limits the size of its files instead."""
    ballast = disk / "ballast"
    if disk.is_mount():
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while file.write(b"0" * (1 << 16)):
                pass
    else:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    process.wait(7200)
    ballast.unlink(missing_ok=True)


def saved(workdir):
    """The newest saved step, 0 without one."""
    names = (file.parent.name for file in workdir.glob("checkpoints/*/manifest.json"))  # also of steps that are being deleted
    return max((int(name) for name in names if name.isdecimal()), default=0)


def disturb(workdir, disk, pause, target, options, end):
    """Runs until `target` is saved or the time `end`; yields each event that ended a process: (kind, seconds, newest saved step).

    A process runs for about `pause` seconds, and until it has saved a step.
    """
    draw = random.Random(0)
    for kind in itertools.cycle(EVENTS):
        begin, before = time.monotonic(), saved(workdir)
        process, until = start(workdir, *options[0], **options[1]), begin + draw.uniform(0.5, 1.5) * pause
        while saved(workdir) < target and (time.monotonic() < until or saved(workdir) == before):
            assert process.poll() is None, f"ended by itself with {process.returncode}"
            time.sleep(0.5)
        reached = saved(workdir) >= target or time.monotonic() > end
        kind = "SIGTERM" if reached else kind
        if kind == "full disk":
            fill(process, disk)
        else:
            process.send_signal(getattr(signal, kind, signal.SIGKILL))
        assert process.wait(7200) == CODES[kind], f"{kind}: exit code {process.returncode}"
        yield kind, time.monotonic() - begin, saved(workdir)
        if reached:
            return


def watch(process, workdir, seconds):
    """500 samples of a run: seconds, resident kB, kB of these without a file, open files, newest saved step.

    After `seconds`, and two more saved steps, SIGTERM ends the run.
    """
    samples, begin, before, steps = [], time.monotonic(), saved(workdir), set()
    while time.monotonic() < begin + seconds or len(steps) < 3:
        assert process.poll() is None
        steps.add(max(saved(workdir), before))
        lines = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8").splitlines()
        status = dict(line.split(":", 1) for line in lines)
        memory = [int(status[key].split()[0]) for key in ("VmRSS", "RssAnon")]
        opened = len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
        samples.append((round(time.monotonic() - begin, 1), *memory, opened, saved(workdir)))
        time.sleep(seconds / 500)
    process.send_signal(signal.SIGTERM)
    assert process.wait(7200) == PREEMPTED
    return samples


def memory_figures(samples, save):
    """Medians of ten parts of the time; growth and saves in the last six of them; open files of early and late parts."""
    seconds, memory, _, opened, steps = np.array(samples).T
    parts = [float(np.median(part)) / 1000 for part in np.array_split(memory, 10)]
    late = slice(len(memory) * 4 // 10, None)
    saves = steps[late] // save
    slope = np.polyfit(saves, memory[late] / 1000, 1)[0] if np.ptp(saves) else 0.0
    return {
        "resident MB in ten parts of the time": [round(part, 1) for part in parts],
        "MB in the last six parts": round(parts[-1] - parts[3], 2),
        "saves in the last six parts": int(np.ptp(saves)),
        "MB a save in the last six parts": round(float(slope), 3),
        "MB per hour in the last six parts": round(float(np.polyfit(seconds[late] / 3600, memory[late] / 1000, 1)[0]), 2),
        "open files, early median": float(np.median(opened[len(opened) // 10 : len(opened) // 2])),
        "open files, late median": float(np.median(opened[len(opened) // 2 :])),
    }


def recorder(minutes):
    """A dict of figures, and a function that updates it and writes it as the last entry of the JSON list."""
    path = Path(os.environ.get("JAX_SENTEMB_SOAK_JSON", ROOT / "build" / "soak.json"))
    path.parent.mkdir(parents=True, exist_ok=True)
    earlier = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    figures, begin = (
        {"wanted minutes": minutes, "start": time.strftime("%Y-%m-%d %H:%M:%S %z"), "machine": platform.platform()},
        time.monotonic(),
    )

    def record(**more):
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        figures.update(more, minutes=round((time.monotonic() - begin) / 60, 1))
        figures.update({"processor minutes": round((used.ru_utime + used.ru_stime) / 60, 1), "load": os.getloadavg()[0]})
        write_json(path, [*earlier, figures])

    return figures, record


@pytest.mark.soak
def test_a_long_run_keeps_its_memory_files_and_bits(folder, disk):
    """A run without disturbance for a third of the time, then the same steps with an event about every 2 % of the time."""
    minutes = float(os.environ.get("JAX_SENTEMB_SOAK_MINUTES", "360"))
    signal.signal(signal.SIGHUP, lambda number, frame: None)  # under nohup it is ignored, and processes would inherit that
    figures, record = recorder(minutes)
    straight, disturbed, seconds, save = folder / "straight", folder / "disturbed", minutes * 60 / 3, max(int(3 * minutes), 100)
    with (folder / "stderr").open("a") as stderr:  # not a pipe, which blocks a run when it is full
        options = (("--config.train.keep_checkpoints=3",), {"steps": ENDLESS, "save": save, "stderr": stderr})
        begin, first = time.monotonic(), saved(straight)
        samples = watch(start(straight, *options[0], **options[1]), straight, seconds)
        write_json(folder / f"memory-{first}.json", samples)
        target = saved(straight) // save * save  # the last step was saved because of the signal
        found = memory_figures(samples, save)
        undisturbed = {"minutes": round((time.monotonic() - begin) / 60, 1), "saves": (target - first) // save, **found}
        record(first=first, steps=target, undisturbed=undisturbed)
        mounted = disk(3 * sum(file.stat().st_size for file in straight.rglob("*")))
        workdir, ends = mounted / "run", []
        if disturbed.exists():
            shutil.copytree(disturbed, workdir)
        for event in disturb(workdir, mounted, seconds / 20, target, options, begin + minutes * 60):
            ends.append(event)
            record(events=Counter(kind for kind, *_ in ends), processes=len(ends), saved=ends[-1][2], disk=mounted.is_mount())
        shutil.rmtree(disturbed, ignore_errors=True)
        shutil.copytree(workdir, disturbed)
    compared = min(saved(disturbed), target)  # less than the target where the time was too short; the next stretch goes on
    both = [dict(trained(run)) for run in (straight, disturbed)]
    losses = [[steps[number] for number in range(1, compared + 1)] for steps in both]
    steps = [run / "checkpoints" / str(target) for run in (straight, disturbed)]
    arrays = [digest(step) for step in steps if step.is_dir()]
    same_weights = arrays[0] == arrays[1] if len(arrays) == 2 else None
    record(compared=compared, same_losses=losses[0] == losses[1], same_weights=same_weights, complete=True)
    print(json.dumps(figures, indent=2))
    assert losses[0] == losses[1]
    assert same_weights is not False
    assert found["MB in the last six parts"] < A_SAVE * found["saves in the last six parts"] + NOISE
    assert found["open files, late median"] <= found["open files, early median"] + 2  # a save may be under way
