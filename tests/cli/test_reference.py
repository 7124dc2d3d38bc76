"""Help, completion and reference are made of the commands, and complete."""

from __future__ import annotations

import itertools
import shlex
from pathlib import Path
from typing import get_args

import click
import pytest
from cli_reference import commands, reference
from observing import eventually

from ampsq import Action, Destination, Do, Queue, Topic, View
from ampsq.base.values import ExpiryReason
from ampsq.cli.main import COMMANDS, program
from ampsq.transport.instances import POLICIES

ROOT = Path(__file__).resolve().parents[2]
ALL = dict(commands())


def examples(command):
    """The command lines of an epilog, up to what a shell does with them."""
    for line in (command.epilog or "").splitlines():
        if line.startswith("  ") and " ampsq " in line:
            words = shlex.shlex(line, posix=True, punctuation_chars="|<>;")
            words.whitespace_split = True
            for is_ours, one in itertools.groupby(words, lambda word: not set(word) <= set("|<>;") or not word):
                found = list(one)
                if is_ours and found[0] == "ampsq":
                    yield found[1:]


def parsed(words):
    """Find the command of a line, and let it read its options, without doing anything."""
    command, context = program, click.Context(program, info_name="ampsq")
    path = []
    while True:
        _, rest, _ = command.make_parser(context).parse_args(list(words))
        if not isinstance(command, click.Group) or not rest:
            return " ".join(path)
        name, command, words = command.resolve_command(context, rest)
        path.append(name)
        context = click.Context(command, info_name=name, parent=context)


@pytest.mark.parametrize("path", ALL)
def test_every_command_has_an_example_and_all_its_examples_can_be_read(path):
    own = [parsed(words) for words in examples(ALL[path])]
    group = ALL.get(path.rpartition(" ")[0])
    told = own + ([parsed(words) for words in examples(group)] if group is not None else [])

    assert path in told or any(found.startswith(f"{path} ") for found in told)


def test_the_page_of_the_command_line_is_that_of_the_program():
    assert (ROOT / "docs" / "cli.md").read_text() == reference(), "python tests/cli_reference.py > docs/cli.md"


def test_options_that_mean_the_same_have_one_name():
    meanings = {}
    for path, command in ALL.items():
        for option in command.params:
            if isinstance(option, click.Option) and option.name in {"url", "instance", "data_dir", "json", "yes"}:
                meanings.setdefault(option.name, set()).add(option.opts[0])
                assert option.opts[0] == f"--{option.name.replace('_', '-')}", path
    assert set(meanings) == {"url", "instance", "data_dir", "json", "yes"}


def test_the_policies_of_failing_over_are_those_of_clients():
    (option,) = [each for each in ALL["subscribe"].params if each.name == "failover"]
    assert tuple(option.type.choices) == POLICIES


@pytest.mark.parametrize(("shell", "line"), [("bash", "complete -o"), ("zsh", "#compdef ampsq"), ("fish", "complete ")])
def test_a_script_for_each_shell_is_printed(run, shell, line):
    script = run("completion", shell).out

    assert line in script
    assert f"_AMPSQ_COMPLETE={shell}_complete" in script


def completed(program, *words):
    """Return the completions that the shell gets for the last word, as its script asks."""
    program.environment |= {"COMP_WORDS": shlex.join(words), "COMP_CWORD": str(len(words) - 1)}
    program.environment["_AMPSQ_COMPLETE"] = "bash_complete"
    return {line.split(",", 1)[1] for line in program().out.splitlines() if line}


def test_commands_options_and_names_of_the_instance_are_completed(defined_process):
    assert completed(defined_process, "ampsq", "") >= set(COMMANDS)
    assert completed(defined_process, "ampsq", "dead-letters", "re") == {"redrive"}
    assert "--watch" in completed(defined_process, "ampsq", "queues", "--w")
    assert completed(defined_process, "ampsq", "queues", "") == {"other", "work"}
    assert completed(defined_process, "ampsq", "trim", "or") == {"orders"}
    assert completed(defined_process, "ampsq", "actions", "failed", "dead") == {"dead-letter-work"}
    instance = defined_process.environment["AMPSQ_INSTANCE"]
    assert instance in completed(defined_process, "ampsq", "queues", "--instance", "")


@pytest.mark.parametrize(
    "words", [["apply"], ["config", "check"], ["publish", "orders", "--file"], ["gateway", "--key"]]
)
def test_files_are_left_to_the_shell(alone, words):
    alone.environment |= {"COMP_WORDS": shlex.join(["ampsq", *words, "que"]), "COMP_CWORD": str(len(words) + 1)}
    alone.environment["_AMPSQ_COMPLETE"] = "bash_complete"

    assert alone().out == "file,que\n"


def test_without_a_server_names_are_not_completed_and_none_is_started(alone):
    assert completed(alone, "ampsq", "queues", "") == set()
    assert not (alone.folder / ".ampsq").exists()
    assert completed(alone, "ampsq", "--url", "redis://localhost:1", "queues", "") == set()


#: Parameters that name nothing that an instance or a folder has, by what stands for them in the help; what they are.
FREE = {
    "EXPR": "an expression", "REGEX": "a pattern", "JSON": "a body", "[JSON | -]": "a body", "TEXT": "words",
    "BOOKMARK": "one message of any number", "[BOOKMARK]": "the same", "[BOOKMARK]...": "the same",
    "PLACE": "a position in a log",
    "KEY": "one record of any number", "ID": "a field of a body", "N": "a number", "RATE": "a rate", "R": "a rate",
    "S": "a length of time", "INTERVAL": "a length of time", "TIME": "a time", "WHEN": "a time",
    "NAME=VALUE": "a header", "HOST:PORT": "an address", "URL": "an address", "PREFIX": "an address",
    "NUMBER,...": "numbers",
    "MODULE:FUNCTION|MODULE:APP": "code, which completing would have to import",
}  # fmt: skip
#: The same of single parameters, by command and option.
FREE_HERE = {
    "publish --group": "any name makes a group",
    "subscribe-topic --sub-id": "any name makes a durable subscription, and no list of them is kept",
    "acl --user": "a user of the server, whom no role may list",
    "up --console-host": "a host name", "coordinator --console-host": "a host name",
    "coordinator --gateway-host": "a host name", "gateway --host": "a host name",
}  # fmt: skip


def uncompleted():
    """Parameters that neither complete nor are free, each with its command."""
    context = click.Context(program)
    for path, command in ALL.items():
        for each in command.params:
            where = f"{path} {each.opts[0] if isinstance(each, click.Option) else each.name}"
            is_word = isinstance(each.type, click.Choice | click.Path | click.File) or getattr(each, "is_flag", False)
            is_number = isinstance(each.type, click.types.IntParamType) or "interval" in each.type.name
            # A parameter's own completion takes the place of its type's.
            has_own = each._custom_shell_complete is not None
            is_free = (each.metavar or each.make_metavar(context)) in FREE or where in FREE_HERE
            if not (has_own or is_word or is_number or is_free):
                yield where


def test_every_parameter_that_names_something_is_completed():
    assert list(uncompleted()) == []


def test_what_is_free_is_named_by_a_parameter():
    context = click.Context(program)
    shown = {each.metavar or each.make_metavar(context) for command in ALL.values() for each in command.params}
    assert set(FREE) <= shown
    named = {f"{path} {each.opts[0]}" for path, command in ALL.items() for each in command.params}
    assert set(FREE_HERE) <= named


def test_names_of_every_kind_are_completed(defined):
    # Given something of each kind
    with defined.client() as client:
        client.apply(
            Topic(name="records", key=["/id"]),
            View(name="totals", underlying_topic="orders", projection=["COUNT(/id) AS /n"], grouping=["/s"]),
            Queue(name="tenants", underlying_topic="in", group_by="/g"),
            Destination(name="far", addresses=["redis://far.example.com"], sync_type="async", topics=["orders"]),
            Action(name="copy", on={"publish": "orders"}, do=Do.publish(topic="records", data="{{AMPS_DATA}}")),
        )
        client.publish_many("in", [{"g": "alice"}, {"g": "bob"}])
        client.publish("orders", "no object")
        with client.publisher("till") as publisher, client.subscribe("tenants") as held:
            publisher.publish("orders", 1)
            publisher.flush(timeout="30s")
            assert held.get(timeout="30s") is not None
            coordinator = defined.start("coordinator", "--instance", client.instance)
            eventually(lambda: len(client.admin.failed_events("copy")) == 2, within=30)
            # What is being tried again is not listed.
            defined.end(coordinator)

            # When words are completed, then they are what is there
            def of(*words):
                return completed(defined, "ampsq", *words, "")

            queues, instance = {"other", "work", "tenants"}, client.instance
            assert of("top") == of("check") == of("explain") == of("subscribe") == of("ack") == queues
            assert of("dead-letters", "list", "work", "--source") == of("worker", "m:f", "--queue") == queues
            assert of("dead-letters", "redrive", "work", "--to") == queues
            topics = {"dead", "in", "orders", "other", "records", "totals"}
            assert of("topics") == of("acl", "publisher", "--topic") == topics
            assert of("views") == {"totals"}
            assert of("tail") == of("sow") == {*queues, *topics}
            assert of("actions", "failed") == {"copy", "dead-letter-work"}
            assert of("actions", "retry", "copy", "--event") == {"1", "2"}
            assert of("replication", "downgrade") == {"far"}
            assert {"till"} <= of("publish", "orders", "--publisher")
            assert "alice" in of("groups", "tenants", "--release")
            assert {instance} <= of("coordinator", "--instance")
            assert of("dead-letters", "drop", "work", "--reason") == set(get_args(ExpiryReason))
            assert "fsync" in of("publish", "orders", "--persisted")
