"""The commands that look and choose: sow, views, ack by filter, subscribe with a filter."""

from __future__ import annotations

import json

import pytest

from ampsq.files.config import load

ORDERS = [
    {"id": 1, "price": 5, "symbol": "IBM"},
    {"id": 2, "price": 20, "symbol": "IBM"},
    {"id": 3, "price": 30, "symbol": "AAPL"},
]
FILE = """
queues:
  - name: work
    underlying_topic: orders
    max_per_subscription_backlog: 10
views:
  - name: totals
    underlying_topic: work
    projection: [/symbol, SUM(/price) AS /value]
    grouping: [/symbol]
"""


@pytest.fixture
def orders(run):
    with run.client() as client:
        client.apply(*load(FILE))
        client.publish_many("orders", ORDERS)
    return run


def ids(done):
    return [json.loads(line)["data"]["id"] for line in done.out.splitlines()]


def test_sow_shows_what_is_available_filtered_ordered_and_paged(orders):
    assert ids(orders("sow", "work", "--json")) == [1, 2, 3]
    assert ids(orders("sow", "work", "--json", "--filter", "/price > 10")) == [2, 3]
    assert ids(orders("sow", "work", "--json", "--order-by", "/price DESC", "--top", "1", "--skip", "1")) == [2]
    assert orders("sow", "work", "--count").out == "3\n"
    lines = orders("sow", "work", "--filter", "/id = 3").out.splitlines()
    assert len(lines) == 1
    assert lines[0].endswith('{"id":3,"price":30,"symbol":"AAPL"}')
    assert "nothing is available that matches" in orders("sow", "work", "--filter", "/id = 9").err


def test_sow_of_a_view_shows_its_rows(orders):
    rows = [json.loads(line)["data"] for line in orders("sow", "totals", "--json").out.splitlines()]
    assert rows == [{"symbol": "AAPL", "value": 30}, {"symbol": "IBM", "value": 25}]


def test_views_are_listed_and_shown(orders):
    assert "totals  work" in orders("views").out
    assert "SUM(/price) AS /value" in orders("views", "totals").out
    assert json.loads(orders("views", "--json").out)["grouping"] == ["/symbol"]
    assert "did you mean 'totals'" in orders("views", "total", code=1).err


def test_ack_by_filter_counts_first_and_then_settles(orders):
    assert orders("ack", "work", "--filter", "/symbol = 'IBM'", "--dry-run").out == "2 would be acknowledged\n"
    assert ids(orders("sow", "work", "--json")) == [1, 2, 3]
    assert json.loads(orders("ack", "work", "--filter", "/symbol = 'IBM'", "--expire", "--yes", "--json").out) == {
        "expired": 2
    }
    assert ids(orders("sow", "work", "--json")) == [3]


def test_subscribe_prints_what_the_filter_matches(orders):
    done = orders("subscribe", "work", "--filter", "/price >= 20", "--json", "--timeout", "0.3", "--max-backlog", "5")
    assert ids(done) == [2, 3]


def test_a_backlog_that_is_cut_is_told_with_its_cause(orders):
    done = orders("subscribe", "work", "--count", "1", "--max-backlog", "50")
    cause = "max_per_subscription_backlog of queue 'work'"
    assert done.err == f"WARNING: max_backlog 50 is cut to 10 by {cause}\n"


def test_a_view_s_rows_are_subscribed_to_by_its_name(orders):
    lines = orders("subscribe-topic", "totals", "--bookmark", "epoch", "--count", "2").out.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("totals~") and '"symbol"' in line for line in lines)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("sow", "work", "--filter", "/price >"), 1, "column 9"),
        (("sow", "work", "--skip", "1"), 2, "--skip needs --top"),
        (("sow", "work", "--order-by", "/price desc, /id"), 1, "one expression each: give --order-by again"),
        (("sow", "work", "--order-by", "/price DOWN"), 1, "'DOWN' is no direction; allowed behind an expression: ASC"),
        (("sow", "nowhere"), 1, "'nowhere' is neither a queue nor a view; there are 'totals', 'work'"),
        (("sow", "orders"), 1, "'orders' is a topic; its queues are 'work'"),
        (("subscribe", "wrok"), 1, "'wrok' is neither a queue nor a topic; did you mean 'work'?"),
        (("subscribe", "/price > 10"), 1, "this looks like a filter: write filter='/price > 10'"),
        (("explain", "totals"), 1, "'totals' is a view"),
        (("ack", "orders", "--filter", "/a = 1"), 1, "'orders' is a topic"),
        (("subscribe", "work", "--filter", "UNIX_TIMESTAMP() > 1"), 1, "UNIX_TIMESTAMP"),
        (("ack", "work"), 2, "give bookmarks, or --filter"),
        (("ack", "work", "--filter", "/a = 1", "x"), 2, "give bookmarks or --filter, not both"),
        (("ack", "work", "--dry-run", "x"), 2, "--dry-run goes with --filter"),
    ],
)
def test_what_is_wrong_is_said(orders, arguments, code, text):
    assert text in orders(*arguments, code=code).err
