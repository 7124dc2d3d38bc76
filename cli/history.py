"""``ampsq history``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ampsq.base.formatting import time_text
from ampsq.cli.listing import listing_options, print_records
from ampsq.cli.output import table
from ampsq.queues.history_texts import event_details

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ampsq.base.bookmarks import Bookmark
    from ampsq.cli.options import CommandSettings
    from ampsq.queues.history import History
    from ampsq.topics.topic_state import TopicState

__all__ = ["history"]

_EPILOG = """\b
Examples:
  ampsq history orders~ampsq.t6w1xka~1763640000000-0
  ampsq history orders~ampsq.t6w1xka~1763640000000-0 --json | jq '.events[].event'
  ampsq history orders~ampsq.t6w1xka~1763640000000-0 -o csv     # the events
"""
_COLUMNS = ("at", "queue", "event", "by", "details")


@click.command(epilog=_EPILOG)
@click.argument("bookmark")
@listing_options(_COLUMNS)
def history(settings: CommandSettings, bookmark: str) -> None:
    """Tell a message's life as a timeline.

    When it was published, and in each queue that its topic feeds: how it came back, how, when and by whom it was
    settled, and where it is now. Deliveries are told of live leases, and of queues that record them.
    """
    with settings.client(merged=True) as client:
        found = client.admin.history(bookmark)
        topics = {} if found.recorded or found.events else client.admin.topics()
    records = [event.as_dict() for event in found.events] if settings.output == "csv" else [found.as_dict()]
    if not print_records(settings, records):
        _show(found)
    if not found.recorded and not found.events:
        # A message that was removed may be told of all the same.
        raise click.ClickException(f"nothing is known of a message {found.bookmark}{_meant(found.bookmark, topics)}")


def _meant(bookmark: Bookmark, topics: Mapping[str, TopicState]) -> str:
    """Say what there is instead."""
    from ampsq.base.suggestions import nearest

    if bookmark.topic not in topics:
        return f"; topic {bookmark.topic!r}: {nearest(bookmark.topic, topics, 'topic')}" if topics else ""
    first, last = topics[bookmark.topic].first, topics[bookmark.topic].last
    return f"; the log of {bookmark.topic!r} " + (f"has {first} to {last}" if last else "is empty")


def _show(found: History) -> None:
    print(found.bookmark)
    if not found.recorded:
        print("The log does not have this message: it never was published, or it was removed.")
    print()
    rows = []
    for event in found.events:
        at = "-" if event.at is None else time_text(event.at)
        rows.append(
            (at, event.queue or None, event.event.replace("_", " "), event.by or None, event_details(event.details))
        )
    if rows:
        table(["when", "queue", "what", "by", "details"], rows)
        print()
    for state in found.queues:
        print(f"{state.queue}: {state.state}. {state.sentence}")
    if not found.queues:
        print("No queue reads its topic.")
