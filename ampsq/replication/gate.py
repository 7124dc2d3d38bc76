"""Letting through only what the source cannot lose any more: peers see what is durable there, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ampsq.errors import ServerUnsuitable, Unavailable
from ampsq.flow import command
from ampsq.schema import key
from ampsq.server import examine

if TYPE_CHECKING:
    from ampsq.channels import PinnedChannel
    from ampsq.store import Store

__all__ = ["Gate"]

Page = TypeVar("Page")
#: Milliseconds of one wait for the disk while there is other work, and while there is none.
_SHORT: Final = 1
_LONG: Final = 100


class Gate(Generic[Page]):
    """Pages that were read from a server, given back when they are on its disk.

    A server without an append-only file promises nothing, and one that flushes before it answers has flushed what it
    gives: there pages go through at once. Else a mark is written behind them and waited for (``WAITAOF``).

    Args:
        store: the source.

    Raises:
        ServerUnsuitable: the server flushes now and then and cannot say when (Redis 7.0).
    """

    def __init__(self, store: Store) -> None:
        self._store, self._mark = store, key(store.instance, "marker")
        server = store.run(examine())
        self._waits = server.appends and not server.never_forgets
        if self._waits and not server.waits_for_fsync:
            raise ServerUnsuitable(
                f"{server.kind} {server.version} cannot say what it has flushed (WAITAOF comes with Redis 7.2), and "
                "other instances may only see what it cannot lose: set appendfsync always"
            )
        self._fresh: list[Page] = []
        self._marked: list[Page] = []
        self._channel: PinnedChannel | None = None
        if self._waits:
            # Connected before anything is read: else a server that came back without it would say that it is flushed.
            self._channel = store.pinned()
            self._channel.ask(command(["PING"], bool))

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._fresh and not self._marked

    def put(self, page: Page) -> None:
        """Take a page that was just read."""
        self._fresh.append(page)

    def take(self, *, is_idle: bool) -> list[Page]:
        """The pages that are durable by now, in the order in which they were put.

        Args:
            is_idle: there is nothing else to do: wait a little for them.

        Raises:
            Unavailable: the server is gone; what waited is forgotten, and to be read again.
        """
        if not self._waits:
            fresh, self._fresh = self._fresh, []
            return fresh
        try:
            return self._take_flushed(_LONG if is_idle else _SHORT)
        except Unavailable:
            self.close()
            raise

    def _take_flushed(self, milliseconds: int) -> list[Page]:
        if self._channel is None:
            self._channel = self._store.pinned()
        if not self._marked:
            if not self._fresh:
                return []
            self._channel.ask(command(["SET", self._mark, "1"], bool))
            self._marked, self._fresh = self._fresh, []
        wait: list[str | int] = ["WAITAOF", 1, 0, milliseconds]
        if self._channel.ask(command(wait, lambda reply: int(reply[0]), blocks=milliseconds / 1000)) < 1:
            return []
        marked, self._marked = self._marked, []
        return marked

    def close(self) -> None:
        """Forget what waits."""
        self._fresh, self._marked = [], []
        if self._channel is not None:
            self._channel.close()
            self._channel = None
