"""Real processes that are killed, told to stop, and starved of disk: they go on to the same bits, or end in one line.

`pytest -m nightly` kills a run JAX_SENTEMB_KILLS (200) times.
"""

import hashlib
import itertools
import json
import os
import pty
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from jax_sentemb.formats import manifest

ROOT = Path(__file__).parents[1]
STEPS, SAVE = 60, 10
FLAGS = (
    "--config=configs/simcse.py:tiny",
    "--config.train.logging_steps=1",
    "--config.eval.data=",  # pairs cost a start two seconds; what is best is the loss of the sentences that are held out
    "--config.data.validation=16",
    "--config.eval.select=validation",
    "--config.eval.eval_steps=25",  # after the second save began: the first checkpoint is complete before there is a best step
    "--config.eval.report_sentences=0",
)
POINTS = ("write", "finalize", "hash", "manifest", "rename", "delete", "deleting", "done")


def start(workdir, *more, die_at="", steps=STEPS, save=SAVE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **environment):
    module = ["tests.die_at", die_at] if die_at else ["jax_sentemb"]
    command = [sys.executable, "-m", *module, "train", *FLAGS, f"--workdir={workdir}"]
    command += [f"--config.train.max_steps={steps}", f"--config.train.save_steps={save}", *more]
    known = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": "1",
        **environment,
    }
    return subprocess.Popen(command, cwd=ROOT, env=known, stdout=stdout, stderr=stderr, text=True)


def ended(process, code, timeout=600):
    """What a process said on stderr, after it ended with `code`."""
    try:
        said = process.communicate(timeout=timeout)[1]
    finally:
        process.kill()
    assert process.returncode == code, said
    return said


def events(workdir):
    log = workdir / "metrics.jsonl"
    lines = log.read_text(encoding="utf-8").split("\n")[:-1] if log.exists() else []
    return [json.loads(line) for line in lines]


def trained(workdir):
    """[(step, loss), ...] of a log."""
    return [(event["step"], event["train/loss"]) for event in events(workdir) if "train/loss" in event]


def await_step(process, workdir, step):
    """Return when a running process has logged a step."""
    deadline = time.monotonic() + 100
    while not any(number >= step for number, _ in trained(workdir)):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def await_checkpoint(process, workdir):
    """Return when a running process has saved a step."""
    await_step(process, workdir, SAVE + 2)
    while not list((workdir / "checkpoints").glob("*/manifest.json")):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)


def digest(step):
    """Of every array of a checkpoint."""
    with ocp.StandardCheckpointer() as reader:
        tree = reader.metadata((step / "state").absolute()).item_metadata.tree
        device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=device), tree)
        leaves = jax.tree.leaves(reader.restore((step / "state").absolute(), shapes))
    return hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in leaves)).hexdigest()


def result(workdir, steps=STEPS):
    """What two runs that are the same have in common; checks that nothing is left beside it."""
    left = {
        kind: sorted(int(entry.name) for entry in (workdir / kind).iterdir() if manifest.verify(entry))
        for kind in ("checkpoints", "best")
    }
    weights = (workdir / "export" / "model.safetensors").read_bytes()
    arrays = {(kind, step): digest(workdir / kind / str(step)) for kind in left for step in left[kind]}
    return arrays, trained(workdir), hashlib.sha256(weights).hexdigest()


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """An undisturbed run: its result, and how long it took."""
    workdir = tmp_path_factory.mktemp("straight")
    begin = time.monotonic()
    ended(start(workdir), 0)
    return result(workdir), time.monotonic() - begin


def kill_by_point(workdir, point):
    return ended(start(workdir, die_at=point), -signal.SIGKILL)


def kill_after(workdir, seconds):
    """False if it was done before."""
    process = start(workdir)
    try:
        assert process.wait(seconds) == 0, process.communicate()[1]
        return False
    except subprocess.TimeoutExpired:
        process.kill()
        return True
    finally:
        process.communicate()


@pytest.mark.slow
def test_a_run_killed_at_each_stage_of_a_save_ends_as_if_undisturbed(straight, tmp_path):
    kill_by_point(tmp_path, "finalize")
    said = kill_by_point(tmp_path, "rename:2")
    assert "was interrupted (process " in said
    kill_by_point(tmp_path, "deleting:2")
    said = ended(start(tmp_path), 0)
    assert "continuing at step" in said
    assert result(tmp_path) == straight[0]


@pytest.mark.slow
def test_a_run_told_to_stop_saves_the_step_and_goes_on_to_the_same_bits(straight, tmp_path):
    """It is told by a signal, and by a terminal that closes; a closed pipe does not stop it."""
    process = start(tmp_path, die_at="slow")
    await_step(process, tmp_path, 3)
    begin = time.monotonic()
    process.send_signal(signal.SIGTERM)
    said = ended(process, 75)
    assert time.monotonic() - begin < 20
    first = trained(tmp_path)[-1][0]
    assert f"stopped at step {first} of {STEPS} and saved" in said
    assert manifest.newest(tmp_path / "checkpoints")[0] == first

    ours, theirs = pty.openpty()
    process = start(tmp_path, die_at="slow", stdout=theirs, stderr=theirs)
    os.close(theirs)
    await_step(process, tmp_path, first + 1)
    os.close(ours)  # from here on writing is an error
    process.send_signal(signal.SIGHUP)
    time.sleep(0.02)
    process.send_signal(signal.SIGHUP)  # of the kernel, and of the shell
    assert process.wait(100) == 75
    assert first < manifest.newest(tmp_path / "checkpoints")[0] == trained(tmp_path)[-1][0] < STEPS

    read, write = os.pipe()
    process = start(tmp_path, stdout=write, stderr=write)
    os.close(write)
    os.close(read)  # as `| head -0` does
    assert process.wait(600) == 0
    arrays, losses, weights = result(tmp_path)
    assert losses == straight[0][1]
    assert weights == straight[0][2]
    assert arrays["checkpoints", STEPS] == straight[0][0]["checkpoints", STEPS]


@pytest.mark.slow
def test_a_second_signal_ends_a_run_at_once(tmp_path):
    process = start(tmp_path, die_at="stopped", steps=5000)
    await_checkpoint(process, tmp_path)
    process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + 100
    while not (tmp_path / "waiting").exists():  # in the save that the first signal asked for: it was noted
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    ended(process, -signal.SIGINT)  # of a shell: 130
    assert time.monotonic() - begin < 5
    assert manifest.recover(tmp_path / "checkpoints", lambda text: None)[0] >= SAVE


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 130)])
def test_a_run_that_has_nothing_to_save_ends_promptly(tmp_path, number, code):
    process = start(tmp_path)
    while not (tmp_path / "LOCK").exists():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)
    time.sleep(0.3)
    begin = time.monotonic()
    process.send_signal(number)
    said = ended(process, code)
    assert time.monotonic() - begin < 5
    assert "Traceback" not in said
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.slow
def test_files_that_may_not_grow_end_a_run_with_exit_7(tmp_path):
    limit = 50_000  # a checkpoint has larger files
    process = start(tmp_path)
    await_checkpoint(process, tmp_path)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit, limit))
    said = ended(process, 7)
    assert re.search(r"warning: step \d+ could not be saved[^\n]*is intact", said), said
    assert said.splitlines()[-1].startswith("error: step"), said
    assert "Traceback" not in said
    assert manifest.newest(tmp_path / "checkpoints")[0] >= SAVE


def disturbed(workdir, draw, longest):
    """Kill a run at random times and points until it ends; how often it died."""
    kills = 0
    while True:
        if draw.random() < 0.5:
            point = f"{draw.choice(POINTS)}:{draw.randint(1, 4)}"
            process = start(workdir, die_at=point)
            said = process.communicate(timeout=900)[1]
            assert process.returncode in (0, -signal.SIGKILL), said
            died = process.returncode != 0
        else:
            died = kill_after(workdir, draw.uniform(0.3, 1.0) * longest)
        if not died:
            return kills
        kills += 1
        if kills >= 12:  # enough of one run
            ended(start(workdir), 0)
            return kills


@pytest.mark.nightly
def test_two_hundred_kills_change_nothing(straight, tmp_path):
    seed = int(os.environ.get("JAX_SENTEMB_SEED", "0"))
    wanted, draw = int(os.environ.get("JAX_SENTEMB_KILLS", "200")), random.Random(seed)
    kills = 0
    for number in itertools.count(1):
        workdir = tmp_path / str(number)
        kills += disturbed(workdir, draw, straight[1])
        assert result(workdir) == straight[0], f"run {number} of seed {seed}"
        shutil.rmtree(workdir)
        print(f"{number} runs, {kills} kills", flush=True)
        if kills >= wanted:
            break


@pytest.mark.nightly
def test_of_two_runs_started_together_one_trains(straight, tmp_path):
    for number in range(10):
        workdir = tmp_path / str(number)
        both = [start(workdir), start(workdir)]
        said = [process.communicate(timeout=900)[1] for process in both]
        codes = [process.returncode for process in both]
        assert sorted(codes) == [0, 6], said
        loser = codes.index(6)
        assert f"is in use by process {both[1 - loser].pid} on" in said[loser]
        assert result(workdir) == straight[0]
        shutil.rmtree(workdir)
