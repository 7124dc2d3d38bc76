"""``ampsq apply``."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from ampsq.cli.options import Settings, connected, log_to_stderr
from ampsq.cli.output import json_line, note

if TYPE_CHECKING:
    from ampsq.calls import Catalog
    from ampsq.models import Definition

__all__ = ["apply"]

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
  ampsq apply queues.yaml
  ampsq apply - < queues.yaml
"""


@click.command(epilog=_EPILOG)
@click.argument("file")
@connected
def apply(settings: Settings, file: str) -> None:
    """Define topics, queues and actions from a YAML file.

    FILE is checked whole before anything is done; - is standard input. What is already so is left alone, so
    that a file may be applied again and again. Nothing is removed.
    """
    from ampsq.config import load  # noqa: PLC0415 - pydantic, which no help needs

    log_to_stderr(30, times=False)
    # A text without a line break could be taken for a path.
    definitions = load(sys.stdin.read() + "\n") if file == "-" else load(Path(file))
    if not definitions:
        note(f"{file} defines nothing")
        return
    with settings.client(advise=True) as client:
        before = _catalog(client.url, client.instance)
        for definition in definitions:
            outcome = _outcome(before, definition)
            client.apply(definition)
            kind = type(definition).__name__.lower()
            if settings.json:
                json_line({"kind": kind, "name": definition.name, "result": outcome})
            else:
                print(f"{kind} {definition.name}: {outcome}", flush=True)


def _catalog(url: str, instance: str) -> Catalog:
    from ampsq.calls import catalog  # noqa: PLC0415
    from ampsq.store import Store  # noqa: PLC0415

    with contextlib.closing(Store(url, instance)) as store:
        return store.call(catalog())


def _outcome(before: Catalog, definition: Definition) -> Literal["new", "changed", "unchanged"]:
    """What applying a definition comes to. A topic that was only used until now is no news either."""
    known = {"Topic": before.topics, "Queue": before.queues, "Action": before.actions}[type(definition).__name__]
    text = known.get(definition.name)
    if text is None:
        return "new"
    return "unchanged" if text in (definition.to_json(), "{}") else "changed"
