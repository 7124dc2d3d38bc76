"""Reading of the values of an action's parts, and the advice in a refusal of one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, PlainValidator

from ampsq.base.errors import DefinitionError, ExpressionError
from ampsq.base.values import ExpiryReason, Interval, parse_count, parse_name, shown
from ampsq.definitions.elements import is_stored, misread
from ampsq.definitions.schedule import parse_cron, parse_schedule, parse_time_zone

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

__all__ = [
    "NONE",
    "VARIABLE",
    "Cases",
    "Cron",
    "Every",
    "Expression",
    "Extractions",
    "FilledText",
    "Orders",
    "Percent",
    "Period",
    "Reasons",
    "Target",
    "Text",
    "TimeZone",
    "Variable",
    "Wait",
    "WebAddress",
]

VARIABLE: Final = re.compile(rb"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
"""A variable in a text of an action: ``{{AMPS_DATA}}``."""

# For a type checker, a default that is written in one form and read in another fits every type.
NONE: Any = ()
"""No texts."""

_LONGEST_OUTSIDE: Final = Interval(60_000)


def _in_order(reasons: tuple[ExpiryReason, ...]) -> tuple[ExpiryReason, ...]:
    return tuple(reason for reason in get_args(ExpiryReason) if reason in reasons)


def _listed(value: object) -> object:
    """One text stands for a list of it, and AMPS's lists of reasons have commas."""
    return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise DefinitionError(f"{shown(value)} is not a text; allowed: a text, in which {{{{NAME}}}} is a variable")
    return value


def _filled(value: object) -> str:
    text = _text(value)
    if not text.strip():
        raise DefinitionError(f"{shown(text)} is empty; allowed: a text, in which {{{{NAME}}}} is a variable")
    return text


def _web_address(value: object) -> str:
    """Return an http address; what begins with a variable is checked where it is put in."""
    text = _filled(value)
    if is_stored() or VARIABLE.match(text.encode()):
        return text
    try:
        parts = urlsplit(text)
        is_web = parts.scheme in ("http", "https") and bool(parts.netloc)
    except ValueError:
        is_web = False
    if not is_web:
        raise DefinitionError(
            f"{shown(text)} is no address of the web; allowed: http://HOST or https://HOST, with a path, as in "
            "'https://example.com/orders', or a variable in its place"
        )
    return text


def _variable(value: object) -> str:
    text = _text(value)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        raise DefinitionError(f"{shown(text)} is no variable; allowed: letters, digits and _, as in TOTAL")
    return text


def _target(value: object) -> str:
    """A topic's name, or a text with variables that makes one."""
    text = _text(value)
    return text if VARIABLE.search(text.encode()) else parse_name(text)


def _expression(value: object) -> str:
    """An expression, checked at once where no variable is to be put into it."""
    text = _filled(value)
    if not VARIABLE.search(text.encode()):
        _parse(text)
    return text


def _parse(text: str) -> None:
    if is_stored():
        return
    from ampsq.expressions import parse  # noqa: PLC0415  (late: importing the parser takes longer than the rest)

    try:
        parse(text, "query")
    except ExpressionError as fault:
        raise DefinitionError(misread(text, fault)) from None


def _pairs(value: object, what: str, example: str) -> tuple[str, ...]:
    items = (value,) if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not items:
        raise DefinitionError(f"{shown(value)}: allowed is one {what} or a list of them, as in {example!r}")
    for item in items:
        if not isinstance(item, str) or "=" not in item:
            raise DefinitionError(f"{shown(item)} is no {what}; allowed: one as in {example!r}")
    return tuple(items)


def _extractions(value: object) -> tuple[str, ...]:
    items = _pairs(value, "extraction", "TOTAL=/price * /qty")
    for item in items:
        name, _, text = item.partition("=")
        _variable(name.strip())
        _parse(text)
    return items


def _period(value: object) -> Interval:
    period = Interval.parse(value)
    if period < 1:
        raise DefinitionError(f"{shown(value)} is too short; allowed: 1ms or longer")
    return period


def _wait(value: object) -> Interval:
    period = _period(value)
    if period > _LONGEST_OUTSIDE:
        raise DefinitionError(f"{shown(value)} is too long; allowed: up to {_LONGEST_OUTSIDE.text}, since others wait")
    return period


def _percent(value: object) -> int:
    allowed = "a whole number from 0 to 100"
    percent = parse_count(value.removesuffix("%").strip() if isinstance(value, str) else value, allowed)
    if percent > 100:  # noqa: PLR2004
        raise DefinitionError(f"{shown(value)} is more than all; allowed: {allowed}")
    return percent


def _every(value: object) -> str:
    parse_schedule(value)
    return value if isinstance(value, str) else Interval.parse(value).text


Text = Annotated[str, BeforeValidator(_text)]
FilledText = Annotated[str, BeforeValidator(_filled)]
WebAddress = Annotated[str, BeforeValidator(_web_address)]
Target = Annotated[str, BeforeValidator(_target)]
Variable = Annotated[str, BeforeValidator(_variable)]
Expression = Annotated[str, BeforeValidator(_expression)]
Cron = Annotated[str, BeforeValidator(lambda value: parse_cron(value).cron)]
TimeZone = Annotated[str, BeforeValidator(parse_time_zone)]

if TYPE_CHECKING:
    # What a type checker knows: how each is read, and the forms in which it is written.

    class Period:
        """A length of time."""

        def __get__(self, instance: object, owner: type) -> Interval: ...
        def __set__(self, instance: object, value: Interval | timedelta | float | str) -> None: ...

    class Wait(Period):
        """A length of time for which others wait."""

    class Texts:
        """One text or several."""

        def __get__(self, instance: object, owner: type) -> tuple[str, ...]: ...
        def __set__(self, instance: object, value: str | Sequence[str]) -> None: ...

    class Extractions(Texts):
        """``VARIABLE=expression``."""

    class Cases(Texts):
        """``from=to``."""

    class Orders(Texts):
        """As in ``/price DESC``."""

    class Reasons:
        """One reason or several."""

        def __get__(self, instance: object, owner: type) -> tuple[ExpiryReason, ...]: ...
        def __set__(self, instance: object, value: str | Sequence[ExpiryReason]) -> None: ...

    class Percent:
        """A part of a hundred."""

        def __get__(self, instance: object, owner: type) -> int: ...
        def __set__(self, instance: object, value: int | str) -> None: ...

    class Every:
        """A timetable."""

        def __get__(self, instance: object, owner: type) -> str | None: ...
        def __set__(self, instance: object, value: timedelta | float | str | None) -> None: ...

else:
    _WRITTEN = PlainSerializer(lambda period: period and period.text, when_used="json")
    Period = Annotated[Interval, PlainValidator(_period), _WRITTEN]
    Wait = Annotated[Interval, PlainValidator(_wait), _WRITTEN]
    Reasons = Annotated[tuple[ExpiryReason, ...], BeforeValidator(_listed), AfterValidator(_in_order)]
    Extractions = Annotated[tuple[str, ...], BeforeValidator(_extractions)]
    Cases = Annotated[tuple[str, ...], BeforeValidator(lambda value: _pairs(value, "case", "NEW=open"))]
    Percent = Annotated[int, BeforeValidator(_percent)]
    Every = Annotated[str, BeforeValidator(_every)]
    Orders = Annotated[tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)]
