"""Fates of all flights, counted from the journals, the processes' own records and the dead letters.

Nothing is taken from counters, and nothing is assumed: a flight whose fate cannot be shown is lost.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ampsq.cli.demo_days import barrier_failures, days, sent_once
from ampsq.cli.demo_evidence import wrong

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ampsq.cli.demo_crew import DemoRecord
    from ampsq.cli.demo_days import Day
    from ampsq.cli.demo_evidence import Evidence

__all__ = ["CarrierDelay", "DemoOutcome", "check_outcome"]


@dataclass(frozen=True, slots=True)
class CarrierDelay:
    """A carrier's departures, and the mean of their delays in minutes."""

    carrier: str
    flights: int
    mean: float


@dataclass(slots=True)
class DemoOutcome:
    """The figures, and what is wrong with them."""

    published: int
    acknowledged: int = 0
    dead_lettered: int = 0
    lost: int = 0
    acknowledged_twice: int = 0
    redelivered: int = 0
    handled_twice: int = 0
    board: int = 0
    killed: int = 0
    barriers: int = 0
    delays: list[CarrierDelay] = field(default_factory=list)
    days: list[Day] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def check_outcome(evidence: Evidence) -> DemoOutcome:
    """Count, and check every figure that does not depend on chance."""
    flights, journal = evidence.flights, evidence.delays
    handled = {record.bookmark: record for record in evidence.records("handled")}
    # An acknowledgement counts only for a flight that some worker recorded.
    acknowledged = {bookmark for bookmark in journal.ways["acknowledged"] if bookmark in handled}
    letters = Counter(str(letter["bookmark"]) for letter in evidence.letters)
    kept = acknowledged | {bookmark for bookmark, times in letters.items() if times == 1}
    outcome = DemoOutcome(
        published=len(flights),
        acknowledged=len(acknowledged),
        dead_lettered=len(letters),
        lost=sum(bookmark not in kept for bookmark in flights),
        acknowledged_twice=sum(journal.times(bookmark) > 1 for bookmark in flights),
        redelivered=_redelivered(evidence),
        handled_twice=sum(times > 1 for times in _times(evidence.records("handled")).values()),
        board=sum(times == 1 for times in evidence.board.ways["acknowledged"].values()),
        killed=len(evidence.killed),
        barriers=len(sent_once(evidence)),
        delays=_delays(handled[bookmark] for bookmark in acknowledged),
        days=days(evidence, (handled[bookmark] for bookmark in acknowledged)),
    )
    failures = [*_failures(evidence, outcome, acknowledged, letters), *barrier_failures(evidence)]
    outcome.failures += [text for text in failures if text]
    return outcome


def _times(records: Iterable[DemoRecord]) -> Counter[str]:
    return Counter(record.bookmark for record in records)


def _redelivered(evidence: Evidence) -> int:
    """Deliveries beyond the first that no cancel explains."""
    last: dict[str, int] = {}
    for record in evidence.records():
        last[record.bookmark] = max(last.get(record.bookmark, 0), record.delivery)
    cancels = {str(letter["bookmark"]): int(str(letter["cancels"])) for letter in evidence.letters}
    return sum(
        delivery - 1 - max(cancels.get(bookmark, 0) - 1, 0) for bookmark, delivery in last.items() if delivery > 1
    )


def _delays(records: Iterable[DemoRecord]) -> list[CarrierDelay]:
    """By carrier, the latest first."""
    minutes: defaultdict[str, list[int]] = defaultdict(list)
    for record in records:
        minutes[record.carrier].append(record.delay)
    delays = [CarrierDelay(carrier, len(some), sum(some) / len(some)) for carrier, some in minutes.items()]
    return sorted(delays, key=lambda delay: -delay.mean)


def _failures(evidence: Evidence, outcome: DemoOutcome, acknowledged: set[str], letters: Counter[str]) -> list[str]:
    never_left = {bookmark for bookmark, flight in evidence.flights.items() if flight["dep_time"] is None}
    board_times = _times(evidence.board_records)
    board_journal = evidence.board.ways["acknowledged"]
    return [
        wrong(
            (bookmark for bookmark in evidence.flights if bookmark not in acknowledged and letters[bookmark] != 1),
            "lost: neither acknowledged nor once in the dead-letter topic",
        ),
        wrong(
            (bookmark for bookmark in evidence.flights if evidence.delays.times(bookmark) > 1),
            "settled more than once by the journal of the first queue",
        ),
        wrong(never_left & acknowledged, "acknowledged, though they never left"),
        wrong(never_left ^ letters.keys(), "dead letters that should not be, or are missing"),
        wrong(
            (str(letter["bookmark"]) for letter in evidence.letters if not _is_right(evidence, letter)),
            "dead letters without the original message and the right reason",
        ),
        wrong(
            (
                bookmark
                for bookmark in evidence.flights
                if board_times[bookmark] != 1 or board_journal[bookmark] != 1 or evidence.board.times(bookmark) != 1
            ),
            "not delivered and acknowledged exactly once by the second queue",
        ),
        "" if outcome.killed == 1 else f"{outcome.killed} workers were killed in the middle instead of 1",
        "" if outcome.redelivered > 0 else "nothing came back from the killed worker",
    ]


def _is_right(evidence: Evidence, letter: Mapping[str, object]) -> bool:
    said = (letter["reason"], letter["cancels"], letter["message"])
    return said == ("max_cancels", evidence.max_cancels, evidence.flights.get(str(letter["bookmark"])))
