"""``ampsq apply``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ampsq.cli.options import Settings, connected, log_to_stderr
from ampsq.cli.output import json_line, note

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
    """Define topics, queues, views and actions from a YAML file.

    FILE is checked whole, against the server too, before anything is done; - is standard input. What is already
    so is left alone, so that a file may be applied again and again. Nothing is removed.
    """
    from ampsq.config import load

    log_to_stderr(30, times=False)
    # A text without a line break could be taken for a path.
    definitions = load(sys.stdin.read() + "\n") if file == "-" else load(Path(file))
    if not definitions:
        note(f"{file} defines nothing")
        return
    with settings.client(advise=True) as client:
        for definition, outcome in client.apply(*definitions):
            kind = type(definition).__name__.lower()
            if settings.json:
                json_line({"kind": kind, "name": definition.name, "result": outcome})
            else:
                print(f"{kind} {definition.name}: {outcome}", flush=True)
