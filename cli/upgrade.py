"""``ampsq upgrade``."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import click

from ampsq.base.errors import FormatMismatch
from ampsq.base.partitions import partitions_of
from ampsq.base.values import parse_name
from ampsq.cli.confirmation import bulk, go_on
from ampsq.cli.open_instance import DEFAULT, Opening
from ampsq.cli.options import connection_options
from ampsq.cli.output import json_line
from ampsq.protocol.reads.instances import read_instances
from ampsq.transport.instances import InstanceAddress, parse_instances
from ampsq.transport.store import Store

if TYPE_CHECKING:
    from ampsq.cli.options import CommandSettings

__all__ = ["upgrade"]

_EPILOG: Final = """\b
Make a backup of the server first: there is no other way back. Where it is interrupted, the same command goes on.
docs/upgrading.md says what waits meanwhile, what does not go together, and how replicated instances are upgraded.

\b
Examples:
  ampsq upgrade --dry-run                    # which instances have which format
  ampsq upgrade                              # all instances of the server; asks
  ampsq upgrade --instance nyc --yes
"""


@click.command(epilog=_EPILOG)
@bulk
@connection_options
def upgrade(settings: CommandSettings, *, dry_run: bool, yes: bool) -> None:
    """Turn instances that the release before stored into this release's format.

    Without --instance all instances of the server. Clients of this release wait meanwhile; those of the release before
    are refused, from then on. Nothing is changed where one of the instances is too old, or newer than this release.
    """
    from ampsq.operations.upgrade import upgrade_instance
    from ampsq.protocol.calls.upgrade import CURRENT

    with settings.address(merged=True) as url, contextlib.ExitStack() as stack:
        stores = [
            stack.enter_context(contextlib.closing(Store(each.url, each.instance)))
            for each in _instances(url, settings.instance, settings.partitions)
        ]
        found = {store.instance: _format_of(store) for store in stores}
        old = {name for name, stored in found.items() if _is_old(name, stored)}
        if not dry_run:
            go_on(len(old), f"would be upgraded to format {CURRENT}", yes=yes, of="instance")
        for store in stores:
            is_upgraded = not dry_run and store.instance in old
            made = store.run(upgrade_instance(store.instance)) if is_upgraded else found[store.instance]
            _show(settings, store.instance, found[store.instance], made, is_old=store.instance in old)


def _instances(url: str, instance: str | None, partitions: int | None) -> list[InstanceAddress]:
    """The instances that are named, the partitions of one, or else all that the server has."""
    if instance is not None and partitions:
        return [InstanceAddress(url, each.instance) for each in partitions_of(instance, partitions)]
    if instance is not None or "#" in url:
        return parse_instances(url, parse_name(instance or DEFAULT))
    with contextlib.closing(Store(url, DEFAULT)) as store:
        return [InstanceAddress(url, name) for name in store.run(read_instances())]


def _format_of(store: Store) -> str:
    """The format of an instance; raises `click.UsageError` where there is none of that name."""
    from ampsq.protocol.calls.upgrade import read_format

    stored = store.call(read_format(store.instance)).name
    if not stored:
        where = InstanceAddress(store.url, store.instance)
        Opening(where, others=store.run(read_instances())).check(is_named=True)
    return stored


def _is_old(instance: str, stored: str) -> bool:
    from ampsq.operations.upgrade import step_for

    try:
        return step_for(stored) is not None
    except FormatMismatch as error:
        raise click.ClickException(f"{instance}: {error}; nothing was changed") from error


def _show(settings: CommandSettings, instance: str, found: str, made: str, *, is_old: bool) -> None:
    if settings.json:
        json_line({"instance": instance, "found": found, "format": made})
    elif not is_old:
        print(f"{instance}: format {made}, nothing to do")
    elif made == found:
        print(f"{instance}: format {found}, to be upgraded")
    else:
        print(f"{instance}: upgraded from format {found.partition('>')[0]} to {made}")
