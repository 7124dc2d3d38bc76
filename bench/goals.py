"""Goals of figures beside raw Streams: each with its floor and its goal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["GOALS", "LONGEST_CALL_MS", "Goal", "Reached", "reached"]

#: No call of any verb is to hold the server longer.
LONGEST_CALL_MS: Final = 10.0
#: Of a floor that is one of the work, what ours reaches at least by the time that passes.
_WALL: Final = 0.9


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure that has a floor and a goal.

    Attributes:
        title: what is measured.
        group: dotted name of the group that has it.
        figure: name of the figure in it.
        floor: what it is to be at least, or at most where less is better.
        goal: what it is to become.
        is_less_better: it is a time, or bytes.
    """

    title: str
    group: str
    figure: str
    floor: float | None
    goal: float | None
    is_less_better: bool = False


def _work(title: str, group: str, floor: float, goal: float | None = None) -> Goal:
    return Goal(title, group, "cpu_ratio", floor, goal)


def _less(title: str, group: str, figure: str, floor: float | None = None, goal: float | None = None) -> Goal:
    return Goal(title, group, figure, floor, goal, is_less_better=True)


#: In the order of the table. Of rates the floor is of the work (CPU); by the time that passes it is 0.9 of that.
GOALS: Final = (
    _work("publish, 100 a call", "publish", 2.3, 3.0),
    _work("publish, 500 a call", "publish_500", 2.8, 4.0),
    _work("take + ack, backlog 10", "consume.backlog_10", 1.3, 1.8),
    _work("take + ack, backlog 100", "consume.backlog_100", 1.0, 1.3),
    _work("take + ack, backlog 500", "consume.backlog_500", 1.2, 1.5),
    _work("out of order, 8 at once", "consume.out_of_order", 0.9, 1.2),
    _work("the same, 1 % slow ones", "consume.out_of_order_slow", 0.9, 1.2),
    _work("priority", "policies.priority", 0.45, 0.7),
    _work("filter", "policies.filter", 0.45, 0.7),
    _work("selective subscription", "policies.selective", 0.4, 0.7),
    _work("barrier", "policies.barrier", 0.4, 0.7),
    _less("push p50, us", "latency", "p50", 1.3, 0.8),
    _less("push p99, us", "latency", "p99", 2.5, 1.5),
    _less("server CPU of a push cycle, us", "latency", "cycle", 2.0, 1.4),
    _less("push p50, 50 subscriptions, 20 queues, us", "latency_many", "p50"),
    _less("push p99, the same, us", "latency_many", "p99"),
    _less("server CPU of a push cycle, the same, us", "latency_many", "cycle"),
    _less("bytes of a queued message", "memory", "bytes_per_queued", 0.01, 0.0),
    _less("bytes of a message leased in a run", "memory", "bytes_per_leased", 25),
    _less("bytes of a message leased singly", "memory", "bytes_per_leased_singly", 120),
    Goal("publish beside a running link, to alone", "link", "ratio_beside_link", 0.8, 0.95),
    _less("publish into many queues, ms", "many_queues", "publish_ms"),
    _less("its longest call, ms", "many_queues", "longest_call_ms", LONGEST_CALL_MS),
    _less("defining many queues, s", "many_queues", "define_s", 2.0),
)


@dataclass(frozen=True, slots=True)
class Reached:
    """A figure beside its floor.

    Attributes:
        goal: which one.
        own: ours: messages a second, or the figure itself.
        raw: the same of raw Streams; None where there is nothing to compare with.
        wall: ours beside raw by the time that passes; of a latency more is worse.
        cpu: the same by what the processors work.
        server: us a message of the server, ours and raw.
        client: us a message of this process, ours and raw.
    """

    goal: Goal
    own: float
    raw: float | None = None
    wall: float | None = None
    cpu: float | None = None
    server: tuple[float, float] | None = None
    client: tuple[float, float] | None = None

    @property
    def holds(self) -> bool | None:
        """Return whether the floor holds; None: there is none."""
        floor = self.goal.floor
        if floor is None:
            return None
        if self.cpu is not None and self.wall is not None:
            return self.cpu >= floor and self.wall >= floor * _WALL
        value = next((each for each in (self.cpu, self.wall) if each is not None), self.own)
        return value <= floor if self.goal.is_less_better else value >= floor


def reached(figures: Mapping[str, float]) -> list[Reached]:
    """Return those that were measured; `figures` are all numbers by their dotted names."""
    return [row for goal in GOALS if (row := _reached(goal, figures)) is not None]


def _reached(goal: Goal, figures: Mapping[str, float]) -> Reached | None:
    group = f"{goal.group}."
    if goal.figure == "cpu_ratio" and f"{group}cpu_ratio" in figures:
        own, other, wall, cpu = (
            figures[group + name] for name in ("per_second", "raw_per_second", "ratio", "cpu_ratio")
        )
        server, client = (
            (figures[f"{group}{side}_us"], figures[f"{group}raw_{side}_us"]) for side in ("server", "client")
        )
        return Reached(goal, own, other, wall, cpu, server, client)
    if f"{group}{goal.figure}_raw_us" in figures:
        own, other, ratio = (figures[f"{group}{goal.figure}_{name}"] for name in ("us", "raw_us", "ratio"))
        is_work = goal.figure == "cycle"
        return Reached(goal, own, other, None if is_work else ratio, ratio if is_work else None)
    value = figures.get(group + goal.figure)
    return None if value is None else Reached(goal, value)
