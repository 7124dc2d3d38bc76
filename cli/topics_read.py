"""``ampsq subscribe`` of topics: its options, and how their messages are printed."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from ampsq.cli.options import INTERVAL
from ampsq.cli.output import body_text, message_json, note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ampsq.base.values import Interval
    from ampsq.client.client import Client
    from ampsq.queues.subscription import Subscription
    from ampsq.topics.message import TopicMessage
    from ampsq.topics.subscription import TopicSubscription

__all__ = ["check_verb", "print_topics", "subscribe_to", "topic_options"]

Command = TypeVar("Command", bound="Callable[..., Any]")
#: Options that only topics have: as click names them, and as `Client.subscribe` does.
_NAMES: Final = {
    "rate": "rate",
    "rate_max_gap": "rate_max_gap",
    "not_found": "bookmark_not_found",
    "sub_id": "sub_id",
    "fully_durable": "fully_durable",
    "conflation": "conflation",
}


def topic_options(command: Command) -> Command:
    """Add the options of topics."""
    for option in reversed(
        [
            click.option(
                "--bookmark",
                metavar="PLACE",
                multiple=True,
                help="Read topics from here on: epoch, now, most_recent, a bookmark, a time, or a range as [A:B). "
                "Several: the earliest, or all ranges.",
            ),
            click.option("--rate", metavar="R", help="Topics: no faster than 1000 (a second), 100KB, or 1.5X."),
            click.option("--rate-max-gap", type=INTERVAL, metavar="S", help="With --rate 1X: the longest gap kept."),
            click.option(
                "--not-found",
                type=click.Choice(["now", "epoch", "fail"]),
                help="Topics: what to do when the start was trimmed. Default: now.",
            ),
            click.option("--sub-id", metavar="NAME", help="Topics: a durable subscription; goes on where it was."),
            click.option(
                "--store", metavar="FILE", help="With --sub-id: where its place is kept; default on the server."
            ),
            click.option("--fully-durable", is_flag=True, default=None, help="Topics: only what is on disk."),
            click.option(
                "--conflation", metavar="S", help="Topics: the latest of each key, each 1s; auto: when asked."
            ),
            click.option("--conflation-key", metavar="ID", multiple=True, help="As in /id; default the topic's key."),
        ]
    ):
        command = option(command)
    return command


def check_verb(verb: str, *, is_durable: bool) -> None:
    """Refuse what cannot be done to messages of topics, which are only read."""
    if verb in {"cancel", "expire"}:
        raise click.UsageError(f"--{verb} is for messages of queues; topics are only read")
    if verb == "none" and not is_durable:
        raise click.UsageError(
            "--no-ack is for messages of queues, which it holds, and with --sub-id, whose place it leaves as it is; "
            "topics are only read, and nothing is taken from a queue whose topics are: leave it out"
        )


def subscribe_to(
    client: Client, name: str, *, max_backlog: int, text: str | None, given: dict[str, Any], verb: str
) -> Subscription | TopicSubscription:
    """Subscribe as the options say: to topics, when any of theirs is given."""
    options: dict[str, Any] = {_NAMES[key]: given[key] for key in _NAMES if given[key] is not None}
    if given["conflation_key"]:
        options["conflation_key"] = list(given["conflation_key"])
    if given["store"] is not None:
        from ampsq.topics.bookmark_store import SqliteBookmarkStore

        options["bookmark_store"] = SqliteBookmarkStore(given["store"])
    if not options and not given["bookmark"]:
        return client.subscribe(name, max_backlog=max_backlog, filter=text, renew=verb == "none")
    check_verb(verb, is_durable="sub_id" in options)
    place = list(given["bookmark"]) or ("most_recent" if "sub_id" in options else "now")
    # What only queues have is refused there when it is given.
    more: dict[str, Any] = {} if max_backlog == 1 else {"max_backlog": max_backlog}
    return client.subscribe(name, bookmark=place, filter=text, auto_ack=False, **options, **more)


def print_topics(
    subscription: TopicSubscription, count: int | None, timeout: Interval | None, *, as_json: bool, acks: bool
) -> None:
    """Print messages until the end that was asked for; a message that was printed was handled."""
    show = _json if as_json else _line
    for message in itertools.islice(_messages(subscription, timeout), count):
        print(show(message), flush=True)
        if acks:
            message.ack()
    for topic in subscription.missed:
        note(f"something that was asked for had been trimmed from the log of {topic}")


def _messages(subscription: TopicSubscription, timeout: Interval | None) -> Iterator[TopicMessage]:
    """The messages, until none came for so long."""
    if timeout is None:
        yield from subscription
    else:
        while (message := subscription.get(timeout)) is not None:
            yield message


def _json(message: TopicMessage) -> str:
    facts: dict[str, Any] = {
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
