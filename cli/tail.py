"""``ampsq tail``."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import re
import sys
from typing import TYPE_CHECKING, Final

import click

from ampsq.base.formatting import printable
from ampsq.cli.names import names
from ampsq.cli.options import INTERVAL, NUMBER, CommandSettings, connection_options, log_to_stderr
from ampsq.cli.output import Bodies
from ampsq.cli.subscribe_topic import messages_until, topic_json

if TYPE_CHECKING:
    from ampsq.base.values import Interval
    from ampsq.client.client import Client
    from ampsq.topics.subscription import TopicMessage, TopicSubscription

__all__ = ["tail"]

_EPILOG = """\b
Examples:
  ampsq tail work
  ampsq tail orders --filter "/price > 10 AND /symbol LIKE '^A'"
  ampsq tail work --bookmark 2026-05-01T09:00:00Z --count 100
  ampsq tail '^orders-' --timeout 1m
  ampsq tail orders --json | jq .data
"""
#: JSON, taken apart for colours: a name, a text, a number, a word.
_TOKEN: Final = re.compile(
    r'(?P<name>"(?:[^"\\]|\\.)*")(?=\s*:)|(?P<text>"(?:[^"\\]|\\.)*"?)|(?P<number>-?\d[\d.eE+-]*)|(?P<word>true|false|null)'
)
_COLOURS: Final = {"name": "blue", "text": "green", "number": "magenta", "word": "yellow"}


@click.command(epilog=_EPILOG)
@click.argument("name", shell_complete=names("queues", "topics", "views"))
@click.option("--filter", "text", metavar="EXPR", help="Only messages that match, as in '/price > 10'.")
@click.option("--bookmark", metavar="PLACE", help="Begin here: epoch, a bookmark or a time. Default: now.")
@click.option("--count", type=NUMBER, metavar="N", help="End after N messages.")
@click.option("--timeout", type=INTERVAL, metavar="S", help="End when no message came for S (seconds, or as in 5m).")
@connection_options
def tail(  # noqa: PLR0917  (click passes them by name)
    settings: CommandSettings,
    name: str,
    text: str | None,
    bookmark: str | None,
    count: int | None,
    timeout: Interval | None,
) -> None:
    """Watch the messages of a queue or a topic as they come in; nothing is taken and nothing leased.

    NAME is a queue, for what its topics bring and its filter lets in, a topic, a view, for its rows, or a regular
    expression of topics. A queue and a topic of one name: the queue. Runs until Ctrl-C unless --count or --timeout
    ends it. A line has the time of recording, the topic where there may be several, the bookmark, the body, and the
    headers. --json prints what `ampsq subscribe-topic` does.
    """
    log_to_stderr(logging.WARNING, times=False)
    with (
        # Ctrl-C is how one leaves it.
        contextlib.suppress(KeyboardInterrupt),
        settings.client(merged=True) as client,
        _followed(client, name, text, bookmark) as subscription,
    ):
        show = topic_json if settings.json else _MessageText(name).line
        for message in itertools.islice(messages_until(subscription, timeout), count):
            print(show(message), flush=True)


def _followed(client: Client, name: str, text: str | None, bookmark: str | None) -> TopicSubscription:
    """Subscribe to what a name stands for.

    Raises:
        UnknownTopic: nothing has it, or the topic waits to be made; a pattern may match nothing yet.
    """
    from ampsq.base.values import is_name
    from ampsq.catalog.suggestions import explain_missing_name
    from ampsq.definitions.stored import read_stored_queue
    from ampsq.protocol.calls.catalog import catalog
    from ampsq.queues.query import parse_query_filter

    # All partitions have the definitions that the first one has.
    found = _one_client(client)._store.call(catalog())  # noqa: SLF001  (it has no call for it)
    if name in found.queues:
        if text is not None:
            # What is wrong is said of what was written, not of both.
            parse_query_filter(text)
        own = read_stored_queue(found.queues[name]).filter
        both = f"({own}) AND ({text})" if own is not None and text is not None else text or own
        return client.subscribe_topic(name, bookmark=bookmark or "now", filter=both)
    if is_name(name) and not any(name in each for each in (found.topics, found.views, found.conflated)):
        raise click.ClickException(explain_missing_name(found, name, "queue", "topic", "view"))
    return client.subscribe_topic(name, bookmark=bookmark, filter=text)


def _one_client(client: Client) -> Client:
    """The client, or of one of all partitions that of the first."""
    if not client.partitions:
        return client
    from ampsq.client.partitioned_client import PartitionedClient

    return client.clients[0] if isinstance(client, PartitionedClient) else client


class _MessageText:
    """Messages for people, each on a line.

    Args:
        name: what was asked for; another topic's name stands on its lines.
    """

    def __init__(self, name: str) -> None:
        self._name, self._bodies = name, Bodies()
        self._coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")

    def line(self, message: TopicMessage) -> str:
        topic = [self._styled(message.topic, "cyan")] if message.topic != self._name else []
        headers = [self._styled(printable(f"{name}={value}"), "cyan") for name, value in message.headers.items()]
        return "  ".join([
            self._styled(f"{message.timestamp.astimezone():%H:%M:%S.%f}"[:-3], "bright_black"), *topic,
            self._styled(str(message.bookmark), "bright_black"), self._body(message), *headers,
        ])  # fmt: skip

    def _styled(self, text: str, colour: str) -> str:
        return click.style(text, fg=colour) if self._coloured else text

    def _body(self, message: TopicMessage) -> str:
        text = self._bodies.text(message.raw, message.data, message.message_type)
        if not self._coloured or isinstance(message.data, bytes):
            return text
        return _TOKEN.sub(lambda found: click.style(found[0], fg=_COLOURS[str(found.lastgroup)]), text)
