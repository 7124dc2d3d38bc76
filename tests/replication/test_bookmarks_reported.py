"""Bookmarks in what is told of messages: explanations, histories, figures, checks, and what actions publish."""

from __future__ import annotations

import pytest
from observing import eventually

from ampsq import Action, Client, Do, GroupLocalQueue, LocalQueue, On, Queue, Topic
from ampsq.base.errors import UnknownMessage
from ampsq.coordinator.actions import Actions


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
    """Return the place of the message in the queues of an instance that has its copy."""
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
