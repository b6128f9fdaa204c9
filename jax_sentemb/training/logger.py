"""Log a run from process 0: JSON lines in metrics.jsonl (the complete log), a progress bar, TensorBoard, W&B."""

import json
import os
import sys
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jax_sentemb.config import Train
from jax_sentemb.errors import ConfigError, ResourceError, Setting, first_line, note_text, stored_text
from jax_sentemb.files import is_full, open_in_place, path_in_errors, replacing, write_all, write_text
from jax_sentemb.public_text import without_folders
from jax_sentemb.system.streams import print_line
from jax_sentemb.system.terminal import Progress


class Log:
    """Write events of a run to `workdir`/metrics.jsonl, the terminal and, if chosen, TensorBoard and Weights & Biases."""

    def __init__(
        self, workdir: Path, options: Train | None = None, settings: Mapping[str, Any] | None = None, is_brief: bool = False
    ) -> None:
        """Show the `settings` of the run in Weights & Biases; if `is_brief` is true, final scores are printed in one line.

        Raises:
            ConfigError: A package that is needed is not installed.
        """
        options = options or Train()
        self.is_brief = is_brief
        self.is_main = jax.process_index() == 0
        self.path = workdir / "metrics.jsonl"
        self.bar: Progress | None = None
        self.writer: Any = None  # of TensorBoard, from `rewind` on
        self._has_tensorboard = options.tensorboard and self.is_main
        self.wandb = _wandb(workdir, options.wandb, settings or {}) if options.wandb and self.is_main else None
        self.losses: deque[tuple[int, float]] = deque(maxlen=100)  # step and loss of the last steps
        self._unwritten = ""  # lines that are not written yet, because the disk was full

    def rewind(self, step: int) -> None:
        """Delete the events after `step`: a run that continues from a checkpoint, or starts again (-1), writes them again."""
        if self._has_tensorboard:
            if self.writer is not None:
                self.writer.close()
            self.writer = _tensorboard(self.path.parent, step + 1)
        if not self.is_main or not self.path.exists():
            return
        with os.fdopen(open_in_place(self.path, os.O_RDONLY), "rb") as file:  # line by line, as logs can be long
            if all(line.endswith(b"\n") and _step_of(line) <= step for line in file):
                return
            file.seek(0)
            with replacing(self.path) as partial, partial.open("wb") as new:
                new.writelines(line.rstrip(b"\n") + b"\n" for line in file if _step_of(line) <= step)

    def event(self, step: int, values: Mapping[str, Any]) -> None:
        """Write a line {"step": ..., "time": Unix seconds, **values}; numbers also go to TensorBoard and Weights & Biases."""
        if not self.is_main:
            return
        values = {name: without_folders(value) if isinstance(value, str) else _plain(value) for name, value in values.items()}
        self._write(json.dumps({"step": step, "time": round(time.time(), 3), **values}) + "\n")
        numbers = {name: value for name, value in values.items() if isinstance(value, float)}
        if self.writer is not None:
            for name, value in numbers.items():
                self.writer.add_scalar(name, value, step)
        if self.wandb is not None and numbers:
            self.wandb.log({"step": step, **numbers})

    def _write(self, line: str) -> None:
        text, self._unwritten = self._unwritten + line, ""
        descriptor, size = None, 0
        try:
            with path_in_errors(self.path):
                descriptor = open_in_place(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
                size = os.fstat(descriptor).st_size
                write_all(descriptor, text.encode())
        except OSError as error:
            if not is_full(error):
                raise
            self._unwritten = text  # is written with the next event
            if descriptor is not None:
                os.ftruncate(descriptor, size)
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def values(self, step: int, label: str, values: Mapping[str, float], digits: int) -> None:
        """Log measured values, and print them after `label` by the last part of their names and with `digits` decimals."""
        self.event(step, values)
        texts = (f"{name.rpartition('/')[2]} {value:.{digits}f}" for name, value in values.items())
        self.info(f"step {step}: {label}: {', '.join(texts)}")

    def warn(self, step: int, *message: str | Setting) -> None:
        """Print a warning with its settings spelled for its user, and log it with dotted settings for the report."""
        self.event(step, {"warning": stored_text(*message)})
        self.info(f"warning: {note_text(*message)}")

    def info(self, text: str) -> None:
        """Print a line above the progress bar."""
        if self.is_main:
            if self.bar is None:
                print_line(text, "stderr")
            else:
                self.bar.write(text)

    def progress(self, step: int, total: int, loss: float, sentences: float) -> None:
        """Show loss, sentences per second and the time left; without a terminal, as a line at growing intervals."""
        if not self.is_main:
            return
        if self.bar is None:
            self.bar = Progress("step", total, "steps", initial=step, delay=0, has_rate=False)
        speed = f", {sentences:,.0f} sentences/s" if sentences else ""  # unknown after the first step
        self.bar.show(step, f"loss {loss:.4f}{speed}")

    def finish_progress(self) -> None:
        """End the progress bar; later output is written below it."""
        if self.bar is not None:
            self.bar.close()
            self.bar = None

    def summary(self, values: Mapping[str, float]) -> None:
        """Write the final scores into Weights & Biases' table of runs."""
        if self.wandb is not None:
            self.wandb.summary.update(dict(values))

    def close(self) -> None:
        """End the progress bar and close TensorBoard and Weights & Biases, which marks a run that ends by an error as failed."""
        self.finish_progress()
        if self._unwritten:
            self._write("")
        failed = sys.exc_info()[0] is not None
        if self.writer is not None:
            self.writer.close()
        if self.wandb is not None:
            self.wandb.finish(exit_code=int(failed or bool(self._unwritten)))
        if self._unwritten and not failed:
            raise ResourceError(
                f"{self.path} lacks its last lines: the disk is full; free some space and run the same command again"
            )


def check_writers(options: Train) -> None:
    """Raise ConfigError if a package that the log needs is not installed."""
    if options.tensorboard:
        _import_tensorboard()
    if options.wandb:
        _import_wandb()


def _step_of(line: bytes) -> int:
    """Return the step of an event; sys.maxsize for a line that a crash has cut or damaged."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return sys.maxsize


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic | np.ndarray | jax.Array) and value.ndim == 0 else value


def _import_tensorboard() -> Any:
    try:
        import tensorboardX
    except ImportError:
        raise ConfigError(Setting("train.tensorboard", True), " needs TensorBoard: pip install tensorboardX") from None
    return tensorboardX


def _tensorboard(workdir: Path, first: int) -> Any:
    """Return a writer of events from step `first` on; TensorBoard hides those that an earlier writer has from this step on."""
    return _import_tensorboard().SummaryWriter(str(workdir / "tb"), purge_step=first)


def _import_wandb() -> Any:
    try:
        import wandb  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ConfigError(Setting("train.wandb"), " needs Weights & Biases: pip install wandb") from None
    return wandb


def _wandb(workdir: Path, project: str, settings: Mapping[str, Any]) -> Any:
    """Return the run of this work directory at Weights & Biases.

    Its id is stored in the work directory, so that a continued run remains one run.
    """
    id_file = workdir / "wandb_id.txt"
    name = id_file.read_text(encoding="utf-8").strip() if id_file.exists() else None
    wandb = _import_wandb()
    try:
        run = wandb.init(
            project=project, name=workdir.resolve().name, dir=str(workdir), config=dict(settings), id=name, resume="allow"
        )
    except wandb.Error as error:
        raise ConfigError(Setting("train.wandb", project), f": {first_line(error)} (WANDB_MODE=offline needs no account)") from None
    write_text(id_file, f"{run.id}\n")
    # The step count of Weights & Biases only grows, but a run that continues returns to the step of the checkpoint.
    run.define_metric("step")
    run.define_metric("*", step_metric="step")
    return run
