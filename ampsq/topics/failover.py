"""Subscriptions to topics that go on at another instance: where they begin there, and what is kept of durable ones."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.base.bookmarks import ref_of
from ampsq.base.errors import DefinitionError
from ampsq.base.log_positions import FIRST, MOST_RECENT, BookmarkEnd, BookmarkRange, BookmarkSpec, StoredPosition
from ampsq.protocol.reads.message_names import name_messages
from ampsq.protocol.reads.origin import name_of
from ampsq.topics.bookmark_store import SubscriptionName
from ampsq.topics.publisher_numbers import HadNumbers
from ampsq.topics.version_vector import VersionVector, find_start_positions, read_version_vectors, shares_messages

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ampsq.base.log_positions import Id
    from ampsq.protocol.context import ClientContext
    from ampsq.topics.bookmark_store import BookmarkStore
    from ampsq.topics.reader_reports import Reporting
    from ampsq.topics.replay import LogReader
    from ampsq.topics.version_vector import StartPositions, Vector

__all__ = [
    "FailoverPlan",
    "asked_at_next_instance",
    "begins_at_stored_position",
    "forget_at_other_instances",
    "group_by_topic",
    "load_from_any_instance",
    "place_here",
]


_log: Final = logging.getLogger("ampsq")


class FailoverPlan(NamedTuple):
    """A subscription that is about to go on at another instance.

    Attributes:
        session: of its client there.
        reporting: of its client there, for limits.
        reader: begins where nothing is missed; it was opened.
        found: where that is.
        claimed: of a durable one, its name there.
        kept: of a durable one, what is kept of it there.
    """

    session: ClientContext
    reporting: Reporting
    reader: LogReader
    found: StartPositions
    claimed: SubscriptionName | None
    kept: StoredPosition | None


def group_by_topic(passed: Mapping[tuple[str, str], Id]) -> dict[str, Vector]:
    """Topic -> origin -> ID, of what is by topic and origin."""
    found: dict[str, dict[str, Id]] = {}
    for (topic, origin), last in passed.items():
        found.setdefault(topic, {})[origin] = last
    return dict(found)


def asked_at_next_instance(asked: BookmarkSpec, now: int) -> BookmarkSpec:
    """Return the stretches to read from the logs of another instance, from where the reader has come.

    Args:
        asked: what was asked for at first.
        now: the time there, ms: what was past when it was asked for is past there.
    """
    start = BookmarkEnd(MOST_RECENT)
    if not asked.ranges:
        return BookmarkSpec((start,))
    last = max([now, *(each.end.milliseconds for each in asked.ranges)])
    return BookmarkSpec(ranges=(BookmarkRange(start, False, BookmarkEnd("time", milliseconds=last), True),))


def begins_at_stored_position(asked: BookmarkSpec) -> bool:
    """Return whether only a kept position can say where it begins."""
    starts = [*asked.starts, *(each.start for each in asked.ranges)]
    return (len(asked.starts) == 1 or not asked.starts) and all(start.kind == MOST_RECENT for start in starts)


async def forget_at_other_instances(store: BookmarkStore, session: ClientContext, subscription: str) -> None:
    """Let nothing be kept of a subscription that begins anew, where it is not."""
    for each in () if store.is_beside_logs else session.instances:
        if each != session.instance:
            await store.forget(SubscriptionName(each, subscription))


async def load_from_any_instance(
    store: BookmarkStore, session: ClientContext, subscription: str
) -> dict[str, StoredPosition]:  # fmt: skip
    """Return the kept positions of a durable subscription, by the instance where they were.

    Where nothing is kept for the client's instances, something may be for others that share messages with this one.

    Args:
        store: keeps it.
        session: of its client.
        subscription: its name.

    Raises:
        DefinitionError: something is kept, and none of it says where that is here.
    """
    found: dict[str, StoredPosition] = {}
    for each in (session.instance,) if store.is_beside_logs else session.instances:
        kept = await store.load(SubscriptionName(each, subscription))
        if kept is not None:
            found[each] = kept
    if not found and not store.is_beside_logs:
        found = await _load_from_others(store, session, subscription)
    if session.instance not in found:
        begun = [each for each, kept in found.items() if _is_begun(kept)]
        if begun and not any(found[each].passed for each in begun):
            raise DefinitionError(
                f"subscription {subscription!r}: its place is kept for the instance {begun[0]!r} alone, and does not "
                f"say where that is at {session.instance!r}; allowed: a client of both that begins at {begun[0]!r}, or "
                "another bookmark, as 'epoch' or a time"
            )
    return found


async def _load_from_others(
    store: BookmarkStore, session: ClientContext, subscription: str
) -> dict[str, StoredPosition]:  # fmt: skip
    """The same of instances that the client does not have; a file may also serve some that have nothing in common."""
    found: dict[str, StoredPosition] = {}
    for each in await store.instances_of(subscription):
        kept = await store.load(SubscriptionName(each, subscription))
        if kept is None:
            continue
        topics = {*kept.topics, *(topic for topic, _ in kept.passed)}
        # What was published here is read there, too.
        is_read_there = any(name_of(origin) == session.instance for _, origin in kept.passed)
        if is_read_there or await shares_messages(session.instance, each, topics):
            found[each] = kept
        else:
            _log.warning(
                "subscription %r begins anew at %r: what is kept of it is for %r, and no link between the two is known",
                subscription,
                session.instance,
                each,
            )
    return found


def _is_begun(kept: StoredPosition) -> bool:
    return bool(kept.beyond) or any(last > FIRST for last in kept.topics.values())


async def place_here(
    found: Mapping[str, StoredPosition], session: ClientContext, version_vector: VersionVector
) -> StoredPosition | None:  # fmt: skip
    """Return the kept position of a durable subscription, its places those of the present instance; None: none.

    What was handled at any instance is handled.

    Args:
        found: what is kept, by instance.
        session: of its client.
        version_vector: of its reader, which are told.
    """
    if not found:
        return None
    mine = found.get(session.instance)
    beyond = {each for kept in found.values() for each in kept.beyond if "~" in each[1]}
    vectors = [group_by_topic(kept.passed) for kept in found.values()]
    if mine is not None and not mine.passed:
        # A client of this instance alone kept it.
        vectors.append(await _version_vectors_of(session, mine))
        beyond.update(await _bookmarks_of(mine))
    for known_there in vectors:
        for topic, vector in known_there.items():
            version_vector.had(topic, vector)
    floor = mine.floor if mine is not None else min(kept.floor for kept in found.values())
    former = next((name for name in found if name != session.instance), "")
    origin = session.origin
    places = await find_start_positions(session.instance, origin, group_by_topic(version_vector.passed), former)
    version_vector.resume_at(origin, places.doubles)
    known = mine.topics if mine is not None else {}
    topics = {
        topic: max(places.places.get(topic, FIRST), known.get(topic, FIRST))
        for topic in {*places.places, *known}
    }  # fmt: skip
    had = HadNumbers(run for kept in found.values() for run in kept.had.items()).runs
    return StoredPosition(floor, topics, frozenset(beyond), dict(version_vector.passed), had)


async def _version_vectors_of(session: ClientContext, kept: StoredPosition) -> dict[str, Vector]:
    places = [(topic, place) for topic, place in kept.topics.items() if place > FIRST]
    found = await read_version_vectors(session.instance, session.origin, places)
    return {topic: vector for (topic, _), vector in found.items()}


async def _bookmarks_of(kept: StoredPosition) -> Sequence[tuple[str, str]]:
    """Return the messages handled behind the place, named so that they are known everywhere."""
    here = [each for each in kept.beyond if "~" not in each[1]]
    names = await name_messages([ref_of(*each) for each in here])
    return [(topic, name.partition("~")[2]) for (topic, _), name in zip(here, names, strict=True)]
