"""``ampsq publishers``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ampsq.base.formatting import moment
from ampsq.cli.listing import listed, told
from ampsq.cli.output import note, table

if TYPE_CHECKING:
    from datetime import datetime

    from ampsq.cli.options import Settings
    from ampsq.publishing.publishers import PublisherState

__all__ = ["publishers"]

_COLUMNS = ("name", "sequence", "bookmark", "at", "client", "seen")


@click.command(epilog="\b\nExamples:\n  ampsq publishers\n  ampsq publishers --json | jq .sequence")
@listed(_COLUMNS)
def publishers(settings: Settings) -> None:
    """List the publishers that have a name: how far they are, and who is logged on.

    Who publishes with a store is logged on from its start to its end in order; who died stays so, until
    the next process logs on under the name. Names of actions and views begin with action: and view:.
    """
    with settings.client() as client:
        found = client.publishers()
    if told(settings, map(_facts, found)):
        return
    if found:
        rows = [
            [
                each.name,
                each.sequence,
                each.bookmark or None,
                _written(each.at),
                each.client or None,
                _written(each.seen) if each.seen is not None else None,
            ]
            for each in found
        ]
        table(("publisher", "sequence", "last message", "at", "logged on", "seen"), rows, spare=("seen", "logged on"))
    else:
        note("no publisher with a name yet; ampsq publish TOPIC MESSAGE --publisher NAME is one")


def _facts(each: PublisherState) -> dict[str, Any]:
    seen = each.seen.isoformat() if each.seen is not None else None
    return {**each._asdict(), "at": each.at.isoformat(), "seen": seen}


def _written(at: datetime) -> str:
    return moment(round(at.timestamp() * 1000))
