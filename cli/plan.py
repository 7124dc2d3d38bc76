"""Plan of applying a file: the changes are shown, and a question asked before they are made."""

from __future__ import annotations

import re
import sys
from collections import Counter
from typing import TYPE_CHECKING, Final

import click

from ampsq.cli.formatting import INTERVALS, element_text
from ampsq.cli.output import json_text, note

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ampsq.catalog.apply import Planned
    from ampsq.definitions.queue import Definition

__all__ = ["COLUMNS", "NOT_CONFIRMED", "confirm", "plan_records", "show_plan"]

#: Of `plan_records`.
COLUMNS: Final = ("kind", "name", "result", "changes")

NOT_CONFIRMED: Final = 3
"""The exit code where nobody said yes."""

#: Between the words of a definition's kind.
_WORD: Final = re.compile("(?<=[a-z])(?=[A-Z])")
_MARKS: Final = {"new": ("+", "green"), "changed": ("~", "yellow"), "removed": ("-", "red")}


def show_plan(plans: Sequence[Planned], removed: Sequence[Definition], waiting: Mapping[str, int]) -> None:
    """Print what would change, a mark before each definition, and how much of each there is.

    Args:
        plans: what applying the file comes to.
        removed: what would be removed.
        waiting: queues that would be removed -> messages in them.
    """
    from ampsq.definitions.queue import Queue

    counts = Counter(plan.outcome for plan in plans)
    for plan in plans:
        if plan.outcome != "unchanged":
            _print(plan.outcome, plan.definition, _elements(plan))
    for definition in removed:
        number = waiting.get(definition.name, 0) if isinstance(definition, Queue) else 0
        lost = f"{number} message{'' if number == 1 else 's'} in it, which nobody gets from it any more"
        _print("removed", definition, (lost,) if number else ())
    told = {"new": counts["new"], "changed": counts["changed"], "removed": len(removed)}
    if not any(told.values()):
        number = counts["unchanged"]
        print(f"nothing to do: {number} definition{' is' if number == 1 else 's are'} as in the file", flush=True)
        return
    words = [f"{number} {what}" for what, number in told.items() if number]
    print(", ".join([*words, f"{counts['unchanged']} unchanged"]), flush=True)


def plan_records(plans: Sequence[Planned], removed: Sequence[Definition]) -> Iterator[dict[str, object]]:
    """The same for programs, a definition each, also those that are unchanged."""
    for plan in plans:
        changes = {element: {"from": old, "to": new} for element, (old, new) in plan.changes.items()}
        words = {"kind": _kind(plan.definition), "name": plan.definition.name, "result": plan.outcome}
        yield {**words, **({"changes": changes} if changes else {})}
    for definition in removed:
        yield {"kind": _kind(definition), "name": definition.name, "result": "removed"}


def confirm(*, yes: bool, from_stdin: bool) -> None:
    """Ask whether to do it; ends the program where the answer is no, or nobody can be asked."""
    if yes:
        return
    if from_stdin or not sys.stdin.isatty():
        note("nothing was done: there is no terminal to ask at; --yes does it without asking")
        raise click.exceptions.Exit(NOT_CONFIRMED)
    if not click.confirm("Do it?", err=True):
        note("nothing was done")
        raise click.exceptions.Exit(NOT_CONFIRMED)


def _elements(plan: Planned) -> Iterator[str]:
    if plan.outcome == "new":
        # What was read as seconds may have been meant as something else: intervals are shown as they were read.
        values = plan.definition.public_elements()
        yield from (f"{element}: {_plain(element, value)}" for element, value in values.items() if element != "name")
    for element, (old, new) in plan.changes.items():
        yield f"{element}: {_plain(element, old)} -> {_plain(element, new)}"


def _print(outcome: str, definition: Definition, elements: Iterator[str] | Sequence[str]) -> None:
    mark, colour = _MARKS[outcome]
    _line(f"{mark} {_kind(definition)} {definition.name}", colour)
    for element in elements:
        print(f"    {element}", flush=True)


def _line(text: str, colour: str) -> None:
    """A line in a colour, at a terminal and with rich."""
    if sys.stdout.isatty():
        try:
            from rich.console import Console
            from rich.text import Text
        except ImportError:
            pass
        else:
            Console(soft_wrap=True).print(Text(text, style=colour))
            return
    print(text, flush=True)


def _kind(definition: Definition) -> str:
    return _WORD.sub(" ", type(definition).__name__).lower()


def _plain(element: str, value: object) -> str:
    """A value as people write it: texts in quotes."""
    if isinstance(value, list | dict) and value:
        return json_text(value)
    text = element_text(element, value)
    return repr(text) if isinstance(value, str) and element not in INTERVALS else text
