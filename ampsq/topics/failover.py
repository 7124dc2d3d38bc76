"""Subscriptions to topics that go on at another instance: where they begin there, and what is kept of durable ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ampsq.base.bookmarks import ref_of
from ampsq.base.log_positions import FIRST, MOST_RECENT, Asked, End, Kept, Range
from ampsq.protocol.reads.message_names import name_messages
from ampsq.topics.bookmark_store import SubscriptionName
from ampsq.topics.version_vector import Bearings, find_places, vectors_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ampsq.base.log_positions import Id
    from ampsq.protocol.context import ClientContext
    from ampsq.topics.bookmark_store import BookmarkStore
    from ampsq.topics.reader_reports import Reporting
    from ampsq.topics.replay import Reader
    from ampsq.topics.version_vector import Found, Vector

__all__ = ["Arrival", "asked_elsewhere", "begins_where_it_was", "forget_elsewhere", "kept_anywhere", "vectors_in"]


class Arrival(NamedTuple):
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
    reader: Reader
    found: Found
    claimed: SubscriptionName | None
    kept: Kept | None


def vectors_in(passed: Mapping[tuple[str, str], Id]) -> dict[str, Vector]:
    """Topic -> origin -> ID, of what is by topic and origin."""
    found: dict[str, dict[str, Id]] = {}
    for (topic, origin), last in passed.items():
        found.setdefault(topic, {})[origin] = last
    return dict(found)


def asked_elsewhere(asked: Asked, now: int) -> Asked:
    """What is asked of the logs of another instance, from where the reader has come.

    Args:
        asked: what was asked for at first.
        now: the time there, ms: what was past when it was asked for is past there.
    """
    start = End(MOST_RECENT)
    if not asked.ranges:
        return Asked((start,))
    last = max([now, *(each.end.milliseconds for each in asked.ranges)])
    return Asked(ranges=(Range(start, False, End("time", milliseconds=last), True),))


def begins_where_it_was(asked: Asked) -> bool:
    """Whether nothing but what is kept says where it begins."""
    starts = [*asked.starts, *(each.start for each in asked.ranges)]
    return (len(asked.starts) == 1 or not asked.starts) and all(start.kind == MOST_RECENT for start in starts)


async def forget_elsewhere(store: BookmarkStore, session: ClientContext, subscription: str) -> None:
    """Let nothing be kept of a subscription that begins anew, where it is not."""
    for each in () if store.is_beside_logs else session.homes:
        if each != session.instance:
            await store.forget(SubscriptionName(each, subscription))


async def kept_anywhere(
    store: BookmarkStore, session: ClientContext, subscription: str, bearings: Bearings
) -> Kept | None:  # fmt: skip
    """What is kept of a durable subscription, at whichever instance it was; None: nothing.

    Its places are those of the present instance. What was handled at any of them is handled.

    Args:
        store: keeps it.
        session: of its client.
        subscription: its name.
        bearings: of its reader, which are told.
    """
    found: dict[str, Kept] = {}
    for each in (session.instance,) if store.is_beside_logs else session.homes:
        kept = await store.load(SubscriptionName(each, subscription))
        if kept is not None:
            found[each] = kept
    if not found:
        return None
    mine = found.get(session.instance)
    beyond = {each for kept in found.values() for each in kept.beyond if "~" in each[1]}
    vectors = [vectors_in(kept.passed) for kept in found.values()]
    if mine is not None and not mine.passed:
        # A client of this instance alone kept it.
        vectors.append(await _vectors_of(session, mine))
        beyond.update(await _bookmarks_of(mine))
    for known_there in vectors:
        for topic, vector in known_there.items():
            bearings.had(topic, vector)
    floor = mine.floor if mine is not None else min(kept.floor for kept in found.values())
    former = next((name for name in found if name != session.instance), "")
    origin = session.origin
    places = await find_places(session.instance, origin, vectors_in(bearings.passed), former)
    bearings.move(origin, places.doubles)
    known = mine.topics if mine is not None else {}
    topics = {
        topic: max(places.places.get(topic, FIRST), known.get(topic, FIRST))
        for topic in {*places.places, *known}
    }  # fmt: skip
    return Kept(floor, topics, frozenset(beyond), dict(bearings.passed))


async def _vectors_of(session: ClientContext, kept: Kept) -> dict[str, Vector]:
    places = [(topic, place) for topic, place in kept.topics.items() if place > FIRST]
    found = await vectors_of(session.instance, session.origin, places)
    return {topic: vector for (topic, _), vector in found.items()}


async def _bookmarks_of(kept: Kept) -> Sequence[tuple[str, str]]:
    """What is handled behind the place, named so that it is known everywhere."""
    here = [each for each in kept.beyond if "~" not in each[1]]
    names = await name_messages([ref_of(*each) for each in here])
    return [(topic, name.partition("~")[2]) for (topic, _), name in zip(here, names, strict=True)]
