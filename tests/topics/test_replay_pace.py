"""Rates, pauses, what is durable, and logs that were trimmed, of subscriptions to topics."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest
from scene import data_of, pick_up, rest_of

from ampsq import AsyncClient, Client, Queue, Topic
from ampsq.base.errors import BookmarkNotFound, DefinitionError, ServerUnsuitable
from ampsq.protocol.schema import key
from ampsq.topics import fully_durable as durability

pytestmark = pytest.mark.slow


def test_a_rate_in_messages_is_kept(client):
    client.apply(Topic(name="orders"))
    client.publish_many("orders", range(50))
    with client.subscribe_topic("orders", bookmark="epoch", rate=200) as messages:
        started = time.monotonic()
        assert data_of(pick_up(messages, 50)) == list(range(50))
        # 50 at 200 a second: the first at once
        assert 0.24 < time.monotonic() - started < 10


def test_a_rate_in_bytes_is_kept(client):
    client.apply(Topic(name="orders"))
    client.publish_many("orders", [b"x" * 1024] * 30)
    with client.subscribe_topic("orders", bookmark="[epoch:now]", rate="100KB") as messages:
        started = time.monotonic()
        assert sum(1 for _ in messages) == 30
        assert 0.28 < time.monotonic() - started < 10


def test_the_recorded_pace_is_kept_and_its_long_gaps_are_not(client, valkey):
    # Given messages at 0, 100, 200 ms and an hour later
    client.apply(Topic(name="orders"))
    with valkey.client() as redis:
        for at in (1000, 1100, 1200, 3_601_200):
            redis.xadd(key(client.instance, "log", "orders"), {"b": str(at)}, id=f"{at}-0")
    with client.subscribe_topic("orders", bookmark="[epoch:now]", rate="2X", rate_max_gap="400ms") as messages:
        # When they are read at twice the pace
        started = time.monotonic()
        times = [time.monotonic() - started for _ in messages]
    # Then each comes after half its gap, the last one after half of the longest
    for came, due in zip(times, (0.0, 0.05, 0.1, 0.3), strict=True):
        assert due - 0.002 <= came < due + 10


def test_a_rate_does_not_make_a_short_wait_longer(client):
    client.apply(Topic(name="orders"))
    client.publish_many("orders", range(2))
    with client.subscribe_topic("orders", bookmark="epoch", rate=0.02) as messages:
        assert messages.get("30s").data == 0
        started = time.monotonic()
        assert messages.get(0.1) is None
        assert time.monotonic() - started < 20


def test_a_paused_subscription_hands_out_nothing_until_it_is_resumed(client):
    client.apply(Topic(name="orders"))
    client.publish_many("orders", range(4))
    with client.subscribe_topic("orders", bookmark="epoch") as messages:
        assert messages.get("30s").data == 0
        # When it is paused, then nothing comes, also of what was read already
        messages.pause()
        assert messages.is_paused
        assert messages.get(0.1) is None
        client.publish("orders", 4)
        messages.resume()
        # And then everything, in order
        assert data_of(rest_of(messages)) == [1, 2, 3, 4]


# -- trimming


def trimmed(client, *, upto=6, number=10):
    """A topic whose first messages were trimmed away; gives the bookmarks of all."""
    client.apply(Topic(name="orders"))
    marks = [client.publish("orders", i) for i in range(upto)]
    client.admin.trim("orders", age="0s")
    return [*marks, *[client.publish("orders", i) for i in range(upto, number)]]


@pytest.mark.parametrize(("policy", "expected"), [("now", []), ("epoch", [6, 7, 8, 9])])
def test_what_to_do_when_the_start_was_trimmed_is_said(either, policy, expected):
    # Given a log that lost its first six messages
    marks = trimmed(either)
    # When somebody begins within what was lost
    with either.subscribe_topic("orders", bookmark=marks[2], bookmark_not_found=policy) as messages:
        # Then it is told, and it goes on as was asked for
        assert messages.missed == ("orders",)
        assert data_of(rest_of(messages)) == expected
        either.publish("orders", "news")
        assert data_of(pick_up(messages, 1)) == ["news"]


def test_now_is_the_default_and_failing_is_possible(client):
    marks = trimmed(client)
    with client.subscribe_topic("orders", bookmark=marks[2]) as messages:
        assert not rest_of(messages)
    with pytest.raises(BookmarkNotFound, match="trimmed up to"):
        client.subscribe_topic("orders", bookmark=marks[2], bookmark_not_found="fail")


def test_where_nothing_is_missing_nothing_is_missed(client):
    marks = trimmed(client)
    # The epoch is whatever is there; the last one that was trimmed was handled
    for asked, expected in (("epoch", [6, 7, 8, 9]), (marks[5], [6, 7, 8, 9]), (marks[7], [8, 9])):
        with client.subscribe_topic("orders", bookmark=asked, bookmark_not_found="fail") as messages:
            assert data_of(rest_of(messages)) == expected
            assert messages.missed == ()


def test_what_a_subscription_has_not_handed_on_is_kept_for_it(client):
    # Given a subscription that has begun, and has handed out nothing
    client.apply(Topic(name="orders"))
    client.publish_many("orders", range(2000))
    with client.subscribe_topic("orders", bookmark="epoch") as messages:
        # When everything that nobody needs is removed
        result = client.admin.trim("orders", age="0s")
        # Then all of it is there for it
        assert (result.removed, result.pinned_by) == (0, f"replay {messages.id}")
        assert data_of(rest_of(messages)) == list(range(2000))
    # And not any more when it has ended
    assert client.admin.trim("orders", age="0s").removed == 2000


def test_what_a_durable_subscription_has_not_handled_is_kept_when_it_is_lost(connect):
    # Given a durable subscription that is lost with five messages unhandled
    client, lost = connect(), connect()
    client.apply(Topic(name="orders"))
    client.publish_many("orders", range(10))
    messages = lost.subscribe_topic("orders", sub_id="audit", auto_ack=False)
    for message in pick_up(messages, 10)[:5]:
        message.ack(wait=True)
    # When what nobody needs is removed, then another one of the name misses nothing
    client.admin.trim("orders", age="0s")
    with client.subscribe_topic("orders", sub_id="audit", bookmark_not_found="fail") as others:
        assert data_of(rest_of(others)) == [5, 6, 7, 8, 9]


def test_what_a_durable_subscription_has_not_handled_is_kept_when_it_is_closed(either):
    # Given a durable subscription that is closed in order with five messages unhandled, as at a restart
    either.apply(Topic(name="orders"))
    either.publish_many("orders", range(10))
    with either.subscribe_topic("orders", sub_id="audit", auto_ack=False) as messages:
        for message in pick_up(messages, 10)[:5]:
            message.ack(wait=True)
    # When what nobody needs is removed, then the next one of the name misses nothing
    assert either.admin.trim("orders", age="0s").removed == 5
    with either.subscribe_topic("orders", sub_id="audit", bookmark_not_found="fail") as others:
        assert data_of(rest_of(others)) == [5, 6, 7, 8, 9]


def left_alone(subscription, client, redis, topic="orders"):
    """As if a subscription had not been heard of for longer than its logs were held for it."""
    subscription._managed.core._reader._held = float("-inf")
    redis.delete(key(client.instance, "holds", topic))


def test_a_subscription_that_was_not_heard_of_for_long_goes_on_and_says_what_it_missed(client, valkey):
    # Given a subscription whose log was trimmed under it after its hold had ended
    client.apply(Topic(name="orders"))
    with client.subscribe_topic("orders", bookmark="now") as messages, valkey.client() as redis:
        assert messages.get(0) is None
        client.publish_many("orders", range(5))
        left_alone(messages, client, redis)
        assert client.admin.trim("orders", age="0s").removed == 5
        client.publish("orders", "news")
        # When it reads on, then it says what it missed, and goes on with what is there
        assert messages.get("30s").data == "news"
        assert messages.missed == ("orders",)


def test_a_subscription_that_is_to_miss_nothing_fails_instead(client, valkey):
    client.apply(Topic(name="orders"))
    with (
        client.subscribe_topic("orders", bookmark="now", bookmark_not_found="fail") as messages,
        valkey.client() as redis,
    ):
        client.publish_many("orders", range(5))
        left_alone(messages, client, redis)
        client.admin.trim("orders", age="0s")
        with pytest.raises(BookmarkNotFound):
            messages.get("5s")


def test_a_subscription_that_is_late_but_missed_nothing_goes_on_as_before(client, valkey):
    client.apply(Topic(name="orders"))
    with (
        client.subscribe_topic("orders", bookmark="epoch", bookmark_not_found="fail") as messages,
        valkey.client() as redis,
    ):
        client.publish_many("orders", range(3))
        assert data_of(pick_up(messages, 3)) == [0, 1, 2]
        left_alone(messages, client, redis)
        # Only what it had handed out is gone
        client.admin.trim("orders", age="0s")
        client.publish("orders", 3)
        assert data_of(pick_up(messages, 1)) == [3]
        assert messages.missed == ()


def test_a_subscription_holds_its_log_while_messages_are_asked_for_also_when_it_reads_nothing(client, valkey):
    # Given a subscription that is paused
    client.apply(Topic(name="orders"))
    client.publish_many("orders", range(3))
    with client.subscribe_topic("orders", bookmark="epoch") as messages, valkey.client() as redis:
        messages.pause()
        left_alone(messages, client, redis)
        # When somebody asks for messages, in vain
        assert messages.get("400ms") is None
        # Then the log is held
        assert client.admin.trim("orders", age="0s").removed == 0
        messages.resume()
        assert data_of(rest_of(messages)) == [0, 1, 2]


# -- full durability


@pytest.mark.default_user(reason="no coordinator notes how the server flushes")
@pytest.mark.parametrize("flushed", ["everysec", "always"])
def test_a_fully_durable_subscription_hands_out_what_is_on_disk(start_server, instance, flushed):
    server = start_server("valkey", appendonly=True, options=["--appendfsync", flushed])
    with Client(server.url, instance=instance) as client:
        client.apply(Topic(name="orders"))
        with client.subscribe_topic("orders", bookmark="epoch", fully_durable=True) as messages:
            client.publish_many("orders", range(5))
            assert data_of(pick_up(messages, 5)) == list(range(5))


def test_waiting_for_replicas_outlasts_a_heartbeat(valkey, instance):
    # Given a heartbeat that is shorter than one wait on the server
    with (
        contextlib.closing(valkey.client()) as redis,
        Client(valkey.url, instance=instance, heartbeat="200ms") as client,
    ):
        client.publish("orders", 1)
        with client.subscribe_topic("orders", bookmark="epoch", fully_durable="replicas=1") as messages:
            assert messages.get(timeout="300ms") is None
            before = redis.info("stats")["total_connections_received"]
            assert messages.get(timeout="1500ms") is None
            # Then no connection is given up for it; other calls have one of their own
            assert redis.info("stats")["total_connections_received"] <= before + 1


@pytest.mark.default_user(reason="no coordinator notes how the server flushes")
@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_a_fully_durable_subscription_waits_for_the_disk(start_server, instance, kind):
    # Given a server that writes its file to disk each second
    server = start_server(kind, appendonly=True, options=["--appendfsync", "everysec"])
    with Client(server.url, instance=instance) as client:
        client.apply(Topic(name="orders"))
        with client.subscribe_topic("orders", bookmark="epoch", fully_durable=True) as messages:
            client.publish("orders", "x")
            # Then a plain subscription has a message that this one has not
            with client.subscribe_topic("orders", bookmark="epoch") as others:
                assert data_of(pick_up(others, 1)) == ["x"]
            assert messages.get(0.5) is None
            # Until it is on disk
            assert data_of(pick_up(messages, 1)) == ["x"]
            # And what was there by then need not be waited for again
            before = time.monotonic()
            client.publish_many("orders", range(4000))
            assert data_of(pick_up(messages, 4000)) == list(range(4000))
            # Twenty pages and more, each more than a second if it waited for a flush of its own
            assert time.monotonic() - before < 20


@pytest.mark.default_user(reason="no coordinator notes how the server flushes")
def test_a_server_that_cannot_say_what_is_durable_is_refused_with_the_reason(client, start_server, instance):
    client.apply(Topic(name="orders"))
    with pytest.raises(ServerUnsuitable, match="appendonly yes"):
        client.subscribe_topic("orders", bookmark="epoch", fully_durable=True)
    server = start_server("redis", appendonly=True, options=["--appendfsync", "no"])
    with Client(server.url, instance=instance) as lazy:
        lazy.apply(Topic(name="orders"))
        with pytest.raises(ServerUnsuitable, match="everysec or always"):
            lazy.subscribe_topic("orders", bookmark="epoch", fully_durable=True)


def test_a_fully_durable_subscription_waits_for_replicas(client):
    # Given a server without a replica
    client.apply(Topic(name="orders"))
    client.publish("orders", "x")
    with client.subscribe_topic("orders", bookmark="epoch", fully_durable="replicas=1") as messages:
        # Then nothing is durable
        assert messages.get(0.3) is None


def test_what_a_fully_durable_subscription_lacks_is_told(client, caplog, monkeypatch):
    monkeypatch.setattr(durability, "_TELL", 0.1)
    client.apply(Topic(name="orders"))
    client.publish("orders", "x")
    with client.subscribe_topic("orders", bookmark="epoch", fully_durable="replicas=1") as messages:
        # Missing replicas at once
        assert "replicas=1': the server has 0 replicas connected" in caplog.text
        # And messages that wait for them after a while, once
        for _ in range(4):
            assert messages.get(0.1) is None
        assert caplog.text.count("messages wait on the server, and 0 of 1 replicas have them") == 1


# -- asyncio


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
def test_an_awaiting_client_calls_plain_functions_and_coroutine_functions(valkey, instance, kind):
    async def scenario():
        seen, is_done = [], asyncio.Event()

        def handle(message):
            seen.append(message.data)
            if len(seen) == 4:
                is_done.set()

        async def handle_later(message):
            await asyncio.sleep(0)
            handle(message)

        handler = handle if kind == "plain" else handle_later
        async with AsyncClient(valkey.url, instance=instance) as client:
            await client.apply(Topic(name="a"), Queue(name="work", underlying_topic="b"))
            async with (
                client.subscribe_topic("a", bookmark="epoch", sub_id="audit", on_message=handler) as durable,
                client.subscribe("work", on_message=handler),
            ):
                await client.publish_many("a", range(3))
                await client.publish("b", "queued")
                await asyncio.wait_for(is_done.wait(), 5)
                await durable.flush()
            assert sorted(map(str, seen)) == ["0", "1", "2", "queued"]
            # And what it returned from is handled
            async with client.subscribe_topic("a", sub_id="audit") as again:
                assert await again.get("100ms") is None
            with pytest.raises(DefinitionError, match="on_message=5"):
                client.subscribe_topic("a", bookmark="epoch", on_message=5)

    asyncio.run(scenario())


def test_the_asyncio_client_reads_topics_too(valkey, instance):
    async def scenario():
        async with AsyncClient(valkey.url, instance=instance) as client:
            await client.apply(Topic(name="a"), Topic(name="b"))
            for number in range(20):
                await client.publish("ab"[number % 2], number)
            async with client.subscribe_topic("^[ab]$", bookmark="[epoch:now]") as messages:
                assert [message.data async for message in messages] == list(range(20))
                assert messages.completed
            # Durable: what was asked past was handled
            async with client.subscribe_topic("^[ab]$", bookmark="most_recent", sub_id="audit") as messages:
                for number in range(5):
                    message = await messages.get("30s")
                    assert message.data == number
            async with client.subscribe_topic("^[ab]$", bookmark="most_recent", sub_id="audit") as messages:
                got = [await messages.get("30s") for _ in range(16)]
                assert [message.data for message in got] == list(range(4, 20))
                await got[-1].ack(wait=True)
            seen = []

            async def handle(message):
                seen.append(message.data)

            async with client.subscribe_topic("a", on_message=handle) as messages:
                assert repr(messages).startswith("<AsyncTopicSubscription")
                await client.publish("a", "live")
                for _ in range(100):
                    if seen:
                        break
                    await asyncio.sleep(0.05)  # between two looks
            assert seen == ["live"]

    asyncio.run(scenario())


def test_a_wait_that_is_cancelled_loses_no_message(valkey, instance):
    async def scenario():
        async with AsyncClient(valkey.url, instance=instance) as client:
            await client.apply(Topic(name="orders"))
            await client.publish_many("orders", range(3000))
            seen = []
            async with client.subscribe_topic("orders", bookmark="epoch") as messages:
                # When waiting is cancelled again and again, at any moment of it
                for step in range(150):
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout((step % 30) / 2_000):
                            for _ in range(40):
                                seen.append((await messages.get()).data)  # noqa: PERF401  (it is cancelled)
                while (message := await messages.get(0.2)) is not None:
                    seen.append(message.data)
            # Then each message came once, in order
            assert seen == list(range(3000))

    asyncio.run(scenario())
