"""What measurements of Spark share, without Spark and without a server."""

from __future__ import annotations

from ampsq.bench.spark_stage import SparkStage
from ampsq.bench.stage import Settings


def test_ways_are_measured_in_turn_and_the_first_round_does_not_count():
    came, told = [], []
    rates = {"plain": iter([1.0, 100.0, 10.0, 200.0]), "ours": iter([500.0, 50.0, 40.0, 300.0])}

    def measure(name):
        came.append(name)
        return next(rates[name])

    stage = SparkStage("redis://nowhere", Settings(rounds=3), told.append)
    found = stage.in_turn({"plain": lambda: measure("plain"), "ours": lambda: measure("ours")})

    assert came == ["plain", "ours"] * 4
    assert len(told) == 4
    assert found["plain"] == {"per_second": 100, "ratio": 1.0}
    # Of the ratios in the rounds that count, 0.5, 4.0 and 1.5, the one in the middle.
    assert found["ours"] == {"per_second": 50, "ratio": 1.5}
