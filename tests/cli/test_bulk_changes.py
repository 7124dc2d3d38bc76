"""Changes of many things at once ask before; and every exit code that the help names is reached."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys

import pytest

from ampsq import Topic

DEFINITIONS = """
topics: [{name: orders}, {name: records, key: [/id]}]
queues:
  - {name: work, underlying_topic: orders}
  - {name: letters, underlying_topic: dead}
  - {name: repair, underlying_topic: repairs}
"""
#: Change -> how many things it is about.
CHANGES = {
    ("ack", "work", "--filter", "/id > 0"): 3,
    ("ack", "work", "--filter", "/id = 1", "--expire"): 1,
    ("dead-letters", "drop", "letters", "--filter", "/id IS NULL"): 2,
    ("trim", "dead", "--age", "0s"): 0,
    ("trim", "orphans", "--age", "0s"): 4,
    ("sow-delete", "records", "--filter", "/id > 1"): 2,
}


@pytest.fixture
def filled(run):
    """Three messages, records and so on of everything."""
    run("apply", "-", "--yes", stdin=DEFINITIONS)
    with run.client() as client:
        client.apply(Topic(name="orphans"))
        for number in range(1, 4):
            client.publish("orders", {"id": number})
            client.publish("records", {"id": number})
        client.publish_many("dead", [{"n": 1}, {"n": 2}])
        client.publish_many("orphans", [1, 2, 3, 4])
    return run


def state(run):
    """Return the state that the changes would change."""
    with run.client() as client:
        facts = client.admin.topics()
        depths = {name: client.admin.queue_stats(name).depth for name in ("work", "letters")}
    return depths, facts["records"].records, facts["orphans"].messages


def test_nothing_is_done_where_nobody_can_be_asked_and_a_dry_run_says_how_much_it_is(filled):
    before = state(filled)
    for change, number in CHANGES.items():
        # A dry run says how many there are
        told = filled(*change, "--dry-run").out
        assert re.search(rf"\b{number}\b", told), (change, told)
        # Without a terminal and without --yes nothing is done
        refused = filled(*change, code=3 if number else 0)
        if number:
            assert "allowed: --yes" in refused.err
            assert refused.err.startswith(f"{number} ")
    assert state(filled) == before


def test_with_yes_it_is_done(filled):
    for change in CHANGES:
        filled(*change, "--yes")

    assert state(filled) == ({"work": 0, "letters": 0}, 1, 0)


@pytest.mark.parametrize(("answer", "code", "left"), [("n", 3, 3), ("y", 0, 0)])
def test_a_person_at_a_terminal_is_asked(filled, answer, code, left):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "ampsq.cli", "ack", "work", "--filter", "/id > 0"]
    asking = subprocess.Popen(
        command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=filled.environment, text=True
    )
    os.close(theirs)
    os.write(ours, f"{answer}\n".encode())
    out, err = asking.communicate(timeout=90)
    os.close(ours)

    assert (asking.returncode, "3 messages would be acknowledged" in err, "Go on?" in err) == (code, True, True), err
    assert out == ("acknowledged 3\n" if answer == "y" else "")
    assert state(filled)[0]["work"] == left


def test_every_exit_code_of_the_help_is_reached(filled, process):
    process.environment = filled.environment
    table = re.search(r"Exit codes:\n(.*?)\n\n", filled("--help").out, flags=re.DOTALL)[1]
    named = {int(code) for code in re.findall(r"^ +(\d+) ", table, flags=re.MULTILINE)}

    def ended_by(number):
        waiting = process.start("subscribe", "repair", "--json", "--timeout", "1m")
        with filled.client() as client:
            client.publish("repairs", 1)
            waiting.stdout.readline()
        return process.end(waiting, number).code

    reached = {
        filled("queues").code,
        filled("queues", "nowhere", code=1).code,
        filled("queues", "--nothing", code=2).code,
        filled("ack", "work", "--filter", "/id > 0", code=3).code,
        ended_by(signal.SIGINT),
        ended_by(signal.SIGTERM),
    }
    assert reached == named == {0, 1, 2, 3, 130, 143}
