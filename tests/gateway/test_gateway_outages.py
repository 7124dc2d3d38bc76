"""A server that stays away: everybody behind the gateway is told in time, and goes on where it was when it is back."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile

import httpx
import pytest
from gateway_scene import Asking, define, refusal
from observing import eventually
from websockets.exceptions import ConnectionClosed

from ampsq import Client
from ampsq.base.errors import Unavailable

pytestmark = pytest.mark.slow

#: Seconds that everything has on a crowded machine.
WITHIN = 30
RULES = "gateway: {server_timeout: 300ms}\n"
STREAMS = {
    "queue": ("/v1/subscribe", {"queue": "work", "max_backlog": 2}),
    "topic": ("/v1/subscribe", {"topic": "orders"}),
    "durable": ("/v1/subscribe", {"topic": "orders", "sub_id": "mine"}),
    "records": ("/v1/sow_and_subscribe", {"topic": "positions"}),
}


@pytest.fixture
def short_path():
    with tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp") as folder:
        yield folder


def end(server):
    server.process.kill()
    server.process.wait()


def farewell(socket):
    """Return a stream's last frame, and the code with which it is closed."""
    told = socket.get(WITHIN)
    with pytest.raises(ConnectionClosed) as closed:
        socket.get(WITHIN)
    return told["error"], closed.value.rcvd.code


def drain(socket):
    while True:
        socket.get(WITHIN)


def probed(gateway):
    answers = {path: httpx.get(gateway.address + path, timeout=WITHIN) for path in ("/healthz", "/readyz")}
    return {path: (answer.status_code, answer.text) for path, answer in answers.items()}


def left_over(gateway):
    client = gateway._served.desk.client
    return [
        *gateway._served.desk.streams._open,
        *client._connection.all_subscriptions,
        *client._connection.parts.keepalive._subscriptions,
    ]


@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_an_outage_is_told_to_all_and_what_was_promised_comes_when_it_is_over(
    kind, start_server, instance, serving_on, short_path
):
    server = start_server(kind, appendonly=True, data_dir=short_path)
    with contextlib.ExitStack() as stack, Client(server.url, instance=instance) as client:
        define(client)
        client.publish("positions", {"symbol": "IBM"})
        gateway = serving_on(client, RULES)
        audit = Asking(gateway, "audit")
        sockets = {name: stack.enter_context(audit.open(path, **what)) for name, (path, what) in STREAMS.items()}
        events = stack.enter_context(
            httpx.stream("GET", audit.base + "/v1/events", params={"topic": "orders"}, auth=audit.auth, timeout=WITHIN)
        ).iter_lines()
        assert [sockets[name].get(WITHIN)["type"] for name in ("queue", "durable")] == ["subscribed"] * 2
        assert sockets["records"].get(WITHIN)["data"] == {"symbol": "IBM"}
        # What begins now has begun when it has something
        audit.once("/v1/publish", ("p", 1), topic="orders", data=1)
        for name in ("queue", "topic", "durable"):
            assert sockets[name].get(WITHIN)["data"] == 1
        assert sockets["durable"].ask(do="ack", id=1)["type"] == "settled"
        seen = next(line for line in events if line.startswith("id:"))[4:]
        assert probed(gateway) == {"/healthz": (200, "ok\n"), "/readyz": (200, "ok\n")}

        end(server)

        assert {name: farewell(socket) for name, socket in sockets.items()} == dict.fromkeys(
            STREAMS, ("Unavailable", 1013)
        )
        assert "event: error" in list(events)
        answers = [
            audit.once("/v1/publish", ("p", 2), topic="orders", data=2),
            audit.get("/v1/sow", name="positions"),
            audit.get("/v1/events", topic="orders"),
        ]
        assert [(*refusal(answer), answer.headers["retry-after"]) for answer in answers] == [
            (503, "Unavailable", "5")
        ] * 3
        away = "the server behind this gateway does not answer\n"
        assert probed(gateway) == {"/healthz": (200, "ok\n"), "/readyz": (503, away)}
        with audit.open("/v1/subscribe", queue="work") as late:
            assert farewell(late) == ("Unavailable", 1013)
        eventually(lambda: not left_over(gateway), WITHIN)

        start_server(kind, appendonly=True, data_dir=short_path)

        eventually(lambda: probed(gateway)["/readyz"][0] == 200, WITHIN)
        # Sent again under their numbers, whatever became of them before
        assert audit.once("/v1/publish", ("p", 1), topic="orders", data=1).json()["duplicate"] is True
        assert audit.once("/v1/publish", ("p", 2), topic="orders", data=2).json()["duplicate"] is False
        with audit.open("/v1/subscribe", queue="work", max_backlog=2) as again:
            found = [again.get(WITHIN) for _ in range(3)]
            # What was leased comes back when the gateway ends what had it: perhaps behind the other one
            assert sorted(each.get("data", 0) for each in found) == [0, 1, 2]
            assert [again.ask(do="ack", id=each["id"])["type"] for each in found[1:]] == ["settled"] * 2
        with audit.open("/v1/subscribe", topic="orders", bookmark=seen) as again:
            assert again.get(WITHIN)["data"] == 2
        with audit.open("/v1/subscribe", topic="orders", sub_id="mine") as again:
            assert [again.get(WITHIN).get("data") for _ in range(2)] == [None, 2]
        assert client.admin.queue_stats("work").depth == 0


def test_outages_leave_nothing_behind_in_the_process(start_server, instance, serving_on, short_path):
    server = start_server(appendonly=True, data_dir=short_path)
    with Client(server.url, instance=instance) as client:
        define(client)
        gateway = serving_on(client, RULES)
        audit = Asking(gateway, "audit")
        tasks = []
        for _ in range(4):
            with contextlib.ExitStack() as stack:
                sockets = [stack.enter_context(audit.open(path, **what)) for path, what in STREAMS.values()]
                sockets[0].get(WITHIN)
                loop = next(iter(gateway._server.server_state.connections)).loop
                end(server)
                for socket in sockets:
                    with pytest.raises(ConnectionClosed):
                        drain(socket)
            eventually(lambda: not left_over(gateway) and not gateway._server.server_state.connections, WITHIN)
            # A task that is just about to end is none that stays
            eventually(lambda: not tasks or len(asyncio.all_tasks(loop)) <= tasks[0], WITHIN)  # noqa: B023 - at once
            tasks.append(len(asyncio.all_tasks(loop)))
            server = start_server(appendonly=True, data_dir=short_path)
            eventually(lambda: audit.post("/v1/publish", topic="orders", data=1).status_code == 200, WITHIN)
            # Those of before the outage are ended at the server, too
            eventually(lambda: client.admin.queue_stats("work").subscriptions == 0, WITHIN)


def test_a_subscription_that_is_closed_while_the_server_is_away_is_ended_when_it_is_back(
    start_server, instance, short_path
):
    server = start_server(appendonly=True, data_dir=short_path)
    with Client(server.url, instance=instance, retry_timeout="300ms") as client:
        define(client)
        client.publish("orders", 1)
        other = client.subscribe("work")
        messages = client.subscribe("work")
        end(server)
        with pytest.raises(Unavailable):
            messages.close()

        start_server(appendonly=True, data_dir=short_path)

        eventually(lambda: client.admin.queue_stats("work").subscriptions == 1, WITHIN)
        assert eventually(lambda: other.get(1), WITHIN).data == 1
