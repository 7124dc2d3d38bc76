"""Publishing: what a message may be, where it goes, and what was published comes out as it went in."""

from __future__ import annotations

import pytest
from scene import data_of, pick_up, rest_of

from ampsq import Bookmark, Queue
from ampsq.base.errors import Closed, DefinitionError

PAYLOADS = [
    {"id": 1, "price": 12.5, "nested": {"list": [1, None, True]}},
    [1, 2, 3],
    "text is JSON too",
    "",
    12345678901234567890,
    0.1,
    None,
    False,
    "umlauts äöü, a snowman ☃ and a smile \U0001f600",
    {},
]


def test_json_comes_out_as_it_went_in(either):
    # Given a queue over a topic
    either.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=100))
    # When payloads of every kind are published
    for payload in PAYLOADS:
        either.publish("orders", payload)
    # Then they come in their order, equal to what was published, the empty object still an object
    with either.subscribe("work", max_backlog=100) as messages:
        got = pick_up(messages, len(PAYLOADS))
        assert data_of(got) == PAYLOADS
        assert got[-1].raw == b"{}"
        assert not rest_of(messages)


def test_bytes_come_out_byte_by_byte(either):
    # Given bodies that are no text, no JSON, or JSON that must not be written anew
    bodies = [bytes(range(256)), b"", b"\r\n$3\r\n", b'{"a" : 1.50}', b"x" * 20_000, b"NaN{"]
    either.apply(Queue(name="work", max_per_subscription_backlog=10))
    # When they are published
    either.publish_many("work", bodies)
    # Then they are the same bytes
    with either.subscribe("work", max_backlog=10) as messages:
        assert [message.raw for message in pick_up(messages, len(bodies))] == bodies


def test_data_of_bytes_that_are_no_json_is_the_bytes(client):
    client.apply(Queue(name="work"))
    client.publish("work", b"\x00\xff")
    with client.subscribe("work") as messages:
        assert pick_up(messages, 1)[0].data == b"\x00\xff"


def test_bodies_larger_than_an_inbox_holds_come_whole_whether_pushed_or_picked_up(either):
    # Given a subscription that is there before the messages, so that they are pushed to it
    body = bytes(range(256)) * 400
    either.apply(Queue(name="work", max_per_subscription_backlog=10))
    with either.subscribe("work", max_backlog=2) as messages:
        # When more large bodies come than it has room for
        either.publish_many("work", [body + bytes([number]) for number in range(6)])
        # Then each comes whole
        got = []
        for _ in range(6):
            message = pick_up(messages, 1)[0]
            got.append(message.raw)
            message.ack(wait=True)
        assert got == [body + bytes([number]) for number in range(6)]


@pytest.mark.parametrize("data", [float("nan"), float("inf"), {"deep": [float("-inf")]}, object(), {1, 2}])
def test_what_json_cannot_say_is_refused_and_nothing_is_recorded(client, data):
    client.apply(Queue(name="work"))
    # When something is published that is not JSON, then it is refused
    with pytest.raises(DefinitionError, match="allowed: bytes, or what JSON can say"):
        client.publish("work", data)
    with pytest.raises(DefinitionError):
        client.publish_many("work", [1, data])
    # And nothing is in the queue
    assert client.admin.queue_stats("work").depth == 0


def test_headers_travel_beside_the_body(either):
    # Given a queue
    either.apply(Queue(name="work", max_per_subscription_backlog=10))
    # When messages have headers, or none
    headers = {"trace": "a:b 1\n2", "ключ": "значение", "": ""}
    either.publish("work", {"id": 1}, headers=headers)
    either.publish("work", {"id": 2})
    either.publish_many("work", [b"raw", b"raw"], headers={"kind": "raw"})
    # Then each message has its own
    with either.subscribe("work", max_backlog=10) as messages:
        got = pick_up(messages, 4)
        assert [message.headers for message in got] == [headers, {}, {"kind": "raw"}, {"kind": "raw"}]
        assert [message.raw for message in got] == [b'{"id":1}', b'{"id":2}', b"raw", b"raw"]


def test_headers_that_are_no_text_are_refused(client):
    client.apply(Queue(name="work"))
    with pytest.raises(DefinitionError, match="allowed is a dict of texts"):
        client.publish("work", 1, headers={"number": 1})
    assert client.admin.queue_stats("work").depth == 0


def test_a_bookmark_is_the_message_s_identity(client):
    # Given two queues over one topic
    client.apply(Queue(name="one", underlying_topic="orders"), Queue(name="two", underlying_topic="orders"))
    # When a message is published
    bookmark = client.publish("orders", 1)
    # Then it has the same bookmark in both, which names its topic and origin and survives being text
    for queue in ("one", "two"):
        with client.subscribe(queue) as messages:
            message = pick_up(messages, 1)[0]
            assert message.bookmark == bookmark == Bookmark.parse(str(bookmark))
            assert (message.topic, message.queue) == ("orders", queue)
    assert (bookmark.topic, bookmark.origin) == ("orders", client.origin)


def test_many_are_published_in_order_with_a_bookmark_each(either):
    # Given a queue
    either.apply(Queue(name="work", max_per_subscription_backlog=1000))
    # When 1,234 messages are published in batches of 100 from a generator
    bookmarks = either.publish_many("work", ({"n": n} for n in range(1234)))
    # Then there is a bookmark for each, all different, and indexing and slicing agree
    assert len(bookmarks) == 1234
    assert len(set(bookmarks)) == 1234
    assert bookmarks[-1] == bookmarks[1233]
    assert bookmarks[100:103] == [bookmarks[100], bookmarks[101], bookmarks[102]]
    # And the messages come in their order under those bookmarks
    with either.subscribe("work", max_backlog=1000) as messages:
        got = []
        for message in messages:
            got.append((message.data["n"], message.bookmark))
            message.ack()
            if len(got) == 1234:
                break
    assert got == list(enumerate(bookmarks))


@pytest.mark.parametrize("batch", [0, 501, -1])
def test_a_batch_outside_its_limits_is_refused(client, batch):
    client.apply(Queue(name="work"))
    with pytest.raises(DefinitionError, match="allowed is a whole number from 1 to 500"):
        client.publish_many("work", [1], batch=batch)


def test_publishing_nothing_is_nothing(client):
    client.apply(Queue(name="work"))
    assert list(client.publish_many("work", [])) == []
    assert client.admin.queue_stats("work").depth == 0


def test_a_publish_to_a_queue_s_name_goes_to_its_topic(either):
    # Given a queue over a topic of another name, and one over a pattern with a target
    either.apply(
        Queue(name="work", underlying_topic="orders"),
        Queue(name="all", underlying_topic="^ord", default_publish_target="orders-late"),
    )
    # When something is published to the queues' names
    assert either.publish("work", 1).topic == "orders"
    assert either.publish("all", 2).topic == "orders-late"
    # Then the target topic has it, with everything that reads that topic
    topics = either.admin.topics()
    assert topics["orders"].messages == 1
    assert topics["orders"].queues == ("all", "work")
    assert "work" not in topics
    assert either.admin.queue_stats("all").depth == 2
    assert either.admin.queue_stats("work").depth == 1


def test_a_topic_that_appears_later_feeds_the_queues_whose_pattern_finds_it(either):
    # Given queues over patterns and a subscription that waits
    either.apply(
        Queue(name="eu", underlying_topic="^orders/eu/", default_publish_target="orders/eu/x"),
        Queue(name="us", underlying_topic="^orders/us/", default_publish_target="orders/us/x"),
    )
    with either.subscribe("eu", max_backlog=1) as messages:
        # When topics appear by being published to
        either.publish("orders/eu/de", "de")
        either.publish("orders/us/ny", "ny")
        either.publish("other", "nobody's")
        # Then each message is in the queues that its topic matches
        message = pick_up(messages, 1)[0]
        assert (message.data, message.topic) == ("de", "orders/eu/de")
        assert not rest_of(messages)
    assert either.admin.queue_stats("us").depth == 1


def test_messages_of_several_topics_come_in_the_order_in_which_they_were_published(either):
    # Given one queue over many topics
    either.apply(
        Queue(name="all", underlying_topic="^t/", default_publish_target="t/0", max_per_subscription_backlog=500)
    )
    # When messages are published in turn to 40 topics
    for number in range(200):
        either.publish(f"t/{number * 7 % 40}", number)
    # Then they come in the order of publication
    with either.subscribe("all", max_backlog=500) as messages:
        assert data_of(pick_up(messages, 200)) == list(range(200))


def test_a_topic_that_is_published_to_before_its_queue_is_defined_is_in_the_queue(client):
    # Given messages in a topic that no queue reads
    client.publish_many("orders", [1, 2])
    # When a queue is defined over it
    client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=5))
    # Then it has them
    with client.subscribe("work", max_backlog=5) as messages:
        assert data_of(pick_up(messages, 2)) == [1, 2]


@pytest.mark.parametrize("name", ["", "with space", "a~b", "x" * 256, "ö"])
def test_a_topic_s_name_is_checked(client, name):
    with pytest.raises(DefinitionError):
        client.publish(name, 1)


def test_a_closed_client_says_so(client):
    client.apply(Queue(name="work"))
    client.close()
    client.close()
    with pytest.raises(Closed):
        client.subscribe("work")
    with pytest.raises(Closed):
        client.publish("work", 1)
