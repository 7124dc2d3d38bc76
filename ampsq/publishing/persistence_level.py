"""Meaning of *persisted* for a publisher: where a message must be before the publisher lets go of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from ampsq.base.errors import DefinitionError
from ampsq.base.values import shown
from ampsq.publishing.flush_watch import FlushWatch

if TYPE_CHECKING:
    from ampsq.protocol.reads.server import Server

__all__ = ["WAIT_MS", "PersistedAck", "PersistenceLevel"]

#: ms for which one wait on the server lasts; it is asked again as long as it takes.
WAIT_MS: Final = 1_000
_REPLICAS: Final = re.compile(r"replicas=([1-9]\d{0,3})")


class PersistedAck(NamedTuple):
    """A publisher's acknowledgement: everything up to `sequence` is persisted as `level` says.

    Attributes:
        sequence: of the last message.
        level: ``memory``, ``fsync`` or ``replicas=<n>``.
        partition: whose numbers these are; None of an instance without partitions.
    """

    sequence: int
    level: str
    partition: int | None = None


class PersistenceLevel(NamedTuple):
    """A level: the server's memory, its disk, or so many replicas.

    Attributes:
        level: as it was written.
        replicas: how many must have it; 0 for those that need none.
    """

    level: str
    replicas: int = 0

    @classmethod
    def parse(cls, value: object) -> Self:
        """Read a level.

        Raises:
            DefinitionError: it is none.
        """
        if isinstance(value, str) and value in {"memory", "fsync"}:
            return cls(value)
        found = _REPLICAS.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            raise DefinitionError(f"persisted={shown(value)}: allowed are 'memory', 'fsync' and 'replicas=1' or more")
        return cls(found[0], int(found[1]))

    def watch(self, server: Server) -> FlushWatch | None:
        """Return the watch that tells when a server's answers are on its disk, where that has to be waited for.

        Raises:
            ServerUnsuitable: this server cannot reach the level, or nobody knows whether it does.
        """
        return FlushWatch.watch(server, "persisted='fsync'") if self.level == "fsync" else None
