"""`ampsq subscribe` of topics: from a bookmark, ranges, rates, durable ones."""

from __future__ import annotations

import time


def data(result):
    return [line["data"] for line in result.json]


def test_a_topic_is_read_from_a_bookmark_on(defined):
    marks = defined.publish(1, 2, 3)
    got = defined("subscribe", "orders", "--bookmark", "epoch", "--json", "--timeout", "0.3")
    assert data(got) == [1, 2, 3]
    assert set(got.json[0]) == {"bookmark", "topic", "data", "headers", "timestamp"}
    assert data(defined("subscribe", "orders", "--bookmark", marks[0], "--json", "--count", "2")) == [2, 3]
    # Of a queue its topics, and nothing is taken
    assert data(defined("subscribe", "work", "--bookmark", f"[{marks[1]}:now]", "--json")) == [2, 3]
    assert data(defined("subscribe", "work", "--json", "--timeout", "0.3")) == [1, 2, 3]


def test_a_range_ends_the_command_and_people_read_lines(defined):
    marks = defined.publish({"id": 1}, 2)
    got = defined("subscribe", "orders", "--bookmark", "[epoch:now]")
    assert got.out.splitlines() == [f'{marks[0]}  {{"id":1}}', f"{marks[1]}  2"]
    several = ("--bookmark", f"[{marks[1]}:now]", "--bookmark", f"[epoch:{marks[0]}]")
    assert data(defined("subscribe", "orders", *several, "--json")) == [{"id": 1}, 2]


def test_a_durable_subscription_goes_on_where_it_was(defined):
    defined.publish(1, 2, 3)
    for where in ((), ("--store", "places")):
        assert data(defined("subscribe", "orders", "--sub-id", "audit", *where, "--json", "--count", "2")) == [1, 2]
        rest = ("--json", "--timeout", "0.3")
        # Looked at only
        assert data(defined("subscribe", "orders", "--sub-id", "audit", *where, *rest, "--no-ack")) == [3]
        assert data(defined("subscribe", "orders", "--sub-id", "audit", *where, *rest)) == [3]
        assert defined("subscribe", "orders", "--sub-id", "audit", *where, *rest).out == ""


def test_a_rate_and_a_live_topic(defined):
    defined.publish(*range(5))
    started = time.monotonic()
    assert len(data(defined("subscribe", "orders", "--bookmark", "[0:now]", "--rate", "10", "--json"))) == 5
    assert time.monotonic() - started > 0.4


def test_what_is_wrong_is_said(defined):
    assert "no place in a log" in defined("subscribe", "orders", "--bookmark", "x", code=1).err
    assert "topics are only read" in defined("subscribe", "orders", "--bookmark", "0", "--cancel", code=2).err
    for asked in (("work", "--bookmark", "epoch"), ("orders", "--bookmark", "now")):
        assert "--no-ack is for messages of queues" in defined("subscribe", *asked, "--no-ack", code=2).err
    for verb in ("--cancel", "--expire"):
        assert "topics are only read" in defined("subscribe", "orders", verb, "--timeout", "0.1", code=2).err
    assert "--no-ack) are of queues" in defined("subscribe", "orders", "--no-ack", code=1).err
    assert "is no rate" in defined("subscribe", "orders", "--rate", "x", code=1).err
    assert "of queues" in defined("subscribe", "orders", "--bookmark", "0", "--max-backlog", "5", code=1).err
    assert "did you mean" in defined("subscribe", "order", "--bookmark", "0", code=1).err
