"""Queries of queues, and settling by a filter: what is seen, in which order, and that looking takes nothing."""

from __future__ import annotations

import contextlib
from collections import Counter

import pytest
from scene import data_of, pick_up

from ampsq import Queue
from ampsq.base.errors import DefinitionError, UnknownQueue
from ampsq.protocol.calls import queue_stats as stats_calls
from ampsq.protocol.context import InstanceContext
from ampsq.protocol.schema import key
from ampsq.queues.browse import Walker


def define(client, **elements):
    client.apply(Queue(name="work", **{"max_per_subscription_backlog": 1_000, **elements}))


def numbers(found):
    return [message.data["n"] for message in found]


def publish(client, count, topic="work", **fields):
    return client.publish_many(topic, [{"n": n, **fields} for n in range(count)], batch=500)


# --- queries ---------------------------------------------------------------------------------------------


def test_a_query_shows_what_is_available_and_takes_nothing(either):
    # Given a queue of more messages than one call looks through
    define(either)
    bookmarks = publish(either, 1_300)
    before = either.admin.queue_stats("work").as_dict()
    # When it is queried
    found = either.sow("work")
    # Then all are there, in order, each as it was published
    assert numbers(found) == list(range(1_300))
    assert [message.bookmark for message in found] == list(bookmarks)
    assert (found[0].raw, found[0].topic, found[0].headers, found[0].deliveries) == (b'{"n":0}', "work", {}, 0)
    # And the queue is as it was
    assert either.admin.queue_stats("work").as_dict() == before


def test_what_is_leased_is_not_shown_and_what_came_back_is_at_its_old_place(either):
    define(either)
    publish(either, 6)
    with either.subscribe("work", max_backlog=4) as messages:
        first = pick_up(messages, 4)
        assert numbers(either.sow("work")) == [4, 5]
        first[1].cancel("1h")
        first[2].ack(wait=True)
        # (the room goes to the rest)
        assert either.sow("work") == []
    # The subscription ended: what it held came back, but not what is delayed or settled.
    assert numbers(either.sow("work")) == [0, 3, 4, 5]
    assert either.sow("work")[0].deliveries == 1


def test_a_filter_leaves_out_what_does_not_match_and_what_is_no_json(either):
    define(either)
    publish(either, 1_200)
    either.publish("work", b"\xff")
    assert numbers(either.sow("work", "/n % 100 = 0")) == list(range(0, 1_200, 100))
    assert either.sow("work", "/n IS NULL OR NOT /n = 1", top_n=1)[0].data == {"n": 0}
    assert either.sow("work")[-1].data == b"\xff"


def test_what_was_found_is_shown_shortened(client):
    define(client)
    bookmark = client.publish("work", {"n": 1})
    client.publish("work", "x" * 500)
    short, long = client.sow("work")
    assert repr(short) == f"<SowMessage {bookmark}: {{'n': 1}}, deliveries 0>"
    assert "xxx..., deliveries 0>" in repr(long)
    assert len(repr(long)) < 200


def test_entries_of_others_are_shown_as_the_object_of_their_fields(client, valkey):
    define(client)
    client.publish("work", {"n": 1}, headers={"source": "test"})
    with contextlib.closing(valkey.client()) as redis:
        redis.xadd(key(client.instance, "log", "work"), {"n": "2", "raw": b"\xff"})
    first, second = client.sow("work")
    assert first.headers == {"source": "test"}
    assert second.data["n"] == "2"
    assert data_of(client.sow("work", "/n = 2")) == [second.data]


def test_an_order_has_numbers_then_strings_then_nothing(client):
    define(client)
    values = [5, "b", None, 1.5, "a", 10, [2, 99]]
    client.publish_many("work", [{"n": n, "v": value} for n, value in enumerate(values)])

    def ordered(*args, **options):
        return [message.data["v"] for message in client.sow("work", *args, **options)]

    assert ordered(order_by="/v") == [1.5, [2, 99], 5, 10, "a", "b", None]
    assert ordered(order_by="/v desc") == ["b", "a", 10, 5, [2, 99], 1.5, None]
    assert ordered(order_by=["/v IS NULL DESC", "/n DESC"], top_n=3) == [None, [2, 99], 10]


def test_what_is_equal_in_an_order_stays_in_the_order_of_delivery(client):
    define(client)
    client.publish_many("work", [{"n": n, "v": n % 3} for n in range(9)])
    assert numbers(client.sow("work", order_by="/v DESC")) == [2, 5, 8, 1, 4, 7, 0, 3, 6]


def test_a_query_gives_a_part_of_an_order(client):
    define(client)
    publish(client, 5_000)
    assert numbers(client.sow("work", order_by="/n DESC", top_n=3)) == [4_999, 4_998, 4_997]
    assert numbers(client.sow("work", order_by="/n DESC", top_n=2, skip_n=4)) == [4_995, 4_994]
    assert numbers(client.sow("work", "/n > 3", top_n=2)) == [4, 5]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"skip_n": 1}, "needs top_n"),
        ({"skip_n": 1, "top_n": 1}, "needs top_n, .* and order_by"),
        ({"top_n": 0}, "a whole number from 1"),
        ({"top_n": True}, "a whole number from 1"),
        ({"order_by": "/v UPWARDS"}, "column 4: 'UPWARDS' is no direction"),
        ({"order_by": "/v DESC, /n"}, "column 4: one expression each"),
        ({"order_by": "/v, /n"}, "column 3: one expression each"),
        ({"order_by": ["/v", 3]}, "not a text"),
        ({"filter": "/v ="}, "column"),
        ({"filter": 5}, "filter=5 is not a text; allowed: an expression"),
        ({"order_by": 5}, "order_by=5: allowed is an expression, .* or a list"),
        ({"order_by": {"/v": "DESC"}}, "order_by=.*: allowed is an expression"),
        ({"name": None}, "nothing is not a text"),
    ],
)
def test_a_query_that_cannot_be_is_refused_with_what_can(client, options, text):
    define(client)
    with pytest.raises(DefinitionError, match=text):
        client.sow(**{"name": "work", **options})


def test_a_query_of_no_queue_is_refused(client):
    with pytest.raises(UnknownQueue, match="missing"):
        client.sow("missing")


def test_a_queue_with_priorities_is_shown_by_priority(either):
    # Given messages of which some were judged, and came back, and the others were never read
    define(either, priority="/p")
    either.publish_many("work", [{"n": n, "p": n % 4} for n in range(8)])
    with either.subscribe("work", max_backlog=2) as messages:
        assert data_of(pick_up(messages, 2)) == [{"n": 3, "p": 3}, {"n": 7, "p": 3}]
    either.publish_many("work", [{"n": 8, "p": 9}, {"n": 9}])
    # Then they are shown in the order in which they would be delivered
    shown = numbers(either.sow("work"))
    assert shown == [8, 3, 7, 2, 6, 1, 5, 0, 4, 9]
    assert numbers(either.sow("work", top_n=2)) == shown[:2]
    with either.subscribe("work", max_backlog=10) as messages:
        assert [message["n"] for message in data_of(pick_up(messages, 10))] == shown


def test_the_first_ones_of_a_filtered_queue_are_found_early(client):
    # Given a queue that judges its messages, of which some have their place, some came back and some are unread
    define(client)
    publish(client, 6_000)
    with client.subscribe("work", filter="/n % 1000 = 500", max_backlog=6) as messages:
        pick_up(messages, 6)
        assert client._store.call(stats_calls.stats("work")).sorted > 4_000
    whole = numbers(client.sow("work"))
    assert whole == list(range(6_000))
    # Then the first ones are the same, and cost a few calls
    with counting(client) as sent:
        assert numbers(client.sow("work", top_n=700)) == whole[:700]
    assert sent["browse"] < 12
    assert numbers(client.sow("work", "/n > 400", top_n=200)) == whole[401:601]
    # And a walk that ends where it must has all
    assert numbers(client.sow("work", top_n=5_999)) == whole[:-1]


@contextlib.contextmanager
def counting(client):
    """The scripts that a client runs, by name."""
    sent, call = Counter(), client._store.call

    def counted(request):
        sent[request.script.name if request.script else request.arguments[0]] += 1
        return call(request)

    client._store.call = counted
    yield sent
    client._store.call = call


def test_what_waits_behind_a_barrier_is_shown(client):
    define(client, barrier_expression="/barrier = 1")
    client.publish_many("work", [{"n": 0}, {"n": 1, "barrier": 1}, {"n": 2}])
    with client.subscribe("work", max_backlog=10) as messages:
        pick_up(messages, 1)
        assert numbers(client.sow("work")) == [1, 2]


def test_only_the_active_part_is_shown_of_a_queue_with_a_target_depth(client):
    define(client, target_queue_depth=1_000)
    publish(client, 1_500)
    assert numbers(client.sow("work")) == list(range(1_000))
    assert numbers(client.sow("work", "/n % 300 = 0")) == [0, 300, 600, 900]
    with client.subscribe("work", max_backlog=100) as messages:
        for message in pick_up(messages, 100)[:50]:
            message.ack(wait=True)
        # 50 were settled and 100 are leased.
        assert numbers(client.sow("work")) == list(range(150, 1_050))


def test_several_topics_are_shown_in_the_order_of_arrival(client):
    client.apply(Queue(name="all", underlying_topic="^t", default_publish_target="t0"))
    n = 0
    while n < 3_000:
        # Runs of unlike length, so that one topic's step ends before the others'
        run = 1 + n * 7 % 50
        client.publish_many(f"t{n % 3}", [{"n": each} for each in range(n, n + run)])
        n += run
    assert numbers(client.sow("all")) == list(range(n))
    assert numbers(client.sow("all", top_n=3)) == [0, 1, 2]


def test_large_messages_come_in_several_steps(client):
    define(client)
    publish(client, 30, text="x" * 200_000)
    assert numbers(client.sow("work")) == list(range(30))


# --- walks while others work -----------------------------------------------------------------------------


@pytest.fixture
def walk(client):
    """Begin a walk; each call of what it gives is one page, None at the end."""

    def begin(**options):
        walker = Walker(InstanceContext(client.instance, client.origin), "work", **options)
        return lambda: client._store.run(walker.page())

    return begin


def rest(page):
    found = []
    while (messages := page()) is not None:
        found += [int(message.fields[b"b"][5:-1]) for message in messages]
    return found


def returned(client, count):
    """Deliver messages and let them come back, so that they are read and wait."""
    with client.subscribe("work", max_backlog=count) as messages:
        pick_up(messages, count)


def test_a_walk_ends_where_the_queue_ended_when_it_began(client, walk):
    define(client)
    publish(client, 3)
    page = walk()
    assert page() == []
    publish(client, 3)
    assert rest(page) == [0, 1, 2]


def test_what_is_leased_before_its_page_is_not_seen_and_what_comes_back_is(client, walk):
    define(client)
    publish(client, 4)
    page = walk()
    assert page() == []
    with client.subscribe("work", max_backlog=3) as messages:
        first = pick_up(messages, 3)
        first[0].cancel("1h")
        first[1].ack(wait=True)
    assert rest(page) == [2, 3]


def test_what_comes_back_behind_a_walk_is_not_seen(client, walk):
    define(client)
    publish(client, 4)
    with client.subscribe("work", max_backlog=2) as messages:
        pick_up(messages, 2)
        page = walk()
        assert page() == []
    assert rest(page) == [2, 3]


@pytest.mark.parametrize("elements", [{}, {"filter": "/n >= 0"}, {"barrier_expression": "/n = 1000"}])
def test_what_moves_while_a_walk_passes_is_seen_once(client, walk, elements):
    # Given messages that came back and others that are unread
    define(client, **elements)
    publish(client, 1_500)
    returned(client, 600)
    # When all of them are read and come back between the pages of a walk
    page, seen = walk(), []
    while (messages := page()) is not None:
        seen += [message.ref for message in messages]
        returned(client, 900)
    # Then none is seen twice, and none is missed: all were available whenever a page was read
    assert len(seen) == len(set(seen)) == 1_500


def test_what_was_sorted_after_it_was_seen_is_not_seen_again(client, walk):
    define(client, filter="/n >= 0")
    publish(client, 10)
    returned(client, 10)
    page = walk()
    assert len(page()) == 10
    with client.subscribe("work", max_backlog=1) as messages:
        pick_up(messages, 1)
        assert client.admin.queue_stats("work").ready == 9
        assert rest(page) == []


def test_a_walk_meets_among_the_leases_what_was_leased_before_its_page_and_nothing_twice(client, walk):
    define(client)
    publish(client, 3_000)
    page = walk(leased=True)
    assert page() == []
    with client.subscribe("work", max_backlog=1_000) as messages:
        pick_up(messages, 100)
        # Given a page of what is behind those 500 that are leased now
        seen = [int(message.fields[b"b"][5:-1]) for message in page()]
        assert seen[0] == 500
        # When that is leased too, and some of the others are settled
        client.ack("work", filter="/n < 250")
        pick_up(messages, 900)
        publish(client, 10)
        # Then the others are met at the end, and that page is not
        assert sorted(seen + rest(page)) == list(range(250, 3_000))


def test_a_walk_leaves_alone_what_became_active_after_it_began(client, walk):
    define(client, target_queue_depth=1_000)
    bookmarks = publish(client, 1_500)
    page = walk(leased=True)
    seen = []
    while len(seen) < 1_000:
        seen += [int(message.fields[b"b"][5:-1]) for message in page()]
    client.ack("work", bookmarks[:100])
    with client.subscribe("work", max_backlog=50, filter="/n >= 1000") as messages:
        assert pick_up(messages, 1)[0].data["n"] == 1_000
        assert rest(page) == []


# --- settling by a filter --------------------------------------------------------------------------------


def test_a_filter_settles_what_is_available_and_what_is_leased(either):
    define(either)
    publish(either, 1_300)
    with either.subscribe("work", max_backlog=50) as messages:
        pick_up(messages, 50)
        assert either.ack("work", filter="/n % 2 = 0", dry_run=True) == 650
        assert either.admin.queue_stats("work").acknowledged == 0
        assert either.ack("work", filter="/n % 2 = 0") == 650
        assert either.admin.queue_stats("work").acknowledged == 650
    assert numbers(either.sow("work")) == list(range(1, 1_300, 2))
    assert either.ack("work", filter="/n % 2 = 0") == 0


def test_a_filter_expires_with_the_reason(client, journal):
    define(client)
    bookmarks = publish(client, 3)
    assert client.ack("work", filter="/n > 0", option="expire") == 2
    assert journal.entries("work") == [("expired", "forced_expire", bookmark) for bookmark in bookmarks[1:]]


def test_a_filter_cancels_only_what_is_leased_and_each_message_once(client):
    define(client, max_cancels=3)
    publish(client, 900)
    with client.subscribe("work", max_backlog=400) as messages:
        pick_up(messages, 400)
        assert client.ack("work", filter="/n < 600", option="cancel") == 400
        assert client.admin.queue_stats("work").expired == 0


def test_a_strict_queue_keeps_its_leases_from_a_filter(client):
    define(client, leasing="strict")
    publish(client, 10)
    with client.subscribe("work", max_backlog=4) as messages:
        pick_up(messages, 4)
        assert client.ack("work", filter="TRUE_VALUE()") == 6
        assert client.admin.queue_stats("work").leased == 4


def test_a_filter_settles_the_active_part_alone(client):
    define(client, target_queue_depth=1_000)
    publish(client, 1_500)
    assert client.ack("work", filter="/n >= 990") == 10
    assert numbers(client.sow("work", "/n >= 980")) == [*range(980, 990), *range(1_000, 1_010)]


def test_counting_first_leaves_out_what_a_strict_queue_protects(either):
    define(either, leasing="strict")
    publish(either, 10)
    with either.subscribe("work", max_backlog=4) as messages:
        pick_up(messages, 4)
        assert either.ack("work", filter="/n > 1", dry_run=True) == 6
        assert either.ack("work", filter="/n > 1", option="cancel", dry_run=True) == 0
        assert either.ack("work", filter="/n > 1") == 6


def test_a_filter_leaves_delayed_messages_alone(client):
    define(client)
    publish(client, 3)
    with client.subscribe("work", max_backlog=1) as messages:
        pick_up(messages, 1)[0].cancel("1h")
        pick_up(messages, 1)
    assert client.ack("work", filter="TRUE_VALUE()") == 2
    assert client.admin.queue_stats("work").delayed == 1


def test_what_is_no_text_is_refused_with_what_is(either):
    define(either)
    with pytest.raises(DefinitionError, match="filter=5 is not a text"):
        either.ack("work", filter=5)
    with pytest.raises(DefinitionError, match="queue: nothing is not a text"):
        either.ack(None, filter="/n = 1")
    with pytest.raises(DefinitionError, match="queue: nothing is not a text"):
        either.admin.explain(None)


def test_the_other_ways_to_settle_by_a_filter_are_named(client):
    define(client)
    with pytest.raises(DefinitionError, match="'ack', 'cancel' and 'expire'"):
        client.ack("work", filter="/n = 1", option="drop")
