"""The calls of turning an instance of the format before into this one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.protocol.replies import names
from ampsq.protocol.request import Call, command, script_call
from ampsq.protocol.schema import FIELDS, FORMAT, FORMAT_OF_GROUPS, key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "CURRENT",
    "WITH_GROUPS",
    "StoredFormat",
    "begin_upgrade",
    "end_upgrade",
    "queue_names",
    "read_format",
    "upgrade_part",
]

#: The format of this release, as an instance has it.
CURRENT: Final = str(FORMAT)
#: That of an instance that has had a queue with groups, which this release reads, too.
WITH_GROUPS: Final = str(FORMAT_OF_GROUPS)


class StoredFormat(NamedTuple):
    """The format of an instance, and how far its upgrade is.

    Attributes:
        name: the format; ``4>5`` during the step of that name; "" of an instance that is not there.
        cursor: ``<part> <name>``, the last one that is done in this part; "" while there is no upgrade.
    """

    name: str
    cursor: str = ""


def _state(reply: Sequence[bytes | None]) -> StoredFormat:
    return StoredFormat(*((each or b"").decode(errors="replace") for each in reply))


def read_format(instance: str) -> Call[StoredFormat]:
    """Read the format of an instance, whatever it is, and how far its upgrade is."""
    return command(["HMGET", key(instance, "instance"), FIELDS["format"], FIELDS["upgrade"]], _state)


def queue_names(instance: str) -> Call[list[str]]:
    """Read the names of all queues, in order, of an instance in whatever format."""

    def read(reply: Iterable[bytes]) -> list[str]:
        return sorted(names(reply))

    return command(["HKEYS", key(instance, "queues")], read)


def begin_upgrade(found: str, step: str) -> Call[StoredFormat]:
    """Begin a step, if the instance has its format; until it ends the scripts of both formats refuse.

    Args:
        found: the format that it begins with.
        step: its name, ``4>5``.
    """
    return script_call("begin_upgrade", [found, step], _state, repeatable=True)


def upgrade_part(script: str, step: str, cursor: str, following: Sequence[str]) -> Call[StoredFormat]:
    """Do some of a part of a step; where the upgrade is elsewhere, nothing is done.

    Args:
        script: the part's script.
        step: the step's name.
        cursor: where the upgrade is, as `StoredFormat.cursor`.
        following: the next names behind it; none: the part is over.
    """
    return script_call(script, ["", step, cursor, *following], _state, repeatable=True)


def end_upgrade(step: str, cursor: str) -> Call[StoredFormat]:
    """End a step whose parts are done."""
    return script_call("end_upgrade", [step, cursor], _state, repeatable=True)
