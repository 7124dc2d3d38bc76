"""A message's whole life, as a timeline: from the log, from the journals of the queues it entered, and where it is now.

The log tells when it was published. What is settled a queue's journal tells, which is searched in bounded steps from
the time of publication on. How a message came back stands with it while it lives, and in the journal once it expired;
deliveries are told by queues that record them, and by a lease that lives. All of it is flows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ampsq.base.bookmarks import Bookmark, ref_of
from ampsq.definitions.stored import read_stored_queue
from ampsq.protocol.calls import browse as browse_calls
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.encoding import read_headers
from ampsq.protocol.entries import path_in, read_publication, source_in
from ampsq.protocol.reads.journals import read_deliveries, read_journal
from ampsq.protocol.reads.message_names import find_bookmark
from ampsq.protocol.reads.origin import name_of
from ampsq.protocol.reads.recovery_points import recorded_starts
from ampsq.protocol.reads.streams import find_entry, log_of
from ampsq.protocol.transitions import MessageEvent, MessageState
from ampsq.queues.explain_snapshot import (
    ABSENT,
    JournalFinding,
    Snapshot,
    client_of,
    journal_finding,
    settled_reason,
    state_of,
)
from ampsq.queues.explain_texts import REASONS, absence_of, sentence_of
from ampsq.queues.returns import read_returns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ampsq.protocol.reads.journals import QueueEntry
    from ampsq.protocol.reads.message_names import LocatedMessage
    from ampsq.protocol.request import Call
    from ampsq.queues.explain import InstanceIdentity

__all__ = ["History", "HistoryEvent", "QueueState", "history"]

#: Entries of a stream that one step reads; each has up to 500 refs.
_STEP: Final = 100
#: Milliseconds by which the clock of IDs may have been ahead of the server's when something was settled.
_MARGIN: Final = 60_000
#: What settles a message for ever: nothing comes behind it.
_LAST: Final = (MessageEvent.ACKNOWLEDGED, MessageEvent.EXPIRED, MessageEvent.MISSING, MessageEvent.BARRIER, "evicted")
#: Reads a page of a queue's entries behind an ID.
_Read: TypeAlias = "Callable[[str, str, str, int], Call[list[QueueEntry]]]"


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
    details: dict[str, object] = field(default_factory=dict, hash=False)

    def as_dict(self) -> dict[str, object]:
        """The same as plain values, for JSON."""
        return {"at": self.at, "queue": self.queue, "event": self.event, "by": self.by, "details": self.details}


@dataclass(frozen=True, slots=True)
class QueueState:
    """The state of a message in one queue now.

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

    def as_dict(self) -> dict[str, object]:
        """The same as plain values, for JSON."""
        return {
            "bookmark": self.bookmark,
            "recorded": self.recorded,
            "events": [event.as_dict() for event in self.events],
            "queues": [{"queue": one.queue, "state": one.state, "sentence": one.sentence} for one in self.queues],
        }


class _Entry(NamedTuple):
    """An entry of a journal or of deliveries that has the message, and the message's number in it."""

    entry: QueueEntry
    number: int


async def history(place: InstanceIdentity, text: Bookmark | str) -> History:
    """Tell a message's life; nothing is changed, and each step is bounded.

    Args:
        place: the instance.
        text: the message.

    Raises:
        DefinitionError: it is no bookmark.
    """
    named = await find_bookmark(place.origin, text)
    bookmark, entry = named.bookmark, None
    if named.id:
        entry = await find_entry(place.instance, log_of(bookmark.topic), named.id)
    begun = _begun(named, entry[1]) if entry is not None else []
    # Another clock may be ahead: the publication comes first. It may have lived elsewhere before it came here.
    published, events = begun[:1], begun[1:]
    catalog = await catalog_calls.catalog()
    states = []
    for name, stored in catalog.queues.items():
        if read_stored_queue(stored).feeds_from(bookmark.topic):
            state, found = await _in_queue(place, name, named)
            states.append(state)
            events += found
    # What was not written down has no time: it stands behind what happened before it, as it was found.
    ordered = sorted(enumerate(events), key=lambda pair: (pair[1].at is None, pair[1].at or 0, pair[0]))
    return History(bookmark, entry is not None, (*published, *(event for _, event in ordered)), tuple(states))


def _begun(named: LocatedMessage, flat: Sequence[bytes]) -> list[HistoryEvent]:
    """Return the events by which it came into this instance's log."""
    source = source_in(flat)
    # One bookmark may stand for another: the same message, sent twice by its publisher.
    origin, _, stream_id = source.partition("~") if source else (named.bookmark.origin, "", named.bookmark.id)
    events = [_published(Bookmark.of(named.bookmark.topic, origin, stream_id), flat)]
    if source:
        events[0].details["instance"] = name_of(origin)
        hops = [name_of(hop) for hop in path_in(flat)]
        events.append(HistoryEvent(_ms(named.id), "", "received", "", {"from": hops[0], "path": hops}))
    return events


def _published(bookmark: Bookmark, flat: Sequence[bytes]) -> HistoryEvent:
    details: dict[str, object] = {"topic": bookmark.topic}
    found = read_publication(flat)
    if found is None:
        return HistoryEvent(_ms(bookmark.id), "", "published", "", {**details, "foreign": True})
    details["bytes"] = found.size
    if found.headers:
        details["headers"] = read_headers(found.headers)
    numbers = {"sequence": found.sequence, "expiration": found.expiration, "due": found.due}
    details |= {name: value for name, value in numbers.items() if value is not None}
    if found.addressed:
        details["addressed"] = found.addressed
    return HistoryEvent(_ms(bookmark.id), "", "published", found.publisher, details)


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
    pairs = await browse_calls.explain(name, ref)
    snapshot = Snapshot(pairs, is_head=False)
    events = [event for found in (await _search(read_deliveries, place.instance, name, ref, snapshot))
              for event in _recorded(name, *found)]  # fmt: skip
    settled: list[_Entry] = []
    if snapshot.where == "settled" or snapshot.once or snapshot.is_shared:
        settled = await _search(read_journal, place.instance, name, ref, snapshot)
    for found in settled:
        events += _settled(name, *found, with_returns=_is_untold(events))
    if _is_untold(events):
        events += _returns(name, (*snapshot.text("attempts").split(" "), "", "", "", "")[3])
    if snapshot.where == "leased":
        events.append(_leased(name, snapshot))
    return _state(name, snapshot, settled), _unlike(events)


def _is_untold(events: Sequence[HistoryEvent]) -> bool:
    """Return whether no event of this or another instance's subscriptions is known yet."""
    return all(event.event == MessageEvent.TRANSFERRED for event in events)


async def _search(read: _Read, instance: str, queue: str, ref: str, snapshot: Snapshot) -> list[_Entry]:
    """All entries of a stream that have the message, from its publication on; of a journal up to what settles it."""
    wanted, found = ref.encode(), list[_Entry]()
    after = f"{max(min(snapshot.milliseconds, snapshot.now) - _MARGIN, 0)}-0"
    while True:
        entries = await read(instance, queue, after, _STEP)
        for entry in entries:
            number = entry.number_of(wanted)
            if number >= 0:
                found.append(_Entry(entry, number))
                if entry.how in _LAST:
                    return found
        if len(entries) < _STEP:
            return found
        after = entries[-1].id


def _settled(queue: str, entry: QueueEntry, number: int, *, with_returns: bool) -> Iterator[HistoryEvent]:
    at, how = entry.milliseconds, entry.how
    details: dict[str, object] = {}
    if entry.source:
        details["instance"] = name_of(entry.source.partition("~")[0])
    if how == MessageEvent.TRANSFERRED:
        details |= {"to": name_of(entry.owner), "epoch": entry.epoch_of(number)}
        yield HistoryEvent(at, queue, how, "", details)
        return
    if with_returns:
        yield from _returns(queue, entry.returns_of(number))
    if entry.reason:
        details["reason"] = entry.reason
    if entry.consumer_reason:
        details["consumer_reason"] = entry.consumer_reason
    if (attempts := entry.attempts_of(number)) is not None:
        details |= attempts._asdict()
    yield HistoryEvent(at, queue, how, entry.by, details)


def _returns(queue: str, text: str) -> Iterator[HistoryEvent]:
    """Yield the returns to the queue, as they stand with the message."""
    for each in read_returns(text):
        details: dict[str, object] = {"client": client_of(each.client)} if each.client else {}
        if each.consumer_reason:
            details["consumer_reason"] = each.consumer_reason
        yield HistoryEvent(each.at, queue, each.cause, each.subscription, details)


def _recorded(queue: str, entry: QueueEntry, number: int) -> Iterator[HistoryEvent]:
    """Yield the events of a queue that records its deliveries."""
    client = entry.client_of(number)
    details: dict[str, object] = {"client": client_of(client)} if client else {}
    if entry.consumer_reason:
        details["consumer_reason"] = entry.consumer_reason
    event = entry.cause or MessageEvent.DELIVERED.value
    yield HistoryEvent(entry.milliseconds, queue, event, entry.holder_of(number), details)


def _leased(queue: str, snapshot: Snapshot) -> HistoryEvent:
    holder, delivery, deadline = snapshot.lease
    details: dict[str, object] = {"delivery": delivery, "client": client_of(snapshot.text("client"))}
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
        last = next((each for each in reversed(settled) if each.entry.how != MessageEvent.TRANSFERRED), None)
        snapshot.found = JournalFinding(ended=True, whole=True)
        if last is not None:
            snapshot.found = journal_finding(*last)
        reason = settled_reason(snapshot)
    state = state_of(snapshot, reason)
    if reason == "beyond_journal":
        return QueueState(queue, MessageState.SETTLED, _UNKNOWN)
    return QueueState(queue, state, sentence_of(snapshot, reason))


_UNKNOWN: Final = (
    "The queue has read the message and it is nowhere in it, and its journal does not have it; `ampsq check` tells "
    "whether it was lost."
)
