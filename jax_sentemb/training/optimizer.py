"""Make learning-rate schedules and optimizers."""

from collections.abc import Callable, Hashable, Mapping
from fractions import Fraction

import jax
import jax.numpy as jnp
import optax

from jax_sentemb import config as settings
from jax_sentemb.errors import Setting, note_text
from jax_sentemb.setting_texts import rate_steps
from jax_sentemb.types import Params, TrainState

REST = ""  # the label of the parts that are trained in every step


def optimizer_by_part(
    make: Callable[[Fraction], optax.GradientTransformation], step_shares: Mapping[str, Fraction]
) -> optax.GradientTransformation:
    """Return `make(share)` for each part of `step_shares`, and `make(1)` for all other parts.

    A share is that of the steps in which the part has a gradient. In a step without a gradient a part keeps its values, moments and
    step count, like a model that is trained separately.
    """

    def label(params: Params) -> dict[str, str]:
        return {part: part if part in step_shares else REST for part in params}

    transforms: dict[Hashable, optax.GradientTransformation] = {
        part: while_trained(make(share)) for part, share in {**step_shares, REST: Fraction(1)}.items()
    }
    return optax.partition(transforms, label)


def own_schedule(schedule: optax.Schedule, share: Fraction) -> optax.Schedule:
    """Convert a schedule over the steps of a run to a schedule over the steps of a part that has this share of them."""

    def rate(count: jax.typing.ArrayLike) -> jax.typing.ArrayLike:
        return schedule(jnp.asarray(count) * share.denominator // share.numerator)

    return rate if share != 1 else schedule


def while_trained(inner: optax.GradientTransformation) -> optax.GradientTransformation:
    """Return `inner`, except that state and parameters do not change in a step whose gradients are all zero."""

    def update(
        updates: optax.Updates, state: optax.OptState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, optax.OptState]:
        trained = jnp.array([(leaf != 0).any() for leaf in jax.tree.leaves(updates)], bool).any()
        return jax.lax.cond(trained, lambda: inner.update(updates, state, params), lambda: (optax.tree.zeros_like(updates), state))

    return optax.GradientTransformation(inner.init, update)


def adam_without_bias_correction(b1: float, b2: float, epsilon: float) -> optax.GradientTransformation:
    """Return BERT's optimiser: m / (sqrt(v) + epsilon) of uncorrected moving averages. Its first steps are larger than Adam's."""

    def init(params: optax.Params) -> optax.ScaleByAdamState:
        zeros = optax.tree.zeros_like(params)
        return optax.ScaleByAdamState(jnp.zeros((), jnp.int32), zeros, jax.tree.map(jnp.copy, zeros))

    def update(
        updates: optax.Updates, state: optax.OptState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, optax.OptState]:
        assert isinstance(state, optax.ScaleByAdamState)
        mean = optax.tree.update_moment(updates, state.mu, b1, 1)
        square = optax.tree.update_moment(updates, state.nu, b2, 2)
        scaled = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + epsilon), mean, square)
        return scaled, optax.ScaleByAdamState(state.count + 1, mean, square)

    return optax.GradientTransformation(init, update)


def warmup_steps(options: settings.Optimizer, total_steps: int) -> int:
    """Return the number of steps in which the learning rate rises from 0."""
    return options.warmup_steps or round(options.warmup_ratio * total_steps)


def warmup_notes(options: settings.Optimizer, total_steps: int) -> list[str]:
    """Return a note if the run ends before its learning rate has reached `learning_rate`; otherwise []."""
    if not 0 < total_steps <= (count := warmup_steps(options, total_steps)):
        return []
    reached, problem = Setting("optimizer.learning_rate", options.learning_rate), f": the run has {total_steps} steps, so "
    return [note_text(Setting("optimizer.warmup_steps", count), problem, reached, " is not reached; lower the warm-up")]


def make_schedule(options: settings.Optimizer, total_steps: int, steps_per_epoch: int = 1) -> optax.Schedule:
    """Return the learning rate as a function of the step: warm-up from 0, then the form of lr_scheduler_type."""
    rate, warmup = options.learning_rate, warmup_steps(options, total_steps)
    remaining_steps = max(total_steps - warmup, 1)
    main_schedule = {
        "linear": optax.linear_schedule(rate, 0.0, remaining_steps),
        "cosine": optax.cosine_decay_schedule(rate, remaining_steps),
        "constant": optax.constant_schedule(rate),
        "exponential": optax.exponential_decay(rate, max(steps_per_epoch, 1), options.lr_decay, staircase=True),
        "steps": _rate_by_step(
            rate, {step - warmup: value for step, value in rate_steps(options.lr_scheduler_type, options.lr_steps).items()}
        ),
    }[options.lr_scheduler_type]
    return optax.join_schedules([optax.linear_schedule(0.0, rate, warmup), main_schedule], [warmup]) if warmup else main_schedule


def rate_depends_on_length(options: settings.Optimizer) -> bool:
    """Return whether the schedule of `make_schedule` depends on the total number of steps."""
    has_ratio = options.warmup_ratio > 0 and not options.warmup_steps
    return has_ratio or options.lr_scheduler_type in ("linear", "cosine")


def make_optimizer(
    options: settings.Optimizer, total_steps: int, steps_per_epoch: int = 1, step_shares: Mapping[str, Fraction] | None = None
) -> optax.GradientTransformation:
    """Return the optimiser of a run, with clipping by global norm before it. Vectors have no weight decay.

    It is AdamW, RMSprop (epsilon outside the root, as in TensorFlow) or SGD.

    Args:
        options: The settings.
        total_steps: Steps of the run.
        steps_per_epoch: For the exponential schedule.
        step_shares: Parts of the parameters with their own optimiser, whose schedule counts its own steps (`optimizer_by_part`).
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
    clipping = [optax.clip_by_global_norm(options.max_grad_norm)] if options.max_grad_norm else []
    decay = optax.add_decayed_weights(options.weight_decay, lambda params: jax.tree.map(lambda leaf: leaf.ndim > 1, params))
    schedule = make_schedule(options, total_steps, steps_per_epoch)

    def stages(share: Fraction) -> tuple[optax.GradientTransformation, ...]:
        return scaled, decay, optax.scale_by_learning_rate(own_schedule(schedule, share))

    drops = [optax.inject_hyperparams(optax.scale)(step_size=1.0)] if options.plateau_factor < 1 else []
    updates = [optimizer_by_part(lambda share: optax.chain(*stages(share)), step_shares)] if step_shares else stages(Fraction(1))
    return optax.chain(*clipping, *updates, *drops)


def drop_rate(state: TrainState, factor: float) -> tuple[TrainState, float]:
    """Multiply the learning rate of the later steps by `factor`; return the state and the product of all such factors."""
    total = optax.tree.get(state.opt_state, "step_size") * factor
    return state._replace(opt_state=optax.tree.set(state.opt_state, step_size=total)), float(total)


def _rate_by_step(rate: float, steps: dict[int, float]) -> optax.Schedule:
    """Return a schedule with `rate` until the first of `steps`, then with the rate of the latest of them."""
    schedules = [optax.constant_schedule(value) for value in (rate, *steps.values())]
    return optax.join_schedules(schedules, list(steps)) if steps else schedules[0]
