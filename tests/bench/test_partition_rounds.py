"""Rows of the benchmark of partitions: what is compared with what, and what is not counted."""

from __future__ import annotations

from types import SimpleNamespace

from ampsq.bench import partitions
from ampsq.bench.setup import BenchSettings


def test_rows_are_compared_within_a_round_and_the_first_round_only_fills_memory():
    benchmark = partitions.PartitionsBenchmark("redis://127.0.0.1:1", BenchSettings(rounds=3), lambda _: None)
    # The machine becomes slower from round to round; partitions cost a tenth more, and in one round, by chance, a half.
    costs = {"one": iter([9.0, 1.0, 2.0, 4.0]), "4": iter([1.0, 1.1, 3.0, 4.4])}
    measured, trimmed = [], []

    def client(name):
        return SimpleNamespace(
            name=name, admin=SimpleNamespace(trim=lambda topic, age: trimmed.append((name, topic, age)))
        )

    def measure(client):
        measured.append(client.name)
        cost = next(costs[client.name])
        return {"publish": {"client_us": cost, "server_us": 2 * cost, "messages_per_call": 100.0}}

    rounds = {"publish": {"one": [], "4": []}}
    benchmark._rounds({name: client(name) for name in costs}, measure, rounds)

    assert measured == ["4", "one", "one", "4", "4", "one", "one", "4"]
    # What was taken is removed, so that the server uses its memory again.
    assert trimmed == [(name, "orders", "0s") for name in measured]
    found = partitions._medians(rounds["publish"]["4"])
    assert found == {
        "client_us": 3.0,
        "server_us": 6.0,
        "messages_per_call": 100.0,
        "client_to_none": 1.1,
        "server_to_none": 1.1,
    }
    assert partitions._medians(rounds["publish"]["one"])["client_us"] == 2.0
