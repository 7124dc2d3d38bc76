"""Messages that come back too often: they expire, with the reason, and an action keeps them: once, and whole."""

from __future__ import annotations

import time
from datetime import datetime

import pytest
from observing import eventually
from scene import pick_up, rest_of

from ampsq import Action, Queue
from ampsq.base.errors import DefinitionError, UnknownQueue


def define(client, **elements):
    client.apply(
        Queue(name="work", **{"max_per_subscription_backlog": 100, **elements}),
        Queue(name="dead", max_per_subscription_backlog=100),
        Action.dead_letter("work", "dead"),
    )


def fail_until_gone(client, queue="work"):
    """Cancel what comes until nothing comes any more; gives the deliveries of each."""
    deliveries = []
    with client.subscribe(queue) as messages:
        while (message := messages.get(0)) is not None:
            deliveries.append(message.delivery)
            message.cancel()
    return deliveries


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_the_last_delivery_allowed_is_the_last(client, journal, limit):
    define(client, max_deliveries=limit)
    bookmark = client.publish("work", 1)
    assert fail_until_gone(client) == list(range(1, limit + 1))
    assert journal.entries("work") == [("expired", "max_deliveries", bookmark)]


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_the_last_cancel_allowed_is_the_last(client, journal, limit):
    define(client, max_cancels=limit)
    bookmark = client.publish("work", 1)
    assert fail_until_gone(client) == list(range(1, limit + 1))
    assert journal.entries("work") == [("expired", "max_cancels", bookmark)]


def test_both_limits_at_once_are_both_named(client, journal):
    define(client, max_deliveries=2, max_cancels=2)
    bookmark = client.publish("work", 1)
    assert fail_until_gone(client) == [1, 2]
    assert journal.entries("work") == [("expired", "max_cancels,max_deliveries", bookmark)]


def test_without_limits_a_message_comes_back_for_ever(client):
    client.apply(Queue(name="work"))
    client.publish("work", 1)
    with client.subscribe("work") as messages:
        for expected in range(1, 30):
            message = pick_up(messages, 1)[0]
            assert message.delivery == expected
            message.cancel()


def test_an_acknowledgement_at_the_last_delivery_is_one(client, journal):
    define(client, max_deliveries=2)
    bookmark = client.publish("work", 1)
    with client.subscribe("work") as messages:
        pick_up(messages, 1)[0].cancel()
        pick_up(messages, 1)[0].ack(wait=True)
    assert journal.entries("work") == [("acknowledged", "", bookmark)]


def test_lapses_and_closed_subscriptions_count_as_deliveries_and_not_as_cancels(client, journal):
    # Given at most two deliveries or one cancel
    define(client, max_deliveries=2, max_cancels=1, lease_period="100ms")
    bookmark = client.publish("work", 1)
    # When the first holder is gone and the lease of the second lapses
    with client.subscribe("work") as messages:
        pick_up(messages, 1)
    with client.subscribe("work") as messages:
        pick_up(messages, 1)
        eventually(lambda: messages.get(0.1) is None and client.admin.queue_stats("work").expired == 1)
    assert journal.entries("work") == [("expired", "max_deliveries", bookmark)]


def test_giving_back_never_expires(client):
    define(client, max_deliveries=1, max_cancels=1)
    client.publish_many("work", range(3))
    for _ in range(5):
        with client.subscribe("work", max_backlog=3) as messages:
            messages._managed.store.run(messages._managed.core.inbox.fetch(messages._managed.pipeline, 0.0))
    assert client.admin.queue_stats("work").depth == 3


@pytest.mark.usefixtures("coordinator")
def test_a_dead_letter_says_what_happened_and_carries_the_original(client):
    # Given messages of every kind: JSON written by us and by others, bytes that are no JSON, with and without headers
    define(client, max_cancels=2)
    bodies = [b'{"id" : 1.50}', b'"text"', b"\x00\xff no json", b"NaN", b"12"]
    headers = {"trace": "t-1"}
    bookmarks = [client.publish("work", body, headers=headers) for body in bodies]
    plain = client.publish("work", {"id": 2})
    # When each is cancelled twice
    assert len(fail_until_gone(client)) == 2 * (len(bodies) + 1)
    # Then each is a dead letter with its reason, counts, bookmark, headers and body
    with client.subscribe("dead", max_backlog=100) as letters:
        got = {letter.data["bookmark"]: letter for letter in pick_up(letters, len(bodies) + 1)}
        assert not rest_of(letters)
    assert set(got) == {*bookmarks, plain}
    who = client._session.client
    for letter in got.values():
        assert [(back["cause"], back["client"]) for back in letter.data["history"]] == [("cancelled", who)] * 2
        times = [datetime.fromisoformat(back["came_back"]) for back in letter.data["history"]]
        assert times == sorted(times)
        assert all(abs(at.timestamp() - time.time()) < 60 for at in times)
        assert {name: letter.data[name] for name in ("queue", "topic", "reason", "deliveries", "cancels")} == {
            "queue": "work", "topic": "work", "reason": "max_cancels", "deliveries": 2, "cancels": 2,
        }  # fmt: skip
    originals = [got[bookmark] for bookmark in bookmarks]
    assert all(letter.headers == headers for letter in originals)
    assert got[plain].headers == {}
    # JSON stands in it byte by byte, everything else as base64
    assert b'"message":{"id" : 1.50}}' in originals[0].raw
    assert originals[1].data["message"] == "text"
    assert originals[2].data["message"] == {"base64": "AP8gbm8ganNvbg=="}
    assert originals[3].data["message"] == {"base64": "TmFO"}
    assert originals[4].data["message"] == 12
    assert got[plain].data["message"] == {"id": 2}


def test_two_coordinators_make_one_dead_letter_of_each_message(client, start_coordinator):
    # Given two coordinators at once
    define(client, max_cancels=1)
    start_coordinator()
    start_coordinator()
    # When 200 messages die, one after the other
    client.publish_many("work", range(200))
    with client.subscribe("work", max_backlog=10) as messages:
        for _ in range(200):
            pick_up(messages, 1)[0].cancel()
    # Then there are 200 dead letters, one of each
    with client.subscribe("dead", max_backlog=100) as letters:
        dead = []
        while len(dead) < 200:
            letter = pick_up(letters, 1)[0]
            dead.append(letter.data["message"])
            letter.ack()
    assert sorted(dead) == list(range(200))
    eventually(lambda: client.admin.queue_stats("dead").acknowledged == 200)
    assert client.admin.topics()["dead"].messages == 200


def test_only_the_reasons_named_make_a_dead_letter(client, start_coordinator):
    # Given an action for messages that a consumer expired, and one for all
    client.apply(
        Queue(name="work", max_cancels=1),
        Action.dead_letter("work", "rejected", reasons=["forced_expire"]),
        Action.dead_letter("work", "all", name="all-of-work"),
    )
    client.publish_many("work", ["expired", "cancelled", "acknowledged"])
    with client.subscribe("work") as messages:
        pick_up(messages, 1)[0].expire()
        pick_up(messages, 1)[0].cancel()
        pick_up(messages, 1)[0].ack(wait=True)
    # When a coordinator comes, later than the messages died
    start_coordinator()
    # Then each action publishes its own
    eventually(lambda: client.admin.topics()["all"].messages == 2)
    eventually(lambda: client.admin.topics()["rejected"].messages == 1)


def test_an_action_that_comes_later_sees_what_expires_from_then_on(client, start_coordinator):
    client.apply(Queue(name="work"), Queue(name="dead"))
    client.publish_many("work", ["before", "after"])
    with client.subscribe("work") as messages:
        pick_up(messages, 1)[0].expire()
        client.apply(Action.dead_letter("work", "dead"))
        pick_up(messages, 1)[0].expire()
    start_coordinator()
    with client.subscribe("dead") as letters:
        assert pick_up(letters, 1)[0].data["message"] == "after"
    assert client.admin.topics()["dead"].messages == 1


def test_a_dead_letter_that_would_come_back_is_refused(client):
    client.apply(Queue(name="work", underlying_topic="^work", default_publish_target="work-in"))
    with pytest.raises(DefinitionError, match="would come back"):
        client.apply(Action.dead_letter("work", "work-dead"))
    with pytest.raises(UnknownQueue):
        client.apply(Action.dead_letter("nothing", "dead"))
