"""Intervals over items, and paired differences."""

import numpy as np
import pytest

from jax_sentemb.evaluation.measures import Scored, bootstrap, differences, interval, intervals, mean_of, values_of


def scored(values):
    return Scored(len(values), {"mean": mean_of(values)})


def test_the_interval_of_a_mean_is_the_normal_one():
    values = np.random.default_rng(1).random(400)
    found = intervals(values_of(scored(values)), bootstrap(scored(values), 2000))["mean"]
    half = 100 * 1.96 * values.std() / 20
    assert found.value == pytest.approx(100 * values.mean())
    assert (found.low, found.high) == pytest.approx((found.value - half, found.value + half), abs=0.15 * half)


def test_differences_are_paired():
    values = np.random.default_rng(2).random(100)
    better = values + 0.01
    first, second = scored(values), scored(better)
    draws = bootstrap(first, 50), bootstrap(second, 50)
    found = differences(values_of(second), draws[1], values_of(first), draws[0])["mean"]
    assert tuple(found) == pytest.approx((1, 1, 1))
    assert np.ptp(draws[0]["mean"]) > 1


def test_the_draws_of_a_biased_measure_lie_around_its_value():
    numbers = np.random.default_rng(3).integers(50, size=50)
    distinct = {"distinct": lambda items: float(len(set(numbers[items].tolist())))}
    plain, centred = (Scored(50, distinct, biased=biased) for biased in (frozenset(), frozenset({"distinct"})))
    value = values_of(plain)["distinct"]
    assert bootstrap(plain, 100)["distinct"].max() < value
    draws = bootstrap(centred, 100)["distinct"]
    assert draws.mean() == pytest.approx(value)
    assert draws.std() == pytest.approx(bootstrap(plain, 100)["distinct"].std())


def test_draws_without_a_value_are_left_out():
    assert interval(3.0, np.array([1.0, np.nan, 2.0]))[1:] == pytest.approx((1.025, 1.975))
    assert interval(3.0, np.full(4, np.nan)) == (3, 3, 3)
