"""``ampsq dead-letters``: list, show, redrive, edit, drop."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, get_args

import click

from ampsq.base.formatting import span_text, time_text
from ampsq.base.values import ExpiryReason
from ampsq.cli.confirmation import bulk, go_on
from ampsq.cli.listing import listing_options, print_records
from ampsq.cli.names import names, words
from ampsq.cli.options import CommandSettings, connection_options
from ampsq.cli.output import body_text, message_json, note, table
from ampsq.cli.queues import queue_names
from ampsq.cli.redrive_progress import redrive_watched, tell_result

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from ampsq.cli.redrive_progress import RedriveChoice
    from ampsq.client.client import Client
    from ampsq.queues.dead_letters import DeadLetter, Return

__all__ = ["dead_letters"]

_EPILOG = """\b
QUEUE is the queue of the letters, one over the topic that a dead-letter action publishes to:
  queues:  [{name: dead, underlying_topic: dead-letters}]
  actions: [{dead_letter: {queue: work, topic: dead-letters}}]

\b
Examples:
  ampsq dead-letters list dead --source work
  ampsq dead-letters redrive dead --filter '/message/price > 10' --dry-run
  ampsq dead-letters redrive dead --reason max_cancels --rate 100/s
"""
_COLUMNS = (
    "bookmark", "queue", "topic", "original", "reasons", "consumer_reason", "deliveries", "cancels", "history", "age",
    "group", "headers", "data",
)  # fmt: skip
_FILTERS = "--filter, --source or --reason"


def _choosing(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that choose letters."""
    for option in (
        click.option(
            "--reason",
            metavar="R",
            shell_complete=words(*get_args(ExpiryReason)),
            help="Only letters given up for reason R, as in max_cancels.",
        ),
        click.option("--source", metavar="QUEUE", shell_complete=names("queues"), help="Only letters of QUEUE."),
        click.option("--filter", "text", metavar="EXPR", help="Only letters that match, as in '/message/price > 10'."),
    ):
        function = option(function)
    return function


def _naming_or_choosing(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command a queue of letters, the bookmarks of some, and the options that choose instead."""
    named = click.argument("bookmarks", metavar="[BOOKMARK]...", nargs=-1)(_choosing(function))
    return click.argument("queue", shell_complete=names("queues"))(named)


@click.group(name="dead-letters", epilog=_EPILOG)
@connection_options
@click.pass_context
def dead_letters(ctx: click.Context, settings: CommandSettings) -> None:
    """Look at dead letters, edit them, put them back where they came from."""
    ctx.obj = settings


@dead_letters.command(
    name="list",
    epilog="""\b
Examples:
  ampsq dead-letters list dead
  ampsq dead-letters list dead --filter '/deliveries > 3 AND /message/symbol = "IBM"' --json | jq .data
""",
)
@click.argument("queue", shell_complete=names("queues"))
@_choosing
@click.option("--top", type=click.IntRange(1), metavar="N", help="At most N.")
@listing_options(_COLUMNS)
def list_(  # noqa: PLR0917  (click passes them by name)
    settings: CommandSettings, queue: str, text: str | None, source: str | None, reason: str | None, top: int | None
) -> None:
    """List the letters that no subscription holds, the oldest first.

    EXPR reads the letter: /queue, /topic, /bookmark, /reason, /consumer_reason (why, as its consumer said),
    /deliveries, /cancels, and /message/... the body. With --json a line has bookmark, queue, topic, original, reasons,
    consumer_reason, deliveries, cancels, history, age (seconds), group, headers and data; data that is not JSON is
    {"base64": ...}.
    """
    with settings.client(merged=True) as client:
        _check_source(client, queue, source)
        letters = client.admin.dead_letters(queue, text, source=source, reason=reason, top_n=top)
    if print_records(settings, (message_json(_facts(letter), letter.raw) for letter in letters)):
        return
    if letters:
        rows = [
            [
                letter.bookmark,
                letter.queue,
                ",".join(letter.reasons) + (f": {letter.consumer_reason}" if letter.consumer_reason else ""),
                letter.deliveries,
                _age(letter.age),
                body_text(letter.raw, letter.data),
            ]
            for letter in letters
        ]
        columns = ("bookmark", "queue", "reasons", "deliveries", "age", "data")
        table(columns, rows, {"deliveries": "deliv."}, free=("reasons", "data"))
    else:
        note("no letters" + (" that match" if text or source or reason else ""))


@dead_letters.command(epilog="\b\nExamples:\n  ampsq dead-letters show dead dead-letters~ampsq.t6w1xka~1763640000000-0")
@click.argument("queue", shell_complete=names("queues"))
@click.argument("bookmark")
@listing_options(_COLUMNS)
def show(settings: CommandSettings, queue: str, bookmark: str) -> None:
    """Show one letter with the history of its deliveries, its headers and its body."""
    with settings.client(merged=True) as client:
        (letter,) = client.admin.dead_letters(queue, bookmarks=bookmark)
    if print_records(settings, [message_json(_facts(letter), letter.raw)]):
        return
    facts = {
        "letter": letter.bookmark,
        "given up by": letter.queue,
        "reasons": ", ".join(letter.reasons),
        **({"said": letter.consumer_reason} if letter.consumer_reason else {}),
        "age": _age(letter.age),
        "message": letter.original,
        "deliveries": letter.deliveries,
        "cancels": letter.cancels,
        **({"group": letter.group} if letter.group else {}),
        **{f"header {name}": value for name, value in letter.headers.items()},
    }
    for name, value in facts.items():
        print(f"{name:<12} {value}")
    print()
    if letter.history:
        says = any(item.consumer_reason for item in letter.history)
        rows = [
            [time_text(int(item.came_back.timestamp() * 1000)), *item[1:], *([item.consumer_reason or None] * says)]
            for item in letter.history
        ]
        table(("came back", "cause", "subscription", "client", *(["said"] * says)), rows)
    else:
        print("No history of its deliveries is known.")
    print()
    print(body_text(letter.raw, letter.data))


@dead_letters.command(
    epilog="""\b
Examples:
  ampsq dead-letters redrive dead --dry-run
  ampsq dead-letters redrive dead --source work --rate 100/s
  ampsq dead-letters redrive dead --filter '/message/price > 10' --to repair --yes
  ampsq dead-letters redrive dead dead-letters~ampsq.t6w1xka~1763640000000-0

\b
Exit codes: 0 all were put back; 1 some could not be; 3 not confirmed; 130 stopped by Ctrl-C, with how many were.
"""
)
@_naming_or_choosing
@click.option("--to", metavar="QUEUE", shell_complete=names("queues"), help="Put all of them into QUEUE instead.")
@click.option("--rate", metavar="RATE", help="At most so many, evenly: 100/s, 30/m, 500/h.")
@bulk
@connection_options
def redrive(  # noqa: PLR0917  (click passes them by name)
    settings: CommandSettings,
    queue: str,
    bookmarks: tuple[str, ...],
    text: str | None,
    source: str | None,
    reason: str | None,
    to: str | None,
    rate: str | None,
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    """Put letters back: each message into the queue that gave it up, and no other queue of its topic.

    The message is recorded again, with its headers and ampsq-redriven-from, and the letter is settled, in one step: it
    is put back once, also when this is repeated or done twice at once. Without BOOKMARK and choice: all letters that no
    subscription holds and that are there when it begins. Ctrl-C stops it between two steps. There is no undo.
    """
    if bookmarks and (text or source or reason):
        raise click.UsageError(f"give bookmarks, or {_FILTERS}")
    from ampsq.queues.redrive import parse_rate

    parse_rate(rate)
    wishes: RedriveChoice = {
        "filter": text, "source": source, "reason": reason, "to": to, "bookmarks": list(bookmarks) or None,
    }  # fmt: skip
    with settings.client(merged=True) as client:
        _check_source(client, queue, source)
        if dry_run or not (yes or bookmarks):
            planned = client.admin.redrive(queue, dry_run=True, **wishes)
            if dry_run or not planned:
                tell_result(settings, planned, "would be redriven" if dry_run else "redriven")
                if planned.refusals:
                    click.get_current_context().exit(1)
                return
            tell_result(settings, planned, "would be redriven", quiet=True)
            go_on(int(planned), "would be put back", yes=yes)
        redrive_watched(settings, client, queue, rate=rate, **wishes)


@dead_letters.command(
    epilog="""\b
Examples:
  ampsq dead-letters edit dead dead-letters~ampsq.t6w1xka~1763640000000-0
  ampsq dead-letters edit dead dead-letters~ampsq.t6w1xka~1763640000000-0 --data '{"id": 1, "price": 12.5}'
"""
)
@click.argument("queue", shell_complete=names("queues"))
@click.argument("bookmark")
@click.option("--data", metavar="JSON", help="The new body; default: edit the old one with $EDITOR.")
@click.option("--text", is_flag=True, help="The new body is any text, not JSON.")
@click.option("--to", metavar="QUEUE", shell_complete=names("queues"), help="Put it into QUEUE instead.")
@connection_options
def edit(settings: CommandSettings, queue: str, bookmark: str, data: str | None, to: str | None, *, text: bool) -> None:
    """Change the body of one message and put it back. The letter is settled in the same step.

    The body is put back as it is written. Headers stay as they are.
    """
    with settings.client(merged=True) as client:
        (letter,) = client.admin.dead_letters(queue, bookmarks=bookmark)
        body = os.fsencode(data) if data is not None else _edited(letter)
        if not text:
            _check_json(body)
        redrive_watched(settings, client, queue, bookmarks=[bookmark], to=to, edit=lambda _: body)


@dead_letters.command(
    epilog="""\b
Examples:
  ampsq dead-letters drop dead dead-letters~ampsq.t6w1xka~1763640000000-0
  ampsq dead-letters drop dead --filter '/message/qty = 0' --dry-run
"""
)
@_naming_or_choosing
@bulk
@connection_options
def drop(  # noqa: PLR0917  (click passes them by name)
    settings: CommandSettings,
    queue: str,
    bookmarks: tuple[str, ...],
    text: str | None,
    source: str | None,
    reason: str | None,
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    """Acknowledge letters: nobody will see to them any more.

    As `ampsq ack` does: a letter that a subscription holds is dropped too, unless the queue's leasing is strict.
    """
    from ampsq.cli.ack import by_bookmark, by_filter
    from ampsq.queues.dead_letters import dead_letter_filter

    chosen = dead_letter_filter(text, source, reason)
    if bool(bookmarks) == (chosen is not None):
        raise click.UsageError(f"give bookmarks, or {_FILTERS}")
    if dry_run and chosen is None:
        raise click.UsageError(f"--dry-run goes with {_FILTERS}")
    if chosen is None:
        by_bookmark(settings, queue, bookmarks, ("ack", "dropped"))
        return
    with settings.client(merged=True) as client:
        _check_source(client, queue, source)
    by_filter(settings, queue, chosen, ("ack", "dropped"), dry_run=dry_run, yes=yes)


def _check_source(client: Client, queue: str, source: str | None) -> None:
    """Refuse a source that neither a queue nor a letter has the name of: it is a mistake."""
    if source is None or source in queue_names(client) or client.admin.dead_letters(queue, source=source, top_n=1):
        return
    # Raises, and says which name was meant.
    client.admin.queue_stats(source)


def _edited(letter: DeadLetter) -> bytes:
    try:
        before = letter.raw.decode()
    except UnicodeDecodeError:
        raise click.ClickException("the body is no text; give the new one with --data") from None
    after = click.edit(before, extension=".json")
    if after is None or after.rstrip("\n") == before.rstrip("\n"):
        raise click.ClickException("nothing was changed, so nothing was done")
    return after.rstrip("\n").encode()


def _check_json(body: bytes) -> None:
    from ampsq.protocol.encoding import decode

    try:
        decode(body)
    except ValueError as error:
        raise click.ClickException(
            f"not JSON: {error}; nothing was done; allowed: JSON, or --text for any text"
        ) from error


def _facts(letter: DeadLetter) -> dict[str, object]:
    return {
        "bookmark": letter.bookmark,
        "queue": letter.queue,
        "topic": letter.topic,
        "original": letter.original,
        "reasons": letter.reasons,
        "consumer_reason": letter.consumer_reason,
        "deliveries": letter.deliveries,
        "cancels": letter.cancels,
        "history": [_returned(item) for item in letter.history],
        "age": letter.age.total_seconds(),
        "group": letter.group,
        "headers": letter.headers,
        "data": letter.data,
    }


def _returned(item: Return) -> dict[str, str]:
    found = {**item._asdict(), "came_back": item.came_back.isoformat()}
    return {**found, "consumer_reason": item.consumer_reason} if item.consumer_reason else found


def _age(age: timedelta) -> str:
    return span_text(int(age.total_seconds() * 1000))
