"""``ampsq topics``."""

from __future__ import annotations

import click

from ampsq.cli.options import Settings, connected
from ampsq.cli.output import json_line, note, table

__all__ = ["topics"]

_EPILOG = """\b
Examples:
  ampsq topics
  ampsq topics --json | jq -r .topic
"""


@click.command(epilog=_EPILOG)
@connected
def topics(settings: Settings) -> None:
    """List the topics.

    For each topic: how many messages its log has, the bookmark of the last one, and the queues that it feeds.
    """
    with settings.client() as client:
        found = client.topics()
    if settings.json:
        for name, facts in found.items():
            json_line({"topic": name, **facts})
    elif found:
        rows = [
            [name, facts["messages"], ", ".join(facts["queues"]) or None, facts["last"]]
            for name, facts in found.items()
        ]
        table(["topic", "messages", "queues", "last"], rows)
    else:
        note("no topics yet; ampsq publish TOPIC JSON makes one, ampsq apply FILE defines them")
