"""The instances that a client may work at, and which of them it may go on at when its own is out of reach."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.base.addresses import join_addresses, redacted
from ampsq.base.errors import DefinitionError
from ampsq.base.values import is_name, shown
from ampsq.protocol.reads.destinations import read_peer, read_sync
from ampsq.protocol.reads.origin import name_of

if TYPE_CHECKING:
    from collections.abc import Sequence


__all__ = [
    "POLICIES",
    "InstanceAddress",
    "barriers_to_failover",
    "parse_instances",
    "parse_policy",
    "whole_instance",
]

_BETWEEN: Final = re.compile(r"\s*,\s*(?=[a-z+]+://)")
#: What a client does where what it was told may be missing at the next instance.
POLICIES: Final = ("refuse", "warn")


class InstanceAddress(NamedTuple):
    """An instance.

    Attributes:
        url: the addresses of its server, with commas between.
        instance: its name.
    """

    url: str
    instance: str

    def __str__(self) -> str:
        return f"{redacted(self.url)}#{self.instance}"

    def __repr__(self) -> str:
        return f"<InstanceAddress {self}>"


def parse_instances(url: str | Sequence[str], instance: str) -> list[InstanceAddress]:
    """Read addresses of one instance or of several, in the order in which they are tried.

    Args:
        url: addresses, each with the name of its instance behind ``#`` if that is not `instance`.
        instance: that of the others.

    Raises:
        DefinitionError: behind a ``#`` is no name.
    """
    found: dict[str, list[str]] = {}
    for text in _BETWEEN.split(join_addresses(url).strip()):
        address, mark, name = text.partition("#")
        if mark and not is_name(name):
            raise DefinitionError(
                f"{shown(redacted(text))}: behind the # is no instance's name; allowed: letters, digits, . _ -, as in "
                "redis://host:6379#nyc-1"
            )
        found.setdefault(name or instance, []).append(address)
    return [InstanceAddress(",".join(addresses), name) for name, addresses in found.items()]


def whole_instance(url: str | Sequence[str] | None, instance: str) -> tuple[str | None, str]:
    """Return the addresses of an instance with partitions, and its name: that behind ``#``, else the given one.

    Args:
        url: addresses, without what they say of partitions; None: the embedded server.
        instance: its name, where the addresses do not say another one.

    Raises:
        DefinitionError: they are of several instances, or behind a ``#`` is no name.
    """
    if url is None or url == "":
        return None, instance
    found = parse_instances(url, instance)
    if len(found) > 1:
        names = ", ".join(each.instance for each in found)
        raise DefinitionError(
            f"the addresses are of the instances {names}, and one with partitions has no other one to go on at yet; "
            "allowed: addresses of one instance, whose name is behind # or given as instance="
        )
    return found[0].url, found[0].instance


def parse_policy(value: object) -> str:
    """Read what to do where what was told may be missing.

    Raises:
        DefinitionError: it is no such thing.
    """
    if value not in POLICIES:
        raise DefinitionError(
            f"failover={shown(value)}: allowed: 'refuse' (stay, and go on when the instance is back) or 'warn' (go on "
            "at another one, where something may be missing)"
        )
    return str(value)


async def barriers_to_failover(instance: str) -> dict[str, str]:
    """The instances that sync destinations lead to, each with what speaks against going on there, "" if nothing."""
    states = await read_sync(instance)
    found: dict[str, str] = {}
    for name, since in sorted(states.items()):
        there = name_of(await read_peer(instance, name))
        if not there or found.get(there) == "":
            continue
        found[there] = ""
        if since is not None:
            moment = datetime.fromtimestamp(since / 1000, UTC).isoformat(timespec="seconds")
            found[there] = f"destination {name!r} of {instance!r} was downgraded at {moment}, and may lack messages"
    return found
