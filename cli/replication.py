"""``ampsq replication`` and what an operator does about a link or a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from ampsq.cli.listing import listing_options, print_records
from ampsq.cli.names import names
from ampsq.cli.options import CommandSettings, connection_options
from ampsq.cli.output import json_line, note, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampsq.replication.recovery import Recovery
    from ampsq.replication.report import LinkStatus, QueueOwnership, ReplicationReport

__all__ = ["replication"]

_EPILOG = """\b
Links, of this instance to others, then of others to it:
  state    connected; waiting: no answer; refused: the other side does not fit; silent: no coordinator reports on it
  ack      sync: publishers wait for it; async; downgraded: sync, but not waited for now
  behind   messages and journal entries that are not there yet, and for how long the oldest of them has been here
Queues that several instances share:
  here, elsewhere    messages that this instance owns and that wait, and those that it knows and others own
  oldest, usual      how long the oldest of these has been here, and how long its owner usually takes to settle one
  in, out            messages that changed owner, to this instance and from it
  deferred           reports on messages that have not arrived here yet

\b
Examples:
  ampsq replication
  ampsq replication --json | jq -c '.links[] | {destination, state, seconds_behind}'
  ampsq replication downgrade nyc-2
  ampsq replication enable-proxied-transfer work
"""
_ORDER: Final = """\b
When an instance is lost, in this order:
  1. choose ONE of the instances left, and let the consumers connect there
  2. enable it there, at no other one
  3. bring the lost instance back, without consumers, until its links are connected and nothing is behind
  4. disable it
  5. let consumers back to all

\b
Examples:
  ampsq replication enable-proxied-transfer work
"""
_FIELDS: Final = (
    "destination", "direction", "instance", "group", "address", "state", "acknowledgement", "pass_through",
    "connected_for", "behind", "seconds_behind", "messages", "bytes", "messages_per_second", "bytes_per_second",
    "disconnects", "disconnected_ago", "reason",
)  # fmt: skip
_OUT: Final = (
    "destination", "instance", "group", "state", "ack", "behind", "seconds", "connected", "messages", "per second",
    "lost",
)  # fmt: skip
_IN: Final = ("from instance", "as", "state", "ack", "connected", "messages", "per second")
_QUEUES: Final = (
    "queue", "owner", "here", "elsewhere", "of whom", "oldest", "usual", "in", "out", "deferred", "proxied",
)  # fmt: skip
#: Owners that a cell names.
_NAMED: Final = 3
_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86_400


@click.group(epilog=_EPILOG, invoke_without_command=True, subcommand_metavar="[COMMAND [ARGS]...]")
@listing_options(_FIELDS)
@click.pass_context
def replication(ctx: click.Context, settings: CommandSettings) -> None:
    """Show links to other instances with their lag, and who owns the messages of shared queues."""
    ctx.obj = settings
    if ctx.invoked_subcommand is not None:
        return
    with settings.client() as client:
        found = client.admin.replication()
    if settings.output == "csv":
        print_records(settings, (link.as_dict() for link in found.links))
    elif print_records(settings, [found.as_dict()]):
        return
    elif found.links:
        _show(found)
    else:
        print(f"{found.instance}, group {found.group}")
        print("".join(f"{line}\n" for line in _recovery(found)), end="")
        note(f"{found.instance} has no links; ampsq apply FILE defines destinations (docs/replication.md)")


def _show(found: ReplicationReport) -> None:
    outgoing = [link for link in found.links if link.direction == "out"]
    incoming = [link for link in found.links if link.direction == "in"]
    tables = [
        (_OUT, [_out_row(link) for link in outgoing], ("lost", "group")),
        (_IN, [_in_row(link) for link in incoming], ()),
        (_QUEUES, [_queue_row(queue) for queue in found.queues], ("deferred", "out", "in")),
    ]
    print(f"{found.instance}, group {found.group}")
    for columns, rows, spare in tables:
        if rows:
            print()
            table(columns, rows, spare=spare)
    remarks = [*_recovery(found), *_remarks(found)]
    if remarks:
        print()
        print("\n".join(remarks))


def _out_row(link: LinkStatus) -> list[object]:
    lag = None if link.seconds_behind is None else f"{link.seconds_behind:.1f}"
    head = [link.destination, link.instance, link.group, link.state, link.acknowledgement, link.behind, lag]
    return [*head, _lasted(link.connected_for), link.messages, link.messages_per_second, link.disconnects]


def _in_row(link: LinkStatus) -> list[object]:
    head = [link.instance, link.destination, link.state, link.acknowledgement]
    return [*head, _lasted(link.connected_for), link.messages, link.messages_per_second]


def _queue_row(queue: QueueOwnership) -> list[object]:
    most = sorted(queue.owners.items(), key=lambda pair: -pair[1])
    named = ", ".join(f"{owner}: {number}" for owner, number in most[:_NAMED])
    owners = f"{named}, ..." if len(most) > _NAMED else named
    times = [_lasted(queue.oldest), _lasted(queue.usual)]
    moved = [queue.transferred_in, queue.transferred_out, queue.deferred, "yes" if queue.proxied else "no"]
    return [queue.queue, queue.initial_owner, queue.owned, queue.elsewhere, owners or None, *times, *moved]


def _remarks(found: ReplicationReport) -> Iterator[str]:
    for link in found.links:
        if link.reason:
            who = link.destination if link.direction == "out" else f"from {link.instance}"
            yield f"{who}: {link.reason}"
        if link.acknowledgement == "downgraded" and link.direction == "out":
            yield (
                f"{link.destination} is downgraded: it may lack messages that publishers were told are persisted. Do "
                "not fail over to it until it has caught up and you have run "
                f"ampsq replication upgrade {link.destination}"
            )
    for queue in found.queues:
        if queue.proxied:
            yield (
                f"{queue.queue}: messages of owners out of reach are delivered here, perhaps a second time; once they "
                f"are back and caught up: ampsq replication disable-proxied-transfer {queue.queue}"
            )


def _recovery(found: ReplicationReport) -> Iterator[str]:
    if found.recovery is not None:
        yield f"{found.instance} recovers: {_waiting(found.recovery)}"


def _waiting(recovery: Recovery) -> str:
    queues = ", ".join(recovery.queues) or "nothing"
    if not recovery.waits_for:
        return f"{queues} stays held until a coordinator of this instance checks again"
    return (
        f"{queues} stays held until everything is read from {', '.join(recovery.waits_for)}; if one of these is gone "
        f"for good: ampsq replication recover-without {recovery.waits_for[0]}"
    )


def _lasted(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < _MINUTE:
        return f"{seconds:.1f}s"
    for length, unit, smaller, small in ((_DAY, "d", _HOUR, "h"), (_HOUR, "h", _MINUTE, "m"), (_MINUTE, "m", 1, "s")):
        if seconds >= length:
            return f"{int(seconds // length)}{unit} {int(seconds % length // smaller)}{small}"
    return None


@replication.command(epilog="\b\nExamples:\n  ampsq replication downgrade nyc-2")
@click.argument("destination", shell_complete=names("destinations"))
@connection_options
def downgrade(settings: CommandSettings, destination: str) -> None:
    """Stop waiting for a sync destination: publishers that wait for its acknowledgement go on at once.

    The link goes on as an async one. It is UNSAFE TO FAIL OVER across it: messages that were reported as persisted may
    be here alone. Clients do not fail over across it: instances that are reached over it count as behind until
    `upgrade`.
    """
    with settings.client() as client:
        changed = client.admin.downgrade_replication(destination)
    _tell(
        settings,
        destination,
        "downgraded",
        changed=changed,
        text=f"{destination} is not waited for any more: unsafe to fail over to until it is upgraded",
    )


@replication.command(epilog="\b\nExamples:\n  ampsq replication upgrade nyc-2")
@click.argument("destination", shell_complete=names("destinations"))
@connection_options
def upgrade(settings: CommandSettings, destination: str) -> None:
    """Wait for a sync destination again, from the next message on; publishers wait until it has caught up."""
    with settings.client() as client:
        changed = client.admin.upgrade_replication(destination)
    _tell(settings, destination, "upgraded", changed=changed, text=f"{destination} is waited for again")


def _tell(settings: CommandSettings, destination: str, what: str, *, changed: bool, text: str) -> None:
    if settings.json:
        json_line({"destination": destination, what: True, "changed": changed})
    else:
        print(text if changed else f"{destination} was {what} before")


@replication.command("enable-proxied-transfer", epilog=_ORDER)
@click.argument("queue", shell_complete=names("queues"))
@connection_options
def enable_proxied_transfer(settings: CommandSettings, queue: str) -> None:
    """Deliver the messages of owners that no link comes from; they MAY BE DELIVERED TWICE.

    Without it, a message whose owner is lost waits until that owner is back; no time-out moves it. With it, this
    instance delivers the messages of every owner that no link comes from. A message that such an owner had delivered,
    and whose acknowledgement has not come here, is delivered again. While all links are connected, it changes nothing.
    """
    with settings.client() as client:
        client.admin.enable_proxied_transfer(queue)
    if settings.json:
        json_line({"queue": queue, "proxied": True})
    else:
        print(
            f"{queue}: messages of owners that no link comes from are delivered here, perhaps a second time; "
            "enable it at one instance alone, and disable it when they are back"
        )


@replication.command(
    "disable-proxied-transfer", epilog="\b\nExamples:\n  ampsq replication disable-proxied-transfer work"
)
@click.argument("queue", shell_complete=names("queues"))
@connection_options
def disable_proxied_transfer(settings: CommandSettings, queue: str) -> None:
    """End proxied transfer of a queue; messages that were taken over stay here."""
    with settings.client() as client:
        client.admin.disable_proxied_transfer(queue)
    if settings.json:
        json_line({"queue": queue, "proxied": False})
    else:
        print(f"{queue}: only the owners of messages transfer them again")


@replication.command(
    "begin-incarnation", epilog="\b\nExamples:\n  ampsq replication begin-incarnation --instance nyc-1"
)
@connection_options
def begin_incarnation(settings: CommandSettings) -> None:
    """Say that this instance's server was restored, or failed over to one that had less.

    The links of the other instances then give back the messages that this instance has lost. Its shared queues deliver
    nothing until it has read everything from the instances that share them; `ampsq replication` lists the ones it still
    waits for. Clients of the instance have to be made anew.
    """
    with settings.client() as client:
        origin = client.admin.begin_incarnation()
    if settings.json:
        json_line({"origin": origin})
    else:
        print(f"the origin is {origin} from now on; other instances give back messages that this one has lost")


@replication.command(
    "recover-without", epilog="\b\nExamples:\n  ampsq replication recover-without nyc-2 --instance nyc-1"
)
@click.argument("destination", shell_complete=names("destinations"))
@connection_options
def recover_without(settings: CommandSettings, destination: str) -> None:
    """Let a new incarnation recover without a destination that is gone for good; it MAY DELIVER TWICE.

    This instance then delivers messages without the knowledge that only that destination has: a message that was
    settled there, or acknowledged without any other instance knowing, is delivered again. If the destination comes
    back, this instance takes in its messages and its journal.
    """
    with settings.client() as client:
        left = client.admin.recover_without(destination)
        name = client.instance
    if settings.json:
        json_line({"destination": destination, "recovery": left and left.as_dict()})
    else:
        print(f"{name} recovers without {destination}: {_waiting(left)}" if left else f"{name} recovers no more")


@replication.command(epilog="\b\nExamples:\n  ampsq replication remove nyc-2")
@click.argument("destination", shell_complete=names("destinations"))
@connection_options
def remove(settings: CommandSettings, destination: str) -> None:
    """Forget a destination: nothing is sent to it, and no log is kept for it, any more.

    Messages that were sent stay there. If it is defined again, it gets the messages that it lacks, as far as the logs
    still have them.
    """
    with settings.client() as client:
        was_there = client.admin.remove_destination(destination)
        known = () if was_there else sorted(client.admin.destinations())
    if not was_there:
        raise click.ClickException(f"no destination {destination!r}; there are: {', '.join(known) or 'none'}")
    if settings.json:
        json_line({"destination": destination, "removed": True})
    else:
        print(f"{destination} is removed")
