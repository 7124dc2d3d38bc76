"""Bookmarks, refs, intervals, sizes and counts: what is read, what is refused, and that it reads back."""

from __future__ import annotations

import pickle
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusing import NAMES, refusal

from ampsq.base.values import parse_count, parse_size
from ampsq.definitions.queue import (
    Bookmark,
    Interval,
    parse_ref,
    ref_of,
)

UNSIGNED = st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 200))

TEXT = "orders~nyc-1.t6w1xk~1763640000000-0"

# --- bookmarks -----------------------------------------------------------------------------------------


def test_a_bookmark_is_its_text_and_knows_its_parts():
    bookmark = Bookmark.parse(TEXT)
    assert (bookmark.topic, bookmark.origin, bookmark.id) == ("orders", "nyc-1.t6w1xk", "1763640000000-0")
    assert bookmark == TEXT == str(bookmark) == Bookmark.of("orders", "nyc-1.t6w1xk", "1763640000000-0")
    assert type(str(bookmark)) is str
    assert {bookmark: 1}[TEXT] == 1
    assert repr(bookmark) == f"Bookmark({TEXT!r})"
    assert pickle.loads(pickle.dumps(bookmark)).topic == "orders"  # noqa: S301 - our own bytes


def test_a_bookmark_carries_nothing_but_its_text():
    assert not hasattr(Bookmark(TEXT), "__dict__")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "orders",
        "orders~nyc-1.t6w1xk",
        "orders~nyc-1~1-0",
        "or ders~a.b~1-0",
        "orders~a.b~1",
        "orders~a.b~01-0",
        "orders~a.b~1-0~",
        "orders~a.b~1-0\n",
        "orders~a.b~18446744073709551616-0",
        "orders~a.b~\u0661-0",
        "~a.b~1-0",
        None,
        b"orders~a.b~1-0",
    ],
)
def test_what_is_no_bookmark_is_refused_with_its_form(text):
    assert "is not a bookmark; allowed: <topic>~<origin>~<stream id>, as in 'orders~" in refusal(Bookmark.parse, text)


@given(NAMES, UNSIGNED, UNSIGNED)
def test_every_bookmark_parses_back_to_its_parts(topic, milliseconds, sequence):
    bookmark = Bookmark.parse(Bookmark.of(topic, "nyc-1.t6w1xk", f"{milliseconds}-{sequence}"))
    assert (bookmark.topic, bookmark.origin, bookmark.id) == (
        topic,
        "nyc-1.t6w1xk",
        f"{milliseconds}-{sequence}",
    )


# --- refs ----------------------------------------------------------------------------------------------


def test_a_ref_tells_lengths_by_letters():
    assert ref_of("orders", "1763640000000-12") == "m1763640000000b12/orders"
    assert ref_of("a/b", f"{2**64 - 1}-0") == "t18446744073709551615a0/a/b"


@given(NAMES, UNSIGNED, UNSIGNED)
def test_a_ref_reads_back(topic, milliseconds, sequence):
    assert parse_ref(ref_of(topic, f"{milliseconds}-{sequence}")) == (topic, f"{milliseconds}-{sequence}")


@given(st.lists(st.tuples(UNSIGNED, UNSIGNED, st.one_of(NAMES, st.sampled_from("abc"))), max_size=20))
def test_refs_sort_as_their_ids_do(places):
    places += [(ms, seq + 1 if seq < 2**64 - 1 else 0, topic) for ms, seq, topic in places]
    refs = [ref_of(topic, f"{ms}-{seq}") for ms, seq, topic in sorted(places)]
    assert refs == sorted(refs)


@pytest.mark.parametrize("ref", ["", "orders", "m1a0/orders", "a1b0/orders", "a1a0/", "a1a0", "b01a0/x", "a1a0/x y"])
def test_what_is_no_ref_is_refused(ref):
    assert "is not a ref; allowed: " in refusal(parse_ref, ref)


@pytest.mark.parametrize("stream_id", ["", "1", "1-", "-1", "01-0", "1-0\n", "1-0-0", f"{10**20}-0"])
def test_no_ref_is_made_of_what_is_no_stream_id(stream_id):
    assert "is not a stream ID; allowed: <milliseconds>-<sequence>" in refusal(ref_of, "orders", stream_id)


# --- intervals, sizes, counts --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        ("30s", 30_000),
        ("5m", 300_000),
        ("1d", 86_400_000),
        ("250ms", 250),
        ("1.5h", 5_400_000),
        ("2w", 1_209_600_000),
        ("2000us", 2),
        ("1ns", 1),
        ("1h30m", 5_400_000),
        ("1d 2h 3m 4.005s", 93_784_005),
        ("30", 30_000),
        (" 30 s ", 30_000),
        (0, 0),
        (0.1 + 0.2, 300),
        (0.0001, 1),
        (timedelta(microseconds=1500), 2),
        ("36500d", 3_153_600_000_000),
    ],
)
def test_an_interval_is_whole_milliseconds_rounded_up(value, milliseconds):
    assert Interval.parse(value) == milliseconds


@pytest.mark.parametrize(
    "value",
    [
        "",
        "s",
        "-1s",
        "1 hour",
        "30S",
        "30m1h",
        "1m1m",
        "1h30",
        "1h30x",
        "1e3",
        "\u0663s",
        -1,
        float("nan"),
        float("inf"),
        True,
        None,
        [],
        "36501d",
        timedelta(seconds=-1),
        timedelta.max,
        10**400,
    ],
)
def test_what_is_no_interval_is_refused(value):
    text = refusal(Interval.parse, value)
    assert "is not an interval; allowed: a number of seconds, or numbers with the units ns us ms s m h d w" in text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0ms"), (100, "100ms"), (1_500, "1500ms"), (90_000, "90s"), (3_600_000, "1h"), (604_800_000, "1w")],
)
def test_an_interval_is_written_in_its_largest_whole_unit(milliseconds, text):
    assert Interval(milliseconds).text == text


@given(st.integers(0, 3_153_600_000_000))
def test_an_interval_reads_back(milliseconds):
    assert Interval.parse(Interval(milliseconds).text) == milliseconds


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("10MB", 10 * 2**20),
        ("1kb", 1024),
        ("1.5gb", 3 * 2**29),
        ("2TB", 2**41),
        ("10", 10),
        (10, 10),
        ("0b", 0),
    ],
)
def test_a_size_is_bytes(value, size):
    assert parse_size(value) == size


@pytest.mark.parametrize("value", ["10M", "-1", -1, 1.5, "0.3b", "MB", "", None, True, "9999999TB"])
def test_what_is_no_size_is_refused(value):
    assert "is not a size; allowed: " in refusal(parse_size, value)


@pytest.mark.parametrize(("value", "count"), [("10k", 10_000), ("1.5M", 1_500_000), ("7", 7), (7, 7), (0, 0)])
def test_a_count_is_a_whole_number(value, count):
    assert parse_count(value) == count


@pytest.mark.parametrize("value", ["10m", "1.5", "10kb", -1, 1.0, None, True, "2000M"])
def test_what_is_no_count_is_refused(value):
    assert "is not a count; allowed: " in refusal(parse_count, value)
