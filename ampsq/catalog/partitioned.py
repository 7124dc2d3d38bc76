"""Definitions of all partitions of an instance, in versions: each is made so in one partition after the other.

The first partition has the intent: a version and, until all partitions have it, what is to be so. Whoever finds one
that is not done finishes it before anything else. Each partition notes a version before anything of it is made so
there, and refuses what is older from then on. So two clients that define at once cannot leave partitions that differ.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.base.errors import DefinitionError, StaleDefinitions
from ampsq.catalog.apply import apply
from ampsq.catalog.definition_checks import check_kinds
from ampsq.catalog.remove import remove
from ampsq.definitions.action import Action
from ampsq.definitions.action_parts import On
from ampsq.definitions.address_setting import AddressSetting
from ampsq.definitions.queue import Definition, GroupLocalQueue, Queue, Topic
from ampsq.definitions.topic import ConflatedTopic
from ampsq.protocol.calls import definitions as define_calls
from ampsq.protocol.reads.partitions import definitions_version, read_intent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ampsq.catalog.apply import Outcome, Planned
    from ampsq.definitions.definition import Definition as AnyDefinition
    from ampsq.protocol.calls.catalog import KnownCatalog
    from ampsq.protocol.reads.server import Server

__all__ = ["Intent", "check_definable", "is_definable", "make_so", "merged_outcomes"]

#: Kinds that a partitioned instance has.
_KINDS: Final[Mapping[str, type[Topic | Queue | AddressSetting | Action | ConflatedTopic]]] = {
    "topic": Topic, "queue": Queue, "setting": AddressSetting, "action": Action, "conflated": ConflatedTopic,
}  # fmt: skip
#: Triggers that are about a message, which one partition has, or an event that an action has raised there.
_TRIGGERS: Final = (On.expire, On.delete, On.deliver, On.publish, On.event)
_ONE: Final = "allowed: an instance without partitions for it"


class Intent(NamedTuple):
    """A version of the definitions of all partitions.

    Attributes:
        version: its number, from 1; 0: nothing was ever defined.
        definitions: what is to be so.
        removed: what is to be removed.
        is_done: whether all partitions have it.
        stored: as it stands in the first partition.
    """

    version: int
    definitions: list[Definition]
    removed: list[Definition]
    is_done: bool
    stored: str

    @classmethod
    async def read(cls, instance: str) -> Intent:
        """Read that of the first partition, whose name is given."""
        text = await read_intent(instance)
        version, _, rest = text.partition(" ")
        if not rest:
            return cls(int(version or 0), [], [], is_done=True, stored=text)
        wanted, removed = (list(map(_read, some)) for some in json.loads(rest))
        return cls(int(version), wanted, removed, is_done=False, stored=text)

    async def begin(self, definitions: Iterable[Definition], removed: Iterable[Definition]) -> Intent:
        """Begin the version behind this one; in the first partition.

        Raises:
            StaleDefinitions: somebody else has begun one.
        """
        wanted, unwanted, version = list(definitions), list(removed), self.version + 1
        parts = [list(map(_written, wanted)), list(map(_written, unwanted))]
        stored = f"{version} {json.dumps(parts, separators=(',', ':'))}"
        await define_calls.set_intent(self.stored, stored)
        return Intent(version, wanted, unwanted, is_done=False, stored=stored)

    async def end(self) -> None:
        """Note that all partitions have it; in the first one. Somebody else may have done so."""
        await define_calls.set_intent(self.stored, str(self.version))


def _written(definition: Definition) -> list[str]:
    kind = next(kind for kind, of_kind in _KINDS.items() if isinstance(definition, of_kind))
    return [kind, definition.name, definition.to_json()]


def _read(written: list[str]) -> Definition:
    kind, name, text = written
    return Topic.stored(name, text) if kind == "topic" else _KINDS[kind].from_json(text)


async def make_so(
    intent: Intent, instance: str, server: Server | None, known: KnownCatalog
) -> list[tuple[Definition, Outcome]]:
    """Make a version so in one partition, which has noted it.

    Args:
        intent: the version.
        instance: the partition's name.
        server: what is known of its server.
        known: what is known of its catalog.

    Raises:
        StaleDefinitions: the partition has a later version, or is given one.
    """

    async def check_version() -> None:
        found = await definitions_version(instance)
        if found > intent.version:
            raise StaleDefinitions(found=found)

    outcomes = await apply(intent.definitions, server, known, check_version=check_version)
    await remove(intent.removed, check_version=check_version)
    return outcomes


def merged_outcomes(plans: Sequence[Sequence[Planned]]) -> list[tuple[Definition, Outcome]]:
    """Return what comes of definitions in all partitions, of the plan of each: unchanged is what is so in all."""
    merged: list[tuple[Definition, Outcome]] = []
    for of_one in zip(*plans, strict=True):
        changed = [planned.outcome for planned in of_one if planned.outcome != "unchanged"]
        merged.append((of_one[0].definition, changed[0] if changed else "unchanged"))
    return merged


def is_definable(definition: AnyDefinition) -> bool:
    """Return whether a partitioned instance can have it."""
    return not _fault(definition)


def check_definable(definitions: Iterable[Definition]) -> None:
    """Refuse what a partitioned instance cannot have.

    Raises:
        DefinitionError: one of them is that, or no definition.
    """
    given = list(definitions)
    check_kinds(given)
    for each in given:
        if fault := _fault(each):
            raise DefinitionError(f"{each.titled}: {fault}")


def _fault(definition: AnyDefinition) -> str:
    """Return what speaks against a definition; "" if nothing."""
    if isinstance(definition, GroupLocalQueue):
        return f"an instance with partitions shares no queues with others yet; {_ONE}, or Queue"
    if isinstance(definition, Queue) and definition.barrier_expression is not None:
        return f"a barrier would hold one partition and not the others; {_ONE}, or a queue without barrier_expression"
    if isinstance(definition, Action):
        wrong = [trigger for trigger in definition.on if not isinstance(trigger, _TRIGGERS)]
        if wrong:
            return (
                f"{type(wrong[0]).__name__!r} would set it off in each partition; allowed: expire, delete, deliver, "
                f"publish, which are about one message, and event; or {_ONE.removeprefix('allowed: ')}"
            )
    if not isinstance(definition, tuple(_KINDS.values())):
        return f"an instance with partitions has Topic, Queue, AddressSetting and Action, and ConflatedTopic; {_ONE}"
    return ""
