"""Reading of the values of elements: each kind of value, and the advice in a refusal of one."""

from __future__ import annotations

import contextlib
import re
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, PlainSerializer, PlainValidator

from ampsq.base.bookmarks import Bookmark
from ampsq.base.errors import DefinitionError, ExpressionError
from ampsq.base.message_types import SEPARATOR, SMALL_BODY
from ampsq.base.name_patterns import parse_topic_or_pattern
from ampsq.base.values import Interval, Rate, parse_count, parse_size, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import timedelta

__all__ = [
    "MIN_LEASE_PERIOD",
    "MIN_QUEUE_DEPTH",
    "NO_RING",
    "Affinity",
    "Barrier",
    "Burst",
    "Count",
    "Delay",
    "ExpressionLimit",
    "Factor",
    "FieldSeparator",
    "Filter",
    "GroupBatch",
    "GroupBy",
    "Identifiers",
    "LeasePeriod",
    "Life",
    "Multiplier",
    "PositiveCount",
    "Priority",
    "QueueDepth",
    "RatePerTime",
    "RecoveryPoint",
    "RingSize",
    "TopicOrPattern",
    "is_stored",
    "misread",
    "reading_stored",
]

#: Whether what is made was stored before: its expressions were parsed then.
_IS_STORED: ContextVar[bool] = ContextVar("is_stored", default=False)

MIN_LEASE_PERIOD = Interval(100)
"""The shortest lease, 100ms: lapsed leases are looked for no more often than that."""

MIN_QUEUE_DEPTH = 1_000
"""The smallest `target_queue_depth`, messages; AMPS's own limit."""

MOST_BURST = 1_000_000
"""The most messages that a rate lets go at once."""

MOST_GROUP_BATCH = 500
"""The largest `group_batch`: so many messages one call delivers at most."""

_DECIMAL = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")

NO_RING = -1
"""The `ring_size` of a queue that is no ring, whatever the address settings say."""

_EXAMPLES = {
    "filter": "/country = 'US' AND /qty > 100",
    "priority": "/price * /qty",
    "barrier": "/type = 'end-of-day'",
    "group": "/customer",
    "weight": "/plan_weight",
}


def _count_from(least: int, value: object, beside: str = "") -> int:
    """Read a count that has a least value; `beside` is what is allowed beside it."""
    allowed = f"a whole number from {least} to 1000000000{beside}"
    count = parse_count(value, f"{allowed}; also with k (thousand) or M (million), as in '10k'")
    if count < least:
        raise DefinitionError(f"{shown(value)} is too small; allowed: {allowed}")
    return count


def _positive(value: object) -> int:
    return _count_from(1, value)


def _limited(value: object, most: int, refusal: str) -> int:
    try:
        count = parse_count(value)
    except DefinitionError:
        # Its text names the limits of all counts, which are not those of this one.
        count = 0
    if not 1 <= count <= most:
        raise DefinitionError(f"{shown(value)} is no {refusal}; allowed: a whole number from 1 to {most}")
    return count


def _burst(value: object) -> int:
    try:
        return _limited(value, MOST_BURST, "burst")
    except DefinitionError as refused:
        raise DefinitionError(f"{refused}, or one with k (thousand), as in '10k'") from None


def _group_batch(value: object) -> int:
    return _limited(value, MOST_GROUP_BATCH, "size of a batch")


def _expression_limit(value: object) -> int:
    size = parse_size(value)
    if size < SMALL_BODY:
        raise DefinitionError(f"{shown(value)} is too small; allowed: 32KB or more, as in '1MB'")
    return size


def _queue_depth(value: object) -> int:
    beside = ", best the messages of several seconds, or no target_queue_depth for a queue that has no such limit"
    return _count_from(MIN_QUEUE_DEPTH, value, beside)


def _lease_period(value: object) -> Interval:
    period = Interval.parse(value)
    if period < MIN_LEASE_PERIOD:
        raise DefinitionError(
            f"{shown(value)} is too short; allowed: {MIN_LEASE_PERIOD.text} or longer, "
            "or no lease_period for leases that never lapse"
        )
    return period


def _life(value: object) -> Interval:
    life = Interval.parse(value)
    if life < 1:
        raise DefinitionError(
            f"{shown(value)} is too short, nothing could be delivered; allowed: 1ms or longer, or no expiration for "
            "messages that wait as long as need be"
        )
    return life


def _affinity(value: object) -> Interval:
    affinity = Interval.parse(value)
    if affinity < 1:
        raise DefinitionError(
            f"{shown(value)} binds no group; allowed: 1ms or longer, or no group_affinity for groups that go to "
            "whoever is free"
        )
    return affinity


def _number(value: object, least: float, most: float, meaning: str) -> float:
    number = float(value) if isinstance(value, str) and _DECIMAL.fullmatch(value) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not least <= number <= most:
        raise DefinitionError(f"{shown(value)} is no {meaning}; allowed: a number from {least:g} to {most:g}")
    return float(number)


def _ring_size(value: object) -> int:
    # A file's values are texts.
    if value in (NO_RING, str(NO_RING)):
        return NO_RING
    return _count_from(1, value, f", or {NO_RING} for no limit")


_POINTS = ("epoch", "now", "creation")


def _recovery_point(value: object) -> str:
    if isinstance(value, datetime):
        return _moment(value)
    if not isinstance(value, str):
        raise DefinitionError(f"{shown(value)} is no recovery point; allowed: {_POINT_ALLOWED}")
    if value in _POINTS:
        return value
    if "~" in value or "|" in value:
        return str(Bookmark.parse(value))
    try:
        return _moment(datetime.fromisoformat(value))
    except ValueError:
        raise DefinitionError(f"{shown(value)} is no recovery point; allowed: {_POINT_ALLOWED}") from None


_POINT_ALLOWED = (
    "epoch, now, creation, a bookmark, or a time as in '2026-11-20T18:30:00Z' (without an offset it is UTC)"
)


def _moment(value: datetime) -> str:
    """A time to the millisecond, by UTC."""
    moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if moment.timestamp() < 0:
        raise DefinitionError(f"{shown(value)} is before 1970; allowed: {_POINT_ALLOWED}")
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _field_separator(value: object) -> str:
    """A separator, or its code, as AMPS writes it."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if isinstance(text, str) and text.isdecimal() and len(text) <= len("127"):
        text = chr(int(text))
    # No sign that names and values are made of.
    if not isinstance(text, str) or len(text) != 1 or not "\0" < text <= "\x7f" or text.isalnum() or text == "=":
        raise DefinitionError(
            f"{shown(value)} is no separator; allowed: one ASCII character that is no letter, no digit and no '=', as "
            f"in '|', or its code, as in 124; default {SEPARATOR!r}, 1"
        )
    return text


def is_stored() -> bool:
    """Return whether what is made now was stored before, so that its expressions were parsed already."""
    return _IS_STORED.get()


@contextlib.contextmanager
def reading_stored() -> Iterator[None]:
    """Take the expressions of what is made meanwhile as they are: they were parsed before they were stored.

    The parser takes longer to import, and to be built, than all else that a definition needs.
    """
    token = _IS_STORED.set(True)
    try:
        yield
    finally:
        _IS_STORED.reset(token)


def _expression(value: object, purpose: Literal["filter", "priority", "barrier", "group", "weight"]) -> str:
    """Return the text of an expression that may stand there, as it was given."""
    if not isinstance(value, str):
        raise DefinitionError(
            f"{shown(value)} is not a text; allowed: an expression over the body, as in {shown(_EXAMPLES[purpose])}"
        )
    if not value.strip():
        raise DefinitionError(
            f"{shown(value)} is empty; allowed: an expression, as in {shown(_EXAMPLES[purpose])}, or leave it out"
        )
    if is_stored():
        return value
    from ampsq.expressions import parse  # noqa: PLC0415

    try:
        parse(value, purpose)
    except ExpressionError as fault:
        raise DefinitionError(misread(value, fault)) from None
    return value


def _identifiers(value: object) -> tuple[str, ...]:
    items = (value,) if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not items:
        raise DefinitionError(f"{shown(value)}: allowed is a list of identifiers, as in ['/id']")
    if is_stored():
        return tuple(items)
    from ampsq.expressions import parse  # noqa: PLC0415

    for item in items:
        if not isinstance(item, str) or not item.strip():
            raise DefinitionError(f"{shown(item)} is no identifier; allowed: a list of identifiers, as in ['/id']")
        try:
            tree = parse(item, "filter").tree
        except ExpressionError as fault:
            raise DefinitionError(misread(item, fault)) from None
        if tree[0] != "f":
            raise DefinitionError(f"{shown(item)} is no identifier; allowed: a list of identifiers, as in ['/id']")
    return tuple(items)


def misread(text: str, fault: ExpressionError) -> str:
    """Say on one line where and why an expression cannot be read: faults are listed one a line."""
    return f"{shown(text)}: column {fault.column}: {fault.reason}"


TopicOrPattern = Annotated[str, BeforeValidator(parse_topic_or_pattern)]
Count = Annotated[int, BeforeValidator(parse_count)]
ExpressionLimit = Annotated[int, BeforeValidator(_expression_limit)]
PositiveCount = Annotated[int, BeforeValidator(_positive)]
Burst = Annotated[int, BeforeValidator(_burst)]
GroupBatch = Annotated[int, BeforeValidator(_group_batch)]
QueueDepth = Annotated[int, BeforeValidator(_queue_depth)]
RingSize = Annotated[int, BeforeValidator(_ring_size)]
Multiplier = Annotated[float, BeforeValidator(lambda value: _number(value, 1, 1_000, "multiplier"))]
Factor = Annotated[float, BeforeValidator(lambda value: _number(value, 0, 1, "factor"))]
RecoveryPoint = Annotated[str, BeforeValidator(_recovery_point)]
FieldSeparator = Annotated[str, BeforeValidator(_field_separator)]
Filter = Annotated[str, BeforeValidator(lambda value: _expression(value, "filter"))]
Priority = Annotated[str, BeforeValidator(lambda value: _expression(value, "priority"))]
Barrier = Annotated[str, BeforeValidator(lambda value: _expression(value, "barrier"))]
GroupBy = Annotated[str, BeforeValidator(lambda value: _expression(value, "group"))]
GroupWeight = Annotated[str, BeforeValidator(lambda value: _expression(value, "weight"))]

if TYPE_CHECKING:

    class LeasePeriod:
        """A lease period as a type checker knows it: read as an interval, but written in any form of one."""

        def __get__(self, instance: object, owner: type) -> Interval | None: ...
        def __set__(self, instance: object, value: Interval | timedelta | float | str | None) -> None: ...

    Life = LeasePeriod
    Affinity = LeasePeriod

    class Identifiers:
        """The same of one text or several."""

        def __get__(self, instance: object, owner: type) -> tuple[str, ...]: ...
        def __set__(self, instance: object, value: str | Sequence[str]) -> None: ...

    class RatePerTime:
        """A rate as a type checker knows it: read as one, but written as a text, too."""

        def __get__(self, instance: object, owner: type) -> Rate | None: ...
        def __set__(self, instance: object, value: Rate | str | None) -> None: ...

    class Delay:
        """The same of an interval that is always there."""

        def __get__(self, instance: object, owner: type) -> Interval: ...
        def __set__(self, instance: object, value: Interval | timedelta | float | str) -> None: ...

else:
    _AS_TEXT = PlainSerializer(lambda period: period and period.text, when_used="json")
    LeasePeriod = Annotated[Interval, PlainValidator(_lease_period), _AS_TEXT]
    Life = Annotated[Interval, PlainValidator(_life), _AS_TEXT]
    Affinity = Annotated[Interval, PlainValidator(_affinity), _AS_TEXT]
    RatePerTime = Annotated[Rate, PlainValidator(Rate.parse), _AS_TEXT]
    Identifiers = Annotated[tuple[str, ...], BeforeValidator(_identifiers)]
    Delay = Annotated[
        Interval,
        PlainValidator(Interval.parse),
        PlainSerializer(lambda period: period.text, when_used="json"),
    ]
