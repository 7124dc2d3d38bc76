"""Subscriptions: to a queue or to all that a pattern finds, one backlog over all of them, push and pull, the end."""

from __future__ import annotations

import threading
import time

import pytest
from observing import eventually
from scene import data_of, pick_up, rest_of

from ampsq import Queue, Topic
from ampsq.base.errors import Closed, DefinitionError, UnknownQueue


def queue(name, **elements):
    return Queue(name=name, **{"max_per_subscription_backlog": 100, **elements})


@pytest.mark.parametrize(
    ("asked", "limits", "effective"),
    [
        ({}, [100], 1),  # the default asked for is 1
        ({"max_backlog": 10}, [100], 10),
        ({"max_backlog": 10}, [3], 3),
        ({"max_backlog": 10}, [7, 5, 9], 5),  # the least of all its queues
        ({"max_backlog": 0}, [100], 0),
        ({"max_backlog": 1000}, [None], 1),  # a queue's own default is 1
    ],
)
def test_the_effective_backlog_is_the_least_of_what_is_asked_and_allowed_and_is_told(client, asked, limits, effective):
    # Given queues with these limits and 30 messages in each
    for number, limit in enumerate(limits):
        elements = {} if limit is None else {"max_per_subscription_backlog": limit}
        client.apply(Queue(name=f"q{number}", underlying_topic="orders", **elements))
    client.publish_many("orders", range(30))
    # When somebody subscribes to all of them
    with client.subscribe("^q", **asked) as messages:
        # Then the backlog is told, and so many messages come and no more
        assert messages.max_backlog == effective
        assert len(rest_of(messages)) == effective


def test_the_effective_backlog_follows_what_its_queues_allow_later(connect):
    client = connect(heartbeat="200ms")
    client.apply(queue("work", max_per_subscription_backlog=5))
    with client.subscribe("work", max_backlog=20) as messages:
        assert messages.max_backlog == 5
        for limit, effective in ((8, 8), (100, 20), (2, 2)):
            client.apply(queue("work", max_per_subscription_backlog=limit))
            eventually(lambda effective=effective: messages.max_backlog == effective)
        # What is asked for later counts from then on, whatever an earlier sign of life says.
        messages.replace(max_backlog=1)
        assert messages.max_backlog == 1


@pytest.mark.parametrize("asked", [-1, True, 1.5, "10"])
def test_a_backlog_that_is_no_count_is_refused(client, asked):
    client.apply(queue("work"))
    with pytest.raises(DefinitionError, match="allowed is a whole number"):
        client.subscribe("work", max_backlog=asked)


def test_a_queue_that_nobody_defined_is_refused_by_name_and_waited_for_by_pattern(either):
    # A name is of a queue, or a topic, that exists
    either.apply(Topic(name="orders"))
    with pytest.raises(UnknownQueue):
        either.subscribe("order")
    with pytest.raises(DefinitionError):
        either.subscribe("(")
    # A pattern may match nothing yet
    with either.subscribe("^later", max_backlog=10) as messages:
        assert messages.get(0) is None
        either.apply(queue("later-1", underlying_topic="orders"), queue("sooner", underlying_topic="orders"))
        either.publish("orders", 1)
        message = pick_up(messages, 1)[0]
        assert (message.queue, message.data) == ("later-1", 1)
        # A second queue joins, with what is in it already, and the one backlog holds over both
        either.apply(queue("later-2", underlying_topic="orders"))
        assert [(message.queue, message.data) for message in pick_up(messages, 1)] == [("later-2", 1)]


def test_a_queue_that_joins_a_pattern_may_lower_the_backlog(client):
    # Given a subscription by pattern with a backlog of 10, which is full
    client.apply(queue("q1", underlying_topic="orders"))
    client.publish_many("orders", range(30))
    with client.subscribe("^q", max_backlog=10) as messages:
        held = pick_up(messages, 10)
        # When a queue joins that allows 4
        client.apply(Queue(name="q2", underlying_topic="orders", max_per_subscription_backlog=4))
        # Then held messages stay, and the next comes only when fewer than 4 are held
        assert not rest_of(messages)
        for message in held[:6]:
            message.ack(wait=True)
        assert not rest_of(messages)
        held[6].ack(wait=True)
        assert len(rest_of(messages)) == 1


def test_one_backlog_counts_over_several_queues(either):
    # Given two queues with messages, and one subscription to both
    either.apply(queue("a"), queue("b"))
    either.publish_many("a", range(10))
    either.publish_many("b", range(10))
    with either.subscribe("^[ab]$", max_backlog=6) as messages:
        # Then six messages are out, whatever their queue
        got = rest_of(messages)
        assert len(got) == 6
        stats = either.admin.queue_stats("a").leased, either.admin.queue_stats("b").leased
        assert sum(stats) == 6
        # When all are acknowledged as they come, then everything of both comes, each queue in its order
        seen = {"a": [], "b": []}
        while got:
            message = got.pop(0)
            seen[message.queue].append(message.data)
            message.ack(wait=True)
            got += rest_of(messages)
        assert seen == {"a": list(range(10)), "b": list(range(10))}


def test_a_pushed_message_of_any_queue_wakes_an_idle_subscription(either):
    # Given an idle subscription to two queues
    either.apply(queue("a"), queue("b"))
    with either.subscribe("^[ab]$", max_backlog=2) as messages:
        assert messages.get(0) is None
        for name in ("b", "a", "b"):
            # When a message comes into one of them while the subscription waits
            timer = threading.Timer(0.1, either.publish, (name, name))
            timer.start()
            message = messages.get(30)
            timer.join()
            # Then it comes
            assert (message.queue, message.data) == (name, name)
            message.ack(wait=True)


def test_two_queues_over_one_topic_each_get_everything(either):
    # Given two queues and a subscription to each
    either.apply(queue("billing", underlying_topic="orders"), queue("shipping", underlying_topic="orders"))
    with (
        either.subscribe("billing", max_backlog=100) as billing,
        either.subscribe("shipping", max_backlog=100) as shipping,
    ):
        # When ten messages are published and settled differently in each
        either.publish_many("orders", range(10))
        bills, ships = pick_up(billing, 10), pick_up(shipping, 10)
        # Then each queue had all, and settling in one is nothing to the other
        assert data_of(bills) == data_of(ships) == list(range(10))
        for message in bills:
            message.ack(wait=True)
        assert either.admin.queue_stats("billing").depth == 0
        assert either.admin.queue_stats("shipping").leased == 10


def test_a_queue_may_have_the_name_of_its_topic(either):
    # Given a queue that is named as its topic, which is the default, and another one over the same
    either.apply(queue("orders"), queue("audit", underlying_topic="orders"))
    # When something is published to that name
    bookmark = either.publish("orders", 1)
    # Then it is in the topic's log once, and in both queues
    assert bookmark.topic == "orders"
    assert either.admin.topics()["orders"].messages == 1
    for name in ("orders", "audit"):
        with either.subscribe(name) as messages:
            assert data_of(pick_up(messages, 1)) == [1]


def test_a_message_goes_to_one_subscription_at_a_time(either):
    # Given three subscriptions with more room than there are messages
    either.apply(queue("work"))
    either.publish_many("work", range(50))
    subscriptions = [either.subscribe("work", max_backlog=100) for _ in range(3)]
    # Then together they get each message once
    got = [message.data for subscription in subscriptions for message in rest_of(subscription)]
    assert sorted(got) == list(range(50))


def test_a_queue_s_max_backlog_counts_over_all_subscriptions(client):
    # Given a queue of which five messages may be out
    client.apply(queue("work", max_backlog=5))
    client.publish_many("work", range(20))
    with client.subscribe("work", max_backlog=4) as one, client.subscribe("work", max_backlog=4) as two:
        held = rest_of(one) + rest_of(two)
        assert len(held) == 5
        # When one subscription acknowledges, then whoever has room gets the next
        held[0].ack(wait=True)
        assert len(rest_of(one) + rest_of(two)) == 1
        assert client.admin.queue_stats("work").leased == 5


def test_get_waits_no_longer_than_it_is_told(client):
    client.apply(queue("work"))
    with client.subscribe("work") as messages:
        for timeout, least in ((0, 0.0), (0.2, 0.2), ("150ms", 0.15)):
            started = time.monotonic()
            assert messages.get(timeout) is None
            assert least <= time.monotonic() - started < least + 5.0


def test_a_subscription_with_a_backlog_of_zero_waits_and_gets_nothing(client):
    client.apply(queue("work"))
    client.publish("work", 1)
    with client.subscribe("work", max_backlog=0) as messages:
        assert messages.get(0.2) is None


def test_close_ends_an_iteration_in_another_thread(client):
    # Given a thread that iterates
    client.apply(queue("work"))
    messages = client.subscribe("work", max_backlog=10)
    seen, ended = [], threading.Event()

    def consume():
        for message in messages:
            seen.append(message.data)
            message.ack()
        ended.set()

    thread = threading.Thread(target=consume)
    thread.start()
    client.publish_many("work", range(5))
    eventually(lambda: len(seen) == 5)
    # When the subscription is closed
    messages.close()
    # Then the iteration ends, and what was acknowledged is
    assert ended.wait(30)
    thread.join()
    assert client.admin.queue_stats("work").depth == 0
    with pytest.raises(Closed):
        messages.get(0)
    messages.close()


def test_threads_that_share_a_subscription_never_get_the_same_message(client):
    # Given four threads that take from one subscription
    client.apply(queue("work", max_per_subscription_backlog=500))
    client.publish_many("work", range(2000))
    seen = [[] for _ in range(4)]
    with client.subscribe("work", max_backlog=500) as messages:

        def consume(mine):
            while (message := messages.get(0.3)) is not None:
                mine.append(message.data)
                message.ack()

        threads = [threading.Thread(target=consume, args=(mine,)) for mine in seen]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    # Then each message came once
    assert sorted(number for mine in seen for number in mine) == list(range(2000))
    assert client.admin.queue_stats("work").acknowledged == 2000


def test_on_message_is_called_with_each_message(client):
    # Given a function that is called with messages and settles them
    client.apply(queue("work"))
    seen = []

    def handle(message):
        seen.append(message.data)
        message.ack()

    with client.subscribe("work", max_backlog=10, on_message=handle):
        # When messages come, before and after it waited
        client.publish_many("work", range(20))
        eventually(lambda: len(seen) == 20)
        client.publish("work", 20)
        eventually(lambda: len(seen) == 21)
    assert seen == list(range(21))
    assert client.admin.queue_stats("work").acknowledged == 21


def test_on_message_that_raises_cancels_and_goes_on(client):
    # Given a function that fails at its first call
    client.apply(queue("work"))
    seen = []

    def handle(message):
        seen.append((message.data, message.delivery))
        if len(seen) == 1:
            raise ValueError("no")
        message.ack(wait=True)

    with client.subscribe("work", on_message=handle):
        client.publish_many("work", ["a", "b"])
        eventually(lambda: client.admin.queue_stats("work").acknowledged == 2)
    # Then the message came again, before the next one
    assert seen == [("a", 1), ("a", 2), ("b", 1)]


def test_on_message_that_raises_after_its_lease_ended_goes_on(client):
    # Given a function that settles its message and then fails
    client.apply(queue("work"))
    seen = []

    def handle(message):
        seen.append(message.data)
        message.ack(wait=True)
        raise ValueError("too late to cancel")

    with client.subscribe("work", on_message=handle):
        # When several messages come, then all are handled
        client.publish_many("work", range(3))
        eventually(lambda: seen == [0, 1, 2])


def test_close_gives_back_what_nobody_began_without_burning_a_delivery(either):
    # Given a subscription that picked up ten messages of which the user saw two, and settled one
    either.apply(queue("work", max_deliveries=2))
    either.publish_many("work", range(12))
    messages = either.subscribe("work", max_backlog=10)
    seen = [messages.get(30), messages.get(30)]
    assert data_of(seen) == [0, 1]
    seen[0].ack()
    # When it is closed
    messages.close()
    # Then everything else comes to the next one at once, in order; only what was seen counts as delivered
    with either.subscribe("work", max_backlog=20) as others:
        got = pick_up(others, 11)
        assert [(message.data, message.delivery) for message in got] == [(1, 2)] + [(n, 1) for n in range(2, 12)]
    assert either.admin.queue_stats("work").acknowledged == 1


def test_closing_the_client_closes_its_subscriptions(connect):
    # Given a client with two subscriptions that hold messages
    one, other = connect(), connect()
    one.apply(queue("work"))
    one.publish_many("work", range(10))
    held = [one.subscribe("work", max_backlog=4) for _ in range(2)]
    assert held[0].get(30).data == 0
    # When it is closed
    one.close()
    # Then another client gets all of them
    with other.subscribe("work", max_backlog=20) as messages:
        assert data_of(pick_up(messages, 10)) == list(range(10))


def test_stats_count_each_message_once(client):
    # Given messages waiting, leased, delayed, ready, acknowledged and expired
    client.apply(queue("work"))
    client.publish_many("work", range(10))
    messages = client.subscribe("work", max_backlog=5)
    held = pick_up(messages, 5)
    held[0].ack(wait=True)
    held[1].expire()
    held[2].cancel(delay="1h")
    # Then the figures say so
    stats = client.admin.queue_stats("work")
    assert (stats.depth, stats.leased, stats.delayed) == (8, 5, 1)
    assert (stats.acknowledged, stats.expired, stats.returned, stats.subscriptions) == (1, 1, 1, 1)
    messages.close()
    stats = client.admin.queue_stats("work")
    assert (stats.depth, stats.leased, stats.delayed, stats.subscriptions) == (8, 0, 1, 0)
    assert stats.waiting + stats.ready == 7
