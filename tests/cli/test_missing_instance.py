"""A mistyped instance is refused by every command but those that make one."""

from __future__ import annotations

import contextlib
import re

import pytest

import ampsq
from ampsq.cli.main import COMMANDS
from ampsq.server.embedded import acquire
from ampsq.transport.store import Store

#: Commands that work without an instance, make it, or tell of it as of everything else (the doctor's own tests).
WITHOUT = {
    "up",
    "demo",
    "init",
    "apply",
    "coordinator",
    "coordinators",
    "doctor",
    "acl",
    "functions",
    "bench",
    "completion",
    "version",
}
BOOKMARK = "orders~one.t6w1xka~1763640000000-0"
#: Of each command what it needs to come as far as the server; of a group, of each of its commands.
CALLS = {
    "config": [["export"]],
    "topics": [[]],
    "readers": [[]],
    "keys": [["--hot", "orders"]],
    "trim": [["orders"]],
    "queues": [[], ["work"], ["--watch"], ["-o", "csv"]],
    "groups": [["work"], *(["work", f"--{each}", "a"] for each in ("release", "pause", "resume", "drop"))],
    "explain": [["work"]],
    "history": [[BOOKMARK]],
    "top": [["--once"], ["work", "--once"]],
    "check": [[]],
    "sow": [["work"]],
    "sow-delete": [["orders", "--key", "1"]],
    "views": [[]],
    "actions": [[], ["retry", "dead", "--all"]],
    "publishers": [[]],
    "replication": [[], ["downgrade", "there"], ["begin-incarnation"]],
    "publish": [["orders", "{}"], ["orders", "--file", "-"]],
    "subscribe": [["work", "--count", "1"]],
    "subscribe-topic": [["orders", "--bookmark", "epoch"]],
    "tail": [["work"], ["orders", "--count", "1"]],
    "ack": [["work", BOOKMARK], ["work", "--filter", "/id = 1"]],
    "dead-letters": [["list", "dead"], ["redrive", "dead", "--yes"]],
    "worker": [["handler:handle", "--queue", "work"]],
    "gateway": [["--config", "gateway.yaml"]],
    "upgrade": [["--dry-run"], ["--yes"]],
}


@pytest.fixture
def mistyped(lonely):
    """The program where somebody wrote lonly for lonely; another instance is other."""
    with ampsq.Client(lonely.environment["AMPSQ_URL"], instance="other"):
        pass
    (lonely.folder / "handler.py").write_text("def handle(message):\n    pass\n")
    (lonely.folder / "gateway.yaml").write_text("users: []\n")
    lonely.environment["AMPSQ_INSTANCE"] = "lonly"
    return lonely


def kept(program):
    """All that the server has."""
    with contextlib.closing(Store(program.environment["AMPSQ_URL"], "", retry_timeout=5.0)) as store:
        return sorted(store.redis.keys())


def test_every_command_is_looked_at():
    assert {*CALLS} | WITHOUT == {*COMMANDS}


@pytest.mark.parametrize(
    ("command", "arguments"), [(command, arguments) for command, each in CALLS.items() for arguments in each]
)
def test_an_instance_that_is_not_there_is_refused_and_those_that_are_there_are_named(mistyped, command, arguments):
    # given
    before = kept(mistyped)
    # when
    result = mistyped(command, *arguments, code=2)
    # then: nothing was made
    assert " has no instance 'lonly'; did you mean 'lonely'? there are 'lonely', 'other'." in result.err
    assert "`ampsq apply FILE --instance lonly` makes it" in result.err
    assert not result.out
    assert kept(mistyped) == before


def test_an_instance_behind_an_address_is_refused_too(mistyped):
    result = mistyped("queues", "--url", f"{mistyped.environment['AMPSQ_URL']}#othre", code=2)
    assert "has no instance 'othre'; did you mean 'other'?" in result.err


def test_the_default_name_is_refused_where_there_are_others(mistyped):
    del mistyped.environment["AMPSQ_INSTANCE"]
    result = mistyped("queues", code=2)
    assert "has no instance 'ampsq'; there are 'lonely', 'other'" in result.err


def test_the_default_name_begins_a_server_that_has_none_and_says_so(mistyped):
    # given
    del mistyped.environment["AMPSQ_INSTANCE"]
    with acquire(mistyped.folder / "d", coordinator=False) as server:
        mistyped.environment["AMPSQ_URL"] = server.url
        # when
        first, second = mistyped("publish", "orders", "{}"), mistyped("queues")
    # then
    assert f"Note: a new instance, 'ampsq', the first one of {server.url}" in first.err
    assert "new instance" not in second.err


def test_apply_makes_the_instance_that_it_names(mistyped):
    # when
    mistyped("apply", "-", "--yes", stdin="topics: [{name: orders}]")
    # then
    assert "orders" in mistyped("topics").out


def test_a_named_instance_is_refused_in_a_folder_without_data_which_stays_without(alone):
    result = alone("queues", "--instance", "nyc", code=2)
    assert (
        f"{alone.folder.resolve()}/.ampsq, a folder without data, has no instance 'nyc'; there is none." in result.err
    )
    assert not list(alone.folder.iterdir())


def test_up_makes_the_instance_that_it_names(alone):
    # given
    process = alone.start("up", "--instance", "nyc")
    while "Ctrl-C ends it" not in process.stdout.readline():
        assert process.poll() is None
    # when
    found = alone("queues", "--instance", "nyc")
    missing = alone("queues", "--instance", "lon", code=2)
    # then
    assert "no queues yet" in found.err
    assert "there is 'nyc'" in missing.err
    alone.end(process)


def test_of_many_instances_some_are_named(lonely):
    with ampsq.Client(lonely.environment["AMPSQ_URL"], instance="shop", partitions=64):
        pass
    lonely.environment["AMPSQ_INSTANCE"] = "nowhere"
    refused = lonely("queues", code=2).err
    assert re.search(r"there are ('[^']*', ){19}'[^']*' and \d+ more\.", refused)
