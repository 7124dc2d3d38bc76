"""A message's whole life, as a timeline: from the log, from the journals of the queues it entered, and where it is now.

The log tells when it was published. What is settled a queue's journal tells, which is searched in bounded steps from
the time of publication on. How a message came back stands with it while it lives, and in the journal once it expired;
deliveries are told by queues that record them, and by a lease that lives. All of it is flows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ampsq.base.bookmarks import Bookmark, ref_of
from ampsq.definitions.queue import Queue
from ampsq.protocol.calls import queues as calls
from ampsq.protocol.entries import own_fields, source_in
from ampsq.protocol.reads.message_names import find_bookmark
from ampsq.protocol.reads.origin import name_of
from ampsq.protocol.reads.recovery_points import recorded_starts
from ampsq.protocol.request import command
from ampsq.protocol.schema import FIELDS, KEYS, key
from ampsq.protocol.transitions import MessageEvent, MessageState
from ampsq.queues.explain_snapshot import ABSENT, JournalFinding, Snapshot, client_of, settled_reason, state_of
from ampsq.queues.explain_texts import REASONS, absence_of, sentence_of
from ampsq.queues.returns import last_reason, read_returns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ampsq.protocol.reads.message_names import LocatedMessage
    from ampsq.queues.explain import InstanceIdentity

__all__ = ["History", "HistoryEvent", "QueueState", "history"]

#: Entries of a stream that one step reads; each has up to 500 refs.
_STEP: Final = 100
#: Milliseconds by which the clock of IDs may have been ahead of the server's when something was settled.
_MARGIN: Final = 60_000
#: What settles a message for ever: nothing comes behind it.
_LAST: Final = (MessageEvent.ACKNOWLEDGED, MessageEvent.EXPIRED, MessageEvent.MISSING, MessageEvent.BARRIER, "evicted")
_OURS: Final = ("headers", "publisher", "sequence", "expiration", "due", "addressed")


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """One thing that happened to a message.

    Attributes:
        at: when, ms since 1970 by the server's clock; None where nobody wrote it down.
        queue: in which queue; "" for what happened to the message itself.
        event: a stable word: published, received (by this instance, from another one), delivered, cancelled, lapsed,
            disconnected, given_back, transferred (to another owner), acknowledged, expired, evicted, missing, barrier.
        by: the subscription or publisher; "" where it is not known.
        details: what else is known, ready for JSON; ``instance`` where another instance did it.
    """

    at: int | None
    queue: str
    event: str
    by: str = ""
    details: dict[str, Any] = field(default_factory=dict, hash=False)

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return {"at": self.at, "queue": self.queue, "event": self.event, "by": self.by, "details": self.details}


@dataclass(frozen=True, slots=True)
class QueueState:
    """Where a message is in one queue now.

    Attributes:
        queue: the queue.
        state: a word of `ampsq.protocol.transitions.MessageState`, or ``absent``: it is not in the queue and never was.
        sentence: why, for people; the text may change.
    """

    queue: str
    state: str
    sentence: str


@dataclass(frozen=True, slots=True)
class History:
    """A message's life.

    Attributes:
        bookmark: the message.
        recorded: whether this instance's log has it, still.
        events: what happened, the earliest first.
        queues: where it is in each queue that its topic feeds.
    """

    bookmark: Bookmark
    recorded: bool
    events: tuple[HistoryEvent, ...]
    queues: tuple[QueueState, ...]

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return {
            "bookmark": self.bookmark,
            "recorded": self.recorded,
            "events": [event.as_dict() for event in self.events],
            "queues": [{"queue": one.queue, "state": one.state, "sentence": one.sentence} for one in self.queues],
        }


class _Entry(NamedTuple):
    """An entry of a journal or of deliveries that has the message: when, its fields, and the message's place in it."""

    at: int
    fields: dict[str, str]
    number: int

    def word(self, name: str) -> str:
        """What a field with a word for each message has of this one."""
        words = self.fields.get(name, "").split(" ")
        return words[self.number] if self.number < len(words) else ""


async def history(place: InstanceIdentity, text: Bookmark | str) -> History:
    """Tell a message's life; nothing is changed, and each step is bounded.

    Args:
        place: the instance.
        text: the message.

    Raises:
        DefinitionError: it is no bookmark.
    """
    named = await find_bookmark(place.origin, text)
    bookmark, entries = named.bookmark, []
    if named.id:
        log = key(place.instance, "log", bookmark.topic)
        entries = await command(["XRANGE", log, named.id, named.id], list)
    begun = _begun(named, entries[0][1]) if entries else []
    # Another clock may be ahead: the publication comes first. It may have lived elsewhere before it came here.
    published, events = begun[:1], begun[1:]
    catalog = await calls.catalog()
    states = []
    for name, stored in catalog.queues.items():
        if Queue.from_json(stored).feeds_from(bookmark.topic):
            state, found = await _in_queue(place, name, named)
            states.append(state)
            events += found
    # What was not written down has no time: it stands behind what happened before it, as it was found.
    ordered = sorted(enumerate(events), key=lambda pair: (pair[1].at is None, pair[1].at or 0, pair[0]))
    return History(bookmark, bool(entries), (*published, *(event for _, event in ordered)), tuple(states))


def _begun(named: LocatedMessage, flat: Sequence[bytes]) -> list[HistoryEvent]:
    """How it came into this instance's log."""
    source = source_in(flat)
    # One bookmark may stand for another: the same message, sent twice by its publisher.
    origin, _, stream_id = source.partition("~") if source else (named.bookmark.origin, "", named.bookmark.id)
    events = [_published(Bookmark.of(named.bookmark.topic, origin, stream_id), own_fields(flat))]
    if source:
        events[0].details["instance"] = name_of(origin)
        hops = [name_of(hop.partition("/")[0]) for hop in flat[-1].decode().split(" ")]
        events.append(HistoryEvent(_ms(named.id), "", "received", "", {"from": hops[0], "path": hops}))
    return events


def _published(bookmark: Bookmark, flat: Sequence[bytes]) -> HistoryEvent:
    fields = {flat[i].decode(errors="replace"): flat[i + 1].decode(errors="replace") for i in range(0, len(flat), 2)}
    details: dict[str, Any] = {"topic": bookmark.topic}
    if FIELDS["body"] not in fields:
        return HistoryEvent(_ms(bookmark.id), "", "published", "", {**details, "foreign": True})
    details["bytes"] = len(flat[flat.index(FIELDS["body"].encode()) + 1])
    for name in _OURS:
        if FIELDS[name] in fields:
            value = fields[FIELDS[name]]
            details[name] = json.loads(value) if name == "headers" else int(value) if value.isdigit() else value
    return HistoryEvent(_ms(bookmark.id), "", "published", str(details.pop("publisher", "")), details)


def _ms(stream_id: str) -> int:
    return int(stream_id.split("-", maxsplit=1)[0])


# -- one queue


async def _in_queue(place: InstanceIdentity, name: str, named: LocatedMessage) -> tuple[QueueState, list[HistoryEvent]]:
    if not named.id:
        return QueueState(name, ABSENT, absence_of(named)), []
    ref = named.ref
    starts = await recorded_starts(place.instance, name)
    start = starts.get(named.bookmark.topic, "0-0")
    if ref_of("-", named.id) <= ref_of("-", start):
        return QueueState(name, ABSENT, REASONS["before_start"]), []
    pairs = await calls.explain(name, ref)
    snapshot = Snapshot(pairs, is_head=False)
    events = [event for entry in (await _search(place.instance, "deliveries", name, ref, snapshot))
              for event in _recorded(name, entry)]  # fmt: skip
    settled: list[_Entry] = []
    if snapshot.where == "settled" or snapshot.once or snapshot.is_shared:
        settled = await _search(place.instance, "journal", name, ref, snapshot)
    for entry in settled:
        events += _settled(name, entry, with_returns=_is_untold(events))
    if _is_untold(events):
        events += _returns(name, (*snapshot.text("attempts").split(" "), "", "", "", "")[3])
    if snapshot.where == "leased":
        events.append(_leased(name, snapshot))
    return _state(name, snapshot, settled), _unlike(events)


def _is_untold(events: Sequence[HistoryEvent]) -> bool:
    """Whether nothing is told yet of what this or another instance's subscriptions did."""
    return all(event.event == MessageEvent.TRANSFERRED for event in events)


async def _search(instance: str, kind: str, queue: str, ref: str, snapshot: Snapshot) -> list[_Entry]:
    """All entries of a stream that have the message, from its publication on; of a journal up to what settles it."""
    if kind not in KEYS:
        return []
    name, wanted, found = key(instance, kind, queue), ref.encode(), []
    after = f"{max(min(snapshot.milliseconds, snapshot.now) - _MARGIN, 0)}-0"
    while True:
        entries = await command(["XRANGE", name, after, "+", "COUNT", _STEP], list)
        for stream_id, flat in entries:
            at, fields = _entry_with(wanted, flat)
            if at >= 0:
                texts = {name.decode(): value.decode(errors="replace") for name, value in fields.items()}
                found.append(_Entry(_ms(stream_id.decode()), texts, at))
                if texts.get(FIELDS["how"]) in _LAST:
                    return found
        if len(entries) < _STEP:
            return found
        after = f"({entries[-1][0].decode()}"


def _entry_with(wanted: bytes, flat: Sequence[bytes]) -> tuple[int, Mapping[bytes, bytes]]:
    """A message's place among the refs of an entry, -1 if it is not there, and the entry's fields."""
    fields = {flat[i]: flat[i + 1] for i in range(0, len(flat), 2)}
    refs = fields.get(FIELDS["refs"].encode(), b"")
    if wanted not in refs:
        return -1, fields
    each = refs.split(b" ")
    return (each.index(wanted) if wanted in each else -1), fields


def _settled(queue: str, entry: _Entry, *, with_returns: bool) -> Iterator[HistoryEvent]:
    how = entry.fields[FIELDS["how"]]
    details: dict[str, Any] = {}
    if source := entry.fields.get(FIELDS["source"]):
        details["instance"] = name_of(source.partition("~")[0])
    if how == MessageEvent.TRANSFERRED:
        to, epoch = entry.fields[FIELDS["owner"]], int(entry.word(FIELDS["epochs"]))
        yield HistoryEvent(entry.at, queue, how, "", {**details, "to": name_of(to), "epoch": epoch})
        return
    if with_returns:
        yield from _returns(queue, entry.word("history"))
    if entry.fields.get(FIELDS["reason"]):
        details["reason"] = entry.fields[FIELDS["reason"]]
    if said := entry.fields.get(FIELDS["consumer_reason"]):
        details["consumer_reason"] = said
    if attempts := entry.word(FIELDS["attempts"]):
        deliveries, cancels = attempts.split(":")
        details.update(deliveries=int(deliveries), cancels=int(cancels))
    yield HistoryEvent(entry.at, queue, how, entry.fields.get("by", ""), details)


def _returns(queue: str, text: str) -> Iterator[HistoryEvent]:
    """How it came back each time, as it stands with the message."""
    for each in read_returns(text):
        details = {"client": client_of(each.client)} if each.client else {}
        if each.consumer_reason:
            details["consumer_reason"] = each.consumer_reason
        yield HistoryEvent(each.at, queue, each.cause, each.subscription, details)


def _recorded(queue: str, entry: _Entry) -> Iterator[HistoryEvent]:
    """What a queue that records its deliveries says."""
    cause, client = entry.fields.get("cause", ""), entry.word("client")
    details = {"client": client_of(client)} if client not in ("", "-") else {}
    if said := entry.fields.get(FIELDS["consumer_reason"]):
        details["consumer_reason"] = said
    yield HistoryEvent(entry.at, queue, cause or MessageEvent.DELIVERED.value, entry.word("by"), details)


def _leased(queue: str, snapshot: Snapshot) -> HistoryEvent:
    holder, delivery, deadline = snapshot.lease
    details: dict[str, Any] = {"delivery": delivery, "client": client_of(snapshot.text("client"))}
    length = int(snapshot.definition.lease_period or 0)
    if deadline:
        details["until"] = deadline
    # Without a deadline nobody knows when; an extended one ends later than a lease period after it.
    at = deadline - length if deadline and length else None
    return HistoryEvent(at, queue, MessageEvent.DELIVERED.value, holder, details)


def _unlike(events: list[HistoryEvent]) -> list[HistoryEvent]:
    """Without a live lease whose delivery is recorded anyway."""
    known = {(event.event, event.by) for event in events[:-1]}
    if events and "delivery" in events[-1].details and (events[-1].event, events[-1].by) in known:
        return events[:-1]
    return events


def _state(queue: str, snapshot: Snapshot, settled: Sequence[_Entry]) -> QueueState:
    reason = snapshot.reason()
    if snapshot.where == "settled":
        last = next(
            (entry for entry in reversed(settled) if entry.fields[FIELDS["how"]] != MessageEvent.TRANSFERRED), None
        )
        snapshot.found = JournalFinding(ended=True, whole=True)
        if last is not None:
            deliveries, cancels = (last.word(FIELDS["attempts"]) or "0:0").split(":")
            why = last.fields.get(FIELDS["reason"], "")
            said = last.fields.get(FIELDS["consumer_reason"]) or last_reason(read_returns(last.word("history")))
            snapshot.found = JournalFinding(
                last.fields[FIELDS["how"]], why, last.at, int(deliveries), int(cancels), said
            )
        reason = settled_reason(snapshot)
    state = state_of(snapshot, reason)
    if reason == "beyond_journal":
        return QueueState(queue, MessageState.SETTLED, _UNKNOWN)
    return QueueState(queue, state, sentence_of(snapshot, reason))


_UNKNOWN: Final = (
    "The queue has read the message and it is nowhere in it, and its journal does not have it; `ampsq check` tells "
    "whether it was lost."
)
