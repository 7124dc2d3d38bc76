"""The retention duty, a round at a time: what it removes, what it tells, two at once, and one that dies in between."""

from __future__ import annotations

import logging

import pytest
from mortal import Died
from observing import eventually

from ampsq import Action, Queue, Topic
from ampsq.coordinator.actions import Actions
from ampsq.coordinator.retention import Retention
from ampsq.protocol.calls.retention import hold
from ampsq.protocol.request import script_call
from ampsq.protocol.schema import key


def log(store, topic="orders"):
    return store.redis.xlen(key(store.instance, "log", topic))


def journal(store, queue="work"):
    return store.redis.xlen(key(store.instance, "journal", queue))


def run_until(duty, store, condition):
    """Rounds with their pauses cut, until something holds."""

    def once():
        duty._due.clear()
        duty.run_once(store)
        return condition()

    return eventually(once)


def publish_an_hour_ago(store, topic, number):
    seconds, _ = store.redis.time()
    store.call(script_call("publish", [(seconds - 3_600) * 1_000, topic, "", "", "b", *range(number)], list))


def settle(client, queue, number):
    with client.subscribe(queue, max_backlog=1_000) as messages:
        for _ in range(number):
            messages.get(30).ack()
        messages.flush()


def test_logs_and_journals_are_trimmed_when_nobody_needs_them(store, client):
    client.apply(Topic(name="orders", retention_age="0s"), Queue(name="work", underlying_topic="orders"))
    client.apply(Queue(name="mail", underlying_topic="orders", max_per_subscription_backlog=1_000))
    client.publish_many("orders", range(1_200))
    duty = Retention()
    assert 0.0 <= duty.run_once(store) <= 1.0
    assert log(store) == 1_200
    settle(client, "work", 1_200)
    settle(client, "mail", 1_000)
    run_until(duty, store, lambda: log(store) == 200 and journal(store) <= 210)
    settle(client, "mail", 200)
    run_until(duty, store, lambda: not log(store) and not journal(store) and not journal(store, "mail"))
    assert client.admin.queue_stats("work").acknowledged == 1_200
    assert client.admin.queue_stats("mail").depth == 0


def test_a_topic_without_retention_keeps_everything(store, client):
    client.apply(Topic(name="orders"), Queue(name="work", underlying_topic="orders"))
    client.publish_many("orders", range(10))
    settle(client, "work", 10)
    duty = Retention()
    assert duty.run_once(store) > 1.0
    assert (log(store), journal(store) > 0) == (10, True)
    # Until it is given one, at run time; and again none
    client.apply(Topic(name="orders", retention_count=4))
    run_until(duty, store, lambda: log(store) == 4)
    client.apply(Topic(name="orders"))
    client.publish_many("orders", range(10))
    settle(client, "work", 10)
    assert duty.run_once(store) > 1.0
    assert log(store) == 14


def test_two_coordinators_trim_the_same_log(store, client):
    client.apply(Topic(name="orders", retention_age="0s"), Queue(name="work", underlying_topic="orders"))
    one, other = Retention(), Retention()
    for _ in range(5):
        client.publish_many("orders", range(700), batch=500)
        settle(client, "work", 650)
        one._due.clear()
        other._due.clear()
        one.run_once(store)
        other.run_once(store)
    settle(client, "work", 250)
    assert client.admin.queue_stats("work").depth == 0
    run_until(one, store, lambda: not log(store))
    run_until(other, store, lambda: not journal(store))


@pytest.mark.parametrize("calls_before", [1, 2, 3, 4])
def test_a_coordinator_that_dies_between_steps_leaves_the_rest_to_the_next(store, client, monkeypatch, calls_before):
    client.apply(
        Topic(name="orders", retention_age="1m", retention_unsettled="discard"),
        Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=1_000),
    )
    publish_an_hour_ago(store, "orders", 1_300)
    settle(client, "work", 600)
    left, call = [calls_before], store.call

    def mortal(request):
        left[0] -= request.script is not None and request.script.name in (
            "trim_log",
            "discard_unsettled",
            "trim_journal",
        )
        if left[0] < 0:
            raise Died
        return call(request)

    with monkeypatch.context() as patch:
        patch.setattr(store, "call", mortal)
        with pytest.raises(Died):
            run_until(Retention(), store, lambda: False)
    run_until(Retention(), store, lambda: not log(store) and not journal(store))
    stats = client.admin.queue_stats("work")
    assert (stats.acknowledged, stats.missing, stats.depth) == (600, 700, 0)


def test_an_expired_message_stays_until_its_dead_letter_is_published(store, client):
    client.apply(
        Topic(name="orders", retention_age="0s"),
        Queue(name="work", underlying_topic="orders"),
        Action.dead_letter("work", "dead"),
    )
    client.ack("work", client.publish("orders", {"id": 1}), "expire")
    settle_all(client)
    duty = Retention()
    for _ in range(3):
        duty._due.clear()
        duty.run_once(store)
    assert (log(store), journal(store)) == (1, 1)
    assert client.admin.topics()["orders"].pinned_by == "action dead-letter-work"
    Actions().run_once(store)
    (letter,) = [fields[b"b"] for _, fields in store.redis.xrange(key(store.instance, "log", "dead"))]
    assert b'"message":{"id":1}' in letter
    run_until(duty, store, lambda: not log(store) and not journal(store))


def settle_all(client):
    """Let the queue pass over what is settled already."""
    with client.subscribe("work") as messages:
        assert messages.get(0.05) is None


def test_what_is_kept_for_long_is_told_once_and_when_it_is_over(store, client, caplog):
    caplog.set_level(logging.INFO, logger="ampsq")
    client.apply(Topic(name="orders", retention_age="0s"), Queue(name="work", underlying_topic="orders"))
    bookmark = client.publish("orders", 1)
    duty = Retention(tell_after=0.0)
    for _ in range(4):
        duty._due.clear()
        duty.run_once(store)
    told = [record.getMessage() for record in caplog.records if "retention" in record.getMessage()]
    assert told == [
        f"topic orders: message {bookmark.id} is kept beyond its retention (age 0ms) by queue work, where it is waiting"
    ]
    settle(client, "work", 1)
    run_until(duty, store, lambda: "nothing is kept beyond its retention any more" in caplog.text)
    assert log(store) == 0


def test_a_hold_keeps_a_log_and_is_shown(store, client):
    client.apply(Topic(name="orders", retention_age="0s"))
    first, second = client.publish("orders", 1), client.publish("orders", 2)
    store.call(hold("orders", "replay r1", second.id, 60_000))
    duty = Retention()
    run_until(duty, store, lambda: log(store) == 1)
    facts = client.admin.topics()["orders"]
    assert (facts.first, facts.pinned, facts.pinned_by, facts.state) == (second, second, "replay r1", "")
    store.call(hold("orders", "replay r1", None))
    run_until(duty, store, lambda: not log(store))
    assert first != second


def test_a_topic_of_discarded_messages_tells_how_many_were_lost(store, client, caplog):
    client.apply(
        Topic(name="orders", retention_count=10, retention_unsettled="discard"),
        Queue(name="work", underlying_topic="orders"),
    )
    client.publish_many("orders", range(25))
    run_until(Retention(), store, lambda: log(store) == 10)
    assert "topic orders: queues lost 15 messages beyond its retention" in caplog.text
    stats = client.admin.queue_stats("work")
    assert (stats.missing, stats.waiting, stats.depth) == (15, 10, 10)


def test_publishers_are_looked_at_in_the_first_round(store, client):
    client.apply(Topic(name="orders"))
    store.redis.hset(key(store.instance, "publishers"), "old", "5 1000-0 orders")
    Retention().run_once(store)
    assert not store.redis.hexists(key(store.instance, "publishers"), "old")
