"""Conditions that two instances meet before one replicates to the other: AMPS's checks, as pure functions.

A link is validated by its source when it connects: each direction by itself, each with the definitions of both sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from ampsq.base.message_types import JSON, MessageType
from ampsq.definitions.destination import CHECKS, Destination
from ampsq.definitions.queue import GroupLocalQueue, LocalQueue, Queue, Topic
from ampsq.expressions import parse
from ampsq.replication.selection import LinkSelection, same_queue, select

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ampsq.definitions.destination import ReplicatedTopic
    from ampsq.protocol.calls.catalog import Catalog

__all__ = ["ConfigDifference", "validate"]


class ConfigDifference(NamedTuple):
    """One thing that is not as it has to be.

    Attributes:
        check: the check that found it: one of `ampsq.definitions.destination.CHECKS`, or ``instance``, ``group``.
        topic: the topic or the queue that it is about; "" of the instance itself.
        text: what differs, and on which side it can be mended how.
        refuses: whether the link is refused; else it is a warning.
    """

    check: str
    topic: str
    text: str
    refuses: bool = True

    def __str__(self) -> str:
        about = f"{self.topic!r}: " if self.topic else ""
        return f"{self.check}: {about}{self.text}"


def validate(
    mine: Catalog, theirs: Catalog, destination: Destination, groups: Mapping[str, str] | None = None
) -> list[ConfigDifference]:
    """Compare what two instances have defined.

    Args:
        mine: what is defined at the source.
        theirs: what is defined at the instance that the link leads to.
        destination: the source's, through which it replicates there.
        groups: of the source's destinations the group of the instance that the link of each has found. It counts where
            a destination says none; of one that has found nobody yet, nothing is known to come.

    Returns:
        What differs, refusals first; nothing where all is well. What a topic's `exclude_validation` names is left out.
    """
    found = list(_Comparison(mine, theirs, destination, groups or {}).differences())
    return sorted(found, key=lambda difference: not difference.refuses)


@dataclass
class _Comparison:
    """The two sides, by whose names the texts say where to mend what."""

    mine: Catalog
    theirs: Catalog
    destination: Destination
    groups: Mapping[str, str]

    @cached_property
    def here(self) -> str:
        return self.mine.instance

    @cached_property
    def there(self) -> str:
        return self.theirs.instance

    @cached_property
    def selection(self) -> LinkSelection:
        return select(self.mine, self.theirs, self.destination)

    @cached_property
    def their_destinations(self) -> list[Destination]:
        return [Destination.from_json(text) for _, text in sorted(self.theirs.destinations.items())]

    @cached_property
    def back(self) -> list[Destination]:
        """Through which the other side replicates to this one."""
        return [each for each in self.their_destinations if each.leads_to(self.mine.instance, self.mine.group)]

    def differences(self) -> Iterator[ConfigDifference]:
        yield from self._of_instance()
        for name, topic in self.selection.topics.items():
            found = (*self._txlog(name, topic), *self._way_back(name, topic), *self._records(name))
            yield from (each for each in found if each.check in topic.enforced)
        for name, topic in self.selection.queues.items():
            yield from (each for each in self._of_queue(name, topic) if each.check in topic.enforced)
        yield from self._never_delivered()

    def _of_instance(self) -> Iterator[ConfigDifference]:
        destination, here, there = self.destination, self.here, self.there
        if not destination.leads_to(there, self.theirs.group):
            yield ConfigDifference(
                "instance", "",
                f"{destination.titled} of {here!r} is not meant for {there!r}. On {here!r}, name the instance behind # "
                f"in its addresses, or call the destination {there!r}",
            )  # fmt: skip
        if destination.group not in (None, self.theirs.group):
            yield ConfigDifference(
                "group", "",
                f"{there!r} is of the group {self.theirs.group!r}, and {destination.titled} of {here!r} says "
                f"{destination.group!r}. On {there!r} apply Instance(group={destination.group!r}), or on {here!r} say "
                f"group={self.theirs.group!r}",
            )  # fmt: skip

    # --- topics

    def _type(self, name: str, topic: ReplicatedTopic) -> MessageType:
        """The type here, or, of what is not here yet, that is meant."""
        if name in self.mine.topics or name in self.mine.queues:
            return self.mine.message_type(name)
        return MessageType(topic.message_type) if topic.message_type else self.theirs.message_type(name)

    def _txlog(self, name: str, topic: ReplicatedTopic) -> Iterator[ConfigDifference]:
        """Yield differences of the transaction log: whatever is recorded here must be recorded there as the same."""
        type_here, here, there = self._type(name, topic), self.here, self.there
        text = ""
        if name in self.theirs.views:
            text = f"is a topic on {here!r} and a view on {there!r}. Give the view there another name"
        elif name in self.theirs.queues and name not in self.theirs.topics:
            queue = Queue.from_json(self.theirs.queues[name])
            if queue.default_publish_target != name:
                text = (
                    f"is a topic on {here!r} and on {there!r} a queue over {queue.underlying_topic!r}. Give one of the "
                    "two another name"
                )
        if not text and self.theirs.message_type(name) != type_here:
            known = name in self.theirs.topics or name in self.theirs.queues
            found = str(self.theirs.message_type(name)) if known else f"not defined, that is {JSON},"
            text = (
                f"is {type_here} on {here!r} and {found} on {there!r}. On {there!r} define Topic(name={name!r}, "
                f"message_type={type_here.name!r}) before its first message"
            )
        if text:
            yield ConfigDifference("txlog", name, text)

    def _way_back(self, name: str, topic: ReplicatedTopic) -> Iterator[ConfigDifference]:
        """`replicate`, `replicate_filter` and `cascade`: of what the other side does with it."""
        here, there, type_here = self.here, self.there, self._type(name, topic)
        returned = [found for each in self.back if (found := each.topic_for(name, type_here)) is not None]
        if not returned:
            where = f"its destination {self.back[0].name!r}" if self.back else f"a destination that leads to {here!r}"
            yield ConfigDifference(
                "replicate", name,
                f"is sent to {there!r} and not back. On {there!r} add it to the topics of {where}, or on {here!r} "
                f"exclude 'replicate' for it in {self.destination.name!r}",
            )  # fmt: skip
        elif topic.filter is not None and not any(_alike(topic.filter, found.filter) for found in returned):
            other = f"under {returned[0].filter!r}" if returned[0].filter is not None else "without a filter"
            yield ConfigDifference(
                "replicate_filter", name,
                f"is sent to {there!r} under the filter {topic.filter!r} and back {other}. On {there!r} use the same "
                f"filter in {self.back[0].name!r}, or on {here!r} exclude 'replicate_filter' for it",
            )  # fmt: skip
        for each in self.their_destinations:
            found = each.topic_for(name, type_here)
            lacking = [check for check in CHECKS if found and check in topic.enforced - found.enforced]
            if lacking:
                yield ConfigDifference(
                    "cascade", name,
                    f"is sent on by {there!r} to its destination {each.name!r} without {_listed(lacking)}, which "
                    f"{here!r} wants. On {there!r} exclude them no more there, or on {here!r} exclude them, too, or "
                    "'cascade'",
                )  # fmt: skip

    def _records(self, name: str) -> Iterator[ConfigDifference]:
        ours, others = (Topic.stored(name, catalog.topics.get(name, "{}")).key for catalog in (self.mine, self.theirs))
        if not ours:
            return
        keys = list(ours)
        if not others:
            yield ConfigDifference(
                "sow", name,
                f"keeps records by {keys} on {self.here!r} and none on {self.there!r}. On {self.there!r} define "
                f"Topic(name={name!r}, key={keys}), or on {self.here!r} exclude 'sow' for it",
            )  # fmt: skip
        elif len(ours) != len(others) or not all(map(_alike, ours, others)):
            yield ConfigDifference(
                "keys", name,
                f"keeps records by {keys} on {self.here!r} and by {list(others)} on {self.there!r}. Give both the same "
                f"key, or on {self.here!r} exclude 'keys' for it",
            )  # fmt: skip

    # --- queues

    def _of_queue(self, name: str, topic: ReplicatedTopic) -> Iterator[ConfigDifference]:
        queue = Queue.from_json(self.mine.queues[name])
        if name not in self.selection.topics:
            yield from self._way_back(name, topic)
        text = self.theirs.queues.get(name)
        other = None if text is None else Queue.from_json(text)
        if other is None or not same_queue(queue, self.mine, other, self.theirs):
            yield self._not_the_same(queue, other)
        else:
            yield from self._underlying(queue, other)
        yield from self._passthrough(name)

    def _not_the_same(self, queue: Queue, other: Queue | None) -> ConfigDifference:
        here, there = self.here, self.there
        if other is None:
            text = f"is a queue on {here!r} and none on {there!r}. On {there!r} define it as it is on {here!r}"
        elif type(queue) is not type(other):
            kinds = type(queue).__name__, type(other).__name__
            text = f"is a {kinds[0]} on {here!r} and a {kinds[1]} on {there!r}. Make it the same kind on both"
        else:
            domains = queue.domain(self.mine.group), other.domain(self.theirs.group)
            text = (
                f"is of the domain {domains[0]!r} on {here!r} and of {domains[1]!r} on {there!r}, so that they are two "
                "queues. Give both the same group_local_queue_domain"
            )
        text += f", or on {here!r} let no topic of the destination {self.destination.name!r} match its name"
        return ConfigDifference("queue", queue.name, text)

    def _underlying(self, queue: Queue, other: Queue) -> Iterator[ConfigDifference]:
        here, there = self.here, self.there
        for element in ("underlying_topic", "filter", "type", "initial_owner"):
            ours, others = getattr(queue, element, None), getattr(other, element, None)
            same = _alike(ours, others) if element == "filter" else ours == others
            if not same:
                spelled, values = ("message_type", (str(ours), str(others))) if element == "type" else (
                    element, (repr(ours), repr(others))
                )  # fmt: skip
                yield ConfigDifference(
                    "queue_underlying", queue.name,
                    f"has {spelled} {values[0]} on {here!r} and {values[1]} on {there!r}. Give it the same on both",
                )  # fmt: skip
        topics = [queue.underlying_topic] if not queue.is_pattern else filter(queue.feeds_from, self.mine.topics)
        for topic in topics:
            if topic in self.mine.views:
                text = f"is over the view {topic!r}, which is not replicated. Put a LocalQueue over it on both"
                yield ConfigDifference("queue_underlying", queue.name, text)
            elif topic not in self.selection.topics:
                yield ConfigDifference(
                    "queue_underlying", queue.name,
                    f"is sent to {there!r} without its messages. On {here!r} add {topic!r} to the topics of the "
                    f"destination {self.destination.name!r}",
                )  # fmt: skip

    def _passthrough(self, name: str) -> Iterator[ConfigDifference]:
        """Yield differences of pass-through: what others send here must go on, and there what this one sends."""
        type_here = self.mine.message_type(name)
        for group in self._incoming(name):
            if not self.destination.passes(group):
                yield ConfigDifference(
                    "queue_passthrough", name,
                    f"arrives at {self.here!r} from the group {group!r} and would not reach {self.there!r}. On "
                    f"{self.here!r} let pass_through of {self.destination.name!r} match {group!r}, as '.*' does, or "
                    "exclude 'queue_passthrough' for it",
                )  # fmt: skip
        for each in self.their_destinations:
            if each in self.back or each.topic_for(name, type_here) is None or each.passes(self.mine.group):
                continue
            yield ConfigDifference(
                "queue_passthrough", name,
                f"is sent to {self.there!r}, which would not send on to its destination {each.name!r} what arrives "
                f"from the group {self.mine.group!r}. On {self.there!r} let pass_through of {each.name!r} match it, as "
                f"'.*' does, or on {self.here!r} exclude 'queue_passthrough' for it",
            )  # fmt: skip

    def _incoming(self, name: str) -> list[str]:
        """Groups from which the queue arrives here, and whose messages have not been at the other side.

        Who it is sent to sends it back. From the group there it may arrive by another instance; where that is this
        instance's own group, too, another one of it may be unknown here.
        """
        groups: list[str] = []
        for text in self.mine.destinations.values():
            other = Destination.from_json(text)
            if other.topic_for(name, self.mine.message_type(name)) is None:
                continue
            if other.name != self.destination.name:
                group = other.group or self.groups.get(other.name)
                groups += [group] if group else []
            elif self.theirs.group == self.mine.group:
                groups.append(self.mine.group)
        return list(dict.fromkeys(groups))

    def _never_delivered(self) -> Iterator[ConfigDifference]:
        """A distributed queue there would wait for this instance to deliver, or to hand over, what it published."""
        for name, text in sorted(self.theirs.queues.items()):
            queue = Queue.from_json(text)
            if isinstance(queue, LocalQueue | GroupLocalQueue) or name in self.selection.queues:
                continue
            topics = [topic for topic in self.selection.topics if queue.feeds_from(topic)]
            if topics:
                yield ConfigDifference(
                    "queue", name,
                    f"of {self.there!r} would never deliver what is published to {_listed(topics)} on {self.here!r}, "
                    f"to which such messages belong. On {self.there!r} make it a LocalQueue, or have it on "
                    f"{self.here!r}, too, and replicate it both ways",
                    refuses=False,
                )  # fmt: skip


def _alike(one: str | None, other: str | None) -> bool:
    """Return whether two expressions mean the same."""
    if one is None or other is None:
        return one is other
    return one == other or parse(one, "filter").id == parse(other, "filter").id


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
