"""redrive: records messages for one queue alone and settles their letters in the same step, once."""

from __future__ import annotations

import pytest
from world import ref

from ampsq.base.errors import UnknownQueue, UnknownTopic
from ampsq.protocol.limits import BATCH

LETTERS = [ref(f"1000-{number}", "letters") for number in range(3)]
ACKED, UNKNOWN, HELD = "AMPSQ_ALREADY_ACKED", "AMPSQ_UNKNOWN_MESSAGE", "AMPSQ_NOT_LEASE_HOLDER"


def put_back(world, *letters, queue="dead", topic="orders", target="work", by="c/9"):
    """Return how many were put back, and ref -> code of those refused. letters: (ref, body, headers, perhaps group)."""
    number, *refused = world.run(
        "redrive", world.now, queue, topic, target, by, *(text for letter in letters for text in (*letter, "")[:4])
    )
    return number, dict(zip(refused[::2], refused[1::2], strict=True))


def acknowledged(*refs, by="c/9"):
    return {"how": "acknowledged", "reason": "redriven", "refs": " ".join(refs), "by": by}


@pytest.fixture
def dead(world):
    """Three letters in `dead`, whose messages were those of `work`, one of two queues over one topic."""

    def build(**numbers):
        world.queue("work", "orders")
        world.queue("other", "orders")
        world.queue("dead", "letters", **numbers)
        world.publish("letters", "one", "two", "three")
        world.now = 2_000
        world.mark()
        return world

    return build


def test_a_message_is_recorded_for_its_queue_and_its_letter_is_settled(dead):
    world = dead()

    assert put_back(world, (LETTERS[1], "\x00 body", '{"a":"b"}'), (LETTERS[0], "{}", "")) == (2, {})

    assert world.changes() == {
        ":log:orders": [
            ("2000-0", {"b": "\x00 body", "q": "work", "h": '{"a":"b"}'}),
            ("2000-1", {"b": "{}", "q": "work"}),
        ],
        ":clock": "2000-1",
        ":q:dead:ahead": {LETTERS[1]: "acknowledged", LETTERS[0]: "acknowledged"},
        ":q:dead:journal": [acknowledged(LETTERS[1], LETTERS[0])],
        ":q:dead": {"acknowledged": "2"},
    }


def test_a_message_has_the_group_that_its_publisher_said(dead):
    world = dead()

    assert put_back(world, (LETTERS[0], "{}", "", "alice"), (LETTERS[1], "{}", '{"a":"b"}', "bob")) == (2, {})

    assert world.changes()[":log:orders"] == [
        ("2000-0", {"b": "{}", "q": "work", "g": "alice"}),
        ("2000-1", {"b": "{}", "q": "work", "h": '{"a":"b"}', "g": "bob"}),
    ]


def test_a_second_call_and_a_letter_named_twice_change_nothing(dead):
    world = dead()
    assert put_back(world, (LETTERS[0], "one", ""), (LETTERS[0], "one", "")) == (1, {LETTERS[0]: ACKED})
    world.mark()

    assert put_back(world, (LETTERS[0], "one", ""), by="c/10") == (0, {LETTERS[0]: ACKED})
    assert world.changes() == {}


def test_a_letter_that_a_subscription_holds_stays_and_the_others_are_put_back(dead):
    world = dead(lease=5_000)
    subscription = world.subscribe("dead")
    (held,) = world.take(subscription)
    world.mark()

    letters = [(place, "body", "") for place in LETTERS[:2]]
    assert put_back(world, *letters, (ref("999-0", "letters"), "x", ""), (ref("1000-9", "letters"), "x", "")) == (
        1,
        {held.ref: HELD, ref("999-0", "letters"): ACKED, ref("1000-9", "letters"): UNKNOWN},
    )

    assert world.changes() == {
        ":log:orders": [("2000-0", {"b": "body", "q": "work"})],
        ":clock": "2000-0",
        ":q:dead:ahead": {LETTERS[1]: "acknowledged"},
        ":q:dead:journal": [acknowledged(LETTERS[1])],
        ":q:dead": {"acknowledged": "1"},
    }
    # And its holder's acknowledgement counts
    assert world.settle("acknowledged", [held], by=subscription) == {}


def test_a_letter_that_came_back_or_is_delayed_is_put_back_from_where_it_is(dead):
    world = dead(lease=5_000)
    subscription = world.subscribe("dead", asked=2)
    first, second = world.take(subscription, 2)
    world.settle("cancelled", [second], period=60_000, by=subscription)
    world.unsubscribe(subscription, {"dead": [(first.ref, first.token)]})
    world.mark()

    assert put_back(world, (first.ref, "first", ""), (second.ref, "second", "")) == (2, {})

    changes = world.changes()
    assert changes[":q:dead:ready"] in (None, {first.ref: None})
    assert f"ready dead {second.ref}" not in world.state().get(":due", {})
    assert changes[":q:dead"] == {"acknowledged": "2", "delayed": "0"}
    assert changes[":q:dead:journal"] == [acknowledged(first.ref, second.ref)]
    assert [fields["b"] for _, fields in changes[":log:orders"]] == ["first", "second"]


def test_what_is_put_back_is_pushed_to_whoever_waits_in_its_queue(dead):
    world = dead()
    subscription = world.subscribe("work")
    world.mark()

    put_back(world, (LETTERS[0], "one", ""))

    (message,) = world.inbox(subscription)
    assert (message.queue, message.body, message.delivery) == ("work", "one", 1)
    assert world.holders("work") == {ref("2000-0"): subscription}


def test_queues_over_several_topics_are_told(dead):
    world = dead()
    world.queue("wide", "orders", "returns")
    world.mark()

    put_back(world, (LETTERS[0], "one", ""))

    assert world.changes()[":q:wide:behind"] == {"orders": 2000.0}


@pytest.mark.parametrize(
    ("wrong", "error", "detail"),
    [
        ({"queue": "nowhere"}, UnknownQueue, {"queue": "nowhere"}),
        ({"target": "nowhere"}, UnknownQueue, {"queue": "nowhere"}),
        ({"topic": "returns"}, UnknownTopic, {"name": "returns", "queue": "work"}),
    ],
)
def test_what_does_not_exist_is_refused_and_nothing_changes(dead, wrong, error, detail):
    world = dead()

    with pytest.raises(error) as refusal:
        put_back(world, (LETTERS[0], "one", ""), **wrong)

    assert refusal.value.detail == detail
    assert world.changes() == {}


def test_nothing_to_put_back_changes_nothing(dead):
    world = dead()

    assert put_back(world) == (0, {})
    assert world.changes() == {}


def test_a_barrier_that_is_put_back_lets_go_what_it_held(world):
    # Given a barrier among the letters that waits for the one before it, and one behind it
    world.queue("work", "orders")
    world.queue("dead", "letters", barrier="/end = 1")
    world.publish("letters", '{"n":1}', '{"end":1}', '{"n":2}')
    subscription = world.subscribe("dead", asked=3)
    assert [message.body for message in world.take(subscription, 3)] == ['{"n":1}']
    assert set(world.state()[":q:dead:held"]) == set(LETTERS[1:])
    # When the barrier is put back
    assert put_back(world, (LETTERS[1], "x", "")) == (1, {})
    # Then nothing is held any more
    assert ":q:dead:held" not in world.state()


def test_a_full_call_is_one_journal_entry(world):
    world.queue("work", "orders")
    world.queue("dead", "letters")
    world.publish("letters", *["x"] * BATCH)
    refs = [ref(f"1000-{number}", "letters") for number in range(BATCH)]

    assert put_back(world, *((place, "x", "") for place in refs)) == (BATCH, {})

    assert len(world.state()[":q:dead:journal"]) == 1
    assert len(world.state()[":log:orders"]) == BATCH


def test_another_queue_of_the_topic_has_no_such_message(dead):
    world = dead()
    put_back(world, (LETTERS[0], "one", ""))
    world.mark()

    assert world.settle("acknowledged", {"other": [(ref("2000-0"), "")]}) == {ref("2000-0"): UNKNOWN}
    assert world.run("read_available", world.now, "other", ref("2000-0")) == [1]
    assert world.run("browse", world.now, "other", "log orders", "", "9000-0", "") == ["", 0]
    assert world.changes() == {}
    # And the one that it is for has it
    assert world.run("read_available", world.now, "work", ref("2000-0"))[1] == ref("2000-0")
    assert world.settle("acknowledged", {"work": [(ref("2000-0"), "")]}) == {}
