"""Trimming: what is removed from logs and journals, and for whom something stays; steps, and flows for clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import CatalogChanged, DefinitionError
from ampsq.base.log_positions import parse_id
from ampsq.base.suggestions import nearest
from ampsq.base.values import Interval, check_text
from ampsq.catalog.followed_streams import followed_streams, track_name
from ampsq.catalog.sent_streams import sent_queue, sent_topic
from ampsq.definitions.stored import read_stored_queue, read_stored_topic
from ampsq.definitions.stored_action import read_stored_action
from ampsq.definitions.stored_destination import read_stored_destination
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.calls import retention as retention_calls
from ampsq.protocol.calls.records import catch_up_records
from ampsq.protocol.calls.retention import LOG_START, RetentionLimits, StreamFollower
from ampsq.protocol.reads.message_names import name_message
from ampsq.protocol.reads.streams import last_id, log_of, stream_length, stream_memory
from ampsq.topics.topic_state import feeding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import timedelta

    from ampsq.base.bookmarks import Bookmark
    from ampsq.definitions.queue import Topic
    from ampsq.definitions.stored import StoredTopic
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
#: Of what a trigger reads in a journal, the word that it wants.
_HOWS: Final = {"expire": "expired", "delete": "acknowledged"}


def limits_of(topic: Topic | StoredTopic) -> RetentionLimits:
    """Return the limits of a topic's retention, as its definition says."""
    return RetentionLimits(topic.retention_age, topic.retention_size, topic.retention_count)


def _readers(catalog: Catalog, queues: Sequence[str], topic: str = "") -> list[StreamFollower]:
    """Return the followers that read a topic's log, or these queues' journals and deliveries, later."""
    return [*_actions(catalog, queues, topic), *_destinations(catalog, queues, topic)]


def _actions(catalog: Catalog, queues: Sequence[str], topic: str) -> Iterator[StreamFollower]:
    for name, text in catalog.actions.items():
        triggers = read_stored_action(text).on
        for trigger in triggers:
            for source in followed_streams(trigger, catalog):
                if source.of in queues if source.kind in _OF_QUEUES else source.kind == "log" and source.of == topic:
                    hows = _HOWS.get(trigger.word, "")
                    yield StreamFollower.action(source.kind, source.of, name, source.name, hows)
        if any(trigger.word == "timeout" and trigger.about == topic for trigger in triggers):
            yield StreamFollower.action("log", topic, name, track_name(topic))


def _destinations(catalog: Catalog, queues: Sequence[str], topic: str) -> Iterator[StreamFollower]:
    """All that are defined, connected or not."""
    for name, text in catalog.destinations.items():
        destination = read_stored_destination(text)
        if topic and sent_topic(destination, catalog, topic) is not None:
            yield StreamFollower.destination("log", topic, name)
        for queue in queues:
            if sent_queue(destination, read_stored_queue(catalog.queues[queue])) is not None:
                yield StreamFollower.destination("journal", queue, name)


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
    if read_stored_topic(topic, catalog.topics[topic]).key:
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
            underlying = read_stored_queue(catalog.queues[topic]).underlying_topic
            raise DefinitionError(f"{topic!r} is a queue; allowed: a topic, as {underlying!r}, which feeds it")
        raise DefinitionError(f"{topic!r}: {nearest(topic, sorted(catalog.topics), 'topic')}")
    if age is not None:
        return RetentionLimits(age=Interval.parse(age))
    stored = read_stored_topic(topic, text)
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
