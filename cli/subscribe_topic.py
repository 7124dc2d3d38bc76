"""``ampsq subscribe-topic``."""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING, TypedDict, Unpack, cast

import click

from ampsq.cli.names import names
from ampsq.cli.options import (
    FILE,
    INTERVAL,
    NUMBER,
    CommandSettings,
    connection_options,
    failover,
    log_to_stderr,
    pointing_to,
)
from ampsq.cli.output import body_text, message_json, note

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampsq.base.values import Interval
    from ampsq.topics.bookmark_store import BookmarkStore
    from ampsq.topics.replay import NotFound
    from ampsq.topics.subscription import TopicMessage, TopicSubscription
    from ampsq.topics.subscription_spec import ReplayOptions

__all__ = ["messages_until", "subscribe_topic", "topic_json"]

_EPILOG = """\b
Examples:
  ampsq subscribe-topic orders                               # from now on
  ampsq subscribe-topic orders --bookmark epoch              # from its beginning, then live
  ampsq subscribe-topic '^orders-' --bookmark '[2026-05-01T09:00:00Z:now)' --rate 2X
  ampsq subscribe-topic orders --sub-id audit                # go on behind what was handled
  ampsq subscribe-topic orders --filter '/price > 10' --count 10 --timeout 5s --json | jq .data
  ampsq subscribe-topic trades --conflation 1s --conflation-key /symbol   # the latest of each symbol, once a second
"""


class _Options(TypedDict):
    """The options beside those that end the command."""

    bookmark: tuple[str, ...]
    rate: str | None
    rate_max_gap: Interval | None
    bookmark_not_found: NotFound | None
    sub_id: str | None
    store: str | None
    no_ack: bool
    fully_durable: bool | None
    conflation: str | None
    conflation_key: tuple[str, ...]
    failover: str


@click.command(
    "subscribe-topic",
    epilog=_EPILOG,
    cls=pointing_to("subscribe", "queues", "--max-backlog", "--ack", "--cancel", "--expire", "--reason"),
)
@click.argument("name", shell_complete=names("topics", "views"))
@click.option(
    "--bookmark",
    metavar="PLACE",
    multiple=True,
    help="Read from here on: epoch, now, most_recent, a bookmark, a time, or a range as [A:B). Several: the earliest, "
    "or all ranges. Default: now.",
)
@click.option("--filter", "text", metavar="EXPR", help="Only messages that match, as in '/price > 10'.")
@click.option("--count", type=NUMBER, metavar="N", help="End after N messages.")
@click.option("--timeout", type=INTERVAL, metavar="S", help="End when no message came for S (seconds, or as in 5m).")
@click.option("--rate", metavar="R", help="No faster than 1000 (a second), 100KB, or 1.5X.")
@click.option("--rate-max-gap", type=INTERVAL, metavar="S", help="With --rate 1X: the longest gap kept.")
@click.option(
    "--not-found",
    "bookmark_not_found",
    type=click.Choice(["now", "epoch", "fail"]),
    help="What to do when the start was trimmed. Default: now.",
)
@click.option("--sub-id", metavar="NAME", help="A durable subscription; goes on where it was.")
@click.option(
    "--store", type=FILE, metavar="FILE", help="With --sub-id: where its place is kept; default on the server."
)
@click.option("--no-ack", is_flag=True, help="With --sub-id: leave its place as it is.")
@click.option("--fully-durable", is_flag=True, default=None, help="Only messages that are on disk.")
@click.option("--conflation", metavar="S", help="The latest of each key, each 1s; auto: when asked.")
@click.option("--conflation-key", metavar="ID", multiple=True, help="As in /id; default the topic's key.")
@failover
@connection_options
def subscribe_topic(
    settings: CommandSettings,
    name: str,
    text: str | None,
    count: int | None,
    timeout: Interval | None,
    **options: Unpack[_Options],
) -> None:
    """Print the messages of a topic as they come; nothing is leased, and nothing taken from a queue.

    NAME is a topic, a view, for its rows, or a regular expression of topics; with --bookmark also a queue, whose topics
    are read. Runs until Ctrl-C unless --count, --timeout or the end of a range ends it. With --json a line has
    bookmark, topic, data, headers and timestamp; data that is not JSON is {"base64": ...}.
    """
    if options["no_ack"] and options["sub_id"] is None:
        raise click.UsageError("--no-ack goes with --sub-id, whose place it leaves as it is; topics are only read")
    log_to_stderr(logging.WARNING, times=False)
    bookmark = list(options["bookmark"]) or None
    with (
        settings.client(failover=options["failover"], merged=True) as client,
        client.subscribe_topic(name, bookmark=bookmark, filter=text, **_options(options)) as subscription,
    ):
        _print(subscription, count, timeout, as_json=settings.json, acks=not options["no_ack"])


def _options(given: _Options) -> ReplayOptions:
    """Return the options that are given, as `Client.subscribe_topic` takes them."""
    asked: dict[str, object] = {
        "rate": given["rate"],
        "rate_max_gap": given["rate_max_gap"],
        "bookmark_not_found": given["bookmark_not_found"],
        "sub_id": given["sub_id"],
        "fully_durable": given["fully_durable"],
        "conflation": given["conflation"],
        # A message counts as handled once it is printed.
        "auto_ack": None if given["sub_id"] is None else False,
        "conflation_key": list(given["conflation_key"]) or None,
        "bookmark_store": None if given["store"] is None else _store(given["store"]),
    }
    # A conflated topic takes no option, so that those that are not given are left out.
    return cast("ReplayOptions", {name: value for name, value in asked.items() if value is not None})


def _store(file: str) -> BookmarkStore:
    from ampsq.topics.bookmark_store import SqliteBookmarkStore

    return SqliteBookmarkStore(file)


def _print(
    subscription: TopicSubscription, count: int | None, timeout: Interval | None, *, as_json: bool, acks: bool
) -> None:
    """Print messages until the end that was asked for; a message that was printed was handled."""
    show = topic_json if as_json else _line
    for message in itertools.islice(messages_until(subscription, timeout), count):
        print(show(message), flush=True)
        if acks:
            message.ack()
    for topic in subscription.missed:
        note(f"something that was asked for had been trimmed from the log of {topic}")


def messages_until(subscription: TopicSubscription, timeout: Interval | None) -> Iterator[TopicMessage]:
    """Give the messages, until none came for so long."""
    if timeout is None:
        yield from subscription
    else:
        while (message := subscription.get(timeout)) is not None:
            yield message


def topic_json(message: TopicMessage) -> str:
    """Write a message as a line of JSON."""
    facts: dict[str, object] = {
        "bookmark": message.bookmark,
        "topic": message.topic,
        "data": message.data,
        "headers": message.headers,
        "timestamp": message.timestamp.isoformat(timespec="milliseconds"),
    }
    return message_json(facts, message.raw)


def _line(message: TopicMessage) -> str:
    headers = [f"{name}={value}" for name, value in message.headers.items()]
    return "  ".join([message.bookmark, body_text(message.raw, message.data, message.message_type), *headers])
