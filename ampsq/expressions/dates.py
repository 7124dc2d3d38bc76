"""Dates of the functions STRFTIME and STRPTIME: UTC, the years 0 to 9999, English names, no locale."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["strftime", "strptime"]

_DAY = 86_400
_FIRST = -62_167_219_200
_LAST = 253_402_300_799
_PIVOT = 69

_DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"]
_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_SHORTHANDS = {b"F": b"%Y-%m-%d", b"T": b"%H:%M:%S", b"D": b"%m/%d/%y", b"R": b"%H:%M"}
_DIRECTIVE = re.compile(rb"%(.)", re.DOTALL)


class _Moment(NamedTuple):
    """One second in UTC; the weekday counts from Sunday, 0, and the day of the year from 1."""

    total: int
    year: int
    month: int
    day: int
    hour: int
    minute: int
    second: int
    weekday: int
    day_of_year: int


def _days_before(year: int, month: int) -> int:
    """Days from 1970-01-01 to the first of a month, in the Gregorian calendar also before it began."""
    # Years that begin in March have their leap day at the end.
    shifted = year - (month < 3)  # noqa: PLR2004
    era, place = divmod(shifted, 400)
    since_march = (153 * ((month + 9) % 12) + 2) // 5
    return era * 146_097 + place * 365 + place // 4 - place // 100 + since_march - 719_468


def _month_length(year: int, month: int) -> int:
    following = (year + 1, 1) if month == 12 else (year, month + 1)  # noqa: PLR2004
    return _days_before(*following) - _days_before(year, month)


def _moment(total: int) -> _Moment:
    days, rest = divmod(total, _DAY)
    era, place = divmod(days + 719_468, 146_097)
    year_place = (place - place // 1_460 + place // 36_524 - place // 146_096) // 365
    day_place = place - (365 * year_place + year_place // 4 - year_place // 100)
    shifted_month = (5 * day_place + 2) // 153
    day = day_place - (153 * shifted_month + 2) // 5 + 1
    month = (shifted_month + 2) % 12 + 1
    year = era * 400 + year_place + (month <= 2)  # noqa: PLR2004
    hour, rest = divmod(rest, 3_600)
    minute, second = divmod(rest, 60)
    return _Moment(total, year, month, day, hour, minute, second, (days + 4) % 7, days - _days_before(year, 1) + 1)


_WRITERS: dict[bytes, Callable[[_Moment], str]] = {
    b"Y": lambda m: f"{m.year:04}",
    b"y": lambda m: f"{m.year % 100:02}",
    b"m": lambda m: f"{m.month:02}",
    b"d": lambda m: f"{m.day:02}",
    b"e": lambda m: f"{m.day:2}",
    b"H": lambda m: f"{m.hour:02}",
    b"I": lambda m: f"{(m.hour - 1) % 12 + 1:02}",
    b"M": lambda m: f"{m.minute:02}",
    b"S": lambda m: f"{m.second:02}",
    b"p": lambda m: "AM" if m.hour < 12 else "PM",  # noqa: PLR2004
    b"j": lambda m: f"{m.day_of_year:03}",
    b"a": lambda m: _DAYS[m.weekday][:3],
    b"A": lambda m: _DAYS[m.weekday],
    b"b": lambda m: _MONTHS[m.month - 1][:3],
    b"B": lambda m: _MONTHS[m.month - 1],
    b"s": lambda m: str(m.total),
    b"Z": lambda _: "UTC",
    b"z": lambda _: "+0000",
    b"%": lambda _: "%",
}


def _expanded(form: bytes) -> bytes:
    return _DIRECTIVE.sub(lambda found: _SHORTHANDS.get(found[1], found[0]), form)


def strftime(form: bytes, seconds: float) -> bytes | None:
    """Write a moment.

    Args:
        form: text with directives; those that are not in `docs/expressions.md` stay as they are.
        seconds: since 1970; a fraction is cut off downwards.

    Returns:
        The text, or None when the year is not from 0 to 9999.
    """
    if not _FIRST <= seconds < _LAST + 1:
        return None
    moment = _moment(math.floor(seconds))

    def written(found: re.Match[bytes]) -> bytes:
        writer = _WRITERS.get(found[1])
        return writer(moment).encode() if writer else found[0]

    return _DIRECTIVE.sub(written, _expanded(form))


_NUMBERS = {
    b"Y": (rb"[0-9]{4}", 0, 9_999),
    b"y": (rb"[0-9]{1,2}", 0, 99),
    b"m": (rb"[0-9]{1,2}", 1, 12),
    b"d": (rb"[0-9]{1,2}", 1, 31),
    b"H": (rb"[0-9]{1,2}", 0, 23),
    b"M": (rb"[0-9]{1,2}", 0, 59),
    b"S": (rb"[0-9]{1,2}", 0, 59),
    b"j": (rb"[0-9]{1,3}", 1, 366),
    b"s": (rb"-?[0-9]{1,12}", _FIRST, _LAST),
}
_NAMES = {b"b": [name[:3].lower().encode() for name in _MONTHS], b"B": [name.lower().encode() for name in _MONTHS]}


def strptime(form: bytes, text: bytes) -> int | None:
    """Read a moment.

    Args:
        form: text with directives; all else must be in the text exactly.
        text: what is read, whole.

    Returns:
        Seconds since 1970, or None when the text does not fit or no such day exists. What the form leaves out
        is as at the start of 1970.
    """
    given: dict[bytes, int] = {}
    place, form = 0, _expanded(form)
    index = 0
    while index < len(form):
        directive = form[index + 1 : index + 2] if form[index : index + 1] == b"%" else b""
        if directive and directive != b"%":
            end = _read(directive, text, place, given)
            if end is None:
                return None
            place, index = end, index + 2
            continue
        if text[place : place + 1] != form[index : index + 1]:
            return None
        place, index = place + 1, index + (2 if directive else 1)
    return _total(given) if place == len(text) else None


def _read(directive: bytes, text: bytes, place: int, given: dict[bytes, int]) -> int | None:
    """Read one directive's value at a place; its end, or None when the text does not fit."""
    if directive in _NAMES:
        for month, name in enumerate(_NAMES[directive], 1):
            if text[place : place + len(name)].lower() == name:
                given[b"m"] = month
                return place + len(name)
        return None
    if directive not in _NUMBERS:
        return None
    digits, low, high = _NUMBERS[directive]
    # Compiled when it is used first: clients import this, and few read a date.
    found = re.compile(digits).match(text, place)
    if found is None or not low <= int(found[0]) <= high:
        return None
    value = int(found[0])
    if directive == b"y":
        given[b"Y"] = value + (1_900 if value >= _PIVOT else 2_000)
    else:
        given[directive] = value
    return found.end()


def _total(given: dict[bytes, int]) -> int | None:
    if b"s" in given:
        return given[b"s"]
    year = given.get(b"Y", 1_970)
    if b"j" in given:
        days = _days_before(year, 1) + given[b"j"] - 1
        if days >= _days_before(year + 1, 1):
            return None
    else:
        month, day = given.get(b"m", 1), given.get(b"d", 1)
        if day > _month_length(year, month):
            return None
        days = _days_before(year, month) + day - 1
    return days * _DAY + given.get(b"H", 0) * 3_600 + given.get(b"M", 0) * 60 + given.get(b"S", 0)
