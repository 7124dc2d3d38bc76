"""Acknowledgements: in batches, at once, by bookmark from anywhere; and what becomes of those that come too late."""

from __future__ import annotations

import time

import pytest
from observing import eventually
from scene import data_of, pick_up, rest_of
from scene import define_work as define

from ampsq import Queue
from ampsq.base.errors import AlreadyAcked, DefinitionError, NotLeaseHolder, StaleLease, UnknownMessage, UnknownQueue
from ampsq.protocol.calls import duties as duty_calls


def lapse(client, number):
    """Wait until so many leases have lapsed."""
    eventually(lambda: client._store.call(duty_calls.sweep()) and client.admin.queue_stats("work").returned >= number)


def test_acknowledgements_travel_with_the_next_take(connect, journal):
    # Given a client whose acknowledgements wait for a minute
    client = connect(ack_timeout="1m")
    define(client)
    bookmarks = list(client.publish_many("work", range(3)))
    with client.subscribe("work") as messages:
        # When a message is acknowledged and the next one asked for
        messages.get(30).ack()
        messages.get(30).ack()
        # Then the first went with the take that brought the second
        assert journal.entries("work") == [("acknowledged", "", bookmarks[0])]
        messages.flush()
        assert [bookmark for _, _, bookmark in journal.entries("work")] == bookmarks[:2]


def test_acknowledgements_do_not_wait_longer_than_their_time(connect):
    client = connect(ack_timeout="100ms")
    define(client)
    client.publish_many("work", range(2))
    with client.subscribe("work", max_backlog=2) as messages:
        for message in pick_up(messages, 2):
            message.ack()
        # Nobody asks for more messages
        eventually(lambda: client.admin.queue_stats("work").acknowledged == 2)


def test_acknowledgements_are_sent_when_the_subscription_is_closed(connect):
    client = connect(ack_timeout="1m")
    define(client)
    client.publish_many("work", range(2))
    with client.subscribe("work", max_backlog=2) as messages:
        pick_up(messages, 2)[0].ack()
    stats = client.admin.queue_stats("work")
    assert (stats.acknowledged, stats.depth) == (1, 1)


def test_an_acknowledgement_that_is_waited_for_is_done_at_once(either):
    define(either)
    either.publish("work", 1)
    with either.subscribe("work") as messages:
        pick_up(messages, 1)[0].ack(wait=True)
        assert either.admin.queue_stats("work").acknowledged == 1


def test_who_cancels_what_it_acknowledged_for_the_next_batch_has_it_again(client):
    define(client)
    client.publish("work", 1)
    with client.subscribe("work") as messages:
        message = pick_up(messages, 1)[0]
        message.ack()
        message.cancel()
        assert pick_up(messages, 1)[0].delivery == 2
        messages.flush()
        assert messages.late == []


def test_a_late_acknowledgement_is_told_to_who_waits_for_it(client):
    define(client, lease_period="1s")
    client.publish("work", 1)
    with client.subscribe("work") as messages:
        message = pick_up(messages, 1)[0]
        lapse(client, 1)
        with pytest.raises(StaleLease) as raised:
            message.ack(wait=True)
        assert raised.value.detail["queue"] == "work"


def test_late_acknowledgements_of_a_batch_are_kept(client):
    # Given two messages whose leases lapse
    define(client, lease_period="1s")
    client.publish_many("work", range(2))
    with client.subscribe("work", max_backlog=2) as messages:
        one, two = pick_up(messages, 2)
        assert messages.late == []
        lapse(client, 2)
        # When they are acknowledged in a batch
        one.ack()
        two.ack()
        messages.flush()
        # Then both refusals are kept, and the messages are not gone
        assert [type(error) for error in messages.late] == [StaleLease, StaleLease]
    assert client.admin.queue_stats("work").depth == 2


def test_another_client_acknowledges_by_bookmark(connect):
    # Given messages: one leased, one that came back, and one that nobody saw
    one, other = connect(), connect()
    define(one)
    leased, returned, waiting = one.publish_many("work", range(3))
    with one.subscribe("work", max_backlog=2) as messages:
        held = pick_up(messages, 2)
        assert held[0].bookmark == leased
        held[1].cancel(delay="1h")
        # When another client acknowledges all of them
        assert other.ack("work", [leased, returned, waiting]) == 3
        # Then they are settled, and their holder is told
        assert other.admin.queue_stats("work").depth == 0
        with pytest.raises(AlreadyAcked):
            held[0].ack(wait=True)
        with pytest.raises(AlreadyAcked):
            other.ack("work", [waiting])
        assert not rest_of(messages)


def test_a_strict_queue_lets_only_the_holder_settle(connect):
    one, other = connect(), connect()
    define(one, leasing="strict")
    leased, waiting = one.publish_many("work", range(2))
    with one.subscribe("work") as messages:
        message = pick_up(messages, 1)[0]
        # When others try, by bookmark
        for option in ("ack", "cancel", "expire"):
            with pytest.raises(NotLeaseHolder):
                other.ack("work", [leased], option)
        # Then only what is not leased is settled
        assert other.ack("work", [waiting]) == 1
        message.ack(wait=True)
    assert one.admin.queue_stats("work").acknowledged == 2


def test_cancel_and_expire_by_bookmark(connect, journal):
    one, other = connect(), connect()
    define(one)
    first, second, third, _, last = one.publish_many("work", range(5))
    with one.subscribe("work", max_backlog=2) as messages:
        pick_up(messages, 2)
        other.ack("work", [first], "cancel")
        assert [(message.data, message.delivery) for message in pick_up(messages, 1)] == [(0, 2)]
        other.ack("work", [second, third], "expire")
        # What was never delivered cannot be handed back
        assert data_of(pick_up(messages, 1)) == [3]
        with pytest.raises(StaleLease):
            other.ack("work", [last], "cancel")
    assert journal.entries("work") == [("expired", "forced_expire", second), ("expired", "forced_expire", third)]


def test_refusals_by_bookmark_say_how_many(client):
    define(client)
    bookmarks = list(client.publish_many("work", range(5)))
    client.ack("work", bookmarks[:2])
    with pytest.raises(AlreadyAcked) as raised:
        client.ack("work", bookmarks)
    assert (raised.value.detail["refused"], raised.value.detail["settled"]) == (2, 3)
    assert raised.value.detail["bookmark"] == str(bookmarks[0])


def test_many_are_acknowledged_by_bookmark(client):
    define(client)
    bookmarks = client.publish_many("work", range(1234))
    assert client.ack("work", bookmarks) == 1234
    with client.subscribe("work", max_backlog=100) as messages:
        client.publish("work", "next")
        assert data_of(pick_up(messages, 1)) == ["next"]
    assert client.admin.queue_stats("work").depth == 1


def test_bookmarks_that_are_of_no_message_are_refused(connect):
    client = connect()
    define(client)
    client.apply(Queue(name="other"))
    bookmark = client.publish("work", 1)
    for text in ("", "work", f"{bookmark} x"):
        with pytest.raises(DefinitionError):
            client.ack("work", [text])
    with pytest.raises(UnknownMessage, match=r"is not here: its origin is elsewhere\.abc, of whose messages"):
        client.ack("work", ["work~elsewhere.abc~1-1"])
    with pytest.raises(UnknownMessage):
        client.ack("other", [bookmark])
    with pytest.raises(UnknownMessage):
        client.ack("work", [f"work~{client.origin}~99999999999999-0"])
    with pytest.raises(UnknownQueue):
        client.ack("nothing", [bookmark])
    with pytest.raises(DefinitionError, match="allowed are 'ack', 'cancel' and 'expire'"):
        client.ack("work", [bookmark], "delete")


def test_thousands_acknowledged_one_by_one_are_all_settled(either):
    # Given more messages than one call settles
    define(either, max_per_subscription_backlog=2000)
    either.publish_many("work", range(3000))
    seen, started = [], time.monotonic()
    with either.subscribe("work", max_backlog=2000) as messages:
        for message in messages:
            seen.append(message.data)
            message.ack()
            if len(seen) == 3000:
                break
    assert seen == list(range(3000))
    assert either.admin.queue_stats("work").acknowledged == 3000
    # No acknowledgement waits alone for its time
    assert time.monotonic() - started < 60
