"""``ampsq sow``."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import click

from ampsq.cli.listing import listing_options, print_columns, print_records
from ampsq.cli.names import names
from ampsq.cli.options import INTERVAL, CommandSettings
from ampsq.cli.output import Bodies, message_json, note

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampsq.base.values import Interval
    from ampsq.client.client import Client
    from ampsq.queues.query import SowMessage
    from ampsq.records.change import RecordChange
    from ampsq.records.subscription import RecordSubscription

__all__ = ["sow"]

_EPILOG = """\b
Examples:
  ampsq sow work
  ampsq sow work --filter '/price > 10' --order-by '/price DESC' --top 5
  ampsq sow work --order-by /id --top 20 --skip 40          # the third page of twenty
  ampsq sow totals --json | jq .data                        # the rows of a view
  ampsq sow orders --key 7 --key 8                          # records of a topic with a key
  ampsq sow orders --at 2026-11-20T18:30Z                   # its records as they were
  ampsq sow orders --follow --filter '/price > 10'          # its records, and what changes them, until Ctrl-C
  ampsq sow orders --follow --conflation 1s                 # of each record the latest, once a second
"""
_COLUMNS = ("bookmark", "topic", "data", "headers", "deliveries", "key")


@click.command(epilog=_EPILOG)
@click.argument("name", shell_complete=names("queues", "views", "topics"))
@click.option("--filter", "text", metavar="EXPR", help="Only messages that match, as in '/price > 10'.")
@click.option("--order-by", multiple=True, metavar="EXPR", help="As in '/price DESC'; one each, may be given again.")
@click.option(
    "--top", type=click.IntRange(1), metavar="N", help="At most N; with --follow of those that are there first."
)
@click.option("--skip", type=click.IntRange(0), metavar="N", help="Without the first N; with --top and --order-by.")
@click.option("--key", "keys", metavar="KEY", multiple=True, help="Only the record of this key; may be given again.")
@click.option("--at", metavar="WHEN", help="Records as they were at a message (its bookmark) or a time (ISO 8601).")
@click.option("--count", is_flag=True, help="Print only how many there are.")
@click.option("--follow", is_flag=True, help="Records, and then what changes them or takes them out of view, live.")
@click.option("--conflation", metavar="S", help="With --follow: the latest of each record, each 1s; auto: when asked.")
@click.option("--timeout", type=INTERVAL, metavar="S", help="With --follow: end when nothing came for S (as in 5m).")
@listing_options(_COLUMNS)
def sow(  # noqa: PLR0917  (click passes them by name)
    settings: CommandSettings,
    name: str,
    text: str | None,
    order_by: tuple[str, ...],
    top: int | None,
    skip: int | None,
    keys: tuple[str, ...],
    at: str | None,
    conflation: str | None,
    timeout: Interval | None,
    *,
    count: bool,
    follow: bool,
) -> None:
    """Look at the available messages of a queue, the rows of a view, or the records of a topic with a key.

    Nothing is leased or removed; what is leased is not shown. Without --order-by messages come in the order of
    delivery, records in that of their last messages. With --json a line has bookmark, topic, data, headers, deliveries
    (how often it was delivered before) and key (of a record); data that is not JSON is {"base64": ...}.

    With --follow the records of a topic with a key are printed first (command: sow), and then every message that
    changes them (publish), or that one left the view (oof, out of focus: deleted, expired, or a match no more); with
    --at from there on. With --json a line has command, reason, key, bookmark, topic, data and headers then.
    """
    is_live = conflation is not None or timeout is not None
    _check_follow(settings.output, follow=follow, one_by_one=count or bool(keys), live=is_live)
    _check_skip(skip, top, order_by)
    if follow:
        given: _Followed = {
            "order_by": order_by,
            "top_n": top,
            "skip_n": skip,
            "conflation": conflation,
            "bookmark": at,
        }
        with settings.client(merged=True) as client:
            _follow(client, name, text, given, timeout, as_json=settings.json)
        return
    with settings.client(merged=True) as client:
        found = client.sow(name, text, order_by=order_by, top_n=top, skip_n=skip, sow_keys=keys or None, bookmark=at)
    if count:
        if not print_columns(settings, [{"count": len(found)}], ("count",)):
            print(len(found))
        return
    if print_records(settings, map(_json, found)):
        return
    bodies = Bodies()
    for message in found:
        print(_line(message, bodies))
    if not found:
        note("nothing is available" + (" that matches" if text else ""))


def _check_skip(skip: int | None, top: int | None, order_by: tuple[str, ...]) -> None:
    if skip is not None and (top is None or not order_by):
        raise click.UsageError("--skip needs --top, how many to show after those, and --order-by, which ones they are")


def _check_follow(output: str, *, follow: bool, one_by_one: bool, live: bool) -> None:
    if follow and one_by_one:
        raise click.UsageError("--follow is of all records that match; leave --count and --key out")
    if not follow and live:
        raise click.UsageError("--conflation and --timeout are for --follow, which goes on")
    if follow and output not in {"table", "jsonl"}:
        raise click.UsageError(f"-o {output} needs an end, and --follow has none; allowed: -o jsonl")


class _Followed(TypedDict):
    """Options whose names are those of `Client.sow_and_subscribe`."""

    order_by: tuple[str, ...]
    top_n: int | None
    skip_n: int | None
    conflation: str | None
    bookmark: str | None


def _follow(
    client: Client, name: str, text: str | None, given: _Followed, timeout: Interval | None, *, as_json: bool
) -> None:
    bodies = Bodies()
    with client.sow_and_subscribe(name, text, oof=True, **given) as changes:
        for change in _changes(changes, timeout):
            print(_change_json(change) if as_json else _change_line(change, bodies), flush=True)


def _changes(subscription: RecordSubscription, timeout: Interval | None) -> Iterator[RecordChange]:
    """Yield the changes, until none came for so long."""
    if timeout is None:
        yield from subscription
    else:
        while (change := subscription.get(timeout)) is not None:
            yield change


def _change_json(change: RecordChange) -> str:
    facts: dict[str, object] = {
        "command": change.command,
        "reason": change.reason,
        "key": change.key,
        "bookmark": change.bookmark,
        "topic": change.topic,
        "data": change.data,
        "headers": change.headers,
    }
    return message_json(facts, change.raw)


def _change_line(change: RecordChange, bodies: Bodies) -> str:
    """For people: what happens to which record, and the line of its message, if it has one."""
    head = f"{change.command} {change.reason}".strip()
    return "  ".join(
        [head, str(change.key), _line(change, bodies) if change.raw else str(change.bookmark or "")]
    ).rstrip()


def _json(message: SowMessage) -> str:
    facts: dict[str, object] = {
        "bookmark": message.bookmark,
        "topic": message.topic,
        "data": message.data,
        "headers": message.headers,
        "deliveries": message.deliveries,
        "key": message.key,
    }
    return message_json(facts, message.raw)


def _line(message: SowMessage, bodies: Bodies) -> str:
    """For people: the bookmark, if any, the body as it is unless it is long, and what is unusual about it."""
    parts = [str(message.bookmark)] if message.bookmark else []
    parts += [
        bodies.text(message.raw, message.data, message.message_type),
        *(f"{name}={value}" for name, value in message.headers.items()),
    ]
    if message.deliveries:
        parts.append(
            f"(delivered {message.deliveries} times before)" if message.deliveries > 1 else "(delivered before)"
        )
    return "  ".join(parts)
