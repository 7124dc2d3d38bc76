"""``ampsq ack``."""

from __future__ import annotations

import click

from ampsq.cli.options import Settings, connected
from ampsq.cli.output import json_line
from ampsq.errors import AmpsqError, DefinitionError, Rejected, UnknownQueue
from ampsq.values import Bookmark

__all__ = ["ack"]

_EPILOG = """\b
Examples:
  ampsq ack work orders~ampsq.t6w1xka~1763640000000-0
  ampsq subscribe work --no-ack --count 1 --json | jq -r .bookmark
  ampsq ack work --expire $(cat bookmarks.txt)
"""


@click.command(epilog=_EPILOG)
@click.argument("queue")
@click.argument("bookmarks", metavar="BOOKMARK...", nargs=-1, required=True)
@click.option("--cancel", is_flag=True, help="Hand leased messages back: they are delivered again.")
@click.option("--expire", is_flag=True, help="Remove them unprocessed; dead-letter actions see them.")
@connected
def ack(settings: Settings, queue: str, bookmarks: tuple[str, ...], *, cancel: bool, expire: bool) -> None:
    """Acknowledge, cancel or expire messages by bookmark.

    Messages need not be delivered to be acknowledged or expired. Each bookmark that is refused is reported,
    and the others are settled all the same; a text that is no bookmark settles nothing.
    """
    if cancel and expire:
        raise click.UsageError("--cancel and --expire exclude each other")
    option, verb = ("cancel", "cancelled") if cancel else ("expire", "expired") if expire else ("ack", "acknowledged")
    checked = [Bookmark.parse(text) for text in bookmarks]
    refused = 0
    with settings.client() as client:
        for bookmark in checked:
            try:
                client.ack(queue, [bookmark], option)
            except UnknownQueue:
                raise
            except (Rejected, DefinitionError) as error:
                refused += 1
                _report(bookmark, error)
    if settings.json:
        json_line({verb: len(checked) - refused, "refused": refused})
    else:
        print(f"{verb} {len(checked) - refused} of {len(checked)}" if refused else f"{verb} {len(checked)}")
    if refused:
        click.get_current_context().exit(1)


def _report(bookmark: Bookmark, error: AmpsqError) -> None:
    text = str(error)
    click.echo(f"Error: {text}" if bookmark in text else f"Error: {bookmark}: {text}", err=True)
