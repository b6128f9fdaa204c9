"""Write and read checkpoints with Orbax: the TrainState of the latest steps, and the parameters of the best step.

A step is valid when it has its manifest (manifest.py). Orbax first writes and finalises the step, then every file is hashed. Both
happen in the background.
"""

import contextlib
import errno
import functools
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_sentemb import __version__, files, provenance
from jax_sentemb.errors import REPLACE_FILE, ConfigError, ModelFileError, ResourceError, Setting, first_line
from jax_sentemb.formats import manifest
from jax_sentemb.parallel import is_main_process
from jax_sentemb.system.allocator import return_freed_memory
from jax_sentemb.system.host import unchanged_logging
from jax_sentemb.types import Params, TrainState

with unchanged_logging():
    import orbax.checkpoint as ocp

# Orbax treats these characters of a path as a pattern: it saves a step there, but then reads nothing or another folder.
PATTERN_CHARACTERS = "*?[\\"
# Orbax's save asks a counter of the process several times which save it is, so saves of two runs must not start at once.
_STARTING = threading.Lock()
MAX_LISTED = 10  # mismatching arrays that a message names
Warn = Callable[[int, str], None]  # receives a step and a warning


class Checkpoints:
    """`workdir`/checkpoints/<step> (state and metadata), best/<step> (parameters and scores) and start/0 (initial weights)."""

    def __init__(
        self,
        workdir: Path,
        sources: Mapping[str, Any],
        keep: int = 2,
        interval: int = 0,
        warn: Warn = lambda step, text: files.print_warning(text),
    ) -> None:
        """Open the checkpoints of the run in `workdir`.

        Args:
            workdir: The work directory of the run.
            sources: What the weights of the run depend on.
            keep: The number of latest steps that are not deleted.
            interval: The number of steps between two saves. The step at which a run was stopped is deleted after the next save,
                unless it is a multiple, since it would replace one of the `keep` steps; 0 keeps it.
            warn: Receives the step and the text of a warning.
        """
        self._latest = Steps(workdir / "checkpoints", sources, keep, warn, interval)
        self._best = Steps(workdir / manifest.BEST, sources, 1, warn)
        self._start = functools.partial(Steps, workdir / manifest.START, sources, 1, warn)

    def save_start(self, params: Params) -> None:
        """Write initial weights, with which `train.average_with_start` averages those of every step."""
        start = self._start()
        start.save(0, {"params": params}, {})
        start.finish(last=True)
        start.close()

    def save(self, step: int, state: TrainState, progress: dict[str, Any]) -> None:
        """Write the state in the background. If an earlier save has failed, warn of it or raise ResourceError."""
        if step not in self._latest.written:
            self._latest.save(step, _leaves(state), progress)

    def save_best(self, step: int, params: Params, scores: dict[str, Any]) -> None:
        """Replace the best parameters."""
        if self._best.written.get(step) == files.fingerprint(scores):
            return  # the same run wrote them before it was killed
        self._best.save(step, {"params": params}, scores)

    def delete_best(self) -> None:
        """Delete the best parameters, which are best by another score than that of this run."""
        self._best.delete()

    def restore(self, state: TrainState) -> tuple[TrainState, dict[str, Any]] | None:
        """Return the newest intact checkpoint in the shapes and shardings of `state`, and its progress; None without a checkpoint.

        Raises:
            ModelFileError: No checkpoint is intact, or a source or the shape of an array differs from this run.
        """
        step = self._latest.choose()
        if step is None:
            return None
        return state._replace(**self._latest.read(step, _leaves(state))), self._latest.metadata(step)

    def restore_best(self, params: Params, preferred: int = -1) -> tuple[int, Params] | None:
        """Return step and parameters of the best checkpoint, in the shapes of `params`; None without a best checkpoint.

        It is that of step `preferred`, or the newest one if this is missing.
        """
        step = self._best.choose(preferred)
        return None if step is None else (step, self._best.read(step, {"params": params})["params"])

    def best_scores(self, step: int) -> dict[str, Any]:
        """Return the scores that `save_best` stored with a step; {} if the step does not exist."""
        return self._best.metadata(step) if step in self._best.written else {}

    def wait(self) -> None:
        """Wait until all saves are complete.

        Raises:
            ResourceError: The last save of a state or of the best parameters failed.
        """
        self._latest.finish(last=True)
        self._best.finish(last=True)

    def close(self) -> None:
        """Stop background saves and ignore their failures."""
        self._latest.close()
        self._best.close()


class Steps:
    """A folder of steps, of which only the newest `keep` remain. Process 0 writes manifests and deletes steps."""

    def __init__(self, folder: Path, sources: Mapping[str, Any], keep: int, warn: Warn, interval: int = 0) -> None:
        self.folder, self._sources, self._keep, self._warn = folder.absolute(), sources, keep, warn
        self._interval, self._stopped_at = interval, -1
        self.written: dict[int, str] = {}  # steps -> fingerprints of their metadata; "" for a step that was not read
        self._thread: threading.Thread | None = None
        self._pending: tuple[int, str] | None = None  # step and fingerprint of the save in the background
        self._error: Exception | None = None
        self._failures = 0  # number of consecutive failed saves
        self._orbax = ocp.AsyncCheckpointer(
            _handler(),
            multiprocessing_options=ocp.options.MultiprocessingOptions(barrier_sync_key_prefix=folder.name),
        )

    def choose(self, preferred: int = -1) -> int | None:
        """Return step `preferred` if it is valid, otherwise the newest valid step, the same in every process; None without steps.

        Raises:
            ModelFileError: There are steps, but none is intact.
        """
        self.finish()
        problem, step = "", -1
        if is_main_process():
            try:
                newest = manifest.recover(self.folder, lambda text: self._warn(0, text))
                if newest is not None:
                    is_newest = newest[0] == preferred  # then it is not hashed again
                    step, content = newest if is_newest else manifest.valid(self.folder, preferred) or newest
                    older = [number for number in manifest.steps(self.folder, lambda text: None) if number < step]
                    self.written = {**dict.fromkeys(older, ""), step: content["facts"]}
            except ModelFileError as error:
                problem, step = str(error), -2
        if jax.process_count() > 1:
            from jax.experimental import multihost_utils

            step = int(multihost_utils.broadcast_one_to_all(np.int32(step)))
        if step == -2:
            raise ModelFileError(
                *((problem,) if problem else (f"{self.folder}: no step is intact; ", *manifest.advice(self.folder)))
            )
        if step < 0:
            return None
        self.written.setdefault(step, "")
        self._stopped_at = step if self._interval and step % self._interval else -1
        return step

    def save(self, step: int, arrays: dict, metadata: dict) -> None:
        """Start to write a step, after the previous save is complete."""
        self.finish()
        # The next train step reuses the buffers of the state during the background write, so the arrays are copied.
        arrays = jax.tree.map(jnp.copy, arrays)
        content = {
            provenance.KEY: provenance.mark(provenance.CHECKPOINT, self._sources),
            "step": step,
            "arrays": {name: list(spec) for name, spec in _array_specs(arrays).items()},
            "facts": files.fingerprint(metadata),
            "versions": {"jax_sentemb": __version__, "jax": jax.__version__, "orbax": ocp.__version__},
        }
        target = self.folder / str(step)
        self._pending = step, content["facts"]
        try:
            if is_main_process():
                self.folder.mkdir(parents=True, exist_ok=True)
                files.write_text(self.folder / manifest.UNFINISHED, str(step))
                if target.exists():
                    manifest.remove(target)
            if jax.process_count() == 1:
                _check_room(self.folder, sum(leaf.nbytes for leaf in jax.tree.leaves(arrays)))
            items = ocp.args.Composite(state=ocp.args.StandardSave(arrays), facts=ocp.args.JsonSave(metadata))
            with _STARTING:
                self._orbax.save(target, args=items)
        except (OSError, ValueError, RuntimeError) as error:
            self._error = error
            self.finish()
            return
        self._thread = threading.Thread(target=self._in_background, args=(step, content), name=f"save of {target}")
        self._thread.start()

    def _in_background(self, step: int, content: dict[str, Any]) -> None:
        try:
            self._orbax.wait_until_finished()
            if is_main_process():
                manifest.write(self.folder / str(step), content)
                remaining = self._remaining(step)
                for old in manifest.steps(self.folder, lambda text: None):
                    if old not in remaining:
                        manifest.remove(self.folder / str(old))
                (self.folder / manifest.UNFINISHED).unlink()
            return_freed_memory()  # each save leaves 0.2 MB in the arenas of its threads
        except Exception as error:  # reported by the main thread
            self._error = error

    def finish(self, last: bool = False) -> None:
        """Wait for the save in the background. If it failed and an older step exists, warn.

        Raises:
            ResourceError: The save failed, and no older step exists, it was the `last` save, it was the second failure in a row,
                or the run has several processes.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        pending, self._pending = self._pending, None
        if pending is None:
            return
        step, metadata = pending
        if error is None:
            self._failures = 0
            written = {**self.written, step: metadata}
            self.written = {number: written[number] for number in self._remaining(step)}
            return
        if jax.process_count() > 1 and not isinstance(error, OSError | ValueError):
            raise error  # another process ended
        self._failures += 1
        if is_main_process():
            self._clear(step)
        reason = f"step {step} could not be saved in {self.folder}: {first_line(error)}"
        if last or self._failures > 1 or jax.process_count() > 1 or not self.written:
            raise ResourceError(f"{reason}; free some space and run the same command again") from error
        self._warn(step, f"{reason}; the checkpoint of step {max(self.written)} is intact; free some space before the next save")

    def _remaining(self, step: int) -> list[int]:
        """Return the steps that remain when `step` is valid. Later ones were saved before the run went back to an earlier step."""
        numbers = {number for number in self.written if number < step and number != self._stopped_at}
        return sorted({*numbers, step})[-self._keep :]

    def delete(self) -> None:
        """Delete all steps."""
        self.finish()
        self.written = {}
        if is_main_process():
            for step in manifest.steps(self.folder, lambda text: None):
                manifest.remove(self.folder / str(step))
            manifest.clear(self.folder, damaged=True)

    def _clear(self, step: int) -> None:
        """Delete the files of a failed save to free their space."""
        try:
            manifest.remove(self.folder / str(step))
            manifest.clear(self.folder)
        except OSError:
            pass  # the next start deletes them

    def metadata(self, step: int) -> dict[str, Any]:
        """Return the metadata stored with a step."""
        where = self.folder / str(step)
        with _readable(where):
            return self._orbax.restore(where, args=ocp.args.Composite(facts=ocp.args.JsonRestore()))["facts"]

    def read(self, step: int, arrays: dict) -> dict:
        """Return the arrays of a step in the shapes and shardings of `arrays`.

        Raises:
            ModelFileError: A source of the run, the structure, a shape or a dtype differs.
        """
        where = self.folder / str(step)
        provenance.check(where, _content(where), provenance.CHECKPOINT, self._sources)
        return read_arrays(where, arrays)

    def close(self) -> None:
        """Wait for the save in the background and close Orbax. Ignore failures."""
        if self._thread is not None:
            self._thread.join()
        if self._error is None:
            self._orbax.close()


def _check_room(folder: Path, size: int) -> None:
    """Raise OSError before anything is written if the disk is nearly full. Metrics and scores need space as well."""
    free = shutil.disk_usage(folder).free
    if free < 1.2 * size:
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: {free:,} bytes are free, the save needs {round(1.2 * size):,}")


def _leaves(state: TrainState) -> dict[str, Any]:
    return {name: value for name, value in state._asdict().items() if value is not None}


def _array_specs(arrays: Any) -> dict[str, tuple[str, str]]:
    """Return shape and dtype of every array by its path."""
    leaves = jax.tree_util.tree_leaves_with_path(arrays)
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): ("x".join(map(str, leaf.shape)), str(leaf.dtype))
        for path, leaf in leaves
    }


def _spec_text(spec: tuple[str, ...] | None) -> str:
    return "absent" if spec is None else f"{spec[1]}[{spec[0]}]"


def check_path(folder: Path) -> None:
    """Raise ConfigError for a folder from which Orbax could not read a checkpoint."""
    if characters := sorted(set(PATTERN_CHARACTERS) & set(str(folder.absolute()))):
        raise ConfigError(f"{folder}: the path of a checkpoint must not contain {' or '.join(characters)}: choose another folder")


def _handler() -> ocp.CompositeCheckpointHandler:
    """Return Orbax's reader and writer of the two parts of a step."""
    return ocp.CompositeCheckpointHandler(state=ocp.StandardCheckpointHandler(), facts=ocp.JsonCheckpointHandler())


def read_params(folder: Path) -> Params:
    """Return the parameters of a step as NumPy arrays, whatever number of devices wrote it. Raise as `read_arrays` does."""
    return jax.device_get(read_arrays(folder)["params"])


def read_arrays(folder: Path, like: dict | None = None) -> dict:
    """Return the arrays of a step that was verified. Every checkpoint is read by this function.

    Args:
        folder: The folder of the step.
        like: Arrays with the structure, shapes and shardings of the result; None reads all arrays onto the first device.

    Raises:
        ModelFileError: The step has another format, cannot be read, or does not fit `like`.
    """
    check_path(folder)
    content, step = _content(folder), folder.absolute()
    with _readable(folder), unchanged_logging(), ocp.Checkpointer(_handler()) as reader:
        if like is None:
            device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
            tree = reader.metadata(step).item_metadata["state"].tree
            shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=device), tree)
        else:
            _check_fit(folder, content, like)
            shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding), like)
        return reader.restore(step, args=ocp.args.Composite(state=ocp.args.StandardRestore(shapes)))["state"]


def _check_fit(folder: Path, content: dict[str, Any], arrays: dict) -> None:
    """Raise ModelFileError if a step has other arrays, shapes or dtypes than `arrays`."""
    saved, expected = {name: tuple(spec) for name, spec in content["arrays"].items()}, _array_specs(arrays)
    if different := [name for name in sorted({*saved, *expected}) if saved.get(name) != expected.get(name)]:
        faults = [
            f"{name} is {_spec_text(saved.get(name))}, expected {_spec_text(expected.get(name))}" for name in different[:MAX_LISTED]
        ]
        more = [f"and {len(different) - MAX_LISTED} more"] if len(different) > MAX_LISTED else []
        raise ModelFileError(
            f"{folder} does not fit this model: {'; '.join([*faults, *more])}; give another ", Setting("--workdir")
        )


def _content(folder: Path) -> dict[str, Any]:
    """Return the content of the manifest of a step."""
    try:
        return manifest.read(folder)
    except manifest.Damaged as problem:
        raise ModelFileError(f"{problem}; {REPLACE_FILE}") from None


@contextlib.contextmanager
def _readable(folder: Path) -> Iterator[None]:
    """Raise ModelFileError for an error of Orbax while it reads a step."""
    try:
        yield
    except (ValueError, KeyError, TypeError, OSError, AttributeError) as error:
        raise ModelFileError(f"{folder} cannot be read as a checkpoint: {first_line(error)}; {REPLACE_FILE}") from error
