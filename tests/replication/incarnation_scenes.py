"""Scenes for the guards of new incarnations: each raises `Violation` where the guard is missing."""

from __future__ import annotations

import contextlib

from guard_scenes import begun, copied, published, subscribed, taken, told
from invariants import Violation
from simulated import QUEUE, TOPIC, FlushGate
from simulation import EPOCH

from ampsq.base.errors import IncarnationOver
from ampsq.base.message_types import JSON
from ampsq.protocol.calls import incarnations as incarnation_calls
from ampsq.protocol.reads.origin import read_origin
from ampsq.protocol.schema import VALUES
from ampsq.replication.link import Link
from ampsq.replication.selection import EntrySelector, Peer


def anew(instance):
    """Begin a new incarnation of an instance, with all that it has."""
    while instance.run("begin_incarnation", instance.now, "two")[1]:
        pass
    known = instance.store.call(read_origin(instance.name))
    instance.peer = Peer(instance.name, str(known), instance.group, known.former)


def recovered(instance):
    word = instance.store.call(incarnation_calls.recovery_word(instance.name))
    instance.run("end_recovery", instance.now, word, QUEUE)


def refused(call, *arguments):
    try:
        call(*arguments)
    except IncarnationOver:
        return
    raise Violation("an incarnation that is over, or not known, was taken in")


def a_new_incarnation_delivers_nothing(known):
    a, _ = begun(known)
    published(a)
    anew(a)
    if taken(a, subscribed(a)):
        raise Violation("a delivers what may have been settled")


def it_gives_nothing_away(known):
    a, b = begun(known)
    bookmark = published(a)
    anew(a)
    if a.run("grant_messages", a.now, QUEUE, b.origin, f"{a.origin} 1", "", bookmark)[0]:
        raise Violation("a gives away what may have been settled")


def it_owns_what_the_last_one_owned(known):
    a, _ = begun(known)
    anew(a)
    copied(a, a.origin, f"{EPOCH}-0", (f"{EPOCH}-0", "g", 1))
    recovered(a)
    if not taken(a, subscribed(a)):
        raise Violation("a does not deliver what it owns")


def leases_of_the_last_one_are_void(known):
    a, _ = begun(known)
    published(a)
    by = subscribed(a)
    _, token, *_, ref = taken(a, by)[0].partition("\n")[0].split(" ")
    anew(a)
    if not a.run("settle", a.now, "acknowledged", 0, by, QUEUE, 1, ref, token):
        raise Violation("a lease of the last incarnation settles a message")


def nothing_is_taken_that_was_read_of_the_last_one(known):
    a, b = begun(known)
    b.store.call(incarnation_calls.close_incarnations("b", [a.origin]))
    refused(copied, b, a.origin, f"{EPOCH}-0", (f"{EPOCH}-0", "g", 1))
    refused(told, b, a.origin, "acknowledged", f"{TOPIC}~{a.origin}~{EPOCH}-0")


def one_that_is_not_known_is_told_first(known):
    a, _ = begun(known)
    refused(copied, a, "a.zero", f"{EPOCH}-0", (f"{EPOCH}-0", "g", 1))
    a.run("begin_recovery", a.now, "a.zero")
    copied(a, "a.zero", f"{EPOCH}-0", (f"{EPOCH}-0", "g", 1))
    if taken(a, subscribed(a)):
        raise Violation("a delivers what may have been settled")


def the_last_one_ends_for_all(known):
    a, b = begun(known)
    c = known["c"]
    c.begin(a.world, always=True, owner="*")
    for each in (b, c):
        told(each, a.origin, "acknowledged", f"{TOPIC}~{a.origin}~{EPOCH + 9}-0")
    anew(a)
    recovered(a)
    for source, destination in ((a, b), (b, c)):
        carried = EntrySelector(source.peer, destination.peer, lambda _: True, {}, lambda _: JSON)
        now = source.now
        given = {"clock": lambda now=now: now, "gate": lambda _, each=source: FlushGate(each)}
        link = Link(destination.name, source.lossy, destination.lossy, carried, topics=[TOPIC], **given)
        with contextlib.closing(link):
            for _ in range(3):
                link.step()
    for each in (b, c):
        end = each.ask(["HGET", each.key("received"), f"log {TOPIC}@{a.origin}"])[0] or b""
        if end.split(b" ")[0].decode() != VALUES["last_id"] or each.ask(["HLEN", each.key("deferred", TOPIC)])[0]:
            raise Violation(f"{each.name} waits for what is lost")
