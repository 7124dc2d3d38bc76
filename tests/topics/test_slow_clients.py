"""Limits of slow clients: who is offlined and disconnected, what comes in which order, and whom it harms: nobody."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import threading
import time

import pytest
from observing import eventually
from scene import data_of, pick_up, rest_of

from ampsq import Action, AsyncClient, Client, Do, Topic, Transport
from ampsq.base.errors import DefinitionError, SlowClient
from ampsq.protocol.schema import key
from ampsq.topics import reader_reports as reporting
from ampsq.topics import slow_reader as limited_reader
from ampsq.topics.spool import Spool

pytestmark = pytest.mark.slow

#: A body of about a kilobyte.
PAD = "x" * 1000


@pytest.fixture
def _hasty(monkeypatch):
    """Clients look at their readers and report them in hundredths of a second: for tests that are not of the pace."""
    monkeypatch.setattr(reporting, "_AGAIN", 0.05)
    monkeypatch.setattr(reporting, "_LOOK", 0.02)


def numbered(numbers):
    return [{"i": i, "pad": PAD} for i in numbers]


def numbers_of(messages):
    return [message.data["i"] for message in messages]


until = functools.partial(eventually, within=60.0)


def states(client):
    return {each.subscription: each.state for each in client.admin.readers()}


def holds(redis, client, topic):
    return redis.hgetall(key(client.instance, "holds", topic))


def test_without_limits_nothing_reports_and_no_thread_runs(client):
    client.apply(Topic(name="orders"))
    with client.subscribe_topic("orders", bookmark="epoch") as messages:
        client.publish_many("orders", range(100))
        pick_up(messages, 10)
        assert not [thread.name for thread in threading.enumerate() if thread.name.endswith(client._session.client)]
        assert client.admin.readers() == []


def test_a_reader_that_ends_while_it_reports_is_listed_no_more(client, connect):
    client.apply(Transport(name="*", message_memory_limit="1MB"), Topic(name="orders"))
    other = connect()
    with other.subscribe_topic("orders", bookmark="epoch", sub_id="audit") as messages:
        assert messages.get(0.1) is None
        until(lambda: states(client) == {"orders": "durable"})
        (reported,) = other._connection.parts.reporting._readers
    assert client.admin.readers() == []
    # Given a report that was under way as it was closed
    reported.last = None
    other._connection.parts.reporting._report(reported, other._connection.parts.reporting._store)
    assert client.admin.readers() == []


@pytest.mark.usefixtures("_hasty")
def test_of_too_much_memory_a_subscription_is_offlined_and_gets_everything_in_order(either, tmp_path):
    # Given a subscription that stopped after its first message
    either.apply(Transport(name="*", message_memory_limit="1MB", message_disk_path=str(tmp_path)), Topic(name="orders"))
    with either.subscribe_topic("orders") as messages:
        either.publish_many("orders", numbered(range(10)))
        got = numbers_of(pick_up(messages, 1))
        # When it is 4 MB behind
        either.publish_many("orders", numbered(range(10, 4000)))
        # Then it is offlined, and its log is read to the end
        until(lambda: states(either) == {"orders": "offline"})
        until(lambda: either.admin.readers()[0].spooled > 3_000_000)
        assert either.admin.readers()[0].behind < 1_000_000
        # And everything comes, in order, also what comes meanwhile, and it is online again
        either.publish_many("orders", numbered(range(4000, 4100)))
        got += numbers_of(pick_up(messages, 4099, within=40.0))
        assert got == list(range(4100))
        assert messages.get("300ms") is None
        either.publish("orders", {"i": "live"})
        assert numbers_of(pick_up(messages, 1)) == ["live"]
        until(lambda: states(either) == {"orders": "online"})
        # And the files had no names
        assert not list(tmp_path.iterdir())
    assert either.admin.readers() == []


@pytest.mark.usefixtures("_hasty")
@pytest.mark.parametrize("seed", range(6))
def test_a_consumer_that_is_slow_in_a_random_way_gets_each_message_once_in_order(connect, monkeypatch, seed):
    # Given a low limit that is looked at often, so that the consumer is offlined and comes back again and again
    draw, spools = random.Random(seed), []  # noqa: S311
    monkeypatch.setattr(limited_reader, "Spool", lambda folder=None: spools.append(Spool(folder)) or spools[-1])
    client, other = connect(), connect()
    client.apply(Transport(name="*", message_memory_limit="64KB"), Topic(name="a"), Topic(name="b"))
    total, got = 8000, []

    def publish():
        pauses = random.Random(-seed)  # noqa: S311
        for start in range(0, total, 100):
            other.publish_many(pauses.choice("ab"), numbered(range(start, start + 100)))
            time.sleep(pauses.choice((0, 0, 0.05, 0.1)))  # the pace

    with client.subscribe_topic("^[ab]$", bookmark="now") as messages:
        publisher = threading.Thread(target=publish)
        publisher.start()
        deadline = time.monotonic() + 200
        # When it rests, and takes some or all that is there
        while len(got) < total and time.monotonic() < deadline:
            time.sleep(draw.choice((0, 0.1, 0.4)))  # it rests
            for _ in range(draw.choice((1, 50, 300, total))):
                if (message := messages.get("20ms")) is None:
                    break
                got.append(message.data["i"])
        publisher.join()
        # Then each message came once, in order
        assert got == list(range(total))
        assert messages.get("100ms") is None
    assert len(spools) >= 2


def test_who_takes_no_message_for_too_long_is_disconnected_and_others_of_its_client_go_on(either, server, caplog):
    either.apply(Transport(name="*", client_message_age_limit="1s"), Topic(name="orders"), Topic(name="news"))
    with either.subscribe_topic("orders") as slow, either.subscribe_topic("news") as other:
        # Given that both had something to do
        either.publish("orders", 0)
        either.publish("news", 0)
        assert data_of(pick_up(slow, 1) + pick_up(other, 1)) == [0, 0]
        # When one does not take what comes
        either.publish_many("orders", [1, 2, 3])
        until(lambda: states(either).get("orders") == "disconnected")
        # It is told to others a moment before it knows itself
        until(lambda: "'orders' was too slow" in caplog.text)
        # Then it is told so, each time, with the limit and what was used
        for _ in range(2):
            with pytest.raises(SlowClient, match=r"'orders' was too slow .* client_message_age_limit") as told:
                slow.get("1s")
            assert (told.value.reason, told.value.limit) == ("client_message_age_limit", 1000)
            assert 1000 < told.value.used < 10_000
        with pytest.raises(SlowClient):
            next(iter(slow))
        # And its hold is gone
        with contextlib.closing(server.client()) as redis:
            until(lambda: not holds(redis, either, "orders"))
            assert holds(redis, either, "news")
        # And the other one goes on
        either.publish("news", 1)
        assert data_of(pick_up(other, 1)) == [1]


def test_who_waits_for_messages_is_not_slow_however_old_the_last_one_is(client):
    client.apply(Transport(name="*", client_message_age_limit="1s"), Topic(name="orders"))
    client.publish("orders", "old")
    with client.subscribe_topic("orders", bookmark="epoch") as messages:
        assert data_of(pick_up(messages, 1)) == ["old"]
        assert messages.get("1500ms") is None
        time.sleep(1.5)  # longer than the limit; meanwhile the consumer asks for no message
        client.publish("orders", "new")
        assert data_of(pick_up(messages, 1)) == ["new"]


def test_who_replays_counts_for_nothing_until_it_has_come_to_the_end(client):
    client.apply(Transport(name="*", message_memory_limit="64KB", client_message_age_limit="1s"), Topic(name="orders"))
    client.publish_many("orders", numbered(range(2000)))
    with client.subscribe_topic("orders", bookmark="epoch") as messages:
        assert numbers_of(pick_up(messages, 5)) == list(range(5))
        time.sleep(2.2)  # longer than the limit
        assert states(client) == {"orders": "replaying"}
        assert numbers_of(pick_up(messages, 1995)) == list(range(5, 2000))


@pytest.mark.usefixtures("_hasty")
def test_an_action_is_told_why_somebody_was_disconnected(client, start_coordinator):
    client.apply(
        Transport(name="*", client_message_age_limit="1s"),
        Topic(name="orders"),
        Topic(name="told"),
        Action(name="gone", on="disconnect", do=Do.publish(topic="told", data="{{AMPS_CLIENT_NAME}} {{AMPS_REASON}}")),
    )
    start_coordinator()
    with client.subscribe_topic("orders") as messages, client.subscribe_topic("told", bookmark="epoch") as told:
        client.publish("orders", 0)
        assert data_of(pick_up(messages, 1)) == [0]
        client.publish("orders", 1)
        (message,) = pick_up(told, 1, within=25.0)
    assert message.raw.decode() == f"{client._session.client} client_message_age_limit"


@pytest.mark.usefixtures("_hasty")
def test_of_too_much_disk_it_is_disconnected_with_the_reason(client):
    limits = {"message_memory_limit": "64KB", "message_disk_limit": "500KB"}
    client.apply(Transport(name="*", **limits), Topic(name="orders"))
    with client.subscribe_topic("orders") as messages:
        client.publish("orders", "first")
        pick_up(messages, 1)
        client.publish_many("orders", numbered(range(1000)))
        until(lambda: states(client) == {"orders": "disconnected"})
        # It is told to others a moment before it knows itself
        with pytest.raises(SlowClient, match=r"message_disk_limit: [0-9]+ bytes of 512000 allowed"):
            until(lambda: messages.get(0) == "nothing more")


@pytest.mark.usefixtures("_hasty")
def test_a_durable_subscription_is_disconnected_and_goes_on_where_it_was(client, caplog):
    # Given a durable subscription, whose place is in the log
    client.apply(Transport(name="*", message_memory_limit="64KB"), Topic(name="orders"))
    with client.subscribe_topic("orders", sub_id="audit") as messages:
        client.publish_many("orders", numbered(range(3)))
        assert numbers_of(pick_up(messages, 3)) == [0, 1, 2]
        assert messages.get("100ms") is None
        # When it is too far behind
        client.publish_many("orders", numbered(range(3, 500)))
        until(lambda: states(client) == {"orders": "disconnected"})
        until(lambda: "'orders' was too slow" in caplog.text)
        with pytest.raises(SlowClient, match="message_memory_limit"):
            messages.get(0)
    # Then it goes on there when it comes again
    with client.subscribe_topic("orders", sub_id="audit") as messages:
        assert numbers_of(pick_up(messages, 497)) == list(range(3, 500))


def test_a_transport_has_limits_of_its_own(connect):
    client = connect(transport="low")
    client.apply(
        Transport(name="*", client_message_age_limit="1h"),
        Transport(name="low", client_message_age_limit="1s"),
        Topic(name="orders"),
    )
    patient = connect()
    with client.subscribe_topic("orders") as hasty, patient.subscribe_topic("orders") as slow:
        client.publish("orders", 0)
        assert data_of(pick_up(hasty, 1) + pick_up(slow, 1)) == [0, 0]
        client.publish("orders", 1)
        until(
            lambda: (
                {each.transport: each.state for each in client.admin.readers()}
                == {"low": "disconnected", "*": "online"}
            )
        )
        # It is told to others a moment before it knows itself
        with pytest.raises(SlowClient):
            until(lambda: hasty.get(0) == "nothing more")
        assert data_of(pick_up(slow, 1)) == [1]


def test_limits_that_come_later_count_from_the_next_message_on(client):
    client.apply(Topic(name="orders"))
    with client.subscribe_topic("orders") as messages:
        client.publish("orders", 0)
        assert data_of(pick_up(messages, 1)) == [0]
        client.apply(Transport(name="*", client_message_age_limit="1s"))
        # It looks at definitions once a second
        assert messages.get("1200ms") is None
        assert messages.get("100ms") is None
        client.publish("orders", 1)
        until(lambda: states(client) == {"orders": "disconnected"})


def test_a_conflated_subscription_that_is_offlined_gets_the_latest_of_each_key(client):
    client.apply(Transport(name="*", message_memory_limit="64KB"), Topic(name="trades"))
    with client.subscribe_topic("trades", conflation="auto", conflation_key="/k") as messages:
        client.publish("trades", {"k": 0, "i": 0})
        assert numbers_of(pick_up(messages, 1)) == [0]
        client.publish_many("trades", [{"k": i % 3, "i": i, "pad": PAD} for i in range(3000)])
        # Given that it is offlined, and all that there is went to its disk
        until(lambda: [(each.state, each.behind) for each in client.admin.readers()] == [("offline", 0)])
        # Then the latest of each key comes; before it at most what was the latest while it was still read into memory
        found = numbers_of(rest_of(messages))
        assert found[-3:] == [2997, 2998, 2999]
        assert len(found) <= 6
        assert messages.get("100ms") is None


def test_a_name_that_is_no_transport_is_refused(server, instance):
    for kind in (Client, AsyncClient):
        with pytest.raises(DefinitionError, match="is no transport"):
            kind(server.url, instance=instance, transport="a b")


@pytest.mark.usefixtures("_hasty")
def test_the_asyncio_client_is_offlined_and_disconnected_the_same(server, instance, caplog):
    async def scenario():
        async with AsyncClient(server.url, instance=instance) as client:
            limits = {"message_memory_limit": "64KB", "client_message_age_limit": "6s"}
            await client.apply(Transport(name="*", **limits), Topic(name="orders"))
            async with client.subscribe_topic("orders") as messages:
                await client.publish_many("orders", numbered(range(3)))
                got = [(await messages.get("30s")).data["i"] for _ in range(3)]
                # Given that it is offlined while others of its loop work
                await client.publish_many("orders", numbered(range(3, 1000)))
                await asyncio.to_thread(until, lambda: states(beside) == {"orders": "offline"})
                # Then everything comes in order
                got += [(await messages.get("30s")).data["i"] for _ in range(997)]
                assert got == list(range(1000))
                await client.publish("orders", {"i": 1000})
                assert (await messages.get("30s")).data == {"i": 1000}
                # When it takes nothing for too long, it is disconnected
                await client.publish("orders", {"i": 1001})
                await asyncio.to_thread(until, lambda: states(beside) == {"orders": "disconnected"})
                await asyncio.to_thread(until, lambda: "'orders' was too slow" in caplog.text)
                assert [each.state for each in await client.admin.readers()] == ["disconnected"]
                with pytest.raises(SlowClient, match="client_message_age_limit"):
                    await messages.get("1s")

    with Client(server.url, instance=instance) as beside:
        asyncio.run(scenario())


def test_nobodys_slowness_harms_others(connect, valkey):
    """A stopped subscriber: publishing and another subscriber are as fast as without it, and the log is trimmed."""
    client, other = connect(), connect()
    client.apply(Topic(name="orders", retention_age="0s"))

    def measured():
        """Messages a second of publishing, and the other subscriber's median latency."""
        taken = []
        with other.subscribe_topic("orders") as quick:
            started = time.monotonic()
            for start in range(0, 4000, 100):
                client.publish_many("orders", numbered(range(start, start + 100)))
            rate = 4000 / (time.monotonic() - started)
            pick_up(quick, 4000)
            for i in range(50):
                sent = time.monotonic()
                client.publish("orders", {"i": i})
                assert quick.get("30s") is not None
                taken.append(time.monotonic() - sent)
        return rate, sorted(taken)[25]

    rate, latency = measured()
    # Given one that stops
    client.apply(Transport(name="*", message_memory_limit="500KB"))
    stopped = connect()
    with stopped.subscribe_topic("orders") as messages, contextlib.closing(valkey.client()) as redis:
        assert messages.get(0) is None
        # When 4 MB go by
        rate_beside, latency_beside = measured()
        # Then the others are about as fast
        assert rate_beside > rate / 4
        assert latency_beside < latency * 4 + 0.01
        # And once it is offlined the log is trimmed, though it has taken nothing
        until(lambda: states(client).get("orders") == "offline")
        log = key(client.instance, "log", "orders")

        def trimmed():
            client.admin.trim("orders")
            return redis.xlen(log) < 500

        until(trimmed, within=30)
        # And it gets all of them
        assert len(pick_up(messages, 4050, within=30)) == 4050
