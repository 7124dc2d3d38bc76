"""The options of a publisher with a store, and its report of a write that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.base.errors import DefinitionError
from ampsq.base.values import Interval, shown
from ampsq.publishing.file_store import FilePublishStore
from ampsq.publishing.memory_store import PublishStore
from ampsq.publishing.persistence_level import PersistenceLevel

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from ampsq.base.errors import AmpsqError
    from ampsq.publishing.persistence_level import PersistedAck

__all__ = ["ELSEWHERE", "FailedWrite", "Guarantee"]

_OPTION: Final = "client.publisher(NAME, store=..., {}=...) has it"
ELSEWHERE: Final = {
    "publisher": "client.publisher(NAME) opens one",
    "publish_store": "client.publisher(NAME, store=...) has it, as `store`",
    **{name: _OPTION.format(name) for name in ("persisted", "ack_conflation", "on_failed_write", "on_persisted")},
}
"""Options that a client's constructor is asked for and a publisher with a name has -> their names there."""


class FailedWrite(NamedTuple):
    """A write that the server refused for good; it left the publish store.

    Attributes:
        error: why.
        sequence: its number; None of a settlement of a queue message.
        kind: ``publish``, ``sow_delete``, or ``settle``.
        arguments: of a publish topic, shape and values (the body first); of a `sow_delete` topic, ``keys`` or
            ``data``, and those; of a settlement verb, period, by, queue, ref
            and token.
        partition: for which it was; None of an instance without partitions.
    """

    error: AmpsqError
    sequence: int | None
    kind: str
    arguments: Sequence[bytes]
    partition: int | None = None

    @property
    def topic(self) -> str:
        """The topic or queue that it was for."""
        return self.arguments[0 if self.kind != "settle" else 3].decode()

    @property
    def body(self) -> bytes:
        """Of a publish, the message's body; else empty."""
        return bytes(self.arguments[2]) if self.kind == "publish" else b""


class Guarantee(NamedTuple):
    """The options of a publisher with a store: arguments of `Client.publisher`."""

    store: PublishStore
    level: PersistenceLevel
    conflation: float
    on_failed_write: Callable[[FailedWrite], object] | None
    on_persisted: Callable[[PersistedAck], object] | None

    @classmethod
    def of(
        cls,
        store: PublishStore | str | os.PathLike[str] | None,
        *,
        persisted: str,
        conflation: timedelta | float | str,
        on_failed_write: Callable[[FailedWrite], object] | None,
        on_persisted: Callable[[PersistedAck], object] | None,
    ) -> Guarantee | None:
        """Check what is asked for; None where there is no store.

        Raises:
            DefinitionError: an argument is wrong, or goes only with another one.
        """
        level, interval = PersistenceLevel.parse(persisted), Interval.parse(conflation) / 1000
        if store is None:
            if level.level != "memory" or on_failed_write or on_persisted:
                raise DefinitionError(
                    "persisted, on_failed_write and on_persisted go with store=MemoryPublishStore() or store=FILE: "
                    "without one, nobody would send again what was lost"
                )
            return None
        if not isinstance(store, PublishStore):
            try:
                store = FilePublishStore(store)
            except TypeError:
                raise DefinitionError(
                    f"store={shown(store)}: allowed are the path of a file, MemoryPublishStore() and "
                    "FilePublishStore(PATH)"
                ) from None
        return cls(store, level, interval, on_failed_write, on_persisted)
