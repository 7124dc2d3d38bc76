"""Lengths of time, sizes and moments as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ampsq.base.formatting import (
    count_text,
    fact_text,
    interval_text,
    printable,
    printable_line,
    size_text,
    span_text,
    time_text,
)
from ampsq.base.values import Interval, shown
from ampsq.cli.formatting import element_text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0s"), (1, "1ms"), (999, "999ms"), (1_000, "1s"), (1_500, "1.5s"), (59_999, "59.999s"), (90_000, "1m30s"),
        (5_400_000, "1h30m"), (604_800_000, "7d"), (93_784_005, "1d2h3m4.005s"), (86_400_001, "1d0.001s"),
    ],
)  # fmt: skip
def test_an_interval_is_written_in_full(milliseconds, text):
    assert interval_text(milliseconds) == text


@given(some.integers(0, 36_500 * 86_400_000))
def test_an_interval_as_it_is_written_is_read_back(milliseconds):
    assert Interval.parse(interval_text(milliseconds)) == milliseconds


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0s"), (20, "20ms"), (1_049, "1s"), (59_240, "59.2s"), (59_960, "1m"), (312_499, "5m12s"),
        (3_899_000, "1h5m"), (93_784_005, "1d2h"), (86_399_999, "1d"),
    ],
)  # fmt: skip
def test_a_span_is_written_to_what_is_worth_telling(milliseconds, text):
    assert span_text(milliseconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0B"), (312, "312B"), (1_024, "1KB"), (12_600, "12.3KB"), (10 * 2**20, "10MB"), (3 * 2**40, "3TB")],
)
def test_a_size_is_written_in_the_largest_unit_that_fits(number, text):
    assert size_text(number) == text


def test_a_moment_is_iso_8601_by_utc():
    assert time_text(1_763_640_000_001) == "2025-11-20T12:00:00.001Z"


def test_one_is_no_plural():
    assert [count_text(number, "message") for number in (0, 1, 2_000)] == ["0 messages", "1 message", "2,000 messages"]


@pytest.mark.parametrize(
    ("element", "value", "text"),
    [
        ("lease_period", "90s", "1m30s"), ("retention_age", "1w", "7d"), ("expiry_delay", -1, "-1"),
        ("retention_size", 10 * 2**20, "10MB"), ("retention_size", 10_000_000, "10000000B"), ("filter", None, "none"),
        ("record_deliveries", True, "true"), ("max_cancels", 3, "3"), ("name", "90s", "90s"),
    ],
)  # fmt: skip
def test_an_element_is_written_as_a_file_would_have_it(element, value, text):
    assert element_text(element, value) == text


def test_a_fact_with_a_unit_is_written_with_it_and_others_stay():
    assert fact_text("expiration", 3_600_000) == "1h"
    assert fact_text("bytes", 2_048) == "2KB"
    assert fact_text("due", 1_763_640_000_000) == "2025-11-20T12:00:00.000Z"
    assert fact_text("group_paused", 1_763_640_000_000) == "2025-11-20T12:00:00.000Z"
    assert fact_text("group_bound_until", 1_763_640_000_000) == "2025-11-20T12:00:00.000Z"
    assert fact_text("group_rate_wait", 250) == "250ms"
    assert fact_text("picked_up", True) is True
    assert fact_text("deliveries", 3_600_000) == 3_600_000


def test_an_error_shows_values_as_people_write_them():
    assert (shown(None), shown(Interval(5_400_000)), shown("x")) == ("nothing", "1h30m", "'x'")


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("\x1b[31mred\x1b[0m", "\\u001b[31mred\\u001b[0m"), ("\x9b31m\x7f", "\\u009b31m\\u007f"),
        ("\u202egnp.exe", "\\u202egnp.exe"), ("\ud800 alone", "\\ud800 alone"), ("one\u2028two", "one\\u2028two"),
        ("one\n\ttwo", "one\n\ttwo"), ("Zürich 東京 👩\u200d💻 a\xa0b", "Zürich 東京 👩\u200d💻 a\xa0b"),
    ],
)  # fmt: skip
def test_what_acts_on_who_looks_is_shown_as_an_escape_and_all_else_as_it_is(text, seen):
    assert printable(text) == seen
    # What it says can be written, too
    assert printable(text).encode()


def test_a_line_stays_one():
    assert printable_line("one\n\ttwo\x1b é") == "one\\u000a\\u0009two\\u001b é"
