"""A named publisher's messages are recorded once each, however often they are sent."""

from __future__ import annotations

import pytest
from scene import data_of, pick_up

from ampsq import Queue
from ampsq.base.errors import DefinitionError


def define(client):
    client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=500))


def recorded(client):
    with client.subscribe("work", max_backlog=500) as messages:
        return data_of(pick_up(messages, client.queue_stats("work").depth))


def test_a_number_that_is_recorded_answers_its_first_bookmark(connect_to_each):
    client = connect_to_each(publisher="till-1")
    define(client)
    # Given three numbered messages
    bookmarks = [client.publish("orders", number, sequence=number) for number in (1, 2, 3)]
    # When they are sent again, in any order
    again = {number: client.publish("orders", "again", sequence=number) for number in (3, 1, 2)}
    # Then each answers its first record, and nothing more is recorded
    assert [again[number] for number in (1, 2, 3)] == bookmarks
    assert recorded(client) == [1, 2, 3]


def test_a_publisher_goes_on_counting_after_a_restart(connect_to_each):
    # Given a publisher that recorded five messages, and is started again
    one = connect_to_each(publisher="till-1")
    define(one)
    bookmarks = [one.publish("orders", number) for number in range(5)]
    one.close()
    two = connect_to_each(publisher="till-1")
    # When it sends its last ones again, by number, and then new ones
    assert two.publish("orders", "again", sequence=4) == bookmarks[3]
    assert two.publish("orders", "again", sequence=5) == bookmarks[4]
    two.publish("orders", 5)
    two.publish_many("orders", [6, 7])
    assert recorded(two) == list(range(8))


def test_publishers_count_apart_from_each_other(connect_to_each):
    one, two, nobody = connect_to_each(publisher="a"), connect_to_each(publisher="b"), connect_to_each()
    define(nobody)
    one.publish("orders", "a1", sequence=1)
    two.publish("orders", "b1", sequence=1)
    nobody.publish("orders", "plain")
    nobody.publish("orders", "plain")
    assert recorded(nobody) == ["a1", "b1", "plain", "plain"]


def test_a_publisher_s_messages_carry_their_headers(connect_to_each):
    client = connect_to_each(publisher="till-1")
    define(client)
    client.publish("orders", b"\x00", headers={"a": "b"})
    with client.subscribe("work") as messages:
        message = pick_up(messages, 1)[0]
        assert (message.raw, message.headers) == (b"\x00", {"a": "b"})


def test_many_of_a_publisher_are_recorded_once(connect_to_each):
    client = connect_to_each(publisher="till-1")
    define(client)
    bookmarks = client.publish_many("orders", range(450))
    assert client.publish("orders", "again", sequence=450) == bookmarks[449]
    assert recorded(client) == list(range(450))


def test_a_duplicate_is_known_over_topics(connect):
    client = connect(publisher="till-1")
    define(client)
    client.apply(Queue(name="other"))
    bookmark = client.publish("orders", 1, sequence=1)
    assert client.publish("other", 1, sequence=1) == bookmark
    assert client.queue_stats("other").depth == 0


def test_a_number_without_a_publisher_is_refused(connect):
    client = connect()
    define(client)
    with pytest.raises(DefinitionError, match="publisher"):
        client.publish("orders", 1, sequence=1)
    with pytest.raises(DefinitionError):
        connect(publisher="no name")
    assert client.queue_stats("work").depth == 0


@pytest.mark.parametrize("sequence", [0, -1, 2**53, "1", True, 1.5])
def test_a_number_that_is_no_count_is_refused(connect, sequence):
    client = connect(publisher="till-1")
    define(client)
    with pytest.raises(DefinitionError, match="sequence"):
        client.publish("orders", 1, sequence=sequence)
    client.publish("orders", "first")
    assert client.publish("orders", "again", sequence=1).topic == "orders"
    assert client.queue_stats("work").depth == 1
