"""Placement of arrays on one or many devices and processes. No other file names a mesh axis.

The batch is split over all devices. Each device has the parameters, the optimiser's state and moving averages or, with
train.fsdp = n, a group of n devices shares them.
"""

import atexit
import contextlib
import ctypes
import functools
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jax._src import compilation_cache, distributed
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, Sharding
from jaxtyping import PyTree

from jax_sentemb.errors import LOST_PROCESS, ConfigError, ResourceError, Setting
from jax_sentemb.files import cache_home

Tree = TypeVar("Tree")

AXES = ("data", "fsdp")
SPLIT_FROM = 2**11  # size from which an array is split over "fsdp"; biases stay whole


def make_mesh(batch_size: int, devices: Sequence[Any] | None = None, fsdp: int = 1) -> Mesh:
    """A mesh over all devices of all processes. ConfigError if they do not divide the batch, or `fsdp` does not divide them."""
    devices = jax.devices() if devices is None else devices
    if batch_size % len(devices):
        near = sorted({batch_size // len(devices) * len(devices) or len(devices), -(-batch_size // len(devices)) * len(devices)})
        sizes = " or ".join(map(str, near))
        raise ConfigError(Setting("data.batch_size", batch_size), f" is not a multiple of {len(devices)} devices: give {sizes}")
    if len(devices) % fsdp:
        sizes = ", ".join(str(size) for size in range(1, len(devices) + 1) if len(devices) % size == 0)
        raise ConfigError(Setting("train.fsdp", fsdp), f" does not divide {len(devices)} devices: give one of {sizes}")
    return Mesh(_network_order(devices, fsdp).reshape(-1, fsdp), AXES, axis_types=(AxisType.Auto,) * 2)


def _network_order(devices: Sequence[Any], fsdp: int) -> np.ndarray:
    """The devices so that neighbours in the mesh are neighbours in the network, slice by slice; those of a process stay together.

    Together, because each process reads consecutive rows of a batch.
    """
    slices = len({getattr(device, "slice_index", 0) for device in devices})
    if slices == 1:
        ordered = jax.make_mesh((len(devices) // fsdp, fsdp), AXES, (AxisType.Auto,) * 2, devices=devices).devices
    else:
        from jax.experimental import mesh_utils

        inside, outside = _shape_over_slices(len(devices) // slices, slices, fsdp)
        ordered = mesh_utils.create_hybrid_device_mesh(inside, outside, devices, allow_split_physical_axes=True)
    processes: dict[int, int] = {}
    for device in ordered.flat:
        processes.setdefault(device.process_index, len(processes))
    return np.array(sorted(ordered.flat, key=lambda device: processes[device.process_index]))


def _shape_over_slices(each: int, slices: int, fsdp: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """(inside, outside): the shape of the mesh in a slice of `each` devices, and of the slices; their product is the mesh."""
    if each % fsdp == 0:
        return (each // fsdp, fsdp), (slices, 1)
    if fsdp % each == 0:
        return (1, each), (slices * each // fsdp, fsdp // each)
    raise ConfigError(Setting("train.fsdp", fsdp), f" is neither a divisor nor a multiple of the {each} devices of a slice")


def process_share(mesh: Mesh) -> tuple[int, int]:
    """(number, count): this process reads part `number` of `count` equal parts of each batch."""
    processes = list(dict.fromkeys(device.process_index for device in mesh.devices.flat))
    return processes.index(jax.process_index()), len(processes)


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """The sharding that splits the leading axis over all devices."""
    return NamedSharding(mesh, PartitionSpec(AXES))


def replicated(mesh: Mesh) -> NamedSharding:
    """The sharding with the whole array on every device."""
    return NamedSharding(mesh, PartitionSpec())


def fsdp_sharding(mesh: Mesh, shapes: PyTree) -> PyTree:
    """The sharding of each leaf of a state, from its arrays or their shapes: splits the longest axis that "fsdp" divides."""
    size = mesh.shape["fsdp"]

    def sharding(leaf: jax.Array | jax.ShapeDtypeStruct) -> NamedSharding:
        axes = [axis for axis, length in enumerate(leaf.shape) if length % size == 0]
        if size == 1 or not axes or leaf.size < SPLIT_FROM:
            return replicated(mesh)
        longest = max(axes, key=lambda axis: leaf.shape[axis])
        return NamedSharding(mesh, PartitionSpec(*(None,) * longest, "fsdp"))

    return jax.tree.map(sharding, shapes)


def shard_batch(batch: Tree, mesh: Mesh) -> Tree:
    """The global batch, or its parts, made of the sentences of each process."""
    sharding = batch_sharding(mesh)
    return jax.tree.map(lambda values: jax.make_array_from_process_local_data(sharding, np.asarray(values)), batch)


def put_whole(values: Tree, sharding: Sharding | None) -> Tree:
    """Puts arrays on the devices; every process has all of them."""
    if sharding is None or sharding.is_fully_addressable:
        return jax.device_put(values, sharding)
    return jax.tree.map(
        lambda leaf: jax.make_array_from_callback(leaf.shape, sharding, lambda index, leaf=leaf: np.asarray(leaf)[index]), values
    )


def replicate(tree: Tree) -> Tree:
    """Puts each array whole on every device; costs nothing for arrays that already are."""

    def gather(leaf: jax.Array | np.ndarray) -> jax.Array | np.ndarray:
        if not isinstance(leaf, jax.Array) or leaf.is_fully_replicated or not isinstance(leaf.sharding, NamedSharding):
            return leaf
        return jax.jit(lambda value: value, out_shardings=replicated(leaf.sharding.mesh))(leaf)  # pyright: ignore[reportArgumentType]

    return jax.tree.map(gather, tree)


LOST_AFTER = 50  # seconds without a heartbeat of a process after which the others end


class Join(NamedTuple):
    """How this process joins a run of several processes: not at all, automatically, or by address."""

    automatic: bool = False  # JAX finds the others (TPU pod, SLURM, MPI)
    coordinator: str = ""  # HOST:PORT of process 0
    processes: int = 0
    process: int = -1

    @property
    def alone(self) -> bool:
        """Whether the run is one process."""
        return not self.automatic and not self.coordinator and not self.processes and self.process < 0


def join(how: Join) -> None:
    """Joins the processes of a run; has to be called before any device is used."""
    if how.alone:
        return
    if how.automatic and (how.coordinator or how.processes or how.process >= 0):
        raise ConfigError("--distributed finds the processes itself: give either it, or --coordinator, --processes and --process")
    if not how.automatic and not (how.coordinator and how.processes > 0 and 0 <= how.process < how.processes):
        raise ConfigError(
            f"--coordinator={how.coordinator} --processes={how.processes} --process={how.process}: give all three, "
            "for instance --coordinator=10.0.0.1:1234 --processes=4 --process=0, with process from 0 to processes - 1"
        )
    address, count, number = (None, None, None) if how.automatic else (how.coordinator, how.processes, how.process)
    try:
        with _own_end_of_lost_runs():
            jax.distributed.initialize(address, count, number, own_gpus(os.environ), heartbeat_timeout_seconds=LOST_AFTER)
    except (RuntimeError, ValueError) as error:
        what = "--distributed" if how.automatic else f"--coordinator={how.coordinator}"
        raise ResourceError(f"{what}: the processes of the run did not find each other: {str(error).splitlines()[0]}") from None
    if jax.process_index() > 0:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # only process 0 prints tables  # noqa: SIM115


def own_gpus(environment: Mapping[str, str]) -> list[int] | None:
    """Numbers of the GPUs of this process, where SLURM started it: an equal share of those that the tasks of its node see.

    None elsewhere. JAX would take one GPU a task; ConfigError if the tasks cannot share the GPUs equally.
    """
    visible = environment.get("CUDA_VISIBLE_DEVICES", "")
    if not visible or "SLURM_LOCALID" not in environment or "JAX_LOCAL_DEVICE_IDS" in environment:
        return None
    gpus, tasks = visible.count(",") + 1, _tasks_of_node(environment)
    if gpus < tasks or "SLURM_GPUS_PER_TASK" in environment:  # each task sees its own only
        return list(range(gpus))
    if gpus % tasks:
        raise ConfigError(f"{tasks} tasks of a node cannot share its {gpus} GPUs equally: give srun another --ntasks-per-node")
    share, number = gpus // tasks, int(environment["SLURM_LOCALID"])
    return list(range(number * share, (number + 1) * share))


def _tasks_of_node(environment: Mapping[str, str]) -> int:
    """The tasks of this node, from SLURM's list of all nodes, such as 8(x3),4."""
    counts: list[int] = []
    for text in environment.get("SLURM_STEP_TASKS_PER_NODE", "1").split(","):
        tasks, _, times = text.rstrip(")").partition("(x")
        counts += [int(tasks)] * int(times or 1)
    return counts[int(environment.get("SLURM_NODEID", 0)) % len(counts)]


def _end_lost_run(*_: object) -> None:
    """Ends this process with one line and the exit code of ResourceError; any thread may call it, whatever the others do."""
    text = LOST_PROCESS.format("JAX's coordination service failed, or a process did not respond")
    with contextlib.suppress(OSError):
        os.write(2, f"error: {text}\n".encode())
    os._exit(ResourceError.exit_code)


_end_of_runtime = ctypes.CFUNCTYPE(None)(_end_lost_run)  # lives as long as the process, because C++ keeps its address


@contextlib.contextmanager
def _own_end_of_lost_runs() -> Iterator[None]:
    """Inside, jax.distributed.initialize gets `_end_lost_run` for the loss of a process, where JAX aborts with exit code 134.

    JAX 0.10 has no public way: jaxlib's client takes the callback, but `initialize` has no argument for it, and
    jax_enable_recoverability is for processes that go on without the lost one. jaxlib 0.10.2 cannot convert the argument of the
    callback: the call ends in std::terminate, whose handler is therefore `_end_lost_run` too.
    """
    runtime: Any = vars(distributed)["_jax"]
    original = runtime.get_distributed_runtime_client
    runtime.get_distributed_runtime_client = functools.partial(original, missed_heartbeat_callback=_end_lost_run)
    try:
        yield
    finally:
        runtime.get_distributed_runtime_client = original
    with contextlib.suppress(OSError, AttributeError):  # another C++ library than GNU's: JAX's abort stays
        ctypes.CDLL("libstdc++.so.6")._ZSt13set_terminatePFvvE(_end_of_runtime)


def is_main_process() -> bool:
    """Whether this process writes the files of the run."""
    return jax.process_index() == 0


def agree(text: str) -> None:
    """Raises ConfigError in every process if `text`, a summary of the run, is not equal in all of them."""
    if jax.process_count() == 1:
        return
    from jax.experimental import multihost_utils

    mine = np.frombuffer(hashlib.sha256(text.encode()).digest()[:4], np.int32)
    others = np.asarray(multihost_utils.process_allgather(mine)).reshape(-1)
    if (others != others[0]).any():
        different = [int(number) for number in np.flatnonzero(others != others[0])]
        raise ConfigError(f"processes {different} have another configuration, corpus or tokenizer than process 0")


def gather(values: np.ndarray) -> np.ndarray:
    """The equally shaped arrays of all processes, [processes, ...]; NumPy. Every process calls it."""
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(values)).reshape(jax.process_count(), *values.shape)


def gather_texts(texts: Sequence[str]) -> list[str]:
    """The texts of all processes, in their order. Every process calls it."""
    mine = np.frombuffer(json.dumps(list(texts)).encode(), np.uint8)
    sizes = gather(np.array([len(mine)], np.int32))[:, 0]
    rows = gather(np.pad(mine, (0, int(sizes.max()) - len(mine))))
    return [text for row, size in zip(rows, sizes, strict=True) for text in json.loads(row[:size].tobytes())]


@functools.cache
def _first_process() -> int:
    """Return the id of the process that first called this, which is the one with JAX's threads; prepare the end of its forks."""
    end_well_in_forks()
    return os.getpid()


def check_fork() -> None:
    """Raise ConfigError in a process that was forked from one with an encoder: JAX's threads are missing, and it would hang."""
    if _first_process() != os.getpid():
        raise ConfigError(
            "this process was forked from one that has loaded a model, and JAX does not work after a fork: "
            'start it with multiprocessing.get_context("spawn"), or load the model only after the fork'
        )


def end_well_in_forks() -> None:
    """Lets a process that is forked from this one end: JAX's threads are missing there, and its destructors would wait for them.

    The exit of the interpreter deletes JAX's clients and thread pools. In a forked process they stay until the process is gone.
    """

    def keep_native_objects() -> None:
        for name, hook in (("api", "clean_up"), ("dispatch", "wait_for_tokens")):
            if found := getattr(sys.modules.get(f"jax._src.{name}"), hook, None):
                atexit.unregister(found)
        native = ("jax", "jaxlib", "tensorstore", "orbax")
        kept = [dict(vars(module)) for name, module in list(sys.modules.items()) if name.partition(".")[0] in native]
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))  # never deleted, whatever the interpreter clears

    os.register_at_fork(after_in_child=keep_native_objects)


def use_compilation_cache() -> None:
    """Keep compiled programs on disk, so that later processes need not compile them again.

    The commands call this. A program of your own calls it once, before it encodes or trains, since it changes settings of JAX that
    hold for the whole process. A compilation cache that is already set is kept.
    """
    if not keeps_compiled_programs():
        jax.config.update("jax_compilation_cache_dir", str(cache_home() / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    _add_checksums()


def keeps_compiled_programs() -> bool:
    """Return whether JAX keeps compiled programs on disk."""
    return bool(jax.config.jax_compilation_cache_dir)  # pyright: ignore[reportAttributeAccessIssue]  # defined at run time


def _add_checksums() -> None:
    """Compressed programs of the cache get a checksum: without it a flipped bit in the code would be loaded and run."""
    try:
        import zstandard
    except ImportError:  # then JAX compresses with zlib, which has checksums
        return
    compilation_cache.compress_executable = lambda data: zstandard.ZstdCompressor(write_checksum=True).compress(data)
