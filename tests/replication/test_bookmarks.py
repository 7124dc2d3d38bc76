"""Bookmarks of copies: shown and taken at an instance that has only the copy, they are those of the messages."""

from __future__ import annotations

import pytest
from observing import eventually

from ampsq import Action, Client, Do, GroupLocalQueue, LocalQueue, On, Queue, Topic
from ampsq.base.errors import BookmarkNotFound, DefinitionError, OwnedElsewhere, UnknownMessage
from ampsq.coordinator.actions import Actions


class Twin:
    """An instance of a fabric with a client."""

    def __init__(self, site, client):
        self.site, self.client, self.run = site, client, site.run

    def __getattr__(self, name):
        return getattr(self.client, name)

    def foreign(self, topic, **fields):
        """The bookmark of an entry that somebody writes without ampsq."""
        stream_id = self.site.store.redis.xadd(self.site.key("log", topic), fields)
        return f"{topic}~{self.origin}~{stream_id.decode()}"


@pytest.fixture
def twins(fabric, request):
    """Two instances with clients, linked both ways: ``twins(definitions...)`` gives them."""

    def made(*definitions, topics=("orders",), queues=(), filters=None):
        found = []
        for name in ("a", "b"):
            site = fabric.site(name)
            client = Client(site.store.url, instance=site.store.instance)
            request.addfinalizer(client.close)
            client.apply(Topic(name="orders"), *definitions)
            found.append(Twin(site, client))
        fabric.join(found[0].site, found[1].site, topics=topics, queues=queues, filters=filters)
        return found

    return made


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


def test_explain_says_who_owns_a_message_and_how_to_get_it(twins, fabric):
    a, b = twins(Queue(name="work", underlying_topic="orders"), queues=("work",))
    bookmark = a.publish("orders", 1)
    fabric.run()

    told = b.admin.explain("work", bookmark)
    assert (told.bookmark, told.state, told.reason) == (bookmark, "remote", "owned_elsewhere")
    assert told.sentence == (
        "The message is owned elsewhere, by instance a, which delivers it; nobody is subscribed to the queue here, so "
        "that this instance does not ask for it."
    )
    assert told.facts["owner"] == "a"
    assert b.admin.explain("work").bookmark == bookmark

    with b.subscribe("work") as messages:
        assert messages.get(0.1) is None
        assert "this instance asks for it" in b.admin.explain("work", bookmark).sentence
        assert b.site.ask("work") > 0
        # Its owner offers it, and it is named
        fabric.links["b", "a"].step()
        fabric.links["a", "b"].step()
        assert "this instance asked for it" in b.admin.explain("work", bookmark).sentence
        assert b.admin.explain("work", bookmark).facts["asked"] > 0
        fabric.run()
        assert messages.get(30).bookmark == bookmark
        assert b.admin.explain("work", bookmark).reason == "leased"
    told = a.admin.explain("work", bookmark)
    assert (told.reason, told.facts["owner"]) == ("owned_elsewhere", "b")


def test_a_group_local_queue_s_message_is_owned_by_the_instance_that_the_queue_names(twins, fabric):
    a, b = twins(GroupLocalQueue(name="work", underlying_topic="orders", initial_owner="b"), queues=("work",))
    bookmark = a.publish("orders", 1)
    fabric.run()

    assert a.admin.explain("work", bookmark).facts["owner"] == "b"
    assert b.admin.explain("work", bookmark).reason == "no_subscription"


def test_a_barrier_is_named_by_its_bookmark_in_what_is_told_of_those_behind_it(twins, fabric):
    a, b = twins(LocalQueue(name="work", underlying_topic="orders", barrier_expression="/end = 1"))
    first, barrier, second = (a.publish("orders", data) for data in ({"id": 1}, {"end": 1}, {"id": 2}))
    fabric.run()

    with b.subscribe("work") as messages:
        assert messages.get(30).bookmark == first
        told = b.admin.explain("work", second)

    assert (told.reason, told.facts["barrier"]) == ("behind_barrier", barrier)
    assert barrier in told.sentence


def test_a_message_that_is_not_here_is_explained(twins):
    a, b = twins(Queue(name="work", underlying_topic="orders"), queues=("work",))
    bookmark = a.publish("orders", 1)

    told = b.admin.explain("work", bookmark)

    assert (told.bookmark, told.state, told.reason) == (bookmark, "absent", "not_here")
    assert told.facts == {"topic": "orders", "recorded": False, "may_come": True}


def test_history_tells_where_a_message_came_from_and_who_did_what(twins, fabric):
    a, b = twins(Queue(name="work", underlying_topic="orders"), queues=("work",))
    bookmark = a.publish("orders", 1)
    fabric.run()
    with b.subscribe("work") as messages:
        b.site.ask("work")
        fabric.run()
        messages.get(30).ack(wait=True)
    fabric.run()

    at_b, at_a = b.admin.history(bookmark), a.admin.history(bookmark)

    assert at_b.recorded
    assert [(event.event, event.details.get("instance")) for event in at_b.events] == [
        ("published", "a"), ("received", None), ("transferred", "a"), ("acknowledged", None),
    ]  # fmt: skip
    assert at_b.events[1].details == {"from": "a", "path": ["a"]}
    assert (at_b.events[2].details["to"], at_b.events[2].details["epoch"]) == ("b", 1)
    assert [(event.event, event.details.get("instance")) for event in at_a.events] == [
        ("published", None), ("transferred", None), ("acknowledged", "b"),
    ]  # fmt: skip
    assert {state.state for state in (*at_a.queues, *at_b.queues)} == {"settled"}


def test_history_has_what_happened_elsewhere_before_a_message_came_in_the_order_of_time(twins, fabric):
    # Given a message that its instance gave up before any link ran
    a, b = twins(Queue(name="work", underlying_topic="orders", max_cancels=1), queues=("work",))
    bookmark = a.publish("orders", 1)
    with a.subscribe("work") as messages:
        messages.get(30).cancel()
    eventually(lambda: a.admin.queue_stats("work").expired == 1)
    # When another one gets it a moment later
    came_back = next(event.at for event in a.admin.history(bookmark).events if event.event == "cancelled")
    eventually(lambda: int(b.publish("elsewhere", 1).id.partition("-")[0]) > came_back)
    fabric.run()

    told = [(event.event, event.at) for event in b.admin.history(bookmark).events]

    assert [event for event, _ in told[:3]] == ["published", "cancelled", "received"]
    assert [at for _, at in told] == sorted(at for _, at in told)


def test_history_of_what_another_instance_owns_says_so(twins, fabric):
    a, b = twins(Queue(name="work", underlying_topic="orders"), queues=("work",))
    bookmark = a.publish("orders", 1)
    fabric.run()

    told = b.admin.history(bookmark)

    assert [event.event for event in told.events] == ["published", "received"]
    assert [(state.state, state.sentence[:33]) for state in told.queues] == [
        ("remote", "The message is owned elsewhere, b")
    ]


def test_topics_and_publishers_are_told_with_the_bookmarks_of_messages(twins, fabric, request):
    a, b = twins()
    named = Client(a.site.store.url, instance=a.site.store.instance)
    till = named.publisher("till")
    request.addfinalizer(named.close)
    first, last = till.publish("orders", 1).bookmark(), till.publish("orders", 2).bookmark()
    fabric.run()

    assert (b.admin.topics()["orders"].first, b.admin.topics()["orders"].last) == (first, last)
    (state,) = [each for each in b.admin.publishers() if each.name == "till"]
    assert (state.sequence, state.bookmark) == (2, last)


def test_a_duplicate_of_what_another_instance_recorded_is_answered_with_its_bookmark(twins, fabric, request):
    a, b = twins()

    def publisher(twin):
        client = Client(twin.site.store.url, instance=twin.site.store.instance)
        request.addfinalizer(client.close)
        return client.publisher("till")

    at_a, at_b = publisher(a), publisher(b)
    # Both ask for their next number before one of them gives any.
    at_b._core.parts.store.run(at_b._core.plain.open())
    first, second = (at_a.publish("orders", n, sequence=n).bookmark() for n in (1, 2))
    fabric.run()

    assert at_b.publish("orders", 1, sequence=1).bookmark() == first
    again, third = (each.bookmark() for each in at_b.publish_many("orders", [2, 3]))
    assert again == second
    assert third.origin == b.origin


def test_a_queue_begins_behind_the_message_of_another_instance(twins, fabric):
    a, b = twins()
    bookmarks = [a.publish("orders", n) for n in range(3)]
    fabric.run()

    b.apply(LocalQueue(name="late", underlying_topic="orders", recovery_point=bookmarks[1]))

    with b.subscribe("late") as messages:
        assert [messages.get(30).bookmark, messages.get(0.2)] == [bookmarks[2], None]
    assert "recovery point" in b.admin.explain("late", bookmarks[0]).sentence


def test_check_names_what_is_wrong_by_its_bookmark(twins, fabric):
    a, b = twins(LocalQueue(name="work", underlying_topic="orders"))
    bookmark = a.publish("orders", 1)
    fabric.run()
    with b.subscribe("work") as messages:
        messages.get(30)
        # The lease is lost, and the message with it
        b.site.store.redis.hdel(b.site.key("leases", "work"), messages_ref(b, bookmark))
        (found,) = b.admin.check("work")

    assert [difference.bookmarks for difference in found.differences if difference.bookmarks] == [(bookmark,)]


def messages_ref(twin, bookmark):
    """Where the message is in the queues of an instance that has its copy."""
    stream_id = twin.run("find_bookmarks", bookmark)[0]
    milliseconds, sequence = stream_id.split("-")
    return f"{chr(96 + len(milliseconds))}{milliseconds}{chr(96 + len(sequence))}{sequence}/orders"


def test_the_scripts_find_and_name_many_at_once(twins, fabric):
    a, b = twins()
    theirs = [a.publish("orders", n) for n in range(3)]
    ours = b.publish("orders", "b")
    fabric.run()
    to_come = a.publish("orders", 3)

    found = b.run("find_bookmarks", *theirs, ours, to_come, f"orders~{a.origin}~1-0")

    log = [entry for entry, _ in b.site.store.redis.xrange(b.site.key("log", "orders"))]
    assert found == [*(each.decode() for each in log[1:]), log[0].decode(), "+", "-"]
    assert b.run("name_messages", *(messages_ref(b, each) for each in theirs)) == theirs
    assert b.run("name_messages", messages_ref(b, ours)) == [ours]


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


# -- actions


def act(twins, fabric):
    """Let the actions of all instances do what is to be done, and what they publish travel."""
    for twin in twins:
        duty = Actions()
        while duty.run_once(twin.site.store) == 0:
            pass
    fabric.run()


def test_a_message_that_expired_has_one_letter_with_its_bookmark_which_is_named_the_same_everywhere(twins, fabric):
    both = a, b = twins(
        Queue(name="work", underlying_topic="orders"),
        LocalQueue(name="dead", underlying_topic="letters"),
        Action.dead_letter("work", "letters"),
        topics=("orders", "letters"),
        queues=("work",),
    )
    bookmark = a.publish("orders", {"id": 1})
    fabric.run()

    a.ack("work", bookmark, "expire")
    fabric.run()
    act(both, fabric)

    (at_a,), (at_b,) = a.admin.dead_letters("dead"), b.admin.dead_letters("dead")
    assert at_a.original == at_b.original == bookmark
    assert at_a.bookmark == at_b.bookmark
    assert [letter.data for letter in b.admin.dead_letters("dead", bookmarks=at_b.bookmark)] == [{"id": 1}]
    assert b.admin.redrive("dead", bookmarks=[at_b.bookmark]) == 1
    with pytest.raises(UnknownMessage, match="no letter"):
        b.admin.dead_letters("dead", bookmarks=at_b.bookmark)


def test_what_actions_of_several_instances_publish_is_never_taken_for_doubles(twins, fabric):
    both = a, b = twins(
        Action(name="copy", on=On.publish(topic="orders"), do=Do.publish(topic="copies", data="{{AMPS_BOOKMARK}}")),
        Topic(name="copies"),
        topics=("orders", "copies"),
    )
    bookmarks = [a.publish("orders", 1), b.publish("orders", 2)]
    fabric.run()

    act(both, fabric)

    # Each instance's action follows all messages that come there, the copies among them
    for twin in both:
        assert sorted(body for body, *_ in twin.site.log("copies")) == sorted(2 * bookmarks)


def test_the_event_of_an_overdue_message_has_its_bookmark(twins, fabric):
    overdue = On.timeout(topic="orders", key=["/id"], duration="1ms")
    both = a, b = twins(
        Topic(name="alarms"),
        Action(name="late", on=overdue, do=Do.publish(topic="alarms", data="{{AMPS_BOOKMARK}}")),
    )
    bookmark = a.publish("orders", {"id": 1})
    fabric.run()

    def is_told():
        act(both, fabric)
        return b.site.log("alarms")

    assert eventually(is_told)[0][0] == bookmark


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
