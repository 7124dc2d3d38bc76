"""Facts of an instance's partitions: how many it has, which of them an instance is, what is being defined."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ampsq.base.errors import DefinitionError
from ampsq.base.partitions import LAYOUT
from ampsq.protocol.request import command
from ampsq.protocol.schema import FIELDS, key

if TYPE_CHECKING:
    from ampsq.base.partitions import Partition
    from ampsq.protocol.request import Call

__all__ = ["claim_partition", "claim_partitions", "definitions_version", "read_intent"]


class _Stored(NamedTuple):
    format: str
    partitions: str
    partition: str


def _stored(instance: str) -> Call[_Stored]:
    names = [FIELDS[name] for name in ("format", "partitions", "partition")]

    def read(reply: list[bytes | None]) -> _Stored:
        return _Stored(*((text or b"").decode() for text in reply))

    return command(["HMGET", key(instance, "instance"), *names], read)


async def claim_partitions(name: str, count: int) -> None:
    """Note that an instance has so many partitions, or find that it does.

    Raises:
        DefinitionError: it has another number of them, or is an instance without.
    """
    wanted, stored = f"{count} {LAYOUT}", await _stored(name)
    if stored.partition:
        whole = stored.partition.split(" ")[0]
        raise DefinitionError(
            f"instance {name!r} is {_said(stored.partition)}, and has none of its own; allowed: {whole!r} with "
            f"partitions=, for all of them, or {name!r} without partitions=, for this one alone"
        )
    if not stored.partitions:
        if stored.format:
            raise DefinitionError(
                f"instance {name!r} has no partitions, and what it holds is not moved into any; allowed: another name, "
                "or the same address without partitions="
            )
        await command(["HSETNX", key(name, "instance"), FIELDS["partitions"], wanted], bool)
        stored = await _stored(name)
    if stored.partitions != wanted:
        found, _, layout = stored.partitions.partition(" ")
        by = "" if layout == str(LAYOUT) else f", named by rule {layout}; this ampsq knows rule {LAYOUT}"
        raise DefinitionError(
            f"instance {name!r} has {found} partitions{by}, and {count} are asked for: their number never changes, "
            f"since keys would find others; allowed: partitions={found}"
        )


async def claim_partition(partition: Partition) -> None:
    """Note which partition an instance is, or find that it does.

    Raises:
        DefinitionError: it is another partition, or an instance of its own.
    """
    stored = await _stored(partition.instance)
    if not stored.partition and not stored.format:
        await command(["HSETNX", key(partition.instance, "instance"), FIELDS["partition"], partition.text], bool)
        stored = await _stored(partition.instance)
    if stored.partition != partition.text:
        is_one = f"is {_said(stored.partition)}" if stored.partition else "is an instance of its own"
        raise DefinitionError(f"instance {partition.instance!r} {is_one}, not {partition}; choose another name")


def _said(text: str) -> str:
    name, number, count, layout = text.split(" ")
    return f"partition {number} of the {count} of {name!r}, by rule {layout}"


def read_intent(instance: str) -> Call[str]:
    """Read what is being defined in all partitions, of the first one; "" where nothing ever was."""
    return command(["HGET", key(instance, "instance"), FIELDS["intent"]], lambda reply: reply.decode() if reply else "")


def definitions_version(instance: str) -> Call[int]:
    """Read the version of the definitions of all partitions that one has, or is given."""
    return command(["HGET", key(instance, "instance"), FIELDS["definitions"]], lambda reply: int(reply or 0))
