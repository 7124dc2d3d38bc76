"""`ampsq groups`: which groups of a queue stand still and wait, and letting one go on."""

from __future__ import annotations

import re
import time

import pytest
from scene import pick_up

from ampsq import Queue


@pytest.fixture
def grouped(defined):
    """Two messages wait behind one of group a that is leased; group b was stopped."""
    with defined.client() as client:
        client.apply(
            Queue(
                name="mail", underlying_topic="letters", group_by="/g", on_group_failure="stop",
                max_per_subscription_backlog=9,
            )
        )  # fmt: skip
        client.publish_many("letters", [{"g": group} for group in "abaab"])
        with client.subscribe("mail", max_backlog=9) as messages:
            _, stopped = pick_up(messages, 2)
            stopped.expire()
            messages.flush()
            assert messages.get(0.05) is None
            yield defined


def test_groups_that_stand_still_come_first(grouped):
    head, first, second = grouped("groups", "mail").out.splitlines()
    assert head.split() == ["group", "leased", "waiting", "failed", "stopped", "oldest"]
    assert first.split()[:4] == ["b", "0", "1", "0"]
    assert second.split()[:4] == ["a", "1", "2", "0"]
    rows = grouped("groups", "mail", "--json").json
    assert [(row["group"], row["leased"], row["waiting"], row["failed"]) for row in rows] == [
        ("b", 0, 1, 0),
        ("a", 1, 2, 0),
    ]
    assert rows[0]["stopped"] is not None
    assert rows[1]["stopped"] is None
    assert "2 groups; --top shows more" in grouped("groups", "mail", "--top", "1").err


def test_a_group_is_released(grouped):
    assert "group b goes on" in grouped("groups", "mail", "--release", "b").err
    assert "was neither held nor stopped" in grouped("groups", "mail", "--release", "b").err
    assert [row["stopped"] for row in grouped("groups", "mail", "--json").json] == [None, None]


def test_a_group_is_paused_and_resumed(grouped):
    assert "group a is paused" in grouped("groups", "mail", "--pause", "a").err
    assert "group a was paused before" in grouped("groups", "mail", "--pause", "a").err
    head, *rows = grouped("groups", "mail").out.splitlines()
    assert head.split()[-2:] == ["paused", "paused_by"]
    assert {row.split()[0] for row in rows} == {"a", "b"}
    (row,) = (row for row in grouped("groups", "mail", "--json").json if row["paused"])
    assert row["group"] == "a"
    assert row["paused_by"]
    assert "group a is resumed" in grouped("groups", "mail", "--resume", "a").err
    assert "group a was not paused" in grouped("groups", "mail", "--resume", "a").err
    for option in ("--pause", "--resume", "--release", "--drop"):
        assert "has no groups" in grouped("groups", "work", option, "a", code=1).err


def test_a_group_is_dropped_after_a_question_that_says_how_many(grouped):
    assert "2 messages of group a would be expired" in grouped("groups", "mail", "--drop", "a", "--dry-run").err
    asked = grouped("groups", "mail", "--drop", "a", code=3).err
    assert "2 messages of group a would be expired" in asked
    assert "nothing was done" in asked
    assert [row["waiting"] for row in grouped("groups", "mail", "--json").json] == [1, 2]

    done = grouped("groups", "mail", "--drop", "a", "--reason", "closed", "--yes")

    assert "2 messages of group a expired" in done.err
    assert [(row["group"], row["waiting"]) for row in grouped("groups", "mail", "--json").json] == [("b", 1), ("a", 0)]
    assert "0 messages of group a expired" in grouped("groups", "mail", "--drop", "a").err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--pause", "a", "--drop", "a"], "--pause and --drop exclude each other"),
        (["--pause", "a", "--yes"], "--dry-run, --yes and --reason go with --drop alone"),
        (["--reason", "closed"], "--dry-run, --yes and --reason go with --drop alone"),
    ],
)
def test_options_that_mean_nothing_together_are_refused(defined, given, said):
    assert said in defined("groups", "work", *given, code=2).err


def test_a_queue_without_groups_has_none(defined):
    assert "a queue has groups if its definition has group_by or group_concurrency" in defined("groups", "work").err
    assert "did you mean 'work'" in defined("groups", "wrok", code=1).err


def test_weights_are_shown_where_there_are_some(defined):
    with defined.client() as client:
        client.apply(
            Queue(name="fair", underlying_topic="letters", group_by="/g", group_choice="fair", group_weight="/w")
        )
        with client.subscribe("fair", max_backlog=1):
            client.publish_many("letters", [{"g": "a", "w": 4}, {"g": "b"}])
            head, *rows = defined("groups", "fair").out.splitlines()
    assert head.split()[-1] == "weight"
    assert {row.split()[0]: row.split()[-1] for row in rows} == {"a": "4", "b": "1"}


def test_bindings_are_shown_where_there_are_some_and_end_with_a_release(defined):
    with defined.client() as client:
        client.apply(Queue(name="near", underlying_topic="letters", group_by="/g", group_affinity="1h"))
        with client.subscribe("near", max_backlog=1) as messages:
            client.publish("letters", {"g": "a"})
            messages.get(10).ack(wait=True)
            head, row = defined("groups", "near").out.splitlines()
            assert head.split()[-2:] == ["bound_to", "bound_until"]
            assert f" {messages.id} of " in row
            # A second may pass between the binding and the look.
            assert re.search(r" in (1h|59m5[0-9]s)$", row)
            (said,) = defined("groups", "near", "--json").json
            assert said["bound_to"].startswith(f"{messages.id} of ")
            assert said["bound_until"].endswith("Z")
            assert "group a goes on" in defined("groups", "near", "--release", "a").err
            assert "was neither held nor stopped, nor bound" in defined("groups", "near", "--release", "a").err


def test_a_binding_whose_time_is_over_is_not_said_to_be_leased(defined):
    with defined.client() as client:
        client.apply(Queue(name="near", underlying_topic="letters", group_by="/g", group_affinity="1ms"))
        with client.subscribe("near", max_backlog=1) as messages:
            client.publish("letters", {"g": "a"})
            message = messages.get(10)
            time.sleep(0.01)  # until its affinity is over
            assert defined("groups", "near").out.rstrip().endswith("while leased")
            message.ack(wait=True)
            assert "while leased" not in defined("groups", "near").out


def test_a_group_takes_one_line_whatever_its_name_is(defined):
    with defined.client() as client:
        client.apply(Queue(name="mail", underlying_topic="letters", group_by="/g"))
    assert "group a\\u000ab\\u001b is paused" in defined("groups", "mail", "--pause", "a\nb\x1b").err
    _, row = defined("groups", "mail").out.splitlines()
    assert row.startswith("a\\u000ab\\u001b ")


def test_a_queue_whose_groups_are_empty_says_so(defined):
    with defined.client() as client:
        client.apply(Queue(name="mail", underlying_topic="letters", group_by="/g"))
    assert "nothing of the queue is in a group now" in defined("groups", "mail").err


@pytest.mark.parametrize("lines", [False, True], ids=["one message", "lines of a file"])
def test_a_message_is_published_in_a_group_that_its_body_does_not_say(defined, tmp_path, lines):
    with defined.client() as client:
        client.apply(Queue(name="mail", underlying_topic="letters", group_by="/g", max_per_subscription_backlog=9))
        path = tmp_path / "letters.txt"
        path.write_text("hello\n")
        what = ["--file", str(path)] if lines else ["hello"]

        defined("publish", "letters", *what, "--text", "--group", "alice")

        with client.subscribe("mail", max_backlog=9) as messages:
            message = messages.get(10)
            assert (message.data, message.group) == (b"hello", "alice")
            message.ack()


def test_a_delta_is_published_in_no_group(defined):
    refused = defined("publish", "letters", "{}", "--delta", "--group", "alice", code=2)
    assert "--delta and --group exclude each other" in refused.err
