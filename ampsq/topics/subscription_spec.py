"""Requests for subscriptions to topics, as they are given and as they are checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn, TypedDict

from ampsq.base.errors import DefinitionError
from ampsq.base.log_positions import MOST_RECENT, NOW, BookmarkSpec, parse_bookmark_spec
from ampsq.base.name_patterns import check_may_match, parse_topic_or_pattern
from ampsq.base.suggestions import unknown_argument
from ampsq.base.values import parse_name, shown
from ampsq.queues.query import parse_query_filter
from ampsq.topics.bookmark_store import BookmarkStore, RedisBookmarkStore
from ampsq.topics.conflation import ConflationKey, conflation_asked
from ampsq.topics.rate import RateLimiter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from ampsq.definitions.topic import ConflatedTopic
    from ampsq.expressions import Expression
    from ampsq.topics.replay import NotFound

__all__ = ["ReplayOptions", "TopicSubscriptionSpec", "refuse_arguments"]

_NOT_FOUND: Final = ("now", "epoch", "fail")


class ReplayOptions(TypedDict, total=False):
    """Options of `Client.subscribe_topic`, beside `bookmark` and `filter`.

    Attributes:
        sub_id: makes the subscription durable under this name: it is written down what was handled, so that another
            one of the name, with `bookmark` ``most_recent`` (then the default), goes on there: nothing is missed, and
            only what was not yet written down comes again. Another `bookmark` forgets what was kept, and begins there.
            A name has one subscription at a time: a later one ends the one before it (`NameInUse`), which is so how
            another process takes over at once from one that died, or was not closed.
        bookmark_store: where; default `RedisBookmarkStore`, beside the logs. `SqliteBookmarkStore` for a file,
            `MemoryBookmarkStore` for as long as the process lives.
        auto_ack: of a durable subscription: a message counts as handled when the same thread or task asks for the
            next one (default). False: when `ack` was called, in any order.
        rate: hand out no faster: messages a second (``1000``), bytes a second (``100KB``), or a multiple of the pace
            at which they were recorded (``1.5X``). Default: as fast as they are taken.
        rate_max_gap: with a multiple of the recorded pace: the longest time between two messages that is kept.
        fully_durable: hand out only what cannot be lost any more, and all sync destinations have: True (``fsync``): on
            the server's disk; ``replicas=1``: acknowledged by so many replicas. Default False: at once.
        bookmark_not_found: when a log does not have everything any more from the bookmark or time on from where it is
            to be read: ``now`` (default): only what comes, of that topic; ``epoch``: what is still there; ``fail``:
            raise `BookmarkNotFound`.
        conflation: of messages with the same key only the latest: ``1s``: so long after the key's first change that was
            not handed out; ``auto``: whenever the consumer takes one. Default ``none``: every message. Not with
            `sub_id` or `rate`. A message without the key is handed out as it is (docs/slow-clients.md).
        conflation_key: identifiers, as in ``["/id"]``; default the `key` of the topic, if it has one.
    """

    sub_id: str | None
    bookmark_store: BookmarkStore | None
    auto_ack: bool
    rate: float | str | None
    rate_max_gap: timedelta | float | str | None
    fully_durable: bool | str
    bookmark_not_found: NotFound
    conflation: timedelta | float | str | None
    conflation_key: str | Sequence[str] | None


_OPTIONS: Final = tuple(ReplayOptions.__annotations__)
#: What each of the two calls has; of the other one's arguments each says where they belong.
_TAKEN: Final = {
    "subscribe": ("max_backlog", "filter", "renew", "on_message"),
    "subscribe_topic": ("bookmark", "filter", "on_message", *_OPTIONS),
}


def refuse_arguments(method: str, name: object, unknown: Mapping[str, object]) -> NoReturn:
    """Refuse arguments that a call to subscribe does not have, and name the other call where that has them.

    Raises:
        TypeError: always.
    """
    other, what = ("subscribe_topic", "follows topics")
    if method == other:
        other, what = ("subscribe", "takes the messages of queues")
    elsewhere = {each: f"{other}({shown(name)}, {each}=...) {what}, and has it" for each in _TAKEN[other]}
    raise unknown_argument(method, unknown, _TAKEN[method], elsewhere)


@dataclass(frozen=True)
class TopicSubscriptionSpec:
    """The request of a subscription to topics, checked; see `ReplayOptions`."""

    name: str
    asked: BookmarkSpec
    filter: Expression | None
    sub_id: str | None
    store: BookmarkStore | None
    auto_ack: bool
    pace: RateLimiter | None
    fully_durable: bool | str
    not_found: NotFound
    conflation: float | None = None
    conflation_key: ConflationKey | None = None
    reads_queues: bool = True

    @classmethod
    def of(
        cls,
        name: str,
        text: str | None,
        bookmark: object,
        options: ReplayOptions,
        *,
        conflated: ConflatedTopic | None = None,
    ) -> TopicSubscriptionSpec:
        """Check what somebody asks for; of a conflated topic that is its underlying one, conflated.

        Raises:
            DefinitionError: an option is wrong.
        """
        conflation, conflation_key = options.get("conflation"), options.get("conflation_key")
        if conflated is not None:
            name, text = conflated.underlying_topic, conflated.filter_with(text)
            conflation, conflation_key = conflated.interval.text, list(conflated.key) or conflation_key
        sub_id, store = options.get("sub_id"), options.get("bookmark_store")
        rate, gap = options.get("rate"), options.get("rate_max_gap")
        not_found = options.get("bookmark_not_found", "now")
        auto_ack, durable = options.get("auto_ack", True), options.get("fully_durable", False)
        if unknown := {option: given for option, given in options.items() if option not in _OPTIONS}:
            refuse_arguments("subscribe_topic", name, unknown)
        if not_found not in _NOT_FOUND:
            raise DefinitionError(f"bookmark_not_found={shown(not_found)}: allowed are 'now', 'epoch' and 'fail'")
        if store is not None and not isinstance(store, BookmarkStore):
            raise DefinitionError(
                f"bookmark_store={shown(store)}: allowed is a BookmarkStore, as MemoryBookmarkStore()"
            )
        if sub_id is None and store is not None:
            raise DefinitionError("bookmark_store needs sub_id, under which it keeps the subscription's place")
        if rate is None and gap is not None:
            raise DefinitionError("rate_max_gap needs rate, a multiple of the recorded pace, as in rate='1X'")
        check_may_match(parse_topic_or_pattern(name))
        # Without a bookmark a queue's name is likely to mean the queue.
        reads_queues = bookmark is not None
        if bookmark is None:
            bookmark = NOW if sub_id is None else MOST_RECENT
        asked = parse_bookmark_spec(bookmark)
        if asked.needs_store and sub_id is None:
            raise DefinitionError("bookmark 'most_recent' needs sub_id, the name under which the place is kept")
        return cls(
            name,
            asked,
            None if text is None else parse_query_filter(text),
            None if sub_id is None else parse_name(sub_id),
            store or (None if sub_id is None else RedisBookmarkStore()),
            auto_ack,
            None if rate is None else RateLimiter(rate, gap),
            durable,
            not_found,
            *conflation_asked(conflation, conflation_key, sub_id, rate),
            reads_queues=reads_queues,
        )
