"""subscribe and ack."""

from __future__ import annotations

import itertools
import json
import signal
import time
from datetime import UTC, datetime

import pytest
from observing import eventually
from taking import data, take

# -- subscribe


def test_a_json_line_has_everything(defined):
    (bookmark,) = defined.publish({"id": 1})
    (message,) = take(defined, "--count", "1")
    until = datetime.fromisoformat(message.pop("lease_until"))
    assert 0 < (until - datetime.now(UTC)).total_seconds() < 31
    assert message == {
        "bookmark": bookmark,
        "topic": "orders",
        "queue": "work",
        "data": {"id": 1},
        "headers": {},
        "delivery": 1,
    }


def test_a_lease_that_never_lapses_is_null(defined):
    defined.publish(1, topic="other")
    assert defined("subscribe", "other", "--count", "1", "--json").json[0]["lease_until"] is None


def test_a_line_for_people(defined):
    bookmarks = defined.publish({"id": 1}, b"plain text", b"\x00\xff", b"two\nlines")
    lines = defined("subscribe", "work", "--count", "4").out.splitlines()
    bodies = ['{"id":1}', "plain text", "base64 AP8=", "two\\nlines"]
    assert lines == [f"{bookmark}  {body}" for bookmark, body in zip(bookmarks, bodies, strict=True)]


def test_printed_messages_are_acknowledged(defined):
    defined.publish(1, 2, 3)
    assert len(defined("subscribe", "work", "--count", "2", "--ack").out.splitlines()) == 2
    with defined.client() as client:
        stats = client.admin.queue_stats("work")
    assert (stats.depth, stats.acknowledged) == (1, 2)


def test_no_ack_leaves_them_in_the_queue(defined):
    defined.publish(1, 2, 3)
    done = defined("subscribe", "work", "--no-ack", "--max-backlog", "2", "--timeout", "0.3")
    assert len(done.out.splitlines()) == 2
    assert "2 held" in done.err
    assert [message["delivery"] for message in take(defined)] == [2, 2, 1]


def test_cancel_hands_back_and_expire_removes(defined):
    defined.publish(1)
    deliveries = defined("subscribe", "work", "--cancel", "--count", "3", "--json").json
    assert [message["delivery"] for message in deliveries] == [1, 2, 3]
    assert "(delivery 4)" in defined("subscribe", "work", "--expire", "--count", "1").out
    with defined.client() as client:
        stats = client.admin.queue_stats("work")
    assert (stats.depth, stats.expired) == (0, 1)


def test_a_lower_backlog_is_told(defined):
    err = defined("subscribe", "work", "--max-backlog", "50", "--timeout", "0").err
    assert "max_backlog 50 is cut to 10 by max_per_subscription_backlog of queue 'work'" in err
    assert defined("subscribe", "work", "--max-backlog", "10", "--timeout", "0").err == ""


def test_a_timeout_counts_from_the_last_message(defined):
    began = time.monotonic()
    assert defined("subscribe", "work", "--timeout", "500ms").out == ""
    assert 0.5 <= time.monotonic() - began < 30


def test_a_regular_expression_of_queues(defined):
    defined.publish(1)
    defined.publish(2, topic="other")
    done = defined("subscribe", "^(work|other)$", "--count", "2", "--json", "--max-backlog", "2")
    assert sorted((message["queue"], message["data"]) for message in done.json) == [("other", 2), ("work", 1)]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["nope"], 1, "'nope' is neither a queue nor a topic"),
        (["work", "--cancel", "--expire"], 2, "give one of"),
        (["work", "--timeout", "soon"], 2, "is not an interval"),
        (["work", "--max-backlog", "-1"], 2, "--max-backlog"),
        (["work", "--count", "x"], 2, "--count"),
        ([], 2, "Missing argument"),
    ],
)
def test_what_is_wrong_is_explained(defined, arguments, code, text):
    assert text in defined("subscribe", *arguments, code=code).err


def test_each_line_is_there_at_once_and_ctrl_c_ends_quietly(defined):
    process = defined.start("subscribe", "work", "--json")
    defined.publish(1)
    assert json.loads(process.stdout.readline())["data"] == 1
    with defined.client() as client:
        eventually(lambda: client.admin.queue_stats("work").acknowledged == 1, within=40.0)
    done = defined.end(process, signal.SIGINT)
    assert done.code == 130
    assert done.out == ""
    assert done.err.strip() == ""


def test_sigterm_gives_back_what_is_held(defined):
    defined.publish(1)
    process = defined.start("subscribe", "work", "--no-ack", "--json")
    process.stdout.readline()
    assert defined.end(process).code == 143
    with defined.client() as client:
        assert client.admin.queue_stats("work").ready == 1


def test_a_closed_pipe_ends_quietly(defined):
    defined.publish(*range(20))
    process = defined.start("subscribe", "work", "--json")
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(30) == 0
    assert process.stderr.read() == ""
    # The one that met the closed pipe was not printed, so it was not acknowledged.
    with defined.client() as client:
        assert client.admin.queue_stats("work").depth > 0


def test_nothing_is_lost_between_commands_in_a_row(defined):
    defined.publish(*range(5))
    seen = [defined("subscribe", "work", "--count", "1", "--json").json[0]["data"] for _ in range(3)]
    assert list(itertools.chain(seen, data(defined))) == [0, 1, 2, 3, 4]


# -- ack


@pytest.mark.parametrize(
    ("option", "verb"), [([], "acknowledged"), (["--expire"], "expired"), (["--cancel"], "cancelled")]
)
def test_ack_tells_how_many(defined, option, verb):
    bookmarks = defined.publish(1, 2, 3)
    with defined.client() as client, client.subscribe("work", max_backlog=3) as messages:
        assert messages.get(30)
        assert defined("ack", "work", *bookmarks[:2], *option).out == f"{verb} 2\n"
        assert defined("ack", "work", bookmarks[2], *option, "--json").json == [{verb: 1, "refused": 0}]


def test_why_is_said_and_shown(defined):
    first, second, third = defined.publish(1, 2, 3)
    defined("ack", "work", first, "--expire", "--reason", "no such flight")
    defined("ack", "work", "--filter", "1 = 1", "--reason", "done by hand", "--yes")
    assert "no such flight" in defined("explain", "work", first).out
    assert "reason given: no such flight" in defined("history", first).out
    assert "reason given: done by hand" in defined("history", third).out
    (bookmark,) = defined.publish(4)
    defined("subscribe", "work", "--cancel", "--reason", "not now", "--count", "1")
    assert "reason given: not now" in defined("history", bookmark).out
    assert second


def test_a_reason_that_goes_with_nothing_or_is_none_settles_nothing(defined):
    (bookmark,) = defined.publish(1)
    assert "--reason goes with" in defined("subscribe", "work", "--reason", "x", code=2).err
    assert "500 characters" in defined("ack", "work", bookmark, "--reason", "x" * 501, code=1).err
    assert "one line" in defined("subscribe", "work", "--expire", "--reason", "a\nb", code=1).err
    assert data(defined) == [1]


def test_each_refusal_is_reported_and_the_others_are_settled(defined):
    first, second = defined.publish(1, 2)
    defined("ack", "work", first)
    done = defined("ack", "work", first, second, "--json", code=1)
    assert done.json == [{"acknowledged": 1, "refused": 1}]
    assert done.err.startswith("Error: ")
    assert "settled before" in done.err
    assert first in done.err
    assert second not in done.err
    assert defined("ack", "work", second, code=1).out == "acknowledged 0 of 1\n"


def test_a_text_that_is_no_bookmark_settles_nothing(defined):
    (bookmark,) = defined.publish(1)
    done = defined("ack", "work", bookmark, "x", code=1)
    assert "'x' is not a bookmark" in done.err
    assert done.out == ""
    assert data(defined) == [1]


def test_ack_of_an_unknown_queue_origin_and_nothing(defined):
    (bookmark,) = defined.publish(1)
    assert defined("ack", "nope", bookmark, code=1).err.count("'nope' is no queue") == 1
    assert "origin" in defined("ack", "work", "orders~elsewhere.t1~1-0", code=1).err
    assert "BOOKMARK" in defined("ack", "work", code=2).err
    assert "exclude" in defined("ack", "work", bookmark, "--cancel", "--expire", code=2).err


def test_a_body_that_cannot_be_printed_and_holds_more_than_any_float_is_escaped(defined):
    with defined.client() as client:
        client.publish("orders", b'{"a":\n1e999}')
    line = defined("subscribe", "work", "--count", "1", "--timeout", "2").out
    assert line.endswith('{"a":\\n1e999}\n')


def test_what_acts_on_a_terminal_is_printed_as_an_escape(defined):
    # C1's CSI, DEL, and what turns the direction of writing, as letters of a JSON text
    body = '{"a": "\x9b31m\x7f\u202egnp.exe", "b": "Zürich 東京"}'
    with defined.client() as client:
        client.publish("orders", body.encode())
    line = defined("sow", "work").out
    assert line.endswith('{"a": "\\u009b31m\\u007f\\u202egnp.exe", "b": "Zürich 東京"}\n')
    # And a program reads what was published
    assert json.loads(defined("sow", "work", "--json").out)["data"] == json.loads(body)
    assert "\u202e" not in defined("sow", "work", "--json").out
