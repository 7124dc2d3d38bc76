"""Names and changes that cannot be: they are refused before anything is changed, however many come with them."""

from __future__ import annotations

import contextlib

import pytest
from scene import pick_up

from ampsq import Action, Queue, Topic
from ampsq.base.errors import AmpsqError, DefinitionError, UnknownQueue
from ampsq.transport.store import Store


@pytest.fixture
def refused(client, snapshot):
    """Assert that definitions are refused together, with a text, and that not one key changed."""

    def check(*definitions, match, error=DefinitionError):
        with contextlib.closing(Store(client.url, client.instance)) as store:
            before = snapshot(store)
            with pytest.raises(error, match=match):
                client.apply(*definitions)
            assert snapshot(store) == before

    return check


def test_a_queue_that_would_hide_a_topic_is_refused(client, refused):
    # Given a topic that feeds a queue
    client.apply(Queue(name="work", underlying_topic="orders"))
    client.publish("orders", 1)
    # When a queue over something else would take its name
    refused(Queue(name="orders", underlying_topic="other"), match="'orders' is a topic")
    # Then what is published to the topic still goes there
    assert client.publish("orders", 2).topic == "orders"
    assert client.admin.queue_stats("work").depth == 2


def test_a_queue_over_its_own_topic_may_come_after_the_topic(client):
    client.publish("orders", 1)
    client.apply(Queue(name="orders"))
    assert client.admin.queue_stats("orders").depth == 1


def test_a_publish_target_that_is_a_queue_over_another_topic_is_refused(client, refused):
    client.apply(Queue(name="t", underlying_topic="u"))
    client.publish("t", 1)
    refused(Queue(name="p", underlying_topic="^t", default_publish_target="t"), match="'t' is a queue over 'u'")
    refused(Queue(name="p", underlying_topic="t"), match="'t' is a queue over 'u'")
    assert client.publish("t", 2).topic == "u"
    assert client.admin.queue_stats("t").depth == 2


def test_a_topic_with_the_name_of_a_queue_over_another_topic_is_refused(client, refused):
    client.apply(Queue(name="work", underlying_topic="orders"))
    refused(Topic(name="work"), match="'work' is a queue")
    assert client.publish("work", 1).topic == "orders"


def test_a_topic_and_a_queue_that_collide_in_one_list_are_refused_in_either_order(refused):
    topic, queue = Topic(name="work"), Queue(name="work", underlying_topic="orders")
    refused(queue, topic, match="'work'")
    refused(topic, queue, match="'work'")


def test_a_queue_and_a_target_that_collide_in_one_list_are_refused_in_either_order(refused):
    redirecting = Queue(name="t", underlying_topic="u")
    over = Queue(name="p", underlying_topic="^t", default_publish_target="t")
    refused(redirecting, over, match="'t'")
    refused(over, redirecting, match="'t'")


GOOD = (Topic(name="new-topic"), Queue(name="new-queue"), Action.dead_letter("new-queue", "new-dead"))


@pytest.mark.parametrize(
    ("bad", "error", "match"),
    [
        (Queue(name="orders", underlying_topic="other"), DefinitionError, "is a topic"),
        (Queue(name="work", underlying_topic="elsewhere"), DefinitionError, "underlying_topic"),
        (Topic(name="work"), DefinitionError, "is a queue"),
        (Action.dead_letter("nothing", "dead"), UnknownQueue, "nothing"),
        (Action.dead_letter("work", "orders"), DefinitionError, "would come back"),
        (Queue(name="once", semantics="at-most-once"), AmpsqError, "appendfsync"),
    ],
    ids=["name", "change", "topic", "unknown queue", "loop", "server"],
)
def test_of_a_list_with_one_wrong_definition_nothing_is_defined(client, refused, bad, error, match):
    client.apply(Queue(name="work", underlying_topic="orders"))
    refused(bad, *GOOD, match=match, error=error)
    refused(*GOOD, bad, match=match, error=error)
    assert list(client.admin.queues()) == ["work"]


def test_an_action_that_follows_another_queue_too_sees_what_comes_from_then_on(client, start_coordinator):
    # Given an action, a queue with a history of its own, and a message that expired in the action's queue
    client.apply(Queue(name="old"), Queue(name="new"), Action.dead_letter("old", "dead", name="letters"))
    client.ack("new", [client.publish("new", f"ancient {number}") for number in range(3)], "expire")
    client.ack("old", [client.publish("old", "one")], "expire")
    # When the action is told to follow the other queue too
    both = Action(name="letters", on=[{"expire": "old"}, {"expire": "new"}], do={"publish": "dead"})
    client.apply(both, Queue(name="dead"))
    client.ack("new", [client.publish("new", "two")], "expire")
    start_coordinator()
    with client.subscribe("dead") as letters:
        got = []
        for _ in range(2):
            letter = pick_up(letters, 1)[0]
            got.append((letter.data["queue"], letter.data["message"]))
            letter.ack(wait=True)
        assert letters.get(0.3) is None
    assert sorted(got) == [("new", "two"), ("old", "one")]
