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
        return data_of(pick_up(messages, client.admin.queue_stats("work").depth))


def test_a_number_that_is_recorded_answers_its_first_bookmark(connect_to_each):
    client = connect_to_each()
    till = client.publisher("till-1")
    define(client)
    # Given three numbered messages
    bookmarks = [till.publish("orders", number, sequence=number).bookmark() for number in (1, 2, 3)]
    # When they are sent again, in any order
    again = {number: till.publish("orders", "again", sequence=number).bookmark() for number in (3, 1, 2)}
    # Then each answers its first record, and nothing more is recorded
    assert [again[number] for number in (1, 2, 3)] == bookmarks
    assert recorded(client) == [1, 2, 3]


def test_a_publisher_goes_on_counting_after_a_restart(connect_to_each):
    # Given a publisher that recorded five messages, and is started again
    one = connect_to_each()
    till = one.publisher("till-1")
    define(one)
    bookmarks = [till.publish("orders", number).bookmark() for number in range(5)]
    one.close()
    two = connect_to_each()
    two_till = two.publisher("till-1")
    # When it sends its last ones again, by number, and then new ones
    assert two_till.publish("orders", "again", sequence=4).bookmark() == bookmarks[3]
    assert two_till.publish("orders", "again", sequence=5).bookmark() == bookmarks[4]
    two_till.publish("orders", 5)
    two_till.publish_many("orders", [6, 7])
    assert recorded(two) == list(range(8))


def test_publishers_count_apart_from_each_other(connect_to_each):
    nobody = connect_to_each()
    one, two = nobody.publisher("a"), connect_to_each().publisher("b")
    define(nobody)
    one.publish("orders", "a1", sequence=1)
    two.publish("orders", "b1", sequence=1)
    nobody.publish("orders", "plain")
    nobody.publish("orders", "plain")
    assert recorded(nobody) == ["a1", "b1", "plain", "plain"]


def test_a_publisher_s_messages_carry_their_headers(connect_to_each):
    client = connect_to_each()
    till = client.publisher("till-1")
    define(client)
    till.publish("orders", b"\x00", headers={"a": "b"})
    with client.subscribe("work") as messages:
        message = pick_up(messages, 1)[0]
        assert (message.raw, message.headers) == (b"\x00", {"a": "b"})


def test_many_of_a_publisher_are_recorded_once(connect_to_each):
    client = connect_to_each()
    till = client.publisher("till-1")
    define(client)
    bookmarks = [each.bookmark() for each in till.publish_many("orders", range(450))]
    assert till.publish("orders", "again", sequence=450).bookmark() == bookmarks[449]
    assert recorded(client) == list(range(450))


def test_a_duplicate_is_known_over_topics(connect):
    client = connect()
    till = client.publisher("till-1")
    define(client)
    client.apply(Queue(name="other"))
    bookmark = till.publish("orders", 1, sequence=1).bookmark()
    assert till.publish("other", 1, sequence=1).bookmark() == bookmark
    assert client.admin.queue_stats("other").depth == 0


def test_a_number_without_a_publisher_is_refused(connect):
    client = connect()
    define(client)
    with pytest.raises(TypeError, match="a publisher with a name has it"):
        client.publish("orders", 1, sequence=1)
    with pytest.raises(DefinitionError):
        client.publisher("no name")
    assert client.admin.queue_stats("work").depth == 0


@pytest.mark.parametrize("sequence", [0, -1, 2**53, "1", True, 1.5])
def test_a_number_that_is_no_count_is_refused(connect, sequence):
    client = connect()
    till = client.publisher("till-1")
    define(client)
    with pytest.raises(DefinitionError, match="sequence"):
        till.publish("orders", 1, sequence=sequence)
    till.publish("orders", "first")
    assert till.publish("orders", "again", sequence=1).bookmark().topic == "orders"
    assert client.admin.queue_stats("work").depth == 1
