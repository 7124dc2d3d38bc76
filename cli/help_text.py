"""Help that fits its terminal: also lists and examples, whose lines click leaves as they are."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["fit_help"]

#: The line with which click is told to leave a paragraph as it is.
_AS_IT_IS: Final = "\b"
#: A command and the comment behind it.
_COMMENTED = re.compile(r"(?P<indent> *)(?P<command>\S.*?) {2,}# (?P<comment>.+)")
#: A word, and what it means.
_EXPLAINED = re.compile(r"(?P<word> *\S.*? {2,})(?P<meaning>\S.*)")


class _Formatter(click.HelpFormatter):
    """Breaks lines that are wider than the terminal where a reader would."""

    def write_text(self, text: str) -> None:
        """Write paragraphs, those that click leaves as they are fitted into the width."""
        width = self.width - self.current_indent
        paragraphs = [
            "\n".join([_AS_IT_IS, *(short for line in lines for short in _fitted(line, width))])
            if marker == _AS_IT_IS
            else "\n".join([marker, *lines])
            for marker, *lines in (paragraph.split("\n") for paragraph in text.split("\n\n"))
        ]
        super().write_text("\n\n".join(paragraphs))


class _Context(click.Context):
    formatter_class = _Formatter


def fit_help(command: click.Command) -> click.Command:
    """Let the help of a command, and of those below it, fit the terminal."""
    command.context_class = _Context
    for each in getattr(command, "commands", {}).values():
        fit_help(each)
    return command


def _fitted(line: str, width: int) -> Iterator[str]:
    if len(line) <= width:
        yield line
    elif commented := _COMMENTED.fullmatch(line):
        indent = commented["indent"]
        yield from textwrap.wrap(
            commented["comment"], width, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# "
        )
        yield from _command(indent + commented["command"], indent, width)
    elif line.lstrip().startswith("ampsq "):
        yield from _command(line, line[: len(line) - len(line.lstrip())], width)
    else:
        explained = _EXPLAINED.fullmatch(line)
        indent = " " * (len(explained["word"]) if explained else len(line) - len(line.lstrip()))
        yield from textwrap.wrap(line, width, subsequent_indent=indent, break_on_hyphens=False, drop_whitespace=True)


def _command(line: str, indent: str, width: int) -> Iterator[str]:
    """Break a command before an option, as a shell takes it."""
    while len(line) > width:
        at = line.rfind(" -", len(indent) + 1, width - 1)
        at = at if at > 0 else line.rfind(" ", len(indent) + 1, width - 1)
        if at <= 0:
            break
        yield f"{line[:at]} \\"
        line = f"{indent}    {line[at + 1 :]}"
    yield line
