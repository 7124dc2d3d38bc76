"""publish_once: IDs that are known for a while, what is answered then, and how they are forgotten."""

from __future__ import annotations

import pytest
from cases import short_and_whole

from ampsq.base.errors import MissingKey, TooManyDeduplicationIds, UnknownTopic
from ampsq.protocol.limits import DEDUPLICATION_IDS

#: Adds IDs numbered from one to another, all until one moment.
FILL = """
for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do redis.call('ZADD', KEYS[1], ARGV[3], 'x' .. i) end
"""


def publish(world, *messages, window=5_000, topic="orders"):
    """Publish (ID, body), each; "" for no ID."""
    ids, bodies = zip(*messages, strict=True)
    reply = world.run("publish_once", world.now, topic, window, "b", len(messages), *ids, *bodies)
    assert reply[0] == "orders"
    return reply[1], reply[2:]


def name(entry_id):
    return f"orders~i.one~{entry_id}"


@pytest.fixture
def orders(world):
    world.topic("orders")
    world.mark()
    return world


def test_an_unknown_topic_is_refused_and_nothing_changes(world):
    world.mark()

    with pytest.raises(UnknownTopic):
        publish(world, ("a", "1"), topic="nowhere")

    assert world.changes() == {}


def test_a_first_message_is_recorded_and_its_id_is_known(orders):
    assert publish(orders, ("a", "1")) == ("1000-0", [""])

    assert orders.changes() == {
        ":log:orders": [("1000-0", {"b": "1"})],
        ":clock": "1000-0",
        ":deduplicated:orders": {"a": "6000 1000-0"},
        ":windows:orders": {"a": 6_000.0},
        ":due": {"windows orders": 6_000.0},
    }


def test_within_the_window_nothing_is_recorded_and_the_first_is_answered(orders):
    publish(orders, ("a", "1"))
    orders.mark()
    orders.now = 5_999

    assert publish(orders, ("a", "2"), window=60_000) == ("", [name("1000-0")])

    assert orders.changes() == {}


def test_when_the_window_is_over_it_is_recorded_and_a_new_window_begins(orders):
    publish(orders, ("a", "1"))
    orders.mark()
    orders.now = 6_000

    assert publish(orders, ("a", "2")) == ("6000-0", [""])

    assert orders.changes() == {
        ":log:orders": [("6000-0", {"b": "2"})],
        ":clock": "6000-0",
        ":deduplicated:orders": {"a": "11000 6000-0"},
        ":windows:orders": {"a": 11_000.0},
        ":due": {"windows orders": 11_000.0},
    }


def test_of_a_batch_what_is_known_is_left_out_wherever_it_stands(orders):
    publish(orders, ("a", "1"))
    orders.now = 2_000

    first, answers = publish(orders, ("b", "2"), ("a", "3"), ("", "4"), ("b", "5"), ("", "6"))

    assert (first, answers) == ("2000-0", ["", name("1000-0"), "", name("2000-0"), ""])
    assert [fields["b"] for _, fields in orders.state()[":log:orders"]] == ["1", "2", "4", "6"]
    assert orders.state()[":deduplicated:orders"] == {"a": "6000 1000-0", "b": "7000 2000-0"}


def test_without_an_id_no_window_is_kept(orders):
    assert publish(orders, ("", "1"), ("", "1")) == ("1000-0", ["", ""])

    assert set(orders.changes()) == {":log:orders", ":clock"}


def test_other_topics_have_windows_of_their_own(orders):
    orders.topic("returns")
    publish(orders, ("a", "1"))

    reply = orders.run("publish_once", orders.now, "returns", 5_000, "b", 1, "a", "1")

    assert reply == ["returns", "1000-1", ""]


def test_a_queue_s_name_stands_for_its_topic(world):
    world.queue("work", "orders")
    publish(world, ("a", "1"))

    assert publish(world, ("a", "2"), topic="work") == ("", [name("1000-0")])


def test_a_queue_gets_the_message_once(world):
    world.queue("work", "orders")
    subscription = world.subscribe("work", asked=5)

    publish(world, ("a", "1"), ("a", "2"))
    publish(world, ("a", "3"), ("b", "4"))

    assert [message.body for message in world.take(subscription, 5)] == ["1", "4"]


def test_a_message_without_the_topic_s_key_is_refused_and_its_id_is_not_known(world):
    world.keyed("orders", "/id")
    world.mark()

    with pytest.raises(MissingKey):
        publish(world, ("a", '{"id": 1}'), ("b", "{}"))

    assert world.changes() == {}


def test_the_sweep_forgets_what_is_over_and_looks_again_when_the_next_is(orders):
    publish(orders, ("a", "1"), window=2_000)
    publish(orders, ("b", "2"), window=9_000)
    assert orders.state()[":due"] == {"windows orders": 3_000.0}
    orders.mark()
    orders.now = 3_000

    orders.sweep_all()

    assert orders.changes() == {
        ":deduplicated:orders": {"a": None},
        ":windows:orders": {"a": None},
        ":due": {"windows orders": 10_000.0},
    }
    orders.now = 10_000
    orders.sweep_all()
    assert not {":deduplicated:orders", ":windows:orders", ":due"} & orders.state().keys()


def test_publishing_forgets_what_is_over_though_nobody_sweeps(orders):
    publish(orders, *((f"a{number}", "1") for number in range(400)))
    orders.now = 6_000

    publish(orders, ("b", "2"))

    assert orders.state()[":windows:orders"] == {"b": 11_000.0}
    assert orders.state()[":deduplicated:orders"] == {"b": "11000 6000-0"}


@short_and_whole("most", 1_000, DEDUPLICATION_IDS)
def test_beyond_the_most_ids_publishing_is_refused_and_nothing_changes(orders, most):
    server = orders.store.redis
    if most < DEDUPLICATION_IDS:
        # Fewer than by default, which the whole test fills
        orders.run("define_topic", orders.now, orders.version(), "orders", f'{{"deduplication_ids":{most}}}', 0, "", "")
    for first in range(0, most - 1, 20_000):
        last = min(first + 19_999, most - 2)
        server.eval(FILL, 1, orders.key(":windows:orders"), first, last, 9_000)
    publish(orders, ("a", "1"))

    # Given as many as may be, those that are known are answered, and what has no ID is recorded
    assert publish(orders, ("a", "2"), ("", "3")) == ("1000-1", [name("1000-0"), ""])
    clock = orders.store.redis.get(orders.key(":clock"))

    with pytest.raises(TooManyDeduplicationIds) as refusal:
        publish(orders, ("", "4"), ("b", "5"))

    assert refusal.value.detail == {
        "topic": "orders", "ids": most, "most": most, "frees_in": 5_000,
    }  # fmt: skip
    assert server.zcard(orders.key(":windows:orders")) == most
    assert server.xlen(orders.key(":log:orders")) == 2
    assert orders.store.redis.get(orders.key(":clock")) == clock
    assert server.zscore(orders.key(":windows:orders"), "b") is None

    # What is over makes room, though it is not forgotten yet
    orders.now = 9_000
    assert publish(orders, ("b", "5"))[1] == [""]
