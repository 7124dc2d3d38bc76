"""Schedules of actions: every so often, daily, weekly or by a cron line, in milliseconds since 1970."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import takewhile
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from ampsq.base.errors import DefinitionError
from ampsq.base.values import Interval, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cronsim import CronSim

__all__ = ["MIN_PERIOD", "CronSchedule", "Schedule", "parse_cron", "parse_schedule", "parse_time_zone"]

#: The shortest period: a coordinator looks ten times a second.
MIN_PERIOD: Final = Interval(100)

_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_TIME = re.compile(r"(?:([A-Za-z]+)\s+at\s+)?([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?\s*(Z?)", re.IGNORECASE)
_ALLOWED: Final = (
    "a period from 100ms on, as in '4h'; a time of every day, as in '00:32'; a time of a week, as in "
    "'Saturday at 11:00'; with a Z behind it for UTC, else in time_zone or the coordinator's own"
)
_CRON_ALLOWED: Final = (
    "five fields, minute (0-59), hour (0-23), day of month (1-31, L for the last), month (1-12 or JAN-DEC) and day of "
    "week (0-7 or SUN-SAT, 0 and 7 are Sunday; MON#2 is the second Monday, 5L the last Friday), each *, a value, a "
    "range 1-5, a list 1,3,5, or with steps */15, as in '30 20 * * MON-FRI'"
)
_ZONE_ALLOWED: Final = (
    "a name of the IANA database, as in 'Europe/Berlin' or 'UTC', which is the system's package tzdata, or "
    "pip install 'ampsq[timezones]'"
)
#: What every database of time zones has.
_IN_EACH: Final = "Etc/UTC"
_FIELDS: Final = ("minute", "hour", "day of month", "month", "day of week")
#: What a field may be made of; which values there are is cronsim's to say.
_FIELD: Final = re.compile(
    r"(?:(?:\*|[0-9]{1,2}|[A-Za-z]{3})(?:-(?:[0-9]{1,2}|[A-Za-z]{3}))?(?:/[0-9]{1,3})?|(?:[0-9]|[A-Za-z]{3})#[1-5]"
    r"|[0-7]L|LW?)",
    re.IGNORECASE,
)
#: From where it is looked for whether a line ever ticks: cronsim looks fifty years ahead.
_LONG_AGO: Final = datetime(2000, 1, 1, tzinfo=UTC)
_MINUTE: Final = 60_000


@dataclass(frozen=True, slots=True)
class Schedule:
    """A timetable.

    Attributes:
        period: ms between two ticks; 0 for times of the day.
        day: 0 (Monday) to 6, or None for every day.
        seconds: after midnight.
        utc: by UTC, else by the time zone.
        zone: the name of the time zone; None: the local one.
    """

    period: int
    day: int | None = None
    seconds: int = 0
    utc: bool = False
    zone: str | None = None

    def latest(self, since: int, now: int) -> int | None:
        """The last tick after `since` and up to `now`, ms; None when there is none. Those before it are missed."""
        if self.period:
            ticks = (now - since) // self.period
            return since + ticks * self.period if ticks > 0 else None
        tick = self._last_up_to(now)
        return tick if tick > since else None

    def _last_up_to(self, now: int) -> int:
        zone: tzinfo | None = UTC if self.utc else ZoneInfo(self.zone) if self.zone else None
        # Without a zone, astimezone reads a plain time as local, also where the clocks change in between.
        there = datetime.fromtimestamp(now / 1000, UTC).astimezone(zone)
        for back in range(9):
            date = there.date() - timedelta(days=back)
            if self.day is not None and date.weekday() != self.day:
                continue
            at = datetime.combine(date, datetime.min.time()) + timedelta(seconds=self.seconds)
            tick = int((at.replace(tzinfo=zone) if zone else at.astimezone()).timestamp() * 1000)
            if tick <= now:
                return tick
        raise AssertionError(f"no tick of {self} in the week before {now}")


class _Local(tzinfo):
    """The machine's own time zone with its changes of the clocks, which no zone of the standard library has."""

    def utcoffset(self, when: datetime | None) -> timedelta | None:
        return None if when is None else when.replace(tzinfo=None).astimezone().utcoffset()

    def dst(self, when: datetime | None) -> timedelta | None:  # noqa: ARG002
        return None

    def tzname(self, when: datetime | None) -> str | None:  # noqa: ARG002
        return None

    def fromutc(self, when: datetime) -> datetime:
        there = when.replace(tzinfo=UTC).astimezone()
        plain = there.replace(tzinfo=self, fold=0)
        # An hour that comes twice is the second one where the first has another offset.
        return plain if plain.utcoffset() == there.utcoffset() else plain.replace(fold=1)


_LOCAL: Final = _Local()


@dataclass(frozen=True, slots=True)
class CronSchedule:
    """The timetable of a cron line, as Debian's cron reads it.

    Attributes:
        cron: its five fields.
        zone: the name of the time zone; None: the local one.
    """

    cron: str
    zone: str | None = None

    def latest(self, since: int, now: int) -> int | None:
        """The last tick after `since` and up to `now`, ms; None when there is none. Those before it are missed."""
        # Ticks are on whole minutes, and a coordinator looks ten times a second.
        tick = _last_tick(self.cron, self.zone, now // _MINUTE)
        return tick if tick is not None and tick > since else None


@functools.lru_cache(maxsize=1024)
def _last_tick(cron: str, zone: str | None, minute: int) -> int | None:
    """The last tick up to the beginning of a minute since 1970, ms."""
    zone_info = ZoneInfo(zone) if zone else _LOCAL
    now = minute * 60
    # What is a bit later than a tick has that tick behind it.
    start = datetime.fromtimestamp(now, UTC) + timedelta(microseconds=1)
    last = next((tick for tick in _seconds(cron, start.astimezone(zone_info), reverse=True) if tick <= now), None)
    if last is None:
        return None
    # Backwards is quick, but leaves out ticks of days on which the clocks change.
    missed = _seconds(cron, datetime.fromtimestamp(last, UTC).astimezone(zone_info))
    return max([last, *takewhile(lambda tick: tick <= now, missed)]) * 1000


def _seconds(cron: str, start: datetime, *, reverse: bool = False) -> Iterator[int]:
    return (int(tick.timestamp()) for tick in _simulated(cron, start, reverse=reverse))


def _simulated(cron: str, start: datetime, *, reverse: bool = False) -> CronSim:
    # Late, since few schedules are cron lines.
    from cronsim import CronSim  # noqa: PLC0415

    return CronSim(cron, start, reverse=reverse)


def parse_cron(text: object, zone: str | None = None) -> CronSchedule:
    """Read a cron line as an action has it.

    Args:
        text: five fields.
        zone: a time zone that `parse_time_zone` read; None: the local one.

    Raises:
        DefinitionError: it is none, or never ticks; the text says which field is wrong and what is allowed.
    """
    if not isinstance(text, str):
        raise DefinitionError(f"{shown(text)} is no text; allowed: {_CRON_ALLOWED}")
    fields = text.split()
    if len(fields) != len(_FIELDS):
        raise DefinitionError(f"{shown(text)} has {len(fields)} fields; allowed: {_CRON_ALLOWED}")
    for number, field in enumerate(fields):
        alone = [field if other == number else "*" for other in range(len(_FIELDS))]
        if not all(map(_FIELD.fullmatch, field.split(","))) or not _ticks(" ".join(alone)):
            raise DefinitionError(f"{shown(text)}: {_FIELDS[number]}: {shown(field)} is none; allowed: {_CRON_ALLOWED}")
    line = " ".join(fields)
    if not _ticks(line):
        raise DefinitionError(f"{shown(text)} never comes: there is no such day; allowed: {_CRON_ALLOWED}")
    return CronSchedule(line, zone)


def _ticks(line: str) -> bool:
    """Return whether a line can be read and ever ticks."""
    from cronsim import CronSimError  # noqa: PLC0415

    try:
        return next(_simulated(line, _LONG_AGO), None) is not None
    except CronSimError:
        return False


def _knows_zones() -> bool:
    try:
        ZoneInfo(_IN_EACH)
    except (OSError, ValueError, LookupError):
        return False
    return True


def parse_time_zone(value: object) -> str:
    """Read the name of a time zone.

    Raises:
        DefinitionError: there is none of that name; the text says what is allowed.
    """
    try:
        if isinstance(value, str) and value:
            ZoneInfo(value)
            return value
    except (OSError, ValueError, LookupError):
        if not _knows_zones():
            raise DefinitionError(
                f"{shown(value)}: this machine has no database of time zones, nor has its Python; install the system's "
                "package tzdata, or pip install 'ampsq[timezones]'"
            ) from None
    raise DefinitionError(f"{shown(value)} is no time zone; allowed: {_ZONE_ALLOWED}")


def parse_schedule(text: object, zone: str | None = None) -> Schedule:
    """Read a timetable as an action has it.

    Args:
        text: a period, or a time of the day or the week.
        zone: a time zone that `parse_time_zone` read, for times; None: the local one.

    Raises:
        DefinitionError: it is none; the text says what is allowed.
    """
    if isinstance(text, str) and (found := _TIME.fullmatch(text.strip())):
        name, hour, minute, second, utc = found.groups()
        day = _day(name)
        if int(hour) < 24 and int(minute) < 60 and int(second or 0) < 60 and day is not False:  # noqa: PLR2004
            return Schedule(0, day, (int(hour) * 60 + int(minute)) * 60 + int(second or 0), bool(utc), zone)
    else:
        try:
            period = Interval.parse(text)
        except DefinitionError:
            period = Interval(0)
        if period >= MIN_PERIOD:
            return Schedule(int(period))
    raise DefinitionError(f"{shown(text)} is no timetable; allowed: {_ALLOWED}")


def _day(name: str | None) -> int | bool | None:
    """The number of a weekday; None when none is named, False when the word is none."""
    if name is None:
        return None
    lower = name.lower()
    return _DAYS.index(lower) if lower in _DAYS else False
