"""When a scheduled action is due: every so often, daily or weekly; pure arithmetic on milliseconds since 1970."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from ampsq.base.errors import DefinitionError
from ampsq.base.values import Interval, shown

__all__ = ["MIN_PERIOD", "Schedule", "parse_schedule"]

#: The shortest period: a coordinator looks ten times a second.
MIN_PERIOD: Final = Interval(100)

_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_TIME = re.compile(r"(?:([A-Za-z]+)\s+at\s+)?([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?\s*(Z?)", re.IGNORECASE)
_ALLOWED: Final = (
    "a period from 100ms on, as in '4h'; a time of every day, as in '00:32'; a time of a week, as in "
    "'Saturday at 11:00'; with a Z behind it for UTC, else in the coordinator's own time zone"
)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A timetable.

    Attributes:
        period: ms between two ticks; 0 for times of the day.
        day: 0 (Monday) to 6, or None for every day.
        seconds: after midnight.
        utc: by UTC, else by the local time zone.
    """

    period: int
    day: int | None = None
    seconds: int = 0
    utc: bool = False

    def latest(self, since: int, now: int) -> int | None:
        """The last tick after `since` and up to `now`, ms; None when there is none. Those before it are missed."""
        if self.period:
            ticks = (now - since) // self.period
            return since + ticks * self.period if ticks > 0 else None
        tick = self._last_up_to(now)
        return tick if tick > since else None

    def _last_up_to(self, now: int) -> int:
        zone: tzinfo | None = UTC if self.utc else None
        # Without a zone, astimezone reads a plain time as local, also where the clocks change in between.
        there = datetime.fromtimestamp(now / 1000, UTC).astimezone(zone)
        for back in range(9):
            date = there.date() - timedelta(days=back)
            if self.day is not None and date.weekday() != self.day:
                continue
            at = datetime.combine(date, datetime.min.time()) + timedelta(seconds=self.seconds)
            tick = int((at.replace(tzinfo=UTC) if self.utc else at.astimezone()).timestamp() * 1000)
            if tick <= now:
                return tick
        raise AssertionError(f"no tick of {self} in the week before {now}")


def parse_schedule(text: object) -> Schedule:
    """Read a timetable as an action has it.

    Raises:
        DefinitionError: it is none; the text says what is allowed.
    """
    if isinstance(text, str) and (found := _TIME.fullmatch(text.strip())):
        name, hour, minute, second, zone = found.groups()
        day = _day(name)
        if int(hour) < 24 and int(minute) < 60 and int(second or 0) < 60 and day is not False:  # noqa: PLR2004
            return Schedule(0, day, (int(hour) * 60 + int(minute)) * 60 + int(second or 0), bool(zone))
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
