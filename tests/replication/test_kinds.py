"""Every kind of message and queue, at an instance that has only the copies: through clients and coordinators."""

from __future__ import annotations

import pytest
from observing import eventually
from sites import to

from ampsq import Action, LocalQueue, Queue, ReplicatedTopic, Topic
from ampsq.protocol.calls.publish import publish
from ampsq.protocol.schema import key


@pytest.fixture
def pair(world):
    """Two instances that replicate everything to each other: ``pair(definitions...)`` gives their clients."""

    def make(*definitions):
        topics = [each.name for each in definitions if not isinstance(each, LocalQueue)]
        a = world.site("a", *definitions, to(world, "b", topics=topics, pass_through=[".*"]))
        b = world.site("b", *definitions, to(world, "a", topics=topics, pass_through=[".*"]))
        return a, b

    return make


def log_of(client, topic="orders"):
    return [fields for _, fields in client._store.redis.xrange(key(client.instance, "log", topic))]


def test_the_state_of_the_world_is_the_same_after_changes_and_deletions(pair):
    a, b = pair(Topic(name="prices", key="/id"))

    a.publish("prices", {"id": 1, "x": 1, "y": 1})
    a.publish("prices", {"id": 2, "x": 2})
    a.delta_publish("prices", {"id": 1, "x": 5})
    a.publish("prices", {"id": 3, "x": 3})
    a.sow_delete("prices", keys=["3"])

    def rows(client):
        return sorted((row.data["id"], row.data.get("x"), row.data.get("y")) for row in client.sow("prices"))

    assert rows(a) == [(1, 5, 1), (2, 2, None)]
    eventually(lambda: rows(b) == rows(a), 30)


def test_a_deleted_record_is_deleted_behind_a_filter_too(world):
    keyed = Topic(name="prices", key="/id")
    sent = [ReplicatedTopic(name="prices", filter="/region = 'EU'")]
    a = world.site("a", keyed, to(world, "b", topics=sent, pass_through=[".*"]))
    b = world.site("b", keyed, to(world, "a", topics=sent, pass_through=[".*"]))
    for number in (1, 2, 3):
        a.publish("prices", {"id": number, "region": "EU"})
    a.publish("prices", {"id": 4, "region": "US"})
    eventually(lambda: len(b.sow("prices")) == 3, 30)

    # The last message of 2 was kept back by the filter, and all of 4.
    a.publish("prices", {"id": 2, "region": "US"})
    assert a.sow_delete("prices", keys=[1, 2, 4]) == 3

    eventually(lambda: [row.data["id"] for row in b.sow("prices")] == [3], 30)
    assert [row.data["id"] for row in a.sow("prices")] == [3]


def test_entries_that_somebody_else_wrote_and_headers_and_large_bodies_come_as_they_are(pair):
    a, b = pair(Topic(name="orders"))
    a._store.redis.xadd(key(a.instance, "log", "orders"), {"price": "12", "note": "mine"})
    a.publish("orders", {"id": 1}, headers={"trace": "x"})
    a.publish("orders", b'"' + b"x" * 3_000_000 + b'"')
    a.publish_many("orders", [{"id": number} for number in range(600)])

    eventually(lambda: len(log_of(b)) == 603, 30)

    def own(fields):
        return list(fields.items())[: len(fields) - 2]

    assert [own(fields) for fields in log_of(b)] == [list(fields.items()) for fields in log_of(a)]


def test_a_queue_by_priority_with_filters_hands_over_what_the_asking_one_may_take(pair):
    a, b = pair(
        Topic(name="orders"),
        Queue(name="work", underlying_topic="orders", priority="/p", filter="/x > 0", max_per_subscription_backlog=10),
    )
    for number in range(1, 7):
        a.publish("orders", {"p": number, "x": number % 3, "even": number % 2 == 0})

    with b.subscribe("work", max_backlog=10, filter="/even") as messages:
        got = []
        for _ in range(2):
            message = messages.get(30)
            got.append(message.data["p"])
            message.ack()
        assert messages.get(0.3) is None
    assert sorted(got) == [2, 4]
    eventually(lambda: a.admin.queue_stats("work").acknowledged == 2)
    with a.subscribe("work", max_backlog=1) as messages:
        rest = []
        while (message := messages.get(0.5)) is not None:
            rest.append(message.data["p"])
            message.ack()
    assert rest == [5, 1]


def test_a_life_ends_at_its_owner_and_everywhere(pair):
    a, b = pair(Topic(name="orders"), Queue(name="work", underlying_topic="orders", expiration="1s"))

    a.publish("orders", {"id": 1})

    eventually(lambda: a.admin.queue_stats("work").expired == 1, 30)
    eventually(lambda: b.admin.queue_stats("work").expired == 1, 30)
    assert not b._store.redis.exists(key(b.instance, "remote", "work"))


def test_a_message_for_later_is_delivered_later_by_its_owner_alone(pair):
    a, b = pair(Topic(name="orders"), Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=10))

    with b.subscribe("work", max_backlog=10) as there, a.subscribe("work", max_backlog=10) as here:
        a.publish("orders", {"id": 1}, delay="1s")
        eventually(lambda: len(log_of(b)) == 1, 30)
        assert there.get(0.3) is None
        message = here.get(30)
        assert message.data == {"id": 1}
        message.ack()
        assert there.get(0.2) is None


def test_what_fails_too_often_is_a_dead_letter_at_its_owner_once(pair):
    a, b = pair(
        Topic(name="orders"),
        Topic(name="letters"),
        Queue(name="work", underlying_topic="orders", max_cancels=2, max_per_subscription_backlog=10),
    )
    for client in (a, b):
        client.apply(Action.dead_letter("work", "letters"))
    a.publish("orders", {"id": 1})

    with b.subscribe("work", max_backlog=1) as messages:
        for _ in range(2):
            messages.get(30).cancel()

    eventually(lambda: len(log_of(b, "letters")) >= 1, 30)
    eventually(lambda: a.admin.queue_stats("work").expired == 1, 30)
    eventually(lambda: len(log_of(a, "letters")) >= 1, 30)
    # It is told by the instance that gave it up, and comes to the other one as a copy
    assert [len(log_of(client, "letters")) for client in (a, b)] == [1, 1]


def test_why_a_message_ended_is_told_at_every_instance_and_why_it_came_back_where_it_waits(pair):
    # Given two messages at their owner, each handed back with a reason
    a, b = pair(Topic(name="orders"), Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=10))
    ended, waits = a.publish_many("orders", [{"id": 1}, {"id": 2}])
    with a.subscribe("work", max_backlog=2) as messages:
        for _ in range(2):
            messages.get(30).cancel(reason="not now", delay=0)
        # When one of them is expired
        messages.get(30).expire(reason="no such flight")
        messages.get(30).cancel(reason="not yet", delay="1h")
    # Then the other instance is told all of its returns, and of the other message nothing
    eventually(lambda: b.admin.queue_stats("work").expired == 1, 30)
    told = [
        (event.event, event.details.get("consumer_reason")) for event in b.admin.history(ended).events if event.queue
    ]
    assert told == [("cancelled", "not now"), ("expired", "no such flight")]
    assert "(no such flight)" in b.admin.explain("work", ended).sentence
    assert [event.event for event in b.admin.history(waits).events if event.queue] == []
    reasons = [event.details["consumer_reason"] for event in a.admin.history(waits).events if event.queue]
    assert reasons == ["not now", "not yet"]


def test_what_costs_much_to_read_comes_over_a_link_in_order_and_records_follow_in_bounded_steps(pair):
    a, b = pair(Topic(name="prices", key="/id"))
    bodies = [f'{{"id": {number}, "l": [{"[1]," * 1_000}1]}}'.encode() for number in range(300)]
    a._store.call(publish("prices", bodies, [], "", 0))

    eventually(lambda: len(b.sow("prices")) == 300, 60)

    assert [fields[b"b"] for fields in log_of(a, "prices")] == bodies
    assert [fields[b"b"] for fields in log_of(b, "prices")] == bodies
    assert sorted(row.data["id"] for row in b.sow("prices")) == list(range(300))
