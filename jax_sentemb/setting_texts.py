"""Read settings whose text has a special form: layer numbers, rates by step, and the reaction to a loss that is not finite."""

import itertools
import math

from jax_sentemb.errors import ConfigError, Setting


def chosen_layers(layers: str, count: int) -> tuple[int, ...]:
    """Return the numbers, from 1, of the layers that encoder.layers chooses of `count` layers.

    Raises:
        ConfigError: The text is malformed, or names a layer that the encoder does not have.
    """
    names = [name.strip() for name in layers.split(",")]
    if "," in layers and not names[-1]:
        del names[-1]
    numbers = [int(name) for name in names if name.isdecimal()]
    rising = all(first < second for first, second in itertools.pairwise([0, *numbers]))
    if len(numbers) != len(names) or not rising:
        raise ConfigError(Setting("encoder.layers", layers), ": write a count such as 3, or rising layer numbers such as 1,3,5")
    if numbers[-1] > count:
        raise ConfigError(
            Setting("encoder.layers", layers), ": ", Setting("encoder.weights"), f" has {count} layers; choose from 1 to {count}"
        )
    if "," in layers:
        return tuple(numbers)
    return tuple(1 + count * number // numbers[0] for number in range(numbers[0]))


def rate_steps(schedule: str, text: str) -> dict[int, float]:
    """Return {step: learning rate from that step on} of optimizer.lr_steps.

    Raises:
        ConfigError: The text is malformed, or does not fit the schedule (optimizer.lr_scheduler_type).
    """
    if (schedule == "steps") != bool(text):
        raise ConfigError(
            Setting("optimizer.lr_scheduler_type", schedule),
            " and ",
            Setting("optimizer.lr_steps", text),
            " do not fit: steps needs lr_steps, for instance 500:8e-6,1000:6e-6; other schedules have none",
        )
    try:
        pairs = [entry.split(":") for entry in text.split(",") if entry]
        rates = {int(step): float(rate) for step, rate in pairs}
    except ValueError:
        rates = {0: -1.0}
    if any(step < 1 or not 0 <= rate < math.inf for step, rate in rates.items()) or list(rates) != sorted(rates):
        raise ConfigError(Setting("optimizer.lr_steps", text), ": write rising STEP:RATE pairs, for instance 500:8e-6,1000:6e-6")
    return rates


def rewind_window(on_nan: str) -> int:
    """Return K of train.on_nan=rewind:K, 0 if it is empty.

    Raises:
        ConfigError: The text is malformed.
    """
    name, _, count = on_nan.partition(":")
    if on_nan and not (name == "rewind" and count.isdecimal() and int(count) > 0):
        raise ConfigError(
            Setting("train.on_nan", on_nan), " is not rewind:K with K at least 1, for instance rewind:10, or empty to stop"
        )
    return int(count or 0)
