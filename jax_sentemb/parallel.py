"""Place arrays on one or many devices and processes. No other file names a mesh axis.

The batch is split over all devices. Each device has the parameters, the optimiser's state and moving averages. With
train.fsdp = n, each group of n devices shares them instead.
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
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding
from jaxtyping import PyTree

from jax_sentemb.errors import LOST_PROCESS, ConfigError, ResourceError, Setting, first_line
from jax_sentemb.files import cache_home

Tree = TypeVar("Tree")

AXES = ("data", "fsdp")
SPLIT_FROM = 2**11  # smallest size of an array that is split over "fsdp"; biases stay whole


def make_mesh(batch_size: int, devices: Sequence[Any] | None = None, fsdp: int = 1) -> Mesh:
    """Return a mesh over all devices of all processes.

    Raises:
        ConfigError: The devices do not divide the batch, or `fsdp` does not divide the devices.
    """
    devices = jax.devices() if devices is None else devices
    if batch_size % len(devices):
        near_sizes = sorted(
            {batch_size // len(devices) * len(devices) or len(devices), -(-batch_size // len(devices)) * len(devices)}
        )
        sizes = " or ".join(map(str, near_sizes))
        raise ConfigError(Setting("data.batch_size", batch_size), f" is not a multiple of {len(devices)} devices: give {sizes}")
    if len(devices) % fsdp:
        sizes = ", ".join(str(size) for size in range(1, len(devices) + 1) if len(devices) % size == 0)
        raise ConfigError(Setting("train.fsdp", fsdp), f" does not divide {len(devices)} devices: give one of {sizes}")
    return Mesh(_network_order(devices, fsdp).reshape(-1, fsdp), AXES, axis_types=(AxisType.Auto,) * 2)


def _network_order(devices: Sequence[Any], fsdp: int) -> np.ndarray:
    """Return the devices in an order in which neighbours in the mesh are neighbours in the network, slice by slice.

    The devices of a process stay next to each other, because each process reads consecutive rows of a batch.
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


def _shape_over_slices(slice_size: int, slices: int, fsdp: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the shape of the mesh in a slice of `slice_size` devices, and the shape of the slices; their product is the mesh."""
    if slice_size % fsdp == 0:
        return (slice_size // fsdp, fsdp), (slices, 1)
    if fsdp % slice_size == 0:
        return (1, slice_size), (slices * slice_size // fsdp, fsdp // slice_size)
    raise ConfigError(Setting("train.fsdp", fsdp), f" is neither a divisor nor a multiple of the {slice_size} devices of a slice")


def process_share(mesh: Mesh) -> tuple[int, int]:
    """Return (number, count): this process reads part `number` of `count` equal parts of each batch."""
    processes = list(dict.fromkeys(device.process_index for device in mesh.devices.flat))
    return processes.index(jax.process_index()), len(processes)


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Return the sharding that splits the leading axis over all devices."""
    return NamedSharding(mesh, PartitionSpec(AXES))


def replicated(mesh: Mesh) -> NamedSharding:
    """Return the sharding with the whole array on every device."""
    return NamedSharding(mesh, PartitionSpec())


def is_split(mesh: Mesh) -> bool:
    """Return whether groups of devices share the state (train.fsdp above 1)."""
    return mesh.shape["fsdp"] > 1


def fsdp_sharding(mesh: Mesh, shapes: PyTree) -> PyTree:
    """Return the sharding of each leaf of a state, given as arrays or shapes: it splits the longest axis that "fsdp" divides."""
    size = mesh.shape["fsdp"]

    def sharding(leaf: jax.Array | jax.ShapeDtypeStruct) -> NamedSharding:
        axes = [axis for axis, length in enumerate(leaf.shape) if length % size == 0]
        if size == 1 or not axes or leaf.size < SPLIT_FROM:
            return replicated(mesh)
        longest = max(axes, key=lambda axis: leaf.shape[axis])
        return NamedSharding(mesh, PartitionSpec(*(None,) * longest, "fsdp"))

    return jax.tree.map(sharding, shapes)


def shard_batch(batch: Tree, mesh: Mesh) -> Tree:
    """Return the global batch, or its parts, from the sentences of each process."""
    sharding = batch_sharding(mesh)
    return jax.tree.map(lambda values: jax.make_array_from_process_local_data(sharding, np.asarray(values)), batch)


def put_whole(values: Tree, sharding: Sharding | None) -> Tree:
    """Put arrays on the devices; every process has all of them."""
    if sharding is None or sharding.is_fully_addressable:
        return jax.device_put(values, sharding)
    return jax.tree.map(
        lambda leaf: jax.make_array_from_callback(leaf.shape, sharding, lambda index, leaf=leaf: np.asarray(leaf)[index]), values
    )


def commit(tree: Tree) -> Tree:
    """Bind the arrays to the device that they are on, or to the default device if they are on the host.

    JAX compiles a program once for bound arrays and again for others, even on the same device. Arrays on several devices stay as
    they are. This costs little for arrays that are bound already.
    """
    if all(isinstance(leaf, jax.Array) and leaf.committed and _is_on_one_device(leaf) for leaf in jax.tree.leaves(tree)):
        return tree
    tree = jax.device_put(tree)
    devices = {device for leaf in jax.tree.leaves(tree) for device in leaf.devices()}
    return jax.device_put(tree, SingleDeviceSharding(*devices)) if len(devices) == 1 else tree


def _is_on_one_device(leaf: jax.Array) -> bool:
    return isinstance(leaf.sharding, SingleDeviceSharding)


def replicate(tree: Tree) -> Tree:
    """Put each array whole on every device; this costs nothing for arrays that are there already."""

    def gather(leaf: jax.Array | np.ndarray) -> jax.Array | np.ndarray:
        if not isinstance(leaf, jax.Array) or leaf.is_fully_replicated or not isinstance(leaf.sharding, NamedSharding):
            return leaf
        return jax.jit(lambda value: value, out_shardings=replicated(leaf.sharding.mesh))(leaf)  # pyright: ignore[reportArgumentType]

    return jax.tree.map(gather, tree)


LOST_AFTER = 50  # seconds without a heartbeat of a process after which all other processes end


class Join(NamedTuple):
    """The way in which this process joins a run of several processes: not at all, automatically, or by address."""

    automatic: bool = False  # JAX finds the other processes (TPU pod, SLURM, MPI)
    coordinator: str = ""  # HOST:PORT of process 0
    processes: int = 0
    process: int = -1

    @property
    def alone(self) -> bool:
        """Return whether the run is one process."""
        return not self.automatic and not self.coordinator and not self.processes and self.process < 0


def join(settings: Join) -> None:
    """Join the processes of a run, before any device is used.

    Raises:
        ConfigError: The settings contradict each other or are incomplete.
        ResourceError: The processes do not find each other.
    """
    if settings.alone:
        return
    if settings.automatic and (settings.coordinator or settings.processes or settings.process >= 0):
        raise ConfigError("--distributed finds the processes itself: give either it, or --coordinator, --processes and --process")
    if not settings.automatic and not (
        settings.coordinator and settings.processes > 0 and 0 <= settings.process < settings.processes
    ):
        raise ConfigError(
            f"--coordinator={settings.coordinator} --processes={settings.processes} --process={settings.process}: give all three, "
            "for instance --coordinator=10.0.0.1:1234 --processes=4 --process=0, with process from 0 to processes - 1"
        )
    address, count, number = (
        (None, None, None) if settings.automatic else (settings.coordinator, settings.processes, settings.process)
    )
    try:
        with _own_end_of_lost_runs():
            jax.distributed.initialize(address, count, number, own_gpus(os.environ), heartbeat_timeout_seconds=LOST_AFTER)
    except (RuntimeError, ValueError) as error:
        options = "--distributed" if settings.automatic else f"--coordinator={settings.coordinator}"
        raise ResourceError(
            f"{options}: the processes of the run did not find each other ({first_line(error)}); start all of them again"
        ) from None
    if jax.process_index() > 0:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # only process 0 prints tables  # noqa: SIM115


def own_gpus(environment: Mapping[str, str]) -> list[int] | None:
    """Return the numbers of the GPUs of this process if SLURM started it, or else None, with which JAX takes all GPUs.

    The tasks of a node share the GPUs that they see equally. JAX would take one GPU a task.

    Raises:
        ConfigError: The tasks cannot share the GPUs equally.
    """
    visible = environment.get("CUDA_VISIBLE_DEVICES", "")
    if not visible or "SLURM_LOCALID" not in environment or "JAX_LOCAL_DEVICE_IDS" in environment:
        return None
    gpus, tasks = visible.count(",") + 1, _tasks_of_node(environment)
    if gpus < tasks or "SLURM_GPUS_PER_TASK" in environment:  # each task sees only its own GPUs
        return list(range(gpus))
    if gpus % tasks:
        raise ConfigError(f"{tasks} tasks of a node cannot share its {gpus} GPUs equally: give srun another --ntasks-per-node")
    share, number = gpus // tasks, int(environment["SLURM_LOCALID"])
    return list(range(number * share, (number + 1) * share))


def _tasks_of_node(environment: Mapping[str, str]) -> int:
    """Return the number of tasks of this node, from SLURM's list for all nodes, such as 8(x3),4."""
    counts: list[int] = []
    for text in environment.get("SLURM_STEP_TASKS_PER_NODE", "1").split(","):
        tasks, _, times = text.rstrip(")").partition("(x")
        counts += [int(tasks)] * int(times or 1)
    return counts[int(environment.get("SLURM_NODEID", 0)) % len(counts)]


def _end_lost_run(*_: object) -> None:
    """End this process with one line and the exit code of ResourceError. Any thread may call it, whatever other threads do."""
    text = LOST_PROCESS.format("JAX's coordination service failed, or a process did not respond")
    with contextlib.suppress(OSError):
        os.write(2, f"error: {text}\n".encode())
    os._exit(ResourceError.exit_code)


_end_of_runtime = ctypes.CFUNCTYPE(None)(_end_lost_run)  # lives as long as the process, because C++ keeps its address


@contextlib.contextmanager
def _own_end_of_lost_runs() -> Iterator[None]:
    """Make jax.distributed.initialize call `_end_lost_run` if a process is lost; JAX would abort with exit code 134.

    JAX 0.10 has no public way: jaxlib's client accepts the callback, but `initialize` has no argument for it, and
    jax_enable_recoverability is for processes that continue without the lost process. jaxlib 0.10.2 cannot convert the argument of
    the callback, so the call ends in std::terminate. Therefore `_end_lost_run` is also the handler of std::terminate.
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
    """Return whether this process writes the files of the run."""
    return jax.process_index() == 0


def agree(text: str) -> None:
    """Raise ConfigError in every process if `text`, a summary of the run, is not equal in all of them."""
    if jax.process_count() == 1:
        return
    from jax.experimental import multihost_utils

    own_digest = np.frombuffer(hashlib.sha256(text.encode()).digest()[:4], np.int32)
    digests = np.asarray(multihost_utils.process_allgather(own_digest)).reshape(-1)
    if (digests != digests[0]).any():
        different = [int(number) for number in np.flatnonzero(digests != digests[0])]
        raise ConfigError(f"processes {different} have another configuration, corpus or tokenizer than process 0")


def gather(values: np.ndarray) -> np.ndarray:
    """Return the equally shaped arrays of all processes, NumPy [processes, ...]. Every process calls it."""
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(values)).reshape(jax.process_count(), *values.shape)


def gather_texts(texts: Sequence[str]) -> list[str]:
    """Return the texts of all processes, in their order. Every process calls it."""
    own_bytes = np.frombuffer(json.dumps(list(texts)).encode(), np.uint8)
    sizes = gather(np.array([len(own_bytes)], np.int32))[:, 0]
    rows = gather(np.pad(own_bytes, (0, int(sizes.max()) - len(own_bytes))))
    return [text for row, size in zip(rows, sizes, strict=True) for text in json.loads(row[:size].tobytes())]


@functools.cache
def _first_process() -> int:
    """Return the id of the process that called this first, which has JAX's threads; prepare the end of its forks."""
    end_well_in_forks()
    return os.getpid()


def check_fork() -> None:
    """Raise ConfigError in a process that was forked from one with an encoder: JAX's threads are missing, so it would hang."""
    if _first_process() != os.getpid():
        raise ConfigError(
            "this process was forked from one that has loaded a model, and JAX does not work after a fork: "
            'start it with multiprocessing.get_context("spawn"), or load the model only after the fork'
        )


def end_well_in_forks() -> None:
    """Let processes that are forked from this one end: JAX's threads are missing there, and its destructors would wait for them.

    The exit of the interpreter deletes JAX's clients and thread pools. A forked process keeps them until it has ended.
    """

    def keep_native_objects() -> None:
        for name, hook in (("api", "clean_up"), ("dispatch", "wait_for_tokens")):
            if cleanup := getattr(sys.modules.get(f"jax._src.{name}"), hook, None):
                atexit.unregister(cleanup)
        native = ("jax", "jaxlib", "tensorstore", "orbax")
        references = [dict(vars(module)) for name, module in list(sys.modules.items()) if name.partition(".")[0] in native]
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(references))  # never deleted, whatever the interpreter clears

    os.register_at_fork(after_in_child=keep_native_objects)


def use_compilation_cache() -> None:
    """Keep compiled programs on disk, so that later processes need not compile them again.

    The commands call this. Your own program can call it once, before it encodes or trains, since it changes settings of JAX for the
    whole process. A compilation cache that is already set is not changed.
    """
    if not keeps_compiled_programs():
        jax.config.update("jax_compilation_cache_dir", str(cache_home() / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    _add_checksums()


def compiler_options(platform: str) -> dict[str, Any]:
    """Return the options for `jax.jit` of an encoder's program for devices of `platform`: on a CPU, less work of LLVM.

    Such a program spends its time in products. At level 1 it compiles in two thirds to four fifths of the time, gives the same bits
    and is as fast (benchmarks/README.md).
    """
    return {"xla_backend_optimization_level": 1} if platform == "cpu" else {}


def keeps_compiled_programs() -> bool:
    """Return whether JAX keeps compiled programs on disk."""
    return bool(jax.config.jax_compilation_cache_dir)  # pyright: ignore[reportAttributeAccessIssue]  # defined at run time


def _add_checksums() -> None:
    """Add a checksum to the compressed programs of the cache. Without it, code with a flipped bit would be loaded and run."""
    try:
        import zstandard
    except ImportError:  # then JAX compresses with zlib, which has checksums
        return
    compilation_cache.compress_executable = lambda data: zstandard.ZstdCompressor(write_checksum=True).compress(data)
