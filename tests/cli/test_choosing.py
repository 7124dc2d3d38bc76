"""The commands that look and choose: sow, views, ack by filter, subscribe with a filter."""

from __future__ import annotations

import json

import pytest

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
def orders(run, tmp_path):
    path = tmp_path / "choosing.yaml"
    path.write_text(FILE)
    assert run("apply", str(path)).code == 0
    with run.client() as client:
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
    assert json.loads(orders("ack", "work", "--filter", "/symbol = 'IBM'", "--expire", "--json").out) == {"expired": 2}
    assert ids(orders("sow", "work", "--json")) == [3]


def test_subscribe_prints_what_the_filter_matches(orders):
    done = orders("subscribe", "work", "--filter", "/price >= 20", "--json", "--timeout", "0.3", "--max-backlog", "5")
    assert ids(done) == [2, 3]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("sow", "work", "--filter", "/price >"), 1, "column 9"),
        (("sow", "work", "--skip", "1"), 1, "skip_n=1 needs top_n"),
        (("sow", "nowhere"), 1, "nowhere"),
        (("subscribe", "work", "--filter", "UNIX_TIMESTAMP() > 1"), 1, "UNIX_TIMESTAMP"),
        (("ack", "work"), 2, "give bookmarks, or --filter"),
        (("ack", "work", "--filter", "/a = 1", "x"), 2, "give bookmarks, or --filter"),
        (("ack", "work", "--dry-run", "x"), 2, "--dry-run goes with --filter"),
    ],
)
def test_what_is_wrong_is_said(orders, arguments, code, text):
    assert text in orders(*arguments, code=code).err
