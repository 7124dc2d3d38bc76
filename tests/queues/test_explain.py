"""Explanations of a message: each scene's sentence in full, the head, the figures, what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import Counter

import pytest
import scenes_gone
import scenes_held
import scenes_waiting
from explaining import Stage, moment, seconds
from scene import pick_up

import ampsq.queues.explain
from ampsq import AsyncClient, Queue
from ampsq.base.errors import DefinitionError, Rejected, UnknownQueue
from ampsq.queues.explain import REASONS

SCENES = [
    pytest.param(play, *play.scene, id=play.__name__)
    for scenes in (scenes_held, scenes_waiting, scenes_gone)
    for play in vars(scenes).values()
    if hasattr(play, "scene")
]


@pytest.fixture
def stage(client, connect, redis):
    return Stage(client, connect, redis)


@pytest.mark.parametrize(("play", "reason", "state"), SCENES)
def test_scene(stage, monkeypatch, play, reason, state):
    explanation, sentence = play(stage, monkeypatch) if play.__code__.co_argcount == 2 else play(stage)

    assert explanation.sentence == sentence
    assert (explanation.reason, explanation.state) == (reason, state)
    assert explanation.as_dict()["facts"] == explanation.facts


def test_every_reason_has_a_scene():
    # What other instances own is in tests/replication.
    assert {param.values[1] for param in SCENES} == set(REASONS) - {"owned_elsewhere"}


# -- the head


def test_of_messages_that_are_all_scheduled_the_first_due_is_told(stage):
    stage.queue()
    stage.queue(name="other", underlying_topic="others")
    stage.client.publish("others", 0, delay="10s")
    stage.client.publish("orders", 1, delay="1h30m")
    stage.client.publish("orders", 2, delay="2h")

    found = stage.explain()

    due, now = found.facts["next_due"], found.facts["now"]
    assert 5_390_000 < due - now <= 5_400_000
    assert (found.reason, found.facts["scheduled"], found.facts["next_due_is_exact"]) == ("empty", 2, True)
    assert found.sentence == (
        "Nothing waits in the queue: no message is leased, no message is delayed, 2 messages are scheduled (the first "
        f"due in {seconds(due - now)}, at {moment(due)}), and all else is settled."
    )


def test_behind_too_many_others_in_the_timetable_a_scheduled_message_is_not_due_before_them(stage, monkeypatch):
    monkeypatch.setattr(ampsq.queues.explain, "_TIMETABLE", 2)
    stage.queue()
    stage.queue(name="other", underlying_topic="others")
    for number in range(3):
        stage.client.publish("others", number, delay="1m")
    stage.client.publish("orders", 1, delay="2h")

    found = stage.explain()

    assert found.facts["next_due_is_exact"] is False
    assert found.facts["next_due"] <= found.facts["now"] + 60_000
    assert f"1 message is scheduled (not due before {moment(found.facts['next_due'])})" in found.sentence


def test_the_head_is_what_is_delivered_next(stage):
    # Given a queue over several topics, some of whose messages are settled ahead, or will be kept out
    stage.queue(underlying_topic="^orders", default_publish_target="orders-1", filter="/n > 0")
    first, second, _, fourth = [
        stage.client.publish(f"orders-{number % 3}", {"n": n}) for number, n in enumerate((1, 2, 0, 3))
    ]
    heads = []
    for _ in range(3):
        head = stage.explain()
        assert (head.reason, head.facts["before"], head.facts["head"]) == ("no_subscription", 0, True)
        heads.append(head.bookmark)
        stage.client.ack("work", [head.bookmark])
    assert heads == [first, second, fourth]
    assert stage.explain().reason == "empty"


def test_messages_of_all_topics_count_before_one(stage):
    stage.queue(underlying_topic="^orders", default_publish_target="orders-1")
    bookmarks = [stage.client.publish(f"orders-{number % 4}", number) for number in range(40)]
    stage.client.ack("work", bookmarks[5:10])

    assert stage.explain(bookmarks[30]).facts["before"] == 25


def test_too_much_before_a_message_is_told_as_a_least_number(stage):
    stage.queue()
    stage.client.publish_many("orders", ["x" * 10_000] * 5_000, batch=100)
    (bookmark,) = stage.publish("last")

    found = stage.explain(bookmark)

    assert not found.facts["before_is_exact"]
    assert 500 <= found.facts["before"] < 5_000
    assert f"; at least {found.facts['before']:,} messages come before it." in found.sentence


def test_a_hundred_subscriptions_are_looked_at(stage):
    stage.queue(max_per_subscription_backlog=1)
    for _ in range(130):
        stage.client.subscribe("work", max_backlog=0)
    stage.publish(1)

    found = stage.explain()

    assert len(found.facts["subscriptions"]) == 100
    assert found.facts["subscriptions_in_all"] == 130
    assert found.sentence.endswith(" and 95 more (only 100 were looked at); nothing comes before it.")


KINDS = {
    "plain": {},
    "at-most-once": {"semantics": "at-most-once", "allow_redelivery_after_crash": True},
    "filtered": {"filter": "/n > 3"},
    "priorities": {"priority": "/n % 5"},
    "barriers": {"barrier_expression": "/n % 7 = 6"},
    "topics": {"underlying_topic": "^orders", "default_publish_target": "orders-1"},
    "limits": {"max_deliveries": 2, "max_cancels": 2, "max_backlog": 7},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("filters", [(None, None), ("/n % 2 = 0", "/n % 3 = 0")])
def test_the_states_of_all_messages_are_the_queue_s_figures(stage, kind, filters):
    # Given a queue in which all kinds of things happened, by a random that is always the same
    dice = random.Random(kind)  # noqa: S311
    stage.queue(max_per_subscription_backlog=10, **KINDS[kind])
    topics = ["orders-1", "orders-2"] if kind == "topics" else ["orders"]
    subscriptions = [stage.client.subscribe("work", filter=text, max_backlog=5) for text in filters]
    bookmarks, held = [], []
    for n in range(100):
        bookmarks.append(stage.client.publish(dice.choice(topics), {"n": n}))
        message = dice.choice(subscriptions).get(0) if dice.random() < 0.6 else None
        held += [message] if message is not None and not message.is_barrier else []
        if held and dice.random() < 0.7:
            message = held.pop(dice.randrange(len(held)))
            verb, *delay = dice.choice([(message.ack,), (message.cancel,), (message.expire,), (message.cancel, "90s")])
            with contextlib.suppress(Rejected):
                verb(*delay)
        if dice.random() < 0.1:
            with contextlib.suppress(Rejected):
                stage.client.ack("work", [dice.choice(bookmarks)], dice.choice(["ack", "expire"]))
    for subscription in subscriptions:
        subscription.flush()
    # When each is explained
    states, sentences = Counter(), []
    for bookmark in bookmarks:
        found = stage.explain(bookmark)
        states[found.state] += 1
        sentences.append(found.sentence)
        assert json.loads(json.dumps(found.as_dict()))["bookmark"] == bookmark
    # Then that adds up, and the head is one of those that wait
    stats = stage.client.admin.queue_stats("work")
    kept_out = states["absent"] - stats.filtered
    assert states["leased"] == stats.leased
    assert states["ready"] == stats.ready
    assert states["held"] == stats.held
    assert states["delayed"] == stats.delayed
    assert states["waiting"] + kept_out == stats.waiting
    assert not [text for text in sentences if "{" in text or "None" in text]
    assert stage.explain().state in ("waiting", "ready", "held", "empty")


# -- what is asked wrongly, and by whom


@pytest.mark.parametrize("wrong", ["", "orders", "orders~x~1-0", "a~b.c~01-0", "two words~b.c~1-0"])
def test_what_is_no_bookmark_is_refused(stage, wrong):
    stage.queue()
    with pytest.raises(DefinitionError, match="is not a bookmark; allowed: <topic>~<origin>~<stream id>"):
        stage.explain(wrong)


def test_an_unknown_queue_is_refused(stage):
    with pytest.raises(UnknownQueue):
        stage.client.admin.explain("nowhere")


def test_it_is_the_same_on_every_server_and_for_asyncio(either, server, instance):
    either.apply(Queue(name="work", underlying_topic="orders"))
    bookmark = either.publish("orders", 1)
    pick_up(either.subscribe("work"), 1)

    async def ask():
        async with AsyncClient(server.url, instance=instance) as client:
            return [await client.admin.explain("work", bookmark), await client.admin.explain("work")]

    mine = [either.admin.explain("work", bookmark), either.admin.explain("work")]
    theirs = asyncio.run(ask())
    assert [(found.reason, found.sentence, found.bookmark) for found in mine] == [
        (found.reason, found.sentence, found.bookmark) for found in theirs
    ]
    assert [found.reason for found in mine] == ["leased", "empty"]
