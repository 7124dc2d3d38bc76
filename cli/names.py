"""Completes names of what an instance has: what the server says within a moment, or nothing."""

from __future__ import annotations

import os
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    import click

    from ampsq.protocol.reads.definitions import DefinitionKind

__all__ = ["names"]

#: Seconds for which somebody who pressed Tab waits at most.
_MOMENT: Final = 1.0
_DATA_DIR: Final = ".ampsq"


def names(*kinds: DefinitionKind | Literal["instances"]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Make what completes an argument.

    Args:
        kinds: ``topics``, ``queues``, ``views``, ``actions``, ``destinations``, or ``instances``.
    """

    def complete(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        import_module("ampsq.transport.store")
        found: list[str] = []
        # A thread that the process does not wait for: connecting may take longer than anybody waits.
        asking = threading.Thread(target=_ask, args=(ctx, kinds, found), daemon=True)
        asking.start()
        asking.join(_MOMENT)
        return sorted({name for name in found if name.startswith(incomplete)})

    return complete


def _ask(ctx: click.Context, kinds: tuple[DefinitionKind | Literal["instances"], ...], found: list[str]) -> None:
    from ampsq.base.errors import AmpsqError
    from ampsq.base.partitions import asked_partitions, partitions_of
    from ampsq.protocol.reads.definitions import definition_names
    from ampsq.protocol.reads.instances import read_instances
    from ampsq.transport.instances import parse_instances
    from ampsq.transport.store import Store

    url = _address(ctx)
    if url is None:
        return
    try:
        bare, partitions = asked_partitions(url, None)
        name = _given(ctx, "instance") or os.environ.get("AMPSQ_INSTANCE") or "ampsq"
        # All partitions have the definitions that the first one has.
        instance = partitions_of(name, partitions)[0].instance if partitions else name
        instance_address = parse_instances(bare or "", instance)[0]
        store = Store(instance_address.url, instance_address.instance, retry_timeout=0.0)
        for kind in kinds:
            if kind == "instances":
                found += store.run(read_instances())
            else:
                there = store.call(definition_names(instance_address.instance, kind))
                found += there
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


def _given(ctx: click.Context, option: str) -> str | None:
    """An option of the command, else of the program."""
    here: click.Context | None = ctx
    while here is not None:
        if here.params.get(option):
            found: str = here.params[option]
            return found
        here = here.parent
    return None
