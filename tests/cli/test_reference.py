"""Help, completion and reference are made of the commands, and complete."""

from __future__ import annotations

import itertools
import shlex
from pathlib import Path

import click
import pytest

from ampsq.cli.main import COMMANDS, program
from ampsq.cli.reference import commands, reference
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
    assert (ROOT / "docs" / "cli.md").read_text() == reference(), "python -m ampsq.cli.reference > docs/cli.md"


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
