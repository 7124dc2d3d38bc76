"""Writes docs/cli.md, the reference of all commands: ``python tests/cli_reference.py > docs/cli.md``."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING

import click

from ampsq.cli.listing import columns_of
from ampsq.cli.main import EXIT_CODES, program

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["commands", "reference"]

# Lines of Markdown are longer than ours.
# ruff: noqa: E501, T201
_HEAD = """# The command line

This page has every command of `ampsq` with its options, columns and examples. It is made of the program itself by `python tests/cli_reference.py > docs/cli.md`; a test holds it against that.

Options of the server (`--url`, `--instance`, `--data-dir`, `--json`) may stand before the command or behind it. Listings have
`-o table`, `json` (one array), `jsonl` (an object a line, also `--json`), `yaml` and `csv`. The columns that are named below are those of
CSV and the names in the others; they stay, new ones are added at the end. A value that is no text or number is JSON in CSV. The table is for
people and may change. `--watch` shows a listing again and again. Nothing is coloured where the output is no terminal, or with
`NO_COLOR`. Commands that change something, save `apply`, print one object with `--json`, and have no `-o`.

Commands that change many things at once (`ack --filter`, `trim`, `sow-delete --filter`, `actions drop --all`, `dead-letters redrive` and `drop`)
print with `--dry-run` how many there are. Without it they ask first; where there is no terminal to ask at, they need `--yes`.
"""


def commands(command: click.Command = program, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """All commands with their subcommands, by their names, as in ``dead-letters list``."""
    if path:
        yield " ".join(path), command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None:
                yield from commands(found, (*path, name))


def reference() -> str:
    """The page."""
    codes = "\n".join(f"| {code} | {text} |" for code, text in EXIT_CODES.items())
    parts = [_HEAD, f"## Exit codes\n\n| code | meaning |\n|---|---|\n{codes}\n"]
    return "\n".join([*parts, *(_section(path, command) for path, command in commands())])


def _section(path: str, command: click.Command) -> str:
    arguments = [_argument(each) for each in command.params if isinstance(each, click.Argument)]
    subcommands = ["COMMAND ..."] if isinstance(command, click.Group) else []
    text = re.sub(r"\s*\n\s*", " ", inspect.cleandoc(command.help or "").replace("\n\n", "\0"))
    lines = [f"## ampsq {path}", "", f"`{' '.join(['ampsq', path, '[OPTION]...', *arguments, *subcommands])}`", ""]
    lines += [_plain(text).replace("\0", "\n\n"), ""]
    options = [each for each in command.params if isinstance(each, click.Option) and each.help]
    lines += ["| option | |", "|---|---|", *(_row(each) for each in options), ""] if options else []
    columns = columns_of(command)
    lines += ["Columns: " + ", ".join(f"`{name}`" for name in columns) + ".", ""] if columns else []
    epilog = (command.epilog or "").replace("\b\n", "").strip()
    lines += ["```text", epilog, "```", ""] if epilog else []
    return "\n".join(lines)


def _argument(argument: click.Argument) -> str:
    if argument.metavar:
        return argument.metavar
    name = (argument.name or "").upper()
    return name if argument.required else f"[{name}]"


def _row(option: click.Option) -> str:
    value = ""
    if isinstance(option.type, click.Choice):
        value = " " + " or ".join(map(str, option.type.choices))
    elif not option.is_flag:
        value = " " + (option.metavar or (option.name or "").upper())
    default = f" Default: {option.default}." if option.show_default else ""
    return f"| `{', '.join(option.opts)}{value}` | {_plain(option.help or '')}{default} |".replace("||", "\\|\\|")


def _plain(text: str) -> str:
    """A text whose stars and bars mean nothing to Markdown."""
    return re.sub(r"([*_|<>\[\]])", r"\\\1", text)


if __name__ == "__main__":
    print(reference(), end="")
