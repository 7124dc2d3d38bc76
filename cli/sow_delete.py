"""``ampsq sow-delete``."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import click

from ampsq.cli.confirmation import bulk, go_on
from ampsq.cli.names import names
from ampsq.cli.options import CommandSettings, connection_options
from ampsq.cli.output import json_line

if TYPE_CHECKING:
    from ampsq import Client

__all__ = ["sow_delete"]

_EPILOG = """\b
Examples:
  ampsq sow-delete orders --key 7 --key 8
  ampsq sow-delete orders --filter '/state = "done"' --dry-run
  ampsq sow-delete orders --filter '/state = "done"' --yes
  ampsq sow-delete orders --data '{"id": 7}'
"""


@click.command(epilog=_EPILOG)
@click.argument("topic", shell_complete=names("topics"))
@click.option("--key", "keys", metavar="KEY", multiple=True, help="The record of this key; may be given again.")
@click.option("--filter", "text", metavar="EXPR", help="All records that match, as in '/qty = 0'.")
@click.option("--data", metavar="JSON", help="The record with the key of this message.")
@bulk
@connection_options
def sow_delete(
    settings: CommandSettings,
    topic: str,
    keys: tuple[str, ...],
    text: str | None,
    data: str | None,
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    """Delete records of a topic with a key, by one of --key, --filter and --data.

    The topic's queues keep their messages. Prints how many records there were. With --filter it asks before; where
    nobody can be asked, it needs --yes.
    """
    if sum((bool(keys), text is not None, data is not None)) != 1:
        raise click.UsageError("give one of --key, --filter and --data")
    if dry_run and data is not None:
        raise click.UsageError("--dry-run goes with --filter and --key")
    with settings.client(merged=True) as client:
        if dry_run or (text is not None and not yes):
            number = _matching(client, topic, keys, text)
            if dry_run:
                _tell(settings, "matching", number)
                return
            go_on(number, "would be deleted", yes=yes, of="record")
        said = None if data is None else _body(client, topic, data)
        number = client.sow_delete(topic, keys=keys or None, filter=text, data=said)
    _tell(settings, "deleted", number)


def _matching(client: Client, topic: str, keys: tuple[str, ...], text: str | None) -> int:
    """Return the number of matching records; of queues and views, which are queried alike, nothing can be deleted."""
    keyed = [name for name, state in client.admin.topics().items() if state.key]
    if topic not in keyed:
        there = ", ".join(map(repr, keyed)) or "none"
        raise click.ClickException(f"{topic!r} is no topic with a key, so it has no records; topics with one: {there}")
    return len(client.sow(topic, text, sow_keys=keys or None))


def _tell(settings: CommandSettings, what: str, number: int) -> None:
    if settings.json:
        json_line({what: number})
    else:
        print(number)


def _body(client: Client, topic: str, data: str) -> object:
    """A message of the topic's type; JSON as it is written."""
    if client.admin.message_type(topic) == "json":
        return os.fsencode(data)
    try:
        return json.loads(data)
    except ValueError as error:
        raise click.UsageError(f"--data {data!r} is not JSON: {error}") from error
