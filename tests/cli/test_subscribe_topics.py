"""`ampsq subscribe-topic`: from a bookmark, ranges, rates, durable ones."""

from __future__ import annotations

import time


def data(result):
    return [line["data"] for line in result.json]


def test_a_topic_is_read_from_a_bookmark_on(defined):
    marks = defined.publish(1, 2, 3)
    got = defined("subscribe-topic", "orders", "--bookmark", "epoch", "--json", "--timeout", "0.3")
    assert data(got) == [1, 2, 3]
    assert set(got.json[0]) == {"bookmark", "topic", "data", "headers", "timestamp"}
    assert data(defined("subscribe-topic", "orders", "--bookmark", marks[0], "--json", "--count", "2")) == [2, 3]
    # Of a queue its topics, and nothing is taken
    assert data(defined("subscribe-topic", "work", "--bookmark", f"[{marks[1]}:now]", "--json")) == [2, 3]
    assert data(defined("subscribe", "work", "--json", "--timeout", "0.3")) == [1, 2, 3]


def test_a_range_ends_the_command_and_people_read_lines(defined):
    marks = defined.publish({"id": 1}, 2)
    got = defined("subscribe-topic", "orders", "--bookmark", "[epoch:now]")
    assert got.out.splitlines() == [f'{marks[0]}  {{"id":1}}', f"{marks[1]}  2"]
    several = ("--bookmark", f"[{marks[1]}:now]", "--bookmark", f"[epoch:{marks[0]}]")
    assert data(defined("subscribe-topic", "orders", *several, "--json")) == [{"id": 1}, 2]


def test_a_durable_subscription_goes_on_where_it_was(defined):
    defined.publish(1, 2, 3)
    for where in ((), ("--store", "places")):
        assert data(defined("subscribe-topic", "orders", "--sub-id", "audit", *where, "--json", "--count", "2")) == [
            1,
            2,
        ]
        rest = ("--json", "--timeout", "0.3")
        # Looked at only
        assert data(defined("subscribe-topic", "orders", "--sub-id", "audit", *where, *rest, "--no-ack")) == [3]
        assert data(defined("subscribe-topic", "orders", "--sub-id", "audit", *where, *rest)) == [3]
        assert defined("subscribe-topic", "orders", "--sub-id", "audit", *where, *rest).out == ""


def test_a_rate_and_a_live_topic(defined):
    defined.publish(*range(5))
    started = time.monotonic()
    assert len(data(defined("subscribe-topic", "orders", "--bookmark", "[0:now]", "--rate", "10", "--json"))) == 5
    assert time.monotonic() - started > 0.4


def test_what_is_wrong_is_said(defined):
    def refused(*arguments, code=1):
        return defined("subscribe-topic", *arguments, code=code).err

    assert "no place in a log" in refused("orders", "--bookmark", "x")
    assert "is no rate" in refused("orders", "--rate", "x")
    assert "did you mean" in refused("order", "--bookmark", "0")
    assert "--no-ack goes with --sub-id" in refused("orders", "--no-ack", code=2)


def test_of_the_two_commands_the_wrong_one_says_which_is_right(defined):
    # Given a topic, a queue over it, and a conflated topic
    (defined.folder / "more.yaml").write_text(
        "conflated_topics:\n- {name: slow, underlying_topic: orders, interval: 1s, key: /id}\n"
    )
    defined("apply", "--yes", "more.yaml")
    defined.publish({"id": 1})
    assert (
        "'orders' is a topic, not a queue: `ampsq subscribe-topic orders`" in defined("subscribe", "orders", code=1).err
    )
    assert "'slow' is a conflated topic, not a queue" in defined("subscribe", "slow", code=1).err
    assert "'work' is a queue, not a topic: `ampsq subscribe work`" in defined("subscribe-topic", "work", code=1).err
    for option in ("--bookmark=0", "--sub-id=a"):
        err = defined("subscribe", "orders", option, code=2).err
        assert f"{option.partition('=')[0]} is for topics: ampsq subscribe-topic has it" in err
    for option in ("--max-backlog=5", "--cancel", "--expire", "--ack"):
        err = defined("subscribe-topic", "orders", option, code=2).err
        assert f"{option.partition('=')[0]} is for queues: ampsq subscribe has it" in err
    assert "No such option" in defined("subscribe", "work", "--nothing", code=2).err
    # Then the right one does it
    assert defined("subscribe-topic", "slow", "--timeout", "0.1").out == ""
    assert data(defined("subscribe", "work", "--count", "1", "--json")) == [{"id": 1}]
