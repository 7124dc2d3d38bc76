"""``ampsq subscribe``."""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING, Final, Literal, TypedDict, Unpack

import click

from ampsq.cli.names import names
from ampsq.cli.options import (
    INTERVAL,
    NUMBER,
    CommandSettings,
    connection_options,
    failover,
    log_to_stderr,
    pointing_to,
)
from ampsq.cli.output import body_text, message_json, note
from ampsq.queues.returns import checked_reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampsq.base.values import Interval
    from ampsq.queues.subscription import Message, Subscription

__all__ = ["subscribe"]

_EPILOG = """\b
Examples:
  ampsq subscribe work
  ampsq subscribe work --count 10 --timeout 5s --json | jq .data
  ampsq subscribe work --max-backlog 100 --no-ack      # look, and leave them in the queue
  ampsq subscribe '^work-'                             # all queues whose names match
  ampsq subscribe work --filter "/price > 10 AND /symbol LIKE '^A'"
"""

_Verb = Literal["ack", "cancel", "expire", "none"]


class _Options(TypedDict):
    """The options for each message, and for where to go on."""

    ack: bool
    no_ack: bool
    cancel: bool
    expire: bool
    reason: str | None
    failover: str


_VERBS: Final[tuple[_Verb, ...]] = ("ack", "none", "cancel", "expire")


#: Options of ``ampsq subscribe-topic`` alone.
_OF_TOPICS: Final = (
    *("--bookmark", "--rate", "--rate-max-gap", "--not-found", "--sub-id", "--store", "--fully-durable"),
    *("--conflation", "--conflation-key"),
)


@click.command(epilog=_EPILOG, cls=pointing_to("subscribe-topic", "topics", *_OF_TOPICS))
@click.argument("name", shell_complete=names("queues"))
@click.option("--max-backlog", type=click.IntRange(0), default=1, show_default=True, help="Unacknowledged at most.")
@click.option("--filter", "text", metavar="EXPR", help="Only messages that match, as in '/price > 10'.")
@click.option("--count", type=NUMBER, metavar="N", help="End after N messages.")
@click.option("--timeout", type=INTERVAL, metavar="S", help="End when no message came for S (seconds, or as in 5m).")
@click.option("--ack", is_flag=True, help="Acknowledge each message once it is printed: the default.")
@click.option("--no-ack", is_flag=True, help="Hold them until the command ends: then they are queued again.")
@click.option("--cancel", is_flag=True, help="Hand each back at once: it comes again, so mind --count.")
@click.option("--expire", is_flag=True, help="Remove each unprocessed; dead-letter actions see it.")
@click.option("--reason", metavar="TEXT", help="The reason, one line; with --cancel and --expire.")
@failover
@connection_options
def subscribe(  # noqa: PLR0917  (click passes them by name)
    settings: CommandSettings,
    name: str,
    max_backlog: int,
    text: str | None,
    count: int | None,
    timeout: Interval | None,
    **options: Unpack[_Options],
) -> None:
    """Print the messages of a queue as they come.

    NAME is a queue, or a regular expression of queues; `ampsq subscribe-topic` reads topics. Runs until Ctrl-C unless
    --count or --timeout ends it. With --max-backlog 0 only barriers come. With --json a line has bookmark, topic,
    queue, data, headers, delivery (0: a barrier) and lease_until; data that is not JSON is {"base64": ...}.
    """
    verb = _verb(options)
    log_to_stderr(logging.WARNING, times=False)
    with (
        settings.client(failover=options["failover"], merged=True) as client,
        client.subscribe(name, max_backlog=max_backlog, filter=text, renew=verb == "none") as subscription,
    ):
        _print(subscription, count, timeout, (verb, options["reason"]), as_json=settings.json)


def _print(
    subscription: Subscription,
    count: int | None,
    timeout: Interval | None,
    how: tuple[_Verb, str | None],
    *,
    as_json: bool,
) -> None:
    verb, reason = how
    show = _json if as_json else _line
    held = 0
    for message in itertools.islice(_messages(subscription, timeout), count):
        print(show(message), flush=True)
        _settle(message, verb, reason)
        held += verb == "none" and not message.is_barrier
        if held == subscription.max_backlog and held != count and not message.is_barrier:
            note(f"{held} held, as many as max_backlog allows: no more come")


def _verb(chosen: _Options) -> _Verb:
    given: dict[_Verb, bool] = {
        "ack": chosen["ack"], "none": chosen["no_ack"], "cancel": chosen["cancel"], "expire": chosen["expire"],
    }  # fmt: skip
    found = [verb for verb in _VERBS if given[verb]]
    if len(found) > 1:
        raise click.UsageError("give one of --ack, --no-ack, --cancel and --expire")
    verb = found[0] if found else "ack"
    if chosen["reason"] is not None and verb not in ("cancel", "expire"):
        raise click.UsageError("--reason goes with --cancel or --expire")
    checked_reason(chosen["reason"])
    return verb


def _messages(subscription: Subscription, timeout: Interval | None) -> Iterator[Message]:
    """The messages, until none came for so long."""
    if timeout is None:
        yield from subscription
    else:
        while (message := subscription.get(timeout)) is not None:
            yield message


def _settle(message: Message, verb: _Verb, reason: str | None) -> None:
    match verb:
        case "ack":
            message.ack()
        case "cancel":
            message.cancel(reason=reason)
        case "expire":
            message.expire(reason=reason)


def _json(message: Message) -> str:
    facts: dict[str, object] = {
        "bookmark": message.bookmark,
        "topic": message.topic,
        "queue": message.queue,
        "data": message.data,
        "headers": message.headers,
        "delivery": message.delivery,
        "lease_until": message.lease_until.isoformat(timespec="milliseconds") if message.lease_until else None,
    }
    return message_json(facts, message.raw)


def _line(message: Message) -> str:
    """For people: the bookmark, the body as it is, and what is unusual about it."""
    parts = [
        message.bookmark,
        body_text(message.raw, message.data, message.message_type),
        *(f"{name}={value}" for name, value in message.headers.items()),
    ]
    if message.is_barrier:
        parts.append("(barrier)")
    elif message.delivery > 1:
        parts.append(f"(delivery {message.delivery})")
    return "  ".join(parts)
