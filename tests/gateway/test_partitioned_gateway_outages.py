"""A gateway of an instance with partitions whose servers are away, one of them or all."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from pathlib import Path

import httpx
import pytest
from gateway_scene import Asking, define, refusal, serve
from observing import eventually
from test_partitioned_gateway import TOTAL, WITHIN, until_position
from websockets.exceptions import ConnectionClosed

from ampsq import Client
from ampsq.base.partitions import partition_of_key

# Servers of a cluster are those of the tests of faults.
sys.path.append(str(Path(__file__).parents[1] / "faults"))
from cluster_harness import three_primaries

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(server_program):
    """Three primaries."""
    with three_primaries(server_program("valkey")) as cluster:
        yield cluster


def test_while_a_primary_is_away_the_partitions_of_the_others_are_served(cluster, instance):
    url = "cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes)
    with Client(url, instance=instance, partitions=3, retry_timeout="20s") as client:
        define(client)
        gateway = serve(url, instance, "gateway: {server_timeout: 500ms}\n", partitions=3)
        try:
            audit, keys = Asking(gateway, "audit"), {}
            for n in range(1_000):
                keys.setdefault(partition_of_key(f"k{n}", 3), f"k{n}")
            # Both have published, so that they know what the topic says of keys.
            for n in range(3):
                assert audit.post("/v1/publish", topic="orders", data={"id": n}, key=keys[n]).status_code == 200
            with (
                audit.open("/v1/subscribe", queue="work", max_backlog=3) as queue,
                audit.open("/v1/subscribe", topic="orders") as topic,
            ):
                queue.get(WITHIN)
                for told in [queue.get(WITHIN) for _ in range(3)]:
                    queue.say(do="ack", id=told["id"])
                eventually(lambda: client.admin.queue_stats("work").depth == 0, within=WITHIN)
                lost = cluster.nodes[1]
                lost.kill()
                away = audit.once("/v1/publish", "a-key", topic="orders", data={"id": 9}, key=keys[1])
                assert refusal(away) == (503, "Unavailable")
                both = [{"data": {"id": 10}, "key": keys[0]}, {"data": {"id": 11}, "key": keys[1]}]
                answer = audit.once("/v1/publish_many", "both", topic="orders", messages=both)
                assert refusal(answer) == (503, "Unavailable")
                assert audit.post("/v1/publish", topic="orders", data={"id": 12}, key=keys[2]).status_code == 200
                got = set()
                while got < {10, 12}:
                    told = queue.get(WITHIN)
                    if told["type"] == "message":
                        got.add(told["data"]["id"])
                read = set()
                while read < {10, 12}:
                    told = topic.get(WITHIN)
                    if told["type"] == "message":
                        read.add(told["data"]["id"])
                # It serves the others, so it is ready.
                assert httpx.get(gateway.address + "/readyz", timeout=WITHIN).status_code == 200
        finally:
            gateway.stop()


STREAMS = {
    "queue": ("/v1/subscribe", {"queue": "work", "max_backlog": 2}),
    "topic": ("/v1/subscribe", {"topic": "orders", "bookmark": "epoch"}),
    "durable": ("/v1/subscribe", {"topic": "orders", "sub_id": "mine"}),
    "records": ("/v1/sow_and_subscribe", {"topic": "positions"}),
}


def farewell(socket):
    """Return a stream's last frame."""
    with contextlib.suppress(ConnectionClosed):
        while True:
            told = socket.get(WITHIN)
    return told["error"]


def test_an_outage_is_told_to_all_leaves_nothing_behind_and_what_was_promised_comes_when_it_is_over(
    start_server, instance
):
    with tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp") as folder, contextlib.ExitStack() as stack:
        server = start_server(appendonly=True, data_dir=folder)
        client = stack.enter_context(Client(server.url, instance=instance, partitions=TOTAL))
        define(client)
        gateway = serve(server.url, instance, "gateway: {server_timeout: 300ms}\n", partitions=TOTAL)
        stack.callback(gateway.stop)
        audit, inside, tasks = Asking(gateway, "audit"), gateway._served.desk.client, []
        for turn in range(3):
            with contextlib.ExitStack() as sockets:
                streams = {
                    name: sockets.enter_context(audit.open(path, **what)) for name, (path, what) in STREAMS.items()
                }
                assert [streams[name].get(WITHIN)["type"] for name in ("queue", "durable")] == ["subscribed"] * 2
                given = {"topic": "orders", "data": {"id": turn}, "key": f"k{turn}"}
                assert audit.once("/v1/publish", ("p", turn + 1), **given).json()["duplicate"] is False
                assert streams["queue"].get(WITHIN)["data"] == {"id": turn}
                got, position = until_position(streams["topic"], turn + 1)
                assert sorted(got) == list(range(turn + 1))
                assert streams["queue"].ask(do="ack", id=1)["type"] == "settled"
                loop = next(iter(gateway._server.server_state.connections)).loop

                server.process.kill()
                server.process.wait()

                assert {name: farewell(each) for name, each in streams.items()} == dict.fromkeys(STREAMS, "Unavailable")
            assert refusal(audit.once("/v1/publish", ("q", turn + 1), **given)) == (503, "Unavailable")
            assert httpx.get(gateway.address + "/readyz", timeout=WITHIN).status_code == 503
            server = start_server(appendonly=True, data_dir=folder)
            eventually(lambda: httpx.get(gateway.address + "/readyz", timeout=WITHIN).status_code == 200, WITHIN)
            assert audit.once("/v1/publish", ("p", turn + 1), **given).json()["duplicate"] is True
            eventually(lambda: not gateway._served.desk.streams._open, WITHIN)
            eventually(lambda: not inside._subscriptions and not gateway._server.server_state.connections, WITHIN)
            # A task that is just about to end is none that stays.
            eventually(lambda: not tasks or len(asyncio.all_tasks(loop)) <= tasks[0], WITHIN)  # noqa: B023 - at once
            tasks.append(len(asyncio.all_tasks(loop)))
        audit.post("/v1/publish", topic="orders", data={"id": 9})
        with audit.open("/v1/subscribe", topic="orders", bookmark=position) as socket:
            assert socket.get(WITHIN)["data"] == {"id": 9}
