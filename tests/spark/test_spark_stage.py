"""Setup that measurements of Spark share, without Spark."""

from __future__ import annotations

import pytest

from ampsq.bench.setup import BenchSettings
from ampsq.bench.spark_setup import Measured, SparkStage


def test_ways_are_measured_in_turn_and_the_first_round_does_not_count():
    came, told = [], []
    rates = {"plain": iter([1.0, 100.0, 10.0, 200.0]), "ours": iter([500.0, 50.0, 40.0, 300.0])}

    times = {"plain": iter([9.0, 2.0, 3.0, 2.5]), "ours": iter([9.0, 1.0, 1.234, 8.0])}

    def measure(name):
        came.append(name)
        return Measured(next(rates[name]), next(times[name]))

    stage = SparkStage("redis://nowhere", BenchSettings(rounds=3), told.append)
    found = stage.in_turn({"plain": lambda: measure("plain"), "ours": lambda: measure("ours")})

    assert came == ["plain", "ours"] * 4
    assert len(told) == 4
    assert found["plain"] == {"per_second": 100, "ratio": 1.0, "server_us": 2.5}
    # Of the ratios in the rounds that count, 0.5, 4.0 and 1.5, the one in the middle.
    assert found["ours"] == {"per_second": 50, "ratio": 1.5, "server_us": 1.23}


def test_the_servers_time_for_each_is_told_beside_the_rate(valkey):
    stage = SparkStage(valkey.url, BenchSettings(), lambda _: None)

    def work():
        return sum(bool(stage.redis.eval("for i = 1, 20000 do redis.call('PING') end return 1", 0)) for _ in range(50))

    measured = stage.timed(50, work)

    # Nothing else is asked of this server, which has one thread for it: no more than the time that passed.
    assert 0 < measured.server_us <= 1.1e6 / measured.per_second


def test_a_run_in_which_not_all_came_counts_for_nothing(valkey):
    with pytest.raises(AssertionError, match="49 of 50 came"):
        SparkStage(valkey.url, BenchSettings(), lambda _: None).timed(50, lambda: 49)
