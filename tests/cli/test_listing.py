"""Listings: one form for people, four for programs, under column names that stay; and watching them."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys

import click
import pytest
import yaml
from observing import eventually

from ampsq import Client
from ampsq.cli.listing import FORMS, columns_of
from ampsq.cli.main import program
from ampsq.files.config import load

DEFINITIONS = """
topics: [{name: orders}, {name: records, key: [/id]}]
queues:
  - {name: work, underlying_topic: orders}
  - {name: letters, underlying_topic: dead}
views: [{name: totals, underlying_topic: work, projection: [/id, COUNT(/id) AS /n], grouping: [/id]}]
actions: [{dead_letter: {queue: work, topic: dead}}]
destinations: [{name: far, sync_type: async, topics: [records], addresses: ["redis://far.example.com"]}]
transports: [{name: "*", client_message_age_limit: 30s}]
"""
#: Of listings that are one object, the part that CSV has.
PARTS = {"replication": "links", "history": "events"}
#: Of files, where a definition has what its kind has: test_config_command.py.
OF_FILES = {"apply", "config check", "config diff", "config export"}
#: Listing -> arguments, and whether there is something to list.
LISTINGS = {
    "topics": ([], True),
    "readers": ([], False),
    "keys": (["--hot", "orders"], True),
    "queues": ([], True),
    "views": ([], True),
    "actions": ([], True),
    "actions show": (["dead-letter-work"], True),
    "actions failed": (["dead-letter-work"], False),
    "publishers": ([], True),
    "coordinators": ([], True),
    "replication": ([], True),
    "sow": (["work"], True),
    "check": (["work"], True),
    "groups": (["work"], False),
    "explain": (["work"], True),
    "history": (["LETTER"], True),
    "acl": (["worker"], True),
    "doctor": (["--interval", "0.1s"], True),
    "functions list": ([], True),
    "functions load": ([], True),
    "functions remove": ([], False),
    "dead-letters list": (["letters"], True),
    "dead-letters show": (["letters", "LETTER"], True),
}


def commands(command=program, path=()):
    """All commands by their paths."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from commands(command.get_command(context, name), (*path, name))
    if path:
        yield " ".join(path), command


LISTED = {path: columns_of(command) for path, command in commands() if columns_of(command)}


@pytest.fixture(scope="module")
def listed_instance(served):
    """One instance for all, with something of everything."""
    with Client(served.url, instance="listed") as client, client.publisher("till-4") as till:
        client.apply(*load(DEFINITIONS))
        till.publish("orders", {"id": 1, "name": 'a,b "c"\nd', "none": None})
        client.ack("work", [till.publish("orders", {"id": 2}).bookmark()], "expire")
        till.publish("orders", {"id": 3})
        (letter,) = eventually(lambda: client.admin.dead_letters("letters"))
        # What the view publishes is the last of what is listed here.
        eventually(lambda: any(each.name == "view:totals" for each in client.admin.publishers()))
    return "listed", letter.bookmark


@pytest.fixture
def listing(run, listed_instance):
    name, letter = listed_instance
    run.environment["AMPSQ_INSTANCE"] = name
    return lambda path, *more, **given: run(
        *path.split(), *(letter if word == "LETTER" else word for word in LISTINGS[path][0]), *more, **given
    )


def test_all_listings_are_shown_here():
    assert set(LISTED) == set(LISTINGS) | OF_FILES


@pytest.mark.parametrize("path", LISTINGS)
def test_every_listing_has_all_forms_with_the_same_records_and_columns_that_stay(listing, path):
    columns = LISTED[path]
    code = 1 if path == "doctor" else 0
    printed = {form: listing(path, "-o", form, code=code).out for form in FORMS}

    # Then the forms for programs say the same; what time has changed meanwhile is not compared
    records = [json.loads(line) for line in printed["jsonl"].splitlines()]
    assert bool(records) == LISTINGS[path][1]
    for read in (json.loads, yaml.safe_load):
        others = read(printed["json" if read is json.loads else "yaml"])
        assert [list(each) for each in others] == [list(each) for each in records]
    head, *lines = csv.reader(io.StringIO(printed["csv"]))
    assert tuple(head) == columns
    if path == "replication":
        assert [each["destination"] for each in records[0]["links"]] == [line[0] for line in lines] == ["far"]
    if path in PARTS:
        records = records[0][PARTS[path]]
    assert [tuple(each) for each in records] == [columns] * len(lines)
    # And where nobody looks, nothing is coloured
    assert "\x1b" not in "".join(printed.values())


def test_csv_says_texts_as_they_are_and_the_rest_as_json(listing):
    (first, *_) = csv.DictReader(io.StringIO(listing("sow", "-o", "csv").out))

    assert first["topic"] == "orders"
    assert json.loads(first["data"]) == {"id": 1, "name": 'a,b "c"\nd', "none": None}
    assert (first["deliveries"], first["key"]) == ("0", "")


def test_yaml_and_json_of_nothing_are_empty_lists_and_csv_has_its_head(listing):
    assert listing("readers", "-o", "json").out == "[]\n"
    assert yaml.safe_load(listing("readers", "-o", "yaml").out) == []
    assert listing("readers", "-o", "csv").out == ",".join(LISTED["readers"]) + "\n"
    assert listing("readers", "-o", "jsonl").out == ""


def test_json_is_a_short_name_and_may_stand_before_the_command(run, listing):
    assert listing("topics", "--json").out == listing("topics", "-o", "jsonl").out == run("--json", "topics").out
    assert "leave one of them out" in listing("topics", "--json", "-o", "csv", code=2).err
    assert "allowed: -o jsonl" in run("sow", "records", "--follow", "-o", "csv", code=2).err


def test_a_listing_is_watched_on_one_connection_until_ctrl_c(process, listed_instance):
    process.environment["AMPSQ_INSTANCE"] = listed_instance[0]
    watching = process.start("queues", "--watch", "0.1s", "--json")
    names = [json.loads(watching.stdout.readline())["name"] for _ in range(6)]

    done = process.end(watching, signal.SIGINT)

    assert names == ["letters", "work"] * 3
    assert (done.code, done.err) == (0, "")


def test_watching_a_group_stands_behind_its_subcommand(listing):
    assert "behind the subcommand" in listing("actions", "--watch=1s", "failed", "x", code=2).err


def test_a_terminal_without_colours_gets_none(process, listed_instance):
    command = [sys.executable, "-m", "ampsq.cli", "doctor", "--interval", "0.1s"]
    environment = {**process.environment, "AMPSQ_INSTANCE": listed_instance[0], "TERM": "xterm"}
    environment.pop("NO_COLOR", None)

    def coloured(**wish):
        ours, theirs = pty.openpty()
        doctor = subprocess.Popen(command, stdin=theirs, stdout=theirs, env={**environment, **wish})
        os.close(theirs)
        shown = ""
        # The end of what it writes is an error on Linux, and nothing elsewhere.
        with contextlib.suppress(OSError):
            while part := os.read(ours, 65536):
                shown += part.decode()
        os.close(ours)
        assert (doctor.wait(20), "server" in shown) == (1, True)
        return bool(re.search(r"\x1b\[3\dm", shown))

    assert coloured()
    assert not coloured(NO_COLOR="1")


def test_the_version_is_told_with_those_of_what_it_stands_on(run):
    assert run("version").out.startswith("ampsq 0.1.0, Python 3.")
