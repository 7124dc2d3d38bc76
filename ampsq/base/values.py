"""The small values that definitions and messages are made of: names, intervals, sizes.

They need nothing but the standard library, and a refusal is always a `DefinitionError` that says what is
allowed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import ROUND_CEILING, Decimal
from pathlib import Path
from typing import Final, Literal, Self, TypeAlias, TypeVar

from ampsq.base.errors import DefinitionError
from ampsq.base.formatting import interval_text

__all__ = [
    "INSTANCE_TRANSPORT",
    "NAME_ALLOWED",
    "NAME_PATTERN",
    "ExpiryReason",
    "Interval",
    "Rate",
    "check_text",
    "is_name",
    "list_of",
    "parse_count",
    "parse_name",
    "parse_size",
    "parse_transport",
    "path_of",
    "shown",
]

NAME_ALLOWED = "1 to 255 of the characters A-Z a-z 0-9 _ . / -"
"""Rule for names, for error texts.

Never in a name: ``~`` ends a bookmark's topic, ``@`` parts topic and origin in a key, ``: , | [ ] ( )`` and
the space part lists and ranges of bookmarks.
"""

ExpiryReason: TypeAlias = Literal["max_deliveries", "max_cancels", "forced_expire", "time_limit"]
"""Reasons for which a message expires: delivered or cancelled too often, expired by a consumer, or out of time."""

INSTANCE_TRANSPORT: Final = "*"
"""The transport that stands for the instance: its values count for every other one that gives none."""

T = TypeVar("T")
_MILLISECONDS = {
    "ns": Decimal("0.000001"),
    "us": Decimal("0.001"),
    "ms": Decimal(1),
    "s": Decimal(1_000),
    "m": Decimal(60_000),
    "h": Decimal(3_600_000),
    "d": Decimal(86_400_000),
    "w": Decimal(604_800_000),
}
_BYTES = {"": 1, "b": 1, "kb": 2**10, "mb": 2**20, "gb": 2**30, "tb": 2**40}
_COUNTS = {"": 1, "k": 1_000, "K": 1_000, "M": 1_000_000}
_INTERVAL_ALLOWED = (
    "a number of seconds, or numbers with the units ns us ms s m h d w, as in '250ms', '30s' or '1h30m', from 0 to "
    "36500d"
)
_RATE_ALLOWED = (
    "a whole number of messages, '/', and a unit s, min, h or d, or an interval, as in '10/s', '600/min' or '100/10s'; "
    "from 1/d to 1000000/s"
)
_SIZE_ALLOWED = "a whole number of bytes, or a number with one of the units kb mb gb tb (1kb = 1024), as in '10MB'"
_COUNT_ALLOWED = "a whole number from 0 to 1000000000, or one with k (thousand) or M (million), as in '10k'"
_LONGEST_SHOWN = 300
_MAX_INTERVAL = Decimal(36_500 * 86_400_000)
_MOST_SECONDS = 36_500 * 86_400
_MAX_COUNT = 1_000_000_000
#: Microseconds between two messages: of the fastest rate, and of the slowest one.
_SHORTEST_STEP, _LONGEST_STEP = 1, 86_400_000_000
#: How many messages of a rate may come at once, if nobody says: what it lets go in so many microseconds.
_USUAL_BURST = 100_000
_MAX_SIZE = 2**53
NAME_PATTERN = re.compile(r"[A-Za-z0-9_./-]{1,255}")
_AMOUNT = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?)[ ]?([A-Za-z]*)")
_RATE = re.compile(r"([0-9]{1,9})[ ]?/[ ]?([0-9.]{0,20}[a-z]{1,3})")
_PART = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?)[ ]?([a-z]{1,2})[ ]?")
_PARTS = re.compile(f"(?:{_PART.pattern}){{2,8}}")


def shown(value: object) -> str:
    """Write a value for an error text as people write it in a file, cut when it is long."""
    text = _plain(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}... ({len(text)} characters)"


def _plain(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, Interval):
        return interval_text(value)
    if isinstance(value, timedelta) and value >= timedelta(0):
        return interval_text(value // timedelta(milliseconds=1))
    if isinstance(value, datetime):
        return value.isoformat()
    try:
        return repr(value)
    except Exception:  # noqa: BLE001  (any object may be given, nested too deeply, or with a text that cannot be made)
        return f"an object of type {type(value).__name__}"


def is_name(text: str) -> bool:
    """Say whether a text is a name, that is, 1 to 255 of ``A-Z a-z 0-9 _ . / -``.

    A text that is a name is always taken literally, dots included; only other texts can be patterns.
    """
    return NAME_PATTERN.fullmatch(text) is not None


def parse_transport(value: object) -> str:
    """Return the value when it is the name of a transport, or `*`.

    Raises:
        DefinitionError: it is neither.
    """
    if not isinstance(value, str) or not (value == INSTANCE_TRANSPORT or is_name(value)):
        raise DefinitionError(f"{shown(value)} is no transport; allowed: '*', the instance, or {NAME_ALLOWED}")
    return value


def check_text(argument: str, value: object) -> None:
    """Refuse a name that is no text, whether or not anything has it.

    Raises:
        DefinitionError: it is no text; the error names the argument.
    """
    if not isinstance(value, str):
        raise DefinitionError(f"{argument}: {shown(value)} is not a text; allowed: a text")


def path_of(argument: str, value: str | os.PathLike[str]) -> Path:
    """Return a path that a file may have.

    Raises:
        DefinitionError: no file can have such a path; the error names the argument.
    """
    try:
        path = Path(value)
        possible = b"\0" not in os.fsencode(path)
    except (TypeError, UnicodeEncodeError):
        possible = False
    if not possible:
        raise DefinitionError(f"{argument}: {shown(value)} is no path; allowed: the path of a file, as in 'till-4.db'")
    return path


def list_of(argument: str, values: Iterable[T], example: str) -> list[T]:
    """Return the values of an argument that takes several, as a list.

    A text, bytes and a mapping are one value, though they can be iterated over.

    Raises:
        DefinitionError: they are one value; the error names the argument and shows the example.
    """
    if isinstance(values, str | bytes | bytearray | memoryview | Mapping) or not isinstance(values, Iterable):
        raise DefinitionError(f"{argument}={shown(values)} is not a list; allowed: a list, as in {example}")
    return list(values)


def parse_name(value: object) -> str:
    """Return the value when it is a name.

    Raises:
        DefinitionError: it is no text, empty, too long, or has a character that names do not have.
    """
    if not isinstance(value, str):
        raise DefinitionError(f"{shown(value)} is not a text; allowed: {NAME_ALLOWED}")
    if not is_name(value):
        raise DefinitionError(f"{shown(value)} is not a name; allowed: {NAME_ALLOWED}")
    return value


class Interval(int):
    """A length of time in whole milliseconds.

    It is an `int`, so that it goes to scripts and into sums as it is; a plain number *given* to `parse` is
    seconds, while an `Interval` stays what it is, so one queue's lease period can be given to another.
    """

    __slots__ = ()

    @classmethod
    def parse(cls, value: object) -> Self:
        """Read an interval.

        Args:
            value: seconds (``30``, ``0.5``), a `timedelta`, or a text: a number and one of the units ns,
                us, ms, s, m (minutes), h, d, w, or several of them, as in ``1h30m``. A text without a unit is
                seconds.

        Returns:
            The interval, rounded up to whole milliseconds, so that no positive interval becomes zero.

        Raises:
            DefinitionError: the value is none of these, negative, or longer than 36500 days.
        """
        if isinstance(value, cls):
            return value
        if type(value) is int and 0 <= value <= _MOST_SECONDS:
            # What a time limit of one call mostly is; decimals take ten times as long.
            return cls(1000 * value)
        milliseconds = _milliseconds(value)
        if milliseconds is None or not 0 <= milliseconds <= _MAX_INTERVAL:
            raise DefinitionError(f"{shown(value)} is not an interval; allowed: {_INTERVAL_ALLOWED}")
        return cls(milliseconds.to_integral_value(ROUND_CEILING))

    @classmethod
    def of_argument(cls, argument: str, value: object) -> Self:
        """Read an interval that a call was given; see `parse`.

        Raises:
            DefinitionError: it is none; the error names the argument.
        """
        try:
            return cls.parse(value)
        except DefinitionError as error:
            raise DefinitionError(f"{argument}={error}") from None

    @property
    def text(self) -> str:
        """The interval in the largest unit that gives a whole number, as in ``90s`` or ``1w``."""
        for unit in ("w", "d", "h", "m", "s"):
            count, rest = divmod(int(self), int(_MILLISECONDS[unit]))
            if count and not rest:
                return f"{count}{unit}"
        return f"{int(self)}ms"


@dataclass(frozen=True, slots=True)
class Rate:
    """A number of messages in a time, as in ``10/s``.

    Attributes:
        count: how many messages.
        unit: in which time, as it was written: ``s``, ``min``, ``h``, ``d``, or an interval as ``10s``.
        period: the same as an interval.
    """

    count: int
    unit: str
    period: Interval

    @classmethod
    def parse(cls, value: object) -> Self:
        """Read a rate.

        Args:
            value: a text as ``10/s``, ``600/min``, ``1/h`` or ``100/10s``, or a `Rate`.

        Raises:
            DefinitionError: the value is none of these, or slower than one a day, or faster than 1,000,000 a second.
        """
        if isinstance(value, cls):
            return value
        found = _RATE.fullmatch(value.strip()) if isinstance(value, str) else None
        period = Interval(0)
        if found:
            unit = "m" if found[2] == "min" else found[2]
            milliseconds = _milliseconds(unit if unit[0].isdigit() else f"1{unit}")
            if milliseconds is not None and milliseconds == int(milliseconds) and milliseconds <= _MAX_INTERVAL:
                period = Interval(int(milliseconds))
        if not found or not int(found[1]) or not _SHORTEST_STEP <= period * 1_000 / int(found[1]) <= _LONGEST_STEP:
            raise DefinitionError(f"{shown(value)} is not a rate; allowed: {_RATE_ALLOWED}")
        return cls(int(found[1]), found[2], period)

    @property
    def text(self) -> str:
        """The rate as it is written, as in ``10/s``."""
        return f"{self.count}/{self.unit}"

    @property
    def step(self) -> float:
        """Microseconds from one message to the next."""
        return self.period * 1_000 / self.count

    @property
    def usual_burst(self) -> int:
        """The number of messages that may come at once, if nobody says: those of a tenth of a second, at least 1."""
        return max(int(_USUAL_BURST / self.step), 1)

    def __repr__(self) -> str:
        return repr(self.text)

    def __str__(self) -> str:
        return self.text


def _milliseconds(value: object) -> Decimal | None:
    """The exact number of milliseconds that a value means, or None when it means none."""
    if isinstance(value, timedelta):
        return Decimal(value // timedelta(microseconds=1)) / 1000
    if isinstance(value, str):
        if _PARTS.fullmatch(value.strip()):
            return _sum(value)
        amount = _AMOUNT.fullmatch(value.strip())
        factor = _MILLISECONDS.get(amount[2] or "s") if amount else None
        return Decimal(amount[1]) * factor if amount and factor else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 <= value <= _MAX_INTERVAL:
        return None
    # To the nanosecond, so that the binary dust of 0.1 + 0.2 does not round up to another millisecond.
    return round(Decimal(value), 9) * 1000


def _sum(text: str) -> Decimal | None:
    """Of a text as ``1h30m``: its units go from large to small, each once."""
    parts = [(Decimal(number), _MILLISECONDS.get(unit)) for number, unit in _PART.findall(text)]
    factors = [factor for _, factor in parts if factor is not None]
    if len(factors) < len(parts) or factors != sorted(set(factors), reverse=True):
        return None
    return sum((number * factor for number, factor in parts if factor is not None), Decimal(0))


def parse_size(value: object) -> int:
    """Read a size in bytes.

    Args:
        value: a number of bytes, or a text such as ``10MB`` (kb, mb, gb, tb in any case; 1kb is 1024 bytes).

    Raises:
        DefinitionError: the value is no size, not a whole number of bytes, or over 2**53.
    """
    text = value.lower() if isinstance(value, str) else value
    size = _whole(text, _BYTES)
    if size is None or size > _MAX_SIZE:
        raise DefinitionError(f"{shown(value)} is not a size; allowed: {_SIZE_ALLOWED}")
    return size


def parse_count(value: object, allowed: str = _COUNT_ALLOWED) -> int:
    """Read a count.

    Args:
        value: a whole number, or a text such as ``100``, ``10k`` (thousands) or ``1.5M`` (millions).
        allowed: what a refusal says is allowed, of a count with other bounds, which its caller checks.

    Raises:
        DefinitionError: the value is no whole number from 0 to 1,000,000,000.
    """
    count = _whole(value, _COUNTS)
    if count is None or count > _MAX_COUNT:
        raise DefinitionError(f"{shown(value)} is not a count; allowed: {allowed}")
    return count


def _whole(value: object, units: dict[str, int]) -> int | None:
    """The whole number that a value with one of these units means, or None."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if value >= 0 else None
    amount = _AMOUNT.fullmatch(value.strip()) if isinstance(value, str) else None
    if amount is None or amount[2] not in units:
        return None
    number = Decimal(amount[1]) * units[amount[2]]
    return int(number) if number == int(number) else None
