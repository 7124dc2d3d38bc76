"""``ampsq ack``."""

from __future__ import annotations

import click

from ampsq.base.bookmarks import Bookmark, split_bookmarks
from ampsq.base.errors import AmpsqError, DefinitionError, Rejected, UnknownQueue
from ampsq.cli.confirmation import bulk, go_on
from ampsq.cli.names import names
from ampsq.cli.options import CommandSettings, connection_options
from ampsq.cli.output import json_line
from ampsq.queues.returns import checked_reason

__all__ = ["ack", "by_bookmark", "by_filter"]

_EPILOG = """\b
Examples:
  ampsq ack work orders~ampsq.t6w1xka~1763640000000-0
  ampsq subscribe work --no-ack --count 1 --json | jq -r .bookmark
  ampsq ack work --expire $(cat bookmarks.txt)
  ampsq ack work --filter "/symbol = 'IBM'" --dry-run
  ampsq ack work --filter "/qty = 0" --expire --reason "ticket 4711: no such article" --yes
"""


@click.command(epilog=_EPILOG)
@click.argument("queue", shell_complete=names("queues"))
@click.argument("bookmarks", metavar="[BOOKMARK]...", nargs=-1)
@click.option("--filter", "text", metavar="EXPR", help="Instead of bookmarks: all that match, leased or not.")
@click.option("--cancel", is_flag=True, help="Hand leased messages back: they are delivered again.")
@click.option("--expire", is_flag=True, help="Remove them unprocessed; dead-letter actions see them.")
@click.option("--reason", metavar="TEXT", help="The reason, one line, shown with the messages and their dead letters.")
@bulk
@connection_options
def ack(
    settings: CommandSettings,
    queue: str,
    bookmarks: tuple[str, ...],
    text: str | None,
    reason: str | None,
    *,
    dry_run: bool,
    yes: bool,
    cancel: bool,
    expire: bool,
) -> None:
    """Acknowledge, cancel or expire messages by bookmark or filter.

    Messages need not be delivered to be acknowledged or expired. Each bookmark that is refused is reported,
    and the others are settled all the same; a text that is no bookmark settles nothing. With --filter all
    messages that are in the queue when the command begins are looked at, in its active part if it has a
    target depth; those of others in a queue with strict leasing are left alone. It asks before that; where nobody can
    be asked, it needs --yes.
    """
    if cancel and expire:
        raise click.UsageError("--cancel and --expire exclude each other")
    if bookmarks and text is not None:
        raise click.UsageError("give bookmarks or --filter, not both")
    if not bookmarks and text is None:
        raise click.UsageError("give bookmarks, or --filter EXPR")
    if dry_run and text is None:
        raise click.UsageError("--dry-run goes with --filter")
    option, verb = ("cancel", "cancelled") if cancel else ("expire", "expired") if expire else ("ack", "acknowledged")
    if text is not None:
        by_filter(settings, queue, text, (option, verb), reason=reason, dry_run=dry_run, yes=yes)
    else:
        by_bookmark(settings, queue, bookmarks, (option, verb), reason=reason)


def by_filter(
    settings: CommandSettings,
    queue: str,
    text: str,
    how: tuple[str, str],
    *,
    reason: str | None = None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Settle all that match, once somebody said so. `how`: the client's option and the word for it."""
    option, verb = how
    with settings.client(merged=True) as client:
        if not (dry_run or yes):
            found = client.ack(queue, filter=text, option=option, reason=reason, dry_run=True)
            go_on(found, f"would be {verb}", yes=yes, of="message")
        number = client.ack(queue, filter=text, option=option, reason=reason, dry_run=dry_run)
    if settings.json:
        json_line({"matching" if dry_run else verb: number})
    else:
        print(f"{number} would be {verb}" if dry_run else f"{verb} {number}")


def by_bookmark(
    settings: CommandSettings,
    queue: str,
    bookmarks: tuple[str, ...],
    how: tuple[str, str],
    *,
    reason: str | None = None,
) -> None:
    """Settle some; those that are refused are reported. `how`: the client's option and the word for it."""
    option, verb = how
    checked = [Bookmark.parse(part) for text in bookmarks for part in split_bookmarks(text)]
    checked_reason(reason)
    refused = 0
    with settings.client(merged=True) as client:
        for bookmark in checked:
            try:
                client.ack(queue, [bookmark], option, reason=reason)
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
