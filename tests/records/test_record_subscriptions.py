"""Queries of records with what follows: one point in time, every change behind it, notices of what left the view."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from datetime import UTC, datetime

import pytest
from observing import eventually

from ampsq import AsyncClient, Client, Queue, Topic
from ampsq.base.errors import BookmarkNotFound, Closed, DefinitionError, NoRecords
from ampsq.protocol.calls import records as record_calls
from ampsq.protocol.calls.records import catch_up
from ampsq.protocol.schema import key


@pytest.fixture
def orders(client):
    client.apply(Topic(name="orders", key="/id"))
    return client


def told(subscription, number):
    """The next changes, as (command, reason, key, data)."""
    found = []
    while len(found) < number:
        change = subscription.get("30s")
        assert change is not None, found
        found.append((f"{change.command} {change.reason}".strip(), change.key, change.data))
    return found


def nothing(subscription):
    return subscription.get("50ms") is None


def test_first_come_the_records_and_then_every_message_behind_them(either):
    either.apply(Topic(name="orders", key="/id"))
    either.publish_many("orders", [{"id": 2}, {"id": 1}, {"id": 2, "v": 2}])

    with either.sow_and_subscribe("orders", order_by="/id") as changes:
        either.publish("orders", {"id": 3})
        bookmark = either.publish("orders", {"id": 1, "v": 2}, headers={"from": "x"})

        assert told(changes, 3) == [
            ("sow", "1", {"id": 1}),
            ("sow", "2", {"id": 2, "v": 2}),
            ("publish", "3", {"id": 3}),
        ]
        last = changes.get("30s")
        assert (last.bookmark, last.headers, last.topic) == (bookmark, {"from": "x"}, "orders")
        assert nothing(changes)


def test_a_filter_chooses_records_and_messages(orders):
    orders.publish_many("orders", [{"id": 1, "v": 1}, {"id": 2, "v": 9}])

    with orders.sow_and_subscribe("orders", "/v > 5") as changes:
        orders.publish_many("orders", [{"id": 3, "v": 1}, {"id": 4, "v": 9}])

        assert told(changes, 2) == [("sow", "2", {"id": 2, "v": 9}), ("publish", "4", {"id": 4, "v": 9})]
        assert nothing(changes)


@pytest.mark.usefixtures("coordinator")
def test_who_asks_is_told_of_what_leaves_the_view_and_why(orders):
    orders.publish_many("orders", [{"id": n, "v": 9} for n in range(3)])
    orders.publish("orders", {"id": 3, "v": 9}, expiration="300ms")
    orders.publish("orders", {"id": 4, "v": 1})

    with orders.sow_and_subscribe("orders", "/v > 5", oof=True) as changes:
        told(changes, 4)
        orders.publish("orders", {"id": 0, "v": 2})
        orders.sow_delete("orders", keys=[1, 4])
        assert told(changes, 3) == [
            ("oof match", "0", {"id": 0, "v": 2}), ("oof deleted", "1", None), ("oof expired", "3", None),
        ]  # fmt: skip
        # What was out of focus already is told no second time, and what comes into it is a message
        orders.sow_delete("orders", keys=[0])
        orders.delta_publish("orders", {"id": 4, "v": 7})
        assert told(changes, 1) == [("publish", "4", {"id": 4, "v": 7})]
        assert nothing(changes)


def test_who_does_not_ask_is_told_nothing_of_what_leaves(orders):
    orders.publish("orders", {"id": 1, "v": 9})

    with orders.sow_and_subscribe("orders", "/v > 5") as changes:
        told(changes, 1)
        orders.publish("orders", {"id": 1, "v": 1})
        orders.sow_delete("orders", filter="/v = 1")
        assert nothing(changes)


def test_records_that_were_not_given_do_not_leave(orders):
    orders.publish_many("orders", [{"id": n} for n in range(4)])

    with orders.sow_and_subscribe("orders", order_by="/id DESC", top_n=1, oof=True) as changes:
        assert told(changes, 1) == [("sow", "3", {"id": 3})]
        orders.sow_delete("orders", filter="/id >= 0")
        assert told(changes, 1) == [("oof deleted", "3", None)]
        assert nothing(changes)


def test_a_queue_has_no_records_and_gets_no_notices(orders):
    orders.apply(Queue(name="work", underlying_topic="orders"))
    with pytest.raises(NoRecords, match="'work' is a queue, not a topic; its topics are 'orders'"):
        orders.sow_and_subscribe("work")
    with pytest.raises(NoRecords, match="'nowhere' is no topic; there are 'orders'"):
        orders.sow_and_subscribe("nowhere")

    orders.publish("orders", {"id": 1})
    orders.sow_delete("orders", keys=[1])
    with orders.subscribe("work", max_backlog=10) as messages:
        assert messages.get("30s").data == {"id": 1}
        assert messages.get("50ms") is None


def test_the_records_are_those_of_one_moment_whatever_happens_while_they_are_read(orders, monkeypatch):
    # Given records that change between the steps of the query, some behind it and some before it
    orders.publish_many("orders", [{"id": n, "v": 0, "pad": "x" * 500} for n in range(2_000)], batch=500)
    other = Client(orders.url, instance=orders.instance)
    random_ = random.Random(7)  # noqa: S311
    browse = record_calls.browse_records

    def disturbed(*arguments):
        for _ in range(20):
            n = random_.randrange(2_500)
            if random_.random() < 0.3:
                other.sow_delete("orders", keys=[n])
            else:
                other.publish("orders", {"id": n, "v": random_.random()})
        return browse(*arguments)

    monkeypatch.setattr(record_calls, "browse_records", disturbed)
    with contextlib.closing(other):
        # When they are queried and followed
        with orders.sow_and_subscribe("orders") as changes:
            monkeypatch.undo()
            found = {}
            while (change := changes.get("100ms")) is not None:
                assert change.command == "sow"
                assert change.key not in found
                found[change.key] = change.data
        # Then what was given is what is there, since nothing came after
        expected = {each.key: each.data for each in orders.sow("orders")}
    assert found == expected


def test_a_subscriber_of_a_busy_topic_misses_nothing(orders):
    stop, count = threading.Event(), [0]
    writer = Client(orders.url, instance=orders.instance)

    def write():
        while not stop.is_set():
            count[0] += 1
            writer.publish("orders", {"id": count[0] % 50, "v": count[0]})
            if count[0] % 7 == 0:
                writer.sow_delete("orders", keys=[count[0] % 50])

    thread = threading.Thread(target=write)
    thread.start()
    eventually(lambda: count[0] > 100)
    state = {}
    try:
        with orders.sow_and_subscribe("orders", oof=True) as changes:
            until = count[0] + 500
            while count[0] < until:
                _apply(state, changes.get("30s"))
            stop.set()
            thread.join()
            while (change := changes.get("200ms")) is not None:
                _apply(state, change)
    finally:
        stop.set()
        thread.join()
        writer.close()

    assert state == {each.key: each.data for each in orders.sow("orders")}


def _apply(state, change):
    if change is None:
        return
    if change.command == "oof":
        del state[change.key]
    else:
        state[change.key] = change.data


def test_where_the_log_was_trimmed_the_differences_are_told(orders, valkey):
    # Given a subscriber whose hold is gone
    orders.publish_many("orders", [{"id": n, "v": 9} for n in range(4)])
    with orders.sow_and_subscribe("orders", "/v > 5", oof=True) as changes:
        told(changes, 4)
        with contextlib.closing(valkey.client()) as redis:
            redis.delete(key(orders.instance, "holds", "orders"))
        # And records that changed, left and came before it read them, and are trimmed
        orders.publish_many("orders", [{"id": 1, "v": 10}, {"id": 2, "v": 1}, {"id": 7, "v": 8}])
        orders.sow_delete("orders", keys=[3])
        orders.admin.trim("orders", age="0s")
        # When it looks again after a while
        reader = changes._managed.core._view.reader
        reader._held = reader._checked = -1e9
        # Then it is told the differences
        assert sorted(told(changes, 4), key=lambda each: each[1]) == [
            ("publish", "1", {"id": 1, "v": 10}), ("oof match", "2", {"id": 2, "v": 1}), ("oof deleted", "3", None),
            ("publish", "7", {"id": 7, "v": 8}),
        ]  # fmt: skip
        orders.publish("orders", {"id": 8, "v": 8})
        assert told(changes, 1) == [("publish", "8", {"id": 8, "v": 8})]


def test_it_goes_on_after_its_connection_was_cut(orders, valkey):
    with orders.sow_and_subscribe("orders") as changes:
        orders.publish("orders", {"id": 1})
        assert told(changes, 1) == [("publish", "1", {"id": 1})]
        with contextlib.closing(valkey.client()) as redis:
            redis.client_kill_filter(_type="normal", skipme=True)
        orders.publish("orders", {"id": 2})
        orders.publish("orders", {"id": 3})
        assert told(changes, 2) == [("publish", "2", {"id": 2}), ("publish", "3", {"id": 3})]


def test_a_closed_one_gives_nothing_and_holds_nothing(orders, valkey):
    changes = orders.sow_and_subscribe("orders")
    changes.close()
    changes.close()

    with pytest.raises(Closed):
        changes.get("1s")
    assert list(changes) == []
    with contextlib.closing(valkey.client()) as redis:
        assert not redis.exists(key(orders.instance, "holds", "orders"))


async def _follow(server, instance):
    async with AsyncClient(server.url, instance=instance) as client:
        await client.apply(Topic(name="orders", key="/id"))
        await client.publish("orders", {"id": 1})
        seen = []
        async with client.sow_and_subscribe("orders", oof=True) as changes:
            await client.sow_delete("orders", keys=[1])
            async for change in changes:
                seen.append((change.command, change.reason, change.key))
                if change.command == "oof":
                    break
        return seen


def test_the_asyncio_client_does_the_same(valkey, instance):
    assert asyncio.run(_follow(valkey, instance)) == [("sow", "", "1"), ("oof", "deleted", "1")]


def test_records_are_followed_however_far_they_are_behind(orders, valkey):
    with contextlib.closing(valkey.client()) as redis:
        log = key(orders.instance, "log", "orders")
        for first in range(0, 3_000, 500):
            pipe = redis.pipeline()
            for n in range(first, first + 500):
                pipe.xadd(log, {"b": b'{"id": %d}' % (n % 900)})
            pipe.execute()

    with orders.sow_and_subscribe("orders") as changes:
        assert len({change[1] for change in told(changes, 900)}) == 900
        assert nothing(changes)
    assert orders._store.call(catch_up("orders"))[0] is False


def test_of_what_changes_a_record_within_an_interval_the_latest_is_told(orders):
    orders.publish_many("orders", [{"id": 1}, {"id": 2}])

    with orders.sow_and_subscribe("orders", order_by="/id", conflation="300ms") as changes:
        # Records come at once
        assert [key for _, key, _ in told(changes, 2)] == ["1", "2"]
        orders.publish_many("orders", [{"id": 1, "v": v} for v in range(50)])
        orders.publish_many("orders", [{"id": 3, "v": v} for v in range(50)])
        assert nothing(changes)
        assert told(changes, 2) == [("publish", "1", {"id": 1, "v": 49}), ("publish", "3", {"id": 3, "v": 49})]
        # And a quiet one costs nothing
        orders.publish("orders", {"id": 2, "v": 1})
        assert told(changes, 1) == [("publish", "2", {"id": 2, "v": 1})]


def test_a_conflated_record_that_leaves_is_told_if_it_was_given_and_one_that_came_and_left_is_not(orders):
    orders.publish_many("orders", [{"id": 1, "v": 9}, {"id": 2, "v": 9}])

    with orders.sow_and_subscribe("orders", "/v > 5", oof=True, conflation="200ms") as changes:
        told(changes, 2)
        # Given one that changes and leaves, one that leaves and comes back, and one that comes and leaves
        orders.publish_many("orders", [{"id": 1, "v": 8}, {"id": 2, "v": 1}, {"id": 3, "v": 8}])
        orders.sow_delete("orders", keys=[1, 3])
        orders.publish("orders", {"id": 2, "v": 7})
        assert told(changes, 2) == [("oof deleted", "1", None), ("publish", "2", {"id": 2, "v": 7})]
        assert changes.get("400ms") is None
        # And from there on they are known as what was told
        orders.publish_many("orders", [{"id": 3, "v": 9}])
        assert told(changes, 1) == [("publish", "3", {"id": 3, "v": 9})]
        orders.sow_delete("orders", keys=[3])
        assert told(changes, 1) == [("oof deleted", "3", None)]


def test_a_consumer_that_is_behind_gets_with_auto_the_latest_of_each_record(orders):
    with orders.sow_and_subscribe("orders", conflation="auto") as changes:
        orders.publish("orders", {"id": 1, "v": 0})
        assert told(changes, 1) == [("publish", "1", {"id": 1, "v": 0})]
        orders.publish_many("orders", [{"id": 1, "v": v} for v in range(2000)])
        assert told(changes, 1) == [("publish", "1", {"id": 1, "v": 1999})]
        assert nothing(changes)


def test_from_a_bookmark_come_the_records_as_they_were_and_everything_since(orders):
    orders.publish_many("orders", [{"id": 1, "v": 1}, {"id": 2, "v": 1}])
    place = orders.publish("orders", {"id": 3, "v": 1})
    orders.publish("orders", {"id": 1, "v": 2})
    orders.sow_delete("orders", keys=[2])

    with orders.sow_and_subscribe("orders", bookmark=place, oof=True) as changes:
        assert told(changes, 3) == [("sow", str(n), {"id": n, "v": 1}) for n in (1, 2, 3)]
        assert told(changes, 2) == [("publish", "1", {"id": 1, "v": 2}), ("oof deleted", "2", None)]
        # And then live
        orders.publish("orders", {"id": 4})
        assert told(changes, 1) == [("publish", "4", {"id": 4})]
    # A time to come is now
    with orders.sow_and_subscribe("orders", order_by="/id", bookmark="2100-01-01T00:00:00Z") as changes:
        assert [key for _, key, _ in told(changes, 3)] == ["1", "3", "4"]
        orders.publish("orders", {"id": 5})
        assert told(changes, 1) == [("publish", "5", {"id": 5})]


def test_a_time_before_all_times_of_servers_is_the_beginning(orders):
    orders.publish("orders", {"id": 1})

    with orders.sow_and_subscribe("orders", bookmark=datetime.min.replace(tzinfo=UTC)) as changes:
        assert told(changes, 1) == [("publish", "1", {"id": 1})]


def test_a_bookmark_behind_which_the_log_was_trimmed_is_told(orders):
    place = orders.publish("orders", {"id": 1, "v": 1})
    orders.publish_many("orders", [{"id": 1, "v": v} for v in range(200)])
    orders.apply(Topic(name="orders", key="/id", retention_count=5))
    eventually(lambda: orders.admin.trim("orders").removed and orders.admin.topics()["orders"].messages <= 5)

    with pytest.raises(BookmarkNotFound, match="orders"):
        orders.sow_and_subscribe("orders", bookmark=place)
    with pytest.raises(DefinitionError, match="allowed is a bookmark"):
        orders.sow_and_subscribe("orders", bookmark="yesterday")
    with pytest.raises(DefinitionError, match="conflation='soon'"):
        orders.sow_and_subscribe("orders", conflation="soon")


def test_a_conflated_replay_from_a_bookmark_is_awaited_too(valkey, instance):
    async def scenario():
        async with AsyncClient(valkey.url, instance=instance) as client:
            await client.apply(Topic(name="orders", key="/id"))
            place = await client.publish("orders", {"id": 1, "v": 0})
            await client.publish_many("orders", [{"id": 1, "v": v} for v in range(1, 20)])
            async with client.sow_and_subscribe("orders", bookmark=place, conflation="100ms") as changes:
                first, last = await changes.get("30s"), await changes.get("30s")
                assert (first.command, first.data["v"], last.command, last.data["v"]) == ("sow", 0, "publish", 19)
                assert await changes.get("200ms") is None

    asyncio.run(scenario())
