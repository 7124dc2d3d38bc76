"""Verdicts on figures of `ampsq bench`: which way each is better, and which have fallen from one commit to another."""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["FALLEN_BELOW", "Better", "Verdict", "direction", "flattened", "own_figure", "quotient", "verdict"]

#: A ratio of medians from which on nothing has fallen.
FALLEN_BELOW: Final = 0.95
#: Ratios are kept between this and its inverse: a figure may be 0.
_LEAST: Final = 0.001


class Better(StrEnum):
    """The direction in which a figure is better."""

    MORE = "more"
    LESS = "less"
    NOT_COMPARED = "not compared"


#: The first that a whole name matches decides; a name that none matches is unknown.
_DIRECTIONS: Final = tuple(
    (re.compile(pattern), better)
    for pattern, better in (
        # Rounds inside of one run, whose median is a figure of its own.
        (r".+\.ratios\.\d+", Better.NOT_COMPARED),
        # Raw Streams: what redis-py does, which no commit changes.
        (r"(.+\.)?(raw_(per_second|server_us|client_us)|(p\d+|cycle)_raw_us)", Better.NOT_COMPARED),
        # How much was measured.
        (r".+\.(messages|letters|held|outage_s)", Better.NOT_COMPARED),
        (r"idle\..+\.samples", Better.NOT_COMPARED),
        # A server that nobody uses.
        (r"idle\..+\.server_empty_ms|partitions\.by_themselves\..+", Better.NOT_COMPARED),
        # What idle instances cost: calls by their names.
        (r"idle\.\d+\.commands\..+|idle\..+\.(threads|descriptors|resident_kb)", Better.LESS),
        # Bytes and microseconds under the names of what they are for.
        (r"kinds\.(memory|ahead|filters)\..+", Better.LESS),
        # A latency beside that of raw Streams.
        (r".+\.(p\d+|cycle)_ratio", Better.LESS),
        # The longest call of each verb, ms.
        (r"calls\..+", Better.LESS),
        # A rate, beside that of raw Streams or a plain queue or not; by the work of the processors, too.
        (r".+[._](per_second|ratio)|.+\.ratio_beside_link", Better.MORE),
        (r"(.+\.)?(server_cpu_us_per_message|source_us_of_the_link|calls_over_10_ms)", Better.LESS),
        (r".+[._](us|ms|s|seconds)", Better.LESS),
        (r".+\.bytes_per_\w+", Better.LESS),
        (r"(groups|partitions)\..+\.messages_per_call", Better.MORE),
        (r"partitions\..+\.(client|server)_to_none", Better.LESS),
    )
)

#: Ratios whose divisor is another figure of ours, which a commit changes, too, as raw Streams are not; and what is
#: divided.
_OWN_FIGURES: Final = tuple(
    (re.compile(pattern), own)
    for pattern, own in (
        (r"(kinds\.rates\..+)\.publish_ratio", r"\1.publish_per_second"),
        (r"(kinds\.rates\..+)\.consume_ratio", r"\1.per_second"),
        (r"(publishing\..+)\.(many|single)_ratio", r"\1.\2_per_second"),
        (r"(.+)\.ratio_beside_link", r"\1.publish_beside_link_per_second"),
        (r"(partitions\..+)\.(client|server)_to_none", r"\1.\2_us"),
    )
)


def own_figure(name: str) -> str | None:
    """Return the name of what a ratio divides by another figure of ours; None: it is no such ratio."""
    matches = ((pattern.fullmatch(name), own) for pattern, own in _OWN_FIGURES)
    return next((match.expand(own) for match, own in matches if match), None)


def direction(name: str) -> Better | None:
    """Return which way the figure of a dotted name is better; None of one that no rule knows."""
    return next((better for pattern, better in _DIRECTIONS if pattern.fullmatch(name)), None)


def flattened(figures: Mapping[str, object], before: str = "") -> dict[str, float]:
    """Return every number of nested figures by its dotted name; truth values and texts are left out."""
    return dict(_numbers(figures, before))


def _numbers(value: object, name: str) -> Iterator[tuple[str, float]]:
    if isinstance(value, (dict, list)):
        inside = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in inside:
            yield from _numbers(part, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield name, value


def quotient(new: float, old: float, better: Better) -> float:
    """Return how good a figure is beside an older one: 1 is the same, less is worse, whichever way it is better."""
    above, below = (new, old) if better is Better.MORE else (old, new)
    if above == below:
        return 1.0
    return min(max(above / below if below else 1 / _LEAST, _LEAST), 1 / _LEAST)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A figure of two commits, measured in the same rounds.

    Attributes:
        name: the figure's dotted name.
        better: which way it is better.
        old: its median for the old commit.
        new: its median for the new one.
        ratio: `new` beside `old`: 1 is the same, less is worse.
        rounds: the same, round by round.
        parent_ratio: the median of the old commit's second runs beside `old`.
        parent_rounds: the same, round by round.
        own_ratio: of a ratio whose divisor is another figure of ours, the ratio of what is divided; None: it is no such
            ratio, or that was not measured.
        lowest: how low parent against parent comes.
        highest: how high parent against parent comes.
    """

    name: str
    better: Better
    old: float
    new: float
    ratio: float
    rounds: Sequence[float]
    parent_ratio: float
    parent_rounds: Sequence[float]
    own_ratio: float | None = None
    lowest: float = field(init=False)
    highest: float = field(init=False)

    def __post_init__(self) -> None:
        # Which run of the same commit is called the second one is chance: each ratio counts both ways.
        shown = (self.parent_ratio, *self.parent_rounds)
        object.__setattr__(self, "lowest", min(*shown, *(1 / ratio for ratio in shown)))
        object.__setattr__(self, "highest", 1 / self.lowest)

    @property
    def fallen(self) -> bool:
        """Say whether the new commit is worse by more than 5% and by more than parent against parent shows.

        A ratio to another figure of ours falls where that becomes better; it has fallen if what is divided is worse by
        more than 5%, too.
        """
        is_worse = self.own_ratio is None or self.own_ratio < FALLEN_BELOW
        return self.ratio < FALLEN_BELOW and self.ratio < self.lowest and is_worse

    @property
    def word(self) -> str:
        """The verdict in a word; "noisy" where parent against parent shows a ratio as low as one below 0.95.

        "divisor" where a ratio is lower since what it is divided by is better.
        """
        if self.ratio < FALLEN_BELOW:
            return "FALLEN" if self.fallen else "noisy" if self.ratio >= self.lowest else "divisor"
        return "better" if self.ratio > max(1 / FALLEN_BELOW, self.highest) else ""


def verdict(name: str, better: Better, old: Sequence[float], new: Sequence[float], again: Sequence[float]) -> Verdict:
    """Judge a figure by its values in each round: of the old commit, of the new one, of the old one once more."""
    middle = statistics.median(old)
    return Verdict(
        name=name,
        better=better,
        old=middle,
        new=statistics.median(new),
        ratio=quotient(statistics.median(new), middle, better),
        rounds=[quotient(value, beside, better) for value, beside in zip(new, old, strict=True)],
        parent_ratio=quotient(statistics.median(again), middle, better),
        parent_rounds=[quotient(value, beside, better) for value, beside in zip(again, old, strict=True)],
    )
