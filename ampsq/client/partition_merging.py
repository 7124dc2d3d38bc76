"""Merging of what the partitions of an instance answer to administrative calls."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from ampsq.base.values import list_of
from ampsq.queues.redrive import Redriven, RedriveProgress
from ampsq.topics.topic_state import TopicState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ampsq.base.bookmarks import Bookmark
    from ampsq.catalog.apply import Planned
    from ampsq.operations.actions import ActionState, FailedEvent
    from ampsq.operations.rebuild import Rebuilt
    from ampsq.queues.dead_letters import DeadLetter
    from ampsq.queues.explain import Explanation
    from ampsq.topics.retention import Trimmed

__all__ = [
    "RedriveSum",
    "events_of_each",
    "merged_actions",
    "merged_events",
    "merged_plans",
    "merged_rebuilt",
    "merged_redriven",
    "merged_topics",
    "merged_trimmed",
    "oldest_first",
    "oldest_next",
]


def merged_plans(plans: Sequence[Sequence[Planned]]) -> list[Planned]:
    """Put together what comes of definitions in all partitions: unchanged is what is so in all."""
    return [
        next((planned for planned in of_one if planned.outcome != "unchanged"), of_one[0])
        for of_one in zip(*plans, strict=True)
    ]


def merged_redriven(parts: Sequence[Redriven]) -> Redriven:
    """Put together what was put back in several partitions."""
    targets: Counter[str] = Counter()
    for part in parts:
        targets.update(part.targets)
    refusals = [each for part in parts for each in part.refusals]
    return Redriven.of(targets, sum(part.refused for part in parts), refusals[:1_000])


def merged_rebuilt(parts: Sequence[Rebuilt]) -> Rebuilt:
    """Put together what rebuilding a queue gave in several partitions, one after the other."""
    return replace(
        parts[0],
        messages=sum(each.messages for each in parts),
        settled=sum(each.settled for each in parts),
        ready=sum(each.ready for each in parts),
        noted=sum(each.noted for each in parts),
        seconds=sum(each.seconds for each in parts),
    )


class RedriveSum:
    """The progress of a redrive over partitions, one after the other.

    Args:
        report: called with the sum of all that are done and the present one.
    """

    def __init__(self, report: Callable[[RedriveProgress], object] | None) -> None:
        self._report = report
        self._before = self._now = RedriveProgress(0, 0, 0)

    def of_next(self) -> Callable[[RedriveProgress], object]:
        """Return the function that the next partition reports to."""
        self._before = self._now
        return self._add

    def _add(self, part: RedriveProgress) -> None:
        before = self._before
        self._now = RedriveProgress(before.done + part.done, before.refused + part.refused, before.total + part.total)
        if self._report is not None:
            self._report(self._now)


def merged_topics(parts: Sequence[Mapping[str, TopicState]]) -> dict[str, TopicState]:
    """Put together what several partitions have of each topic; what is pinned is the oldest of all."""
    found: dict[str, list[TopicState]] = {}
    for part in parts:
        for name, state in part.items():
            found.setdefault(name, []).append(state)
    return {name: _merged_topic(states) for name, states in sorted(found.items())}


def _merged_topic(states: Sequence[TopicState]) -> TopicState:
    pinned = min((each for each in states if each.pinned), key=lambda each: _time_of(each.pinned), default=states[0])
    return TopicState(
        messages=sum(each.messages for each in states),
        bytes=sum(each.bytes for each in states),
        first=min((each.first for each in states if each.first), key=_time_of, default=None),
        last=max((each.last for each in states if each.last), key=_time_of, default=None),
        queues=tuple(sorted({queue for each in states for queue in each.queues})),
        retention=states[0].retention,
        key=states[0].key,
        records=sum(each.records for each in states),
        recorded=sum(each.recorded for each in states),
        kept=sum(each.kept for each in states),
        pinned_by=pinned.pinned_by,
        pinned=pinned.pinned,
        state=pinned.state,
    )


def merged_trimmed(parts: Sequence[Trimmed]) -> Trimmed:
    """Put together what was removed from a topic in several partitions; what is pinned is the oldest of all."""
    pinned = min((each for each in parts if each.pinned), key=lambda each: _time_of(each.pinned), default=parts[0])
    return replace(
        pinned,
        removed=sum(each.removed for each in parts),
        kept=sum(each.kept for each in parts),
        bytes=sum(each.bytes for each in parts),
    )


def merged_actions(parts: Sequence[Mapping[str, ActionState]]) -> dict[str, ActionState]:
    """Put together how far each action has come in several partitions; the error is of one where something failed."""
    merged: dict[str, ActionState] = {}
    for name, first in parts[0].items():
        states = [part[name] for part in parts if name in part]
        sources: Counter[str] = Counter()
        for each in states:
            sources.update(each.sources)
        failing = [each.error for each in states if each.failed] or [each.error for each in states if each.error]
        merged[name] = replace(
            first,
            waiting=sum(each.waiting for each in states),
            done=sum(each.done for each in states),
            failed=sum(each.failed for each in states),
            error=failing[0] if failing else "",
            sources=dict(sources),
        )
    return merged


def merged_events(parts: Sequence[Sequence[FailedEvent]]) -> list[FailedEvent]:
    """Put together the failed events of all partitions, by the time at which each failed first.

    Each partition numbers its own. Here an event has a number that no other one has, and that says its partition.
    """
    numbered = [
        replace(event, number=event.number * len(parts) + partition)
        for partition, events in enumerate(parts)
        for event in events
    ]
    return sorted(numbered, key=lambda event: (event.failed, event.number))


def events_of_each(partitions: int, events: Iterable[int] | int | None) -> list[list[int] | None]:
    """Return which events of each partition such numbers name; None: all of them.

    Raises:
        DefinitionError: they are no list.
    """
    if events is None:
        return [None] * partitions
    own: list[list[int]] = [[] for _ in range(partitions)]
    for number in [events] if isinstance(events, int) else list_of("events", events, "[1, 2]"):
        own[number % partitions].append(number // partitions)
    return [*own]


def oldest_next(parts: Sequence[Explanation]) -> Explanation:
    """Return that of the oldest message, of explanations of the next one of each partition; else the first one."""
    known = [each for each in parts if each.bookmark is not None]
    return min(known, key=lambda each: _time_of(each.bookmark), default=parts[0])


def _time_of(bookmark: Bookmark | None) -> tuple[int, ...]:
    return tuple(map(int, bookmark.id.split("-"))) if bookmark is not None else ()


def oldest_first(letters: Iterable[DeadLetter]) -> list[DeadLetter]:
    """Sort letters of several partitions by the time at which they were recorded."""
    return sorted(letters, key=lambda letter: _time_of(letter.bookmark))
