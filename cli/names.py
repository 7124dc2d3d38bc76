"""Completes names of what an instance has: what the server says within a moment, or nothing."""

from __future__ import annotations

import os
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import click

    from ampsq.protocol.reads.definitions import DefinitionKind
    from ampsq.protocol.request import Flow

__all__ = ["Completer", "failed_events", "group_names", "names", "words"]

#: What click asks for the completions of a parameter.
Completer: TypeAlias = "Callable[[click.Context, click.Parameter, str], list[str]]"
Kind: TypeAlias = "DefinitionKind | Literal['instances', 'publishers']"

#: Seconds for which somebody who pressed Tab waits at most.
_MOMENT: Final = 1.0
#: Groups of a queue with which an option is completed, those first that stand still.
_GROUPS: Final = 500
_DATA_DIR: Final = ".ampsq"


def names(*kinds: Kind) -> Completer:
    """Make what completes an argument with names.

    Args:
        kinds: ``topics``, ``queues``, ``views``, ``actions``, ``destinations``, ``publishers`` or ``instances``.
    """

    async def read(instance: str, _ctx: click.Context) -> list[str]:
        return [name for kind in kinds for name in await _names_of(instance, kind)]

    return _completing(read)


def group_names() -> Completer:
    """Make what completes an option with groups of the queue that the first argument of the command names."""

    async def read(_instance: str, ctx: click.Context) -> list[str]:
        from ampsq.operations.groups import read_groups

        queue = _first_argument(ctx)
        return [each.group for each in (await read_groups(queue, _GROUPS)).groups] if queue else []

    return _completing(read)


def failed_events() -> Completer:
    """Make what completes an option with failed events of the action that the first argument of the command names."""

    async def read(instance: str, ctx: click.Context) -> list[str]:
        from ampsq.base.partitions import asked_partitions
        from ampsq.protocol.reads.actions import failed_numbers

        if asked_partitions(_address(ctx), None)[1] is not None:
            # The numbers of all partitions are others than that of the one that is asked.
            return []
        action = _first_argument(ctx)
        return [str(number) for number in await failed_numbers(instance, action)] if action else []

    return _completing(read)


def words(*known: str) -> Completer:
    """Make what completes an option with words that are known beforehand."""

    def complete(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        return [word for word in known if word.startswith(incomplete)]

    return complete


def _completing(read: Callable[[str, click.Context], Flow[list[str]]]) -> Completer:
    """Make what completes with what a flow reads of the instance."""

    def complete(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        import_module("ampsq.transport.store")
        found: list[str] = []
        # A thread that the process does not wait for: connecting may take longer than anybody waits.
        asking = threading.Thread(target=_ask, args=(ctx, read, found), daemon=True)
        asking.start()
        asking.join(_MOMENT)
        return sorted({name for name in found if name.startswith(incomplete)})

    return complete


async def _names_of(instance: str, kind: Kind) -> Iterable[str]:
    from ampsq.protocol.reads.definitions import definition_names
    from ampsq.protocol.reads.instances import read_instances
    from ampsq.protocol.reads.publishers import read_last_messages

    if kind == "instances":
        return await read_instances()
    if kind == "publishers":
        return await read_last_messages(instance)
    return await definition_names(instance, kind)


def _ask(ctx: click.Context, read: Callable[[str, click.Context], Flow[list[str]]], found: list[str]) -> None:
    from ampsq.base.errors import AmpsqError
    from ampsq.base.partitions import asked_partitions, partitions_of
    from ampsq.transport.instances import parse_instances
    from ampsq.transport.store import Store

    url = _address(ctx)
    if url is None:
        return
    try:
        bare, partitions = asked_partitions(url, None)
        name = _given(ctx, "instance") or os.environ.get("AMPSQ_INSTANCE") or "ampsq"
        instance_address = parse_instances(bare or "", name)[0]
        if partitions:
            # All partitions have the definitions that the first one has.
            first = partitions_of(instance_address.instance, partitions)[0].instance
            instance_address = instance_address._replace(instance=first)
        store = Store(instance_address.url, instance_address.instance, retry_timeout=0.0)
        found += store.run(read(instance_address.instance, ctx))
    except AmpsqError:
        # There is nowhere to say it: what a shell completes with is all that it shows.
        return


def _address(ctx: click.Context) -> str | None:
    """Return the server's address; None: there is none, or the embedded one does not run and is not started."""
    folder = _given(ctx, "data_dir")
    url = _given(ctx, "url") or (None if folder else os.environ.get("AMPSQ_URL"))
    if url:
        return str(url)
    from ampsq.server.embedded import status

    running = status(folder or _DATA_DIR)
    return running.url if running is not None else None


def _first_argument(ctx: click.Context) -> str | None:
    """The first argument of a line that ends with an option without its value, so that click has read none yet."""
    first = next((each.name for each in ctx.command.params if each.param_type_name == "argument"), "")
    found: str | None = ctx.params.get(first or "") or next(iter(ctx.args), None)
    return found


def _given(ctx: click.Context, option: str) -> str | None:
    """An option of the command, else of the program."""
    here: click.Context | None = ctx
    while here is not None:
        if here.params.get(option):
            found: str = here.params[option]
            return found
        here = here.parent
    return None
