"""Invariants of the simulation after each step, read from the servers' keys alone."""

from __future__ import annotations

import bisect
import json
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple

from simulated import QUEUE, TOPIC, decoded, name_of

from ampsq.base.bookmarks import ref_of
from ampsq.protocol.reads.origin import name_of as name_of_origin
from ampsq.protocol.schema import LEASES_ANCHOR


class Violation(AssertionError):
    """Something that must never be."""


@lru_cache(maxsize=1 << 16)
def order(stream_id):
    milliseconds, _, number = stream_id.partition("-")
    return int(milliseconds), int(number)


@dataclass
class Entry:
    """One entry of a log."""

    id: str
    ref: str
    name: str
    publisher: str
    number: int
    kind: int
    origin: str
    there: str


@dataclass
class View:
    """An instance as its keys say.

    Attributes:
        entries: of its log.
        places: message -> leased, ready, unread, remote or settled.
        leases: ref -> (token, holder).
        owners: ref -> (owner, (epoch, who transferred it)).
        counting: ID here -> origin and ID of the bookmark that counts, of messages that have several.
        copies: origin -> members of its index.
        received: stream -> ID.
        deferred: origin and ID of messages of which something is told that are to come.
        left: key -> what is still in it, of those that must be empty in the end.
        held: a new incarnation that delivers nothing yet.
    """

    entries: list[Entry] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)
    leases: dict[str, tuple[str, str]] = field(default_factory=dict)
    owners: dict[str, tuple[str, tuple[int, str]]] = field(default_factory=dict)
    counting: dict[str, tuple[str, str]] = field(default_factory=dict)
    copies: dict[str, list[str]] = field(default_factory=dict)
    received: dict[str, str] = field(default_factory=dict)
    deferred: list[str] = field(default_factory=list)
    left: dict[str, int] = field(default_factory=dict)
    held: bool = False

    @cached_property
    def refs(self):
        return {entry.ref: entry.name for entry in self.entries}

    @cached_property
    def names(self):
        return {entry.name for entry in self.entries}

    @cached_property
    def by_name(self):
        return {entry.name: entry for entry in self.entries}

    @cached_property
    def by_origin(self):
        found = {}
        for entry in self.entries:
            found.setdefault(entry.origin, []).append(entry)
        return found

    def copy_of(self, origin, stream_id):
        """As bookmarks/lib/copies looks it up."""
        members = self.copies.get(origin, [])
        at = bisect.bisect_right(members, _sortable(stream_id) + "~") - 1
        if at < 0:
            return None
        there, count, here = members[at].split(" ")
        milliseconds, number = _parsed(there)
        wanted = order(stream_id)
        if wanted[0] != milliseconds or not 0 <= wanted[1] - number < int(count):
            return None
        begin, _, first = here.partition("-")
        return f"{begin}-{int(first) + wanted[1] - number}"


def _sortable(stream_id):
    return ref_of("", stream_id).partition("/")[0]


def _parsed(text):
    """The two numbers of an ID as refs have it: a letter, which says how long it is, before each."""
    second = next(at for at in range(1, len(text)) if text[at].isalpha())
    return int(text[1:second]), int(text[second + 1 :])


def look(instance, origins, former=None):
    """Read an instance; of the log only what `former` has not."""
    after = "(" + former.entries[-1].id if former and former.entries else "-"
    names = ("owners", "leases", "cursors", "ahead")
    reply = instance.ask(
        ["XRANGE", instance.key("log", TOPIC), after, "+"],
        *(["HGETALL", instance.key(name, QUEUE)] for name in names),
        ["ZRANGE", instance.key("remote", QUEUE), 0, -1],
        ["ZRANGE", instance.key("ready", QUEUE), 0, -1],
        ["ZRANGE", instance.key("sorted", QUEUE, "none"), 0, -1],
        ["ZRANGE", instance.key("due"), 0, -1],
        ["HGETALL", instance.key("received")],
        ["HGETALL", instance.key("counting")],
        ["HKEYS", instance.key("deferred", TOPIC)],
        ["ZCARD", instance.key("asked", QUEUE)],
        ["HEXISTS", instance.key("queue", QUEUE), "recovering"],
        *(["ZRANGE", instance.key("copies", TOPIC, origin), 0, -1] for origin in origins),
    )
    (
        log,
        owners,
        leases,
        cursors,
        ahead,
        remote,
        ready,
        placed,
        due,
        received,
        counting,
        deferred,
        asked,
        held,
        *copies,
    ) = reply
    view = View([*(former.entries if former else []), *(_entry(row, instance.peer) for row in log)], held=bool(held))
    view.owners = {ref: (owner, (int(epoch), by)) for ref, (owner, epoch, by) in _pairs(owners)}
    view.counting = {here.split(" ")[1]: tuple(value[0].split("~")) for here, value in _pairs(counting)}
    view.leases = {ref: (value[0], value[1]) for ref, value in _pairs(leases) if ref != LEASES_ANCHOR}
    view.received = {stream: value[0] for stream, value in _pairs(received)}
    view.copies = {origin: [member.decode() for member in found] for origin, found in zip(origins, copies, strict=True)}
    view.deferred = [field.decode().split(" ")[1] for field in deferred]
    late = {member.split(b" ")[2] for member in due if member.startswith((b"ready ", b"scheduled "))}
    readable = {ref.decode() for ref in (*ready, *placed, *late)}
    taken = {ref.decode() for ref in ahead}
    cursor = order(dict(_pairs(cursors)).get(TOPIC, ["0-0"])[0])
    elsewhere = {ref.decode() for ref in remote}
    view.left = {"remote": len(remote), "ready": len(readable), "leases": len(view.leases), "deferred": len(deferred),
                 "asked": asked, "owners": len(owners), "ahead": len(ahead)}  # fmt: skip
    kinds = {"leased": view.leases.keys(), "ready": readable, "remote": elsewhere}
    several = (kinds["leased"] & readable) | (kinds["leased"] & elsewhere) | (readable & elsewhere)
    place_of_ref = {ref: word for word, refs in kinds.items() for ref in refs}
    for entry in view.entries:
        if entry.ref in several:
            places = [word for word, refs in kinds.items() if entry.ref in refs]
            raise Violation(f"{entry.name} is {' and '.join(places)} at {instance.name}")
        place = place_of_ref.get(entry.ref)
        if place is None:
            place = "settled" if order(entry.id) <= cursor or entry.ref in taken else "unread"
        view.places[entry.name] = place
    return view


def _pairs(reply):
    items = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return [(decoded(name), decoded(value).split(" ")) for name, value in items]


def _entry(row, peer):
    stream_id, fields = row
    stream_id = stream_id.decode()
    body = json.loads(fields[b"b"])
    origin, _, there = (
        fields.get(b"s", f"{peer.origin_at(order(stream_id))}~{stream_id}".encode()).decode().partition("~")
    )
    name = name_of(fields[b"b"])
    return Entry(stream_id, ref_of(TOPIC, stream_id), name, body["p"], body["n"], body["k"], origin, there)


# --- one instance


def judge_log(instance, view, former, passes, *, is_whole):
    """Nothing twice, and each publisher's in order, as long as no server lost any; `former` was judged before."""
    known = former.entries if former else []
    seen, last = {entry.name for entry in known}, {entry.publisher: entry.number for entry in known}
    for entry in view.entries[len(known) :]:
        if entry.name in seen:
            raise Violation(f"{entry.name} is twice in the log of {instance.name}")
        seen.add(entry.name)
        if is_whole and last.get(entry.publisher, 0) >= entry.number:
            raise Violation(f"{entry.name} came behind {entry.publisher}{last[entry.publisher]} at {instance.name}")
        last[entry.publisher] = entry.number
        if entry.origin != instance.origin and not passes(entry.origin, instance, entry.kind):
            raise Violation(f"{entry.name} passed a filter to {instance.name}")


def judge_copies(instance, view):
    """The index knows each copy, and nothing else."""
    by_id = {entry.id: entry for entry in view.entries}
    for entry in view.entries:
        is_own = entry.there == entry.id and name_of_origin(entry.origin) == instance.name
        if not is_own and view.copy_of(entry.origin, entry.there) != entry.id:
            raise Violation(f"{instance.name} does not find {entry.name} as {entry.origin}~{entry.there}")
    for origin, members in view.copies.items():
        for member in members:
            there, count, here = member.split(" ")
            milliseconds, number = _parsed(there)
            for i in range(int(count)):
                found = view.copy_of(origin, f"{milliseconds}-{number + i}")
                if found not in by_id:
                    raise Violation(f"{instance.name} has no entry for {origin}~{milliseconds}-{number + i} ({here})")


def judge_received(instance, view, source, source_view, passes):
    """`received` is never beyond what is there, nor beyond what the source has."""
    upto = order(view.received.get(f"log {TOPIC}@{source.origin}", "0-0"))
    own = source_view.by_origin.get(source.origin, [])
    if upto > (order(own[-1].id) if own else (0, 0)):
        raise Violation(f"{instance.name} has received more of {source.name} than that has")
    names = view.names
    # A log is in the order of its IDs.
    for entry in own[: bisect.bisect_right(own, upto, key=lambda each: order(each.id))]:
        if entry.name not in names and passes(source.origin, instance, entry.kind):
            raise Violation(f"{instance.name} has received {source.name} up to {upto}, and {entry.name} is not there")


def judge_deferred(instance, view):
    """Nothing waits for a message that will not come."""
    for bookmark in view.deferred:
        origin, _, stream_id = bookmark.partition("~")
        if order(stream_id) <= order(view.received.get(f"log {TOPIC}@{origin}", "0-0")):
            raise Violation(f"{instance.name} waits for {bookmark}, which was passed over")


def judge_epochs(instance, former, view):
    """An epoch never falls, but where a lower bookmark of the message came to count."""
    # Of an entry that neither has a word about, nothing can have changed.
    for entry in view.entries if former.owners or former.counting or view.counting else ():
        before, now = former.owners.get(entry.ref), view.owners.get(entry.ref)
        lowest, known = view.counting.get(entry.id), former.counting.get(entry.id)
        if before and now and before[1] > now[1] and lowest == known:
            raise Violation(f"{entry.name} at {instance.name} went from {before} to {now}")
        if lowest != known and _rank(lowest or (entry.origin, entry.there)) > _rank(
            known or (entry.origin, entry.there)
        ):
            raise Violation(
                f"the bookmark of {entry.name} that counts at {instance.name} rose from {known} to {lowest}"
            )


def judge_marks(instance, former, view):
    """Judge the marks: a stream's received place never falls."""
    for stream, before in former.received.items():
        if order(view.received.get(stream, "0-0")) < order(before):
            raise Violation(f"{instance.name} had {stream} up to {before}, and now up to {view.received.get(stream)}")


def _rank(bookmark):
    return order(bookmark[1]), bookmark[0]


# --- all of them


def believers(views, origins, owner):
    """Message -> instances that would deliver it, and those that did; `origins`: of all incarnations."""
    found = {}
    for name, view in views.items():
        names = (name, *(origin for origin in origins if name_of_origin(origin) == name))
        for message, known in view.places.items():
            place = place_of(view, view.by_name[message], names, owner) if known == "unread" else known
            if place == "leased" or (place == "ready" and not view.held):
                found.setdefault(message, []).append((name, place))
    return found


def place_of(view, entry, names, owner):
    """Return the place of a message, and of one that is unread, the place that it will have."""
    if (place := view.places[entry.name]) != "unread":
        return place
    default = view.counting.get(entry.id, (entry.origin,))[0] if owner == "*" else owner
    known = view.owners.get(entry.ref, (default, 0))[0]
    return "ready" if known in names else "remote"


def doubled(views, name, former):
    """Messages that were recorded by several instances as their own, of those that one has and had not."""
    fresh = views[name].entries[len(former.entries) if former else 0 :]
    others = [view.by_name for each, view in views.items() if each != name]
    return {
        entry.name
        for entry in fresh
        if any(entry.name in known and known[entry.name].origin != entry.origin for known in others)
    }


def judge_settlements(instance, view):
    """In the end each message is settled once."""
    rows = instance.ask(["XRANGE", instance.key("journal", QUEUE), "-", "+"])[0]
    settled = Counter()
    for _, fields in rows:
        if fields[b"how"] in (b"acknowledged", b"expired"):
            settled.update(fields[b"refs"].decode().split(" "))
    for ref, name in view.refs.items():
        if settled[ref] != 1:
            raise Violation(f"{name} was settled {settled[ref]} times at {instance.name}")


class Claim(NamedTuple):
    """The claim of an instance to an owner: the room that it had, and up to where it had heard others."""

    room: int
    heard: tuple[tuple[str, str], ...]


def claims_of(instance):
    """Return an instance's claims to owners, as far as its stream still has them."""
    found = set()
    for _, fields in instance.ask(["XRANGE", instance.key("requests"), "-", "+"])[0]:
        if b"s" in fields or b"rooms" not in fields:
            continue
        rooms, heard = (fields[name].decode().split(" ") for name in (b"rooms", b"heard"))
        journals = tuple(tuple(each.split("~")) for each in heard if each)
        found.add(Claim(sum(int(room) for room in rooms[1::2]), journals))
    return found


def judge_grants(instance, asked):
    """Judge the grants: each had room for it, and for all that was granted before and that it had not heard of.

    Args:
        instance: whose journal says what it granted.
        asked: origin -> all its claims.
    """
    granted = {}
    for stream_id, fields in instance.ask(["XRANGE", instance.key("journal", QUEUE), "-", "+"])[0]:
        facts = {name.decode(): value.decode() for name, value in fields.items()}
        to = facts.get("owner", "")
        if facts["how"] != "transferred" or "s" in facts or to == instance.origin:
            continue
        rows = granted.setdefault(to, [])
        rows.append((order(stream_id.decode()), len(facts["refs"].split(" "))))
        unheard = [
            (each.room, sum(count for at, count in rows if at > order(dict(each.heard).get(instance.origin, "0-0"))))
            for each in asked.get(to, ())
        ]
        if not any(count <= room for room, count in unheard):
            raise Violation(f"{instance.name} granted {to} more than it had room for: {rows}, asked {unheard}")
