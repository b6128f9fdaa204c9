"""Where arrays live, on one device or many, in one process or many. The only file that names a mesh axis.

The batch is split over all devices. Parameters, the optimiser's state and moving averages are on each device or, with
train.fsdp = n, split over groups of n.
"""

from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, Sharding

from jax_sentemb.errors import ConfigError
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
    return Mesh(np.array(devices).reshape(-1, fsdp), AXES, axis_types=(AxisType.Auto,) * 2)


def over_batch(mesh: Mesh) -> NamedSharding:
    """Leading axis split over the devices."""
    return NamedSharding(mesh, PartitionSpec(AXES))


def replicated(mesh: Mesh) -> NamedSharding:
    """The whole array on every device."""
    return NamedSharding(mesh, PartitionSpec())


def over_parameters(mesh: Mesh, shapes: Any) -> Any:
    """The sharding of each leaf of a state, given arrays or their shapes: the longest axis that "fsdp" divides is split over it."""
    size = mesh.shape["fsdp"]

    def sharding(leaf: Any) -> NamedSharding:
        axes = [axis for axis, length in enumerate(leaf.shape) if length % size == 0]
        if size == 1 or not axes or leaf.size < SPLIT_FROM:
            return replicated(mesh)
        longest = max(axes, key=lambda axis: leaf.shape[axis])
        return NamedSharding(mesh, PartitionSpec(*(None,) * longest, "fsdp"))

    return jax.tree.map(sharding, shapes)


def put_batch(batch: Batch | tuple[Batch, ...], mesh: Mesh) -> Any:
    """The global batch, or its parts, from the sentences of this process."""
    sharding = over_batch(mesh)
    return jax.tree.map(lambda values: jax.make_array_from_process_local_data(sharding, np.asarray(values)), batch)


def put_whole(values: Any, sharding: Sharding | None) -> Any:
    """Arrays on the devices, from a host that has all of them, as every process does."""
    if sharding is None or sharding.is_fully_addressable:
        return jax.device_put(values, sharding)
    return jax.tree.map(
        lambda leaf: jax.make_array_from_callback(leaf.shape, sharding, lambda index, leaf=leaf: np.asarray(leaf)[index]), values
    )


def gathered(tree: Any) -> Any:
    """The arrays, each whole on every device; free for those that are."""

    def gather(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array) or leaf.is_fully_replicated or not isinstance(leaf.sharding, NamedSharding):
            return leaf
        return jax.jit(lambda value: value, out_shardings=replicated(leaf.sharding.mesh))(leaf)  # type: ignore[arg-type]

    return jax.tree.map(gather, tree)
