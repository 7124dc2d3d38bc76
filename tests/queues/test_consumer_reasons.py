"""Reasons for which a message came back or ended, given by its consumer: kept with it, and in its letter."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from letters import define
from observing import eventually
from scene import pick_up

from ampsq import Action, AsyncClient, Do, MemoryPublishStore, On, Queue, Reject, Worker
from ampsq.base.errors import DefinitionError
from ampsq.protocol.schema import key

WHY = 'no such flight: "XX9", 100 %; really!'


def queue(client, **elements):
    client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=10, **elements))


def told(history):
    """(event, reason) of what happened in the queue."""
    return [(event.event, event.details.get("consumer_reason")) for event in history.events if event.queue]


def test_what_came_back_says_why_while_it_waits(client):
    # Given a message that was cancelled with a reason
    queue(client)
    bookmark = client.publish("orders", {"id": 1})
    with client.subscribe("work") as messages:
        pick_up(messages, 1)[0].cancel(reason=WHY, delay="1h")
    # Then history and explanation have it
    assert told(client.admin.history(bookmark)) == [("cancelled", WHY)]
    client.publish("orders", {"id": 2})
    again = client.publish("orders", {"id": 3})
    with client.subscribe("work", max_backlog=5) as messages:
        pick_up(messages, 2)[1].cancel(reason="not now", delay=0)
    explained = client.admin.explain("work", again)
    assert "last because it was cancelled (not now)" in explained.sentence
    assert explained.facts["attempts"]["consumer_reason"] == "not now"


def test_a_return_without_a_reason_leaves_what_was_said_before(client):
    queue(client)
    bookmark = client.publish("orders", {"id": 1})
    for reason in ("not now", None):
        with client.subscribe("work") as messages:
            pick_up(messages, 1)[0].cancel(reason=reason)
    assert told(client.admin.history(bookmark)) == [("cancelled", "not now"), ("cancelled", None)]
    sentence = client.admin.explain("work", bookmark).sentence
    assert sentence.endswith("last because it was cancelled; before that a consumer said: not now.")


def test_what_ended_says_why(client):
    queue(client)
    bookmarks = [client.publish("orders", {"id": number}) for number in range(3)]
    with client.subscribe("work") as messages:
        pick_up(messages, 1)[0].expire(reason=WHY)
    assert client.ack("work", [bookmarks[1]], reason="done by hand") == 1
    assert client.ack("work", filter="/id = 2", option="expire", reason="void") == 1
    sentences = [client.admin.explain("work", each).sentence for each in bookmarks]
    assert f"because somebody expired it ({WHY}), after 1 delivery" in sentences[0]
    assert sentences[1].endswith("(done by hand).")
    assert "because somebody expired it (void), after 0 deliveries" in sentences[2]
    facts = [client.admin.explain("work", each).facts["journal"]["consumer_reason"] for each in bookmarks]
    assert facts == [WHY, "done by hand", "void"]
    assert [told(client.admin.history(each))[-1] for each in bookmarks] == [
        ("expired", WHY), ("acknowledged", "done by hand"), ("expired", "void"),
    ]  # fmt: skip


def test_what_is_leased_is_cancelled_by_filter_with_a_reason(client):
    queue(client)
    bookmark = client.publish("orders", {"id": 1})
    with client.subscribe("work") as messages:
        pick_up(messages, 1)
        assert client.ack("work", filter="/id = 1", option="cancel", reason="taken from it") == 1
    assert told(client.admin.history(bookmark))[0] == ("cancelled", "taken from it")


@pytest.mark.parametrize("reason", ["two\nlines", "x" * 501, 7])
def test_a_reason_that_is_none_settles_nothing(client, reason):
    queue(client)
    bookmark = client.publish("orders", {"id": 1})
    with client.subscribe("work") as messages:
        (message,) = pick_up(messages, 1)
        for refused in (
            lambda: message.cancel(reason=reason),
            lambda: message.expire(reason=reason),
            lambda: client.ack("work", [bookmark], reason=reason),
            lambda: client.ack("work", filter="/id = 1", reason=reason),
        ):
            with pytest.raises(DefinitionError, match="reason="):
                refused()
        assert client.admin.queue_stats("work").leased == 1
        assert not message.settled
        message.ack(wait=True)


def test_with_asyncio_it_is_the_same(valkey, client):
    queue(client)
    bookmark = client.publish("orders", {"id": 1})

    async def settle():
        async with AsyncClient(valkey.url, instance=client.instance) as there:
            async with there.subscribe("work") as messages:
                message = await messages.get(30)
                await message.cancel(reason="not now")
                message = await messages.get(30)
                await message.expire(reason="never")
            return await there.ack("work", filter="/id = 2", option="expire", reason="void")

    client.publish("orders", {"id": 2})
    assert asyncio.run(settle()) == 1
    assert told(client.admin.history(bookmark)) == [("cancelled", "not now"), ("expired", "never")]


def test_a_queue_that_records_deliveries_tells_it_too(client):
    queue(client, max_deliveries=5)
    client.apply(Action(name="seen", on=On.deliver(topic="work"), do=Do.publish(topic="seen", data="x")))
    bookmark = client.publish("orders", {"id": 1})
    with client.subscribe("work") as messages:
        pick_up(messages, 1)[0].cancel(reason=WHY)
        assert ("cancelled", WHY) in told(client.admin.history(bookmark))


# -- workers


@pytest.mark.parametrize("is_coroutine", [False, True])
def test_a_worker_notes_what_its_handler_raised(valkey, client, is_coroutine):
    # Given a handler that fails, and one that rejects
    queue(client, max_cancels=2)
    failed, rejected = client.publish_many("orders", [{"id": 1}, {"id": 2}])

    def plain(message):
        if message.data["id"] == 2:
            raise Reject("the till\nis closed")
        raise ValueError("no such flight: XX9")

    async def coroutine(message):
        plain(message)

    # When a worker handled both
    worker = Worker(coroutine if is_coroutine else plain, "work", url=valkey.url, instance=client.instance)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        eventually(lambda: client.admin.queue_stats("work").depth == 0, within=40.0)
    finally:
        worker.stop()
        thread.join()
    # Then both say why, without a traceback
    why = "ValueError: no such flight: XX9"
    assert told(client.admin.history(failed)) == [("cancelled", why), ("cancelled", why), ("expired", None)]
    assert told(client.admin.history(rejected)) == [("expired", "the till is closed")]
    assert f"because max_cancels was reached ({why})" in client.admin.explain("work", failed).sentence


def test_what_on_message_raises_is_noted(client):
    queue(client, max_cancels=1)
    bookmark = client.publish("orders", {"id": 1})

    def handle(message):
        raise KeyError(*message.data)

    with client.subscribe("work", on_message=handle):
        eventually(lambda: client.admin.queue_stats("work").depth == 0, within=40.0)
    assert told(client.admin.history(bookmark)) == [("cancelled", "KeyError: 'id'"), ("expired", None)]


# -- letters and actions


@pytest.mark.usefixtures("coordinator")
def test_a_letter_has_the_reason_and_filters_read_it(client):
    # Given two messages that were given up with reasons, and one without
    define(client)
    client.publish_many("orders", [{"id": number} for number in range(3)])
    with client.subscribe("work", max_backlog=3) as messages:
        cancelled, expired, silent = pick_up(messages, 3)
        cancelled.cancel(reason=WHY)
        expired.expire(reason="void")
        silent.cancel()
    eventually(lambda: client.admin.queue_stats("dead").depth == 3, within=40.0)
    # Then each letter says what was said, and only that
    letters = {letter.data["id"]: letter for letter in client.admin.dead_letters("dead")}
    assert [letters[number].consumer_reason for number in range(3)] == [WHY, "void", ""]
    assert [each.consumer_reason for each in letters[0].history] == [WHY]
    assert letters[1].reasons == ("forced_expire",)
    (found,) = client.admin.dead_letters("dead", "/consumer_reason LIKE 'no such flight'")
    assert found.data == {"id": 0}
    bodies = {json.loads(letter.raw)["message"]["id"]: json.loads(letter.raw) for letter in client.sow("dead")}
    assert "consumer_reason" not in bodies[2]
    assert "consumer_reason" not in bodies[2]["history"][0]


@pytest.mark.usefixtures("coordinator")
def test_an_action_reads_the_reason(client):
    queue(client)
    client.apply(
        Action(
            name="tell",
            on=On.expire(topic="work"),
            if_=[{"condition": "'{{AMPS_CONSUMER_REASON}}' LIKE 'flight'"}],
            do=Do.publish(topic="told", data="{{AMPS_REASON}} {{AMPS_CONSUMER_REASON}}"),
        ),
        Queue(name="told"),
    )
    client.publish_many("orders", [{"id": 1}, {"id": 2}])
    with client.subscribe("work", max_backlog=2) as messages, client.subscribe("told") as letters:
        other, flight = pick_up(messages, 2)
        other.expire(reason="something else")
        flight.expire(reason="no such flight")
        assert pick_up(letters, 1, within=40.0)[0].raw == b"forced_expire no such flight"
        assert client.admin.queue_stats("told").delivered == 1


# -- what is kept


def test_nothing_is_left_of_a_reason_when_its_message_is_settled(client, redis):
    queue(client)
    client.publish("orders", {"id": 1})
    with client.subscribe("work") as messages:
        pick_up(messages, 1)[0].cancel(reason="not now")
        attempts = key(client.instance, "attempts", "work")
        assert redis.exists(attempts)
        pick_up(messages, 1)[0].ack(wait=True)
        assert not redis.exists(attempts)


def test_a_rebuilt_queue_says_what_its_journal_says(client):
    queue(client)
    ended, _ = client.publish_many("orders", [{"id": 1}, {"id": 2}])
    with client.subscribe("work", max_backlog=2) as messages:
        first, second = pick_up(messages, 2)
        first.expire(reason="void")
        second.cancel(reason="not now", delay=0)
    client.admin.rebuild("work")
    assert told(client.admin.history(ended)) == [("expired", "void")]
    assert client.admin.queue_stats("work").depth == 1
    assert [checked.clean for checked in client.admin.check("work")] == [True]


def test_a_publish_store_keeps_the_reason_until_it_is_answered(connect):
    # Given a client that keeps what it settles
    client = connect()
    till = client.publisher("till-4", store=(store := MemoryPublishStore()))
    queue(client)
    till.publish("orders", {"id": 1})
    till.flush()
    bookmark = client.sow("work")[0].bookmark
    kept = []
    keep = store.keep_settlements

    def noted(rows):
        kept.extend(rows)
        return keep(rows)

    store.keep_settlements = noted
    # When it expires a message with a reason
    assert client.ack("work", [bookmark], option="expire", reason="void since Monday", publisher=till) == 1
    # Then the reason was kept with it, and is in the journal
    assert kept[0][0] == b"expired void since Monday"
    assert told(client.admin.history(bookmark)) == [("expired", "void since Monday")]
