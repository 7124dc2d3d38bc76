"""Dead letters are read and chosen: what they know, what is no letter, what is asked wrongly."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from letters import define, letter_body

from ampsq.base.errors import DefinitionError, UnknownMessage, UnknownQueue


def test_a_letter_has_everything_that_is_known_of_its_end(client, died):
    letters = died([{"id": 1}], headers={"trace": "t-1"})
    (letter,) = letters
    assert (letter.queue, letter.topic, letter.reasons) == ("work", "orders", ("max_cancels",))
    assert (letter.deliveries, letter.cancels) == (1, 1)
    assert (letter.data, letter.raw, letter.headers) == ({"id": 1}, b'{"id":1}', {"trace": "t-1"})
    assert letter.original.topic == "orders"
    assert letter.bookmark.topic == "letters"
    assert timedelta(0) <= letter.age < timedelta(minutes=1)
    # And it is still there, looked at only
    assert client.admin.queue_stats("dead").depth == 1
    assert client.admin.dead_letters("dead", bookmarks=letter.bookmark)[0].raw == letter.raw


def test_the_history_of_its_deliveries_is_read_where_a_letter_has_one(client):
    define(client)
    came_back = 1_763_640_000_000
    item = {"came_back": came_back, "cause": "lapsed", "subscription": "s1", "client": "till-4"}
    text = {**item, "came_back": "2025-11-20T12:00:00.000Z"}
    strange = [{"came_back": "yesterday"}, {"came_back": 10**30}, "x", {}]
    client.publish("letters", letter_body(history=[item, text]))
    client.publish("letters", letter_body())
    client.publish("letters", letter_body(history=strange))
    first, second, third = client.admin.dead_letters("dead")
    once, again = first.history
    assert once == again == (datetime.fromtimestamp(came_back / 1000, UTC), "lapsed", "s1", "till-4")
    assert (second.history, third.history) == ((), ())


def test_letters_are_chosen_by_queue_by_reason_and_by_what_their_message_says(client):
    define(client)
    for number, (queue, reason) in enumerate(
        [("work", "max_cancels"), ("work", "max_cancels,max_deliveries"), ("audit", "forced_expire")]
    ):
        client.publish("letters", letter_body(queue, body=b'{"n":%d}' % number, reason=reason))

    def chosen(*arguments, **options):
        return [letter.data["n"] for letter in client.admin.dead_letters("dead", *arguments, **options)]

    assert chosen() == [0, 1, 2]
    assert chosen(source="work") == [0, 1]
    assert chosen(reason="max_deliveries") == [1]
    assert chosen(reason="max_cancels") == [0, 1]
    assert chosen("/message/n >= 1 OR /message/n = 0", source="audit") == [2]
    assert chosen("/message/n > 0", top_n=1) == [1]


def test_what_is_no_letter_is_left_out_of_the_list_and_told_when_it_is_named(client):
    define(client)
    strange = [client.publish("letters", body) for body in (b"\x00", {"queue": "work"}, [1], "text")]
    client.publish("letters", letter_body())
    assert len(client.admin.dead_letters("dead")) == 1
    for bookmark in strange:
        with pytest.raises(DefinitionError, match="it is no dead letter"):
            client.admin.dead_letters("dead", bookmarks=bookmark)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"reason": "max_delivery"}, "max_deliveries"),
        ({"source": "a b"}, "not a name"),
        ({"filter": "/a ="}, "column"),
        ({"bookmarks": "x", "source": "work"}, "bookmarks say which"),
    ],
)
def test_wrong_choices_teach(client, arguments, text):
    define(client)
    with pytest.raises(DefinitionError, match=text):
        client.admin.dead_letters("dead", **arguments)
    with pytest.raises(DefinitionError, match=text):
        client.admin.redrive("dead", **arguments)


def test_an_unknown_queue_of_letters_is_explained(client):
    define(client)
    with pytest.raises(UnknownQueue, match="did you mean 'dead'"):
        client.admin.dead_letters("deda")
    with pytest.raises(UnknownQueue, match="did you mean 'dead'"):
        client.admin.redrive("deda")
    with pytest.raises(UnknownMessage):
        client.admin.dead_letters("dead", bookmarks=f"letters~{client.origin}~5-0")
