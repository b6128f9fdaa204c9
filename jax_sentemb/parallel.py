"""Where arrays live, on one device or many, in one process or many. The only file that names a mesh axis.

The batch is split over all devices. Parameters, the optimiser's state and moving averages are on each device or, with
train.fsdp = n, split over groups of n.
"""

import hashlib
import os
import sys
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, Sharding

from jax_sentemb.errors import ConfigError, ResourceError
from jax_sentemb.files import user_path
from jax_sentemb.types import Batch

AXES = ("data", "fsdp")
SPLIT_FROM = 2**11  # numbers that an array must have to be split over "fsdp": biases stay whole


def make_mesh(batch_size: int, devices: list | None = None, fsdp: int = 1) -> Mesh:
    """A mesh over all devices of all processes; ConfigError if they do not divide the batch, or `fsdp` does not divide them."""
    devices = jax.devices() if devices is None else devices
    if batch_size % len(devices):
        raise ConfigError(f"data.batch_size={batch_size} is not a multiple of the {len(devices)} devices of this run")
    if len(devices) % fsdp:
        raise ConfigError(f"train.fsdp={fsdp} does not divide the {len(devices)} devices of this run")
    return Mesh(_network_order(devices, fsdp).reshape(-1, fsdp), AXES, axis_types=(AxisType.Auto,) * 2)


def _network_order(devices: list, fsdp: int) -> np.ndarray:
    """The devices so that neighbours in the mesh are neighbours in the network, slice by slice; those of a process stay together.

    Together, because each process reads consecutive rows of a batch.
    """
    shape = (len(devices) // fsdp, fsdp)
    slices = len({getattr(device, "slice_index", 0) for device in devices})
    if slices > 1 and shape[0] % slices == 0:
        from jax.experimental import mesh_utils

        inside = (shape[0] // slices, fsdp)
        ordered = mesh_utils.create_hybrid_device_mesh(inside, (slices, 1), devices, allow_split_physical_axes=True)
    else:
        ordered = jax.make_mesh(shape, AXES, (AxisType.Auto,) * 2, devices=devices).devices
    processes: dict[int, int] = {}
    for device in ordered.flat:
        processes.setdefault(device.process_index, len(processes))
    return np.array(sorted(ordered.flat, key=lambda device: processes[device.process_index]))


def process_share(mesh: Mesh) -> tuple[int, int]:
    """(number, count): this process reads part `number` of `count` equal parts of each batch."""
    processes = list(dict.fromkeys(device.process_index for device in mesh.devices.flat))
    return processes.index(jax.process_index()), len(processes)


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Leading axis split over the devices."""
    return NamedSharding(mesh, PartitionSpec(AXES))


def replicated(mesh: Mesh) -> NamedSharding:
    """The whole array on every device."""
    return NamedSharding(mesh, PartitionSpec())


def fsdp_sharding(mesh: Mesh, shapes: Any) -> Any:
    """The sharding of each leaf of a state, given arrays or their shapes: the longest axis that "fsdp" divides is split over it."""
    size = mesh.shape["fsdp"]

    def sharding(leaf: Any) -> NamedSharding:
        axes = [axis for axis, length in enumerate(leaf.shape) if length % size == 0]
        if size == 1 or not axes or leaf.size < SPLIT_FROM:
            return replicated(mesh)
        longest = max(axes, key=lambda axis: leaf.shape[axis])
        return NamedSharding(mesh, PartitionSpec(*(None,) * longest, "fsdp"))

    return jax.tree.map(sharding, shapes)


def shard_batch(batch: Batch | tuple[Batch, ...], mesh: Mesh) -> Any:
    """The global batch, or its parts, from the sentences of this process."""
    sharding = batch_sharding(mesh)
    return jax.tree.map(lambda values: jax.make_array_from_process_local_data(sharding, np.asarray(values)), batch)


def put_whole(values: Any, sharding: Sharding | None) -> Any:
    """Arrays on the devices, from a host that has all of them, as every process does."""
    if sharding is None or sharding.is_fully_addressable:
        return jax.device_put(values, sharding)
    return jax.tree.map(
        lambda leaf: jax.make_array_from_callback(leaf.shape, sharding, lambda index, leaf=leaf: np.asarray(leaf)[index]), values
    )


def replicate(tree: Any) -> Any:
    """The arrays, each whole on every device; free for those that are."""

    def gather(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array) or leaf.is_fully_replicated or not isinstance(leaf.sharding, NamedSharding):
            return leaf
        return jax.jit(lambda value: value, out_shardings=replicated(leaf.sharding.mesh))(leaf)  # type: ignore[arg-type]

    return jax.tree.map(gather, tree)


LOST_AFTER = 50  # seconds without a sign of life after which the others end


class Join(NamedTuple):
    """How this process joins a run: nothing, found by JAX on its own (TPU pod, SLURM, MPI), or by address."""

    automatic: bool = False
    coordinator: str = ""  # HOST:PORT of process 0
    processes: int = 0
    process: int = -1

    @property
    def alone(self) -> bool:
        """Whether the run is one process."""
        return not self.automatic and not self.coordinator and not self.processes and self.process < 0


def join(how: Join) -> None:
    """Become one of the processes of a run; call before anything touches a device."""
    if how.alone:
        return
    if how.automatic and (how.coordinator or how.processes or how.process >= 0):
        raise ConfigError("--distributed finds the processes by itself: give it, or --coordinator, --processes and --process")
    if not how.automatic and not (how.coordinator and how.processes > 0 and 0 <= how.process < how.processes):
        raise ConfigError(
            f"--coordinator={how.coordinator} --processes={how.processes} --process={how.process}: give all three, "
            "for instance --coordinator=10.0.0.1:1234 --processes=4 --process=0, with process from 0 to processes - 1"
        )
    address, count, number = (None, None, None) if how.automatic else (how.coordinator, how.processes, how.process)
    try:
        jax.distributed.initialize(address, count, number, heartbeat_timeout_seconds=LOST_AFTER)
    except (RuntimeError, ValueError) as error:
        what = "--distributed" if how.automatic else f"--coordinator={how.coordinator}"
        raise ResourceError(f"{what}: the processes of the run did not find each other: {str(error).splitlines()[0]}") from None
    if jax.process_index() > 0:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # tables are printed once  # noqa: SIM115


def is_main_process() -> bool:
    """Whether this process writes the files of the run."""
    return jax.process_index() == 0


def agree(text: str) -> None:
    """ConfigError in every process if `text`, what a run depends on, is not the same in all of them."""
    if jax.process_count() == 1:
        return
    from jax.experimental import multihost_utils

    mine = np.frombuffer(hashlib.sha256(text.encode()).digest()[:4], np.int32)
    others = np.asarray(multihost_utils.process_allgather(mine)).reshape(-1)
    if (others != others[0]).any():
        different = [int(number) for number in np.flatnonzero(others != others[0])]
        raise ConfigError(f"processes {different} have another configuration, corpus or tokenizer than process 0")


def use_compilation_cache() -> None:
    """What is compiled is kept between processes, unless the user has a cache: a second start takes a fraction of the first."""
    import jax

    if not jax.config.jax_compilation_cache_dir:
        home = os.environ.get("JAX_SENTEMB_CACHE", "~/.cache/jax_sentemb")
        jax.config.update("jax_compilation_cache_dir", str(user_path(home) / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
