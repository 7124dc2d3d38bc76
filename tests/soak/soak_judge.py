"""Verdict of a run of the soak, judged from numbers alone.

A leg has its number of messages, or it fails; what is lost, doubled or grew is a finding. Numbers are those of the
whole run of two hours; a shorter one needs its share, and at least one of each.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from ampsq.protocol.calls.queue_history import BUCKETS, RANGES
from ampsq.protocol.limits import DELIVERIES, EVENTS, HAPPENINGS, MARKS, REQUESTS, WANTED

__all__ = [
    "CAPPED",
    "LIMITS",
    "WHOLE",
    "Growth",
    "Leg",
    "Limit",
    "account",
    "judge_capped",
    "judge_growth",
    "needed",
    "table",
]

#: Seconds of the whole run, and what it has to show.
WHOLE = 7_200.0
MESSAGES, KILLS, REWRITES, MEMORY_LIMITS, REPLICAS_BEHIND = 10_000, 50, 2, 2, 2
#: Looks that a line of growth needs.
_LEAST_LOOKS = 5
#: Growth for 1,000 settled messages that the table shows as more than 0.00.
_SHOWN = 0.005


def needed(number, seconds):
    """The share of a number of the whole run that a run of so many seconds has to show, at least one."""
    return max(1, math.ceil(number * min(seconds / WHOLE, 1.0)))


@dataclass(frozen=True)
class Leg:
    """The traffic through a part of the soak, and the traffic that it needs."""

    name: str
    through: int
    need: int

    @property
    def finding(self):
        return f"{self.name}: {self.through:,} went through, {self.need:,} are needed" * (self.through < self.need)


@dataclass(frozen=True)
class Limit:
    """The limit below which it counts as no growth.

    Attributes:
        per_thousand: of 1,000 settled messages.
        slack: by which a line moves anyway, whatever the length of the run: blocks of a stream, a batch under way.
    """

    per_thousand: float
    slack: float


#: Unit -> its limit.
LIMITS = {
    "keys": Limit(0.05, 2),
    "elements": Limit(2, 250),
    "bytes": Limit(128, 20_000),
    "heap": Limit(128, 16_000),
    "memory": Limit(128, 24_000),
    "threads": Limit(0.02, 1.5),
    "files": Limit(0.02, 3.5),
}


#: Kind of key that its own length cuts -> elements that are kept of each such key.
CAPPED = {
    "requests": REQUESTS,
    "marks": MARKS,
    "confirmed": MARKS,
    "events": EVENTS,
    "happenings": HAPPENINGS,
    "deliveries": DELIVERIES,
    "wanted": WANTED,
    "history": BUCKETS * len(RANGES),
}


#: Lines with a limit of their own. Streams are trimmed by blocks of a hundred entries, and each of the last 64 barriers
#: that a subscription was sent holds its block, and those of the journals that tell of it. A coordinator takes over
#: what another one did that was killed. What a server calls its Lua memory has garbage in it; its heap has none.
OWN_LIMITS = {
    ("key log", "elements"): Limit(2, 3_000),
    ("key log", "bytes"): Limit(128, 2_000_000),
    ("key journal", "elements"): Limit(2, 4_000),
    ("key journal", "bytes"): Limit(128, 2_000_000),
    ("process coordinator (steady)", "memory"): Limit(128, 300_000),
    ("process publishing tasks (steady)", "memory"): Limit(128, 300_000),
    ("server soak-a, vm", "heap"): Limit(128, 500_000),
    ("server soak-b, vm", "heap"): Limit(128, 500_000),
}


#: Settled messages between the first and the last look below which memory has limits of its own: code that runs now
#: and then runs for the first time, and what is kept of the last events fills. The two hours show that both end.
SHORT = 500_000
SHORT_LIMITS = {
    "memory": Limit(512, 24_000),
    ("process coordinator (steady)", "memory"): Limit(512, 2_000_000),
    ("process publishing tasks (steady)", "memory"): Limit(512, 300_000),
}


def _limit(name, unit, settled):
    """The limit of a line over so many settled messages."""
    limit = OWN_LIMITS.get((name, unit), LIMITS[unit])
    if settled >= SHORT or unit != "memory":
        return limit
    return SHORT_LIMITS.get((name, unit), SHORT_LIMITS[unit])


@dataclass(frozen=True)
class Growth:
    """A line of the table of growth.

    Attributes:
        name: what was looked at.
        unit: a key of `LIMITS`.
        first, last: values of the first look that counts and of the last one.
        per_thousand: growth for 1,000 settled messages: the median of the slopes of all pairs of looks.
        looks: how many counted.
        note: why it may grow, where it may.
    """

    name: str
    unit: str
    first: float
    last: float
    per_thousand: float
    looks: int
    finding: str = ""
    note: str = ""


def _slope(points):
    slopes = [(y - x) / (b - a) for (a, x), (b, y) in combinations(points, 2) if b > a]
    return 1_000 * median(slopes) if slopes else 0.0


def judge_growth(name, unit, points):
    """Judge one line.

    Args:
        name: what was looked at.
        unit: a key of `LIMITS`.
        points: (settled messages by then, value) of one life of what was looked at, in order.
    """
    if len(points) < _LEAST_LOOKS or points[-1][0] <= points[0][0]:
        return Growth(name, unit, *(points[0][1], points[-1][1]) if points else (0, 0), 0.0, len(points),
                      f"{name}: {len(points)} looks, {_LEAST_LOOKS} are needed")  # fmt: skip
    slope, limit = _slope(points), _limit(name, unit, points[-1][0] - points[0][0])
    rise = slope / 1_000 * (points[-1][0] - points[0][0])
    # A cache that fills, or a duty that is taken over, is a step in one half; a leak is in both.
    middle = len(points) // 2
    halves = [points[: middle + 1], points[middle:]]
    rises = [_slope(half) / 1_000 * (half[-1][0] - half[0][0]) for half in halves]
    is_growing = slope > limit.per_thousand and rise > limit.slack and min(rises) > limit.slack / 2
    finding = f"{name} ({unit}) grows by {slope:,.2f} for 1,000 settled messages" * is_growing
    return Growth(name, unit, points[0][1], points[-1][1], slope, len(points), finding)


def judge_capped(name, unit, points, elements, cap):
    """Judge a line of what is cut by its own length: it may grow up to that, and no further.

    Args:
        name: what was looked at.
        unit: a key of `LIMITS`.
        points: as for `judge_growth`.
        elements: how many it has in the end.
        cap: how many it may have, about: streams are cut by blocks.
    """
    is_beyond = elements > 1.1 * cap + 200
    finding = f"{name}: {elements:,} elements, and {cap:,} are kept" * is_beyond
    slope = _slope(points) if points[-1][0] > points[0][0] else 0.0
    return Growth(name, unit, points[0][1], points[-1][1], slope, len(points), finding, f"kept: about {cap:,}")


def account(told, attempted, consumed, wanted):
    """Compare what publishers were told with what the consumers of a queue or topic had.

    Args:
        told: publisher -> numbers that it was told to be safe.
        attempted: publisher -> the number behind the last one that it may have sent.
        consumed: the `Consumed` of the queue.
        wanted: says of publisher and number whether the queue delivers it.

    Returns:
        Findings, each a text: lost, doubled, delivered behind a confirmed acknowledgement, or from nowhere.
    """
    lost = [
        (by, number)
        for by, numbers in told.items()
        for number in numbers
        if wanted(by, number) and (by, number) not in consumed.handled
    ]
    doubled = [message for message, places in consumed.handled.items() if len(places) > 1]
    strange = [
        (by, number) for by, number in consumed.handled if number >= attempted.get(by, 0) or not wanted(by, number)
    ]
    named = {
        "lost": lost,
        "doubled": doubled,
        "delivered again behind a confirmed acknowledgement": consumed.after_acknowledgement,
        "that nobody published, or that are another queue's": strange,
    }
    return [f"{len(found):,} messages {what}, as {sorted(found)[:5]}" for what, found in named.items() if found]


def table(heads, rows):
    """A table for people and for pages."""
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in [heads, *cells]) for at in range(len(heads))]

    def line(row):
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"

    return "\n".join([line(heads), "|" + "|".join("-" * (width + 2) for width in widths) + "|", *map(line, cells)])


def growth_table(lines):
    """The table of growth, and below it the names of all that is as it was."""
    moved = [each for each in lines if each.finding or abs(each.per_thousand) >= _SHOWN]
    level = defaultdict(list)
    for each in lines:
        if each not in moved:
            level[each.name].append(each.unit)
    units = Counter(each.name for each in lines)
    names = [name if len(found) == units[name] else f"{name} ({', '.join(found)})" for name, found in level.items()]
    rows = [
        (each.name, each.unit, round(each.first), round(each.last), f"{each.per_thousand:.2f}",
         "grows" if each.finding else each.note)
        for each in moved
    ]  # fmt: skip
    shown = table(["what", "unit", "first", "last", "for 1,000 settled", ""], rows)
    return f"{shown}\n\n0.00 for 1,000 settled messages: {', '.join(names)}."
