"""`ampsq tail`: what comes into a queue or a topic, live; nothing is taken."""

from __future__ import annotations

import itertools
import json
import os
import pty
import re
import select
import signal

import pytest
from cases import first_ones

from ampsq import Queue, View

LINE = re.compile(r"\d\d:\d\d:\d\d\.\d{3}  (?:(\S+)  )?(\S+~\S+~\d+-\d+)  (.*)")


def data(result):
    return [line["data"] for line in result.json]


def test_a_queue_is_shown_as_its_filter_and_the_one_that_is_asked_for_let_in(defined):
    # given
    with defined.client() as client:
        client.apply(Queue(name="large", underlying_topic="orders", filter="/qty > 1 OR /qty = 0"))
    defined.publish({"qty": 1}, {"qty": 2, "id": 1}, {"qty": 3, "id": 2})
    # when
    whole = defined("tail", "large", "--bookmark", "epoch", "--timeout", "0.3")
    some = defined("tail", "large", "--bookmark", "epoch", "--timeout", "0.3", "--filter", "/id = 2", "--json")
    # then: nothing is taken, and nothing of another topic's name is left out
    found = [LINE.fullmatch(line).groups() for line in whole.out.splitlines()]
    assert [(topic, body) for topic, _, body in found] == [
        ("orders", '{"qty":2,"id":1}'),
        ("orders", '{"qty":3,"id":2}'),
    ]
    assert data(some) == [{"qty": 3, "id": 2}]
    with defined.client() as client:
        assert client.admin.queue_stats("large").delivered == 0


def test_a_topic_and_a_pattern_are_shown(defined):
    defined.publish({"id": 1}, {"id": 2})
    epoch = ("--bookmark", "epoch", "--timeout", "0.3")

    lines = defined("tail", "orders", *epoch).out.splitlines()
    assert [LINE.fullmatch(line)[1] for line in lines] == [None, None]
    assert [LINE.fullmatch(line)[1] for line in defined("tail", "^ord", *epoch).out.splitlines()] == ["orders"] * 2
    assert data(defined("tail", "orders", *epoch, "--count", "1", "--json")) == [{"id": 1}]


@first_ones("name", ["work", "orders", "totals"], 1)
def test_what_comes_is_shown_at_once_and_ctrl_c_ends_it_well(defined_process, name):
    # given
    with defined_process.client() as client:
        client.apply(View(name="totals", underlying_topic="orders", projection=["/id"], grouping=["/id"]))
        watching = defined_process.start("tail", name, "--json")
        # when: it is not known when it has begun to look
        numbers = itertools.count()
        while not select.select([watching.stdout], [], [], 0.2)[0]:
            client.publish("orders", {"id": next(numbers)})
    line = json.loads(watching.stdout.readline())
    done = defined_process.end(watching, signal.SIGINT)
    # then
    assert (list(line), line["data"]["id"] < next(numbers)) == (
        ["bookmark", "topic", "data", "headers", "timestamp"],
        True,
    )
    assert (done.code, done.err) == (0, "")


def test_bodies_are_coloured_at_a_terminal_alone_and_nothing_of_a_message_acts_on_it(defined_process):
    # given
    with defined_process.client() as client:
        client.publish("orders", {"id": 7, "on": True, "who": 'a "b"'}, headers={"from": "\x1b[2J"})

    def shown():
        ours, theirs = pty.openpty()
        process = defined_process.start_at(theirs, 100, "tail", "orders", "--bookmark", "epoch", "--count", "1")
        os.close(theirs)
        seen = b""
        while select.select([ours], [], [], 60)[0]:
            try:
                seen += os.read(ours, 65536)
            except OSError:
                break
        os.close(ours)
        assert process.wait(20) == 0
        return seen.decode()

    # when
    coloured = shown()
    # then
    assert '\x1b[34m"id"\x1b[0m:\x1b[35m7\x1b[0m' in coloured
    assert "\x1b[33mtrue\x1b[0m" in coloured
    assert '\x1b[32m"a \\"b\\""\x1b[0m' in coloured
    assert "\x1b[2J" not in coloured
    assert "\\u001b[2J" in coloured
    plain = defined_process("tail", "orders", "--bookmark", "epoch", "--count", "1").out
    assert "\x1b" not in plain


def test_a_long_body_is_cut_and_it_is_said_how_to_see_it_whole(defined):
    defined.publish({"text": "x" * 1000})
    got = defined("tail", "orders", "--bookmark", "epoch", "--count", "1")
    assert got.out.rstrip().endswith("x...")
    assert "-o jsonl prints it whole" not in got.out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["wrk"], 1, "'wrk' is neither a queue nor a topic nor a view; did you mean 'work'?"),
        (["zzzz"], 1, "'zzzz' is neither a queue nor a topic nor a view; there are "),
        (["work", "--filter", "/id >"], 1, "/id >"),
        (["orders", "--filter", "/id >"], 1, "/id >"),
        (["work", "--bookmark", "x"], 1, "no place in a log"),
        (["work", "--count", "0"], 2, "--count"),
        (["work", "--timeout", "soon"], 2, "--timeout"),
        ([], 2, "Missing argument 'NAME'"),
        (["^(", "--timeout", "0.1"], 1, "^("),
    ],
)
def test_what_is_wrong_is_said(defined, arguments, code, said):
    # Given that there is a topic
    defined.publish(1)
    assert said in defined("tail", *arguments, code=code).err


@pytest.mark.parametrize("command", ["tail", "subscribe", "subscribe-topic"])
def test_a_count_beyond_what_can_be_counted_is_refused_with_what_is_allowed(defined, command):
    said = defined(command, "orders", "--count", "99999999999999999999", code=2).err
    assert "is not in the range 1<=x<=9223372036854775807" in said
