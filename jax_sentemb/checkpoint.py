"""Checkpoints through Orbax: the whole TrainState of the latest steps, the parameters of the best one, and what they belong to."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from jax_sentemb.errors import ModelFileError, ResourceError
from jax_sentemb.types import Params, TrainState


class Checkpoints:
    """`workdir`/checkpoints/<step> (state and facts) and `workdir`/best/<step> (parameters and scores)."""

    def __init__(self, workdir: Path, keep: int = 2) -> None:
        self.workdir = workdir
        self._latest = ocp.CheckpointManager(
            (workdir / "checkpoints").absolute(), options=ocp.CheckpointManagerOptions(max_to_keep=keep)
        )
        self._best = ocp.CheckpointManager((workdir / "best").absolute(), options=ocp.CheckpointManagerOptions(max_to_keep=1))

    def save(self, step: int, state: TrainState, facts: dict[str, Any]) -> None:
        """Write the state in the background; errors of the previous write are raised here."""
        if step in self._latest.all_steps():
            return
        self._write(self._latest, step, _leaves(state), facts)

    def save_best(self, step: int, params: Params, scores: dict[str, Any]) -> None:
        """Replace the best parameters."""
        if step not in self._best.all_steps():
            self._write(self._best, step, {"params": params}, scores)

    def restore(self, state: TrainState, facts: dict[str, Any]) -> tuple[TrainState, dict[str, Any]] | None:
        """The newest checkpoint in the shapes and shardings of `state`, with its facts; None without one.

        ModelFileError if it belongs to another run: any of `facts` differs, or an array has another shape.
        """
        step = self._latest.latest_step()
        if step is None:
            return None
        where = self.workdir / "checkpoints" / str(step)
        saved = self._latest.restore(step, args=ocp.args.Composite(facts=ocp.args.JsonRestore()))["facts"]
        for name, value in json.loads(json.dumps(facts)).items():
            if saved.get(name) != value:
                raise ModelFileError(
                    f"{where} was written with {name}={saved.get(name)!r}, this run has {value!r}: "
                    "give the old value, or another --workdir"
                )
        return state._replace(**self._read(self._latest, step, _leaves(state), where)), saved

    def restore_best(self, params: Params) -> tuple[int, Params] | None:
        """Step and parameters of the best checkpoint, in the shapes of `params`; None without one."""
        step = self._best.latest_step()
        if step is None:
            return None
        return step, self._read(self._best, step, {"params": params}, self.workdir / "best" / str(step))["params"]

    def wait(self) -> None:
        """Return when everything is on disk."""
        for manager in (self._latest, self._best):
            try:
                manager.wait_until_finished()
            except (OSError, ValueError) as error:
                raise _unwritten(self.workdir, error) from error

    def close(self) -> None:
        self._latest.close()
        self._best.close()

    def _write(self, manager: ocp.CheckpointManager, step: int, arrays: dict, facts: dict) -> None:
        # A copy: the background write must not read buffers that the next step, to which the state is donated, overwrites.
        arrays = jax.tree.map(jnp.copy, arrays)
        try:
            manager.save(
                step,
                args=ocp.args.Composite(state=ocp.args.StandardSave(arrays), facts=ocp.args.JsonSave(facts)),
                force=True,
            )
        except (OSError, ValueError) as error:
            raise _unwritten(self.workdir, error) from error

    def _read(self, manager: ocp.CheckpointManager, step: int, arrays: dict, where: Path) -> dict:
        shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding), arrays)
        try:
            return manager.restore(step, args=ocp.args.Composite(state=ocp.args.StandardRestore(shapes)))["state"]
        except (ValueError, KeyError, OSError) as error:
            raise ModelFileError(f"{where} cannot be read into this model: {str(error).splitlines()[0]}") from error


def _leaves(state: TrainState) -> dict[str, Any]:
    return {name: value for name, value in state._asdict().items() if value is not None}


def _unwritten(workdir: Path, error: Exception) -> ResourceError:
    return ResourceError(f"no checkpoint could be written to {workdir}: {str(error).splitlines()[0]}; free some space")


def read_params(folder: Path) -> Params:
    """The parameters of one checkpoint folder as NumPy arrays, whatever run and number of devices wrote it."""
    try:
        with ocp.StandardCheckpointer() as reader:
            tree = reader.metadata((folder / "state").absolute()).item_metadata.tree
            device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
            shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=device), tree)
            return jax.device_get(reader.restore((folder / "state").absolute(), shapes)["params"])
    except (ValueError, KeyError, TypeError, OSError, AttributeError) as error:
        raise ModelFileError(f"{folder} is no checkpoint that can be read: {str(error).splitlines()[0]}") from error
