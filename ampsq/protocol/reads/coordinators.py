"""Coordinators of a server: a list that they keep themselves, so that each instance is cared for by one of them.

It is one key outside of all instances, and a hint as the list of instances is: who cannot read it cares for all
instances, which does no harm, since every duty may be done twice.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Final

from ampsq.protocol.replies import names, texts
from ampsq.protocol.request import command
from ampsq.protocol.schema import COORDINATORS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ampsq.protocol.replies import RawHash
    from ampsq.protocol.request import Call

__all__ = [
    "LIST_KEY",
    "STALE",
    "CoordinatorEntry",
    "list_coordinator",
    "list_ids",
    "owners_of_instance",
    "read_coordinators",
    "unlist_coordinators",
]

#: The key that the list is, for rules of rights.
LIST_KEY: Final = COORDINATORS
#: Milliseconds after its last sign of life from which on a coordinator has no instances any more.
STALE: Final = 1_900


@dataclass(slots=True)
class CoordinatorEntry:
    """A coordinator's entry about itself.

    Attributes:
        id: its name, unlike any other's.
        host: the machine that it runs on.
        process: its process ID there.
        since: when it began, ms.
        seen: when it gave its last sign of life, by the server's clock, ms.
        named: the instances that it was told to care for; empty: all of the server.
        powers: what its actions may do outside of an instance, a word each.
        cares_for: how many it cares for.
        late: duty -> seconds by which it is late at most, of those that are.
        quiet: ms for which it may be without a sign of life beyond `STALE`: it knew of no other one. It gives one as
            soon as another one comes.
    """

    id: str
    host: str
    process: int
    since: int
    seen: int
    named: list[str] = field(default_factory=list)
    powers: list[str] = field(default_factory=list)
    cares_for: int = 0
    late: dict[str, float] = field(default_factory=dict)
    quiet: int = 0

    def is_alive(self, now: int) -> bool:
        """Return whether it counts as alive, as far as its entry says it; `now`: the server's clock, ms."""
        return now - self.seen < STALE + self.quiet

    def may_care_for(self, instance: str) -> bool:
        """Return whether it would care for an instance at all."""
        return not self.named or instance in self.named


#: What it says of itself beside its ID.
_SAID: Final = tuple(each.name for each in fields(CoordinatorEntry) if each.name != "id")


def owners_of_instance(instance: str, alive: Collection[CoordinatorEntry]) -> set[str]:
    """The ID of the coordinator that cares for an instance; none where nobody does.

    Each of them finds the same one, and where one comes or goes only its own instances change hands. Those that may do
    less outside than another one leave it to that. Where two may do different things there, each cares for it.
    """
    groups: dict[frozenset[str], list[str]] = {}
    for each in alive:
        if each.may_care_for(instance):
            groups.setdefault(frozenset(each.powers), []).append(each.id)
    most = [names for powers, names in groups.items() if not any(powers < others for others in groups)]
    return {max(names, key=lambda name: _weight(name, instance)) for names in most}


def _weight(name: str, instance: str) -> bytes:
    return hashlib.blake2b(f"{name}\0{instance}".encode(), digest_size=8).digest()


def list_coordinator(entry: CoordinatorEntry) -> Call[int]:
    """Give a sign of life."""
    values = {name: getattr(entry, name) for name in _SAID}
    return command(["HSET", COORDINATORS, entry.id, json.dumps(values)], int)


def unlist_coordinators(ids: Collection[str]) -> Call[int]:
    """Take coordinators that have ended out of the list."""
    return command(["HDEL", COORDINATORS, *ids], int)


def read_coordinators(but: str = "") -> Call[list[CoordinatorEntry]]:
    """Read the list, also those that have died lately, but for the one with an ID."""

    def read(reply: RawHash) -> list[CoordinatorEntry]:
        others = [(name, text) for name, text in sorted(texts(reply).items()) if name != but]
        return [entry for name, text in others if (entry := _parse(name, text)) is not None]

    return command(["HGETALL", COORDINATORS], read)


def list_ids() -> Call[list[str]]:
    """Read the IDs of those that are in the list."""
    return command(["HKEYS", COORDINATORS], names)


def _parse(name: str, text: str) -> CoordinatorEntry | None:
    """Read an entry; None where somebody else, or a later release, wrote something that is none."""
    try:
        values: Mapping[str, object] = json.loads(text)
        known = {key: value for key, value in values.items() if key in CoordinatorEntry.__dataclass_fields__}
        return CoordinatorEntry(id=name, **known)  # type: ignore[arg-type]  # as `list_coordinator` wrote them
    except (ValueError, TypeError, AttributeError):
        return None
