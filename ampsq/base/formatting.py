"""Lengths of time, sizes and moments as text for people: one form each, which can be read back as it stands."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

__all__ = [
    "count_text",
    "duration_text",
    "fact_text",
    "interval_text",
    "printable",
    "printable_line",
    "size_text",
    "span_text",
    "time_text",
]

_SECOND: Final = 1_000
_LARGE: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000))
#: Length, ms -> what a shorter part of it is not worth telling, ms.
_WORTH: Final = ((86_400_000, 3_600_000), (3_600_000, 60_000), (60_000, 1_000), (1_000, 100))
#: Facts that are times, ms since 1970; lengths of time, ms; and numbers of bytes.
_MOMENTS: Final = (
    "now", "until", "due", "next_due", "ends", "at", "searched_back_to", "group_paused", "group_bound_until",
)  # fmt: skip
_SPANS: Final = ("expiration", "rate_wait", "group_rate_wait")
_BYTES: Final = ("bytes",)
#: What is no sign to look at and acts on those around it, but for line ends and tabs: controls, what turns the
#: direction of writing, what ends a line elsewhere, halves of pairs, which UTF-8 does not have.
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)
_LINES: Final = re.compile("[\t\n]")
_UNITS: Final = (("min", 60.0), ("s", 1.0), ("ms", 0.001))
_HOUR: Final = 3600.0
_SIZES: Final = (("TB", 2**40), ("GB", 2**30), ("MB", 2**20), ("KB", 2**10))


def interval_text(milliseconds: int) -> str:
    """Write a length of time in full, as in ``1h30m``, ``7d``, ``1m2.5s``, ``250ms`` and ``0s``."""
    if 0 < milliseconds < _SECOND:
        return f"{milliseconds}ms"
    parts, rest = [], milliseconds
    for unit, length in _LARGE:
        count, rest = divmod(rest, length)
        parts += [f"{count}{unit}"] if count else []
    if rest or not parts:
        parts.append(f"{rest / _SECOND:.3f}".rstrip("0").rstrip(".") + "s")
    return "".join(parts)


def span_text(milliseconds: int) -> str:
    """Write how long something took or is away, to what is worth telling: ``3d4h``, ``5m12s``, ``59.2s``, ``20ms``."""
    worth = next((part for length, part in _WORTH if milliseconds >= length), 1)
    return interval_text((milliseconds + worth // 2) // worth * worth)


def duration_text(seconds: float | None) -> str:
    """Write how long something took that was measured up to an hour, as in ``0.4 ms``, ``12 ms`` and ``over 1 h``.

    Args:
        seconds: None: nothing was measured, a dash.
    """
    if seconds is None:
        return "–"  # noqa: RUF001  (a dash, as it is set)
    if seconds >= _HOUR:
        return "over 1 h"
    unit, size = next(((unit, size) for unit, size in _UNITS if seconds >= size), _UNITS[-1])
    number = seconds / size
    return f"{number:.0f} {unit}" if number >= 10 else f"{number:.1f}".removesuffix(".0") + f" {unit}"  # noqa: PLR2004


def size_text(number: int) -> str:
    """Write a number of bytes in the largest unit that fits, to a tenth, as in ``312B``, ``12.3KB`` and ``1GB``."""
    for unit, size in _SIZES:
        if number >= size:
            return f"{number / size:.1f}".removesuffix(".0") + unit
    return f"{number}B"


def time_text(milliseconds: int) -> str:
    """Write a time, ms since 1970, in ISO 8601 by UTC, as in ``2026-11-20T18:30:00.000Z``."""
    at = datetime.fromtimestamp(milliseconds // _SECOND, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{milliseconds % _SECOND:03d}Z"


def count_text(number: int, what: str) -> str:
    """Write how many there are, as in ``1 message`` and ``2,000 messages``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def printable(text: str) -> str:
    """Write what strangers wrote so that nothing of it acts on who looks: those characters as JSON escapes."""
    return _UNSEEN.sub(_escaped, text)


def printable_line(text: str) -> str:
    """Write the same on one line: line ends and tabs as escapes, too."""
    return _LINES.sub(_escaped, printable(text))


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def fact_text(name: str, value: object) -> object:
    """Write a fact about a message that has a unit; any other one is given back as it is."""
    if not isinstance(value, int) or isinstance(value, bool):
        return value
    if name in _MOMENTS:
        return time_text(value)
    if name in _SPANS:
        return interval_text(value)
    return size_text(value) if name in _BYTES else value
