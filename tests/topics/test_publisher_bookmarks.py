"""``publisher|sequence`` in the place of a bookmark: read, refused, found, and told where its message is not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scene import data_of, pick_up, rest_of

from ampsq import Queue, Topic
from ampsq.base.bookmarks import Bookmark, PublisherBookmark, split_bookmarks
from ampsq.base.errors import BookmarkNotFound, DefinitionError, UnknownMessage
from ampsq.base.log_positions import NOW, parse_bookmark_spec
from ampsq.protocol.calls import publish as publish_calls
from ampsq.protocol.request import script_call

ORDERS = "orders~nyc-1.t6w1xk~1763640000000-0"


@given(st.lists(st.tuples(st.text(st.sampled_from("ab|, \\~:é"), min_size=1), st.integers(0, 2**53)), min_size=1))
def test_what_is_made_is_read_back_also_from_a_list(named):
    made = [Bookmark.of_publisher(publisher, number) for publisher, number in named]
    assert [split_bookmarks(each) for each in made] == [[each] for each in made]
    found = [Bookmark.parse(text) for text in split_bookmarks(", ".join([*made, ORDERS]))]
    assert [(each.publisher, each.sequence) for each in found[:-1]] == named
    assert found[-1] == ORDERS
    assert not isinstance(found[-1], PublisherBookmark)


def test_the_signs_that_part_names_have_a_backslash():
    assert Bookmark.of_publisher("till", 5) == "till|5"
    assert Bookmark.of_publisher("till 2, left|right", 5) == r"till\ 2\,\ left\|right|5"


@pytest.mark.parametrize("text", ["till|", "|5", "till|x", "till|-1", "till|05", "a b|5", "till|5|6", "till\\|5"])
def test_what_is_neither_is_refused(text):
    with pytest.raises(DefinitionError, match=r"allowed: .* or <publisher>\|<sequence>, as in 'till\|5'"):
        Bookmark.parse(text)
    with pytest.raises(DefinitionError, match="allowed: "):
        parse_bookmark_spec(text)


def test_words_and_bookmarks_come_before_publishers():
    assert parse_bookmark_spec("0|1|").starts[0].kind == NOW
    (end,) = parse_bookmark_spec(ORDERS).starts
    assert not isinstance(end.bookmark, PublisherBookmark)
    (end,) = parse_bookmark_spec("0|1").starts
    assert (end.bookmark.publisher, end.bookmark.sequence) == ("0", 1)


def send(client, topic, data, publisher, number):
    """The bookmark."""
    body = json.dumps(data).encode()
    recorded = client._store.call(publish_calls.publish(topic, [body], [], publisher, number))
    return Bookmark.of(topic, client.origin, recorded.first_id)


@pytest.fixture
def published(client):
    """Numbers of two publishers in two topics, by turns; by name the bookmarks."""
    client.apply(
        Topic(name="a"), Topic(name="b"), Queue(name="work", underlying_topic="a", max_per_subscription_backlog=100)
    )
    found = {}
    for number in range(1, 7):
        for publisher in ("till", "desk"):
            topic = "ab"[number % 2]
            found[publisher, number] = send(client, topic, [publisher, number], publisher, number)
    return found


def begin(client, name, bookmark, **options):
    with client.subscribe_topic(name, bookmark=bookmark, **options) as messages:
        return data_of(rest_of(messages))


def test_a_subscription_begins_behind_it(client, published):
    assert begin(client, "^[ab]$", "till|5") == [["desk", 5], ["till", 6], ["desk", 6]]
    assert begin(client, "a", "desk|4") == [["till", 6], ["desk", 6]]
    # Of several the earliest counts, of whichever form
    assert begin(client, "^[ab]$", f"now, desk|5,{published['desk', 6]}") == [["till", 6], ["desk", 6]]
    assert begin(client, "^[ab]$", ["till|6", "desk|5"]) == [["till", 6], ["desk", 6]]


@pytest.mark.usefixtures("published")
def test_ranges_have_it_at_either_end(client):
    assert begin(client, "^[ab]$", "[till|2:till|3]") == [["till", 2], ["desk", 2], ["till", 3]]
    assert begin(client, "^[ab]$", "(till|2:desk|3)") == [["desk", 2], ["till", 3]]
    with pytest.raises(DefinitionError, match="ends before it begins"):
        begin(client, "^[ab]$", "[till|3:till|2]")


@pytest.mark.usefixtures("published")
def test_a_number_that_is_not_there_is_told_or_left_out_as_a_bookmark_is(client):
    with pytest.raises(BookmarkNotFound, match=r"'till\|7' is not here: no log that was looked through"):
        begin(client, "^[ab]$", "till|7", bookmark_not_found="fail")
    assert begin(client, "a", "till|7") == []
    assert begin(client, "a", "till|7", bookmark_not_found="epoch")[0] == ["till", 2]
    # It is looked for in the topics that are read
    with pytest.raises(BookmarkNotFound):
        begin(client, "a", "till|1", bookmark_not_found="fail")


def test_messages_of_a_queue_are_settled_by_it_one_or_a_list(client, published):
    assert client.ack("work", "till|2") == 1
    assert client.ack("work", f"desk|2, till|4,{published['desk', 4]}") == 3
    with client.subscribe("work", max_backlog=10) as messages:
        assert data_of(pick_up(messages, 2)) == [["till", 6], ["desk", 6]]
    with pytest.raises(UnknownMessage, match=r"till\|9"):
        client.ack("work", ["till|9"])
    with pytest.raises(DefinitionError, match="is not a bookmark"):
        client.ack("work", "till|2,")


def test_a_message_is_explained_and_told_by_it(client, published):
    assert client.admin.explain("work", "till|2").bookmark == published["till", 2]
    assert client.admin.history("desk|3").bookmark == published["desk", 3]
    told = client.admin.explain("work", "till|9")
    assert told.reason == "not_here"
    assert "of publisher 'till' with the number 9" in told.sentence
    assert not client.admin.history("till|9").events


@pytest.mark.usefixtures("published")
def test_a_queue_begins_behind_it(client):
    client.apply(Queue(name="later", underlying_topic="a", recovery_point="till|4", max_per_subscription_backlog=10))
    with client.subscribe("later", max_backlog=10) as messages:
        assert data_of(pick_up(messages, 3)) == [["desk", 4], ["till", 6], ["desk", 6]]


def test_records_are_told_as_they_were_at_it(client):
    client.apply(Topic(name="positions", key="/id"))
    for number in range(1, 4):
        send(client, "positions", {"id": 1, "n": number}, "till", number)
    (record,) = client.sow("positions", bookmark="till|2")
    assert record.data["n"] == 2


def test_a_long_log_is_looked_through_in_short_calls(client, published):
    client.publish_many("a", [b"x" * 1_000] * 12_000)
    starts, topic = ["+"], "a"
    while starts[-1]:
        start, *found = client._store.call(
            script_call("find_numbers", [topic, starts[-1], "2", "till", "9", "till"], list)
        )
        starts.append(start.decode())
    # Then a call reads a part of it
    assert len(starts) > 5
    assert [found[0], found[2].decode()] == [0, published["till", 2]]
    assert begin(client, "a", "till|6", filter="/none = 1", bookmark_not_found="fail") == []
