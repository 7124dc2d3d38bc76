"""How the values of elements are read: each kind of value, and what a refusal of one teaches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, PlainSerializer, PlainValidator

from ampsq.errors import DefinitionError, ExpressionError
from ampsq.values import Interval, parse_count, parse_topic_or_pattern, shown

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = [
    "MIN_LEASE_PERIOD",
    "MIN_QUEUE_DEPTH",
    "Barrier",
    "Count",
    "Filter",
    "LeasePeriod",
    "PositiveCount",
    "Priority",
    "QueueDepth",
    "TopicOrPattern",
    "misread",
]

MIN_LEASE_PERIOD = Interval(100)
"""The shortest lease, 100ms: lapsed leases are looked for no more often than that."""

MIN_QUEUE_DEPTH = 1_000
"""The smallest `target_queue_depth`, messages; AMPS's own limit."""

_EXAMPLES = {
    "filter": "/country = 'US' AND /qty > 100",
    "priority": "/price * /qty",
    "barrier": "/type = 'end-of-day'",
}


def _positive(value: object) -> int:
    count = parse_count(value)
    if count < 1:
        raise DefinitionError(f"{shown(value)} is too small; allowed: a whole number from 1 to 1000000000")
    return count


def _queue_depth(value: object) -> int:
    depth = parse_count(value)
    if depth < MIN_QUEUE_DEPTH:
        raise DefinitionError(
            f"{shown(value)} is too small; allowed: a whole number from {MIN_QUEUE_DEPTH} to 1000000000, best the "
            "messages of several seconds, or no target_queue_depth for a queue that has no such limit"
        )
    return depth


def _lease_period(value: object) -> Interval:
    period = Interval.parse(value)
    if period < MIN_LEASE_PERIOD:
        raise DefinitionError(
            f"{shown(value)} is too short; allowed: {MIN_LEASE_PERIOD.text} or longer, "
            "or no lease_period for leases that never lapse"
        )
    return period


def _expression(value: object, purpose: Literal["filter", "priority", "barrier"]) -> str:
    """Return the text of an expression that may stand there, as it was given."""
    # Late, since most definitions have no expression, and importing the parser takes longer than the rest.
    from ampsq.expressions import parse  # noqa: PLC0415

    if not isinstance(value, str):
        raise DefinitionError(
            f"{shown(value)} is not a text; allowed: an expression over the body, as in {shown(_EXAMPLES[purpose])}"
        )
    if not value.strip():
        raise DefinitionError(
            f"{shown(value)} is empty; allowed: an expression, as in {shown(_EXAMPLES[purpose])}, or leave it out"
        )
    try:
        parse(value, purpose)
    except ExpressionError as fault:
        raise DefinitionError(misread(value, fault)) from None
    return value


def misread(text: str, fault: ExpressionError) -> str:
    """Say on one line where and why an expression cannot be read: faults are listed one a line."""
    return f"{shown(text)}: column {fault.column}: {fault.reason}"


TopicOrPattern = Annotated[str, BeforeValidator(parse_topic_or_pattern)]
Count = Annotated[int, BeforeValidator(parse_count)]
PositiveCount = Annotated[int, BeforeValidator(_positive)]
QueueDepth = Annotated[int, BeforeValidator(_queue_depth)]
Filter = Annotated[str, BeforeValidator(lambda value: _expression(value, "filter"))]
Priority = Annotated[str, BeforeValidator(lambda value: _expression(value, "priority"))]
Barrier = Annotated[str, BeforeValidator(lambda value: _expression(value, "barrier"))]

if TYPE_CHECKING:

    class LeasePeriod:
        """What a type checker knows: it is read as an interval, but written in any form of one."""

        def __get__(self, instance: object, owner: type) -> Interval | None: ...
        def __set__(self, instance: object, value: Interval | timedelta | float | str | None) -> None: ...

else:
    LeasePeriod = Annotated[
        Interval,
        PlainValidator(_lease_period),
        PlainSerializer(lambda period: period and period.text, when_used="json"),
    ]
