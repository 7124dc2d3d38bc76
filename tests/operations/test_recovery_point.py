"""Start of a new queue in its topics, and of one whose recovery point is changed."""

from __future__ import annotations

import contextlib
import time
from datetime import UTC, datetime

import pytest
from scene import pick_up, rest_of, settle_all

from ampsq import Queue
from ampsq.base.errors import DefinitionError, UnknownQueue


def given_a_log(client, topic="orders", number=5):
    return client.publish_many(topic, range(number))


def begun(client, point, **elements):
    """A new queue, and what is in it."""
    queue = Queue(name="work", **{"underlying_topic": "orders", "recovery_point": point, **elements})
    client.apply(queue)
    stats = client.admin.queue_stats("work")
    assert stats.depth == stats.waiting
    with client.subscribe("work") as messages:
        found = settle_all(messages)
    assert len(found) == stats.depth
    return found


def test_a_queue_begins_with_the_first_message_that_the_log_holds(either):
    given_a_log(either)
    assert begun(either, "epoch") == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("point", ["now", "creation"])
def test_a_queue_that_begins_now_has_only_what_is_published_from_now_on(either, point):
    given_a_log(either)
    assert begun(either, point) == []
    either.publish("orders", "next")
    with either.subscribe("work") as messages:
        assert settle_all(messages) == ["next"]


def test_a_queue_that_begins_at_a_bookmark_has_what_is_behind_it(either):
    bookmarks = given_a_log(either)
    assert begun(either, bookmarks[2]) == [3, 4]


def test_a_queue_that_begins_at_a_time_has_what_was_published_then_or_later(either):
    given_a_log(either, number=3)
    time.sleep(0.005)  # the next message has a millisecond of its own
    moment = int(either.publish("orders", "then").id.split("-")[0])
    either.publish("orders", "later")
    assert begun(either, datetime.fromtimestamp(moment / 1000, UTC)) == ["then", "later"]


def test_a_queue_that_begins_in_the_future_begins_now(either):
    given_a_log(either)
    assert begun(either, "2999-01-01") == []
    assert either.admin.check("work")[0].clean


def test_every_topic_of_a_queue_begins_at_the_point_and_one_that_appears_later_at_its_start(client):
    given_a_log(client, "orders-1")
    given_a_log(client, "orders-2")
    pattern = {"underlying_topic": "^orders", "default_publish_target": "orders-1"}
    assert begun(client, "now", **pattern) == []
    client.publish("orders-3", "third")
    client.publish("orders-1", "first")
    with client.subscribe("work") as messages:
        assert sorted(settle_all(messages, 2)) == ["first", "third"]
    assert client.admin.check("work")[0].clean


def test_a_bookmark_of_another_instance_is_no_recovery_point(client):
    given_a_log(client)
    with pytest.raises(DefinitionError, match=r"recovery_point: bookmark .* is not here: its origin is elsewhere\.x1"):
        client.apply(Queue(name="work", underlying_topic="orders", recovery_point="orders~elsewhere.x1~5-0"))
    with pytest.raises(UnknownQueue):
        client.admin.queue_stats("work")


def test_what_a_log_lost_before_a_queue_began_is_not_counted_as_waiting(client, valkey):
    given_a_log(client, number=5)
    with contextlib.closing(valkey.client()) as redis:
        redis.xtrim("{" + client.instance + "}:log:orders", maxlen=2, approximate=False)
    assert begun(client, "epoch") == [3, 4]


def test_a_later_point_takes_what_lies_before_it_out_of_the_queue(client):
    # Given a queue with a message of every kind
    client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=10))
    bookmarks = given_a_log(client, number=10)
    with client.subscribe("work", max_backlog=4) as messages:
        acked, cancelled, delayed, leased = pick_up(messages, 4)
        acked.ack(wait=True)
        delayed.cancel(delay="1h")
        # When it is to begin behind all of them
        cancelled.cancel()
        messages.replace(max_backlog=1)
        client.apply(
            Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=10, recovery_point=bookmarks[6])
        )
        # Then what nobody holds is out of the queue, and a lease that lives can be settled
        for message in [leased, *rest_of(messages)]:
            message.ack(wait=True)
        assert settle_all(messages) == [7, 8, 9]
    assert client.admin.check("work")[0].clean
    assert client.admin.queue_stats("work").depth == 0


def test_now_and_creation_are_the_same_point(client):
    client.apply(Queue(name="work", underlying_topic="orders", recovery_point="now"))
    given_a_log(client)
    client.apply(Queue(name="work", underlying_topic="orders", recovery_point="creation"))
    assert client.admin.queue_stats("work").depth == 5
