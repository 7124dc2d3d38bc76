"""Timetables of actions: what they mean, and which tick comes next."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from ampsq.base.errors import DefinitionError
from ampsq.definitions.schedule import Schedule, parse_schedule


def ms(text):
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.fixture
def berlin(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        ("4h", Schedule(14_400_000)),
        (5, Schedule(5_000)),
        ("100ms", Schedule(100)),
        ("00:32", Schedule(0, None, 1_920)),
        ("00:32Z", Schedule(0, None, 1_920, utc=True)),
        ("Saturday at 11:00", Schedule(0, 5, 39_600)),
        ("monday at 23:59:59 Z", Schedule(0, 0, 86_399, utc=True)),
    ],
)
def test_periods_days_and_weeks_are_read(text, schedule):
    assert parse_schedule(text) == schedule


@pytest.mark.parametrize(
    "text", ["", "24:00", "1:60", "Caturday at 11:00", "at 11:00", "99ms", "0s", None, "soon", "-1h"]
)
def test_what_is_no_timetable_is_refused_with_what_is_allowed(text):
    with pytest.raises(DefinitionError, match="'Saturday at 11:00'"):
        parse_schedule(text)


def test_a_period_ticks_from_where_it_began_and_tells_the_last_of_those_missed():
    schedule = parse_schedule("10s")
    assert schedule.latest(1_000, 10_999) is None
    assert schedule.latest(1_000, 11_000) == 11_000
    assert schedule.latest(1_000, 45_678) == 41_000


def test_a_daily_time_ticks_once_a_day():
    schedule = parse_schedule("11:00Z")
    assert schedule.latest(ms("2026-03-01T11:00"), ms("2026-03-02T10:59")) is None
    assert schedule.latest(ms("2026-03-01T11:00"), ms("2026-03-02T11:00")) == ms("2026-03-02T11:00")
    assert schedule.latest(ms("2026-03-01T12:00"), ms("2026-03-05T10:00")) == ms("2026-03-04T11:00")
    # What lies before the definition does not count
    assert schedule.latest(ms("2026-03-01T12:00"), ms("2026-03-01T13:00")) is None


def test_a_weekly_time_ticks_once_a_week():
    schedule = parse_schedule("Saturday at 11:00 Z")
    assert schedule.latest(ms("2026-03-01T00:00"), ms("2026-03-07T10:59")) is None
    assert schedule.latest(ms("2026-03-01T00:00"), ms("2026-03-07T11:00")) == ms("2026-03-07T11:00")
    assert schedule.latest(ms("2026-03-07T11:00"), ms("2026-03-14T10:59")) is None


@pytest.mark.usefixtures("berlin")
def test_a_local_time_follows_the_clocks():
    schedule = parse_schedule("08:00")
    # On 29 March 2026 the clocks go from two to three
    assert schedule.latest(ms("2026-03-28T07:00"), ms("2026-03-29T05:59")) is None
    assert schedule.latest(ms("2026-03-28T07:00"), ms("2026-03-29T06:00")) == ms("2026-03-29T06:00")


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize("text", ["02:30", "00:00", "Sunday at 02:30"])
def test_each_local_tick_comes_once_also_when_the_clocks_change(text):
    schedule = parse_schedule(text)
    for start in ("2026-03-25T12:00", "2026-10-20T12:00"):
        last, ticks = ms(start), 0
        for now in range(ms(start), ms(start) + 8 * 86_400_000, 600_000):
            tick = schedule.latest(last, now)
            if tick is not None:
                assert last < tick <= now
                last, ticks = tick, ticks + 1
        assert ticks == (1 if "Sunday" in text else 8)
