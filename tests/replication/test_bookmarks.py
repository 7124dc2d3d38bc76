"""Bookmarks of copies: shown and taken at an instance that has only the copy, they are those of the messages."""

from __future__ import annotations

import pytest

from ampsq import Client, LocalQueue, Queue, Topic
from ampsq.base.errors import BookmarkNotFound, DefinitionError, OwnedElsewhere, UnknownMessage


def everything(subscription):
    """All that a range has."""
    with subscription as messages:
        return list(messages)


def behind(client, bookmark, **options):
    with client.subscribe_topic("orders", bookmark=bookmark, **options) as messages:
        found = []
        while (message := messages.get(0.2)) is not None:
            found.append(message.data)
        return found


# -- delivered


def test_a_message_that_is_delivered_has_the_bookmark_of_its_origin_and_its_own_headers(twins, fabric):
    a, b = twins(LocalQueue(name="work", underlying_topic="orders"))
    bookmark = a.publish("orders", {"id": 1}, headers={"kind": "new"})
    fabric.run()

    with b.subscribe("work") as messages:
        message = messages.get(30)

    assert (message.bookmark, message.headers, message.data) == (bookmark, {"kind": "new"}, {"id": 1})


def test_what_somebody_wrote_without_ampsq_has_no_fields_of_the_copy(twins, fabric):
    a, b = twins(LocalQueue(name="work", underlying_topic="orders", max_per_subscription_backlog=2))
    # One that looks like a copy's, to the letter, but for the form of the source
    bookmark, other = a.foreign("orders", x="1", v="mine"), a.foreign("orders", s="100", v="5")
    fabric.run()

    with b.subscribe("work", max_backlog=2) as messages:
        delivered = [messages.get(30), messages.get(30)]
    read = everything(b.subscribe_topic("orders", bookmark="[epoch:now]"))

    for found in (delivered, read):
        assert [message.data for message in found] == [{"x": "1", "v": "mine"}, {"s": "100", "v": "5"}]
        assert [message.bookmark for message in found] == [bookmark, other]


@pytest.mark.parametrize("wanted", ["/s IS NULL AND /v = 'mine'", "BOOKMARK() LIKE '~a[.]'", "MESSAGE_SIZE() IS NULL"])
def test_filters_see_the_fields_of_the_message_and_its_bookmark(twins, fabric, wanted):
    a, b = twins(LocalQueue(name="work", underlying_topic="orders"))
    bookmark = a.foreign("orders", x="1", v="mine")
    fabric.run()
    b.publish("orders", {"v": "other"})

    with b.subscribe("work", filter=wanted) as messages:
        delivered = [messages.get(30), messages.get(0.2)]
    read = everything(b.subscribe_topic("orders", bookmark="[epoch:now]", filter=wanted))

    assert delivered[0].bookmark == bookmark
    assert delivered[1] is None
    assert [message.bookmark for message in read] == [bookmark]
    assert [found.bookmark for found in b.sow("work", wanted)] == [bookmark]


def test_an_entry_that_ends_like_a_copy_belongs_to_the_instance_where_it_was_written(twins):
    a, _ = twins(Queue(name="work", underlying_topic="orders"), queues=("work",))

    a.foreign("orders", s="100", v="5")

    with a.subscribe("work") as messages:
        assert messages.get(30).data == {"s": "100", "v": "5"}


# -- replayed


def test_a_replay_begins_behind_the_message_of_a_bookmark_of_another_instance(twins, fabric):
    a, b = twins()
    bookmarks = [a.publish("orders", n) for n in range(3)]
    fabric.run()
    b.publish("orders", 3)

    assert behind(b, bookmarks[1]) == [2, 3]
    assert behind(b, [bookmarks[2], bookmarks[0]]) == [1, 2, 3]


def test_ranges_go_from_and_to_bookmarks_of_several_instances_in_the_order_of_the_one_that_is_asked(twins, fabric):
    a, b = twins()
    ours = b.publish("orders", "b1")
    theirs = [a.publish("orders", f"a{n}") for n in (1, 2)]
    fabric.run()

    def between(text):
        return [message.data for message in everything(b.subscribe_topic("orders", bookmark=text))]

    assert between(f"[{ours}:{theirs[0]}]") == ["b1", "a1"]
    assert between(f"({theirs[0]}:{theirs[1]}]") == ["a2"]
    with pytest.raises(DefinitionError, match="ends before it begins"):
        between(f"[{theirs[1]}:{ours}]")


def test_a_bookmark_that_is_not_here_begins_as_the_options_say(twins):
    a, b = twins()
    b.publish("orders", 1)
    bookmark = a.publish("orders", 2)

    with pytest.raises(BookmarkNotFound, match=r"is not here: its origin is a\.one, .* it is to come"):
        b.subscribe_topic("orders", bookmark=bookmark, bookmark_not_found="fail")
    with pytest.raises(BookmarkNotFound, match="is not here"):
        b.subscribe_topic("orders", bookmark=f"[epoch:{bookmark}]")
    assert behind(b, bookmark, bookmark_not_found="epoch") == [1]
    assert behind(b, bookmark) == []


def test_a_bookmark_that_a_filter_kept_out_is_not_here_and_never_will_be(twins, fabric):
    a, b = twins(filters={"orders": "/id > 1"})
    kept_out = a.publish("orders", {"id": 1})
    a.publish("orders", {"id": 2})
    fabric.run()

    with pytest.raises(BookmarkNotFound, match="a link's filter kept it out"):
        b.subscribe_topic("orders", bookmark=kept_out, bookmark_not_found="fail")


def test_a_durable_subscription_goes_on_behind_the_copies_that_it_handled(twins, fabric):
    a, b = twins()
    for n in range(3):
        a.publish("orders", n)
    fabric.run()
    with b.subscribe_topic("orders", bookmark="epoch", sub_id="audit", auto_ack=False) as messages:
        first, second = messages.get(30), messages.get(30)
        second.ack(wait=True)

    with b.subscribe_topic("orders", bookmark="most_recent", sub_id="audit") as messages:
        assert [messages.get(30).data, messages.get(30).data] == [0, 2]
    assert first.data == 0


# -- the state of the world


def test_records_have_the_bookmarks_of_their_messages_and_are_found_as_they_were_at_one(twins, fabric):
    a, b = twins(Topic(name="prices", key=["/id"]), topics=("prices",))
    first = a.publish("prices", {"id": 1, "price": 10})
    second = a.publish("prices", {"id": 1, "price": 20})
    fabric.run()

    assert [(found.bookmark, found.data["price"]) for found in b.sow("prices")] == [(second, 20)]
    assert [(found.bookmark, found.data["price"]) for found in b.sow("prices", bookmark=first)] == [(first, 10)]
    with pytest.raises(BookmarkNotFound, match="is not here"):
        b.sow("prices", bookmark=f"prices~{a.origin}~99999999999999-0")


def test_a_query_that_goes_on_tells_the_bookmarks_of_messages_and_of_ends(twins, fabric):
    a, b = twins(Topic(name="prices", key=["/id"]), topics=("prices",))
    first = a.publish("prices", {"id": 1, "price": 10})
    second = a.publish("prices", {"id": 2, "price": 20})
    fabric.run()

    with b.sow_and_subscribe("prices", oof=True, bookmark=first) as changes:
        told = [changes.get(30), changes.get(30)]
        a.sow_delete("prices", keys=["1"])
        fabric.run()
        told.append(changes.get(30))

    assert [(change.command, change.bookmark) for change in told[:2]] == [("sow", first), ("publish", second)]
    assert (told[2].command, told[2].reason, told[2].bookmark.origin) == ("oof", "deleted", a.origin)


# -- settled


def test_copies_are_acknowledged_by_the_bookmarks_of_their_messages(twins, fabric):
    a, b = twins(LocalQueue(name="work", underlying_topic="orders"))
    bookmarks = [a.publish("orders", n) for n in range(3)]
    fabric.run()

    assert b.ack("work", bookmarks[:2]) == 2
    assert b.ack("work", filter=f"BOOKMARK() = '{bookmarks[2]}'") == 1
    assert b.admin.queue_stats("work").depth == 0
    assert a.admin.queue_stats("work").depth == 3


@pytest.mark.parametrize("is_read", [False, True])
def test_what_another_instance_owns_is_not_acknowledged_here(twins, fabric, is_read):
    a, b = twins(Queue(name="work", underlying_topic="orders"), queues=("work",))
    bookmark = a.publish("orders", 1)
    fabric.run()
    if is_read:
        with b.subscribe("work") as messages:
            assert messages.get(0.1) is None

    with pytest.raises(OwnedElsewhere, match=bookmark):
        b.ack("work", bookmark)

    assert a.ack("work", bookmark) == 1


def test_bookmarks_that_are_not_here_are_refused_and_the_others_settled(twins, fabric):
    a, b = twins(LocalQueue(name="work", underlying_topic="orders"))
    here = a.publish("orders", 1)
    fabric.run()
    to_come = a.publish("orders", 2)

    with pytest.raises(UnknownMessage, match=f"message {to_come} of 'work' is not here") as refusal:
        b.ack("work", [to_come, here])

    assert refusal.value.detail["settled"] == 1
    assert b.admin.queue_stats("work").depth == 0


# -- told of


def test_what_an_earlier_incarnation_recorded_keeps_its_bookmark(twins, fabric):
    a, b = twins(LocalQueue(name="work", underlying_topic="orders", max_per_subscription_backlog=2))
    old = a.publish("orders", {"id": 1})
    fabric.run()
    a.run("begin_incarnation", "", "two")
    with Client(a.site.store.url, instance=a.site.store.instance) as again:
        new = again.publish("orders", {"id": 2})
        assert (old.origin, new.origin) == ("a.one", "a.two")

        read = everything(again.subscribe_topic("orders", bookmark="[epoch:now]"))
        with again.subscribe("work", max_backlog=2) as messages:
            delivered = [messages.get(30), messages.get(30)]
        assert [message.bookmark for message in read] == [message.bookmark for message in delivered] == [old, new]
        assert behind(again, old) == [{"id": 2}]
        assert again.admin.history(old).events[0].event == "published"
        assert again.admin.topics()["orders"].first == old
        wanted = everything(again.subscribe_topic("orders", bookmark="[epoch:now]", filter=f"BOOKMARK() = '{old}'"))
        assert [message.bookmark for message in wanted] == [old]
        assert [found.bookmark for found in again.sow("work", f"BOOKMARK() = '{new}'")] == [new]
        assert again.ack("work", [old, new]) == 2
    assert a.run("find_bookmarks", old, new) == [old.id, new.id]
    assert behind(b, old) == []


# -- Spark


def test_spark_reads_copies_with_the_bookmarks_of_their_messages_and_begins_behind_one(twins, fabric):
    pytest.importorskip("pyspark")
    from ampsq.spark.batch_reading import batch_reader  # noqa: PLC0415  (only where Spark is)
    from ampsq.spark.columns import read_schema  # noqa: PLC0415

    def rows(**more):
        options = {"url": b.site.store.url, "instance": b.site.store.instance, "topic": "orders", **more}
        reader = batch_reader(options, read_schema(options))
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
        return [(row["bookmark"], row["value"]) for batch in batches for row in batch.to_pylist()]

    a, b = twins()
    copied = [a.publish("orders", n) for n in (1, 2)]
    fabric.run()
    assert rows() == [(copied[0], b"1"), (copied[1], b"2")]

    # Others among them: entries of several kinds on one page
    ours, foreign = b.publish("orders", 3), a.foreign("orders", x="1")
    fabric.run()
    everything_there = [(copied[0], b"1"), (copied[1], b"2"), (ours, b"3"), (foreign, b'{"x":"1"}')]
    assert rows() == everything_there
    assert rows(startingBookmark=copied[0]) == everything_there[1:]
    assert rows(startingBookmark=copied[0], endingBookmark=ours) == everything_there[1:3]
    assert rows(filter=f"BOOKMARK() = '{copied[1]}'") == everything_there[1:2]
    with pytest.raises(BookmarkNotFound, match="is not on the instance of topic 'orders'"):
        rows(startingBookmark=a.publish("orders", 4))
