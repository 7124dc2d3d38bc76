"""``ampsq doctor``."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING

import click

from ampsq.cli.listing import listing_options, print_records
from ampsq.cli.options import INTERVAL, CommandSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampsq.base.values import Interval
    from ampsq.operations.doctor import Finding

__all__ = ["doctor"]

_EPILOG = """\b
Exit codes:
  0    all is well
  1    something is wrong

\b
Examples:
  ampsq doctor
  ampsq doctor --interval 10s                      # what grows slowly shows in a longer look
  ampsq doctor --json | jq -c 'select(.well | not) | {check, subject, mend}'
"""
_COLUMNS = ("check", "subject", "well", "text", "why", "mend", "partitions")


@contextlib.contextmanager
def _without_client(_settings: CommandSettings) -> Iterator[None]:
    """Each look connects anew: the server may be another one, or in another state."""
    yield


@click.command(epilog=_EPILOG)
@click.option(
    "--interval", type=INTERVAL, default="1s", show_default=True, help="Between two looks: growth shows in them."
)
@listing_options(_COLUMNS, _without_client)
def doctor(settings: CommandSettings, interval: Interval) -> None:
    """Check server, coordinator, queues, links and logs: each fault, why it matters, and how to repair it.

    Looks at version, role, persistence, memory, functions, clock and latency of the server, of a cluster at what
    happens when a primary is lost; whether a coordinator is at work and in time; leases past their deadlines; queues
    that grow with nobody subscribed, or that give a worker one message at a time where it asks for more; dead letters
    of the last hour that wait; links; logs that are kept beyond their retention, and by whom; whether defined topics
    alone are taken; actions. Nothing is changed. Every server that answers is looked at, also one that other commands
    refuse. With partitions= in the address all partitions are looked at: what is wrong names its partition, also one
    whose server is away. Skew is a warning: one partition has, or gets, many more messages than the others.
    """
    from ampsq.base.values import parse_name
    from ampsq.cli.open_instance import DEFAULT

    name, seconds = parse_name(settings.instance or DEFAULT), float(interval) / 1000
    with settings.address(merged=True) as url:
        total = settings.partitions
        found = _examine_all(url, name, total, seconds) if total else _examine(url, name, seconds)
    if not print_records(settings, (finding.as_dict() for finding in found)):
        for finding in found:
            _show(finding)
    if not all(finding.well for finding in found):
        click.get_current_context().exit(1)


def _examine(url: str, instance: str, seconds: float) -> list[Finding]:
    from ampsq.operations.doctor import examine, open_any_server

    with contextlib.closing(open_any_server(url, instance)) as store, store.pipeline() as pipeline:
        return store.run(examine(store.instance, pipeline, seconds))


def _examine_all(url: str, instance: str, total: int, seconds: float) -> list[Finding]:
    """Look at all partitions."""
    from ampsq.base.partitions import partitions_of
    from ampsq.operations.doctor.partitions import examine_partitions

    return examine_partitions(url, partitions_of(instance, total), seconds)


def _show(finding: Finding) -> None:
    mark, colour = ("ok   ", "green") if finding.well else ("WRONG", "red")
    head = click.style(mark, fg=colour, bold=not finding.well)
    text = _fitting(f"{finding.check}, {finding.subject}: {finding.text}", "       ")
    click.echo(f"{head}  {text}", color=_coloured())
    if not finding.well:
        click.echo(f"       why: {_fitting(finding.why, ' ' * 12)}")
        # A command is one line, to be taken as it is.
        click.echo(f"       do:  {finding.mend}")


def _fitting(text: str, indent: str) -> str:
    """A text whose first line stands behind an indent, broken at words where a terminal would break it anywhere."""
    if not sys.stdout.isatty():
        return text
    width = max(shutil.get_terminal_size().columns - len(indent), 20)
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return f"\n{indent}".join(lines)


def _coloured() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
