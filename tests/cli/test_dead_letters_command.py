"""dead-letters: list, show, redrive, edit, drop, as people and programs use them."""

from __future__ import annotations

import json
import os
import pty
import signal
import stat
import subprocess
import sys

import pytest
from observing import eventually
from programs import at_terminal

from ampsq import Queue

PROGRAM = [sys.executable, "-m", "ampsq.cli"]
LETTERS = [
    {"queue": "work", "reason": "max_cancels", "deliveries": 2, "message": {"n": 1}},
    {"queue": "work", "reason": "max_deliveries", "deliveries": 5, "message": {"n": 2}},
    {"queue": "audit", "reason": "max_cancels,max_deliveries", "deliveries": 3, "message": {"n": 3}},
]
HISTORY = [{"came_back": 1_763_640_000_000, "cause": "lapsed", "subscription": "s1", "client": "till-4"}]


def letter(**facts):
    return {"topic": "orders", "bookmark": "orders~x.1~5-0", "cancels": 1, **facts}


@pytest.fixture
def dead(run):
    """Three letters of two queues over one topic; `dead.bookmarks` are theirs."""
    with run.client() as client:
        client.apply(
            *(
                Queue(name=name, underlying_topic="orders", max_per_subscription_backlog=100)
                for name in ("work", "audit")
            ),
            Queue(name="dead", underlying_topic="letters", max_per_subscription_backlog=100),
        )
        run.bookmarks = [
            str(client.publish("letters", letter(**LETTERS[0], history=HISTORY), headers={"trace": "t"})),
            *(str(client.publish("letters", letter(**facts))) for facts in LETTERS[1:]),
        ]
    return run


def messages(run, queue):
    with run.client() as client:
        return [message.data for message in client.sow(queue)]


def test_list_shows_what_was_given_up_and_why(dead):
    lines = dead("dead-letters", "list", "dead").out.splitlines()
    assert lines[0].split() == ["bookmark", "queue", "reasons", "deliveries", "age", "data"]
    assert [line.split()[:4] for line in lines[1:]] == [
        [dead.bookmarks[0], "work", "max_cancels", "2"],
        [dead.bookmarks[1], "work", "max_deliveries", "5"],
        [dead.bookmarks[2], "audit", "max_cancels,max_deliveries", "3"],
    ]
    assert lines[1].endswith('{"n":1}')


def test_what_a_consumer_said_is_listed_shown_and_chosen_by(dead):
    history = [{**HISTORY[0], "cause": "cancelled", "consumer_reason": "no such flight"}]
    with dead.client() as client:
        said = str(client.publish("letters", letter(**LETTERS[0], consumer_reason="no such flight", history=history)))
    assert "max_cancels: no such flight" in dead("dead-letters", "list", "dead").out.splitlines()[-1]
    (line,) = dead("dead-letters", "list", "dead", "--filter", "/consumer_reason LIKE 'flight'", "--json").json
    assert (line["bookmark"], line["consumer_reason"]) == (said, "no such flight")
    assert line["history"][0]["consumer_reason"] == "no such flight"
    shown = dead("dead-letters", "show", "dead", said).out
    assert "said         no such flight" in shown
    assert shown.count("no such flight") == 2


def test_list_chooses_and_prints_json(dead):
    def chosen(*options):
        return [line["data"]["n"] for line in dead("dead-letters", "list", "dead", "--json", *options).json]

    assert chosen() == [1, 2, 3]
    assert chosen("--source", "work") == [1, 2]
    assert chosen("--reason", "max_cancels") == [1, 3]
    assert chosen("--filter", "/message/n > 1 AND /deliveries > 3") == [2]
    assert chosen("--top", "1") == [1]
    (first, *_) = dead("dead-letters", "list", "dead", "--json").json
    assert first["bookmark"] == dead.bookmarks[0]
    assert first["history"] == [
        {"came_back": "2025-11-20T12:00:00+00:00", "cause": "lapsed", "subscription": "s1", "client": "till-4"}
    ]
    assert (first["reasons"], first["headers"], first["original"]) == (
        ["max_cancels"],
        {"trace": "t"},
        "orders~x.1~5-0",
    )
    assert "no letters that match" in dead("dead-letters", "list", "dead", "--filter", "/message/n > 9").err


@pytest.mark.parametrize(
    "arguments",
    [["list"], ["redrive", "--dry-run"], ["redrive", "--yes"], ["drop", "--yes"], ["drop", "--dry-run"]],
)
def test_a_source_that_is_no_queue_is_refused(dead, arguments):
    command, *options = arguments
    done = dead("dead-letters", command, "dead", "--source", "adit", *options, code=1)
    assert "'adit' is no queue; did you mean 'audit'?" in done.err
    assert done.out == ""


def test_letters_of_a_queue_that_is_nowhere_defined_are_found_all_the_same(dead):
    dead.publish(letter(**{**LETTERS[0], "queue": "gone"}), topic="letters")
    assert len(dead("dead-letters", "list", "dead", "--source", "gone", "--json").json) == 1


def test_show_has_the_history_as_a_table(dead):
    lines = dead("dead-letters", "show", "dead", dead.bookmarks[0]).out.splitlines()
    assert "given up by  work" in lines
    assert "header trace t" in lines
    table = lines.index("came back                 cause   subscription  client")
    assert lines[table + 1] == "2025-11-20T12:00:00.000Z  lapsed  s1            till-4"
    assert lines[-1] == '{"n":1}'
    assert "No history" in dead("dead-letters", "show", "dead", dead.bookmarks[1]).out
    assert dead("dead-letters", "show", "dead", dead.bookmarks[1], "--json").json[0]["deliveries"] == 5
    gone = dead.bookmarks[0].replace("-0", "-99")
    assert f"no letter {gone} is available in 'dead'. There is no such message: the log of topic 'letters'" in (
        dead("dead-letters", "show", "dead", gone, code=1).err
    )


def test_a_letter_that_is_settled_or_held_is_told_so_with_when_and_how(dead):
    dead("dead-letters", "redrive", "dead", dead.bookmarks[0])
    dead("dead-letters", "drop", "dead", dead.bookmarks[1])
    for command in (["show"], ["edit", "--data", "1"]):
        redriven = dead("dead-letters", command[0], "dead", dead.bookmarks[0], *command[1:], code=1).err
        assert (
            f"no letter {dead.bookmarks[0]} is available in 'dead'. The message, a dead letter, was redriven at 2"
            in (redriven)
        )
    assert ". The message was acknowledged at 2" in dead("dead-letters", "show", "dead", dead.bookmarks[1], code=1).err
    with dead.client() as client, client.subscribe("dead") as letters:
        letters.get("30s")
        held = dead("dead-letters", "show", "dead", dead.bookmarks[2], code=1).err
    assert ". The message is leased to subscription " in held


def test_redrive_puts_one_back_by_bookmark(dead):
    assert dead("dead-letters", "redrive", "dead", dead.bookmarks[2]).out == "redriven 1: 1 to audit\n"
    assert (messages(dead, "audit"), messages(dead, "work")) == ([{"n": 3}], [])
    again = dead("dead-letters", "redrive", "dead", dead.bookmarks[2], code=1)
    assert again.out == "redriven 0\n"
    assert again.err.startswith(f"Error: {dead.bookmarks[2]}: it is settled")


def test_redrive_says_first_what_would_go_where_and_asks(dead):
    dry = dead("dead-letters", "redrive", "dead", "--dry-run")
    assert dry.out == "3 would be redriven: 1 to audit, 2 to work\n"
    assert dead("dead-letters", "redrive", "dead", "--dry-run", "--json").json == [
        {"would_be_redriven": 3, "to": {"audit": 1, "work": 2}, "refused": 0, "refusals": []}
    ]
    # Where nobody can answer, nothing is done
    asked = dead("dead-letters", "redrive", "dead", code=3)
    assert "allowed: --yes" in asked.err
    assert messages(dead, "work") == []
    done = dead("dead-letters", "redrive", "dead", "--source", "work", "--yes", "--json")
    assert done.json == [{"redriven": 2, "to": {"work": 2}, "refused": 0, "refusals": []}]
    assert messages(dead, "work") == [{"n": 1}, {"n": 2}]


def test_redrive_at_a_terminal_asks_and_draws_a_bar(dead):
    pytest.importorskip("rich")
    ours, theirs = pty.openpty()
    arguments = [*PROGRAM, "dead-letters", "redrive", "dead", "--rate", "20/s"]
    environment = dead.environment | {"COLUMNS": "80", "TERM": "xterm"}
    process = subprocess.Popen(arguments, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    dead.started.append(process)
    os.close(theirs)
    out = b""
    try:
        while b"Go on? [y/N]:" not in out:
            out += os.read(ours, 4096)
        assert b"3 would be redriven: 1 to audit, 2 to work" in out
        os.write(ours, b"y\n")
        while True:
            try:
                out += os.read(ours, 4096)
            except OSError:
                break
    finally:
        os.close(ours)
    assert process.wait(20) == 0
    assert b"redriven 3: 1 to audit, 2 to work" in out
    assert messages(dead, "work") == [{"n": 1}, {"n": 2}]


def test_redrive_tells_what_could_not_be_put_back_and_goes_on(dead):
    dead.publish("no letter", topic="letters")
    done = dead("dead-letters", "redrive", "dead", "--yes", "--to", "work", code=1)
    assert done.out == "redriven 3: 3 to work\n"
    assert "it is no dead letter" in done.err
    found = dead("dead-letters", "redrive", "dead", "--yes", "--json", code=1).json[0]
    assert (found["redriven"], found["refused"]) == (0, 1)
    assert "no dead letter" in found["refusals"][0]["reason"]


def test_redrive_without_a_letter_that_can_be_put_back_tells_once_why(dead):
    with dead.client() as client:
        client.ack("dead", dead.bookmarks)
        client.publish("letters", {"n": 1})

    done = dead("dead-letters", "redrive", "dead", code=1)

    assert (done.out, done.err.count("it is no dead letter")) == ("redriven 0\n", 1)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_redrive_stops_on_a_signal_and_says_how_many_were_put_back(dead, number, code):
    with dead.client() as client:
        client.publish_many("letters", [letter(**LETTERS[0]) for _ in range(500)])
    process = dead.start("dead-letters", "redrive", "dead", "--yes", "--rate", "100/s")
    eventually(lambda: messages(dead, "work"), within=40.0)
    done = dead.end(process, number)
    assert done.code == code
    with dead.client() as client:
        stats = client.admin.queue_stats("dead")
    assert done.out == f"redriven {stats.acknowledged}, then stopped\n"
    assert stats.depth == 503 - stats.acknowledged > 0


def test_edit_puts_another_body_back(dead):
    done = dead("dead-letters", "edit", "dead", dead.bookmarks[0], "--data", '{"n": 10}')
    assert done.out == "redriven 1: 1 to work\n"
    with dead.client() as client:
        (message,) = client.sow("work")
    assert message.raw == b'{"n": 10}'
    assert message.headers == {"trace": "t", "ampsq-redriven-from": dead.bookmarks[0]}
    wrong = dead("dead-letters", "edit", "dead", dead.bookmarks[1], "--data", "{n}", code=1)
    assert "not JSON" in wrong.err
    assert "nothing was done" in wrong.err
    assert dead("dead-letters", "edit", "dead", dead.bookmarks[1], "--data", "{n}", "--text").code == 0
    assert messages(dead, "work") == [{"n": 10}, b"{n}"]


def test_edit_opens_the_editor(dead):
    editor = dead.folder / "editor"
    editor.write_text('#!/bin/sh\nsed -i s/1/11/ "$1"\n')
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    dead.environment["EDITOR"] = str(editor)
    assert dead("dead-letters", "edit", "dead", dead.bookmarks[0]).out == "redriven 1: 1 to work\n"
    assert messages(dead, "work") == [{"n": 11}]
    # A text that is left as it is does nothing
    assert "nothing was changed" in dead("dead-letters", "edit", "dead", dead.bookmarks[1], code=1).err


def test_drop_acknowledges_by_bookmark_or_by_choice(dead):
    assert dead("dead-letters", "drop", "dead", dead.bookmarks[0]).out == "dropped 1\n"
    assert dead("dead-letters", "drop", "dead", "--source", "audit", "--dry-run").out == "1 would be dropped\n"
    assert "allowed: --yes" in dead("dead-letters", "drop", "dead", "--source", "audit", code=3).err
    assert dead("dead-letters", "drop", "dead", "--source", "audit", "--yes", "--json").json == [{"dropped": 1}]
    left = dead("dead-letters", "list", "dead", "--json").json
    assert [line["data"] for line in left] == [{"n": 2}]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["redrive", "dead", "x", "--source", "work"], "give bookmarks, or"),
        (["drop", "dead"], "give bookmarks, or"),
        (["drop", "dead", "x", "--dry-run"], "--dry-run goes with"),
        (["list"], "Missing argument 'QUEUE'"),
    ],
)
def test_a_wrong_line_is_explained(dead, arguments, text):
    assert text in dead("dead-letters", *arguments, code=2).err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["redrive", "dead", "--rate", "fast", "--yes"], "100/s"),
        (["redrive", "deda", "--yes"], "did you mean 'dead'"),
        (["list", "dead", "--reason", "late"], "max_cancels"),
        (["redrive", "dead", "--to", "dead", "--yes"], "the queue of the letters itself"),
    ],
)
def test_a_wrong_wish_is_explained(dead, arguments, text):
    assert text in dead("dead-letters", *arguments, code=1).err


def test_a_wrong_rate_is_refused_before_letters_are_looked_at(dead):
    assert "would be" not in dead("dead-letters", "redrive", "dead", "--rate", "fast", code=1).err


def test_every_subcommand_has_help_with_an_example(alone):
    for name in ("list", "show", "redrive", "edit", "drop"):
        assert f"ampsq dead-letters {name}" in alone("dead-letters", name, "--help").out
    assert "QUEUE is the queue of the letters" in alone("dead-letters", "--help").out


def test_options_may_stand_at_the_group(dead):
    assert json.loads(dead("--json", "dead-letters", "list", "dead", "--top", "1").out)["queue"] == "work"
    assert json.loads(dead("dead-letters", "--json", "list", "dead", "--top", "1").out)["queue"] == "work"


@pytest.fixture
def wordy(dead):
    """`dead` with one more letter, of a large body and a long reason."""
    with dead.client() as client:
        said = {"reason": "max_cancels", "consumer_reason": "till 4 is closed " * 100}
        facts = letter(queue="work", deliveries=2, message="x" * 1_000_000, **said)
        dead.bookmarks.append(str(client.publish("letters", facts)))
    return dead


def test_what_is_long_is_cut_in_the_table_and_whole_for_programs(wordy):
    shown = wordy("dead-letters", "list", "dead")

    assert max(map(len, shown.out.splitlines())) < 350
    assert "max_cancels: till 4 is closed till 4" in shown.out
    assert "-o jsonl prints it whole" in shown.err
    for form in ("json", "jsonl", "yaml", "csv"):
        assert len(wordy("dead-letters", "list", "dead", "-o", form).out) > 1_000_000
    # Of short ones nothing is said
    assert wordy("dead-letters", "list", "dead", "--source", "audit").err == ""


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_the_terminal(wordy, width):
    pytest.importorskip("rich")

    lines = at_terminal(wordy, width, "dead-letters", "list", "dead").replace("\x1b[1m", "").replace("\x1b[0m", "")

    assert max(map(len, lines.splitlines())) <= width
    assert "max_cancels: " in lines
    assert "..." in lines
