"""Stored definitions of queues, topics and views, read without their models, for who only looks at them.

The models check what a user defines, and take as long to import as all else that a command needs. What is stored was
checked when it was defined. A test holds each attribute here against that of the model.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from ampsq.base.message_types import JSON, SEPARATOR, MessageType
from ampsq.base.name_patterns import matches_name
from ampsq.base.values import Interval, Rate, is_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ampsq.base.message_types import MessageTypeName

__all__ = [
    "RETENTION_LIMITS",
    "StoredQueue",
    "StoredTopic",
    "StoredView",
    "read_stored_queue",
    "read_stored_topic",
    "read_stored_view",
]

#: Stored texts that are kept as they were read.
_KEPT: Final = 4_096
RETENTION_LIMITS: Final = ("retention_age", "retention_size", "retention_count")
"""Elements of a topic by which messages are removed from its log."""
_RETENTION: Final = (*RETENTION_LIMITS, "retention_unsettled")


class StoredQueue:
    """A queue as it is stored; its attributes are those elements of `Queue` that are read without the model.

    Args:
        elements: what differs from the defaults, as `Queue.to_json` writes it.
    """

    def __init__(self, elements: Mapping[str, object]) -> None:
        self._elements = elements
        self.name = str(elements["name"])
        self.underlying_topic = str(elements.get("underlying_topic", self.name))
        self.default_publish_target = str(elements.get("default_publish_target", self.underlying_topic))
        self.type = _type_of(elements)
        self.filter = self._text("filter")
        self.semantics = self._text("semantics") or "at-least-once"
        self.priority = self._text("priority")
        self.barrier_expression = self._text("barrier_expression")
        self.max_per_subscription_backlog = self._number("max_per_subscription_backlog") or 1
        self.max_backlog = self._number("max_backlog")
        self.max_deliveries = self._number("max_deliveries") or 0
        self.max_cancels = self._number("max_cancels") or 0
        self.target_queue_depth = self._number("target_queue_depth")
        self.paused = bool(elements.get("paused"))

    @property
    def owner(self) -> str:
        """First owner of its messages: ``*``, the origin; "", everybody's own copy; else an instance."""
        is_plain = self._text("kind") in (None, "Queue")
        return "*" if is_plain else self._text("initial_owner") or ""

    @property
    def is_pattern(self) -> bool:
        """Return whether `underlying_topic` is a regular expression."""
        return not is_name(self.underlying_topic)

    @property
    def is_grouped(self) -> bool:
        """Return whether its messages may be in groups."""
        return "group_by" in self._elements or "group_concurrency" in self._elements

    @property
    def group_concurrency(self) -> int | None:
        """Most messages of one group that may be leased; None of a queue without groups."""
        return self._number("group_concurrency") or (1 if self.is_grouped else None)

    @property
    def group_batch(self) -> int | None:
        """Most messages of one group that are delivered together; None of a queue without groups."""
        return self._number("group_batch") or (1 if self.is_grouped else None)

    @property
    def group_choice(self) -> str | None:
        """Of which group the next message is; None of a queue without groups."""
        return self._text("group_choice") or ("first" if self.is_grouped else None)

    @property
    def lease_period(self) -> Interval | None:
        """The time for which a delivered message stays with its subscription."""
        text = self._text("lease_period")
        return None if text is None else Interval.parse(text)

    @property
    def rate(self) -> Rate | None:
        """The number of messages that are delivered in a time."""
        return self._rate("rate")

    @property
    def group_rate(self) -> Rate | None:
        """The same of each group."""
        return self._rate("group_rate")

    def feeds_from(self, topic: str) -> bool:
        """Say whether what is published to a topic enters this queue."""
        return matches_name(self.underlying_topic, topic)

    def _text(self, element: str) -> str | None:
        value = self._elements.get(element)
        return None if value is None else str(value)

    def _number(self, element: str) -> int | None:
        value = self._elements.get(element)
        return value if isinstance(value, int) else None

    def _rate(self, element: str) -> Rate | None:
        text = self._text(element)
        return None if text is None else Rate.parse(text)


class StoredTopic:
    """A topic as it is stored.

    Args:
        name: its name, which the text of one that was only used does not have.
        elements: what differs from the defaults, as `Topic.to_json` writes it.

    Attributes:
        name: its name.
        type: the message type with its separator.
        key: its identifiers; () of a topic without records.
        expiration: how long a record lives; None: for ever.
        retention: the elements of its retention that were given, by name, as JSON values.
    """

    def __init__(self, name: str, elements: Mapping[str, object]) -> None:
        self.name = name
        self.type = _type_of(elements)
        expiration = elements.get("expiration")
        self.expiration = None if expiration is None else Interval.parse(expiration)
        key = elements.get("key")
        self.key = tuple(map(str, key)) if isinstance(key, list) else ()
        self.retention = {element: elements[element] for element in _RETENTION if element in elements}

    @property
    def has_retention(self) -> bool:
        """Return whether anything is ever removed from the log."""
        return any(element in self.retention for element in RETENTION_LIMITS)

    @property
    def retention_age(self) -> Interval | None:
        """The age beyond which messages are removed; None: no limit."""
        age = self.retention.get("retention_age")
        return None if age is None else Interval.parse(age)

    @property
    def retention_size(self) -> int | None:
        """Bytes of the log beyond which messages are removed; None: no limit."""
        return self._limit("retention_size")

    @property
    def retention_count(self) -> int | None:
        """Number of messages beyond which they are removed; None: no limit."""
        return self._limit("retention_count")

    def _limit(self, element: str) -> int | None:
        value = self.retention.get(element)
        return value if isinstance(value, int) else None


class StoredView(NamedTuple):
    """A view as it is stored; see `View`."""

    name: str
    underlying_topic: tuple[str, ...]
    filter: str | None
    projection: tuple[str, ...]
    grouping: tuple[str, ...]


def _type_of(elements: Mapping[str, object]) -> MessageType:
    kind = cast("MessageTypeName", elements.get("message_type", JSON.name))
    return MessageType(kind, str(elements.get("field_separator") or SEPARATOR))


@lru_cache(maxsize=_KEPT)
def read_stored_queue(text: str | bytes) -> StoredQueue:
    """Read what `Queue.to_json` wrote."""
    return StoredQueue(json.loads(text))


@lru_cache(maxsize=_KEPT)
def read_stored_topic(name: str, text: str | bytes) -> StoredTopic:
    """Read what the catalog has of a topic; of one that was only used, that is nothing but the name."""
    return StoredTopic(name, json.loads(text))


def read_stored_view(text: str | bytes) -> StoredView:
    """Read what `View.to_json` wrote."""
    elements = json.loads(text)
    topics, projection, grouping = (
        tuple(elements.get(element, ())) for element in ("underlying_topic", "projection", "grouping")
    )
    return StoredView(elements["name"], topics, elements.get("filter"), projection, grouping)
