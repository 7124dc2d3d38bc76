"""Arithmetic of reading with Spark: shares, parts, places and offsets; no session and no server."""

from __future__ import annotations

import json

import pytest

from ampsq.base.errors import BookmarkNotFound, DefinitionError
from ampsq.base.log_positions import next_id
from ampsq.base.message_types import JSON
from ampsq.protocol.calls.readers import Lag
from ampsq.spark.logs import InstanceLog
from ampsq.spark.options import Options
from ampsq.spark.planning import check_start, numbers_of_parts, place_of, shares
from ampsq.spark.read_options import ReadOptions
from ampsq.spark.read_positions import InstanceOffset, offsets_as_json, offsets_of, parse_place
from ampsq.spark.stores import SparkInstance

LOG = InstanceLog(SparkInstance("redis://here", "nyc-1"), "nyc-1.abc", "orders", JSON)
LAG = Lag(10, (500, 3), (1, 0), 100)


@pytest.mark.parametrize(
    ("counts", "limit", "given"),
    [
        ([10, 20], 30, [10, 20]),
        ([900, 100], 100, [90, 10]),
        ([1_000_000, 1], 100, [99, 1]),
        ([1_000_000, 1, 1, 1], 4, [1, 1, 1, 1]),
        ([5, 5, 5], 2, [1, 1, 0]),
        ([10, 10, 10], 10, [4, 3, 3]),
        ([1, 1, 1, 97], 50, [1, 1, 1, 47]),
    ],
)
def test_a_limit_is_shared_in_proportion_with_one_for_each_first(counts, limit, given):
    assert shares(counts, limit) == given


@pytest.mark.parametrize("limit", range(1, 60))
def test_shares_are_the_limit_together_and_no_more_than_there_is(limit):
    counts = [7, 1, 30, 12, 3]
    given = shares(counts, limit)
    assert sum(given) == min(limit, sum(counts))
    assert all(0 <= share <= count for share, count in zip(given, counts, strict=True))


@pytest.mark.parametrize(
    ("counts", "most", "least", "numbers"),
    [
        ([1_000], 300, 1, [4]),
        ([1_000, 10], 1_000, 1, [1, 1]),
        ([1_000, 10], 1_000, 8, [8, 1]),
        ([3], 1_000, 8, [3]),
        ([0], 1_000, 8, [1]),
        ([], 1_000, 8, []),
        ([100, 300], 1_000, 4, [1, 3]),
    ],
)
def test_ranges_are_cut_by_rows_and_into_so_many_parts_at_least(counts, most, least, numbers):
    assert numbers_of_parts(counts, most, least) == numbers


@pytest.mark.parametrize(
    ("which", "bookmark", "timestamp", "place"),
    [
        ("starting", "earliest", "", (0, 0)),
        ("starting", "EPOCH", "", (0, 0)),
        ("starting", "latest", "", (500, 3)),
        ("starting", "orders~nyc-1.abc~77-5", "", (77, 5)),
        ("ending", "orders~nyc-1.abc~77-5", "", (77, 5)),
        # Of a topic that comes later in the order of all topics nothing at that ID is before it
        ("starting", "apples~nyc-1.abc~77-5", "", (77, 4)),
        ("starting", "zebras~nyc-1.abc~77-5", "", (77, 5)),
        ("starting", "", "77", (76, 2**64 - 1)),
        ("ending", "", "1970-01-01T01:00:00.077+01:00", (76, 2**64 - 1)),
        ("ending", "", "2100-01-01T00:00:00Z", (500, 3)),
        ("starting", '{"nyc-1": {"orders": "9-1"}}', "", (9, 1)),
        ("starting", '{"nyc-1": {"other": "9-1"}}', "", (0, 0)),
    ],
)
def test_a_place_is_the_last_id_before_it(which, bookmark, timestamp, place):
    assert place_of(parse_place(which, bookmark, timestamp), LOG, LAG, is_start=which == "starting") == place


@pytest.mark.parametrize("bookmark", ["apples~nyc-1.abc~900-5", "zebras~nyc-1.abc~900-5"])
def test_a_bookmark_of_another_topic_is_no_further_than_a_log_goes(bookmark):
    assert place_of(parse_place("starting", bookmark, ""), LOG, LAG, is_start=True) == LAG.last


def test_a_time_that_is_still_to_come_is_no_loss():
    options = ReadOptions(url="redis://here", topic="orders")
    place = parse_place("starting", "", "2100-01-01T00:00:00Z")
    after = place_of(place, LOG, LAG, is_start=True)
    assert after > LAG.last

    # Nor is it where it is a stream's offset by then
    offset = {"nyc-1": InstanceOffset("nyc-1.abc", {"orders": after})}
    assert check_start(options, LOG, after, LAG, place) == after
    assert check_start(options, LOG, after, LAG, offset) == after
    with pytest.raises(BookmarkNotFound, match="goes up to 500-3, before 500-4"):
        check_start(options, LOG, (500, 4), LAG, offset)


def test_what_is_shown_of_options_has_no_address():
    assert "hunter2" not in repr(ReadOptions(url="redis://me:hunter2@here", topic="orders"))


@pytest.mark.parametrize(
    ("bookmark", "timestamp", "text"),
    [
        ("most_recent", "", "'most_recent' is no place; allowed: earliest"),
        ("[epoch:now)", "", "is no place"),
        ("", "tomorrow", "'tomorrow' is no time; allowed: a time with its zone"),
        ("", "2026-01-01", "has no time zone"),
        ("{", "", "is no JSON"),
        ('{"nyc-1": "5-0"}', "", "an instance's topics are missing"),
        ('{"nyc-1": {"orders": "5"}}', "", "'5' is no ID of an entry"),
        ('{"nyc-1": {"topics": {"orders": "5-0"}, "cuts": ["5-0"]}}', "", "cuts and begins are not topics with IDs"),
    ],
)
def test_what_is_no_place_is_told_with_what_is_allowed(bookmark, timestamp, text):
    with pytest.raises(DefinitionError) as caught:
        parse_place("starting", bookmark, timestamp)
    assert text in str(caught.value)


def test_an_offset_is_read_as_it_was_written():
    offset = {
        "a": InstanceOffset("a.x", {"t": (5, 6), "s": (1, 2)}, {"t": ((3, 0), (4, 0))}, {"s": (0, 5)}),
        "b": InstanceOffset("b.x", {}, {}),
    }
    assert offsets_of(json.loads(json.dumps(offsets_as_json(offset)))) == offset


def test_the_next_id_has_no_higher_sequence_than_there_can_be():
    assert next_id((5, 6)) == (5, 7)
    assert next_id((5, 2**64 - 1)) == (6, 0)


@pytest.mark.parametrize(
    ("instance", "url"),
    [("a,b,c", "redis://1 redis://2 redis://3"), ("c, a, b", "redis://3 redis://1 redis://2")],
)
def test_instances_are_in_the_order_of_their_names_each_with_its_address(instance, url):
    assert Options.of({"instance": instance, "url": url}).addresses == (
        SparkInstance("redis://1", "a"),
        SparkInstance("redis://2", "b"),
        SparkInstance("redis://3", "c"),
    )
