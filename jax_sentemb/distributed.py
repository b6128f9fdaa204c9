"""One run in several processes, on one machine or many: how they find each other, and what they agree on before they start.

JAX's own runtime does the work. The work directory is one that all processes see; process 0 writes everything in it but the others'
shares of checkpoints.
"""

import hashlib
import os
import sys
from typing import NamedTuple

import jax
import numpy as np

from jax_sentemb.errors import ConfigError, ResourceError

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


def first() -> bool:
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
