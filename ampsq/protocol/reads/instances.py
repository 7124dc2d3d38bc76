"""Instances of a server: a list that clients keep for coordinators, consoles and commands.

It is one key, which a cluster has in one slot: while that is out of reach, all instances in other slots are well. So it
is a hint: nobody needs it to open an instance, and it is not waited for as long as an answer of the instance is.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import AmpsqError, Unavailable
from ampsq.protocol.replies import names
from ampsq.protocol.request import command
from ampsq.protocol.schema import INSTANCES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampsq.protocol.request import Call

__all__ = ["LIST_KEY", "count_instances", "list_instance", "list_instances", "read_instances", "unlist_instance"]

#: The key that the list is, for rules of rights.
LIST_KEY: Final = INSTANCES
_log = logging.getLogger("ampsq")
#: Seconds for which the list is asked for.
_PATIENCE: Final = 1.0


async def list_instance(instance: str) -> None:
    """List an instance, if it is not; where that fails, the next client that opens it lists it."""
    try:
        if not (await command(["SISMEMBER", INSTANCES, instance], int, patience=_PATIENCE)):
            await command(["SADD", INSTANCES, instance], int, patience=_PATIENCE)
    except AmpsqError as error:
        _log.warning(
            "whether %s is in the list of instances (key %s) is not known, and a coordinator or a console that is "
            "not told its name may not find it; the next client lists it: %s",
            *(instance, INSTANCES, error),
        )


def unlist_instance(instance: str) -> Call[int]:
    """Take an instance that is removed out of the list."""
    return command(["SREM", INSTANCES, instance], int)


async def read_instances() -> list[str]:
    """Read the list, in order.

    Raises:
        Unavailable: it cannot be read, which says nothing of the instances.
    """
    try:
        names: list[str] = await _read()
    except Unavailable as error:
        error.args = (f"the list of instances (key {INSTANCES}) cannot be read: {error}",)
        raise
    return names


def _read() -> Call[list[str]]:
    return replace(list_instances(), patience=_PATIENCE)


def list_instances() -> Call[list[str]]:
    """Read the list, in order, as patiently as anything else; `read_instances` is not."""

    def read(reply: Iterable[bytes]) -> list[str]:
        return sorted(names(reply))

    return command(["SMEMBERS", INSTANCES], read)


def count_instances() -> Call[int]:
    """Count the instances of the list."""
    return command(["SCARD", INSTANCES], int)
