"""The definition of a topic: a named message stream, and how much of it is kept."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, PlainSerializer, PlainValidator

from ampsq.base.errors import DefinitionError
from ampsq.base.message_types import SEPARATOR, MessageType, MessageTypeName
from ampsq.base.values import Interval, parse_size, shown
from ampsq.definitions.definition import Definition, Fault, Name
from ampsq.definitions.elements import (
    Delay,
    ExpressionLimit,
    FieldSeparator,
    Filter,
    Identifiers,
    Life,
    PositiveCount,
    reading_stored,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import timedelta


__all__ = ["ConflatedTopic", "Topic", "type_conflicts"]

_LEAST_SIZE: Final = 65_536
_LEAST_AGE: Final = Interval(1_000)
_POLICIES: Final = ("retention_age", "retention_size", "retention_count")


def _size(value: object) -> int:
    size = parse_size(value)
    if size < _LEAST_SIZE:
        raise DefinitionError(f"{shown(value)} is too small; allowed: 64KB or more, as in '1GB'")
    return size


RetentionSize = Annotated[int, BeforeValidator(_size)]

if TYPE_CHECKING:

    class RetentionAge:
        """A retention age as a type checker knows it: read as an interval, but written in any form of one."""

        def __get__(self, instance: object, owner: type) -> Interval | None: ...
        def __set__(self, instance: object, value: Interval | timedelta | float | str | None) -> None: ...

else:
    RetentionAge = Annotated[
        Interval,
        PlainValidator(Interval.parse),
        PlainSerializer(lambda age: None if age is None else age.text, when_used="json"),
    ]

#: Elements of a queue or a topic that read bodies.
_CONTENT: Final = ("key", "partition_by", "filter", "priority", "barrier_expression", "group_by", "group_weight")
# For a type checker, what is not given fits every type.
_NOT_GIVEN: Any = None
_NOTHING: Any = ()


class Topic(Definition):
    """A named message stream, recorded in the transaction log.

    Attributes:
        name: 1 to 255 of ``A-Z a-z 0-9 _ . / -``. Nothing else, since a bookmark's text and the keys are
            made of names and of ``~ @ : , | [ ] ( )`` and spaces between them.
        message_type: what the bodies are: ``json`` (default), ``msgpack``, ``nvfix``, ``fix`` or ``binary``; see
            docs/message-types.md. It cannot be changed any more once the topic has had a message. (Topics are known by
            their names alone: there are no two of one name and different types.)
        field_separator: of nvfix and fix: the one character between fields, or its code. Default: SOH, 1.
        retention_age: how old a message becomes in the log; an older one is removed as soon as nobody needs it. ``0s``
            removes each message as soon as nobody needs it. Default: no age is too old.
        retention_size: memory that the log may use, bytes, about; 64KB or more. What is beyond, the oldest first, is
            removed as soon as nobody needs it. Default: no limit.
        retention_count: messages that the log may have; 1 or more. What is beyond, the oldest first, is removed as soon
            as nobody needs it. Default: no limit.
        retention_unsettled: what becomes of messages beyond the retention that a queue has not settled. ``keep``
            (default): they stay until it has, and are reported. ``discard``: the queue loses them, and counts and
            journals them as missing; a leased one stays until its lease ends. That needs one of the other three, and
            of a `retention_age` 1s or longer.
        key: identifiers, as in ``/id``, that make messages versions of one record: the topic then keeps the last
            message of each key, which `sow` queries, whatever retention removes (docs/sow.md). A message that does not
            have one value at each of them is refused. Of an instance with partitions it also chooses the partition of a
            message, where `partition_by` does not. Default: none, and no records.
        expiration: how long a message published without an `expiration` of its own lives, 1ms or longer, in the records
            and in queues; needs `key`. Default: no limit.
        partition_by: identifiers, as in ``/customer``, whose values choose the partition of an instance with partitions
            (docs/partitions.md): messages that are alike there are in one partition, in their order. For a message
            without exactly one value at each of them the `key` chooses, else `group=` or the deduplication ID, else
            partitions take turns. All messages of one record have to be in one partition: let it name a part of the
            `key`, or what never changes for a record. Once the topic of an instance with partitions has had a message,
            it cannot be changed. Without partitions it says nothing. Default: none.
        expression_limit: bytes of the largest body that expressions read, 32KB or more. The server never looks into a
            larger one: no filter matches it, its priority is the lowest, it is no barrier, views leave it out, and a
            topic with a `key` refuses it (docs/expressions.md). Default: that of the instance.
        deduplication_ids: IDs that the topic knows at a time, 1 or more; beyond it publishing with a new ID is refused
            (docs/publishing.md). Default: 1000000.
    """

    message_type: MessageTypeName = "json"
    field_separator: FieldSeparator | None = None
    expression_limit: ExpressionLimit | None = None
    deduplication_ids: PositiveCount | None = None

    key: Identifiers = _NOTHING
    expiration: Life = _NOT_GIVEN
    partition_by: Identifiers = _NOTHING

    retention_age: RetentionAge = _NOT_GIVEN
    retention_size: RetentionSize | None = None
    retention_count: PositiveCount | None = None
    retention_unsettled: Literal["keep", "discard"] = "keep"

    @property
    def type(self) -> MessageType:
        """The message type with its separator."""
        return MessageType(self.message_type, self.field_separator or SEPARATOR)

    @property
    def has_retention(self) -> bool:
        """Return whether anything is ever removed from the log."""
        return any(getattr(self, element) is not None for element in _POLICIES)

    @classmethod
    def stored(cls, name: str, text: str) -> Self:
        """Read what the catalog has of a topic; of one that was only used, that is nothing but the name."""
        with reading_stored():
            return cls(**{**json.loads(text), "name": name})

    @classmethod
    def _conflicts(cls, given: Mapping[str, Any]) -> Iterator[Fault]:
        yield from type_conflicts(given)
        if "expiration" in given and not given.get("key"):
            yield Fault("expiration", "the topic keeps no records; allowed: with key, or expiration of its queues")
        if given.get("retention_unsettled") != "discard":
            return
        if not any(element in given for element in _POLICIES):
            yield Fault(
                "retention_unsettled",
                f"'discard' has nothing to discard; allowed: with one of {', '.join(_POLICIES)}, or 'keep'",
            )
        try:
            age = Interval.parse(given["retention_age"]) if "retention_age" in given else _LEAST_AGE
        except DefinitionError:
            return
        if age < _LEAST_AGE:
            yield Fault(
                "retention_age",
                f"{shown(given['retention_age'])} with retention_unsettled 'discard' would remove messages before "
                f"a queue could deliver them; allowed: {_LEAST_AGE.text} or longer, or retention_unsettled 'keep'",
            )


def type_conflicts(given: Mapping[str, Any]) -> Iterator[Fault]:
    """Say what does not go with a message type, of a topic or of a queue."""
    name = given.get("message_type", "json")
    if "field_separator" in given and name in ("json", "msgpack", "binary"):
        yield Fault("field_separator", f"does not go with message_type {name!r}; allowed: with 'nvfix' and 'fix'")
    for element in _CONTENT if name == "binary" else ():
        if element in given:
            yield Fault(
                element,
                "reads the body, and message_type 'binary' says that nothing can be read there; allowed: leave it out, "
                "or another message_type",
            )


# For a type checker, what is not given fits every type.
_SECOND: Any = Interval(1_000)


class ConflatedTopic(Definition):
    """A name for a topic under which its subscribers get, of what changes one record, only the latest of each interval.

    It records nothing: `subscribe` of it is one of the underlying topic with `conflation` and `conflation_key`, and
    `sow` of it a query there (docs/slow-clients.md). It takes no bookmark, and nothing is published to it.

    Attributes:
        name: what subscribers subscribe to; the name of no topic, queue or view.
        underlying_topic: the topic. Required.
        interval: for how long changes of a key are gathered, from the first one that was not handed out; 1ms or longer.
            Default: 1s.
        key: identifiers that make messages versions of one record. Default: the `key` of the topic, which needs one.
        filter: an expression over the body; only messages that match it. Default: all.
    """

    underlying_topic: Name = _NOT_GIVEN
    interval: Delay = _SECOND
    key: Identifiers = _NOTHING
    filter: Filter | None = None

    def filter_with(self, text: str | None) -> str | None:
        """Return the conjunction of its filter and that of a subscription or a query."""
        if text is None or self.filter is None:
            return text or self.filter
        return f"({self.filter}) AND ({text})"

    @classmethod
    def _conflicts(cls, given: Mapping[str, Any]) -> Iterator[Fault]:
        if "underlying_topic" not in given:
            yield Fault("underlying_topic", "missing; allowed: the name of a topic")
        elif given["underlying_topic"] == given.get("name"):
            yield Fault("underlying_topic", f"{shown(given['name'])} is its own name; allowed: the name of a topic")
        if shown(given.get("interval", "")).strip(" '") in ("0", "0s", "0ms"):
            yield Fault("interval", f"{shown(given['interval'])} gathers nothing; allowed: 1ms or longer")
