"""Barriers between the days of the flights, as the journal and every worker's own records have them."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from ampsq.cli.demo_evidence import wrong
from ampsq.cli.demo_worker import BARRIER
from ampsq.cli.demo_world import day_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ampsq.cli.demo_crew import DemoRecord
    from ampsq.cli.demo_evidence import Evidence

__all__ = ["Day", "barrier_failures", "days", "sent_once"]

#: Between being sent and being recorded, a worker that is killed may have one barrier.
_ON_ITS_WAY = 1


@dataclass(frozen=True, slots=True)
class Day:
    """The departures of one day, and the mean of their delays in minutes."""

    date: str
    flights: int
    mean: float


def days(evidence: Evidence, handled: Iterable[DemoRecord]) -> list[Day]:
    """Return the workers' findings, by day."""
    minutes: defaultdict[str, list[int]] = defaultdict(list)
    for record in handled:
        if record.bookmark in evidence.flights:
            minutes[day_of(evidence.flights[record.bookmark])].append(record.delay)
    return [Day(date, len(some), sum(some) / len(some)) for date, some in sorted(minutes.items())]


def sent_once(evidence: Evidence) -> list[str]:
    """The barriers that the journal has exactly once, and as nothing else."""
    journal = evidence.delays
    return [one for one in evidence.barriers if journal.ways[BARRIER][one] == journal.times(one) == 1]


def barrier_failures(evidence: Evidence) -> Iterator[str]:
    """Tell of every barrier that was not one: for the queue, for a worker, or for the second queue."""
    things = "ends of a day"
    yield wrong(evidence.barriers.keys() - sent_once(evidence), "not sent exactly once by the journal", things)
    yield wrong(evidence.delays.ways[BARRIER].keys() - evidence.barriers.keys(), "sent as barriers, which they are not")
    yield wrong(
        _out_of_place(evidence), "not settled, by the journal, between the barriers of the day before and theirs"
    )
    for name, records in evidence.workers.items():
        yield _not_received(evidence, name, records)
        yield wrong(_out_of_turn(evidence, records), f"handled by {name} outside of the barriers that it received")
    shown = {record.bookmark for record in evidence.board_records} | evidence.board.places.keys()
    yield wrong(evidence.barriers.keys() & shown, "on the board, whose filter should keep them out", things)


def _out_of_place(evidence: Evidence) -> Iterator[str]:
    places = evidence.delays.places
    ends = {day: places.get(barrier, -math.inf) for barrier, day in evidence.barriers.items()}
    begins = dict(zip(ends, [-math.inf, *ends.values()], strict=False))
    for bookmark, flight in evidence.flights.items():
        day = day_of(flight)
        if not begins.get(day, math.inf) < places.get(bookmark, math.inf) < ends.get(day, -math.inf):
            yield bookmark


def _not_received(evidence: Evidence, name: str, records: Iterable[DemoRecord]) -> str:
    received = [record.bookmark for record in records if record.did == BARRIER and record.delivery == 0]
    most = evidence.killed.get(name, len(evidence.barriers))
    least = max(most - _ON_ITS_WAY, 0) if name in evidence.killed else most
    if least <= len(received) <= most and received == list(evidence.barriers)[: len(received)]:
        return ""
    return f"{name} recorded {len(received)} barriers instead of the first {most}, each once and in order"


def _out_of_turn(evidence: Evidence, records: Iterable[DemoRecord]) -> Iterator[str]:
    """Flights that a worker handled before it had the barrier of the day before, or after it had that of their day."""
    following = dict(pairwise(evidence.barriers.values()))
    today = next(iter(evidence.barriers.values()), "")
    for record in records:
        if record.did == BARRIER:
            today = following.get(evidence.barriers.get(record.bookmark, ""), "")
        elif record.bookmark in evidence.flights and day_of(evidence.flights[record.bookmark]) != today:
            yield record.bookmark
