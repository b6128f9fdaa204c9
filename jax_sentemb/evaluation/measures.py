"""Measures of a model on items, such as queries or pairs, with bootstrap intervals and differences to another model."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

SEED = 0
Items = Int[np.ndarray, " n"]  # numbers of items; a draw has some of them several times
Measure = Callable[[Items], float]  # the value on these items


class Scored(NamedTuple):
    """A model on the items of a task."""

    items: int
    measures: dict[str, Measure]
    facts: dict[str, float] = {}  # numbers without an interval, such as a threshold
    biased: frozenset[str] = frozenset()  # measures that are higher on draws, since these have items several times


class Estimate(NamedTuple):
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


def mean_of(values: Float[np.ndarray, " items"]) -> Measure:
    """Return the measure that is 100 times the mean of the values of the items."""
    numbers = np.asarray(values, np.float64)
    return lambda items: 100 * float(numbers[items].mean())


def values_of(scored: Scored) -> dict[str, float]:
    """Return the value of each measure on all items."""
    return {name: measure(np.arange(scored.items)) for name, measure in scored.measures.items()}


def bootstrap(scored: Scored, resamples: int) -> dict[str, Float[np.ndarray, " resamples"]]:
    """Return the values of each measure on draws of the items with replacement.

    The draws of two models on the same items are the same, so their differences are paired. The draws of a biased measure are
    shifted so that their mean is its value.
    """
    random = np.random.default_rng(SEED)
    draws = {name: np.empty(resamples) for name in scored.measures}
    for number in range(resamples):
        items = random.integers(scored.items, size=scored.items)
        for name, measure in scored.measures.items():
            draws[name][number] = measure(items)
    for name in scored.biased:
        draws[name] += scored.measures[name](np.arange(scored.items)) - np.nanmean(draws[name])
    return draws


def interval(value: float, draws: Float[np.ndarray, " resamples"]) -> Estimate:
    """Return a value with the 2.5th and the 97.5th percentile of its draws. Draws on which it is not defined are left out."""
    low, high = np.percentile(draws[~np.isnan(draws)], [2.5, 97.5]) if not np.isnan(draws).all() else (value, value)
    return Estimate(value, float(low), float(high))


def intervals(values: Mapping[str, float], draws: Mapping[str, Float[np.ndarray, " resamples"]]) -> dict[str, Estimate]:
    """Return each value with its interval."""
    return {name: interval(value, draws[name]) for name, value in values.items()}


def differences(
    values: Mapping[str, float],
    draws: Mapping[str, Float[np.ndarray, " resamples"]],
    first_values: Mapping[str, float],
    first_draws: Mapping[str, Float[np.ndarray, " resamples"]],
) -> dict[str, Estimate]:
    """Return the difference of each value to that of the first model, with the interval of the paired differences."""
    return {name: interval(values[name] - first_values[name], draws[name] - first_draws[name]) for name in values}
