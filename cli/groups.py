"""``ampsq groups``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from ampsq.base.formatting import count_text, printable_line, span_text
from ampsq.cli.confirmation import bulk, go_on
from ampsq.cli.listing import listing_options, print_records
from ampsq.cli.names import group_names, names
from ampsq.cli.output import note, table
from ampsq.queues.returns import checked_reason

if TYPE_CHECKING:
    from ampsq.cli.options import CommandSettings
    from ampsq.client.client import Client
    from ampsq.operations.groups import GroupState

__all__ = ["groups"]

_EPILOG = """\b
Of a group are shown how many messages are leased, how many were read and wait, how many
failed and hold it, how long ago it was stopped, and when the first that waits was recorded.
What the queue has not read yet is in no group: ampsq queues has it as waiting.
Weights are shown where there are others than 1, pauses where there are some, and to which
subscription a group is bound and for how long yet, of a queue with group_affinity.

\b
Examples:
  ampsq groups work
  ampsq groups work --top 100 --json
  ampsq groups work --release alice                # it goes on, with what comes behind
  ampsq groups work --pause alice                  # nothing more of it is delivered
  ampsq groups work --resume alice
  ampsq groups work --drop alice --dry-run
  ampsq groups work --drop alice --reason "ticket 4711: closed account" --yes
"""
_COLUMNS = ("group", "leased", "waiting", "failed", "stopped", "oldest")
#: Columns for people that are there where some group has something to say in them.
_SOMETIMES = ("weight", "paused", "paused_by", "bound_to", "bound_until")


@click.command(epilog=_EPILOG)
@click.argument("queue", shell_complete=names("queues"))
@click.option("--top", type=click.IntRange(1, 500), default=20, show_default=True, help="How many groups are shown.")
@click.option(
    "--release",
    metavar="GROUP",
    shell_complete=group_names(),
    help="End what a failed message, or a dead letter, does to this group, and its binding to a subscription.",
)
@click.option(
    "--pause",
    metavar="GROUP",
    shell_complete=group_names(),
    help="Deliver nothing more of this group, until it is resumed.",
)
@click.option("--resume", metavar="GROUP", shell_complete=group_names(), help="Deliver a paused group again.")
@click.option(
    "--drop",
    metavar="GROUP",
    shell_complete=group_names(),
    help="Let all of this group that waits leave the queue as expired.",
)
@click.option("--reason", metavar="TEXT", help="With --drop: why, one line, shown with the messages and dead letters.")
@bulk
@listing_options((*_COLUMNS, *_SOMETIMES))
def groups(  # noqa: PLR0917  (click passes them by name)
    settings: CommandSettings,
    queue: str,
    top: int,
    release: str | None,
    pause: str | None,
    resume: str | None,
    drop: str | None,
    reason: str | None,
    dry_run: bool,  # noqa: FBT001
    yes: bool,  # noqa: FBT001
) -> None:
    """Show the groups of a queue, or let one go on, pause it, or empty it.

    Those that stand still come first, then those with the most messages that wait. --release ends the hold of a
    group's failed messages, of one that was stopped, its wait for its rate, and its binding to a subscription; what is
    leased stays leased. --drop says how many messages there are and asks first; a dead-letter action publishes them.
    --dry-run, --yes and --reason are for --drop alone.
    """
    given = {"--release": release, "--pause": pause, "--resume": resume, "--drop": drop}
    chosen = [name for name, group in given.items() if group is not None]
    if len(chosen) > 1:
        raise click.UsageError(f"{' and '.join(chosen)} exclude each other; allowed: one of them")
    if drop is None and (dry_run or yes or reason is not None):
        raise click.UsageError("--dry-run, --yes and --reason go with --drop alone")
    with settings.client(merged=True) as client:
        if drop is not None:
            _drop(client, queue, drop, reason, dry_run=dry_run, yes=yes)
        elif release is not None:
            done = client.admin.release_group(queue, release)
            note(f"{_named(release)} goes on" if done else f"{_named(release)} was neither held nor stopped, nor bound")
        elif pause is not None:
            done = client.admin.pause_group(queue, pause)
            note(f"{_named(pause)} is paused" if done else f"{_named(pause)} was paused before")
        elif resume is not None:
            done = client.admin.resume_group(queue, resume)
            note(f"{_named(resume)} is resumed" if done else f"{_named(resume)} was not paused")
        else:
            _show(client, settings, queue, top)


def _show(client: Client, settings: CommandSettings, queue: str, top: int) -> None:
    found = client.admin.groups(queue, limit=top)
    rows = [state.as_dict() for state in found.groups]
    if print_records(settings, rows):
        return
    if rows:
        said = [_sometimes(state) for state in found.groups]
        shown = [name for name in _SOMETIMES if any(each[name] for each in said)]
        extra = [[each[name] or ("1" if name == "weight" else "") for name in shown] for each in said]
        table((*_COLUMNS, *shown), [[*_row(state), *more] for state, more in zip(found.groups, extra, strict=True)])
    if not found.is_all or found.number > len(rows):
        at_least = "" if found.is_all else "at least "
        note(f"{at_least}{count_text(found.number, 'group')}; --top shows more of them")
    elif not rows:
        # To read the definition would load what reads definitions, ten times the rest.
        note(
            "nothing of the queue is in a group now: what is unread is in none yet, and a queue has groups if its "
            "definition has group_by or group_concurrency"
        )


def _row(state: GroupState) -> list[object]:
    """A group for people: times as how long ago they were."""
    counts = (state.leased, state.waiting, state.failed)
    return [state.group, *counts, _ago(state.stopped), _ago(state.oldest)]


def _sometimes(state: GroupState) -> dict[str, str]:
    """Return what the columns of `_SOMETIMES` have of a group; "" where there is nothing to say."""
    weight = str(state.weight) if state.weight > 1 else ""
    paused = {"paused": _ago(state.paused), "paused_by": state.paused_by}
    return {"weight": weight, **paused, "bound_to": state.bound_to, "bound_until": _left(state)}


def _left(state: GroupState) -> str:
    """For how long a group is bound yet, for people."""
    if state.bound_until is None:
        return ""
    left = round((state.bound_until - datetime.now(UTC)).total_seconds() * 1000)
    if left > 0:
        return f"in {span_text(left)}"
    # A coordinator, or the next that looks for a message, ends it.
    return "while leased" if state.leased else "over"


def _named(group: str) -> str:
    return f"group {printable_line(group)}"


def _drop(client: Client, queue: str, group: str, reason: str | None, *, dry_run: bool, yes: bool) -> None:
    checked_reason(reason)
    if dry_run or not yes:
        number = client.admin.drop_group(queue, group, dry_run=True)
        if dry_run:
            note(f"{count_text(number, 'message')} of {_named(group)} would be expired")
            return
        go_on(number, f"of {_named(group)} would be expired", yes=yes, of="message")
    number = client.admin.drop_group(queue, group, reason=reason)
    note(f"{count_text(number, 'message')} of {_named(group)} expired")


def _ago(time: datetime | None) -> str:
    if time is None:
        return ""
    return span_text(max(round((datetime.now(UTC) - time).total_seconds() * 1000), 0))
