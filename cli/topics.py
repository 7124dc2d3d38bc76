"""``ampsq topics``."""

from __future__ import annotations

from typing import Any

import click

from ampsq.cli.options import Settings, connected
from ampsq.cli.output import json_line, note, table

__all__ = ["topics"]

_EPILOG = """\b
bytes      memory of the topic's log, about
retention  what is beyond it is removed as soon as nobody needs it; - keeps all
pinned by  who needs the first message that is kept beyond the retention
--json has more: the first message, the pinned one, what it is there, how many are kept.

\b
Examples:
  ampsq topics
  ampsq topics --json | jq -r .topic
  ampsq topics --json | jq -c 'select(.pinned) | {topic, pinned_by, pinned, state, kept}'
"""


@click.command(epilog=_EPILOG)
@connected
def topics(settings: Settings) -> None:
    """List the topics.

    For each topic: how many messages its log has, their memory, the queues that it feeds, what of it is kept and what
    is in the way of that, and the bookmark of the last message.
    """
    with settings.client() as client:
        found = client.topics()
    if settings.json:
        for name, facts in found.items():
            json_line({"topic": name, **facts})
    elif found:
        rows = [
            [
                *(name, facts["messages"], facts["bytes"], ", ".join(facts["queues"]) or None),
                *(_retention(facts["retention"]), facts["pinned_by"], facts["last"]),
            ]
            for name, facts in found.items()
        ]
        table(["topic", "messages", "bytes", "queues", "retention", "pinned by", "last"], rows)
    else:
        note("no topics yet; ampsq publish TOPIC JSON makes one, ampsq apply FILE defines them")


def _retention(elements: dict[str, Any]) -> str | None:
    return ", ".join(f"{name.removeprefix('retention_')} {value}" for name, value in elements.items()) or None
