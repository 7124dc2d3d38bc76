"""A message's life, told from log and journal."""

from __future__ import annotations

import asyncio

from scene import pick_up

from ampsq import AsyncClient, Queue
from ampsq.base.bookmarks import ref_of
from ampsq.protocol.schema import key


def define(client, name="work", **elements):
    client.apply(Queue(name=name, underlying_topic="orders", max_per_subscription_backlog=10, **elements))


def words(history, queue=None):
    return [event.event for event in history.events if queue in (None, event.queue)]


def states(history):
    return {state.queue: str(state.state) for state in history.queues}


def test_a_message_that_was_published_and_waits(connect):
    client = connect()
    till = client.publisher("shop")
    define(client)
    bookmark = till.publish("orders", {"n": 1}, headers={"kind": "new"}).bookmark()
    history = client.admin.history(bookmark)
    (event,) = history.events
    assert (event.event, event.by, event.queue, event.at) == ("published", "shop", "", int(bookmark.id.split("-")[0]))
    assert event.details == {"topic": "orders", "bytes": 7, "headers": {"kind": "new"}, "sequence": 1}
    assert states(history) == {"work": "waiting"}
    assert history.recorded


def test_each_queue_tells_of_its_own(client):
    define(client)
    define(client, "late", recovery_point="now")
    define(client, "picky", filter="/n > 5")
    define(client, "held")
    bookmark = client.publish("orders", {"n": 1})
    define(client, "later", recovery_point="now")
    with client.subscribe("work") as messages, client.subscribe("held", max_backlog=5) as holder:
        pick_up(messages, 1)[0].ack(wait=True)
        pick_up(holder, 1)
        history = client.admin.history(bookmark)
    assert states(history) == {
        "work": "settled", "late": "waiting", "picky": "absent", "held": "leased", "later": "absent",
    }  # fmt: skip
    assert words(history) == ["published", "delivered", "acknowledged"] or words(history) == [
        "published", "acknowledged", "delivered",
    ]  # fmt: skip
    sentences = {state.queue: state.sentence for state in history.queues}
    assert sentences["later"] == "The message lies before the recovery point of the queue, and never was in it."
    assert "was acknowledged at" in sentences["work"]


def test_a_message_that_expired_after_it_came_back_twice(client):
    define(client, max_cancels=2)
    bookmark = client.publish("orders", 1)
    with client.subscribe("work") as messages:
        for _ in range(2):
            pick_up(messages, 1)[0].cancel()
        messages.flush()
        history = client.admin.history(bookmark)
    last = history.events[-1]
    assert last.event == "expired"
    assert last.details["reason"] == "max_cancels"
    assert (last.details["deliveries"], last.details["cancels"]) == (2, 2)
    assert states(history) == {"work": "settled"}


def test_how_a_message_came_back_is_told_while_it_lives_and_once_it_expired(client, redis):
    # Given what is noted of it in the long form: when, why, from whom
    define(client)
    bookmark = client.publish("orders", 1)
    ref = ref_of("orders", bookmark.id)
    told = "1763640000000,cancelled,s00000001,app/1;1763640001000,lapsed,s00000002,app/2"
    redis.hset(key(client.instance, "attempts", "work"), ref, f"2 1 lapsed {told}")
    history = client.admin.history(bookmark)
    assert [(event.at, event.event, event.by) for event in history.events if event.queue] == [
        (1763640000000, "cancelled", "s00000001"), (1763640001000, "lapsed", "s00000002"),
    ]  # fmt: skip
    # The same of one that expired, which the journal tells
    redis.xadd(
        key(client.instance, "journal", "work"),
        {"how": "expired", "reason": "max_deliveries", "refs": f"x1/y {ref}", "attempts": "1:0 3:1",
         "history": f"- {told}", "by": "s00000003"},
    )  # fmt: skip
    redis.hdel(key(client.instance, "attempts", "work"), ref)
    redis.hset(key(client.instance, "ahead", "work"), ref, "expired")
    history = client.admin.history(bookmark)
    assert [(event.event, event.by) for event in history.events if event.queue] == [
        ("cancelled", "s00000001"), ("lapsed", "s00000002"), ("expired", "s00000003"),
    ]  # fmt: skip
    assert history.events[-1].details == {"reason": "max_deliveries", "deliveries": 3, "cancels": 1}


def test_its_entry_is_found_among_many_in_bounded_steps(client):
    define(client)
    bookmarks = client.publish_many("orders", range(700))
    for bookmark in bookmarks[:650]:
        client.ack("work", [bookmark])
    client.ack("work", [bookmarks[680]], "expire")
    assert words(client.admin.history(bookmarks[680])) == ["published", "expired"]
    assert words(client.admin.history(bookmarks[649])) == ["published", "acknowledged"]


def test_at_most_once_all_that_happened_is_told(client):
    define(client, semantics="at-most-once", allow_redelivery_after_crash=True)
    bookmark = client.publish("orders", 1)
    with client.subscribe("work"):
        pass
    with client.subscribe("work") as messages:
        pick_up(messages, 1)
        history = client.admin.history(bookmark)
    assert words(history)[0] == "published"
    assert set(words(history)) == {"published", "delivered"}
    assert states(history) == {"work": "leased"}


def test_a_foreign_entry_and_one_that_never_was(client, redis):
    define(client)
    stream_id = redis.xadd(key(client.instance, "log", "orders"), {"n": "1"}, id="5000-1").decode()
    history = client.admin.history(f"orders~{client.origin}~{stream_id}")
    assert history.events[0].details == {"topic": "orders", "foreign": True}
    history = client.admin.history(f"orders~{client.origin}~1-1")
    assert (history.recorded, history.events) == (False, ())
    history = client.admin.history("orders~elsewhere.x1~1-1")
    assert (history.recorded, history.events) == (False, ())
    (state,) = history.queues
    assert state.state == "absent"
    assert state.sentence.startswith("The message is not here: its origin is elsewhere.x1, of whose messages")


def test_the_asyncio_client_tells_and_checks_and_rebuilds_the_same(client, valkey):
    define(client)
    bookmark = client.publish("orders", 1)

    async def main():
        async with AsyncClient(valkey.url, instance=client.instance) as other:
            assert (await other.admin.history(bookmark)).as_dict() == client.admin.history(bookmark).as_dict()
            assert (await other.admin.check("work", repair=True))[0].clean
            assert (await other.admin.rebuild("work")).messages == 1

    asyncio.run(main())
