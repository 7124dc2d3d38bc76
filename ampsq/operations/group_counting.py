"""Counting the groups of queues, a bounded part of them at each reading: a pass over very many takes several."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import UnknownQueue
from ampsq.protocol.calls.groups import count_groups
from ampsq.protocol.request import Collect, Post

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.protocol.calls.groups import GroupSums
    from ampsq.transport.pipeline import Pipeline

__all__ = ["GroupCounter", "GroupFigures"]

#: Groups that are looked at in one reading, of all queues together, and of each queue however many queues there are.
_READING: Final = 10_000
_LEAST: Final = 50
#: Groups that one call looks at, and calls that are sent before their first reply is read.
_PAGE: Final = 500
_AHEAD: Final = 64


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """Figures of the groups of a queue; None of what no pass has counted yet.

    Attributes:
        number: groups of which something is leased or has its place, or that stand still.
        leased: those of which something is leased.
        on_hold: those that failed messages hold.
        stopped: those that a dead letter stopped.
        paused: those that somebody paused.
        oldest: age of the oldest message that has its place, seconds, whether its group goes on or not; 0 of none.
        age: seconds since the counting of all but `number` and `oldest` began.
    """

    number: int
    oldest: float
    leased: int | None = None
    on_hold: int | None = None
    stopped: int | None = None
    paused: int | None = None
    age: float | None = None


@dataclass(slots=True)
class _Sums:
    """The counts of a pass: when it began, and what its parts have had up to now."""

    began: float = field(default_factory=time.monotonic)
    leased: int = 0
    on_hold: int = 0
    stopped: int = 0
    paused: int = 0

    def add(self, part: GroupSums) -> None:
        self.leased += part.leased
        self.on_hold += part.on_hold
        self.stopped += part.stopped
        self.paused += part.paused


@dataclass(slots=True)
class _Passes:
    """The passes over one queue: the one that goes on, where it is, and the last one that came to its end."""

    sums: _Sums = field(default_factory=_Sums)
    cursor: int = 0
    whole: _Sums | None = None
    last: GroupSums | None = None
    looked: int = 0

    def add(self, part: GroupSums, size: int) -> None:
        self.sums.add(part)
        self.looked, self.cursor, self.last = self.looked + size, part.cursor, part
        if not self.cursor:
            self.whole, self.sums = self.sums, _Sums()


class GroupCounter:
    """Counts the groups of an instance's queues."""

    def __init__(self) -> None:
        self._passes: dict[str, _Passes] = {}

    async def count(self, queues: Sequence[str], pipeline: Pipeline) -> dict[str, GroupFigures]:
        """Look at the next part of the groups of these queues; gives the figures of each.

        Args:
            queues: their names; all others are forgotten.
            pipeline: for the calls, of the store that runs this.
        """
        self._passes = {name: self._passes.get(name) or _Passes() for name in queues}
        share = max(_READING // max(len(queues), 1), _LEAST)
        for each in self._passes.values():
            each.looked = 0
        left = list(queues)
        while left:
            for first in range(0, len(left), _AHEAD):
                await self._look(left[first : first + _AHEAD], share, pipeline)
            left = [name for name in left if name in self._passes and self._goes_on(name, share)]
        figures = {}
        for name, each in self._passes.items():
            if each.last is not None:
                figures[name] = _figures(each.last, each.whole)
        return figures

    def _goes_on(self, name: str, share: int) -> bool:
        each = self._passes[name]
        return each.cursor > 0 and each.looked < share

    async def _look(self, names: Sequence[str], share: int, pipeline: Pipeline) -> None:
        size = min(share, _PAGE)
        for name in names:
            await Post(pipeline, count_groups(name, self._passes[name].cursor, size))
        for name in names:
            try:
                part: GroupSums = await Collect(pipeline)
            except UnknownQueue:
                # It was removed since the catalog was read.
                del self._passes[name]
                continue
            self._passes[name].add(part, size)


def _figures(last: GroupSums, whole: _Sums | None) -> GroupFigures:
    oldest = max(last.now - last.oldest, 0) / 1000 if last.oldest else 0.0
    if whole is None:
        return GroupFigures(last.number, oldest)
    age = time.monotonic() - whole.began
    return GroupFigures(last.number, oldest, whole.leased, whole.on_hold, whole.stopped, whole.paused, age)
