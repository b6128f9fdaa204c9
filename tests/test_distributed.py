"""Several real processes on loopback: the same run as in one, and checkpoints that one process reads."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import multihost_utils
from jax.sharding import PartitionSpec

from jax_sentemb.distributed import Join, agree, join
from jax_sentemb.errors import ConfigError
from jax_sentemb.sharding import gathered, make_mesh, over_parameters

ROOT = Path(__file__).parents[1]
FLAGS = ("--config=configs/simcse.py:tiny", "--config.eval.data=", "--config.train.save_steps=2", "--config.train.max_steps=4")


def start(workdir, *more, **environment):
    command = [sys.executable, "-m", "jax_sentemb.main", *FLAGS, f"--workdir={workdir}", *more]
    known = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "",
        "JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir,
    }
    return subprocess.Popen(
        command, cwd=ROOT, env={**known, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def free_port():
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return opened.getsockname()[1]


def run(processes, timeout=240):
    try:
        said = [process.communicate(timeout=timeout)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return said


def losses(workdir):
    events = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return [event["train/loss"] for event in events if "train/loss" in event]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The work directories of a run in one process, and of the same in two."""
    folder = tmp_path_factory.mktemp("runs")
    alone = start(folder / "alone")
    address = f"--coordinator=127.0.0.1:{free_port()}"
    both = [start(folder / "both", address, "--processes=2", f"--process={number}", "--config.train.fsdp=2") for number in (0, 1)]
    said = run([alone, *both])
    assert [alone.returncode, *(process.returncode for process in both)] == [0, 0, 0], said
    return folder, said


def test_two_processes_do_what_one_does(finished):
    folder, said = finished
    one, two = losses(folder / "alone"), losses(folder / "both")
    assert len(two) == 4
    assert two[0] == pytest.approx(one[0], rel=1e-6)
    np.testing.assert_allclose(two, one, rtol=1e-4)
    assert (folder / "both" / "export" / "model.safetensors").is_file()
    assert "export" in said[1]
    assert "export" not in said[2]  # process 0 speaks and writes


def test_one_process_goes_on_from_a_checkpoint_of_two(finished):
    folder, _ = finished
    whole = losses(folder / "both")
    continued = folder / "continued"
    shutil.copytree(folder / "both", continued)
    shutil.rmtree(continued / "checkpoints" / "4")
    process = start(continued)
    (said,) = run([process])
    assert process.returncode == 0, said
    assert "continuing at step 2 of 4" in said
    np.testing.assert_allclose(losses(continued), whole, rtol=1e-4)


def test_a_signal_to_one_process_stops_all_after_saving(tmp_path):
    address = f"--coordinator=127.0.0.1:{free_port()}"
    flags = (address, "--processes=2", "--config.train.max_steps=100000", "--config.train.save_steps=0")
    both = [start(tmp_path / "run", *flags, f"--process={number}", PYTHONUNBUFFERED="1") for number in (0, 1)]
    said = []
    for line in both[0].stdout:
        said.append(line)
        if line.startswith("step ") and "/100000" in line:
            break
    both[1].send_signal(signal.SIGTERM)
    said.extend(run(both))
    assert [process.returncode for process in both] == [75, 75], said
    assert any((tmp_path / "run" / "checkpoints").iterdir())


@pytest.mark.parametrize(
    ("how", "says"),
    [
        (Join(coordinator="host:1"), "give all three"),
        (Join(processes=2, process=0), "give all three"),
        (Join(coordinator="host:1", processes=2, process=2), "from 0 to processes - 1"),
        (Join(automatic=True, processes=2), "finds the processes by itself"),
    ],
)
def test_half_an_address_is_refused_in_one_line(how, says):
    with pytest.raises(ConfigError, match=says) as caught:
        join(how)
    assert "\n" not in str(caught.value)


def test_processes_that_read_other_things_are_named(monkeypatch):
    agree("alone")  # nothing to compare with
    monkeypatch.setattr(jax, "process_count", lambda: 3)
    monkeypatch.setattr(multihost_utils, "process_allgather", lambda mine: np.stack([mine, mine, mine + 1]))
    with pytest.raises(ConfigError, match=r"processes \[2\] have another configuration, corpus or tokenizer than process 0"):
        agree("text")
    monkeypatch.setattr(multihost_utils, "process_allgather", lambda mine: np.stack([mine] * 3))
    agree("text")


def test_large_arrays_are_split_along_their_longest_axis():
    mesh = make_mesh(8, jax.devices()[:8], fsdp=4)
    shapes = {"kernel": (64, 128), "odd": (63, 65), "small": (4, 4), "tall": (4096, 3)}
    found = over_parameters(mesh, {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()})
    specs = {name: sharding.spec for name, sharding in found.items()}
    assert specs == {
        "kernel": PartitionSpec(None, "fsdp"), "odd": PartitionSpec(), "small": PartitionSpec(), "tall": PartitionSpec("fsdp"),
    }  # fmt: skip
    kernel = jax.device_put(np.arange(64 * 128.0).reshape(64, 128), found["kernel"])
    assert kernel.addressable_shards[0].data.shape == (64, 32)
    whole = gathered({"kernel": kernel})["kernel"]
    assert whole.is_fully_replicated
    np.testing.assert_array_equal(whole, kernel)
    with pytest.raises(ConfigError, match=r"train\.fsdp=3 does not divide the 8 devices"):
        make_mesh(8, jax.devices()[:8], fsdp=3)
