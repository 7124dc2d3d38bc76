"""``ampsq actions``, ``ampsq actions failed``, ``retry`` and ``drop``."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

import click

from ampsq.cli.confirmation import bulk, go_on
from ampsq.cli.listing import listing_options, print_records
from ampsq.cli.names import failed_events, names
from ampsq.cli.options import CommandSettings, connection_options
from ampsq.cli.output import json_line, json_text, labelled, note, table
from ampsq.definitions.stored_action import read_stored_action

if TYPE_CHECKING:
    from ampsq.client.client import Client
    from ampsq.definitions.stored_action import StoredAction
    from ampsq.operations.actions import ActionState, FailedEvent

__all__ = ["actions"]

_EPILOG = """\b
The figures:
  waiting  entries of what it follows that it has not looked at yet
  done     events on which it acted to the end
  failed   events that failed and are tried again, later and later; others pass them

\b
Examples:
  ampsq actions
  ampsq actions dead-letter-work              # one, with its definition and all figures
  ampsq actions failed dead-letter-work       # what failed, where, and why
  ampsq actions retry dead-letter-work --all  # all of it, at once
  ampsq actions retry dead-letter-work --event 3
  ampsq actions drop dead-letter-work --event 3
"""
_FIELDS: Final = ("name", "waiting", "done", "failed", "error", "sources", "definition")
_EVENT_FIELDS: Final = ("event", "source", "step", "what", "error", "tries", "failed", "next", "variables")
_COLUMNS: Final = ("name", "on", "do", "waiting", "done", "failed", "error")
_FAILED: Final = ("event", "source", "step", "tries", "next", "error", "data")
#: Characters of a body or an error that a table shows.
_SHOWN: Final = 60
#: Numbers of events that a text lists.
_NAMED: Final = 10


class _Named(click.Group):
    """Takes a word that is no subcommand for the name of an action to show."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands and not args[0].startswith("-"):
            if not ctx.resilient_parsing and args[1:] and not args[1].startswith("-"):
                close = difflib.get_close_matches(args[0], self.commands, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"allowed: {', '.join(self.commands)}"
                ctx.fail(f"no such command {args[0]!r}; {hint}")
            args = ["show", *args]
        return super().resolve_command(ctx, args)


@click.group(cls=_Named, epilog=_EPILOG, invoke_without_command=True, subcommand_metavar="[NAME | COMMAND [ARGS]...]")
@listing_options(_FIELDS)
@click.pass_context
def actions(ctx: click.Context, settings: CommandSettings) -> None:
    """List the actions with their counts, or show one; retry or drop failed events.

    An action is followed by a coordinator. An event that fails is set aside and tried again; what it would have
    published is then published, once.
    """
    ctx.obj = settings
    if ctx.invoked_subcommand is not None:
        return
    with settings.client(merged=True) as client:
        found = client.admin.actions()
    if print_records(settings, (state.as_dict() for state in found.values())):
        return
    if found:
        rows = [
            [
                state.name,
                *_words(read_stored_action(state.text)),
                state.waiting,
                state.done,
                state.failed,
                _last_error(state),
            ]
            for state in found.values()
        ]
        table(_COLUMNS, rows)
    else:
        note("no actions yet; ampsq apply FILE defines them (docs/actions.md shows some)")


@actions.command(epilog="\b\nExamples:\n  ampsq actions show dead-letter-work\n  ampsq actions dead-letter-work")
@click.argument("name", shell_complete=names("actions"))
@listing_options(_FIELDS)
def show(settings: CommandSettings, name: str) -> None:
    """Show one action: its definition, how far it has come, and why something failed last.

    `show` may be left out, unless the action has the name of a subcommand.
    """
    from ampsq.base.suggestions import nearest

    with settings.client(merged=True) as client:
        found = client.admin.actions()
    if name not in found:
        known = nearest(name, list(found), "action") if found else "no action is defined yet"
        raise click.ClickException(f"action {name!r}: {known}")
    state = found[name]
    if print_records(settings, [state.as_dict()]):
        return
    facts: list[tuple[str, object]] = [("name", name)]
    for element, value in read_stored_action(state.text).elements().items():
        if element != "name":
            parts = value if isinstance(value, list) else [value]
            facts += [(element if i == 0 else "", json_text(part)) for i, part in enumerate(parts)]
    facts += [("waiting", state.waiting), ("done", state.done), ("failed", state.failed)]
    facts += [(f"waiting of {source}", number) for source, number in state.sources.items()]
    labelled([*facts, ("last error", state.error or "none")])


@actions.command(
    epilog="""\b
Examples:
  ampsq actions failed dead-letter-work
  ampsq actions failed dead-letter-work --json | jq -r '.variables.AMPS_DATA'
"""
)
@click.argument("name", shell_complete=names("actions"))
@listing_options(_EVENT_FIELDS)
def failed(settings: CommandSettings, name: str) -> None:
    """List the events of an action that failed, the first one first."""
    with settings.client(merged=True) as client:
        events = client.admin.failed_events(name)
    facts = ({"event": each.number, **{k: v for k, v in each.as_dict().items() if k != "number"}} for each in events)
    if print_records(settings, facts):
        return
    if events:
        table(_FAILED, [_row(event) for event in events])
        # What is to be done stands at the end of an error, which the table cuts.
        for error in dict.fromkeys(event.error for event in events if _cut(event.error) != event.error):
            print(f"\n{error}")
    else:
        note(f"nothing failed of {name}")


@actions.command(
    epilog="""\b
Examples:
  ampsq actions retry dead-letter-work --all
  ampsq actions retry dead-letter-work --event 3 --event 4
"""
)
@click.argument("name", shell_complete=names("actions"))
@click.option(
    "--event",
    "events",
    type=int,
    multiple=True,
    metavar="N",
    shell_complete=failed_events(),
    help="Only this one; may be repeated.",
)
@click.option("--all", "everything", is_flag=True, help="All that failed: the default.")
@connection_options
def retry(settings: CommandSettings, name: str, events: tuple[int, ...], *, everything: bool) -> None:
    """Let failed events be tried at once, from the step at which they failed."""
    if events and everything:
        raise click.UsageError("--event and --all exclude each other")
    with settings.client(merged=True) as client:
        there = _failed_numbers(client, name, events)
        number = client.admin.retry_action(name, events or None)
    _tell(settings, name, "retried", number, there, events)


@actions.command(
    epilog="""\b
Examples:
  ampsq actions drop dead-letter-work --event 3
  ampsq actions drop dead-letter-work --all --dry-run
  ampsq actions drop dead-letter-work --all --yes
"""
)
@click.argument("name", shell_complete=names("actions"))
@click.option(
    "--event",
    "events",
    type=int,
    multiple=True,
    metavar="N",
    shell_complete=failed_events(),
    help="This one; may be repeated.",
)
@click.option("--all", "everything", is_flag=True, help="All that failed.")
@bulk
@connection_options
def drop(
    settings: CommandSettings, name: str, events: tuple[int, ...], *, everything: bool, dry_run: bool, yes: bool
) -> None:
    """Forget failed events: their remaining steps are never made. With --all it asks before."""
    if bool(events) == everything:
        raise click.UsageError("say which: --event N, once or several times, or --all")
    with settings.client(merged=True) as client:
        there = _failed_numbers(client, name, events)
        if dry_run:
            chosen = set(there).intersection(events) if events else client.admin.failed_events(name)
            _tell(settings, name, "would be dropped", len(chosen), there, events)
            return
        if everything and not yes:
            go_on(len(client.admin.failed_events(name)), "would be dropped", yes=yes, of="event")
        number = client.admin.drop_failed(name, events or None)
    _tell(settings, name, "dropped", number, there, events)


def _words(action: StoredAction) -> tuple[str, str]:
    on = ", ".join(trigger.id.removesuffix(" *") for trigger in action.on)
    return on, ", ".join(action.steps)


def _last_error(state: ActionState) -> str | None:
    """Only while something has failed: what was mended is no news."""
    return (_cut(state.error) or None) if state.failed else None


def _row(event: FailedEvent) -> list[object]:
    data = event.variables.get("AMPS_DATA")
    shown = _cut(data) if data is not None and data.isprintable() else data and _cut(ascii(data)[1:-1])
    return [event.number, event.source, event.what, event.tries, event.next, _cut(event.error), shown]


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."


def _failed_numbers(client: Client, name: str, events: tuple[int, ...]) -> list[int]:
    """The events that failed, where some of them were asked for by number."""
    return [event.number for event in client.admin.failed_events(name)] if events else []


def _tell(  # noqa: PLR0917
    settings: CommandSettings, name: str, what: str, number: int, there: list[int], events: tuple[int, ...]
) -> None:
    """Say how many it were; those that were asked for and are not there make the command fail."""
    if settings.json:
        json_line({"action": name, what.replace(" ", "_"): number})
    else:
        print(f"{number} {what}")
    missing = sorted(set(events) - set(there))
    for event in missing:
        click.echo(f"Error: event {event} of {name} did not fail, or is done; {_listed(there)}", err=True)
    if missing:
        click.get_current_context().exit(1)


def _listed(numbers: list[int]) -> str:
    if not numbers:
        return "nothing of it has failed"
    more = f" and {len(numbers) - _NAMED} more" if len(numbers) > _NAMED else ""
    return f"failed are {', '.join(map(str, numbers[:_NAMED]))}{more}"
