"""Scenes for guards that chance finds too rarely: each raises `Violation` where the guard is missing."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

from invariants import Violation
from simulated import QUEUE, TOPIC, FlushGate, body_of
from simulation import EPOCH

from ampsq.base.errors import Gap
from ampsq.base.message_types import JSON
from ampsq.replication.link import Link
from ampsq.replication.selection import EntrySelector


def begun(known):
    """Instances a and b, empty."""
    world = SimpleNamespace(now=EPOCH)
    for name in "ab":
        known[name].begin(world, always=True, owner="*")
    return known["a"], known["b"]


def published(instance, publisher="", number=1):
    """The bookmark of a message."""
    body = body_of(publisher or "p", number, 0)
    reply = instance.run("publish", instance.now, TOPIC, publisher, number if publisher else "", "b", body)
    return f"{TOPIC}~{instance.origin}~{reply[2]}"


def told(instance, by, how, bookmark, *, owner="", epoch="", start="0-0", place="5-0"):
    """Tell an instance what another one journaled."""
    texts = (how, "", "", "", "", owner, epoch)
    row = (f"{by}~{place}", f"{by}/g", *texts, 1, bookmark)
    return instance.run("apply_journal", instance.now, QUEUE, f"{by} {start}", *row)


def copied(instance, origin, upto, *entries, start="0-0"):
    """Bring an instance entries of another one: ID, publisher, number."""
    names = ("b", "p", "n")
    rows = [text for stream_id, p, n in entries for text in (stream_id, body_of(p, n, 0), p, n)]
    head = (TOPIC, origin, "-", f"{origin}/g", start, upto, len(entries), len(names), *names)
    return instance.run("apply_log", instance.now, 0, *head, *rows)


def subscribed(instance):
    instance.world.now += 1
    wish = ("", f"c/{instance.world.now}", 5, "none", "", "", 10**9, QUEUE)
    return instance.run("subscribe", instance.now, *wish)[0]


def taken(instance, by):
    return instance.run("take", instance.now, by, 5)[0][::2]


def a_transfer_takes_a_message_out_of_ready(known):
    a, b = begun(known)
    bookmark = published(a)
    by = subscribed(a)
    taken(a, by)
    a.run("unsubscribe", a.now, by)
    while a.run("sweep", a.now)[0]:
        pass
    told(a, b.origin, "transferred", bookmark, owner=b.origin, epoch="1")
    if taken(a, subscribed(a)):
        raise Violation("a delivers what b owns")


def a_journal_begins_where_it_was_received(known):
    a, b = begun(known)
    bookmark = published(a)
    try:
        told(a, b.origin, "acknowledged", bookmark, start="3-0")
    except Gap:
        return
    raise Violation("a took what lies behind a gap")


def a_journal_that_comes_again_is_passed_over(known):
    a, b = begun(known)
    first, second, third = (published(a) for _ in range(3))
    told(a, b.origin, "acknowledged", first)
    told(a, b.origin, "acknowledged", second, start="5-0", place="6-0")
    told(a, b.origin, "acknowledged", first)
    # Refused where that one moved the place back.
    told(a, b.origin, "acknowledged", third, start="6-0", place="7-0")


def a_bookmark_that_does_not_count_transfers_nothing(known):
    a, b = begun(known)
    published(a, "g")
    higher = f"{EPOCH + 9}-0"
    copied(a, b.origin, higher, (higher, "g", 1))
    told(a, b.origin, "transferred", f"{TOPIC}~{b.origin}~{higher}", owner="c.one", epoch="1")
    if not taken(a, subscribed(a)):
        raise Violation("a does not deliver what it owns")


def logged_on(instance, publisher, first):
    return instance.run("logon", instance.now, publisher, publisher, first, "", "")[0]


def names_in_log(instance):
    return [fields[b"b"] for _, fields in instance.ask(["XRANGE", instance.key("log", TOPIC), "-", "+"])[0]]


def a_message_that_was_sent_twice_is_found_however_deep_it_lies(known):
    a, b = begun(known)
    a.run("publish", a.now, TOPIC, "g", f"{logged_on(a, 'g', 1)} 1", "b", "twice")
    for _ in range(3):
        a.run("publish", a.now, TOPIC, "", "", "b", *["other"] * 500)
    place = f"{EPOCH + 9}-0"
    for _ in range(5):
        if not copied(a, b.origin, place, (place, "g", 1))[4]:
            break
    if not a.ask(["EXISTS", a.key("same", TOPIC)])[0]:
        raise Violation("a does not know the message under its second bookmark")


def numbers_that_a_publisher_left_out_are_recorded_when_they_come(known):
    a, b = begun(known)
    a.run("publish", a.now, TOPIC, "g", f"{logged_on(a, 'g', 3)} 3", "b", "3")
    copied(a, b.origin, "5-0", ("5-0", "g", 1))
    copied(a, b.origin, "6-0", ("6-0", "g", 2), start="5-0")
    if len(names_in_log(a)) < 3:
        raise Violation("a left out what was sent elsewhere")


def what_will_not_come_is_not_waited_for(known):
    a, b = begun(known)
    told(a, b.origin, "acknowledged", f"{TOPIC}~{b.origin}~{EPOCH}-0")
    copied(a, b.origin, f"{EPOCH}-5")
    if a.ask(["HLEN", a.key("deferred", TOPIC)])[0]:
        raise Violation("a waits for what was passed over")


def what_comes_back_is_its_owner_s(known):
    a, b = begun(known)
    bookmark = published(a)
    by = subscribed(a)
    _, token, *_, ref = taken(a, by)[0].partition("\n")[0].split(" ")
    told(a, b.origin, "transferred", bookmark, owner=b.origin, epoch="1")
    a.run("settle", a.now, "cancelled", 0, by, QUEUE, 1, ref, token)
    if taken(a, by):
        raise Violation("a delivers what b owns")


def a_transfer_of_a_lower_epoch_is_passed_over(known):
    a, b = begun(known)
    bookmark = published(a)
    told(a, "c.one", "transferred", bookmark, owner=a.origin, epoch="2")
    told(a, b.origin, "transferred", bookmark, owner=b.origin, epoch="1")
    if not taken(a, subscribed(a)):
        raise Violation("a does not deliver what it owns")


def a_settled_message_changes_owner_no_more(known):
    a, b = begun(known)
    bookmark = published(a)
    by = subscribed(a)
    _, token, *_, ref = taken(a, by)[0].partition("\n")[0].split(" ")
    a.run("settle", a.now, "acknowledged", 0, by, QUEUE, 1, ref, token)
    told(a, b.origin, "transferred", bookmark, owner=b.origin, epoch="1")
    if a.ask(["HLEN", a.key("owners", QUEUE)])[0]:
        raise Violation("a settled message has an owner")


def what_is_told_before_its_message_comes_is_done_then(known):
    a, b = begun(known)
    stream_id = f"{EPOCH}-0"
    told(a, b.origin, "transferred", f"{TOPIC}~{b.origin}~{stream_id}", owner=a.origin, epoch="1")
    copied(a, b.origin, stream_id, (stream_id, "g", 1))
    if not taken(a, subscribed(a)):
        raise Violation("a does not deliver what was granted to it")


def an_instance_is_granted_as_many_as_it_has_room_for(known):
    a, b = begun(known)
    bookmarks = [published(a, number=number) for number in range(3)]
    if a.run("grant_messages", a.now, QUEUE, b.origin, f"{a.origin} 1", "", *bookmarks)[0] > 1:
        raise Violation("b owns what it has no room for")


def what_is_leased_is_not_granted(known):
    a, b = begun(known)
    bookmark = published(a)
    if not taken(a, subscribed(a)):
        raise Violation("a delivers nothing")
    if a.run("grant_messages", a.now, QUEUE, b.origin, f"{a.origin} 1", "", bookmark)[0]:
        raise Violation("b owns what a subscriber of a holds")


def what_was_granted_and_not_heard_of_takes_room(known):
    a, b = begun(known)
    bookmarks = [published(a, number=number) for number in range(3)]
    for bookmark in bookmarks:
        a.run("grant_messages", a.now, QUEUE, b.origin, f"{a.origin} 1", "", bookmark)
    if a.ask(["ZCARD", a.key("remote", QUEUE)])[0] > 1:
        raise Violation("b was granted the same room again")


def who_asked_before_it_heard_what_it_heard_later_is_too_late(known):
    a, b = begun(known)
    bookmarks = [published(a, number=number) for number in range(3)]
    heard = ""
    for bookmark in bookmarks[:2]:
        a.run("grant_messages", a.now, QUEUE, b.origin, f"{a.origin} 1", heard, bookmark)
        last = a.ask(["XREVRANGE", a.key("journal", QUEUE), "+", "-", "COUNT", 1])[0][0][0].decode()
        heard = f"{a.origin}~{last}"
    # Of the two the first is forgotten: it was heard of.
    if a.run("grant_messages", a.now, QUEUE, b.origin, f"{a.origin} 2", "", bookmarks[2])[0]:
        raise Violation("b was granted its room of long ago")


def a_message_that_is_here_under_two_bookmarks_is_told_under_both(known):
    a, b = begun(known)
    c = known["c"]
    c.begin(a.world, always=True, owner=c.name)
    published(a, "g")
    published(b, "g")
    carried = EntrySelector(b.peer, c.peer, lambda _: True, {}, lambda _: JSON)
    given = {"topics": [TOPIC], "queues": [QUEUE], "clock": lambda: c.now, "gate": lambda _: FlushGate(b)}
    with contextlib.closing(Link(c.name, b.lossy, c.lossy, carried, **given)) as link:
        copied(b, a.origin, f"{EPOCH}-0", (f"{EPOCH}-0", "g", 1))
        for _ in range(4):
            link.step()
        told(c, a.origin, "acknowledged", f"{TOPIC}~{a.origin}~{EPOCH}-0")
    if taken(c, subscribed(c)):
        raise Violation("c delivers what a acknowledged under its own bookmark")
