"""At-most-once: gone when it is sent, so it never comes again; what a subscriber says only makes room."""

from __future__ import annotations

import contextlib

import pytest
from scene import data_of, pick_up, rest_of

from ampsq import Client, Queue
from ampsq.base.errors import AlreadyAcked, DefinitionError, ServerUnsuitable


def once(**elements):
    given = {"max_per_subscription_backlog": 100, "allow_redelivery_after_crash": True, **elements}
    return Queue(name="work", semantics="at-most-once", **given)


def test_a_server_that_could_bring_messages_back_is_refused_unless_that_is_allowed(either):
    with pytest.raises(ServerUnsuitable, match="allow_redelivery_after_crash"):
        either.apply(once(allow_redelivery_after_crash=False))
    assert "work" not in either.admin.queues()
    either.apply(once())
    assert either.admin.queues()["work"].semantics == "at-most-once"
    # Taking the permission back is a change, and the server is looked at again
    with pytest.raises(ServerUnsuitable):
        either.apply(once(allow_redelivery_after_crash=False))


@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_a_server_that_writes_every_command_down_is_accepted(start_server, kind):
    server = start_server(kind, appendonly=True, options=["--appendfsync", "always"])
    with Client(server.url, instance="i") as client:
        assert client.server.never_forgets
        client.apply(once(allow_redelivery_after_crash=False))
        client.publish("work", 1)
        with client.subscribe("work") as messages:
            assert data_of(pick_up(messages, 1)) == [1]


def test_a_message_is_removed_when_it_is_sent(either):
    either.apply(once())
    either.publish_many("work", range(3))
    # When a subscriber gets messages and goes without a word
    with either.subscribe("work", max_backlog=2) as messages:
        assert data_of(pick_up(messages, 2)) == [0, 1]
    # Then they never come again
    with either.subscribe("work", max_backlog=5) as messages:
        got = pick_up(messages, 1)
        assert [(message.data, message.delivery) for message in got] == [(2, 1)]
        assert not rest_of(messages)


def test_it_counts_against_the_backlog_until_it_is_settled_somehow(either):
    either.apply(once())
    either.publish_many("work", range(10))
    with either.subscribe("work", max_backlog=3) as messages:
        held = pick_up(messages, 3)
        assert not rest_of(messages)
        # Whatever the subscriber says makes room for one more, and brings nothing back
        settled = [lambda: held[0].ack(wait=True), held[1].cancel, held[2].expire]
        for number, settle in enumerate(settled):
            settle()
            assert data_of(pick_up(messages, 1)) == [3 + number]
            assert not rest_of(messages)


@pytest.mark.usefixtures("coordinator")
def test_a_lease_period_says_nothing_and_room_comes_with_the_acknowledgement(client):
    client.apply(once(lease_period="100ms"))
    client.publish_many("work", range(2))
    with client.subscribe("work") as messages:
        (first,) = pick_up(messages, 1)
        assert first.lease_until is None
        assert messages.get(0.4) is None
        first.ack()
        assert pick_up(messages, 1)[0].data == 1


def test_the_journal_has_each_message_once_as_delivered(client, journal):
    client.apply(once(max_cancels=1))
    bookmarks = list(client.publish_many("work", range(4)))
    with client.subscribe("work", max_backlog=4) as messages:
        one, two, three, _ = pick_up(messages, 4)
        one.ack(wait=True)
        two.cancel()
        three.expire()
        for message in (one, two, three):
            with pytest.raises(AlreadyAcked):
                message.ack(wait=True)
    assert [(how, bookmark) for how, _, bookmark in journal.entries("work")] == [
        ("delivered", bookmark) for bookmark in bookmarks
    ]
    assert client.admin.queue_stats("work").depth == 0


def test_messages_are_shared_out_in_turn(client):
    client.apply(once())
    with contextlib.ExitStack() as stack:
        subscriptions = [stack.enter_context(client.subscribe("work", max_backlog=10)) for _ in range(3)]
        for number in range(9):
            client.publish("work", number)
        assert [data_of(rest_of(subscription)) for subscription in subscriptions] == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


def test_fairness_other_than_in_turn_is_refused():
    with pytest.raises(DefinitionError, match="round-robin"):
        once(fairness_model="fast")
