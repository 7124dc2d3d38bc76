"""``ampsq functions list``, ``load`` and ``remove``."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, TypeVar

import click

from ampsq.cli.listing import output_options, print_records
from ampsq.cli.options import CommandSettings, connection_options
from ampsq.cli.output import note, table
from ampsq.operations.functions import FunctionState, functions_at, load_functions, remove_others
from ampsq.transport.discovery import primaries_of
from ampsq.transport.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ampsq.protocol.request import Flow

__all__ = ["functions"]

T = TypeVar("T")
_COLUMNS: Final = ("server", "name", "verb", "state")
_EPILOG: Final = """\b
Examples:
  ampsq functions load --url redis://ampsq-server:SECRET@localhost
  ampsq functions list
  ampsq functions remove                    # after an upgrade, once no process of the release before runs
"""


@click.group(epilog=_EPILOG)
@connection_options
@click.pass_context
def functions(ctx: click.Context, settings: CommandSettings) -> None:
    """List, load and remove server functions, which cost a server less than scripts.

    They are the scripts that publish, deliver and settle, and do the same. Processes call them where a server has them,
    and send scripts elsewhere. Functions belong to a server: the user that loads them needs a right of the server's own
    (`ampsq acl server`). Where a server has no users, coordinators load them.
    """
    ctx.obj = settings


@functions.command("list")
@output_options(_COLUMNS)
def list_(settings: CommandSettings) -> None:
    """List the functions of this release as they are at the server, at each primary of a cluster, and those of others.

    here: it has this release's text; missing; replaced: another text has this name; processes that have noticed do not
    call it; other: of another release.
    """
    _show(settings, list(_at_each_primary(settings, functions_at)))


@functions.command()
@output_options(_COLUMNS)
def load(settings: CommandSettings) -> None:
    """Load the functions that are missing or were replaced, at each primary of a cluster; says what was done.

    Each takes the server some ms, once. Replicas have them from their primary. Loading twice changes nothing.
    """
    _show(settings, list(_at_each_primary(settings, load_functions)), loaded=True)


@functions.command()
@output_options(("server", "name"))
def remove(settings: CommandSettings) -> None:
    """Remove the functions of other releases. Their processes go on with scripts, until functions are loaded again."""
    found = [(server, name) for server, names in _at_each_primary(settings, remove_others) for name in names]
    if print_records(settings, ({"server": server, "name": name} for server, name in found)):
        return
    for server, name in found:
        print(f"{server}: {name} is removed")
    if not found:
        note("there are no functions of other releases")


def _at_each_primary(settings: CommandSettings, flow: Callable[[], Flow[T]]) -> Iterator[tuple[str, T]]:
    """Run a flow at the server, of a cluster at each of its primaries; gives names of servers with what came of it."""
    with settings.address(merged=True) as url, contextlib.closing(Store(url, "")) as store:
        server = store.route.find()
        for address in primaries_of(server.url, store.route.heartbeat):
            with contextlib.closing(Store(address, "")) as each:
                yield str(each.route.find()), each.run(flow())


def _show(settings: CommandSettings, found: list[tuple[str, list[FunctionState]]], *, loaded: bool = False) -> None:
    rows = [(server, each) for server, states in found for each in states if not (loaded and each.state == "other")]
    words = {"missing": "loaded", "replaced": "loaded again"} if loaded else {}
    records = [
        {"server": server, "name": each.name, "verb": each.verb or None, "state": words.get(each.state, each.state)}
        for server, each in rows
    ]
    if not print_records(settings, records):
        table(_COLUMNS, [list(record.values()) for record in records], spare=("server",))
