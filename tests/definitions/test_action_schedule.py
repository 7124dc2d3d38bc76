"""Timetables of actions: what they mean, and which tick comes next."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import UTC, datetime

import pytest

from ampsq import Action, Do, On
from ampsq.base.errors import DefinitionError
from ampsq.definitions.schedule import Schedule, parse_cron, parse_schedule


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


# --- a time zone of its own


def test_a_daily_time_has_a_time_zone_of_its_own():
    schedule = parse_schedule("08:00", "Asia/Tokyo")
    assert schedule.latest(ms("2026-03-01T12:00"), ms("2026-03-01T22:59")) is None
    assert schedule.latest(ms("2026-03-01T12:00"), ms("2026-03-01T23:00")) == ms("2026-03-01T23:00")


@pytest.mark.parametrize("text", ["02:30", "Sunday at 02:30"])
def test_each_tick_in_a_time_zone_comes_once_also_when_its_clocks_change(text):
    schedule = parse_schedule(text, "America/New_York")
    # On 8 March 2026 the clocks go from two to three there, on 1 November from two to one
    for start in ("2026-03-05T12:00", "2026-10-29T12:00"):
        ticks = list(ticks_of(schedule, start, days=7))
        assert len(ticks) == (1 if "Sunday" in text else 7)


@pytest.mark.parametrize("zone", ["Europe/Atlantis", "", "../etc/passwd", "/etc/localtime", "Europe", 5, "a\0b"])
def test_what_is_no_time_zone_is_refused_with_what_is_allowed(zone):
    with pytest.raises(DefinitionError, match=r"no time zone.*'Europe/Berlin'.*tzdata"):
        On.schedule(cron="0 8 * * *", time_zone=zone)


def test_a_machine_without_time_zones_is_told_what_brings_them():
    # Given a Python that finds neither the system's time zones nor those of the package tzdata
    program = (
        "import sys; sys.modules['tzdata'] = None\n"
        "from ampsq import On\n"
        "On.schedule(cron='0 8 * * *')\n"
        "On.schedule(cron='0 8 * * *', time_zone='Europe/Berlin')"
    )
    environment = {**os.environ, "PYTHONTZPATH": ""}

    # When a schedule names one
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    # Then it is refused with what to install, and one without was not
    assert "'Europe/Berlin': this machine has no database of time zones" in done.stderr
    assert "pip install 'ampsq[timezones]'" in done.stderr
    assert "line 4" in done.stderr


# --- cron


def ticks_of(schedule, start, *, days=1, step=300_000):
    """Yield the ticks of an action that is looked after every five minutes."""
    last = ms(start)
    for now in range(last + step, last + days * 86_400_000 + 1, step):
        tick = schedule.latest(last, now)
        if tick is not None:
            assert last < tick <= now
            last = tick
            yield datetime.fromtimestamp(tick / 1000, UTC).strftime("%dT%H:%M")


@pytest.mark.parametrize(
    ("cron", "start", "days", "ticks"),
    [
        ("30 20 * * *", "2026-03-01T00:00", 2, ["01T20:30", "02T20:30"]),
        ("0,30 8-9 * * *", "2026-03-02T00:00", 1, ["02T08:00", "02T08:30", "02T09:00", "02T09:30"]),
        ("*/20 12 * * *", "2026-03-02T00:00", 1, ["02T12:00", "02T12:20", "02T12:40"]),
        ("5 */12 * * *", "2026-03-02T00:00", 1, ["02T00:05", "02T12:05"]),
        ("10-30/10 3 * * *", "2026-03-02T00:00", 1, ["02T03:10", "02T03:20", "02T03:30"]),
        ("0 7 * * MON-WED", "2026-03-01T00:00", 7, ["02T07:00", "03T07:00", "04T07:00"]),
        ("0 7 * * sun,7,0", "2026-03-01T00:00", 7, ["01T07:00"]),
        ("0 7 3 mar *", "2026-03-01T00:00", 7, ["03T07:00"]),
        # Of day and weekday either will do, where neither begins with a star
        ("0 7 3 * fri", "2026-03-01T00:00", 7, ["03T07:00", "06T07:00"]),
        ("0 0 L * *", "2026-02-27T00:00", 3, ["28T00:00"]),
        ("0 0 * * MON#2", "2026-03-01T00:00", 14, ["09T00:00"]),
        ("  0\t0  1 * * ", "2026-02-28T00:00", 2, ["01T00:00"]),
    ],
)
def test_a_cron_line_ticks_when_it_says(cron, start, days, ticks):
    assert list(ticks_of(parse_cron(cron, "UTC"), start, days=days)) == ticks


def test_of_many_ticks_that_were_missed_the_last_one_is_told():
    schedule = parse_cron("*/5 * * * *", "UTC")
    assert schedule.latest(ms("2020-01-01T00:00"), ms("2026-03-02T10:59")) == ms("2026-03-02T10:55")
    assert schedule.latest(ms("2026-03-02T10:55"), ms("2026-03-02T10:55") + 299_999) is None
    assert schedule.latest(ms("2026-03-02T10:55"), ms("2026-03-02T11:00")) == ms("2026-03-02T11:00")
    rare = parse_cron("0 0 29 2 *", "UTC")
    assert rare.latest(ms("2020-01-01T00:00"), ms("2027-03-02T10:59")) == ms("2024-02-29T00:00")


def test_a_cron_line_is_of_its_time_zone():
    assert list(ticks_of(parse_cron("30 20 * * *", "America/New_York"), "2026-01-05T00:00", days=2)) == [
        "05T01:30", "06T01:30",
    ]  # fmt: skip


@pytest.mark.parametrize("zone", ["Europe/Berlin", None])
@pytest.mark.usefixtures("berlin")
def test_a_cron_line_ticks_once_a_day_also_when_the_clocks_change(zone):
    for cron in ("30 2 * * *", "0 3 * * *", "59 1 * * *", "0 0 * * *"):
        for start in ("2026-03-27T12:00", "2026-10-23T12:00"):
            assert len(list(ticks_of(parse_cron(cron, zone), start, days=4))) == 4, (cron, start)
    # What the clocks leave out comes when they have gone on
    assert list(ticks_of(parse_cron("30 2 * * *", zone), "2026-03-28T12:00", days=1)) == ["29T01:00"]


@pytest.mark.parametrize("zone", ["Europe/Berlin", None])
@pytest.mark.usefixtures("berlin")
def test_what_ticks_every_quarter_does_so_also_in_the_hour_that_comes_twice(zone):
    for start in ("2026-03-28T12:00", "2026-10-24T12:00"):
        assert len(list(ticks_of(parse_cron("*/15 * * * *", zone), start, days=1))) == 96


@pytest.mark.usefixtures("berlin")
def test_a_tick_of_the_first_of_two_equal_hours_is_made_up_for_in_the_second():
    # 02:45 was at 00:45 UTC; at 01:30 UTC it is 02:30 again
    schedule = parse_cron("45 2 * * *", "Europe/Berlin")
    assert schedule.latest(ms("2026-10-25T00:00"), ms("2026-10-25T01:30")) == ms("2026-10-25T00:45")
    assert schedule.latest(ms("2026-10-25T00:45"), ms("2026-10-25T02:00")) is None


def test_no_tick_is_left_out_where_the_clocks_change_by_half_an_hour():
    # 00:59 of 4 October 2026 was at 14:29 UTC; at two the clocks went on by half an hour
    schedule = parse_cron("59 */6 25-31 * SUN", "Australia/Lord_Howe")
    assert schedule.latest(ms("2026-10-01T00:00"), ms("2026-10-03T18:37")) == ms("2026-10-03T14:29")


@pytest.mark.parametrize(
    ("cron", "part"),
    [
        ("60 * * * *", "minute: '60'"),
        ("* 24 * * *", "hour: '24'"),
        ("* * 0 * *", "day of month: '0'"),
        ("* * * 13 *", "month: '13'"),
        ("* * * * 8", "day of week: '8'"),
        ("* * * * funday", "day of week: 'funday'"),
        ("*/0 * * * *", "minute: '*/0'"),
        ("5-1 * * * *", "minute: '5-1'"),
        ("1,,2 * * * *", "minute: '1,,2'"),
        ("* * * * MON#2/3", "day of week: 'MON#2/3'"),
        ("9999999999999999999999 * * * *", "minute"),
        ("0 0 30 2 *", "there is no such day"),
        ("0 0 31 4,6 *", "there is no such day"),
        ("* * * *", "4 fields"),
        ("0 * * * * *", "6 fields"),
        ("", "0 fields"),
        (5, "no text"),
    ],
)
def test_what_is_no_cron_line_is_refused_with_its_field_and_what_is_allowed(cron, part):
    with pytest.raises(DefinitionError) as caught:
        On.schedule(cron=cron)
    assert part in str(caught.value)
    assert "'30 20 * * MON-FRI'" in str(caught.value)


def test_a_schedule_has_one_timetable():
    told = {
        "schedule: every: missing": {},
        "one of both": {"every": "4h", "cron": "* * * * *"},
        "a period is as long everywhere": {"every": "4h", "time_zone": "UTC"},
        "a Z is UTC already": {"every": "08:00Z", "time_zone": "UTC"},
    }
    for text, elements in told.items():
        with pytest.raises(DefinitionError, match=text):
            On.schedule(**elements)


def test_what_is_stored_of_a_schedule_without_cron_is_as_it_was():
    action = Action(name="a", on={"schedule": "4h"}, do=Do.echo(message="m"))
    assert action.to_json() == '{"do":[{"echo":{"message":"m"}}],"name":"a","on":[{"schedule":{"every":"4h"}}]}'
    assert action.on[0].id == "schedule 4h"
    cron = On.schedule(cron="0  8 * * mon", time_zone="Europe/Berlin")
    assert cron.to_elements() == {"schedule": {"cron": "0 8 * * mon", "time_zone": "Europe/Berlin"}}
    assert cron.id == "schedule 0 8 * * mon Europe/Berlin"
    assert Action.from_json(Action(name="a", on=cron, do=Do.echo(message="m")).to_json()).on == (cron,)


@pytest.mark.parametrize("word", ["enable_transfer", "disable_proxied_transfer"])
def test_proxied_transfer_is_no_step_and_the_refusal_names_the_command(word):
    with pytest.raises(DefinitionError, match=f"ampsq replication {word.split('_')[0]}-proxied-transfer"):
        Action(name="hand-over", on=On.schedule(every="1h"), do=[word])
