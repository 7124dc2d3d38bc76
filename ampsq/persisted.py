"""What *persisted* means for a publisher: where a message must be before the publisher lets go of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from ampsq.errors import DefinitionError, ServerUnsuitable
from ampsq.values import shown

if TYPE_CHECKING:
    from ampsq.server import Server

__all__ = ["WAIT_MS", "Persisted", "PersistedAck"]

#: ms for which one wait on the server lasts; it is asked again as long as it takes.
WAIT_MS: Final = 1_000
_REPLICAS: Final = re.compile(r"replicas=([1-9]\d{0,3})")


class PersistedAck(NamedTuple):
    """What a publisher is told: everything up to `sequence` is persisted as `level` says.

    Attributes:
        sequence: of the last message.
        level: ``memory``, ``fsync`` or ``replicas=<n>``.
    """

    sequence: int
    level: str


class Persisted(NamedTuple):
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
        if value in {"memory", "fsync"}:
            return cls(str(value))
        found = _REPLICAS.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            raise DefinitionError(f"persisted={shown(value)}: allowed are 'memory', 'fsync' and 'replicas=1' or more")
        return cls(found[0], int(found[1]))

    def wait(self, server: Server) -> list[str | int] | None:
        """The command that waits until a connection's last write is persisted; None where its reply proves it.

        Raises:
            ServerUnsuitable: this server cannot reach the level.
        """
        if self.replicas:
            return ["WAIT", self.replicas, WAIT_MS]
        if self.level == "memory":
            return None
        if not server.appends:
            raise ServerUnsuitable("persisted='fsync' needs an append-only file: set appendonly yes at the server")
        if server.waits_for_fsync:
            return ["WAITAOF", 1, 0, WAIT_MS]
        if not server.never_forgets:
            raise ServerUnsuitable(
                f"{server.kind} {server.version} cannot say what it has flushed (WAITAOF comes with Redis 7.2): "
                "persisted='fsync' needs appendfsync always there; or choose 'memory' or 'replicas=1'"
            )
        # It flushes before it answers, all that came in one round together.
        return None

    def is_reached(self, reply: Any) -> bool:
        """Whether the answer to `wait` says so."""
        return int(reply) >= self.replicas if self.replicas else int(reply[0]) >= 1

    def lacking(self, reply: Any) -> str:
        """What is missing, for people."""
        if self.replicas:
            return f"{int(reply)} of {self.replicas} replicas have it"
        return "the server has not flushed its append-only file"
