"""``ampsq readers``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ampsq.cli.listing import listing_options, print_records
from ampsq.cli.output import note, table

if TYPE_CHECKING:
    from ampsq.cli.options import CommandSettings

__all__ = ["readers"]

_EPILOG = """\b
state    online; durable, which cannot be offlined; replaying, which counts for nothing yet; offline: its messages go to
         disk; disconnected, with the limit that it was beyond
behind   bytes that it has not read or not handed out, about
spooled  bytes of its messages on its client's disk
oldest   seconds for which its oldest message has waited

\b
Examples:
  ampsq readers
  ampsq readers --json | jq -c 'select(.state != "online")'
"""
_COLUMNS = ("client", "transport", "subscription", "topics", "state", "behind", "spooled", "oldest", "reason")


@click.command(epilog=_EPILOG)
@listing_options(_COLUMNS)
def readers(settings: CommandSettings) -> None:
    """List the subscriptions to topics with their use of the limits of slow clients.

    They report about once a second, where limits are defined: see the section transports of ampsq apply.
    """
    with settings.client(merged=True) as client:
        found = client.admin.readers()
    if print_records(settings, (each.as_dict() for each in found)):
        return
    if found:
        rows = [
            [
                *(each.client, each.transport, each.subscription, ", ".join(each.topics) or None),
                *(each.behind, each.spooled, None if each.oldest is None else round(each.oldest, 1)),
                f"{each.state}: {each.reason}" if each.reason else each.state,
            ]
            for each in found
        ]
        table(["client", "transport", "subscription", "topics", "behind", "spooled", "oldest", "state"], rows)
    else:
        note("no subscriptions to topics report; they do where a transport with limits is defined (ampsq apply)")
