"""``ampsq coordinators``."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from ampsq.base.formatting import span_text
from ampsq.cli.listing import listing_options, print_records
from ampsq.cli.output import note, table
from ampsq.protocol.reads.clock import server_time
from ampsq.protocol.reads.coordinators import CoordinatorEntry, owners_of_instance, read_coordinators
from ampsq.protocol.reads.instances import read_instances
from ampsq.transport.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.cli.options import CommandSettings

__all__ = ["coordinators"]

_COLUMNS = ("id", "host", "process", "age", "seen", "cares_for", "named", "powers", "instances", "late")
#: Names of instances that a table shows of each.
_SHOWN = 5


@click.command(epilog="\b\nExamples:\n  ampsq coordinators\n  ampsq coordinators --json | jq .instances")
@listing_options(_COLUMNS)
def coordinators(settings: CommandSettings) -> None:
    """List the coordinators of the server: which instances each one has, and what is late.

    Coordinators share the instances of a server. When one comes or goes, instances change hands within seconds.
    """
    with settings.address(merged=True) as url, contextlib.closing(Store(url, "")) as store:
        now = store.call(server_time())
        found = [each for each in store.call(read_coordinators()) if each.is_alive(now)]
        names = store.run(read_instances())
    shares: dict[str, list[str]] = {each.id: [] for each in found}
    for name in names:
        for owner in owners_of_instance(name, found):
            shares[owner].append(name)
    if print_records(settings, (_facts(each, shares[each.id], now) for each in found)):
        return
    if found:
        rows = [
            [each.id, span_text(now - each.since), each.cares_for, _names(shares[each.id]), _late(each)]
            for each in found
        ]
        table(("coordinator", "for", "instances", "which", "late"), rows, spare=("which",))
    else:
        note("no coordinator is at work on this server; ampsq coordinator starts one")


def _facts(each: CoordinatorEntry, instances: Sequence[str], now: int) -> dict[str, object]:
    ago = {"age": (now - each.since) / 1000, "seen": (now - each.seen) / 1000}
    known = {**asdict(each), **ago, "instances": instances}
    return {name: known[name] for name in _COLUMNS}


def _names(instances: Sequence[str]) -> str:
    more = f" and {len(instances) - _SHOWN} more" if len(instances) > _SHOWN else ""
    return ", ".join(instances[:_SHOWN]) + more


def _late(each: CoordinatorEntry) -> str | None:
    return ", ".join(f"{duty} {seconds:.0f} s" for duty, seconds in sorted(each.late.items())) or None
