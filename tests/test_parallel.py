"""Several real processes on loopback: the same run as in one, and checkpoints that one process reads."""

import inspect
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import distributed, xla_bridge
from jax.experimental import multihost_utils
from jax.sharding import PartitionSpec

from jax_sentemb.data import synthetic
from jax_sentemb.errors import ConfigError, ResourceError
from jax_sentemb.parallel import Join, _end_lost_run, _network_order, agree, fsdp_sharding, join, make_mesh, own_gpus, replicate

ROOT = Path(__file__).parents[1]
FLAGS = {
    "--config": "configs/simcse.py:tiny",
    "--config.eval.data": "",
    "--config.eval.report_sentences": "0",
    "--config.encoder.num_hidden_layers": "1",
    "--config.train.save_steps": "2",
    "--config.train.max_steps": "4",
}


def start(workdir, *more, **environment):
    flags = {**FLAGS, "--workdir": str(workdir), **dict(flag.split("=", 1) for flag in more)}
    command = [sys.executable, "-m", "jax_sentemb.main", *(f"{name}={value}" for name, value in flags.items())]
    known = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
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


def together(count, workdir, *more, **environment):
    """The processes of one run."""
    address = f"--coordinator=127.0.0.1:{free_port()}"
    return [start(workdir, address, f"--processes={count}", f"--process={number}", *more, **environment) for number in range(count)]


def test_joining_gives_jax_our_end_of_a_lost_run(monkeypatch):
    """Fails when JAX no longer calls the private function that `join` replaces, or has a public argument for it."""
    given = {}

    def client(*arguments, **options):
        given.update(options)
        raise RuntimeError("nobody is there")

    monkeypatch.setattr(distributed, "global_state", distributed.State())
    monkeypatch.setattr(xla_bridge, "backends_are_initialized", lambda: False)  # other tests of this process have computed
    monkeypatch.setattr(vars(distributed)["_jax"], "get_distributed_runtime_client", client)
    with pytest.raises(ResourceError, match=r"did not find each other \(nobody is there\); start all of them again"):
        join(Join(coordinator="127.0.0.1:1", processes=2, process=1))
    assert given["missed_heartbeat_callback"] is _end_lost_run
    assert not [name for name in inspect.signature(jax.distributed.initialize).parameters if "callback" in name]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The work directories of a run in one process, and of the same in two, which hold halves of the parameters."""
    folder = tmp_path_factory.mktemp("runs")
    processes = [start(folder / "one"), *together(2, folder / "two", "--config.train.fsdp=2")]
    said = run(processes)
    assert [process.returncode for process in processes] == [0] * 3, said
    return folder, said


def test_two_processes_do_what_one_does(finished):
    folder, said = finished
    one, two = losses(folder / "one"), losses(folder / "two")
    assert len(two) == 4
    assert two[0] == pytest.approx(one[0], rel=1e-6)
    np.testing.assert_allclose(two, one, rtol=1e-4)
    assert (folder / "two" / "export" / "model.safetensors").is_file()
    assert "export" in said[1]
    assert "export" not in said[2]  # process 0 speaks and writes


def test_one_process_goes_on_from_a_checkpoint_of_two(finished):
    folder, _ = finished
    shutil.copytree(folder / "two", folder / "by one")
    shutil.rmtree(folder / "by one" / "checkpoints" / "4")
    alone = start(folder / "by one")
    (said,) = run([alone])
    assert alone.returncode == 0, said
    assert "continuing at step 2 of 4" in said
    assert losses(folder / "by one")[:2] == losses(folder / "two")[:2]
    np.testing.assert_allclose(losses(folder / "by one"), losses(folder / "two"), rtol=1e-4)


def test_each_process_reads_its_own_part_of_the_text(finished, tmp_path):
    folder, _ = finished
    for number in range(2):
        (tmp_path / f"text-{number}.txt").write_text("\n".join(synthetic.sentences(200, number)))
    flags = (
        f"--config.data.files={tmp_path}/text-{{process}}.txt", f"--config.encoder.weights={folder / 'one' / 'export'}",
        "--config.eval.diagnostic_sentences=16",
    )  # fmt: skip
    both, alone = together(2, tmp_path / "run", *flags), start(tmp_path / "alone", *flags)
    said = run([*both, alone])
    assert [process.returncode for process in both] == [0, 0], said
    assert "400 lines, 400 sentences" in said[0]
    assert len(losses(tmp_path / "run")) == 4
    assert alone.returncode == ConfigError.exit_code
    assert "{process} is the number of a process, and this run is one process: name all files" in said[2]


@pytest.mark.nightly
def test_four_processes_do_what_one_does_and_two_go_on_from_them(finished, tmp_path):
    folder, _ = finished
    for count, steps in ((4, 2), (2, 4)):
        processes = together(count, tmp_path / "run", "--config.train.fsdp=2", f"--config.train.max_steps={steps}")
        said = run(processes)
        assert [process.returncode for process in processes] == [0] * count, said
    assert "continuing at step 2 of 4" in said[0]
    np.testing.assert_allclose(losses(tmp_path / "run"), losses(folder / "one"), rtol=1e-4)


@pytest.mark.nightly
def test_a_process_with_another_configuration_ends_the_run_in_one_line(tmp_path):
    address = f"--coordinator=127.0.0.1:{free_port()}"
    both = [
        start(tmp_path / "run", address, "--processes=2", f"--process={number}", f"--config.train.seed={number}")
        for number in (0, 1)
    ]
    for process, said in zip(both, run(both), strict=True):
        assert process.returncode == 2, said
        assert said.strip().splitlines()[-1].startswith("error: processes [1] have another configuration"), said


@pytest.mark.parametrize("which", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_the_others_end_when_a_process_is_lost(tmp_path, which):
    """With process 0 the coordination service goes: JAX's runtime would abort the others with exit code 134."""
    endless = ("--config.train.max_steps=100000", "--config.train.save_steps=5")
    both = together(2, tmp_path / "run", *endless, PYTHONUNBUFFERED="1")
    for line in both[0].stdout:
        if line.startswith("step ") and "/100000" in line:
            break
    both[which].kill()
    said, other = run(both, timeout=60)[1 - which], both[1 - which]
    assert other.returncode == ResourceError.exit_code, said
    assert said.strip().splitlines()[-1].startswith("error: another process of this run was lost"), said
    assert "Check failure stack trace" not in said


def lose(processes, which, workdir, step):
    """Kill one of the processes when `step` is logged and a checkpoint counts; the codes of the others, which end by themselves."""
    deadline = time.monotonic() + 300
    while True:
        log = workdir / "metrics.jsonl"
        done = [json.loads(line)["step"] for line in log.read_text().split("\n")[:-1]] if log.exists() else []
        if max(done, default=0) >= step and list((workdir / "checkpoints").glob("*/manifest.json")):
            break
        assert all(process.poll() is None for process in processes), run(processes)
        assert time.monotonic() < deadline
        time.sleep(0.02)
    processes[which].kill()
    run(processes, timeout=90)
    return [process.returncode for number, process in enumerate(processes) if number != which]


@pytest.mark.nightly
def test_one_then_four_then_two_processes_with_losses_train_as_one_undisturbed(tmp_path):
    flags = ("--config.train.max_steps=40", "--config.train.save_steps=4", "--config.train.logging_steps=1")
    straight = start(tmp_path / "straight", *flags)
    assert run([straight])
    assert straight.returncode == 0
    work = tmp_path / "lost"
    lose([start(work, *flags)], 0, work, 8)
    assert set(lose(together(4, work, *flags), 0, work, 16)) == {ResourceError.exit_code}
    assert lose(together(2, work, *flags), 1, work, 24) == [ResourceError.exit_code]
    two = together(2, work, *flags)
    said = run(two)
    assert [process.returncode for process in two] == [0, 0], said
    assert "continuing at step" in said[0]
    found, expected = np.array(losses(work)), np.array(losses(tmp_path / "straight"))
    print(f"largest relative difference of {len(found)} losses: {np.abs(found / expected - 1).max():.1e}")
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_a_signal_to_one_process_stops_all_after_saving(tmp_path):
    both = together(2, tmp_path / "run", "--config.train.max_steps=100000", "--config.train.save_steps=0", PYTHONUNBUFFERED="1")
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
        (Join(automatic=True, processes=2), "finds the processes itself"),
    ],
)
def test_half_an_address_is_refused_in_one_line(how, says):
    with pytest.raises(ConfigError, match=says) as caught:
        join(how)
    assert "\n" not in str(caught.value)


EIGHT = {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7", "SLURM_NODEID": "3"}


@pytest.mark.parametrize(
    ("environment", "gpus"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, None),
        ({**EIGHT, "SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "1(x4)"}, [0, 1, 2, 3, 4, 5, 6, 7]),
        ({**EIGHT, "SLURM_LOCALID": "5", "SLURM_STEP_TASKS_PER_NODE": "8(x4)"}, [5]),
        ({**EIGHT, "SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "4(x2),8,2"}, [4, 5, 6, 7]),
        ({"CUDA_VISIBLE_DEVICES": "6", "SLURM_LOCALID": "6", "SLURM_STEP_TASKS_PER_NODE": "8(x4)", "SLURM_NODEID": "0"}, [0]),
        ({**EIGHT, "SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_GPUS_PER_TASK": "8"}, list(range(8))),
        ({**EIGHT, "SLURM_LOCALID": "1", "JAX_LOCAL_DEVICE_IDS": "1"}, None),
        ({"SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "1(x4)"}, None),
    ],
)
def test_a_task_of_slurm_has_its_share_of_the_gpus_of_its_node(environment, gpus):
    assert own_gpus(environment) == gpus


def test_joining_tells_jax_which_gpus_are_ours(monkeypatch):
    given = []
    monkeypatch.setattr(jax.distributed, "initialize", lambda *arguments, **_: given.append(arguments))
    for name, value in {**EIGHT, "SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "2(x4)"}.items():
        monkeypatch.setenv(name, value)
    join(Join(automatic=True))
    assert given == [(None, None, None, [4, 5, 6, 7])]
    monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", "3(x4)")
    with pytest.raises(ConfigError, match="3 tasks of a node cannot share its 8 GPUs equally"):
        join(Join(automatic=True))


@pytest.mark.parametrize("fsdp", [1, 2, 4, 8, 16])
def test_a_mesh_over_slices_splits_parameters_inside_of_slices_as_far_as_it_can(fsdp):
    """Four slices of four devices; a group of fsdp devices is in as few slices as hold it."""
    devices = [
        SimpleNamespace(id=number, platform="gpu", device_kind="", slice_index=number // 4, process_index=number // 2)
        for number in range(16)
    ]
    groups = _network_order(devices, fsdp).reshape(-1, fsdp)
    assert sorted(device.id for device in groups.flat) == list(range(16))
    assert {len({device.slice_index for device in group}) for group in groups} == {max(fsdp // 4, 1)}


def test_a_split_that_does_not_fit_slices_is_refused():
    devices = [SimpleNamespace(platform="gpu", device_kind="", slice_index=number // 6, process_index=0) for number in range(12)]
    with pytest.raises(ConfigError, match=r"train\.fsdp=4 is neither a divisor nor a multiple of the 6 devices of a slice"):
        _network_order(devices, 4)


def test_processes_that_read_other_things_are_named(monkeypatch):
    agree("alone")  # nothing to compare with
    monkeypatch.setattr(jax, "process_count", lambda: 3)
    monkeypatch.setattr(multihost_utils, "process_allgather", lambda mine: np.stack([mine, mine, mine + 1]))
    with pytest.raises(ConfigError, match=r"processes \[2\] have another configuration, corpus or tokenizer than process 0"):
        agree("text")
    monkeypatch.setattr(multihost_utils, "process_allgather", lambda mine: np.stack([mine] * 3))
    agree("text")


def test_large_arrays_are_split_along_their_longest_axis(eight_devices):
    mesh = make_mesh(8, eight_devices, fsdp=4)
    shapes = {"kernel": (64, 128), "odd": (63, 65), "small": (4, 4), "tall": (4096, 3)}
    found = fsdp_sharding(mesh, {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()})
    specs = {name: sharding.spec for name, sharding in found.items()}
    assert specs == {
        "kernel": PartitionSpec(None, "fsdp"), "odd": PartitionSpec(), "small": PartitionSpec(), "tall": PartitionSpec("fsdp"),
    }  # fmt: skip
    kernel = jax.device_put(np.arange(64 * 128.0).reshape(64, 128), found["kernel"])
    assert kernel.addressable_shards[0].data.shape == (64, 32)
    whole = replicate({"kernel": kernel})["kernel"]
    assert whole.is_fully_replicated
    np.testing.assert_array_equal(whole, kernel)
    with pytest.raises(ConfigError, match=r"train\.fsdp=3 does not divide 8 devices: give one of 1, 2, 4, 8"):
        make_mesh(8, eight_devices, fsdp=3)
