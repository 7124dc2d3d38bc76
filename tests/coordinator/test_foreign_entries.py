"""Anyone may write: entries that come by a plain XADD are messages as all others."""

from __future__ import annotations

import contextlib

import pytest
from scene import data_of, pick_up, rest_of

from ampsq import Instance, Queue
from ampsq.protocol.schema import key


@pytest.fixture
def add(valkey, instance):
    """Write an entry as somebody would who knows nothing of ampsq but the key's name."""
    with contextlib.closing(valkey.client()) as redis:
        yield lambda topic, fields, **options: redis.xadd(key(instance, "log", topic), fields, **options).decode()


def test_an_entry_with_our_body_field_is_a_message(client, add):
    client.apply(Queue(name="work", underlying_topic="orders"))
    # When somebody writes an entry with our field, then what is in it is the body
    stream_id = add("orders", {"b": b'{"id":7}', "h": b'{"from":"elsewhere"}'})
    with client.subscribe("work") as messages:
        message = pick_up(messages, 1)[0]
        assert (message.data, message.headers) == ({"id": 7}, {"from": "elsewhere"})
        assert message.bookmark.id == stream_id


def test_an_entry_with_other_fields_is_a_json_object_of_them(client, add):
    client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=5))
    # When somebody writes fields of their own, some with odd bytes
    add("orders", {"id": 7, "name": "ä b:c\n1", "": ""})
    add("orders", {"raw": b"\xff\x00"})
    with client.subscribe("work", max_backlog=5) as messages:
        got = pick_up(messages, 2)
    # Then the fields are the data, as text
    assert got[0].data == {"id": "7", "name": "ä b:c\n1", "": ""}
    assert got[0].headers == {}
    assert got[1].data["raw"].encode(errors="surrogateescape") == b"\xff\x00"


def test_an_entry_of_others_is_settled_as_any_other(client, add):
    client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=5))
    add("orders", {"id": 1})
    add("orders", {"id": 2})
    with client.subscribe("work", max_backlog=5) as messages:
        first, second = pick_up(messages, 2)
        first.ack(wait=True)
        second.cancel()
        again = pick_up(messages, 1)[0]
        assert (again.data, again.delivery) == ({"id": "2"}, 2)
        again.ack(wait=True)
    assert client.admin.queue_stats("work").depth == 0


def test_without_a_coordinator_an_idle_subscription_finds_an_entry_of_others_itself(client, add):
    # Given an idle subscription and nobody who looks after the instance
    client.apply(Queue(name="work", underlying_topic="orders"))
    with client.subscribe("work") as messages:
        assert messages.get(0) is None
        # When somebody writes
        add("orders", {"id": 1})
        # Then it is found about a second later
        assert data_of(pick_up(messages, 1)) == [{"id": "1"}]


@pytest.mark.usefixtures("coordinator")
def test_a_coordinator_pushes_entries_of_others_to_an_idle_subscription(client, add):
    # Given an idle subscription over a pattern, and a coordinator
    client.apply(Queue(name="work", underlying_topic="^orders", default_publish_target="orders"))
    with client.subscribe("work", max_backlog=1) as messages:
        assert messages.get(0) is None
        # When somebody writes to a topic that is known, and to one that nobody has heard of
        add("orders", {"id": 1})
        message = pick_up(messages, 1)[0]
        assert message.data == {"id": "1"}
        message.ack(wait=True)
        add("orders-new", {"id": 2})
        # Then both come
        assert data_of(pick_up(messages, 1)) == [{"id": "2"}]


def test_ids_of_others_that_lie_in_the_future_do_not_stop_publishing(client, add):
    # Given an entry of somebody's whose ID is far ahead of the clock
    client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=5))
    client.publish("orders", "first")
    add("orders", {"b": '"future"'}, id="99999999999999-7")
    # When we publish again
    client.publish("orders", "later")
    # Then everything comes, in the order of the log
    with client.subscribe("work", max_backlog=5) as messages:
        assert data_of(pick_up(messages, 3)) == ["first", "future", "later"]


def test_entries_that_others_removed_are_counted_and_not_delivered(client, add, valkey, journal):
    # Given three messages, one delivered and cancelled, so that it waits to come again
    client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=5))
    ids = [add("orders", {"b": str(number)}) for number in range(3)]
    with client.subscribe("work") as messages:
        pick_up(messages, 1)[0].cancel(delay="0s")
        pick_up(messages, 1)
    # When somebody deletes it from the log
    with contextlib.closing(valkey.client()) as redis:
        redis.xdel(key(client.instance, "log", "orders"), ids[0])
    # Then the others come, and it is journaled as missing
    with client.subscribe("work", max_backlog=5) as messages:
        assert data_of(pick_up(messages, 2)) == [1, 2]
        assert not rest_of(messages)
    assert [(how, bookmark.id) for how, _, bookmark in journal.entries("work")] == [("missing", ids[0])]
    assert client.admin.queue_stats("work").missing == 1


def test_a_topic_that_others_wrote_to_is_made_where_defined_ones_alone_are_taken_and_that_is_told(
    client, add, start_coordinator, caplog
):
    client.apply(
        Instance(topics="defined"), Queue(name="work", underlying_topic="^orders", default_publish_target="orders")
    )
    start_coordinator()
    # When somebody writes to a topic that nobody has heard of
    with caplog.at_level("INFO", "ampsq.coordinator"), client.subscribe("work") as messages:
        add("orders-new", {"id": 1})
        # Then the message is there, and to refuse its topic would not undo that
        assert data_of(pick_up(messages, 1)) == [{"id": "1"}]
    assert ("WARNING", "topic orders-new appeared") in {(each.levelname, each.getMessage()) for each in caplog.records}
    client.publish("orders-new", {"id": 2})
