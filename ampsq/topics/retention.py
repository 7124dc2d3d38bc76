"""Trimming: what is removed from logs and journals, and for whom something stays; calls, and flows for clients."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final

from ampsq.base.errors import CatalogChanged, DefinitionError
from ampsq.base.values import check_text
from ampsq.catalog.action_sources import sources_of, track_name
from ampsq.catalog.destination_checks import sent_queue, sent_topic
from ampsq.definitions.action_parts import On
from ampsq.definitions.definition import nearest
from ampsq.definitions.destination import Destination
from ampsq.definitions.queue import Action, Interval, Queue, Topic
from ampsq.protocol.calls import queues as calls
from ampsq.protocol.calls.records import catch_up_records
from ampsq.protocol.entries import bookmark_of, source_in
from ampsq.protocol.reads.message_names import name_message
from ampsq.protocol.request import command, script_call
from ampsq.protocol.schema import FIELDS, key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from redis.typing import EncodableT

    from ampsq.base.bookmarks import Bookmark
    from ampsq.protocol.calls.queues import Catalog
    from ampsq.protocol.request import Call

__all__ = [
    "Pin",
    "Policy",
    "TrimStep",
    "Trimmed",
    "discard",
    "feeding",
    "forget_publishers",
    "hold",
    "pin",
    "read_topics",
    "trim",
    "trim_journal_step",
    "trim_step",
]

#: Catalog changes during one trimming by hand; more than this is not chance.
_RACES: Final = 50
_HEAD: Final = "0-0"


@dataclass(frozen=True, slots=True)
class Policy:
    """What a topic's retention gives up: what is older (ms), or beyond a size (bytes) or a number; None: no limit."""

    age: int | None = None
    size: int | None = None
    count: int | None = None

    @classmethod
    def of(cls, topic: Topic) -> Policy:
        """As the topic's definition says."""
        return cls(topic.retention_age, topic.retention_size, topic.retention_count)

    @property
    def arguments(self) -> list[EncodableT]:
        """`age`, `size`, `count` of the scripts' heads."""
        return ["" if limit is None else int(limit) for limit in (self.age, self.size, self.count)]


@dataclass(frozen=True, slots=True)
class Pin:
    """The first message that would be removed, if nobody needed it.

    Attributes:
        id: its entry in the log.
        by: who needs it: a kind (``queue``, ``action``, ``replay``, ``destination``, ``records``) and a name.
        state: what it is there, a word of `ampsq.protocol.transitions.MessageState`, or ``barrier``: sent, and not yet
            forgotten; "" of others than queues.
    """

    id: str
    by: str
    state: str

    @classmethod
    def parse(cls, stream_id: str, who: str) -> Pin | None:
        """Read what the scripts say; None of nothing."""
        if not stream_id:
            return None
        kind, name, *state = who.split(" ")
        return cls(stream_id, f"{kind} {name}", state[0] if state else "")


@dataclass(frozen=True, slots=True)
class TrimStep:
    """What became of one step of a walk over a log: where the next begins (None: nowhere), and what was found.

    Attributes:
        next: an ID.
        kept: entries left standing from the walk's beginning to here.
        given_up: entries of this step that are beyond the retention.
        removed: those of them that nobody needed.
        pin: the first one that somebody needs.
    """

    next: str | None
    kept: int
    given_up: int
    removed: int
    pin: Pin | None


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What trimming a topic came to.

    Attributes:
        topic: the topic.
        removed: messages removed, or to be removed in a dry run.
        kept: messages beyond the retention that are kept, since somebody needs them; of those that a queue has not read
            only the first is counted.
        bytes: memory of the removed ones, about.
        pinned_by: who needs the first of those kept; None if none is.
        pinned: its bookmark.
        state: what it is there; "" of others than queues.
    """

    topic: str
    removed: int
    kept: int
    bytes: int
    pinned_by: str | None = None
    pinned: Bookmark | None = None
    state: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


# -- the calls

_OF_QUEUES: Final = ("journal", "deliveries")
#: Of what a trigger reads in a journal, the words that it wants.
_HOWS: Final[Mapping[type, str]] = {On.expire: "expired", On.delete: "acknowledged"}


def _readers(catalog: Catalog, queues: Sequence[str], topic: str = "") -> list[EncodableT]:
    """Rows of who reads a topic's log or these queues' journals and deliveries later (retention/lib/stream_readers)."""
    return [*_actions(catalog, queues, topic), *_destinations(catalog, queues, topic)]


def _actions(catalog: Catalog, queues: Sequence[str], topic: str) -> list[EncodableT]:
    rows: list[EncodableT] = []
    for name, text in catalog.actions.items():
        action = Action.from_json(text)
        for source in sources_of(action, catalog):
            if source.of in queues if source.kind in _OF_QUEUES else source.kind == "log" and source.of == topic:
                hows = _HOWS.get(type(source.trigger), "")
                rows += [source.kind, source.of, f"action {name}", f"{FIELDS['cursor']} {source.name}", hows]
        if any(isinstance(trigger, On.timeout) and trigger.topic == topic for trigger in action.on):
            rows += ["log", topic, f"action {name}", f"{FIELDS['cursor']} {track_name(topic)}", ""]
    return rows


def _destinations(catalog: Catalog, queues: Sequence[str], topic: str) -> list[EncodableT]:
    """All that are defined, connected or not."""
    rows: list[EncodableT] = []
    for name, text in catalog.destinations.items():
        destination = _stored(text)
        if topic and sent_topic(destination, catalog, topic):
            rows += ["log", topic, f"destination {name}", f"log {topic}", ""]
        for queue in queues:
            if sent_queue(destination, Queue.from_json(catalog.queues[queue])):
                rows += ["journal", queue, f"destination {name}", f"journal {queue}", ""]
    return rows


@lru_cache(maxsize=64)
def _stored(text: str) -> Destination:
    """A destination as the catalog has it: it is asked for at each step, and is slow to read."""
    return Destination.from_json(text)


def feeding(catalog: Catalog, topic: str) -> list[str]:
    """The queues that a topic feeds, sorted."""
    return sorted(name for name, text in catalog.queues.items() if Queue.from_json(text).feeds_from(topic))


def trim_step(
    catalog: Catalog,
    topic: str,
    policy: Policy,
    *,
    after: str = "",
    passed: int = 0,
    dry_run: bool = False,
) -> Call[TrimStep]:
    """Remove what a policy gives up and nobody needs, a bounded part of it.

    Args:
        catalog: as it is; refused with `CatalogChanged` when it is not.
        topic: the topic.
        policy: its retention.
        after: an ID to go on from, "" for the walk that the instance remembers.
        passed: entries from the log's head up to `after`.
        dry_run: only count.
    """
    readers = _readers(catalog, feeding(catalog, topic), topic)

    def read(reply: list[Any]) -> TrimStep:
        place, kept, given_up, removed, stream_id, who = reply
        return TrimStep(place.decode() or None, kept, given_up, removed, Pin.parse(stream_id.decode(), who.decode()))

    arguments = ["", catalog.version, topic, *policy.arguments, after, passed, int(dry_run), *readers]
    return script_call("trim_log", arguments, read, repeatable=not after)


def trim_journal_step(catalog: Catalog, queue: str, after: str = "") -> Call[tuple[str | None, int]]:
    """Remove what a journal tells of messages that no log has any more, a part of it; gives `next` and the number."""

    def read(reply: list[Any]) -> tuple[str | None, int]:
        return reply[0].decode() or None, reply[1]

    return script_call("trim_journal", ["", queue, after, *_readers(catalog, [queue])], read, repeatable=not after)


def discard(
    catalog: Catalog, topic: str, policy: Policy, after: str = _HEAD, passed: int = 0
) -> Call[tuple[str | None, int, int]]:
    """Let queues lose what a policy gives up, a part of it; gives `next`, `passed`, and how many messages were lost."""

    def read(reply: list[Any]) -> tuple[str | None, int, int]:
        return reply[0].decode() or None, reply[1], reply[2]

    arguments = ["", catalog.version, topic, *policy.arguments, after, passed]
    return script_call("discard_unsettled", arguments, read)


def hold(topic: str, holder: str, stream_id: str | None, period: int = 0) -> Call[None]:
    """Keep a topic's log from an ID on, for `period` ms (0: until told otherwise); None ends that.

    `holder` is a kind and a name: ``replay <name>``, ``destination <name>``, ``action <name>``.
    """
    return script_call("hold_log", ["", topic, holder, stream_id or "", period], lambda _: None, repeatable=True)


def pin(topic: str, holder: str, stream_ids: Sequence[str], *, wanted: bool = True) -> Call[None]:
    """Keep single messages of a topic's log for somebody who comes back to them, or let them go."""
    return script_call("pin_messages", [topic, holder, int(wanted), *stream_ids], lambda _: None, repeatable=True)


def forget_publishers(cursor: str) -> Call[str]:
    """Let go of publishers that were not heard of for `schema.PUBLISHER_AGE`; gives the next cursor, "0" at the end."""
    return script_call("forget_publishers", ["", cursor], lambda reply: str(reply.decode()), repeatable=True)


# -- by hand


async def trim(instance: str, topic: str, age: timedelta | float | str | None, *, dry_run: bool) -> Trimmed:
    """Remove now what a topic's retention, or an age, gives up and nobody needs; see `Client.trim`."""
    check_text("topic", topic)
    catalog = await calls.catalog()
    policy = _policy(catalog, topic, age)
    if Topic.stored(topic, catalog.topics[topic]).key:
        # What was not put into the records yet is needed.
        await catch_up_records(topic)
    log = key(instance, "log", topic)
    length = await command(["XLEN", log], int)
    used = await command(["MEMORY", "USAGE", log], lambda reply: reply or 0)
    removed, kept, first = await _walk(instance, topic, policy, dry_run=dry_run)
    for queue in feeding(catalog, topic) if not dry_run else ():
        await _walk_journal(queue)
    size = used * removed // max(length, 1)
    if first is None:
        return Trimmed(topic, removed, kept, size)
    return Trimmed(topic, removed, kept, size, first.by, (await name_message(topic, first.id)), first.state)


def _policy(catalog: Catalog, topic: str, age: timedelta | float | str | None) -> Policy:
    text = catalog.topics.get(topic)
    if text is None:
        if topic in catalog.queues:
            underlying = Queue.from_json(catalog.queues[topic]).underlying_topic
            raise DefinitionError(f"{topic!r} is a queue; allowed: a topic, as {underlying!r}, which feeds it")
        raise DefinitionError(f"{topic!r}: {nearest(topic, sorted(catalog.topics), 'topic')}")
    if age is not None:
        return Policy(age=Interval.parse(age))
    stored = Topic.stored(topic, text)
    if not stored.has_retention:
        raise DefinitionError(
            f"topic {topic!r} has no retention, so that all of it is kept; allowed: an age, as in 7d (0s: all "
            "that nobody needs), or a topic defined with retention_age, retention_size or retention_count"
        )
    return Policy.of(stored)


async def _walk(instance: str, topic: str, policy: Policy, *, dry_run: bool) -> tuple[int, int, Pin | None]:
    """Walk over a log from its head, no further than to what was there; gives removed, kept, and the first kept."""
    catalog = await calls.catalog()
    place: str | None = _HEAD
    removed, kept, passed, races = 0, 0, 0, 0
    first: Pin | None = None
    last = await command(["XREVRANGE", key(instance, "log", topic), "+", "-", "COUNT", 1], _first_id)
    while place is not None:
        try:
            step = await trim_step(catalog, topic, policy, after=place, passed=passed, dry_run=dry_run)
        except CatalogChanged:
            races += 1
            if races > _RACES:
                raise
            catalog = await calls.catalog()
            continue
        removed += step.removed
        kept += step.given_up - step.removed
        passed = removed + kept if dry_run else kept
        first = first or step.pin
        place = step.next if step.next and _order(step.next) < _order(last) else None
    return removed, max(kept, int(first is not None)), first


async def _walk_journal(queue: str) -> None:
    catalog = await calls.catalog()
    place: str | None = _HEAD
    while place is not None:
        place, _ = await trim_journal_step(catalog, queue, place)


# -- what is there


async def read_topics(instance: str, origin: str) -> dict[str, dict[str, Any]]:
    """Read all topics; see `Client.topics`."""
    catalog = await calls.catalog()
    out: dict[str, dict[str, Any]] = {}
    for name in sorted(catalog.topics):
        out[name] = await _read_topic(instance, origin, catalog, name)
    return out


async def _read_topic(instance: str, origin: str, catalog: Catalog, name: str) -> dict[str, Any]:
    log = key(instance, "log", name)
    length = await command(["XLEN", log], int)
    used = await command(["MEMORY", "USAGE", log], lambda reply: reply or 0)
    first = await command(["XRANGE", log, "-", "+", "COUNT", 1], partial(_first_name, name, origin))
    last = await command(["XREVRANGE", log, "+", "-", "COUNT", 1], partial(_first_name, name, origin))
    topic = Topic.stored(name, catalog.topics[name])
    facts: dict[str, Any] = {
        "messages": length,
        "bytes": used,
        "first": str(first) if first else None,
        "last": str(last) if last else None,
        "queues": feeding(catalog, name),
        "retention": {each: value for each, value in topic.elements().items() if each.startswith("retention")},
        "key": list(topic.key),
        "records": (await command(["HLEN", key(instance, "records", name)], int)),
        "kept": 0,
        "pinned_by": None,
        "pinned": None,
        "state": "",
    }
    if topic.has_retention:
        found = await _read_walk(instance, name)
        if found is not None:
            facts |= {"kept": max(found[0], 1), "pinned_by": found[1].by, "state": found[1].state}
            facts["pinned"] = str(await name_message(name, found[1].id))
    return facts


async def _read_walk(instance: str, topic: str) -> tuple[int, Pin] | None:
    """How many messages the walk that the instance remembers left standing, and the first of them."""
    walk, pinned = await command(
        ["HMGET", key(instance, "retention"), f"log {topic}", f"pin {topic}"],
        lambda reply: [(text or b"").decode() for text in reply],
    )
    found = Pin.parse(*pinned.split(" ", 1)) if pinned else None
    return (int(walk.split(" ")[1]), found) if walk and found else None


def _order(stream_id: str) -> tuple[int, int]:
    milliseconds, _, sequence = (stream_id or _HEAD).partition("-")
    return int(milliseconds), int(sequence)


def _first_name(topic: str, origin: str, reply: list[Any]) -> Bookmark | None:
    if not reply:
        return None
    stream_id, flat = reply[0]
    return bookmark_of(topic, origin, stream_id.decode(), source_in(flat))


def _first_id(reply: list[Any]) -> str:
    return str(reply[0][0].decode()) if reply else ""
