"""The training loop, and the batches that it is fed with."""

import contextlib
import math
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from jax_sentemb import config as settings
from jax_sentemb.errors import NotFinite
from jax_sentemb.parallel import shard_batch
from jax_sentemb.training.logger import Log
from jax_sentemb.training.signals import Preempted, StopSignal
from jax_sentemb.training.step import Parts, Step
from jax_sentemb.types import Array, TrainState

PREFETCH = 2  # batches made and sent to the device ahead of the step


def batches_on_device(at: Callable[[int], Parts], start: int, end: int, mesh: Mesh) -> Generator[Parts]:
    """Batches start..end-1 on the devices, made in a thread ahead of use."""
    with ThreadPoolExecutor(1) as thread:
        waiting = [
            thread.submit(lambda step=step: shard_batch(at(step), mesh)) for step in range(start, min(start + PREFETCH, end))
        ]
        for step in range(start, end):
            batch = waiting.pop(0).result()
            if step + PREFETCH < end:
                waiting.append(thread.submit(lambda step=step + PREFETCH: shard_batch(at(step), mesh)))
            yield batch


@jax.jit
def _finite(tree: Any) -> Array:
    floats = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return jnp.array([jnp.isfinite(leaf).all() for leaf in floats]).all()


def check_finite(step: int, tree: Any) -> None:
    """NotFinite where a number of a state or of parameters is NaN or Inf: a loss can be finite before an update that is not."""
    if not bool(_finite(tree)):
        raise NotFinite(step, "the weights are not finite after the update")


def fit(
    state: TrainState,
    step: Step,
    batches: Iterator[Parts],
    total_steps: int,
    options: settings.Train,
    log: Log,
    batch_size: int,
    evaluate: Callable[[int, TrainState], TrainState],
    eval_steps: int,
    exhausted: Callable[[], bool],
    save: Callable[[int, TrainState], None],
    stop: StopSignal,
) -> TrainState:
    """The one loop: steps until `total_steps`, a stop signal or `exhausted` evaluations; it evaluates, logs and saves on the way.

    Metrics of a step are read after the next one is dispatched. A loss or gradient that is not finite raises NotFinite before
    anything is saved. Signals are watched once the first step has compiled. A signal during an evaluation leaves it for the next
    start, so `evaluate` may raise Preempted.
    """
    number = int(state.step)
    late: tuple[int, dict[str, Array]] | None = None
    clock, clocked = time.monotonic(), -1  # the clock starts when the first step is done: before that it compiles

    def report(done: int, metrics: dict[str, Array]) -> None:
        nonlocal clock, clocked
        values = {name: float(value) for name, value in jax.device_get(metrics).items()}
        log.losses.append((done, values["loss"]))
        if not (math.isfinite(values["loss"]) and math.isfinite(values["grad_norm"])):
            log.event(done, {"event": "not finite", **values})
            raise NotFinite(done, f"loss {values['loss']}, gradient norm {values['grad_norm']}")
        if clocked < 0:
            clock, clocked = time.monotonic(), done
        if done % options.logging_steps == 0 or done == total_steps:
            now, steps = time.monotonic(), done - clocked
            rate = steps / max(now - clock, 1e-9)
            speed = {"speed/sentences_per_second": rate * batch_size, "speed/steps_per_second": rate} if steps else {}
            clock, clocked = now, done
            log.event(done, {f"train/{name}": value for name, value in values.items()} | speed)
            log.progress(done, total_steps, values["loss"], rate * batch_size)

    for batch in batches:
        with jax.transfer_guard("disallow"):
            state, metrics = step(state, batch)
        stop.watch()
        if late is not None:
            report(*late)
        number += 1
        late = (number, metrics)
        due = eval_steps and number % eval_steps == 0 and number < total_steps
        keep = options.save_steps and number % options.save_steps == 0 and number < total_steps
        stopping = stop.at(number)
        if due or keep or stopping:
            report(*late)
            late = None
            if due:
                with contextlib.suppress(Preempted):
                    state = evaluate(number, state)
                stopping = stopping or stop.reached or exhausted()
            if keep or stopping:
                save(number, state)
            if stopping:
                return state
            clock, clocked = time.monotonic(), number
    if late is not None:
        report(*late)
    return state
