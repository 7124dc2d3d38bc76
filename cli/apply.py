"""``ampsq apply``."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ampsq.cli.options import Settings, connected, log_to_stderr
from ampsq.cli.output import json_line, note
from ampsq.cli.wording import INTERVALS, element_text
from ampsq.errors import AmpsqError

if TYPE_CHECKING:
    from ampsq.applying import Planned
    from ampsq.definition import Loaded

__all__ = ["apply"]

#: Between the words of a definition's kind.
_WORD: Final = re.compile("(?<=[a-z])(?=[A-Z])")

_EPILOG = """\b
A file:
  topics:
    - name: orders
  queues:
    - name: work
      underlying_topic: orders
      lease_period: 30s
      max_per_subscription_backlog: 100
      max_deliveries: 5
  actions:
    - dead_letter: {queue: work, topic: dead}

\b
Examples:
  ampsq apply queues.yaml --dry-run          # what would change, element by element
  ampsq apply queues.yaml
  ampsq apply - < queues.yaml
  ampsq apply broker.xml --dry-run           # what of it is not acted on, too
"""


@click.command(epilog=_EPILOG)
@click.argument("file")
@click.option("--dry-run", is_flag=True, help="Only say what is new, changed and unchanged.")
@connected
def apply(settings: Settings, file: str, *, dry_run: bool) -> None:
    """Define an instance, its topics, queues, views, actions, destinations and the rest from a file.

    FILE is YAML, or a configuration of AMPS, or the broker.xml of an Artemis, telling what is not acted on. It
    is checked whole, against the server too, before anything is done; - is standard input. What is already so is left
    alone, so that a file may be applied again and again. Nothing is removed. A definition is whole: an element left out
    goes back to its default.
    """
    from ampsq.config import load
    from ampsq.instance import ITSELF, Instance

    log_to_stderr(30, times=False)
    # A text without a line break could be taken for a path.
    definitions = load(sys.stdin.read() + "\n") if file == "-" else load(Path(file))
    if not definitions:
        note(f"{file} defines nothing")
        return
    name = next((each.name for each in definitions if isinstance(each, Instance) and each.name != ITSELF), None)
    with settings.completed(definitions.url, name).client(advise=True) as client:
        try:
            planned = client.plan(*definitions)
            done = [plan.outcome for plan in planned] if dry_run else [each for _, each in client.apply(*definitions)]
        except AmpsqError as error:
            raise click.ClickException(definitions.placed(error)) from error
    for plan, outcome in zip(planned, done, strict=True):
        _tell(settings, plan, outcome, definitions)
    if dry_run:
        note("a dry run: nothing was done")


def _tell(settings: Settings, plan: Planned, outcome: str, loaded: Loaded) -> None:
    definition = plan.definition
    kind, name = type(definition).__name__, definition.name
    if settings.json:
        changes = {element: {"from": old, "to": new} for element, (old, new) in plan.changes.items()}
        words = {"kind": _WORD.sub(" ", kind).lower(), "name": name, "result": outcome}
        json_line({**words, **({"changes": changes} if changes else {})})
        return
    told = [
        f"{element} {_plain(element, old)} -> {_plain(element, new)}" for element, (old, new) in plan.changes.items()
    ]
    if outcome == "new":
        # What was read as seconds may have been meant as something else.
        values = definition.elements()
        told = [f"{element} {_plain(element, values.get(element))}" for element in loaded.seconds.get((kind, name), ())]
    print(f"{_WORD.sub(' ', kind).lower()} {name}: {outcome}" + (f": {', '.join(told)}" if told else ""), flush=True)


def _plain(element: str, value: Any) -> str:
    """A value as people write it: texts in quotes."""
    text = element_text(element, value)
    return repr(text) if isinstance(value, str) and element not in INTERVALS else text
