"""``ampsq groups``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from ampsq.base.formatting import count_text, printable, span_text
from ampsq.cli.listing import listing_options, print_records
from ampsq.cli.names import names
from ampsq.cli.output import note, table

if TYPE_CHECKING:
    from ampsq.cli.options import CommandSettings
    from ampsq.operations.groups import GroupState

__all__ = ["groups"]

_EPILOG = """\b
Of a group are shown how many messages are leased, how many were read and wait, how many
failed and hold it, since when it was stopped, and when the first that waits was recorded.
What the queue has not read yet is in no group: ampsq queues has it as waiting.
Weights are shown where there are others than 1.

\b
Examples:
  ampsq groups work
  ampsq groups work --top 100 --json
  ampsq groups work --release alice                # it goes on, with what comes behind
"""
_COLUMNS = ("group", "leased", "waiting", "failed", "stopped", "oldest", "weight")


@click.command(epilog=_EPILOG)
@click.argument("queue", shell_complete=names("queues"))
@click.option("--top", type=click.IntRange(1, 500), default=20, show_default=True, help="How many groups are shown.")
@click.option("--release", metavar="GROUP", help="End what a failed message, or a dead letter, does to this group.")
@listing_options(_COLUMNS)
def groups(settings: CommandSettings, queue: str, top: int, release: str | None) -> None:
    """Show the groups of a queue, or let one go on.

    Those that stand still come first, then those with the most messages that wait. --release ends the hold of a
    group's failed messages, and of one that was stopped; what is leased of it stays leased.
    """
    with settings.client(merged=True) as client:
        if release is not None:
            done = client.admin.release_group(queue, release)
            note(f"group {release} goes on" if done else f"group {release} was neither held nor stopped")
            return
        found = client.admin.groups(queue, limit=top)
    rows = [state.as_dict() for state in found.groups]
    if print_records(settings, rows):
        return
    if rows:
        has_weights = any(state.weight > 1 for state in found.groups)
        width = len(_COLUMNS) if has_weights else _COLUMNS.index("weight")
        table(_COLUMNS[:width], [_row(state)[:width] for state in found.groups])
    if not found.is_all or found.number > len(rows):
        at_least = "" if found.is_all else "at least "
        note(f"{at_least}{count_text(found.number, 'group')}; --top shows more of them")
    elif not rows:
        note("nothing of the queue is in a group now; what is unread is in none yet")


def _row(state: GroupState) -> list[object]:
    """A group for people: times as how long ago they were."""
    counts = (state.leased, state.waiting, state.failed)
    return [printable(state.group), *counts, _ago(state.stopped), _ago(state.oldest), state.weight]


def _ago(time: datetime | None) -> str:
    if time is None:
        return ""
    return span_text(max(round((datetime.now(UTC) - time).total_seconds() * 1000), 0))
