"""What a run says: one JSON line an event in metrics.jsonl (the truth), a progress bar, TensorBoard. Process 0 only."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from tqdm import tqdm

from jax_sentemb.errors import ConfigError


class Log:
    """Writes events of a run to `workdir`/metrics.jsonl, the terminal and, if wanted, TensorBoard."""

    def __init__(self, workdir: Path, tensorboard: bool = False) -> None:
        self.first = jax.process_index() == 0
        self.path = workdir / "metrics.jsonl"
        self.bar: tqdm | None = None
        self.writer = _tensorboard_writer(workdir) if tensorboard and self.first else None
        self.said = 0.0

    def rewind(self, step: int) -> None:
        """Drop events after `step`: a run that continues from a checkpoint writes them again."""
        if self.first and self.path.exists():
            lines = self.path.read_text(encoding="utf-8").splitlines()
            kept = [line for line in lines if _step_of(line) <= step]
            self.path.write_text("".join(line + "\n" for line in kept), encoding="utf-8")

    def event(self, step: int, values: dict[str, Any]) -> None:
        """One line {"step": ..., **values}; numbers also go to TensorBoard."""
        if not self.first:
            return
        values = {name: _plain(value) for name, value in values.items()}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")
        if self.writer is not None:
            for name, value in values.items():
                if isinstance(value, float):
                    self.writer.add_scalar(name, value, step)

    def say(self, text: str) -> None:
        """A line for people, above the progress bar."""
        if self.first:
            tqdm.write(text, file=sys.stderr)

    def progress(self, step: int, total: int, loss: float, rate: float) -> None:
        """The progress line: loss, sentences a second, time left; without a terminal one line every 30 seconds."""
        if not self.first:
            return
        if sys.stderr.isatty():
            if self.bar is None:
                self.bar = tqdm(total=total, initial=step, unit="step", dynamic_ncols=True, file=sys.stderr)
            self.bar.set_postfix_str(f"loss {loss:.4f}, {rate:,.0f} sentences/s", refresh=False)
            self.bar.update(step - self.bar.n)
        elif time.monotonic() - self.said > 30 or step == total:
            self.said = time.monotonic()
            self.say(f"step {step}/{total}: loss {loss:.4f}, {rate:,.0f} sentences/s")

    def close(self) -> None:
        """Finish the progress bar and flush TensorBoard."""
        if self.bar is not None:
            self.bar.close()
        if self.writer is not None:
            self.writer.close()


def _step_of(line: str) -> int:
    try:
        return json.loads(line)["step"]
    except (json.JSONDecodeError, KeyError, TypeError):
        return sys.maxsize  # a line cut by a crash


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic | np.ndarray | jax.Array) and value.ndim == 0 else value


def _tensorboard_writer(workdir: Path) -> Any:
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        raise ConfigError('train.tensorboard=True needs TensorBoard: pip install "jax_sentemb[tb]"') from None
    return SummaryWriter(str(workdir / "tb"))
