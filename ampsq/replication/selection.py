"""What a destination is sent of everything that is defined: which topics and which queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ampsq.definitions.destination_checks import sent_queue, sent_topic
from ampsq.models import GroupLocalQueue, Queue

if TYPE_CHECKING:
    from ampsq.calls import Catalog
    from ampsq.definitions.destination import Destination, ReplicatedTopic

__all__ = ["Selection", "same_queue", "select"]


class Selection(NamedTuple):
    """Names, each with what the destination says of it.

    Attributes:
        topics: those whose messages are sent; also what is named and not there yet.
        queues: those whose journals are sent.
    """

    topics: dict[str, ReplicatedTopic]
    queues: dict[str, ReplicatedTopic]


def select(mine: Catalog, theirs: Catalog, destination: Destination) -> Selection:
    """Choose what a link carries.

    Left out are views, which every instance makes for itself, local queues, and, where a regular expression matches it,
    a group local queue of whose name the other side has one of another domain.

    Args:
        mine: what is defined at the source.
        theirs: what is defined at the other side.
        destination: one of the source's.
    """
    topics: dict[str, ReplicatedTopic] = {}
    named = [topic.name for topic in destination.topics if not topic.is_pattern]
    unknown = [name for name in named if name not in mine.queues]
    for name in dict.fromkeys((*mine.topics, *unknown)):
        chosen = sent_topic(destination, mine, name)
        if chosen is None and name not in mine.topics and name not in mine.views:
            # What is not there has no type yet.
            chosen = next(topic for topic in destination.topics if topic.name == name)
        if chosen is not None:
            topics[name] = chosen
    queues: dict[str, ReplicatedTopic] = {}
    for name, text in mine.queues.items():
        queue = Queue.from_json(text)
        chosen = sent_queue(destination, queue)
        if chosen is None:
            continue
        if not chosen.is_pattern or not _is_of_another_domain(queue, mine, theirs):
            queues[name] = chosen
    return Selection(topics, queues)


def same_queue(queue: Queue, mine: Catalog, other: Queue, theirs: Catalog) -> bool:
    """Say whether two queues of one name are the same: of one kind, and of one domain."""
    return type(queue) is type(other) and queue.domain(mine.group) == other.domain(theirs.group)


def _is_of_another_domain(queue: Queue, mine: Catalog, theirs: Catalog) -> bool:
    text = theirs.queues.get(queue.name)
    if text is None or not isinstance(queue, GroupLocalQueue):
        return False
    other = Queue.from_json(text)
    return isinstance(other, GroupLocalQueue) and not same_queue(queue, mine, other, theirs)
