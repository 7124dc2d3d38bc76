"""Guaranteed publishing: full stores, servers that are away, how safe a message is, acknowledgements kept as well."""

from __future__ import annotations

import contextlib
import socket
import sqlite3

import pytest
from guaranteeing import close_quietly
from observing import eventually
from scene import pick_up

from ampsq import FilePublishStore, MemoryPublishStore, Queue
from ampsq.base.errors import (
    AlreadyAcked,
    Closed,
    NotPersisted,
    PublishStoreError,
    PublishStoreFull,
    ServerUnsuitable,
    StaleLease,
)
from ampsq.queues.message import head_of

pytestmark = pytest.mark.slow


def free_port():
    with contextlib.closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


# -- stores that are full, and servers that are away


def test_a_full_store_makes_publishers_wait_and_then_teaches(connect_to, frail):
    _, till = connect_to(frail, store=MemoryPublishStore(messages=10, timeout="200ms"))
    with frail.stopped():
        for number in range(10):
            till.publish("orders", b"%d" % number)
        with pytest.raises(PublishStoreFull, match=r"holds 10 of 10 messages.*messages="):
            till.publish("orders", b"10")
        with pytest.raises(NotPersisted) as missing:
            till.flush("100ms")
        assert (missing.value.first, missing.value.last) == (1, 10)
    # And takes more when there is room again, under the next number
    till.flush("20s")
    assert till.publish("orders", b"10").sequence == 11
    till.flush("30s")


def test_a_publisher_waits_for_room_as_long_as_it_comes_in_time(connect):
    till = connect().publisher("till-1", store=MemoryPublishStore(messages=10), ack_conflation="10s")
    for number in range(1000):
        till.publish("orders", number)
    till.flush("30s")
    assert till.last_persisted == 1000


def test_a_file_that_others_hold_for_long_stops_a_publisher_only_meanwhile(connect, tmp_path, log_of, monkeypatch):
    monkeypatch.setattr("ampsq.publishing.file_store._BUSY", 0.1)
    path = tmp_path / "till.db"
    till = connect().publisher("till-1", store=path, ack_conflation="300ms")
    till.publish("orders", 1)
    # Given another process that has begun to write to the file, so that what is persisted cannot be let go of
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(NotPersisted, match="database is locked"):
            till.flush("1s")
        with pytest.raises(PublishStoreError, match="database is locked"):
            till.publish("orders", 2)
    # Then everything goes on behind it
    assert till.publish("orders", 2).sequence == 2
    till.flush("30s")
    assert (till.last_persisted, log_of("orders")) == (2, [(1, "1"), (2, "2")])


def test_closing_without_a_server_tells_what_a_store_in_memory_loses(connect_to, frail):
    client, till = connect_to(frail, store=MemoryPublishStore(), retry_timeout="300ms")
    with frail.stopped():
        for body in (b"1", b"2", b"3"):
            till.publish("orders", body)
        with pytest.raises(NotPersisted, match="lost with this process: 3 messages"):
            client.close()
    with pytest.raises(Closed):
        till.publish("orders", b"4")


def test_closing_without_a_server_leaves_it_to_the_next_process_with_a_file(connect_to, frail, tmp_path):
    client, till = connect_to(frail, store=tmp_path / "till.db", retry_timeout="300ms")
    with frail.stopped():
        for body in (b"1", b"2", b"3"):
            till.publish("orders", body)
        client.close()
    client, till = connect_to(frail, store=tmp_path / "till.db")
    till.publish("orders", 4)
    till.flush("30s")
    assert frail.bodies("orders") == ["1", "2", "3", "4"]


# -- levels


@pytest.mark.default_user(reason="no coordinator notes how the server flushes")
@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_fsync_waits_until_the_server_has_flushed(start_server, connect_to, kind):
    server = start_server(kind, appendonly=True, options=["--appendfsync", "everysec"])
    told = []
    _, till = connect_to(server, store=MemoryPublishStore(), persisted="fsync", on_persisted=told.append)
    till.publish_many("orders", range(100))
    with pytest.raises(NotPersisted, match=r"not persisted \(fsync\)"):
        till.flush("500ms")
    till.flush("10s")
    eventually(lambda: told)
    assert (told[-1].sequence, told[-1].level) == (100, "fsync")


@pytest.mark.default_user(reason="no coordinator notes how the server flushes")
def test_fsync_is_refused_where_the_server_cannot_say_it(start_server, connect_to):
    def refused(server, text):
        with pytest.raises(ServerUnsuitable, match=text):
            connect_to(server, store=MemoryPublishStore(), persisted="fsync")

    refused(start_server("valkey"), "needs an append-only file")
    refused(start_server("redis", appendonly=True, options=["--appendfsync", "no"]), "everysec or always")
    # And is quick where the server flushes before it answers
    server = start_server("redis", appendonly=True, options=["--appendfsync", "always"])
    _, till = connect_to(server, store=MemoryPublishStore(), persisted="fsync")
    till.publish_many("orders", range(100))
    till.flush("30s")


@pytest.mark.default_user(reason="its replica logs in as the default user")
@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_replicas_are_waited_for(start_server, connect_to, kind):
    port = str(free_port())
    server = start_server(kind, options=["--port", port, "--repl-diskless-sync-delay", "0"])
    _, till = connect_to(server, store=MemoryPublishStore(), persisted="replicas=1")
    till.publish("orders", 1)
    with pytest.raises(NotPersisted, match="0 of 1 replicas have it"):
        till.flush("1500ms")
    # When a replica comes
    start_server(kind, options=["--replicaof", f"127.0.0.1 {port}"])
    till.flush("20s")
    assert till.last_persisted == 1


# -- acknowledgements


def test_waiting_for_replicas_outlasts_a_heartbeat(valkey, connect):
    # Given a heartbeat that is shorter than one wait on the server
    client = connect(heartbeat="200ms", retry_timeout=0)
    till = client.publisher("till-1", store=MemoryPublishStore(), persisted="replicas=1")
    till.publish("orders", 1)
    with contextlib.closing(valkey.client()) as redis:
        # Once it waits, its connections are open: its threads open them after `publish` came back
        eventually(lambda: redis.info("clients")["blocked_clients"])
        before = redis.info("stats")["total_connections_received"]
        # Then what is missing is told, and no connection is given up for it
        with pytest.raises(NotPersisted, match="0 of 1 replicas have it"):
            till.flush("2500ms")
        assert redis.info("stats")["total_connections_received"] == before
    close_quietly(client)


def test_what_is_acknowledged_is_kept_until_it_is_answered(connect, make_store):
    store = make_store()
    client = connect()
    till = client.publisher("till-1", store=store, ack_conflation="1ms")
    client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=100))
    till.publish_many("orders", range(10))
    till.flush("30s")
    with client.subscribe("work", max_backlog=10, publisher=till) as messages:
        found = pick_up(messages, 10)
        for message in found[:6]:
            message.ack()
        found[6].ack(wait=True)
        found[7].cancel(delay="1h")
        found[8].expire()
        client.ack("work", [found[9].bookmark])
        till.flush("30s")
        assert messages.late == []
    assert store.settlements() == {}
    stats = client.admin.queue_stats("work")
    assert (stats.acknowledged, stats.expired, stats.delayed, stats.leased) == (8, 1, 1, 0)


def test_an_acknowledgement_that_failed_is_sent_by_the_next_process(connect_to, frail, tmp_path):
    # Given a consumer whose server goes away before it can acknowledge
    client, till = connect_to(frail, store=tmp_path / "till.db", retry_timeout="100ms")
    client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=100))
    till.publish_many("orders", range(3))
    till.flush("30s")
    messages = client.subscribe("work", max_backlog=3, publisher=till)
    found = pick_up(messages, 3)
    with frail.stopped():
        for message in found:
            message.ack()
        with pytest.raises(ConnectionError):
            messages.flush()
        with contextlib.suppress(ConnectionError):
            client.close()
    # When the next one begins, with the leases still there
    client, till = connect_to(frail, store=tmp_path / "till.db")
    till.flush("30s")
    # Then they are settled
    stats = client.admin.queue_stats("work")
    assert (stats.acknowledged, stats.depth) == (3, 0)


def test_an_acknowledgement_that_comes_too_late_is_told_and_touches_nothing(connect, tmp_path, instance):
    client = connect()
    client.apply(Queue(name="work", underlying_topic="orders"))
    bookmark = client.publish("orders", 1)
    with client.subscribe("work") as messages:
        held = pick_up(messages, 1)[0]
        # Given an acknowledgement of an earlier delivery in a store
        store = FilePublishStore(tmp_path / "till.db")
        store.open(instance, "till-1")
        store.keep_settlements([[b"acknowledged", b"", b"s1", b"work", head_of(held)[5], b"0"]])
        store.close()
        failed = []
        late = connect().publisher("till-1", store=tmp_path / "till.db", on_failed_write=failed.append)
        late.flush("30s")
        # Then it is told, and the lease stands
        assert [(failure.kind, failure.topic, type(failure.error)) for failure in failed] == [
            ("settle", "work", StaleLease)
        ]
        held.ack(wait=True)
    assert client.admin.queue_stats("work").acknowledged == 1
    assert bookmark == held.bookmark


def test_an_acknowledgement_of_a_former_process_is_told_from_what_another_consumer_did(connect, tmp_path, instance):
    # Given four messages of a consumer whose process ended: it had acknowledged the first, whose answer was lost, and
    # not the others, of which another consumer has got and acknowledged one, and has expired another
    client = connect()
    client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=10))
    client.publish_many("orders", range(4))
    with client.subscribe("work", max_backlog=4) as messages:
        held = pick_up(messages, 4)
        former, parts = messages.id, [head_of(message) for message in held]
        held[0].ack(wait=True)
    with client.subscribe("work", max_backlog=3) as messages:
        taken = {message.data: message for message in pick_up(messages, 3)}
        taken[1].ack(wait=True)
        taken[2].expire()
        store = FilePublishStore(tmp_path / "till.db")
        store.open(instance, "till-1")
        row = [b"acknowledged", b"", former.encode(), b"work"]
        store.keep_settlements([[*row, each[5], each[1]] for each in parts])
        store.close()
        # When a later process sends its acknowledgements again
        failed = []
        late = connect().publisher("till-1", store=tmp_path / "till.db", on_failed_write=failed.append)
        late.flush("30s")
        # Then its own counts as done, and it is told what was not done by it
        told = [(failure.arguments[4], type(failure.error)) for failure in failed]
        assert sorted(told, key=lambda each: each[0]) == sorted(
            [(parts[1][5], AlreadyAcked), (parts[2][5], AlreadyAcked), (parts[3][5], StaleLease)],
            key=lambda each: each[0],
        )
        taken[3].ack(wait=True)
