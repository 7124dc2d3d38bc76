"""``ampsq bench`` measures, and what does not depend on the machine's mood is as promised."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from contextlib import redirect_stdout
from types import SimpleNamespace

import pytest
import redis
from click.testing import CliRunner

from ampsq.bench import hostile, partition_stalls, partitions
from ampsq.bench.beside import Spent, compared
from ampsq.bench.concurrency import FLOOR, ConcurrencyBenchmark
from ampsq.bench.consuming import work_out_of_order
from ampsq.bench.goals import GOALS, Goal, Reached, reached
from ampsq.bench.idle import IdleBenchmark
from ampsq.bench.private_cluster import private_cluster
from ampsq.bench.replication import ReplicationBenchmark
from ampsq.bench.replies import info
from ampsq.bench.server import private_server
from ampsq.bench.setup import BenchSettings, NotAsRecorded, Stage
from ampsq.bench.verdicts import direction, flattened
from ampsq.cli.bench import bench, measure
from ampsq.cli.bench_goals import print_comparison
from ampsq.cli.bench_tables import flat, print_tables
from ampsq.definitions.queue import Queue

KEYS = {
    "publish.ratio",
    "consume.ratio",
    "latency.p50_ratio",
    "latency.p99_ratio",
    "memory.bytes_per_queued",
    "memory.bytes_per_leased",
    "server_cpu_us_per_message",
}
#: As little as shows that every part runs, and what does not depend on how much is measured.
LITTLE = BenchSettings(
    messages=2_000,
    rounds=3,
    backlog=10_000,
    many=50,
    latency=200,
    letters=1_000,
    outage=1,
    idle_instances=(2,),
    idle_seconds=2,
    idle_rounds=1,
    groups=(1, 100),
)


def nothing(_):
    pass


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_threads_and_tasks_publish_at_once():
    # Others may have the processors meanwhile: of several measurements one must reach the floor.
    best = {"threads": 0.0, "tasks": 0.0}
    with private_server() as url:
        for _ in range(5):
            figures = ConcurrencyBenchmark(url, LITTLE, nothing).run()
            best = {kind: max(ratio, figures[kind]["ratio"]) for kind, ratio in best.items()}
            if min(best.values()) >= FLOOR:
                break
    assert min(best.values()) >= FLOOR, best


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_benchmark_measures_every_figure_and_the_memory_is_as_promised():
    with private_server() as url:
        measured = measure(url, "all", LITTLE, nothing)
    with redirect_stdout(io.StringIO()) as printed:
        print_tables(measured)

    figures = json.loads(json.dumps({**flat(measured), **measured}))
    # Each row that has a goal was measured, and is in the table.
    assert [row.goal for row in reached(flattened(measured))] == list(GOALS)
    assert "bytes of a message leased in a run" in " ".join(printed.getvalue().split())
    assert measured["calls"].keys() >= {"publish", "take", "settle", "sweep", "subscribe", "unsubscribe"}
    assert figures.keys() >= KEYS
    assert [name for name in flattened(figures) if direction(name) is None] == []
    assert figures["redrive"]["letters"] == 1_000
    assert figures["redrive"].keys() >= {"letters", "per_second", "server_us", "longest_call_ms"}
    assert {row["messages"] for row in figures["expiry"].values()} == {10_000}
    assert set(figures["publishing"]) == {
        f"{store}; {level}" for store in ("memory", "file", "file, fsync") for level in ("memory", "fsync")
    }
    assert all(row["many_per_second"] > 0 for row in figures["publishing"].values())
    assert set(figures["concurrency"]) == {"threads", "tasks"}
    assert figures["memory.bytes_per_queued"] < 1
    assert figures["memory.bytes_per_leased"] <= 256
    # A batch is less work than a pipeline, for the server and the client together, on any machine.
    assert figures["publish"]["cpu_ratio"] > 1
    alone = figures["growth"]["alone"]
    for name, costs in figures["growth"].items():
        # Nothing grows with what is idle or queued; more queues on a topic are more work, but far from in proportion.
        allowed = 20 if name.startswith("queues") else 3
        assert costs["publish_us"] < allowed * alone["publish_us"], name
        assert costs["take_and_ack_us"] < 3 * alone["take_and_ack_us"], name


@pytest.mark.slow
def test_a_server_that_dies_while_it_is_measured_ends_it_with_an_error_and_no_figures():
    # Given a benchmark that has begun
    with private_server() as url, redis.Redis.from_url(url) as server:
        process = subprocess.Popen(
            [sys.executable, "-m", "ampsq.cli", "bench", "--quick", "--part", "raw", "--json", "--url", url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            while "publish" not in process.stderr.readline():
                assert process.poll() is None

            # When its server ends
            server.shutdown(nosave=True)
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()

    # Then
    assert (process.returncode, out) == (1, "")
    assert err.splitlines()[-1].startswith("Error: measuring broke off, there are no figures: ")
    assert "Traceback" not in err


@pytest.mark.slow
def test_the_command_prints_one_object_of_figures():
    done = subprocess.run(
        [sys.executable, "-m", "ampsq.cli", "bench", "--quick", "--part", "redrive", "--json"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["redrive"]["letters"] == 10_000


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_benchmark_of_replication_measures_between_servers_of_its_own():
    figures = ReplicationBenchmark(LITTLE, nothing).run()

    assert [name for name in flattened({"replication": figures}) if direction(name) is None] == []
    assert figures["rates"]["replicated_per_second"] > 0
    assert {flushed: row["messages"] for flushed, row in figures["lag"].items()} == dict.fromkeys(
        ("none", "everysec", "always"), 2_000
    )
    # What waits for two servers cannot be faster than what waits for one of them.
    assert figures["sync"]["sync"]["p50_ms"] > figures["sync"]["async"]["p50_ms"]
    assert figures["takeover"]["held"] == 10
    assert figures["recovery"]["messages"] == 5_000
    # Reading is the least part of a link's work.
    assert figures["rates"]["source_us_of_the_link"] < figures["rates"]["destination_us"]


@pytest.mark.slow
def test_partitions_are_measured_beside_an_instance(monkeypatch):
    monkeypatch.setattr(partitions, "_IDLE", 100)
    monkeypatch.setattr(partitions, "_PUBLISHED_CALLS", 1)
    monkeypatch.setattr(partitions, "_CALLS", 2)
    monkeypatch.setattr(partitions, "_PARTITIONS", (4, 256))
    with private_server() as url:
        measured = measure(url, "partitions", LITTLE, nothing)
    with redirect_stdout(io.StringIO()) as printed:
        print_tables(measured)

    figures = measured["partitions"]
    names = {"one", "4", "256"}
    assert all(
        figures[what].keys() == names for what in ("publish", "by_key", "open", "consume", "consume_few", "wait")
    )
    assert all(row["server_us"] > 0 for row in figures["consume"].values())
    assert all(figures[what]["one"]["server_to_none"] == 1 for what in ("publish", "by_key", "consume", "consume_few"))
    # Calls are full where each partition has several of them, and not where each of 256 has eight messages.
    assert all(row["messages_per_call"] > 20 for row in figures["consume"].values())
    assert figures["consume_few"]["256"]["messages_per_call"] < 10
    # Whole batches are not cut, and what keys spread over partitions is.
    assert {round(row["messages_per_call"]) for row in figures["publish"].values()} == {100}
    assert figures["by_key"]["256"]["messages_per_call"] < 5
    assert all(0 < row["p50_ms"] <= row["p99_ms"] for row in figures["wait"].values())
    assert [name for name in flattened(measured) if direction(name) is None] == []
    assert all(row["client_us"] > 0 for row in figures["open"].values())
    assert "A consumer: processor time a message" in printed.getvalue()
    assert "Beginning to consume of 256 partitions, each: client " in printed.getvalue()
    assert "Publishing 1,000 a call by key" in printed.getvalue()
    assert figures["idle"]["100"].keys() == {"coordinator_ms", "server_ms", "server_alone_ms"}
    assert "100 idle partitions: coordinator" in printed.getvalue()
    assert all(figures["by_themselves"][f"{what}_server_ms"] > 0 for what in ("publish", "consume"))
    assert "Left out above, since servers take it while nothing is asked of them" in printed.getvalue()


def test_what_servers_take_by_themselves_is_left_out_of_what_is_measured(monkeypatch):
    with private_server() as url:
        benchmark = partitions.PartitionsBenchmark(url, LITTLE, nothing)
        # Half a core while nothing is asked, and 1.1 s in the two seconds of a piece of work.
        served, now = iter([1.0, 1.5, 2.0, 3.1]), iter([10.0, 11.0, 20.0, 22.0])
        clock = SimpleNamespace(perf_counter=lambda: next(now), sleep=nothing, process_time=time.process_time)
        monkeypatch.setattr(benchmark, "_served", lambda: next(served))
        monkeypatch.setattr(partitions, "time", clock)
        raw = redis.Redis.from_url(url)
        one_script = raw.script_load("return 1")

        assert benchmark._rest() == 500
        found = benchmark._spent(lambda: raw.evalsha(one_script, 0), 1)

        assert round(found["server_us"]) == 100_000


@pytest.mark.slow
def test_the_longest_publish_is_measured_while_slots_are_moved_and_a_primary_is_killed(monkeypatch):
    monkeypatch.setattr(partition_stalls, "_MOVES", 2)
    figures = {"stalls": partition_stalls.PartitionStalls(nothing).run()}
    with redirect_stdout(io.StringIO()) as printed:
        print_tables(figures)

    assert figures["stalls"].keys() == {"quiet", "move", "kill"}
    assert all(row["messages"] > 0 for row in figures["stalls"].values())
    # A replica takes over once the others have not heard of the primary for two seconds.
    assert figures["stalls"]["kill"]["longest_publish_s"] > 1
    assert [name for name in flattened(figures) if direction(name) is None] == []
    assert "Longest publish while a primary is killed: " in printed.getvalue()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_partitions_are_measured_on_the_primaries_of_a_cluster(monkeypatch):
    monkeypatch.setattr(partitions, "_IDLE", 20)
    monkeypatch.setattr(partitions, "_CALLS", 2)
    monkeypatch.setattr(partitions, "_PARTITIONS", (4, 16))
    with private_cluster(2) as cluster:
        figures = partitions.PartitionsBenchmark(cluster.url, LITTLE, nothing, cluster.servers).run()
        # Nothing is left, and each of them had a part of the work.
        assert [name for server in cluster.servers for name in server.scan_iter("{bench-*")] == []
        assert all(info(server, "stats")["total_commands_processed"] > 1_000 for server in cluster.servers)

    assert figures["consume"].keys() == {"one", "4", "16"}
    assert {round(row["messages_per_call"]) for row in figures["publish"].values()} == {100}


def test_hostile_bodies_are_measured_in_every_use(monkeypatch):
    monkeypatch.setattr(hostile, "_SIZES", {"little": (500, 2)})
    monkeypatch.setattr(hostile, "_ROUNDS", 1)
    bodies = list(hostile.hostile_bodies(10_000))
    assert {kind for kind, *_ in bodies} == {"json", "msgpack", "nvfix", "fix"}
    assert all(5_000 < len(body) < 20_000 for *_, body in bodies)
    monkeypatch.setattr(hostile, "hostile_bodies", lambda _: [each for each in bodies if each[1] == "digits"])
    with private_server() as url:
        measured = measure(url, "hostile", LITTLE, nothing)
    with redirect_stdout(io.StringIO()) as printed:
        print_tables(measured)

    assert measured["hostile"]["little"].keys() == hostile._USES.keys()
    assert all(row["longest_call_ms"] > 0 for row in measured["hostile"]["little"].values())
    assert [name for name in flattened(measured) if direction(name) is None] == []
    assert "ack by filter" in printed.getvalue()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_idle_instances_are_measured_while_nothing_happens_and_when_something_is_due():
    figures = IdleBenchmark(LITTLE, nothing).run()
    with redirect_stdout(io.StringIO()) as printed:
        print_tables({"idle": figures})

    assert "Idle instances: 2 " in printed.getvalue()
    assert [name for name in flattened({"idle": figures}) if direction(name) is None] == []
    row = figures["2"]
    cpu = row["cpu"]
    assert cpu["server_ms"] > cpu["server_empty_ms"] > 0
    assert cpu["server_net_ms"] == pytest.approx(cpu["server_ms"] - cpu["server_empty_ms"], abs=0.01)
    assert "for the instances" in printed.getvalue()
    assert row["coordinator"]["threads"] > 0
    assert {kind: times["samples"] for kind, times in row["latency"].items()} == {
        "lapse": 8,
        "delay": 8,
        "action": 8,
        "foreign_entry": 8,
        "killed_worker": 2,
        "hand_off": 4,
    }
    assert all(0 < times["p50_ms"] <= times["p99_ms"] <= times["max_ms"] for times in row["latency"].values())


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_groups_are_measured_beside_plain_and_priority_queues():
    with private_server() as url, redirect_stdout(io.StringIO()) as shown:
        figures = measure(url, "groups", LITTLE, nothing)
        print_tables(figures)

    names = flattened(figures)
    assert [name for name in names if direction(name) is None] == []
    assert names["groups.costs.1.first.messages_per_call"] == 1.0
    assert names["groups.costs.100.first.messages_per_call"] > 90
    assert names["groups.costs.1.first_with_affinity.messages_per_call"] == 1.0
    assert "100 groups with affinity, take + ack of one subscription" in shown.getvalue()
    assert names["groups.memory.100.longest_work_ms"] > 0
    assert names["groups.memory.100.bytes_per_unread"] < 1 < names["groups.memory.100.bytes_per_placed"]
    assert "messages a call" in shown.getvalue()


@pytest.mark.parametrize("wrong", ["0", "1,x", "", "9999"])
def test_wrong_numbers_of_instances_are_refused_with_what_is_allowed(wrong):
    done = CliRunner().invoke(bench, ["--part", "idle", "--instances", wrong])

    assert done.exit_code == 2
    assert "allowed: numbers from 1 to 2,000 with commas" in done.output


def test_ratios_say_how_much_faster_and_how_much_less_work_ours_is():
    rounds = [(Spent(10, 2, 3), Spent(20, 3, 7)), (Spent(10, 2, 3), Spent(30, 3, 7)), (Spent(10, 2, 3), Spent(5, 1, 1))]

    figures = compared(rounds)

    assert (figures["ratio"], figures["ratios"], figures["cpu_ratio"]) == (2, [2, 3, 0.5], 2)
    assert (figures["per_second"], figures["raw_per_second"]) == (100_000, 50_000)
    assert (figures["server_us"], figures["raw_server_us"], figures["client_us"]) == (2, 3, 3)


@pytest.mark.parametrize(
    ("figures", "holds"),
    [
        # By time nine tenths of the floor are enough.
        ({"cpu_ratio": 2.0, "ratio": 1.8}, True),
        ({"cpu_ratio": 1.9, "ratio": 2.5}, False),
        ({"cpu_ratio": 2.5, "ratio": 1.7}, False),
    ],
)
def test_a_floor_of_a_rate_is_one_of_the_work_and_of_the_time(figures, holds):
    goal = Goal("x", "publish", "cpu_ratio", 2.0, 3.0)

    row = Reached(goal, 1, 1, figures["ratio"], figures["cpu_ratio"])

    assert row.holds is holds


def test_a_floor_of_a_latency_is_the_most_it_may_be_and_a_row_without_one_only_tells():
    goal = Goal("x", "latency", "p50", 1.3, 0.8, is_less_better=True)

    assert Reached(goal, 100, 80, 1.3).holds is True
    assert Reached(goal, 100, 80, 1.4).holds is False
    assert Reached(Goal("x", "latency_many", "p50", None, None), 100, 80, 1.4).holds is None


def test_eight_handlers_end_out_of_order_and_a_slow_one_keeps_its_place():
    numbers, done, ahead = iter(range(5_000)), [], []

    def following():
        number = next(numbers)
        ahead.append(number - len(done))
        return number

    work_out_of_order(5_000, following, done.append, has_slow=True)

    assert sorted(done) == list(range(5_000))
    assert done != sorted(done)
    assert max(ahead) == 7


def test_another_run_is_put_beside_this_one_whichever_way_a_figure_is_better():
    with redirect_stdout(io.StringIO()) as printed:
        print_comparison(
            {"publish.per_second": 100, "latency.p50_us": 100, "gone_us": 1},
            {
                "publish.per_second": 200,
                "latency.p50_us": 200,
                "publish.raw_per_second": 1,
                "come_us": 1,
            },
        )

    lines = [line.replace("\u2502", " ").split() for line in printed.getvalue().splitlines() if "." in line]
    assert lines == [["publish.per_second", "100", "200", "2.00"], ["latency.p50_us", "100", "200", "0.50"]]


@pytest.mark.parametrize(
    ("text", "wrong"), [("{", "it is no JSON"), ("[]", "it has no figures"), ('{"a": "b"}', "it has no figures")]
)
def test_a_file_without_figures_is_refused_before_anything_is_measured(tmp_path, text, wrong):
    file = tmp_path / "before.json"
    file.write_text(text)

    done = CliRunner().invoke(bench, ["--compare", str(file)])

    assert done.exit_code == 2
    assert wrong in done.output


def test_a_queue_that_is_not_right_after_it_was_measured_is_told_and_kept():
    # Given a message that is held, and whose lease is lost
    with private_server() as url, redis.Redis.from_url(url) as server:
        stage = Stage(url, LITTLE, nothing)
        with stage.client() as client:
            client.apply(Queue(name="work"))
            client.publish("work", b"x")
            with client.subscribe("work") as messages:
                messages.get(60)
                server.delete("{" + client.instance + "}:q:work:leases")

                # When, then
                with pytest.raises(NotAsRecorded, match="is not right"):
                    stage.remove(client)
            assert server.exists("{" + client.instance + "}:log:work")
