"""publish: what it records, whom it feeds, what it knows already."""

from __future__ import annotations

import pytest
from world import ref

from ampsq.base.errors import UnknownTopic


def entry(body, **fields):
    return {"b": body, **fields}


def test_publish_records_under_rising_ids_and_tells_the_queues_over_several_topics(world):
    world.queue("work", "orders", "returns")
    world.queue("audit", "orders", pattern=True)
    world.queue("alone", "orders")
    world.mark()

    reply = world.publish("orders", "one", "two")

    assert reply == ["orders", 0, "1000-0", 2]
    assert world.changes() == {
        ":log:orders": [("1000-0", entry("one")), ("1000-1", entry("two"))],
        ":clock": "1000-1",
        ":q:work:behind": {"orders": 1000.0},
        ":q:audit:behind": {"orders": 1000.0},
    }


def test_publish_twice_without_a_publisher_records_twice(world):
    world.queue("work", "orders")
    world.publish("orders", "one")
    world.mark()

    world.publish("orders", "one")

    assert world.changes() == {":log:orders": [("1000-1", entry("one"))], ":clock": "1000-1"}


def test_publish_of_nothing_changes_nothing(world):
    world.queue("work", "orders")
    world.mark()

    assert world.publish("orders") == ["orders", 0, "", 0]
    assert world.changes() == {}


def test_publish_to_an_unknown_topic_is_refused_and_changes_nothing(world):
    world.queue("work", "orders")
    world.mark()

    with pytest.raises(UnknownTopic) as refusal:
        world.publish("nowhere", "one", publisher="p", sequence=1)

    assert refusal.value.detail == {"name": "nowhere"}
    assert world.changes() == {}


def test_publish_to_a_queues_name_goes_to_its_target(world):
    world.queue("work", "orders", "returns", target="returns")
    world.mark()

    assert world.publish("work", "one") == ["returns", 0, "1000-0", 1]
    assert world.changes() == {
        ":log:returns": [("1000-0", entry("one"))],
        ":clock": "1000-0",
        ":q:work:behind": {"returns": 1000.0},
    }


def test_publish_to_a_topic_without_queues_is_recorded_only(world):
    world.topic("orders")
    world.mark()

    world.publish("orders", "one")

    assert world.changes() == {":log:orders": [("1000-0", entry("one"))], ":clock": "1000-0"}


def test_publish_pushes_to_a_free_subscription_in_the_same_step(world):
    world.queue("work", "orders", lease=5_000)
    subscription = world.subscribe("work", asked=2)
    world.mark()

    world.publish("orders", "one")

    assert world.changes() == {
        ":log:orders": [("1000-0", entry("one"))],
        ":clock": "1000-0",
        ":q:work": {"token": "1"},
        ":q:work:cursors": {"orders": "1000-0 1"},
        ":q:work:leases": {ref("1000-0"): f"1 {subscription} 1 6000 5000"},
        ":q:work:free:none": {subscription: 0.5},
        f":s:{subscription}": {"leased": "1"},
        f":s:{subscription}:inbox": ["work 1 1 6000 b d1000a0/orders", "one"],
        ":due": {"leases work": 6000.0},
    }


@pytest.mark.parametrize(("pattern", "behind"), [(True, {"orders": 1000.0}), (False, None)])
def test_publish_fills_the_room_and_leaves_the_rest_to_the_log(world, pattern, behind):
    world.queue("work", "orders", pattern=pattern)
    subscription = world.subscribe("work", asked=2)
    world.mark()

    world.publish("orders", "one", "two", "three")

    changes = world.changes()
    assert changes[":q:work:leases"] == {
        ref("1000-0"): f"1 {subscription} 1 0 0",
        ref("1000-1"): f"2 {subscription} 1 0 0",
    }
    assert changes.get(":q:work:behind") == behind
    assert changes[":q:work:free:none"] is None
    assert changes[":q:work:cursors"] == {"orders": "1000-1 2"}
    assert ":due" not in changes


def test_headers_travel_beside_the_body_and_empty_ones_are_left_out(world):
    world.queue("work", "orders")
    subscription = world.subscribe("work", asked=2)
    world.mark()

    world.run("publish", world.now, "orders", "", "", "bh", "one", '{"a":"\n:"}', "two", "")

    assert world.changes()[":log:orders"] == [
        ("1000-0", entry("one", h='{"a":"\n:"}')),
        ("1000-1", entry("two")),
    ]
    first, second = world.inbox(subscription)
    assert (first.body, first.fields, first.kind) == ("one", {"h": '{"a":"\n:"}'}, "b")
    assert (second.body, second.fields, second.kind) == ("two", {}, "b")


def test_a_publisher_may_send_headers_too(world):
    world.topic("orders")

    world.run("publish", world.now, "orders", "p", 7, "bh", "one", "{}", "two", "")

    assert world.state()[":log:orders"] == [
        ("1000-0", entry("one", h="{}", p="p", n="7")),
        ("1000-1", entry("two", p="p", n="8")),
    ]


def test_ids_are_one_order_over_all_topics_and_never_go_back_with_the_clock(world):
    world.topic("orders")
    world.topic("returns")
    world.publish("orders", "one", "two")
    world.now = 400
    world.mark()

    assert world.publish("returns", "three", "four")[2] == "1000-2"
    assert world.changes() == {
        ":log:returns": [("1000-2", entry("three")), ("1000-3", entry("four"))],
        ":clock": "1000-3",
    }


def test_a_topic_that_is_behind_already_keeps_its_older_mark(world):
    world.queue("work", "orders", pattern=True)
    world.publish("orders", "one")
    world.now = 2_000
    world.mark()

    world.publish("orders", "two")

    assert ":q:work:behind" not in world.changes()


@pytest.mark.parametrize(
    ("foreign", "ours"),
    [
        ("5000-3", "5000-4"),
        ("9007199254740995-7", "9007199254740995-8"),
        ("18446744073709551000-0", "18446744073709551000-1"),
        ("5000-18446744073709551615", "5001-0"),
    ],
)
def test_an_id_that_somebody_else_used_is_passed_by(world, foreign, ours):
    world.topic("orders")
    world.topic("returns")
    world.xadd("orders", foreign, "b", "theirs")
    world.mark()

    assert world.publish("orders", "ours")[2] == ours
    assert world.changes() == {":log:orders": [(ours, entry("ours"))], ":clock": ours}
    milliseconds, sequence = ours.split("-")
    assert world.publish("returns", "later")[2] == f"{milliseconds}-{int(sequence) + 1}"


def test_the_clock_goes_on_after_the_last_sequence_that_64_bits_hold(world):
    world.topic("orders")
    world.topic("returns")
    world.xadd("orders", "5000-18446744073709551615", "b", "theirs")
    world.run("scan_foreign_entries", world.now, "orders", "")

    assert world.publish("returns", "ours")[2] == "5001-0"


def test_a_publishers_sequence_is_recorded_with_the_message_and_remembered(world):
    world.topic("orders")
    world.mark()

    assert world.publish("orders", "one", "two", publisher="p", sequence=1) == ["orders", 0, "1000-0", 2]
    assert world.changes() == {
        ":log:orders": [("1000-0", entry("one", p="p", n="1")), ("1000-1", entry("two", p="p", n="2"))],
        ":clock": "1000-1",
        ":publishers": {"p": "2 1000-1 orders"},
    }


def test_a_batch_sent_twice_is_answered_with_its_ids_and_changes_nothing(world):
    world.queue("work", "orders")
    world.subscribe("work", asked=10)
    world.publish("orders", "one", "two", publisher="p", sequence=1)
    world.now = 9_000
    world.mark()

    reply = world.publish("orders", "one", "two", publisher="p", sequence=1)

    assert reply == ["orders", 2, "", 0, "orders~i.one~1000-0", "orders~i.one~1000-1"]
    assert world.changes() == {}


def test_of_a_batch_that_is_known_in_part_only_the_rest_is_recorded(world):
    world.queue("work", "orders")
    world.publish("orders", "one", "two", publisher="p", sequence=1)
    world.publish("orders", "noise", publisher="q", sequence=2)
    world.now = 2_000
    world.mark()

    reply = world.publish("orders", "two", "three", "four", publisher="p", sequence=2)

    assert reply == ["orders", 1, "2000-0", 2, "orders~i.one~1000-1"]
    assert world.changes() == {
        ":log:orders": [("2000-0", entry("three", p="p", n="3")), ("2000-1", entry("four", p="p", n="4"))],
        ":clock": "2000-1",
        ":publishers": {"p": "4 2000-1 orders"},
    }


def test_duplicates_are_known_across_topics_and_found_where_the_last_ones_went(world):
    world.topic("orders")
    world.topic("returns")
    world.publish("orders", "one", publisher="p", sequence=1)
    world.publish("returns", "two", publisher="p", sequence=2)
    world.mark()

    assert world.publish("returns", "two", publisher="p", sequence=2) == [
        *("returns", 1, "", 0),
        "returns~i.one~1000-1",
    ]
    assert world.publish("orders", "two", publisher="p", sequence=2) == [
        *("orders", 1, "", 0),
        "returns~i.one~1000-1",
    ]
    assert world.publish("orders", "one", publisher="p", sequence=1) == ["orders", 1, "", 0, ""]
    assert world.changes() == {}


def test_a_duplicate_whose_entry_is_gone_is_answered_without_an_id(world):
    world.topic("orders")
    world.publish("orders", "one", "two", publisher="p", sequence=1)
    world.store.redis.xdel(world.key(":log:orders"), "1000-0")
    world.mark()

    assert world.publish("orders", "one", "two", publisher="p", sequence=1) == [
        *("orders", 2, "", 0),
        *("", "orders~i.one~1000-1"),
    ]
    assert world.changes() == {}


def test_entries_of_others_that_look_like_a_publishers_do_not_disturb(world):
    world.topic("orders")
    world.publish("orders", "one", publisher="p", sequence=1)
    world.xadd("orders", "1000-1", "p", "p")
    world.xadd("orders", "1000-2", "p", "p", "n", "no number")
    world.publish("orders", "two", publisher="p", sequence=2)

    assert world.publish("orders", "one", publisher="p", sequence=1)[4:] == ["orders~i.one~1000-0"]


def test_sequences_beyond_14_digits_keep_every_digit(world):
    world.topic("orders")
    first = 9_007_199_254_740_000

    world.publish("orders", "one", "two", publisher="p", sequence=first)

    assert [fields["n"] for _, fields in world.state()[":log:orders"]] == [str(first), str(first + 1)]
    assert world.state()[":publishers"] == {"p": f"{first + 1} 1000-1 orders"}
    assert world.publish("orders", "two", publisher="p", sequence=first + 1)[1] == 1


def test_publishers_do_not_share_sequences(world):
    world.topic("orders")
    world.publish("orders", "one", publisher="p", sequence=5)

    assert world.publish("orders", "one", publisher="q", sequence=1)[1] == 0
    assert world.state()[":publishers"] == {"p": "5 1000-0 orders", "q": "1 1000-1 orders"}


def test_a_large_body_is_pushed_by_reference(world):
    world.queue("work", "orders")
    subscription = world.subscribe("work", asked=2)

    world.publish("orders", "x" * 16_340, "y" * 17_000)

    small, large = world.inbox(subscription)
    assert (small.kind, len(small.body)) == ("b", 16_340)
    assert (large.kind, large.body, large.ref) == ("r", "", ref("1000-1"))


def test_bodies_are_any_bytes(world):
    world.queue("work", "orders")
    subscription = world.subscribe("work", asked=1)
    body = bytes(range(256)) * 4

    world.publish("orders", body)

    assert world.inbox(subscription)[0].body.encode("utf-8", "surrogateescape") == body


def test_a_full_batch_is_recorded_and_pushed_in_one_call(world):
    world.queue("work", "orders", room=1_000)
    subscription = world.subscribe("work", asked=1_000)

    world.publish("orders", *(str(i) for i in range(500)))

    assert [message.body for message in world.inbox(subscription)] == [str(i) for i in range(500)]


@pytest.mark.parametrize("pattern", [True, False])
def test_what_waits_beyond_the_limit_of_a_publish_is_left_to_the_timetable(world, pattern):
    world.queue("work", "orders", pattern=pattern)
    world.publish("orders", "one", "two")
    subscription = world.subscribe("work", asked=3)
    world.mark()

    world.publish("orders", "three")

    assert [message.body for message in world.inbox(subscription)] == ["one"]
    assert world.changes()[":due"] == {"dispatch work": 1000.0}
    world.sweep_all()
    assert [message.body for message in world.inbox(subscription)] == ["one", "two", "three"]
    assert ":due" not in world.state()


@pytest.mark.parametrize("pattern", [True, False])
def test_a_push_that_leaves_nothing_leaves_nothing_to_the_timetable_either(world, pattern):
    world.queue("work", "orders", pattern=pattern)
    world.subscribe("work", asked=3)
    world.mark()

    world.publish("orders", "one")

    assert ":due" not in world.changes()
    assert ":q:work:behind" not in world.changes()
