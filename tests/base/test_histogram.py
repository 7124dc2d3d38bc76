"""Percentiles of a histogram: between the bounds of their interval, as Prometheus takes them."""

from __future__ import annotations

import random

import pytest

from ampsq.base.histogram import BOUNDS, Histogram


def of(*seconds):
    found = Histogram()
    for each in seconds:
        found.add(each)
    return found


def test_of_nothing_there_is_no_percentile():
    assert of().quantile(0.5) is None


@pytest.mark.parametrize(("share", "seconds"), [(0.5, 0.5 + 0.5 * 50 / 100), (0.95, 0.975), (0.99, 0.995), (1, 1.0)])
def test_inside_an_interval_a_percentile_is_interpolated(share, seconds):
    # given: all in the interval from 0.5 to 1 s
    assert of(*[0.7] * 100).quantile(share) == pytest.approx(seconds)


def test_a_percentile_is_found_in_the_interval_where_its_share_ends():
    found = of(*[0.004] * 90, *[7.0] * 10)
    assert 0.0025 < found.quantile(0.5) <= 0.005
    assert found.quantile(0.9) == 0.005
    assert 5.0 < found.quantile(0.95) <= 10.0


def test_behind_the_last_bound_that_bound_is_the_answer():
    assert of(9_999.0).quantile(0.5) == BOUNDS[-1]
    assert of(0.004, 9_999.0).quantile(0.99) == BOUNDS[-1]


@pytest.mark.parametrize("seed", range(20))
def test_a_percentile_is_in_the_interval_of_the_true_one(seed):
    chance = random.Random(seed)  # noqa: S311  (no secret)
    values = sorted(chance.lognormvariate(chance.uniform(-6, 4), 1.5) for _ in range(1 + seed * 37))
    found = of(*values)
    for share in (0.5, 0.95, 0.99):
        true = min(values[max(-(-round(share * 1_000_000) * len(values) // 1_000_000) - 1, 0)], BOUNDS[-1])
        above = next(bound for bound in BOUNDS if true <= bound)
        below = max((bound for bound in BOUNDS if bound < true), default=0.0)
        assert below <= found.quantile(share) <= above


def test_two_are_added():
    one, two = of(0.004, 3.0), of(0.004)
    one.merge(two)
    assert one == of(0.004, 3.0, 0.004)
    assert one.count == 3
