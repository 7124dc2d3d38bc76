"""``ampsq publishers``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ampsq.base.formatting import time_text
from ampsq.cli.listing import listing_options, print_records
from ampsq.cli.output import note, table

if TYPE_CHECKING:
    from datetime import datetime

    from ampsq.cli.options import CommandSettings
    from ampsq.publishing.publishers import PublisherState

__all__ = ["publishers"]

_COLUMNS = ("name", "sequence", "bookmark", "at", "client", "seen")


@click.command(epilog="\b\nExamples:\n  ampsq publishers\n  ampsq publishers --json | jq .sequence")
@listing_options(_COLUMNS)
def publishers(settings: CommandSettings) -> None:
    """List the publishers that have a name: their last message, and the client that is logged on.

    A publisher with a store is logged on from its start until it closes. One that died stays logged on until the next
    process logs on under its name. Names of actions and views begin with action: and view:.
    """
    with settings.client(merged=True) as client:
        found = client.admin.publishers()
    if print_records(settings, map(_facts, found)):
        return
    if found:
        rows = [
            [
                each.name,
                each.sequence,
                each.bookmark or None,
                _time_text(each.at),
                each.client or None,
                _time_text(each.seen),
            ]
            for each in found
        ]
        table(("publisher", "sequence", "last message", "at", "logged on", "seen"), rows, spare=("seen", "logged on"))
    else:
        note("no publisher with a name yet; ampsq publish TOPIC MESSAGE --publisher NAME is one")


def _facts(each: PublisherState) -> dict[str, object]:
    at, seen = (time.isoformat() if time is not None else None for time in (each.at, each.seen))
    return {**each._asdict(), "at": at, "seen": seen}


def _time_text(at: datetime | None) -> str | None:
    return None if at is None else time_text(round(at.timestamp() * 1000))
