"""Subscriptions to topics: live, from a place on, ranges, several topics in one order, filters, what they refuse."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
from scene import data_of, pick_up, rest_of

from ampsq import Queue, Topic
from ampsq.base.errors import BookmarkNotFound, DefinitionError, UnknownTopic
from ampsq.base.log_positions import parse_bookmark_spec
from ampsq.protocol.schema import key
from ampsq.topics.merge import Merging
from ampsq.topics.replay import LogReader


def recorded(client, *topics, number=12):
    """Record so many messages, 0, 1, 2 and so on, to the topics in turn; gives their bookmarks."""
    client.apply(*(Topic(name=topic) for topic in topics))
    return [client.publish(topics[i % len(topics)], {"i": i}) for i in range(number)]


def numbers(messages):
    return [message.data["i"] for message in messages]


def test_a_topic_that_is_no_queue_is_subscribed_to_live(either):
    # Given a topic with messages
    recorded(either, "orders")
    # When somebody subscribes to it
    with either.subscribe_topic("orders") as messages:
        # Then what was there does not come, and what is published comes, in order
        assert messages.get(0) is None
        either.publish_many("orders", ["a", "b", "c"])
        assert data_of(pick_up(messages, 3)) == ["a", "b", "c"]
        assert not rest_of(messages)


def test_a_message_that_is_published_meanwhile_wakes_a_waiting_subscription(client):
    recorded(client, "orders")
    with client.subscribe_topic("orders") as messages:
        timer = threading.Timer(0.1, client.publish, ("orders", "news"))
        timer.start()
        assert messages.get("30s").data == "news"
        timer.join()


def test_a_message_tells_what_was_recorded(client):
    # Given a message with headers
    before = datetime.now(UTC) - timedelta(seconds=1)
    client.apply(Topic(name="orders"))
    bookmark = client.publish("orders", {"i": 1}, headers={"trace": "7"})
    with client.subscribe_topic("orders", bookmark="epoch") as messages:
        message = messages.get("30s")
    # Then it says what it is
    assert (message.data, message.raw, message.topic) == ({"i": 1}, b'{"i":1}', "orders")
    assert (message.bookmark, message.headers) == (bookmark, {"trace": "7"})
    assert before < message.timestamp < datetime.now(UTC) + timedelta(seconds=1)


@pytest.mark.parametrize(
    ("asked", "begins"),
    [
        (lambda _: "epoch", 0),
        (lambda _: "EPOCH", 0),
        (lambda _: "0", 0),
        (lambda _: 0, 0),
        (lambda _: "now", 12),
        (lambda _: "0|1|", 12),
        (lambda marks: marks[4], 5),  # behind a bookmark, which was handled
        (lambda marks: [marks[9], marks[2], "now"], 3),  # the earliest
        (lambda marks: f"{marks[9]}, {marks[2]}", 3),
        (lambda _: datetime(2001, 1, 1, tzinfo=UTC), 0),  # before the log
        (lambda _: "20010101T000000Z", 0),
        (lambda _: "20010101T000000", 0),
        (lambda _: "2001-01-01T01:00:00+01:00", 0),
        (lambda _: datetime.now(UTC) + timedelta(hours=1), None),  # the future
    ],
)
def test_a_bookmark_says_where_a_subscription_begins_and_then_it_is_live(either, asked, begins):
    # Given twelve messages over two topics, in turn
    marks = recorded(either, "orders", "trades")
    # When a subscription to both begins at a place
    with either.subscribe_topic("^(orders|trades)$", bookmark=asked(marks)) as messages:
        # Then everything from there on comes, in the order in which it was recorded
        assert numbers(rest_of(messages)) == ([] if begins is None else list(range(begins, 12)))
        # And then what is published, once
        either.publish("trades", {"i": 12})
        either.publish("orders", {"i": 13})
        assert numbers(rest_of(messages)) == ([] if begins is None else [12, 13])
        assert not messages.completed


def test_a_time_begins_with_the_first_message_of_its_millisecond(client):
    # Given messages around a moment, by the server's clock
    client.apply(Topic(name="orders"))
    client.publish("orders", {"i": 0})
    time.sleep(0.01)  # so that the moment is a later millisecond
    moment = client.publish("orders", {"i": 1})
    client.publish("orders", {"i": 2})
    at = datetime.fromtimestamp(int(moment.id.split("-")[0]) / 1000, UTC)
    for asked in (at, at.isoformat(), at.strftime("%Y%m%dT%H%M%S.%fZ")):
        # Then that one is the first
        with client.subscribe_topic("orders", bookmark=asked) as messages:
            assert numbers(rest_of(messages)) == [1, 2]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (lambda marks: f"[{marks[3]}:{marks[6]}]", [3, 4, 5, 6]),
        (lambda marks: f"({marks[3]}:{marks[6]}]", [4, 5, 6]),
        (lambda marks: f"[{marks[3]}:{marks[6]})", [3, 4, 5]),
        (lambda marks: f"({marks[3]}:{marks[6]})", [4, 5]),
        (lambda marks: f"[epoch:{marks[2]})", [0, 1]),
        (lambda marks: f"[{marks[9]}:now)", [9, 10, 11]),
        (lambda _: "[0:0|1|]", list(range(12))),
        (lambda marks: f"[{marks[6]}:{marks[6]})", []),
        (lambda _: "[now:now]", []),
        (lambda _: "[20010101T000000Z:2001-01-02T00:00:00Z]", []),
        (lambda marks: f"[2001-01-01T00:00:00Z:{marks[1]}]", [0, 1]),
        # Several: each message once, in order, whatever the order of the ranges
        (lambda marks: [f"[{marks[8]}:{marks[9]}]", f"[{marks[1]}:{marks[3]})"], [1, 2, 8, 9]),
        (lambda marks: f"[{marks[1]}:{marks[5]}],[{marks[4]}:{marks[7]})", [1, 2, 3, 4, 5, 6]),
    ],
)
def test_a_range_ends_and_says_so(either, asked, expected):
    # Given twelve messages over three topics, in turn
    marks = recorded(either, "a", "b", "c")
    # When ranges are asked for
    with either.subscribe_topic("^[abc]$", bookmark=asked(marks)) as messages:
        # Then their messages come, and the iteration ends
        assert numbers(messages) == expected
        assert messages.completed
        assert messages.get("5s") is None


def test_a_range_that_ends_in_the_future_is_live_until_then(client):
    recorded(client, "orders", number=2)
    ends = datetime.now(UTC) + timedelta(milliseconds=700)
    with client.subscribe_topic("orders", bookmark=f"[epoch:{ends.isoformat()}]") as messages:
        assert numbers(pick_up(messages, 2)) == [0, 1]
        client.publish("orders", {"i": 2})
        assert numbers(pick_up(messages, 1)) == [2]
        assert not messages.completed
        # When the time has come, it is completed, also without a message
        assert messages.get("5s") is None
        assert messages.completed
        assert datetime.now(UTC) >= ends


def test_a_bookmark_on_a_queue_replays_its_underlying_topics_and_takes_nothing(client):
    # Given a queue over two topics with a leased message
    recorded(client, "orders-1", "orders-2", number=4)
    client.apply(Queue(name="work", underlying_topic="^orders-", default_publish_target="orders-1"))
    with client.subscribe("work") as working:
        assert working.get("30s") is not None
        # When its topics are read
        with client.subscribe_topic("work", bookmark="[epoch:now]") as messages:
            assert numbers(messages) == [0, 1, 2, 3]
        stats = client.admin.queue_stats("work")
        assert (stats.leased, stats.depth) == (1, 4)


def test_topics_that_come_later_are_included(client):
    recorded(client, "orders-1", number=1)
    with client.subscribe_topic("^orders-", bookmark="now") as messages:
        assert messages.get(0) is None
        client.publish("orders-2", {"i": 1})
        client.publish("other", {"i": 2})
        client.publish("orders-1", {"i": 3})
        assert sorted(numbers(pick_up(messages, 2))) == [1, 3]
        assert not rest_of(messages)


def test_a_pattern_may_match_nothing_yet(client):
    with client.subscribe_topic("^later", bookmark="epoch") as messages:
        assert messages.get(0.1) is None
        client.publish("later-1", "x")
        assert messages.get("30s").data == "x"


def test_only_what_a_filter_matches_comes(either):
    recorded(either, "orders", number=20)
    with either.subscribe_topic("orders", bookmark="[epoch:now]", filter="/i >= 5 AND /i < 8") as messages:
        assert numbers(messages) == [5, 6, 7]


def test_what_others_wrote_comes_as_json_and_what_is_for_one_queue_does_not_come_again(client, valkey):
    # Given a log with a message, an entry of somebody else, and a message that was put back for one queue alone
    client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=10))
    client.publish("orders", "first")
    log = "{" + client.instance + "}:log:orders"
    with valkey.client() as redis:
        redis.xadd(log, {"name": "x", "n": "1"})
        redis.xadd(log, {"b": '"again"', "q": "work"})
        redis.xadd(log, {"b": "", "q": "~", "k": "gone"})
    # When the topic is read
    with client.subscribe_topic("orders", bookmark="epoch") as messages:
        # Then each message that was published comes once
        assert data_of(rest_of(messages)) == ["first", {"name": "x", "n": "1"}]


def test_what_others_wrote_under_lower_ids_comes_too(client, valkey):
    # Given a live subscription to two topics, and a message in one of them
    client.apply(Topic(name="a"), Topic(name="b"))
    with client.subscribe_topic("^[ab]$", bookmark="now") as messages:
        mark = client.publish("a", "ours")
        assert messages.get("30s").data == "ours"
        # When somebody writes an entry with a lower ID into the other one
        before = f"{int(mark.id.split('-')[0]) - 1}-0"
        with valkey.client() as redis:
            redis.xadd("{" + client.instance + "}:log:b", {"b": '"theirs"'}, id=before)
        # Then it comes, late
        assert messages.get("30s").data == "theirs"


@pytest.mark.parametrize(
    "wrong",
    [
        "yesterday",
        "",
        [],
        "[epoch:now",
        "[epoch]",
        "[a:b]",
        "orders~x",
        5,
        True,
        datetime(2026, 1, 1),  # noqa: DTZ001  (that is the point)
        "[epoch:now],epoch",
        "most_recent",
    ],
)
def test_a_bookmark_that_is_none_is_refused_and_what_is_allowed_is_said(client, wrong):
    client.apply(Topic(name="orders"))
    with pytest.raises(DefinitionError, match=r"allowed|sub_id"):
        client.subscribe_topic("orders", bookmark=wrong)


@pytest.mark.parametrize(
    "options",
    [
        {"rate": 0},
        {"rate": "fast"},
        {"rate": 10**400},
        {"rate": "0X"},
        {"rate": 5, "rate_max_gap": "1s"},
        {"rate_max_gap": "1s"},
        {"bookmark_not_found": "never"},
        {"bookmark_store": "file", "sub_id": "x"},
        {"sub_id": "a b"},
        {"fully_durable": "yes"},
    ],
)
def test_an_option_that_is_wrong_is_refused(client, options):
    client.apply(Topic(name="orders"))
    with pytest.raises(DefinitionError):
        client.subscribe_topic("orders", **{"bookmark": "epoch", **options})


def test_a_name_that_nothing_has_is_refused(client):
    client.apply(Topic(name="orders"))
    with pytest.raises(
        UnknownTopic, match=r"'order' is neither a topic nor a queue; did you mean 'orders'\? For a topic"
    ):
        client.subscribe_topic("order", bookmark="epoch")
    with pytest.raises(TypeError, match="speed"):
        client.subscribe_topic("orders", bookmark="epoch", speed=1)


def test_a_topic_that_nobody_used_yet_is_waited_for_and_told(client, caplog):
    client.apply(Topic(name="orders"))
    with (
        client.subscribe_topic("prices", bookmark="now") as live,
        client.subscribe_topic("prices", bookmark="epoch", sub_id="audit") as durable,
    ):
        assert "no topic 'prices' yet; waiting" in caplog.text
        assert live.get(0) is None
        client.publish("prices", 1)
        client.publish("orders", 2)
        for messages in (live, durable):
            assert messages.get("30s").data == 1
            assert messages.get(0.1) is None


def test_what_is_not_waited_for_says_how(client):
    client.apply(Topic(name="orders"))
    # What is like a name that there is was meant to be that
    with pytest.raises(UnknownTopic, match=r"did you mean 'orders'\? For a topic that is to come: client\.apply"):
        client.subscribe_topic("order", bookmark="now")
    # What has an end would be over at once
    with pytest.raises(UnknownTopic, match="'prices' is neither a topic nor a queue"):
        client.subscribe_topic("prices", bookmark="[epoch:now]")


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("[2026-05-02T09:00:00Z:2026-05-01T09:00:00Z)", "from 2026-05-02T09:00:00Z to 2026-05-01T09:00:00Z"),
        ("(now:epoch]", "from now to epoch"),
        ("[2026-05-02T09:00:00Z:epoch]", "from 2026-05-02T09:00:00Z to epoch"),
        ("[now:2020-01-01T00:00:00.250Z]", r"from now to 2020-01-01T00:00:00\.250Z"),
        ("[2999-01-01T00:00:00Z:now]", "from 2999-01-01T00:00:00Z to now"),
    ],
)
def test_a_range_that_ends_before_it_begins_is_refused_with_both_ends(client, text, ends):
    client.apply(Topic(name="orders"))
    with pytest.raises(DefinitionError, match=f"{ends} ends before it begins"):
        client.subscribe_topic("orders", bookmark=text)


def test_a_range_of_bookmarks_that_ends_before_it_begins_is_refused_and_an_empty_one_is_not(client):
    client.apply(Topic(name="orders"))
    marks = client.publish_many("orders", range(3))
    with pytest.raises(DefinitionError, match=f"from {marks[2]} to {marks[0]} ends before it begins"):
        client.subscribe_topic("orders", bookmark=["[epoch:now]", f"[{marks[2]}:{marks[0]}]"])
    with client.subscribe_topic("orders", bookmark=[f"({marks[1]}:{marks[1]})", f"({marks[2]}:now]"]) as messages:
        assert not list(messages)
        assert messages.completed


def test_several_names_in_a_list_are_refused_with_what_says_the_same(client):
    with pytest.raises(DefinitionError, match=r"a regular expression, as in '\^\(a\|b\)\$'"):
        client.subscribe_topic(["a", "b"], bookmark="epoch")
    with pytest.raises(DefinitionError, match="a regular expression"):
        client.subscribe(["a", "b"])


async def _later(message):
    """A handler that somebody has to await."""


def test_a_handler_that_nothing_calls_or_awaits_is_refused_at_once(client):
    client.apply(Topic(name="orders"))
    with pytest.raises(DefinitionError, match=r"coroutine function.*AsyncClient"):
        client.subscribe_topic("orders", bookmark="epoch", on_message=_later)
    with pytest.raises(DefinitionError, match="on_message=5"):
        client.subscribe_topic("orders", bookmark="epoch", on_message=5)


def test_pages_follow_the_sizes_of_bodies(client, monkeypatch):
    # Given small bodies, then large ones, then small ones
    client.apply(Topic(name="orders"))
    large = b'"' + b"x" * 200_000 + b'"'
    client.publish_many("orders", [b"1"] * 1_000)
    client.publish_many("orders", [large] * 250, batch=5)
    client.publish_many("orders", [b"2"] * 1_000)
    pages, resize = [], Merging._resize

    def noted(reader, got):
        pages.append([sum(map(len, flat)) for entries in got.values() for _, flat in entries])
        resize(reader, got)

    monkeypatch.setattr(Merging, "_resize", noted)
    # When all is read
    with client.subscribe_topic("orders", bookmark="[epoch:now]") as messages:
        assert sum(1 for _ in messages) == 2_250
    # Then it begins with few, and a page is a megabyte, but for that in which bodies became large
    numbers = [len(page) for page in pages]
    assert (numbers[:5], max(numbers)) == ([4, 16, 64, 200, 200], 200)
    assert sorted(map(sum, pages))[-2] < 1_100_000
    # And many again once they are small
    assert 200 in numbers[numbers.index(200) + 8 :]


def test_a_bookmark_of_another_origin_is_not_found(client):
    marks = recorded(client, "orders")
    other = str(marks[3]).replace(client.origin, "elsewhere.1")
    with client.subscribe_topic("orders", bookmark=other) as messages:
        assert not rest_of(messages)
    with client.subscribe_topic("orders", bookmark=other, bookmark_not_found="epoch") as messages:
        assert len(rest_of(messages)) == 12
    with pytest.raises(BookmarkNotFound):
        client.subscribe_topic("orders", bookmark=other, bookmark_not_found="fail")


def test_a_reader_gives_entries_that_are_no_messages_too(client, valkey):
    # Given a log with a message, an entry for one queue and one for nobody's delivery
    client.apply(Topic(name="orders"))
    client.publish("orders", "first")
    with valkey.client() as redis:
        log = key(client.instance, "log", "orders")
        redis.xadd(log, {"b": '"again"', "q": "work"})
        redis.xadd(log, {"b": "", "q": "~", "what": "deleted"})
    # When somebody reads entries
    store = client._store
    with store.pipeline() as channel:
        reader = LogReader(client.instance, client.origin, "orders", parse_bookmark_spec("[epoch:now]"), holder="test")
        store.run(reader.open(channel))
        entries = []
        while not reader.completed:
            entries += store.run(reader.read(channel))
            store.run(reader.read_ahead(channel))
        store.run(reader.close(channel))
    # Then all of them come, in order, and nothing is held any more
    assert [fields[1] for _, _, fields in entries] == [b'"first"', b'"again"', b""]
    with valkey.client() as redis:
        assert not redis.exists(key(client.instance, "holds", "orders"))


def test_many_topics_are_read_in_one_order(client):
    # Given 300 topics, of which one has much more than the others
    names = [f"t-{number}" for number in range(300)]
    client.apply(*(Topic(name=name) for name in names))
    expected = []
    for number in range(30):
        many = range(len(expected), len(expected) + 100)
        client.publish_many("t-7", many)
        expected += many
        client.publish(names[number * 9], len(expected))
        expected.append(len(expected))
    # When they are read, then everything comes in order
    with client.subscribe_topic("^t-", bookmark="[epoch:now]") as messages:
        assert [message.data for message in messages] == expected


def test_messages_are_read_and_chosen_by_the_message_type_of_their_topic(client):
    # Given topics of several message types
    client.apply(
        Topic(name="text"), Topic(name="fields", message_type="nvfix"), Topic(name="bytes", message_type="binary")
    )
    client.publish("text", {"qty": 5})
    client.publish("fields", {"qty": "7"})
    client.publish("fields", {"qty": "1"})
    client.publish("bytes", b'{"qty":9}')
    # When they are read, then each body is what its type says
    with client.subscribe_topic("^(text|fields|bytes)$", bookmark="[epoch:now]") as messages:
        got = [(message.data, message.message_type) for message in messages]
    assert got == [({"qty": 5}, "json"), ({"qty": "7"}, "nvfix"), ({"qty": "1"}, "nvfix"), (b'{"qty":9}', "binary")]
    # A filter reads those that have fields, and is refused where none can be read
    with client.subscribe_topic("^(text|fields)$", bookmark="[epoch:now]", filter="/qty > 3") as messages:
        assert data_of(messages) == [{"qty": 5}, {"qty": "7"}]
    with pytest.raises(DefinitionError, match="binary"):
        client.subscribe_topic("bytes", bookmark="epoch", filter="/qty > 3")
