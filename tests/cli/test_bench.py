"""``ampsq bench`` measures, and what does not depend on the machine's mood is as promised."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

KEYS = {
    "publish.ratio",
    "consume.ratio",
    "latency.p50_ratio",
    "latency.p99_ratio",
    "memory.bytes_per_queued",
    "memory.bytes_per_leased",
    "server_cpu_us_per_message",
}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_quick_benchmark_prints_every_figure_and_the_memory_is_as_promised():
    done = subprocess.run(
        [sys.executable, "-m", "ampsq.cli", "bench", "--quick", "--json"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures.keys() >= KEYS
    assert figures["redrive"]["letters"] == 10_000
    assert figures["redrive"].keys() >= {"letters", "per_second", "server_us", "longest_call_ms"}
    assert {row["messages"] for row in figures["expiry"].values()} == {100_000}
    assert set(figures["publishing"]) == {
        f"{store}; {level}" for store in ("memory", "file", "file, fsync") for level in ("memory", "fsync")
    }
    assert all(row["many_per_second"] > 0 for row in figures["publishing"].values())
    assert figures["memory.bytes_per_queued"] < 1
    assert figures["memory.bytes_per_leased"] <= 256
    # A batch is worth more than a pipeline on any machine; the goal, 2.0, is for a quiet one.
    assert figures["publish.ratio"] > 1
    alone = figures["growth"]["alone"]
    for name, costs in figures["growth"].items():
        # Nothing grows with what is idle or queued; more queues on a topic are more work, but far from in proportion.
        allowed = 20 if name.startswith("queues") else 3
        assert costs["publish_us"] < allowed * alone["publish_us"], name
        assert costs["take_and_ack_us"] < 3 * alone["take_and_ack_us"], name


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_benchmark_of_replication_measures_between_servers_of_its_own():
    done = subprocess.run(
        [sys.executable, "-m", "ampsq.cli", "bench", "--part", "replication", "--quick", "--json"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)["replication"]
    assert figures["rates"]["replicated_per_second"] > 0
    assert {flushed: row["messages"] for flushed, row in figures["lag"].items()} == dict.fromkeys(
        ("none", "everysec", "always"), 10_000
    )
    # What waits for two servers cannot be faster than what waits for one of them.
    assert figures["sync"]["sync"]["p50_ms"] > figures["sync"]["async"]["p50_ms"]
    assert figures["takeover"]["held"] == 10
    assert figures["recovery"]["messages"] == 50_000
    # Reading is the least part of a link's work.
    assert figures["rates"]["source_us_of_the_link"] < figures["rates"]["destination_us"]
