"""Small charts as SVG, drawn here: no script runs in the browser for them. Colours are the style sheet's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ampsq.console.queue_list import wait

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ampsq.console.observer import FigureSample
    from ampsq.replication.report import LinkStatus, ReplicationReport

__all__ = ["GraphLink", "GraphNode", "Spark", "draw_sparkline", "links_drawn", "rates"]

#: Seconds over which a rate is taken.
_OVER: Final = 10.0
_WIDTH: Final = 100.0
_HEIGHT: Final = 28.0
_SPAN: Final = 90


@dataclass(frozen=True, slots=True)
class Spark:
    """A line through what a figure was.

    Attributes:
        points: of the line, as SVG takes them; "" where there is nothing to draw.
        area: the same with what is below it.
        label: the same in words.
    """

    points: str
    area: str
    label: str


def rates(moments: Sequence[FigureSample]) -> tuple[float, float] | None:
    """Messages a second that came in and that left, over the last ten seconds; None while that is not known."""
    if len(moments) < 2:  # noqa: PLR2004
        return None
    last = moments[-1]
    first = next((each for each in moments[:-1] if each.at >= last.at - _OVER), moments[-2])
    seconds = max(last.at - first.at, 0.001)
    return max(last.entered - first.entered, 0) / seconds, max(last.settled - first.settled, 0) / seconds


def draw_sparkline(values: Sequence[tuple[float, float]], what: str) -> Spark:
    """Draw a figure over time.

    Args:
        values: time in seconds and figure, the earliest first.
        what: the figure's name.
    """
    if len(values) < 2:  # noqa: PLR2004
        return Spark("", "", f"{what}: not known yet")
    begin, end = values[0][0], values[-1][0]
    most = max(1.0, *(value for _, value in values))
    length = max(end - begin, 0.001)
    points = [
        (_WIDTH * (at - begin) / length, _HEIGHT - 2 - (_HEIGHT - 4) * value / most) for at, value in values[-_SPAN:]
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    area = f"{points[0][0]:.1f},{_HEIGHT:.0f} {line} {points[-1][0]:.1f},{_HEIGHT:.0f}"
    label = f"{what} over {length:.0f} seconds: from {values[0][1]:.0f} to {values[-1][1]:.0f}, at most {most:.0f}"
    return Spark(line, area, label)


@dataclass(frozen=True, slots=True)
class GraphNode:
    """An instance in the graph.

    Attributes:
        name: its name.
        detail: its group, or what is missing.
        owns: how many messages of shared queues are its to deliver; "" where nothing is shared.
        owned: the same by queue.
        x, y: its middle.
        is_here: whether it is the one that is looked at.
    """

    name: str
    detail: str
    owns: str
    owned: str
    x: float
    y: float
    is_here: bool


@dataclass(frozen=True, slots=True)
class GraphLink:
    """A link in the graph, from one node's edge to another's.

    Attributes:
        state: ``connected``, or what it is instead; ``downgraded`` before all else.
        text: on it.
        x1, y1, x2, y2: where it begins and ends; an incoming one begins at the other instance.
        x, y: the middle of the text.
    """

    state: str
    text: str
    x1: float
    y1: float
    x2: float
    y2: float
    x: float
    y: float


#: Of the graph, in units of its own.
_HERE_X: Final = 110.0
_THERE_X: Final = 590.0
_HALF: Final = 90.0
_STEP: Final = 104.0
_APART: Final = 9.0
_NEAR: Final = 0.66


def links_drawn(found: ReplicationReport) -> tuple[list[GraphNode], list[GraphLink], float]:
    """Place this instance at the left, the others at the right, and a line for each link; and the height of it all.

    Others are those with a link, and those that own messages of the queues that are shared.
    """
    peers: dict[str, str] = {}
    for link in found.links:
        name = link.instance or link.destination
        peers[name] = peers.get(name) or (f"group {link.group}" if link.group else "")
    owned = _owned(found, peers)
    for name in owned:
        if name != found.instance:
            peers.setdefault(name, "no link")
    height = max(len(peers), 1) * _STEP + 16
    here = _node(found.instance, f"group {found.group}", owned, _HERE_X, height / 2, is_here=True)
    nodes, lines = [here], []
    for number, (name, detail) in enumerate(peers.items()):
        there = _node(name, detail, owned, _THERE_X, _STEP * number + _STEP / 2 + 8, is_here=False)
        nodes.append(there)
        lines += [_line(link, here, there) for link in found.links if (link.instance or link.destination) == name]
    return nodes, lines, height


def _owned(found: ReplicationReport, peers: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """Instance -> queue -> messages that are its to deliver."""
    owned: dict[str, dict[str, int]] = {}
    for queue in found.queues:
        owned.setdefault(found.instance, {})[queue.queue] = queue.owned
        for owner, number in queue.owners.items():
            # An owner is a name, or a name and an incarnation.
            name = owner if owner in peers else owner.rpartition(".")[0] or owner
            queues = owned.setdefault(name, {})
            queues[queue.queue] = queues.get(queue.queue, 0) + number
    return owned


def _node(
    name: str, detail: str, owned: Mapping[str, Mapping[str, int]], x: float, y: float, *, is_here: bool
) -> GraphNode:
    queues = {queue: number for queue, number in owned.get(name, {}).items() if number}
    owns = f"owns {sum(queues.values()):,}" if owned else ""
    by_queue = ", ".join(f"{queue} {number:,}" for queue, number in queues.items()) or "nothing"
    return GraphNode(name, detail, owns, f"{name} owns {by_queue}", x, y, is_here)


def _line(link: LinkStatus, here: GraphNode, there: GraphNode) -> GraphLink:
    is_out = link.direction == "out"
    shift = -_APART if is_out else _APART
    ends = (_HERE_X + _HALF, here.y + shift, _THERE_X - _HALF, there.y + shift)
    state = "downgraded" if link.acknowledgement == "downgraded" else link.state
    behind = "" if not link.behind else f", {link.behind:,} behind for {wait(link.seconds_behind)}"
    text = f"{link.acknowledgement}, {link.state}{behind}"
    # Near the other instance, where lines are apart; above the line out, below the line in.
    x, y = (start + _NEAR * (end - start) for start, end in ((ends[0], ends[2]), (ends[1], ends[3])))
    begin, end = (ends[:2], ends[2:]) if is_out else (ends[2:], ends[:2])
    return GraphLink(state, text, *begin, *end, x, y + (-7.0 if is_out else 17.0))
