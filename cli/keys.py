"""``ampsq keys``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click

from ampsq.base.formatting import count_text, printable, time_text
from ampsq.cli.listing import listing_options, print_records
from ampsq.cli.names import names
from ampsq.cli.output import note, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.cli.options import CommandSettings
    from ampsq.client.client import Client
    from ampsq.operations.hot_keys import HotKeys, Source

__all__ = ["keys"]

_EPILOG = """\b
A row is of a key, or of a partition with all of its keys, where the address asks for partitions. The share is of the
messages that were read. A key whose share is larger than that of a partition, 25% with 4 of them, makes its partition
a hot one, whatever their number: messages of a key have one order. A partition_by that says more, as
[/customer, /order], spreads them, in a new instance.

\b
Examples:
  ampsq keys --hot orders
  ampsq keys --hot work --newest 100000 --top 5
  ampsq keys --hot orders --json | jq -c 'select(.of == "partition")'
"""
_COLUMNS: Final = ("of", "topic", "key", "partition", "instance", "messages", "share")


@click.command(epilog=_EPILOG)
@click.option(
    "--hot",
    "name",
    metavar="QUEUE|TOPIC",
    required=True,
    shell_complete=names("queues", "topics"),
    help="Keys with the most messages, of a topic, or of the topics of a queue.",
)
@click.option(
    "--newest",
    type=click.IntRange(1, 1_000_000),
    default=10_000,
    show_default=True,
    help="How many messages are read at most, the newest ones.",
)
@click.option("--top", type=click.IntRange(1, sys.maxsize), default=20, show_default=True, help="How many keys.")
@listing_options(_COLUMNS)
def keys(settings: CommandSettings, name: str, newest: int, top: int) -> None:
    """Show which keys and which partitions get the most of the newest messages.

    The key of a message is the value of its topic's partition_by, else of the topic's key; where the topic has neither,
    it is the message's group. A key that was given as key= beside these is not recorded, and counts by its partition
    alone. Of a name that is a queue's and a topic's: the queue. Messages are read from the newest one back, of all
    partitions together, and counted where they are; nothing is changed.
    """
    from ampsq.operations.hot_keys import count_newest

    with settings.client(merged=True) as client:
        sources = _sources(client)
        found = count_newest(sources, name, newest)
    rows = [*_partition_rows(found, sources if settings.partitions else ()), *_key_rows(found, sources, top)]
    if not settings.partitions:
        rows = [row | {"partition": None} for row in rows]
    if print_records(settings, rows):
        return
    for of in ("partition", "key"):
        shown = [row for row in rows if row["of"] == of]
        if shown:
            _print(of, shown, has_partitions=bool(settings.partitions), topics=len(found.topics))
        if shown and of == "partition":
            print()
    _note(found, name)


def _sources(client: Client) -> list[Source]:
    from ampsq.operations.hot_keys import Source

    clients: Sequence[Client] = getattr(client, "clients", [client])
    return [Source(each.instance, each._store) for each in clients]  # noqa: SLF001  (our own)


def _partition_rows(found: HotKeys, sources: Sequence[Source]) -> list[dict[str, object]]:
    """Rows of the partitions, those with the most first."""
    numbers = sorted(range(len(sources)), key=lambda number: (-found.partitions[number], number))
    return [_row("partition", None, None, each, sources, found.partitions[each], found.messages) for each in numbers]


def _key_rows(found: HotKeys, sources: Sequence[Source], top: int) -> list[dict[str, object]]:
    return [
        _row("key", key.topic, key.key, key.partition, sources, number, found.messages)
        for key, number in found.keys.most_common(top)
    ]


def _row(  # noqa: PLR0917  (a row)
    of: str, topic: str | None, key: str | None, number: int, sources: Sequence[Source], messages: int, read: int
) -> dict[str, object]:
    share = round(messages / read, 4) if read else 0.0
    values = (of, topic, key, number, sources[number].instance, messages, share)
    return dict(zip(_COLUMNS, values, strict=True))


def _print(of: str, rows: Sequence[dict[str, object]], *, has_partitions: bool, topics: int) -> None:
    columns = ["key"] if of == "key" else []
    columns += ["topic"] if of == "key" and topics > 1 else []
    columns += ["partition", "instance"] if has_partitions else []
    cells = [
        [*(_cell(column, row[column]) for column in columns), row["messages"], f"{row['share']:.1%}"] for row in rows
    ]
    table([*columns, "messages", "share"], cells)


def _cell(column: str, value: object) -> object:
    if column == "key":
        return "(no key)" if value is None else printable(str(value))
    return value


def _note(found: HotKeys, name: str) -> None:
    if not found.messages:
        note(f"{name} has no messages; ampsq topics says what a log has")
        return
    without = sorted(topic for topic, paths in found.topics.items() if not paths)
    note(
        f"of the {count_text(found.messages, 'newest message')} of {name}, from {time_text(found.since)} on; "
        f"{count_text(len(found.keys), 'key')}"
    )
    if without:
        note(f"{', '.join(without)}: no partition_by and no key is defined, so keys are the groups of messages")
