"""Doing what an action does, for many events at once where that shows no difference."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ampsq.base.errors import CatalogChanged, Closed, FormatMismatch, ServerFull, Unavailable, UnknownTopic
from ampsq.base.values import parse_name
from ampsq.catalog.apply import add_topic
from ampsq.coordinator.actions.event import CONDITIONS
from ampsq.definitions.action_parts import Do
from ampsq.protocol.calls import publish as publish_calls
from ampsq.protocol.limits import BATCH, BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ampsq.coordinator.actions.event import ActionEvent
    from ampsq.coordinator.actions.steps import Performer
    from ampsq.definitions.action import Action
    from ampsq.transport.store import Store

__all__ = ["TRANSIENT", "Failure", "RunResult", "Runner", "named_topic", "publisher_of"]

#: Of these nobody can say that the step failed: the server is away or full, or the instance is changing. The same
#: place is tried again, under the same numbers.
TRANSIENT = (Unavailable, ServerFull, FormatMismatch, CatalogChanged, Closed)


class Failure(NamedTuple):
    """An event that failed: at which step (`CONDITIONS` for a condition), and why."""

    event: ActionEvent
    step: int
    error: Exception


class RunResult(NamedTuple):
    """The progress of a run: so many events from the first on are done, and the one behind them failed, if any did."""

    done: int
    failure: Failure | None


class _Publication(NamedTuple):
    place: int
    event: ActionEvent
    topic: str
    body: bytes


def publisher_of(action: Action, origin: str, source: str, index: int) -> str:
    """Under which name a step publishes what comes of a source: the same for all coordinators and for ever.

    By topic, not by place, so that steps keep theirs when others come before them. By origin, since the same action of
    another instance, or of an earlier incarnation, gives the same numbers to other events: a link would take their
    messages for doubles.
    """
    topic = action.do[index].topic  # type: ignore[attr-defined]  # publishes have one
    same = sum(isinstance(step, Do.publish) and step.topic == topic for step in action.do[:index])
    return f"action:{action.name}@{origin}:{source}:{topic}" + (f":{same + 1}" if same else "")


def named_topic(event: ActionEvent, step: Do.publish) -> str:
    """Return the topic to which a step publishes an event."""
    return parse_name(event.text(step.topic).decode(errors="replace"))


class Runner:
    """Runs an action on events of one source.

    Args:
        store: where to publish.
        action: what to do.
        origin: the instance's.
        performer: does what is no publish.
    """

    def __init__(self, store: Store, action: Action, origin: str, performer: Performer) -> None:
        self._store, self._action, self._origin, self._performer = store, action, origin, performer
        # What changes nothing outside may run for many events before the first of them is published.
        self._together = all(step.is_pure or isinstance(step, Do.publish | Do.echo) for step in action.do)

    def run(self, events: Sequence[ActionEvent]) -> RunResult:
        """Do what the action does for each event, in order, up to the first that fails.

        Nothing is published for events behind one that failed at that step: by a publisher's last number one sees
        that all events up to it had their turn.
        """
        if self._together:
            return self._run(events)
        for done, event in enumerate(events):
            outcome = self._run([event])
            if outcome.failure:
                return RunResult(done, outcome.failure)
        return RunResult(len(events), None)

    def _run(self, events: Sequence[ActionEvent]) -> RunResult:
        active, failure = self._wanted(events)
        for index, step in enumerate(self._action.do):
            todo = [(place, event) for place, event in active if event.step <= index]
            if isinstance(step, Do.publish):
                found = self._publish_all(index, step, todo)
            else:
                found = self._perform_all(index, todo)
            if found is not None:
                failure = found
                at = next(place for place, event in active if event is found.event)
                active = [(place, event) for place, event in active if place < at]
        if failure is None:
            return RunResult(len(events), None)
        return RunResult(next(i for i, event in enumerate(events) if event is failure.event), failure)

    def _wanted(self, events: Sequence[ActionEvent]) -> tuple[list[tuple[int, ActionEvent]], Failure | None]:
        """The events whose conditions are true, up to the first of which nobody can tell."""
        active: list[tuple[int, ActionEvent]] = []
        for place, event in enumerate(events):
            try:
                if event.step > CONDITIONS or self._performer.holds(event, self._action.if_):
                    active.append((place, event))
            except TRANSIENT:
                raise
            except Exception as error:  # noqa: BLE001  (whatever a condition raises is this event's failure)
                return active, Failure(event, CONDITIONS, error)
        return active, None

    def _perform_all(self, index: int, todo: Sequence[tuple[int, ActionEvent]]) -> Failure | None:
        for _, event in todo:
            try:
                self._performer.perform(self._action.do[index], event, f"{event.source} {index}", event.number)
            except TRANSIENT:
                raise
            except Exception as error:  # noqa: BLE001  (whatever a step raises is this event's failure)
                return Failure(event, index, error)
        return None

    def _publish_all(self, index: int, step: Do.publish, todo: Sequence[tuple[int, ActionEvent]]) -> Failure | None:
        publications: list[_Publication] = []
        failure = None
        for place, event in todo:
            try:
                publications.append(_Publication(place, event, named_topic(event, step), event.body(step.data)))
            except ValueError as error:
                failure = Failure(event, index, error)
                break
        for run in _runs(publications):
            found = self._publish_run(index, run)
            if found is not None:
                return found
        return failure

    def _publish_run(self, index: int, run: list[_Publication]) -> Failure | None:
        """Publish what has consecutive numbers, in one call; if that fails, one by one, up to the one that fails."""
        try:
            self._publish(index, run)
        except TRANSIENT:
            raise
        except Exception as error:  # noqa: BLE001  (whatever a publish raises is this event's failure)
            if len(run) == 1:
                return Failure(run[0].event, index, error)
        else:
            return None
        for publication in run:
            found = self._publish_run(index, [publication])
            if found is not None:
                return found
        return None

    def _publish(self, index: int, run: list[_Publication]) -> None:
        first = run[0]
        headers = [publication.event.headers for publication in run]
        publisher = publisher_of(self._action, self._origin, first.event.source, index)
        bodies = [publication.body for publication in run]
        call = publish_calls.publish(
            first.topic, bodies, headers if any(headers) else [], publisher, first.event.number
        )
        try:
            self._store.call(call)
        except UnknownTopic:
            self._store.run(add_topic(first.topic))
            self._store.call(call)


def _runs(publications: Sequence[_Publication]) -> Iterator[list[_Publication]]:
    """Cut into calls: consecutive numbers of one topic, at most a batch and about a megabyte."""
    run: list[_Publication] = []
    total = 0
    for publication in publications:
        ends = run and (
            len(run) == BATCH
            or total >= BYTES
            or publication.topic != run[-1].topic
            or publication.event.number != run[-1].event.number + 1
        )
        if ends:
            yield run
            run, total = [], 0
        run.append(publication)
        total += len(publication.body)
    if run:
        yield run
