"""Guaranteed publishing: taken once, recorded once, in order, told when it is persisted; refusals and two of a name."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sqlite3
import threading

import pytest
from observing import eventually
from scene import data_of, pick_up

from ampsq import AsyncClient, Client, FilePublishStore, MemoryPublishStore, Queue, Topic
from ampsq.errors import (
    AmpsqError,
    Closed,
    DefinitionError,
    NameInUse,
    NotPersisted,
    PublishStoreError,
    PublishStoreFull,
    ServerUnsuitable,
    StaleLease,
)
from ampsq.schema import key


@pytest.fixture(params=["memory", "file"])
def make_store(request, tmp_path):
    """A store for one client; a file is the same each time."""
    return lambda: MemoryPublishStore() if request.param == "memory" else FilePublishStore(tmp_path / "till.db")


@pytest.fixture
def log_of(valkey, instance):
    """(sequence, body) of everything in a topic's log."""
    with contextlib.closing(valkey.client()) as redis:
        yield lambda topic: [
            (int(fields.get(b"n", 0)), fields[b"b"].decode()) for _, fields in redis.xrange(key(instance, "log", topic))
        ]


#: A busy disk would make the server answer before it has written; what it answered is to be there after a kill.
_ALWAYS = ["--appendfsync", "always"]


class Frail:
    """A server that can be away for a while and keeps its data."""

    def __init__(self, start, instance):
        self._start, self._instance = start, instance
        self._server = start(appendonly=True, options=_ALWAYS)
        self.url = self._server.url

    @contextlib.contextmanager
    def stopped(self):
        self._server.process.kill()
        self._server.process.wait()
        yield
        self._server = self._start(appendonly=True, data_dir=self._server.directory, options=_ALWAYS)

    def bodies(self, topic):
        with contextlib.closing(self._server.client()) as redis:
            return [fields[b"b"].decode() for _, fields in redis.xrange(key(self._instance, "log", topic))]


@pytest.fixture
def frail(start_server, instance):
    return Frail(start_server, instance)


@pytest.fixture
def connect_to(instance):
    """Open guaranteed publishers of a server: ``connect_to(server, ...)``."""
    with contextlib.ExitStack() as stack:

        def connect(server, **options):
            client = Client(server.url, instance=instance, publisher="till-1", **options)
            stack.callback(close_quietly, client)
            return client

        yield connect


def close_quietly(client):
    with contextlib.suppress(AmpsqError):
        client.close()


def free_port():
    with contextlib.closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def test_what_is_published_has_its_number_at_once_and_is_recorded_in_order(connect_to_each, make_store):
    client = connect_to_each(publisher="till-1", publish_store=make_store())
    client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=100))
    # When messages are published in all ways
    assert [client.publish("orders", 0), client.publish("orders", 1, headers={"a": "b"})] == [1, 2]
    assert list(client.publish_many("orders", range(2, 40), batch=7)) == list(range(3, 41))
    assert client.publish("work", 40) == 41
    client.flush("5s")
    # Then all are there in order, and persisted
    assert client.last_persisted == 41
    with client.subscribe("work", max_backlog=50) as messages:
        found = pick_up(messages, 41)
        assert data_of(found) == list(range(41))
        assert found[1].headers == {"a": "b"}


def test_a_new_topic_is_made_and_several_topics_keep_one_order(connect, make_store, log_of):
    client = connect(publisher="till-1", publish_store=make_store())
    for number in range(30):
        client.publish(f"topic-{number % 3}", number)
    client.flush("5s")
    for topic in range(3):
        assert log_of(f"topic-{topic}") == [(number + 1, str(number)) for number in range(topic, 30, 3)]


def test_expirations_and_delays_travel_with_their_messages(connect, make_store):
    client = connect(publisher="till-1", publish_store=make_store())
    client.apply(Queue(name="work", underlying_topic="orders"))
    client.publish("orders", "later", delay="1h")
    client.publish_many("orders", ["short"], expiration="1h", headers={"a": "b"})
    client.flush("5s")
    assert (client.queue_stats("work").scheduled, client.queue_stats("work").waiting) == (1, 1)


def test_a_publisher_goes_on_behind_what_the_server_knows(connect, make_store, log_of):
    for start in (0, 3):
        client = connect(publisher="till-1", publish_store=make_store())
        assert list(client.publish_many("orders", range(start, start + 3))) == [start + 1, start + 2, start + 3]
        client.close()
    assert log_of("orders") == [(number + 1, str(number)) for number in range(6)]


def test_what_was_persisted_is_told_in_order_with_its_level(connect, make_store):
    told = []
    client = connect(publisher="till-1", publish_store=make_store(), ack_conflation="1ms", on_persisted=told.append)
    for number in range(100):
        client.publish("orders", number)
    client.flush("5s")
    eventually(lambda: told and told[-1].sequence == 100, within=2.0)
    assert [ack.sequence for ack in told] == sorted({ack.sequence for ack in told})
    assert {ack.level for ack in told} == {"memory"}


def test_persisted_acknowledgements_are_conflated(connect):
    told = []
    options = {"publish_store": MemoryPublishStore(), "on_persisted": told.append}
    client = connect(publisher="till-1", ack_conflation="10s", **options)
    for number in range(500):
        client.publish("orders", number)
    client.flush("5s")
    # One of all of them, since nobody had to know earlier; a flush does not wait for the interval
    eventually(lambda: told, within=2.0)
    assert [ack.sequence for ack in told] == [500]


def test_who_handles_what_is_told_and_fails_stops_nothing(connect):
    def fail(_):
        raise ValueError("no")

    client = connect(publisher="till-1", publish_store=MemoryPublishStore(), on_persisted=fail, ack_conflation="1ms")
    client.publish("orders", 1)
    client.flush("5s")
    client.publish("orders", 2)
    client.flush("5s")
    assert client.last_persisted == 2


def test_what_the_server_refuses_is_told_and_the_rest_is_recorded(connect, make_store, log_of, valkey, instance):
    failed = []
    client = connect(publisher="till-1", publish_store=make_store(), on_failed_write=failed.append)
    client.publish("orders", 0)
    client.flush("5s")
    # Given a log that is none
    with contextlib.closing(valkey.client()) as redis:
        client.apply(Topic(name="broken"))
        redis.set(key(instance, "log", "broken"), "no stream")
    # When messages to it are among others, alone and in batches
    client.publish("orders", 1)
    client.publish("broken", "a")
    client.publish_many("broken", ["b", "c"])
    client.publish_many("orders", [2, 3])
    client.flush("10s")
    # Then they are told, each, and left the store; the others are recorded, in order
    assert [(failure.sequence, failure.topic, failure.body) for failure in failed] == [
        (3, "broken", b'"a"'),
        (4, "broken", b'"b"'),
        (5, "broken", b'"c"'),
    ]
    assert "WRONGTYPE" in str(failed[0].error)
    assert log_of("orders") == [(1, "0"), (2, "1"), (6, "2"), (7, "3")]
    assert client.last_persisted == 7


def test_a_name_that_no_topic_can_have_is_refused_before_it_is_taken(connect, make_store):
    client = connect(publisher="till-1", publish_store=make_store())
    with pytest.raises(DefinitionError):
        client.publish("no topic", 1)
    assert client.publish("orders", 1) == 1
    client.flush("5s")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"publish_store": MemoryPublishStore()}, "publish_store needs a name"),
        ({"publisher": "p", "persisted": "fsync"}, "go with publish_store"),
        ({"publisher": "p", "on_persisted": print}, "go with publish_store"),
        ({"publisher": "p", "publish_store": MemoryPublishStore(), "persisted": "disk"}, "allowed are 'memory'"),
        ({"publisher": "p", "publish_store": MemoryPublishStore(), "persisted": "replicas=0"}, "allowed are 'memory'"),
        ({"publisher": "p", "publish_store": 7}, "path of a file"),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(connect, options, text):
    with pytest.raises(DefinitionError, match=text):
        connect(**options)


def test_the_client_numbers_by_itself(connect):
    client = connect(publisher="till-1", publish_store=MemoryPublishStore())
    with pytest.raises(DefinitionError, match="numbers its messages itself"):
        client.publish("orders", 1, sequence=5)


# -- two of one name


def test_a_newer_logon_ends_the_older_publisher(connect, make_store, log_of):
    older = connect(publisher="till-1", publish_store=MemoryPublishStore())
    older.publish("orders", "older")
    older.flush("5s")
    newer = connect(publisher="till-1", publish_store=make_store())
    # When the older one publishes on
    older.publish("orders", "too late")
    with pytest.raises(NameInUse):
        older.flush("5s")
    with pytest.raises(NameInUse):
        older.publish("orders", "never")
    # Then the newer one works on undisturbed
    newer.publish("orders", "newer")
    newer.flush("5s")
    assert log_of("orders") == [(1, '"older"'), (2, '"newer"')]


def test_an_older_publisher_does_not_come_back_by_itself(connect, log_of, valkey):
    older = connect(publisher="till-1", publish_store=MemoryPublishStore())
    older.publish("orders", "older")
    older.flush("5s")
    newer = connect(publisher="till-1", publish_store=MemoryPublishStore())
    newer.publish("orders", "newer")
    # When all connections break, as they do at a fail-over
    with contextlib.closing(valkey.client()) as redis:
        redis.client_kill_filter(_type="normal", skipme=True)
    # Then the older one does not take the name again
    older.publish("orders", "too late")
    with pytest.raises(NameInUse):
        older.flush("5s")
    newer.publish("orders", "newer still")
    newer.flush("5s")
    assert [body for _, body in log_of("orders")] == ['"older"', '"newer"', '"newer still"']


def test_what_another_recorded_and_left_again_is_not_taken_for_what_the_older_one_sends(connect, log_of):
    older = connect(publisher="till-1", publish_store=MemoryPublishStore())
    older.publish("orders", "older")
    older.flush("5s")
    # Given somebody who used the name for one message, and logged off
    other = connect(publisher="till-1", publish_store=MemoryPublishStore())
    other.publish("orders", "other")
    other.close()
    # When the older one gives its next message the same number, then it is not told that it is recorded
    older.publish("orders", "not a duplicate")
    with pytest.raises(NameInUse):
        older.flush("5s")
    assert log_of("orders") == [(1, '"older"'), (2, '"other"')]


def test_closing_tells_what_a_store_in_memory_loses_when_another_took_the_name(connect):
    older = connect(publisher="till-1", publish_store=MemoryPublishStore())
    connect(publisher="till-1", publish_store=MemoryPublishStore())
    # Given a message that was taken, since nobody knew yet that the server would refuse it
    assert older.publish("orders", "too late") == 1
    with pytest.raises(NotPersisted, match="Another client logged on") as told:
        older.close()
    assert (told.value.first, told.value.last) == (1, 1)


def test_who_never_logs_on_is_refused_while_somebody_is(connect):
    guaranteed = connect(publisher="till-1", publish_store=MemoryPublishStore())
    plain = connect(publisher="till-1")
    with pytest.raises(NameInUse):
        plain.publish("orders", 1)
    # And is let in when that one has left in order
    guaranteed.close()
    assert plain.publish("orders", 1)


def test_numbers_that_somebody_else_used_are_not_taken_for_our_duplicates(connect, tmp_path, instance):
    # Given a store that holds messages, whose publisher died
    path = tmp_path / "till.db"
    store = FilePublishStore(path)
    store.open(instance, "till-1")
    store.keep(1, "publish", [b"orders", b"b", b"held"])
    store.close()
    # When somebody else used the name meanwhile
    other = connect(publisher="till-1", publish_store=MemoryPublishStore())
    other.publish_many("orders", [1, 2, 3])
    other.close()
    # Then what is held is not dropped as recorded
    with pytest.raises(PublishStoreError, match="somebody else published under this name"):
        connect(publisher="till-1", publish_store=path)


# -- stores that are full, and servers that are away


def test_a_full_store_makes_publishers_wait_and_then_teaches(connect_to, frail):
    client = connect_to(frail, publish_store=MemoryPublishStore(messages=10, timeout="200ms"))
    with frail.stopped():
        for number in range(10):
            client.publish("orders", b"%d" % number)
        with pytest.raises(PublishStoreFull, match=r"holds 10 of 10 messages.*messages="):
            client.publish("orders", b"10")
        with pytest.raises(NotPersisted) as missing:
            client.flush("100ms")
        assert (missing.value.first, missing.value.last) == (1, 10)
    # And takes more when there is room again, under the next number
    client.flush("20s")
    assert client.publish("orders", b"10") == 11
    client.flush("10s")


def test_a_publisher_waits_for_room_as_long_as_it_comes_in_time(connect):
    client = connect(publisher="till-1", publish_store=MemoryPublishStore(messages=10), ack_conflation="10s")
    for number in range(1000):
        client.publish("orders", number)
    client.flush("5s")
    assert client.last_persisted == 1000


def test_a_file_that_others_hold_for_long_stops_a_publisher_only_meanwhile(connect, tmp_path, log_of, monkeypatch):
    monkeypatch.setattr("ampsq.publish_store._BUSY", 0.1)
    path = tmp_path / "till.db"
    client = connect(publisher="till-1", publish_store=path, ack_conflation="300ms")
    client.publish("orders", 1)
    # Given another process that has begun to write to the file, so that what is persisted cannot be let go of
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(NotPersisted, match="database is locked"):
            client.flush("1s")
        with pytest.raises(PublishStoreError, match="database is locked"):
            client.publish("orders", 2)
    # Then everything goes on behind it
    assert client.publish("orders", 2) == 2
    client.flush("5s")
    assert (client.last_persisted, log_of("orders")) == (2, [(1, "1"), (2, "2")])


def test_closing_without_a_server_tells_what_a_store_in_memory_loses(connect_to, frail):
    client = connect_to(frail, publish_store=MemoryPublishStore(), patience="300ms")
    with frail.stopped():
        for body in (b"1", b"2", b"3"):
            client.publish("orders", body)
        with pytest.raises(NotPersisted, match="lost with this process: 3 messages"):
            client.close()
    with pytest.raises(Closed):
        client.publish("orders", b"4")


def test_closing_without_a_server_leaves_it_to_the_next_process_with_a_file(connect_to, frail, tmp_path):
    client = connect_to(frail, publish_store=tmp_path / "till.db", patience="300ms")
    with frail.stopped():
        for body in (b"1", b"2", b"3"):
            client.publish("orders", body)
        client.close()
    again = connect_to(frail, publish_store=tmp_path / "till.db")
    again.publish("orders", 4)
    again.flush("5s")
    assert frail.bodies("orders") == ["1", "2", "3", "4"]


# -- levels


def test_fsync_waits_until_the_server_has_flushed(start_server, connect_to):
    server = start_server(appendonly=True, options=["--appendfsync", "everysec"])
    told = []
    client = connect_to(server, publish_store=MemoryPublishStore(), persisted="fsync", on_persisted=told.append)
    client.publish_many("orders", range(100))
    client.flush("10s")
    eventually(lambda: told, within=2.0)
    assert (told[-1].sequence, told[-1].level) == (100, "fsync")


def test_fsync_is_refused_where_the_server_cannot_say_it(start_server, connect_to):
    def refused(server, text):
        with pytest.raises(ServerUnsuitable, match=text):
            connect_to(server, publish_store=MemoryPublishStore(), persisted="fsync")

    refused(start_server("valkey"), "needs an append-only file")
    refused(start_server("redis", appendonly=True, options=["--appendfsync", "everysec"]), "appendfsync always")
    # And is possible there when the server flushes before it answers
    server = start_server("redis", appendonly=True, options=["--appendfsync", "always"])
    client = connect_to(server, publish_store=MemoryPublishStore(), persisted="fsync")
    client.publish_many("orders", range(100))
    client.flush("10s")


@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_replicas_are_waited_for(start_server, connect_to, kind):
    port = str(free_port())
    server = start_server(kind, options=["--port", port, "--repl-diskless-sync-delay", "0"])
    client = connect_to(server, publish_store=MemoryPublishStore(), persisted="replicas=1")
    client.publish("orders", 1)
    with pytest.raises(NotPersisted, match="0 of 1 replicas have it"):
        client.flush("1500ms")
    # When a replica comes
    start_server(kind, options=["--replicaof", f"127.0.0.1 {port}"])
    client.flush("20s")
    assert client.last_persisted == 1


# -- acknowledgements


def test_waiting_for_replicas_outlasts_a_heartbeat(valkey, connect):
    # Given a heartbeat that is shorter than one wait on the server
    client = connect(
        publisher="till-1", publish_store=MemoryPublishStore(), persisted="replicas=1", heartbeat="200ms", patience=0
    )
    client.publish("orders", 1)
    with contextlib.closing(valkey.client()) as redis:
        before = redis.info("stats")["total_connections_received"]
        # Then what is missing is told, and no connection is given up for it
        with pytest.raises(NotPersisted, match="0 of 1 replicas have it"):
            client.flush("2500ms")
        assert redis.info("stats")["total_connections_received"] == before
    close_quietly(client)


def test_what_is_acknowledged_is_kept_until_it_is_answered(connect, make_store):
    store = make_store()
    client = connect(publisher="till-1", publish_store=store, ack_conflation="1ms")
    client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=100))
    client.publish_many("orders", range(10))
    client.flush("5s")
    with client.subscribe("work", max_backlog=10) as messages:
        found = pick_up(messages, 10)
        for message in found[:6]:
            message.ack()
        found[6].ack(wait=True)
        found[7].cancel(delay="1h")
        found[8].expire()
        client.ack("work", [found[9].bookmark])
        client.flush("5s")
        assert messages.late == []
    assert store.settlements() == {}
    stats = client.queue_stats("work")
    assert (stats.acknowledged, stats.expired, stats.delayed, stats.leased) == (8, 1, 1, 0)


def test_an_acknowledgement_that_failed_is_sent_by_the_next_process(connect_to, frail, tmp_path):
    # Given a consumer whose server goes away before it can acknowledge
    client = connect_to(frail, publish_store=tmp_path / "till.db", patience="100ms")
    client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=100))
    client.publish_many("orders", range(3))
    client.flush("5s")
    messages = client.subscribe("work", max_backlog=3)
    found = pick_up(messages, 3)
    with frail.stopped():
        for message in found:
            message.ack()
        with pytest.raises(ConnectionError):
            messages.flush()
        with contextlib.suppress(ConnectionError):
            client.close()
    # When the next one begins, with the leases still there
    again = connect_to(frail, publish_store=tmp_path / "till.db")
    again.flush("5s")
    # Then they are settled
    stats = again.queue_stats("work")
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
        store.keep_settlements([[b"acknowledged", b"", b"s1", b"work", held.parts[5], b"0"]])
        store.close()
        failed = []
        late = connect(publisher="till-1", publish_store=tmp_path / "till.db", on_failed_write=failed.append)
        late.flush("5s")
        # Then it is told, and the lease stands
        assert [(failure.kind, failure.topic, type(failure.error)) for failure in failed] == [
            ("settle", "work", StaleLease)
        ]
        held.ack(wait=True)
    assert client.queue_stats("work").acknowledged == 1
    assert bookmark == held.bookmark


# -- the rest


def test_threads_publish_at_once_and_each_one_s_order_holds(connect, make_store, log_of):
    client = connect(publisher="till-1", publish_store=make_store())

    def publish(name):
        for number in range(100):
            client.publish("orders", f"{name} {number}")

    threads = [threading.Thread(target=publish, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    client.flush("10s")
    found = log_of("orders")
    assert [number for number, _ in found] == list(range(1, 301))
    for name in "abc":
        assert [body for _, body in found if body[1] == name] == [f'"{name} {number}"' for number in range(100)]


def test_the_asyncio_client_does_the_same(valkey, instance, make_store, log_of):
    async def main():
        told = []
        options = {"publish_store": make_store(), "on_persisted": told.append}
        async with AsyncClient(valkey.url, instance=instance, publisher="till-1", **options) as client:
            await client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=100))
            assert [await client.publish("orders", number) for number in range(5)] == [1, 2, 3, 4, 5]
            sequences = await asyncio.gather(*(client.publish("orders", 5) for _ in range(5)))
            assert sorted(sequences) == [6, 7, 8, 9, 10]
            assert list(await client.publish_many("orders", [6, 7])) == [11, 12]
            await client.flush("5s")
            assert client.last_persisted == 12
            async with client.subscribe("work", max_backlog=20) as messages:
                for _ in range(12):
                    await (await messages.get("5s")).ack()
                await client.flush("5s")
            assert (await client.queue_stats("work")).acknowledged == 12
            assert [(each.name, each.sequence, each.client is not None) for each in await client.publishers()] == [
                ("till-1", 12, True)
            ]

    asyncio.run(main())
    assert [number for number, _ in log_of("orders")] == list(range(1, 13))


def test_closing_while_a_thread_publishes_loses_nothing_that_was_taken(valkey, instance, make_store, log_of):
    client = Client(valkey.url, instance=instance, publisher="till-1", publish_store=make_store())
    client.publish("orders", b"first")
    taken, is_under_way = [1], threading.Event()

    def publish():
        with contextlib.suppress(Closed, PublishStoreError):
            while True:
                taken.append(client.publish("orders", b"more"))
                if len(taken) == 500:
                    is_under_way.set()

    thread = threading.Thread(target=publish)
    thread.start()
    assert is_under_way.wait(10)
    # When the client is closed under it
    client.close()
    thread.join()
    # Then all that `publish` gave a number is recorded
    assert [number for number, _ in log_of("orders")] == taken


def test_a_handler_may_close_the_client(connect, log_of):
    closed = threading.Event()
    client = connect(
        publisher="till-1",
        publish_store=MemoryPublishStore(),
        on_persisted=lambda _: (client.close(), closed.set()),
    )
    client.publish("orders", 1)
    assert closed.wait(10)
    assert log_of("orders") == [(1, "1")]
    with pytest.raises(Closed):
        client.publish("orders", b"2")


@pytest.mark.parametrize("waits", [True, False], ids=["asyncio", "sync"])
def test_closing_sends_what_is_left_and_logs_off(valkey, instance, make_store, log_of, waits):
    options = {"instance": instance, "publisher": "till-1", "publish_store": make_store(), "ack_conflation": "10s"}

    async def main():
        async with AsyncClient(valkey.url, **options) as client:
            for number in range(100):
                await client.publish("orders", number)

    if waits:
        asyncio.run(main())
    else:
        with Client(valkey.url, **options) as client:
            for number in range(100):
                client.publish("orders", number)
    assert log_of("orders") == [(number + 1, str(number)) for number in range(100)]
    with Client(valkey.url, instance=instance) as other:
        assert [(each.sequence, each.client) for each in other.publishers()] == [(100, None)]
    assert [thread.name for thread in threading.enumerate() if "till-1" in thread.name] == []
    assert options["publish_store"].held == 0


def test_publishers_are_listed_with_how_far_they_are(connect):
    plain, guaranteed = connect(publisher="a"), connect(publisher="b", publish_store=MemoryPublishStore())
    bookmark = plain.publish("orders", 1)
    first, second = guaranteed.publishers()
    assert (first.name, first.sequence, first.bookmark, first.client) == ("a", 1, bookmark, None)
    assert (second.name, second.sequence, second.bookmark) == ("b", 0, None)
    assert second.client == guaranteed._session.client


def test_changes_and_deletions_of_records_are_kept_and_sent_in_their_place(frail, connect_to, make_store):
    client = connect_to(frail, publish_store=make_store(), patience="20s")
    client.apply(Topic(name="orders", key="/id"))
    client.publish("orders", b'{"id": 1, "v": 1}')
    client.publish("orders", b'{"id": 2, "v": 1}')
    client.flush("20s")

    # When the server is away meanwhile
    with frail.stopped():
        assert client.delta_publish("orders", b'{"id": 1, "w": 2}') == 3
        assert client.sow_delete("orders", keys=[2, 9]) == 4
        assert client.publish("orders", b'{"id": 2, "v": 2}') == 5
        assert client.sow_delete("orders", data=b'{"id": 1}') == 6
        assert client.delta_publish("orders", b'{"id": 2, "w": 3}') == 7
    client.flush("20s")

    assert client.last_persisted == 7
    assert data_of(client.sow("orders")) == [{"id": 2, "v": 2, "w": 3}]
    bodies = [body for body in frail.bodies("orders") if body]
    assert bodies == [
        '{"id": 1, "v": 1}', '{"id": 2, "v": 1}', '{"id": 1, "v": 1,"w": 2}', '{"id": 2, "v": 2}',
        '{"id": 2, "v": 2,"w": 3}',
    ]  # fmt: skip


def test_changes_wait_for_records_that_are_behind_their_log(connect, valkey, instance):
    client = connect(publisher="till-1", publish_store=MemoryPublishStore())
    client.apply(Topic(name="orders", key="/id"))
    with contextlib.closing(valkey.client()) as redis:
        redis.xadd(key(instance, "log", "orders"), {"b": '{"id": 1, "v": 1}'})

    client.delta_publish("orders", {"id": 1, "w": 2})
    with contextlib.closing(valkey.client()) as redis:
        client.flush("10s")
        redis.xadd(key(instance, "log", "orders"), {"b": '{"id": 3}'})
    client.sow_delete("orders", keys=[3])
    client.flush("10s")

    assert data_of(client.sow("orders")) == [{"id": 1, "v": 1, "w": 2}]


def test_refused_changes_and_deletions_are_told_and_the_others_recorded(connect):
    failed = []
    client = connect(publisher="till-1", publish_store=MemoryPublishStore(), on_failed_write=failed.append)
    client.apply(
        Topic(name="orders", key="/id"), Topic(name="plain"), Topic(name="fills", key="/55", message_type="fix")
    )

    client.publish("orders", {"id": 1})
    client.publish("orders", {"no": 1})
    client.sow_delete("plain", keys=["1"])
    client.sow_delete("orders", data={"no": 1})
    client.publish("fills", {"55": "IBM", "44": 1})
    client.delta_publish("fills", {"55": "IBM", "44": 2})
    client.delta_publish("orders", {"id": 1, "v": 2})
    client.flush("10s")

    assert [(type(each.error).__name__, each.sequence, each.kind, each.topic) for each in failed] == [
        ("MissingKey", 2, "publish", "orders"), ("NoRecords", 3, "sow_delete", "plain"),
        ("MissingKey", 4, "sow_delete", "orders"), ("DeltaNotJson", 6, "publish", "fills"),
    ]  # fmt: skip
    assert data_of(client.sow("orders")) == [{"id": 1, "v": 2}]
    # By a filter it is made at once, and told how many
    assert client.sow_delete("orders", filter="/id = 1") == 1
    with pytest.raises(DefinitionError, match="allowed: one of keys, filter and data"):
        client.sow_delete("orders")
    with pytest.raises(DefinitionError, match="numbers its messages itself"):
        client.delta_publish("orders", {"id": 1}, sequence=1)


def test_with_asyncio_changes_and_deletions_are_kept_as_well(valkey, instance, make_store):
    async def work():
        async with AsyncClient(valkey.url, instance=instance, publisher="till-1", publish_store=make_store()) as client:
            await client.apply(Topic(name="orders", key="/id"))
            await client.publish_many("orders", [{"id": 1, "v": 1}, {"id": 2}])
            numbers = [
                await client.delta_publish("orders", {"id": 1, "w": 2}),
                await client.sow_delete("orders", keys=[2]),
                await client.sow_delete("orders", data={"id": 3}),
            ]
            await client.flush("10s")
            return numbers, data_of(await client.sow("orders"))

    assert asyncio.run(work()) == ([3, 4, 5], [{"id": 1, "v": 1, "w": 2}])
