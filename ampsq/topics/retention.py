"""Trimming: what is removed from logs and journals, and for whom something stays; steps, and flows for clients."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import CatalogChanged, DefinitionError
from ampsq.base.log_positions import parse_id
from ampsq.base.suggestions import nearest
from ampsq.base.values import check_text
from ampsq.catalog.action_sources import sources_of
from ampsq.catalog.destination_checks import sent_queue, sent_topic
from ampsq.catalog.followed_streams import track_name
from ampsq.definitions.action import Action
from ampsq.definitions.action_parts import On
from ampsq.definitions.destination import Destination
from ampsq.definitions.queue import Interval, Queue, Topic
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.calls import retention as retention_calls
from ampsq.protocol.calls.records import catch_up_records
from ampsq.protocol.calls.retention import LOG_START, RetentionLimits, StreamFollower
from ampsq.protocol.reads.message_names import name_message
from ampsq.protocol.reads.streams import last_id, log_of, stream_length, stream_memory
from ampsq.topics.topic_state import feeding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import timedelta

    from ampsq.base.bookmarks import Bookmark
    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.protocol.calls.retention import JournalTrimStep, Pin, TrimStep
    from ampsq.protocol.request import Call

__all__ = [
    "Trimmed",
    "limits_of",
    "trim",
    "trim_journal_step",
    "trim_step",
]

#: Catalog changes during one trimming by hand; more than this is not chance.
_RACES: Final = 50


@dataclass(frozen=True, slots=True)
class Trimmed:
    """The result of trimming a topic.

    Attributes:
        topic: the topic.
        removed: messages removed, or to be removed in a dry run.
        kept: messages beyond the retention that are kept, since somebody needs them; of those that a queue has not read
            only the first is counted.
        bytes: memory of the removed ones, about.
        pinned_by: who needs the first of those kept; None if none is.
        pinned: its bookmark.
        state: what it is there; "" of others than queues.
    """

    topic: str
    removed: int
    kept: int
    bytes: int
    pinned_by: str | None = None
    pinned: Bookmark | None = None
    state: str = ""

    def as_dict(self) -> dict[str, object]:
        """The same as plain values, for JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


# -- steps

_OF_QUEUES: Final = ("journal", "deliveries")
#: Of what a trigger reads in a journal, the words that it wants.
_HOWS: Final[Mapping[type, str]] = {On.expire: "expired", On.delete: "acknowledged"}


def limits_of(topic: Topic) -> RetentionLimits:
    """Return the limits of a topic's retention, as its definition says."""
    return RetentionLimits(topic.retention_age, topic.retention_size, topic.retention_count)


def _readers(catalog: Catalog, queues: Sequence[str], topic: str = "") -> list[StreamFollower]:
    """Return the followers that read a topic's log, or these queues' journals and deliveries, later."""
    return [*_actions(catalog, queues, topic), *_destinations(catalog, queues, topic)]


def _actions(catalog: Catalog, queues: Sequence[str], topic: str) -> Iterator[StreamFollower]:
    for name, text in catalog.actions.items():
        action = Action.from_json(text)
        for source in sources_of(action, catalog):
            if source.of in queues if source.kind in _OF_QUEUES else source.kind == "log" and source.of == topic:
                hows = _HOWS.get(type(source.trigger), "")
                yield StreamFollower.action(source.kind, source.of, name, source.name, hows)
        if any(isinstance(trigger, On.timeout) and trigger.topic == topic for trigger in action.on):
            yield StreamFollower.action("log", topic, name, track_name(topic))


def _destinations(catalog: Catalog, queues: Sequence[str], topic: str) -> Iterator[StreamFollower]:
    """All that are defined, connected or not."""
    for name, text in catalog.destinations.items():
        destination = _stored(text)
        if topic and sent_topic(destination, catalog, topic):
            yield StreamFollower.destination("log", topic, name)
        for queue in queues:
            if sent_queue(destination, Queue.from_json(catalog.queues[queue])):
                yield StreamFollower.destination("journal", queue, name)


@lru_cache(maxsize=64)
def _stored(text: str) -> Destination:
    """A destination as the catalog has it: it is asked for at each step, and is slow to read."""
    return Destination.from_json(text)


def trim_step(
    catalog: Catalog,
    topic: str,
    limits: RetentionLimits,
    *,
    after: str = "",
    passed: int = 0,
    dry_run: bool = False,
) -> Call[TrimStep]:
    """Remove what is beyond limits and nobody needs, a bounded part of it.

    Args:
        catalog: as it is; refused with `CatalogChanged` when it is not.
        topic: the topic.
        limits: those of its retention.
        after: an ID to go on from, "" for the walk that the instance remembers.
        passed: entries from the log's head up to `after`.
        dry_run: only count.
    """
    readers = _readers(catalog, feeding(catalog, topic), topic)
    return retention_calls.trim_log(catalog.version, topic, limits, after, passed, readers, dry_run=dry_run)


def trim_journal_step(catalog: Catalog, queue: str, after: str = "") -> Call[JournalTrimStep]:
    """Remove what a journal tells of messages that no log has any more, a part of it."""
    return retention_calls.trim_journal(queue, after, _readers(catalog, [queue]))


# -- by hand


async def trim(instance: str, topic: str, age: timedelta | float | str | None, *, dry_run: bool) -> Trimmed:
    """Remove now what a topic's retention, or an age, gives up and nobody needs; see `Admin.trim`."""
    check_text("topic", topic)
    catalog = await catalog_calls.catalog()
    limits = _limits(catalog, topic, age)
    if Topic.stored(topic, catalog.topics[topic]).key:
        # What was not put into the records yet is needed.
        await catch_up_records(topic)
    length = await stream_length(instance, log_of(topic))
    used = await stream_memory(instance, log_of(topic))
    removed, kept, first = await _walk(instance, topic, limits, dry_run=dry_run)
    for queue in feeding(catalog, topic) if not dry_run else ():
        await _walk_journal(queue)
    size = used * removed // max(length, 1)
    if first is None:
        return Trimmed(topic, removed, kept, size)
    return Trimmed(topic, removed, kept, size, first.by, (await name_message(topic, first.id)), first.state)


def _limits(catalog: Catalog, topic: str, age: timedelta | float | str | None) -> RetentionLimits:
    text = catalog.topics.get(topic)
    if text is None:
        if topic in catalog.queues:
            underlying = Queue.from_json(catalog.queues[topic]).underlying_topic
            raise DefinitionError(f"{topic!r} is a queue; allowed: a topic, as {underlying!r}, which feeds it")
        raise DefinitionError(f"{topic!r}: {nearest(topic, sorted(catalog.topics), 'topic')}")
    if age is not None:
        return RetentionLimits(age=Interval.parse(age))
    stored = Topic.stored(topic, text)
    if not stored.has_retention:
        raise DefinitionError(
            f"topic {topic!r} has no retention, so that all of it is kept; allowed: an age, as in 7d (0s: all "
            "that nobody needs), or a topic defined with retention_age, retention_size or retention_count"
        )
    return limits_of(stored)


async def _walk(instance: str, topic: str, limits: RetentionLimits, *, dry_run: bool) -> tuple[int, int, Pin | None]:
    """Walk over a log from its head, no further than to what was there; gives removed, kept, and the first kept."""
    catalog = await catalog_calls.catalog()
    place: str | None = LOG_START
    removed, kept, passed, races = 0, 0, 0, 0
    first: Pin | None = None
    last = await last_id(instance, log_of(topic))
    while place is not None:
        try:
            step = await trim_step(catalog, topic, limits, after=place, passed=passed, dry_run=dry_run)
        except CatalogChanged:
            races += 1
            if races > _RACES:
                raise
            catalog = await catalog_calls.catalog()
            continue
        removed += step.removed
        kept += step.given_up - step.removed
        passed = removed + kept if dry_run else kept
        first = first or step.pin
        place = step.next if step.next and parse_id(step.next) < last else None
    return removed, max(kept, int(first is not None)), first


async def _walk_journal(queue: str) -> None:
    catalog = await catalog_calls.catalog()
    place: str | None = LOG_START
    while place is not None:
        place = (await trim_journal_step(catalog, queue, place)).next
