"""Where arrays live: the batch is split over all devices, the state is on each. The only file that names a mesh axis."""

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from jax_sentemb.errors import ConfigError
from jax_sentemb.types import Batch


def make_mesh(batch_size: int, devices: list | None = None) -> Mesh:
    """A mesh with one axis, "data", over all devices of all processes; ConfigError if they do not divide the batch."""
    devices = jax.devices() if devices is None else devices
    if batch_size % len(devices):
        raise ConfigError(f"data.batch_size={batch_size} is not a multiple of the {len(devices)} devices of this run")
    return Mesh(np.array(devices), ("data",), axis_types=(AxisType.Auto,))


def over_batch(mesh: Mesh) -> NamedSharding:
    """Leading axis split over the devices."""
    return NamedSharding(mesh, PartitionSpec("data"))


def replicated(mesh: Mesh) -> NamedSharding:
    """The whole array on every device."""
    return NamedSharding(mesh, PartitionSpec())


def put_batch(batch: Batch, mesh: Mesh) -> Batch:
    """The global batch from the sentences of this process."""
    sharding = over_batch(mesh)
    return jax.tree.map(lambda values: jax.make_array_from_process_local_data(sharding, np.asarray(values)), batch)
