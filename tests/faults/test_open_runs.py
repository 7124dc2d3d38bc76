"""Faults while messages are leased in an open run: nothing of them is written but one field of their queue."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
from draining import KINDS, define, drain
from observing import eventually

from ampsq.base.errors import AmpsqError, ServerFull
from ampsq.protocol.schema import FIELDS, key

pytestmark = pytest.mark.slow

#: Every write is on the disk when it is answered.
DURABLE = {"appendonly": True, "options": ["--appendfsync", "always"]}


def messages_in_run(url, instance):
    """Return how many messages are leased in the open run of the queue; None: it has none."""
    with contextlib.closing(redis.Redis.from_url(url)) as plain:
        text = plain.hget(key(instance, "queue", "work"), FIELDS["open_run"])
    return None if text is None else int(text.split(b" ")[8])


def is_waiting(url):
    """Tell whether a client is in a blocked read of an inbox."""
    with contextlib.closing(redis.Redis.from_url(url)) as plain:
        return any(each["cmd"] == "blmpop" for each in plain.client_list())


def push_one_by_one(url, client, messages):
    """Publish 0 to 5 to a consumer that waits for each, and acknowledge all but the last, then two more.

    Returns 5, which is leased in an open run with the two that nobody has picked up.
    """
    with ThreadPoolExecutor(1) as pool:
        for number in range(6):
            coming = pool.submit(messages.get, 20)
            eventually(lambda: is_waiting(url))
            client.publish("orders", number)
            message = coming.result()
            assert message.data == number
            if number < 5:
                message.ack()
    for number in (6, 7):
        client.publish("orders", number)
    assert messages_in_run(url, client.instance) == 3
    return message


def is_right(client):
    """Tell whether live state, log and journal agree."""
    return all(report.clean and not report.undecided for report in client.admin.check())


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_server_comes_back_with_the_run_and_its_holder_goes_on(kind, start_server, connect, evidence_of):
    server = start_server(kind, **DURABLE)
    client = connect(server.url)
    define(client, lease_period="60s")
    messages = client.subscribe("work", max_backlog=10)
    held = push_one_by_one(server.url, client, messages)

    server.process.kill()
    server.process.wait()
    start_server(kind, **DURABLE, data_dir=server.directory)

    assert eventually(lambda: messages_in_run(server.url, client.instance)) == 3
    assert is_right(client)
    held.ack(wait=True)
    assert drain(messages, 2) == [6, 7]
    messages.close()
    evidence_of(client).check("orders", "work", range(8))
    assert is_right(client)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lost", [(), ("cursors",), ("cursors", "ahead", "ready")])
def test_what_was_in_a_run_is_redelivered_when_its_holder_is_gone(  # noqa: PLR0917 - fixtures and parameters
    kind, lost, start_server, connect, coordinate, evidence_of
):
    # Given a run whose server and holder die together; keys of the queue may be lost, too
    server = start_server(kind, **DURABLE)
    client = connect(server.url, retry_timeout="1s")
    define(client, lease_period="2s")
    push_one_by_one(server.url, client, client.subscribe("work", max_backlog=10))
    server.process.kill()
    server.process.wait()
    with contextlib.suppress(AmpsqError):
        client.close()
    start_server(kind, **DURABLE, data_dir=server.directory)
    other = connect(server.url)
    assert messages_in_run(server.url, other.instance) == 3
    if lost:
        with contextlib.closing(server.client()) as plain:
            plain.delete(*[key(other.instance, name, "work") for name in lost])
        assert not is_right(other)
        other.admin.rebuild("work")
    assert is_right(other)
    # When somebody else comes, and a coordinator is at work
    coordinate(server.url)
    with other.subscribe("work", max_backlog=10) as messages:
        seen = {}
        while len(seen) < 3:
            message = messages.get(20)
            assert message is not None
            seen[message.data] = message.delivery
            message.ack(wait=True)
    # Then it is given all three; the one that was handed out counts as delivered before, the others do not
    assert seen == {5: 2, 6: 1, 7: 1}
    evidence_of(other).check("orders", "work", range(8))
    assert is_right(other)


@pytest.mark.parametrize("kind", KINDS)
def test_a_replica_that_becomes_the_primary_has_the_run(kind, start_node, connect, evidence_of):
    first, second = start_node(kind=kind), start_node(kind=kind)
    second.follow(first)
    client = connect([first.url, second.url], heartbeat="1s", retry_timeout="20s")
    define(client, lease_period="60s")
    messages = client.subscribe("work", max_backlog=10)
    held = push_one_by_one(first.url, client, messages)
    eventually(lambda: first.ask("WAIT", 1, 1000) == 1)

    first.kill()
    second.lead()

    assert messages_in_run(second.url, client.instance) == 3
    client.publish("orders", 8)
    held.ack(wait=True)
    assert drain(messages, 3) == [6, 7, 8]
    messages.close()
    evidence_of(connect(second.url)).check("orders", "work", range(9))
    assert is_right(client)


@pytest.mark.parametrize("kind", KINDS)
def test_full_memory_refuses_a_push_and_lets_the_run_be_acknowledged(kind, start_server, connect, evidence_of):
    server = start_server(kind)
    client = connect(server.url)
    define(client, lease_period="60s")
    messages = client.subscribe("work", max_backlog=10)
    held = push_one_by_one(server.url, client, messages)
    with contextlib.closing(server.client()) as plain:
        plain.config_set("maxmemory", 1)
        with pytest.raises(ServerFull):
            client.publish("orders", "refused")
        assert messages_in_run(server.url, client.instance) == 3

        held.ack(wait=True)

        assert messages_in_run(server.url, client.instance) == 2
        assert drain(messages, 2) == [6, 7]
        plain.config_set("maxmemory", 0)
    client.publish("orders", 8)
    assert drain(messages, 1) == [8]
    messages.close()
    evidence_of(client).check("orders", "work", range(9))
    assert is_right(client)
