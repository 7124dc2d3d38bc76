"""One action while it is followed: from its places in its sources on, event by event."""

from __future__ import annotations

import itertools
import logging
import time
from typing import TYPE_CHECKING, Final

from ampsq.catalog.action_sources import sources_of
from ampsq.coordinator.actions.event import ActionEvent, always, iso_time
from ampsq.coordinator.actions.lasting_conditions import LastingConditions
from ampsq.coordinator.actions.run import Failure, Runner, named_topic, publisher_of
from ampsq.coordinator.actions.sources import EventReader, Slot, place_of, read_entries, stream_of
from ampsq.coordinator.actions.steps import Performer
from ampsq.coordinator.actions.webhooks import StepFailed
from ampsq.definitions.action_parts import Do, On
from ampsq.protocol.calls import actions as action_calls
from ampsq.protocol.calls.actions import SourcePosition
from ampsq.protocol.limits import BYTES, FAILED
from ampsq.protocol.reads.clock import server_time
from ampsq.protocol.reads.streams import read_streams

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ampsq.catalog.action_sources import ActionSource
    from ampsq.coordinator.actions.webhooks import OutsidePermissions
    from ampsq.definitions.action import Action
    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.protocol.reads.streams import Stream
    from ampsq.transport.store import Store

__all__ = ["Followed", "back_off"]

_log = logging.getLogger("ampsq.actions")

#: Entries of one read at first and at most: fewer where they are large.
_FIRST_READ: Final = 50
_MOST_READ: Final = 500
#: Streams that one call looks at.
_STREAMS: Final = 250
#: Seconds that one action may take of a round.
_BUDGET: Final = 0.05
#: Events that are run together.
_TOGETHER: Final = 100
#: Milliseconds until a failed event is tried again, at first and at most.
_AGAIN: Final = 2_000
_AGAIN_AT_MOST: Final = 300_000
#: Seconds between two lines of the log about events of an action that failed.
_SAY_AGAIN: Final = 10.0
#: What the script `set_event_aside` says.
_ELSEWHERE, _ASIDE, _RECORDED = range(3)
_LAST_SEQUENCE: Final = 2**64 - 1


def back_off(tries: int) -> int:
    """Milliseconds until an event is tried again that failed so often."""
    return int(min(_AGAIN * 2 ** min(tries - 1, 20), _AGAIN_AT_MOST))


class Followed:
    """One definition of an action, and how far it is known to have come.

    Args:
        store: where the instance is.
        action: the definition.
        catalog: what is defined.
        origin: the instance's.
        powers: what may be done outside of it.

    Attributes:
        action: the definition.
        catalog: what is defined.
        origin: the instance's.
        performer: makes the action's steps.
        is_repeatable: two coordinators may follow it at once without any effect being made twice.
        is_clocked: it has something to do by the clock alone.
        has_failed: events of it were set aside, and are tried again.
    """

    def __init__(self, store: Store, action: Action, catalog: Catalog, origin: str, powers: OutsidePermissions) -> None:
        self._store, self.action, self.catalog, self.origin = store, action, catalog, origin
        self.is_repeatable = all(step.is_pure or isinstance(step, Do.publish | Do.increment) for step in action.do)
        # Where effects are made at least once, as few as possible are made again.
        self._at_once = _TOGETHER if self.is_repeatable else 1
        self.performer = Performer(store, action.name, catalog, origin, powers)
        self._runner = Runner(store, action, origin, self.performer)
        self._sources = sources_of(action, catalog)
        self._cursors: dict[str, str] = {}
        self.has_failed = False
        self.is_clocked = any(source.kind in ("clock", "overdue") for source in self._sources)
        self._count = _FIRST_READ
        self._say_at = 0.0
        self._turn = 0
        self._timing = LastingConditions(store, action, catalog, origin)

    def work(self) -> bool:
        """Act on what is new, for a while; True when there is more."""
        until = time.monotonic() + _BUDGET
        more = self._timing.work()
        news = list(self._with_news())
        first = self._turn % max(len(news), 1)
        for source in news[first:] + news[:first]:
            # The next time, another source comes first, so that a busy one starves no other.
            self._turn += 1
            while self._tick(source) if source.kind == "clock" else self._follow(source, until):
                if time.monotonic() >= until:
                    return True
        return more

    def _with_news(self) -> Iterator[ActionSource]:
        """The sources that may have something new, by one look at many of them."""
        yield from (source for source in self._sources if source.kind == "clock")
        streams = [source for source in self._sources if source.kind != "clock"]
        for first in range(0, len(streams), _STREAMS):
            some = streams[first : first + _STREAMS]
            starts: dict[Stream, str] = {}
            for source in some:
                if source.name not in self._cursors:
                    self._place(source)
                stream, start = self._stream(source), _whole(self._cursors[source.name])
                starts[stream] = min(start, starts.get(stream, start), key=_order)
            news = self._store.call(read_streams(self._store.instance, starts, 1))
            yield from (source for source in some if self._stream(source) in news)

    def _stream(self, source: ActionSource) -> Stream:
        return stream_of(self.action.name, source)

    def _place(self, source: ActionSource) -> SourcePosition:
        """Return the action's position in a source, wherever it was seen last."""
        place = place_of(self._store, self.action.name, source.name)
        self._cursors[source.name] = place.cursor
        return place

    def _follow(self, source: ActionSource, until: float) -> bool:
        """Act on what a source has next, up to a time; True when there may be more."""
        place = self._place(source)
        count = self._count
        entries = read_entries(self._store, self._stream(source), place.cursor, count)
        size = sum(len(value) for entry in entries for value in entry.fields.values())
        self._count = max(count // 2, 1) if size > BYTES else min(count * 2, _MOST_READ) if size < BYTES // 4 else count
        slots = EventReader(self._store, self.action, source, self.origin, self.catalog).slots(entries, place)
        for some in _together(slots, self._at_once):
            settled = self._settle(source, place, some)
            if settled is None or time.monotonic() >= until:
                return True
            place = settled
        if source.kind == "overdue" and entries:
            until_done = _whole(place.cursor)
            self._store.call(action_calls.drop_overdue(self._store.instance, self.action.name, until_done))
        return len(entries) == count

    def _tick(self, source: ActionSource) -> bool:
        """Act when it is time: once, however many times were missed."""
        place, now = self._place(source), self._store.call(server_time())
        if "-" in place.cursor:
            self._advance(source, place, SourcePosition(str(now), place.sequence, place.read), 0)
            return False
        trigger = source.trigger
        tick = trigger.timetable.latest(int(place.cursor), now) if isinstance(trigger, On.schedule) else None
        if tick is not None:
            variables = {**always(self._store.instance), "AMPS_TIMESTAMP": iso_time(tick).encode()}
            there = SourcePosition(str(tick), place.sequence + 1, place.read + 1)
            self._settle(source, place, [Slot(ActionEvent(source.name, there.sequence, variables), there)])
        return False

    def _settle(self, source: ActionSource, place: SourcePosition, slots: Sequence[Slot]) -> SourcePosition | None:
        """Act on some events and move on past them; None when somebody else did it meanwhile."""
        most = len(slots)
        while slots:
            some = slots[:most]
            outcome = self._runner.run([slot.event for slot in some if slot.event is not None])
            failure = outcome.failure
            passed = len(some)
            # Where one fails, mostly the next ones do: they are tried one by one, until some go well.
            most = 2 * most if failure is None else 1
            if failure is not None:
                passed = next(i for i, slot in enumerate(some) if slot.event is failure.event)
            if passed:
                there = slots[passed - 1].place
                if not self._advance(source, place, there, outcome.done):
                    return None
                place = there
            if failure is not None:
                answer = self._set_aside(source, place, slots[passed], failure)
                if answer == _ELSEWHERE:
                    return None
                if answer == _ASIDE:
                    place = slots[passed].place
                    passed += 1
            slots = slots[passed:]
        self._cursors[source.name] = place.cursor
        return place

    def _advance(self, source: ActionSource, place: SourcePosition, there: SourcePosition, done: int) -> bool:
        return self._store.call(action_calls.advance(self.action.name, source.name, place.cursor, there, done))

    def _set_aside(self, source: ActionSource, place: SourcePosition, slot: Slot, failure: Failure) -> int:
        """Put an event among those that failed; or see which of its steps somebody has made, and go on behind them."""
        event, now = failure.event, self._store.call(server_time())
        event.step = failure.step
        steps = [
            index for index, step in enumerate(self.action.do) if isinstance(step, Do.publish) and index >= failure.step
        ]
        publishers = [
            (publisher_of(self.action, self.origin, source.name, index), _topic(event, self.action.do[index]))
            for index in steps
        ]
        at = now + back_off(1)
        known = event.to_json(error=str(failure.error), tries=1, failed=iso_time(now), next=iso_time(at))
        call = action_calls.set_aside(
            self.action.name, source.name, place.cursor, slot.place, known, str(failure.error), at, publishers
        )
        answer = self._store.call(call)
        if answer.outcome > _RECORDED:
            raise StepFailed(
                f"{FAILED} events failed already, so that this one waits: {failure.error}; `ampsq actions retry` or "
                "`drop` them"
            )
        if answer.outcome == _RECORDED:
            event.step = steps[answer.number - 1] + 1
        elif answer.outcome == _ASIDE and time.monotonic() >= self._say_at:
            # The others are seen by `ampsq actions`.
            _log.warning("event %d of action %s failed: %s", answer.number, self.action.name, failure.error)
            self._say_at = time.monotonic() + _SAY_AGAIN
        return answer.outcome


def _topic(event: ActionEvent, step: object) -> str:
    """The topic of a step as far as it can be told; of what could not be published it says nothing."""
    try:
        return named_topic(event, step) if isinstance(step, Do.publish) else ""
    except ValueError:
        return "-"


def _together(slots: Iterator[Slot], most: int) -> Iterator[list[Slot]]:
    """Cut into parts that are run together."""
    while some := list(itertools.islice(slots, most)):
        yield some


def _order(stream_id: str) -> tuple[int, int]:
    milliseconds, _, sequence = stream_id.partition("-")
    return int(milliseconds), int(sequence or 0)


def _whole(cursor: str) -> str:
    """The ID before which all entries are wholly done: one less than that of an entry of which a part is done."""
    if "+" not in cursor:
        return cursor
    milliseconds, sequence = _order(cursor.partition("+")[0])
    return f"{milliseconds}-{sequence - 1}" if sequence else f"{milliseconds - 1}-{_LAST_SEQUENCE}"
