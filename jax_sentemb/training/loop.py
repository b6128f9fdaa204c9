"""Run the training loop, prefetch its batches, and report its metrics."""

import contextlib
import math
import time
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import PyTree

from jax_sentemb.errors import NotFinite
from jax_sentemb.losses import Scalar
from jax_sentemb.parallel import gather, shard_batch
from jax_sentemb.training.logger import Log
from jax_sentemb.training.signals import Preempted, StopSignal
from jax_sentemb.training.step import Parts, Step
from jax_sentemb.types import Array, TrainState

PREFETCH = 2  # batches that are prepared and sent to the device in advance


def batches_on_device(at: Callable[[int], Parts], start: int, end: int, mesh: Mesh) -> Generator[Parts]:
    """Yield batches start..end-1 on the devices; a thread prepares them in advance."""
    with ThreadPoolExecutor(1) as thread:
        waiting = [
            thread.submit(lambda step=step: shard_batch(at(step), mesh)) for step in range(start, min(start + PREFETCH, end))
        ]
        for step in range(start, end):
            batch = waiting.pop(0).result()
            if step + PREFETCH < end:
                waiting.append(thread.submit(lambda step=step + PREFETCH: shard_batch(at(step), mesh)))
            yield batch


def check_finite(step: int, tree: PyTree[Array]) -> None:
    """Raise NotFinite if a state or parameters have NaN or Inf, which can follow from an update with a finite loss.

    NumPy looks at the arrays, one at a time: a program of the devices would take longer to compile than a short run to train.
    """
    shards = ({str(shard.index): shard.data for shard in leaf.addressable_shards} for leaf in jax.tree.leaves(tree))
    is_finite = all(np.isfinite(shard).all() for own in shards for shard in own.values())
    if not gather(np.array([is_finite])).all():
        raise NotFinite(step, "the weights are not finite after the update")


class Metrics:
    """Report the metrics of each step after the next step is dispatched, so that the device never waits for the host.

    Every `logging_steps` steps and at the end it logs them, with the speed since the last line. The progress has every step, so
    the time left is known after the second one.
    """

    def __init__(self, log: Log, batch_size: int, total_steps: int, logging_steps: int) -> None:
        self._log, self._batch_size, self._total_steps, self._logging_steps = log, batch_size, total_steps, logging_steps
        self._waiting: tuple[int, dict[str, Scalar]] | None = None
        self._clock, self._clocked = time.monotonic(), -1  # starts after the first step, which compiles

    def add(self, step: int, metrics: dict[str, Scalar]) -> None:
        """Store the metrics of a step and report those of the previous step."""
        self.flush()
        self._waiting = step, metrics

    def flush(self) -> None:
        """Report the stored metrics.

        Raises:
            NotFinite: The loss or the gradient is NaN or Inf.
        """
        if self._waiting is not None:
            (step, metrics), self._waiting = self._waiting, None
            self._report(step, {name: float(value) for name, value in jax.device_get(metrics).items()})

    def restart_clock(self, step: int) -> None:
        """Exclude the time of an evaluation or a save from the speed."""
        self._clock, self._clocked = time.monotonic(), step

    def _report(self, step: int, values: dict[str, float]) -> None:
        log, total = self._log, self._total_steps
        log.losses.append((step, values["loss"]))
        if not (math.isfinite(values["loss"]) and math.isfinite(values["grad_norm"])):
            log.event(step, {"event": "not finite", **values})
            raise NotFinite(step, f"loss {values['loss']}, gradient norm {values['grad_norm']}")
        if self._clocked < 0:
            self.restart_clock(step)
        now, steps = time.monotonic(), step - self._clocked
        rate = steps / max(now - self._clock, 1e-9)
        sentences = rate * self._batch_size
        if step % self._logging_steps == 0 or step == total:
            speed = {"speed/sentences_per_second": sentences, "speed/steps_per_second": rate} if steps else {}
            self._clock, self._clocked = now, step
            log.event(step, {f"train/{name}": value for name, value in values.items()} | speed)
        log.progress(step, total, values["loss"], sentences)


class Hooks(NamedTuple):
    """Evaluation, saving and early stopping between steps, and the intervals of each."""

    evaluate: Callable[[int, TrainState], TrainState]  # may lower the learning rate; may raise Preempted
    save: Callable[[int, TrainState], None]
    exhausted: Callable[[], bool]  # whether training ends early; called after an evaluation
    eval_steps: int  # 0: never
    save_steps: int  # 0: never
    total_steps: int  # after the last step the caller evaluates and saves

    def due(self, step: int) -> tuple[bool, bool]:
        """Return whether to evaluate, and whether to save, after this step."""
        evaluate, save = (
            bool(interval) and step % interval == 0 and step < self.total_steps for interval in (self.eval_steps, self.save_steps)
        )
        return evaluate, save


def fit(state: TrainState, step: Step, batches: Iterable[Parts], metrics: Metrics, hooks: Hooks, stop: StopSignal) -> TrainState:
    """Run a step for each batch; evaluate, save and log in between. End early after a stop signal or if `exhausted`.

    Signals are handled after the first step has compiled. A signal during an evaluation saves at once; the next start evaluates
    again.

    Raises:
        NotFinite: The state or the loss is not finite; raised before the state is saved.
    """
    for number, batch in enumerate(batches, int(state.step) + 1):
        with jax.transfer_guard("disallow"):
            state, measured = step(state, batch)
        stop.watch()
        metrics.add(number, measured)
        evaluating, saving = hooks.due(number)
        stopping = stop.at(number)
        if not (evaluating or saving or stopping):
            continue
        metrics.flush()
        if evaluating:
            with contextlib.suppress(Preempted):
                state = hooks.evaluate(number, state)
            stopping = stopping or stop.reached or hooks.exhausted()
        if saving or stopping:
            hooks.save(number, state)
        if stopping:
            return state
        metrics.restart_clock(number)
    metrics.flush()
    return state
