"""The optimiser, the state, the one train step and the one loop. No method has its own."""

import contextlib
import math
import signal
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from jax_sentemb import config as settings
from jax_sentemb.errors import NotFinite
from jax_sentemb.gradients import encode_parts, loss_and_gradients, split_frozen
from jax_sentemb.log import Log
from jax_sentemb.methods import Method
from jax_sentemb.models.words import FROZEN
from jax_sentemb.optimizers import adam_without_bias_correction, optimizer_by_part, own_schedule
from jax_sentemb.sharding import over_batch, over_parameters, put_batch, replicated
from jax_sentemb.types import Array, Batch, Params, Rows, TrainState

Parts = Batch | tuple[Batch, ...]  # a batch, or the parts that it is split into (Batches.parts)
Step = Callable[[TrainState, Parts], tuple[TrainState, dict[str, Array]]]
PREFETCH = 2  # batches made and sent to the device ahead of the step


def make_schedule(options: settings.Optimizer, total_steps: int, steps_per_epoch: int = 1) -> optax.Schedule:
    """Learning rate as a function of the step: warm-up from 0, then one of lr_scheduler_type's forms."""
    rate, warmup = options.learning_rate, options.warmup_steps or round(options.warmup_ratio * total_steps)
    rest = max(total_steps - warmup, 1)
    after = {
        "linear": optax.linear_schedule(rate, 0.0, rest),
        "cosine": optax.cosine_decay_schedule(rate, rest),
        "constant": optax.constant_schedule(rate),
        "exponential": optax.exponential_decay(rate, max(steps_per_epoch, 1), options.lr_decay, staircase=True),
        "steps": _rate_by_step(rate, {step - warmup: value for step, value in settings.rate_steps(options).items()}),
    }[options.lr_scheduler_type]
    return optax.join_schedules([optax.linear_schedule(0.0, rate, warmup), after], [warmup]) if warmup else after


def make_optimizer(
    options: settings.Optimizer, total_steps: int, steps_per_epoch: int = 1, shares: Mapping[str, Fraction] | None = None
) -> optax.GradientTransformation:
    """Clipping by global norm, then AdamW, RMSprop (TensorFlow's: epsilon outside the root) or SGD; decay spares vectors.

    `shares`: parts of the parameters with an optimiser of their own, whose schedule counts their own steps (`optimizer_by_part`).
    """
    b1, b2, epsilon = options.adam_beta1, options.adam_beta2, options.adam_epsilon
    if options.name == "rmsprop":
        scaled = optax.scale_by_rms(options.rmsprop_decay, epsilon, eps_in_sqrt=False)
    elif options.name == "sgd":
        scaled = optax.identity()
    elif options.adam_bias_correction:
        scaled = optax.scale_by_adam(b1, b2, epsilon)
    else:
        scaled = adam_without_bias_correction(b1, b2, epsilon)
    parts = [optax.clip_by_global_norm(options.max_grad_norm)] if options.max_grad_norm else []
    decay = optax.add_decayed_weights(options.weight_decay, lambda params: jax.tree.map(lambda leaf: leaf.ndim > 1, params))
    schedule = make_schedule(options, total_steps, steps_per_epoch)

    def stages(share: Fraction) -> tuple[optax.GradientTransformation, ...]:
        return scaled, decay, optax.scale_by_learning_rate(own_schedule(schedule, share))

    drops = [optax.inject_hyperparams(optax.scale)(step_size=1.0)] if options.lr_drop < 1 else []
    updates = [optimizer_by_part(lambda share: optax.chain(*stages(share)), shares)] if shares else stages(Fraction(1))
    return optax.chain(*parts, *updates, *drops)


def drop_rate(state: TrainState, factor: float) -> tuple[TrainState, float]:
    """The state with its learning rate multiplied by `factor` from here on, and the product of all such factors."""
    total = optax.tree.get(state.opt_state, "step_size") * factor
    return state._replace(opt_state=optax.tree.set(state.opt_state, step_size=total)), float(total)


def _rate_by_step(rate: float, steps: dict[int, float]) -> optax.Schedule:
    """`rate`, and from each of `steps` on its own."""
    schedules = [optax.constant_schedule(value) for value in (rate, *steps.values())]
    return optax.join_schedules(schedules, list(steps)) if steps else schedules[0]


def create_state(
    method: Method,
    encoder: Any,
    optimizer: optax.GradientTransformation,
    loaded: Params,
    seed: int,
    mesh: Mesh,
) -> TrainState:
    """The state at step 0 on every device of `mesh`.

    `loaded`: parameters by part ("encoder", "cnn"...) of a model directory, {} for a start from scratch.
    """

    def create(loaded: Params) -> TrainState:
        run_key, encoder_key, method_key = jax.random.split(jax.random.key(seed), 3)
        if "encoder" not in loaded and FROZEN not in loaded:
            blank = Rows(jnp.zeros((1, 3), jnp.int32), jnp.ones((1, 3), bool))
            loaded = {**loaded, "encoder": encoder.init(encoder_key, blank)["params"]}
        learned = method.init(encoder, loaded, method_key)
        return TrainState(
            learned.params,
            learned.ema_params,
            learned.queue,
            optimizer.init(split_frozen(learned.params)[0]),
            jax.random.key_data(run_key),
            jnp.zeros((), jnp.int32),
            learned.queue_rows,
        )

    shardings = over_parameters(mesh, jax.eval_shape(create, loaded))
    return jax.jit(create, out_shardings=shardings)(loaded)


def make_step(
    method: Method, encoder: Any, optimizer: optax.GradientTransformation, mesh: Mesh, chunk: int = 0, shardings: Any = None
) -> Step:
    """The jitted train step: (state, batch) -> (state, metrics). The state is donated, and lies as `shardings` say (none: whole).

    chunk > 0 caches gradients: sentences are encoded `chunk` at a time without keeping activations, the objective is
    differentiated with respect to what was encoded, and a second pass carries that into the parameters (Gao et al. 2021). Dropout
    belongs to the sentence, so loss and gradients are those of the whole batch. The same holds for a batch that comes in parts of
    different widths; `chunk` divides the size of each.
    """

    def step(state: TrainState, batch: Parts) -> tuple[TrainState, dict[str, Array]]:
        key = jax.random.fold_in(jax.random.wrap_key_data(state.rng), state.step)
        loss, metrics, carry, gradients = loss_and_gradients(method, encoder, state, parts_of(batch), key, chunk)
        trained, frozen = split_frozen(state.params)
        updates, opt_state = optimizer.update(gradients, state.opt_state, trained)
        params: Params = optax.apply_updates(trained, updates)
        params = {**params, **frozen}
        state = method.after(state._replace(params=params, opt_state=opt_state), carry)
        metrics = {"loss": loss, "grad_norm": optax.tree.norm(gradients), **metrics}
        return state._replace(step=state.step + 1), metrics

    whole = replicated(mesh)
    shardings = shardings or whole
    return jax.jit(step, donate_argnums=0, in_shardings=(shardings, over_batch(mesh)), out_shardings=(shardings, whole))


def parts_of(batch: Parts) -> tuple[Batch, ...]:
    """The parts of a batch, one if it is whole."""
    return (batch,) if isinstance(batch, Batch) else batch


def make_measure(method: Method, encoder: Any, mesh: Mesh) -> Callable[[TrainState, Parts], dict[str, Array]]:
    """The jitted (state, batch) -> loss and metrics of a batch that is not trained on; what is random in it is always the same."""

    def measure(state: TrainState, batch: Parts) -> dict[str, Array]:
        state = state._replace(step=jnp.zeros_like(state.step))
        encoded = encode_parts(method, encoder, state.params, state, parts_of(batch), jax.random.wrap_key_data(state.rng))
        loss, (metrics, _) = method.objective(state.params, state, encoded)
        return {"loss": loss, **metrics}

    return jax.jit(measure, in_shardings=(None, over_batch(mesh)), out_shardings=replicated(mesh))


def batches_on_device(at: Callable[[int], Parts], start: int, end: int, mesh: Mesh) -> Generator[Parts]:
    """Batches start..end-1 on the devices, made in a thread ahead of use."""
    with ThreadPoolExecutor(1) as thread:
        waiting = [thread.submit(lambda step=step: put_batch(at(step), mesh)) for step in range(start, min(start + PREFETCH, end))]
        for step in range(start, end):
            batch = waiting.pop(0).result()
            if step + PREFETCH < end:
                waiting.append(thread.submit(lambda step=step + PREFETCH: put_batch(at(step), mesh)))
            yield batch


class Stopped(KeyboardInterrupt):
    """Raised by a signal inside work that may be left unfinished."""


# A terminal that closes sends SIGHUP to what runs in it, which Windows does not know.
STOPPING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))


class StopSignal:
    """From `watch` on, the first of STOPPING makes `at(step)` True; a second SIGTERM or SIGINT ends the process at once.

    A signal that was ignored when the process began stays so: `nohup` does that with SIGHUP, a shell's & with SIGINT. Before
    `watch`, and after the end, a signal does what it always does: there is nothing to save that is not saved. Of several processes
    any may get the signal: JAX's preemption service catches SIGTERM there, and all stop at the same step.
    """

    def __init__(self) -> None:
        self.reached = False
        self._several = jax.process_count() > 1
        self._breakable = False
        self._previous: dict[int, Any] = {}

    def at(self, step: int) -> bool:
        """Whether to save and stop after this step."""
        if self._several and not self.reached:
            from jax.experimental import multihost_utils

            self.reached = multihost_utils.reached_preemption_sync_point(step)
        return self.reached

    def watch(self) -> None:
        """Take over the signals; nothing where that is done. Where JAX catches SIGTERM, SIGHUP becomes one."""
        if self._previous:
            return
        handlers = dict.fromkeys(STOPPING, self._note)
        if self._several:
            handlers = {number: lambda *_: signal.raise_signal(signal.SIGTERM) for number in STOPPING[2:]}
        for number, handler in handlers.items():
            if signal.getsignal(number) != signal.SIG_IGN:
                self._previous[number] = signal.signal(number, handler)

    @contextlib.contextmanager
    def breaks(self) -> Iterator[None]:
        """Work that is done again later if the signal comes: Stopped is raised inside. For one process."""
        if self.reached and not self._several:
            raise Stopped
        self._breakable = not self._several
        try:
            yield
        finally:
            self._breakable = False

    def __enter__(self) -> "StopSignal":
        return self

    def _note(self, number: int, frame: Any) -> None:
        self.reached = True
        for other in self._previous:  # of SIGHUP a shell that ends sends a second one to its jobs
            signal.signal(other, signal.SIG_IGN if other in STOPPING[2:] else signal.SIG_DFL)
        if self._breakable:
            self._breakable = False
            raise Stopped

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}


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
    start, so `evaluate` may raise Stopped.
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
                with contextlib.suppress(Stopped):
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
