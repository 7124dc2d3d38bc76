"""The replication graph: this instance, those that it is linked with, and the links between, each with what it says.

It is made of boxes and lines of the page itself, not of a picture: whatever a link says has its own room, at any width
and any size of letters, and a screen reader reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ampsq.base.formatting import count_text
from ampsq.console.queue_list import wait

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ampsq.replication.report import LinkStatus, ReplicationReport

__all__ = ["GraphLink", "GraphNode", "draw_links"]

#: Seconds from which a connected link that lacks something is shown as one that lags, and as one that is far behind.
_LAGS: Final = 10.0
_FAR_BEHIND: Final = 60.0


@dataclass(frozen=True, slots=True)
class GraphLink:
    """A link in the graph.

    Attributes:
        direction: ``out`` or ``in``.
        level: ``good``, ``warn`` or ``bad``: the colour of its line and of its words.
        text: its acknowledgement, its state and its lag.
        losses: how often its connection was lost, and when last; "" where it never was.
    """

    direction: str
    level: str
    text: str
    losses: str


@dataclass(frozen=True, slots=True)
class GraphNode:
    """An instance in the graph.

    Attributes:
        name: its name.
        detail: its group, or what is missing.
        owns: how many messages of shared queues are its to deliver; "" where nothing is shared.
        owned: the same by queue.
        links: those between it and the instance that is looked at.
    """

    name: str
    detail: str
    owns: str
    owned: str
    links: tuple[GraphLink, ...] = ()


def draw_links(found: ReplicationReport) -> tuple[GraphNode, list[GraphNode]]:
    """Return this instance, and the others with their links.

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
    here = _node(found.instance, f"group {found.group}", owned)
    others = []
    for name, detail in peers.items():
        links = tuple(_link(link) for link in found.links if (link.instance or link.destination) == name)
        others.append(_node(name, detail, owned, links))
    return here, others


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
    name: str, detail: str, owned: Mapping[str, Mapping[str, int]], links: tuple[GraphLink, ...] = ()
) -> GraphNode:
    queues = {queue: number for queue, number in owned.get(name, {}).items() if number}
    owns = f"owns {sum(queues.values()):,}" if owned else ""
    by_queue = ", ".join(f"{queue} {number:,}" for queue, number in queues.items()) or "nothing"
    return GraphNode(name, detail, owns, f"{name} owns {by_queue}", links)


def _link(link: LinkStatus) -> GraphLink:
    behind = "" if not link.behind else f", {link.behind:,} behind for {wait(link.seconds_behind)}"
    losses = ""
    if link.disconnects:
        ago = "" if link.disconnected_ago is None else f", last {wait(link.disconnected_ago)} ago"
        losses = f"connection lost {count_text(link.disconnects, 'time')}{ago}"
    return GraphLink(link.direction, _level(link), f"{link.acknowledgement}, {link.state}{behind}", losses)


def _level(link: LinkStatus) -> str:
    if link.acknowledgement == "downgraded" or link.state not in {"connected", "waiting"}:
        return "bad"
    late = (link.seconds_behind or 0.0) if link.behind else 0.0
    if late >= _FAR_BEHIND:
        return "bad"
    return "warn" if link.state == "waiting" or late >= _LAGS else "good"
