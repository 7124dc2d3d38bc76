"""``ampsq trim``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ampsq.base.formatting import count_text, size_text
from ampsq.cli.confirmation import bulk, go_on
from ampsq.cli.names import names
from ampsq.cli.options import INTERVAL, CommandSettings, connection_options
from ampsq.cli.output import json_line

if TYPE_CHECKING:
    from ampsq.base.values import Interval

__all__ = ["trim"]

_EPILOG = """\b
Nothing is removed that a queue, an action, a replay or a destination still needs. A coordinator does the same by
itself for topics with a retention; docs/retention.md has the rules.

\b
Examples:
  ampsq trim orders --dry-run
  ampsq trim orders                       # asks; where nobody can be asked, with --yes
  ampsq trim orders --age 7d
  ampsq trim orders --age 0s --yes --json       # all that nobody needs
"""


@click.command(epilog=_EPILOG)
@click.argument("topic", shell_complete=names("topics"))
@click.option("--age", type=INTERVAL, help="Remove messages of at least this age, instead of the topic's retention.")
@bulk
@connection_options
def trim(settings: CommandSettings, topic: str, age: Interval | None, *, dry_run: bool, yes: bool) -> None:
    """Remove messages beyond a topic's retention that nobody needs.

    With partitions= in the address in all partitions, each of which has the limits of the retention for itself.
    """
    with settings.client(merged=True) as client:
        if not (dry_run or yes):
            planned = client.admin.trim(topic, age=age, dry_run=True)
            go_on(planned.removed, "would be removed", yes=yes, of="message")
        done = client.admin.trim(topic, age=age, dry_run=dry_run)
    if settings.json:
        json_line(done.as_dict())
        return
    would = "would be removed" if dry_run else "removed"
    print(f"{count_text(done.removed, 'message')} {would}, about {size_text(done.bytes)}")
    if done.pinned is not None:
        where = f", where it is {done.state}" if done.state else ""
        # Of unread ones only the first was looked at.
        kept = (
            f"{count_text(done.kept, 'message')} or more beyond that {'is' if done.kept == 1 else 'are'} still needed"
        )
        print(f"{kept}: the first, {done.pinned}, by {done.pinned_by}{where}")
