"""A coordinator's duties, done at once and in order as a held clock is moved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ampsq.catalog.action_sources import sources_of
from ampsq.coordinator.actions import Actions
from ampsq.coordinator.duty import Definitions
from ampsq.coordinator.foreign_entries import ForeignEntries
from ampsq.coordinator.lost_clients import LostClients
from ampsq.coordinator.retention import Retention
from ampsq.coordinator.sweep import SweepDue
from ampsq.coordinator.views import Views
from ampsq.coordinator.wanted_names import WantedNames
from ampsq.definitions.action import Action
from ampsq.definitions.action_parts import On
from ampsq.protocol.calls import subscriptions as subscription_calls
from ampsq.protocol.keepalive import SESSION_TIMEOUT
from ampsq.protocol.reads.actions import first_retry, first_timeout, read_source_position
from ampsq.protocol.reads.clock import last_given_id
from ampsq.protocol.reads.duties import due_until
from ampsq.protocol.reads.streams import Stream, stream_length
from ampsq.protocol.reads.subscribers import count_listeners, subscription_client, subscription_deadlines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampsq.coordinator.duty import Duty
    from ampsq.testing.clock import Clock
    from ampsq.transport.store import Store

__all__ = ["HeldDuties"]

#: Rounds of all duties at one moment; more than this does not end by itself, as actions that publish to each other.
_ROUNDS: Final = 1_000
#: Entries of the timetable that are looked at for the next moment.
_ENTRIES: Final = 100
#: Milliseconds between two looks for clients that are gone; the second one ends what they had.
_ABSENT: Final = 300


class HeldDuties:
    """Does what a coordinator would, by a clock that somebody else moves.

    Args:
        store: on the instance.
        clock: its time, held.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._definitions = Definitions()
        self._lost = LostClients(0.0, clock.seconds)
        self._retention = Retention(clock=clock.seconds)
        self._duties: list[Duty] = [
            *(SweepDue(), WantedNames(), Actions(clock=clock.seconds), Views(clock=clock.seconds)),
            self._retention,
        ]

    def advance_to(self, end: int) -> None:
        """Move the clock to a moment, ms, and stop on the way wherever there is something to do."""
        self.work()
        for _ in range(2):
            # A client that is gone is noticed long before its leases lapse.
            if self._clock.milliseconds + _ABSENT <= end:
                self._stop_at(self._clock.milliseconds + _ABSENT)
        while (at := self._next(end)) is not None:
            self._stop_at(at)
        self._stop_at(end)

    def _stop_at(self, milliseconds: int) -> None:
        self._clock.move_to(milliseconds)
        self._show_life()
        self._lost.run_once(self._store)
        self.work()

    def work(self) -> None:
        """Do everything that is to be done at this moment."""
        former: object = None
        # Nobody tells what was recorded since the last moment.
        self._retention.has_news()
        # A new one looks for new topics at once.
        duties = [ForeignEntries(), *self._duties]
        for _ in range(_ROUNDS):
            has_more = False
            for duty in duties:
                has_more = duty.run_once(self._store) <= 0 or has_more
            now = self._progress()
            if not has_more and now == former:
                return
            former = now
        raise AssertionError(
            f"the duties of {self._store.instance} do not come to an end at one moment: do actions publish what "
            "starts them again?"
        )

    def _progress(self) -> object:
        """Return the progress of everything that an action can act on."""
        store, catalog = self._store, self._definitions.read(self._store)
        streams = [Stream("happenings"), *(Stream("journal", queue) for queue in catalog.queues)]
        streams += [Stream("overdue", action) for action in catalog.actions]
        lengths = [store.call(stream_length(store.instance, stream)) for stream in streams]
        return catalog.version, store.call(last_given_id(store.instance)), lengths

    def _show_life(self) -> None:
        """Send the heartbeats of all clients that are there: they live by the machine's clock."""
        store = self._store
        names = list(store.call(subscription_deadlines(store.instance)))
        owners = [store.call(subscription_client(store.instance, name)).rpartition("/")[0] for name in names]
        counts = store.run(count_listeners(store.instance, owners)) if names else []
        alive = [name for name, number in zip(names, counts, strict=True) if number]
        if alive:
            store.call(subscription_calls.heartbeat(SESSION_TIMEOUT, alive))

    # -- the next moment

    def _next(self, end: int) -> int | None:
        """The first moment from now on, and before `end`, at which there is something to do."""
        now = self._clock.milliseconds
        return min((at for at in self._moments(end) if now < at < end), default=None)

    def _moments(self, end: int) -> Iterator[int]:
        store = self._store
        yield from store.call(due_until(store.instance, end, _ENTRIES)).values()
        catalog = self._definitions.read(store)
        for name, text in catalog.actions.items():
            action = Action.from_json(text)
            for at in (store.call(first_retry(store.instance, name)), store.call(first_timeout(store.instance, name))):
                if at is not None:
                    yield int(at)
            for source in sources_of(action, catalog):
                if isinstance(source.trigger, On.schedule):
                    since = store.call(read_source_position(store.instance, name, source.name)).cursor
                    tick = self._next_tick(source.trigger, int(since.partition("-")[0]), end)
                    if tick is not None:
                        yield tick

    def _next_tick(self, trigger: On.schedule, since: int, end: int) -> int | None:
        """The first tick of a schedule behind a moment and up to `end`."""
        timetable = trigger.timetable
        last = timetable.latest(since, end)
        while last is not None:
            first, last = last, timetable.latest(since, last - 1)
            if last is None:
                return first
            # Halves what is left, so that a year of ticks takes a few steps.
            middle = timetable.latest(since, (since + last) // 2)
            last = last if middle is None else middle
        return None
