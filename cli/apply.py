"""``ampsq apply``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ampsq.cli.options import Settings, connected, log_to_stderr
from ampsq.cli.output import note
from ampsq.cli.plan import confirm, show_plan, tell_json
from ampsq.errors import AmpsqError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.client import Client
    from ampsq.definitions.definition import Definition, Loaded

__all__ = ["apply", "loaded_from", "settled", "surplus", "waiting_in"]

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
  ampsq apply queues.yaml                    # the same, and asks
  ampsq apply queues.yaml --yes              # does not ask, as in scripts
  ampsq apply queues.yaml --prune            # also removes what the file does not have
  ampsq apply - --yes < queues.yaml
  ampsq apply broker.xml --dry-run           # what of it is not acted on, too

\b
Exit codes:
  0  done, or nothing to do
  1  refused: nothing was done
  3  not confirmed: nothing was done
"""


def loaded_from(file: str) -> Loaded:
    """What a file defines, or standard input for ``-``; what is not acted on goes to standard error."""
    from ampsq.files.config import load

    log_to_stderr(30, times=False)
    # A text without a line break could be taken for a path.
    return load(sys.stdin.read() + "\n") if file == "-" else load(Path(file))


def settled(settings: Settings, loaded: Loaded) -> Settings:
    """Where the file is applied: by the command, the environment, or what the file says of itself."""
    from ampsq.definitions.instance import ITSELF, Instance

    name = next((each.name for each in loaded if isinstance(each, Instance) and each.name != ITSELF), None)
    return settings.completed(loaded.url, name)


@click.command(epilog=_EPILOG)
@click.argument("file")
@click.option("--dry-run", is_flag=True, help="Only say what would change.")
@click.option("--prune", is_flag=True, help="Remove what is defined and not in the file.")
@click.option("--yes", is_flag=True, help="Do it without asking.")
@connected
def apply(settings: Settings, file: str, *, dry_run: bool, prune: bool, yes: bool) -> None:
    """Define an instance, its topics, queues, views, actions, destinations and the rest from a file.

    Shows what would change, + for new, ~ for changed, - for removed, element by element, and asks. FILE is YAML, or a
    configuration of AMPS, or the broker.xml of an Artemis, telling what is not acted on; - is standard input. It is
    checked whole, against the server too, before anything is done. What is already so is left alone, so that a file
    may be applied again and again. A definition is whole: an element left out goes back to its default. Without
    --prune nothing is removed.
    """
    definitions = loaded_from(file)
    if not definitions and not prune:
        note(f"{file} defines nothing")
        return
    with settled(settings, definitions).client(makes=True, advise=True) as client:
        try:
            removed = surplus(client, definitions) if prune else []
            plans = client.plan(*definitions, removing=removed)
            if not settings.json:
                show_plan(plans, removed, waiting_in(client, removed))
            if (removed or any(plan.outcome != "unchanged" for plan in plans)) and not dry_run:
                confirm(yes=yes, from_stdin=file == "-")
                client.apply(*definitions)
                client.remove(*removed)
        except AmpsqError as error:
            raise click.ClickException(definitions.placed(error)) from error
    if settings.json:
        tell_json(plans, removed)
    if dry_run:
        note("a dry run: nothing was done")


def waiting_in(client: Client, removed: Sequence[Definition]) -> dict[str, int]:
    """How many messages there are in the queues that are to be removed."""
    from ampsq.models import Queue

    return {each.name: client.queue_stats(each.name).depth for each in removed if isinstance(each, Queue)}


def surplus(client: Client, definitions: Loaded) -> list[Definition]:
    """What is defined and the file does not have."""
    from ampsq.definitions.defined import left_out

    return left_out(client.definitions(), definitions)
