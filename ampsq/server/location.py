"""Location of a client's server: a given address, or the embedded server, which is started and brought back."""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING, Literal

from ampsq.base.addresses import join_addresses
from ampsq.base.errors import AmpsqError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.server.embedded import EmbeddedServer

__all__ = ["AppendFsync", "ServerLocation"]

_log = logging.getLogger("ampsq")
AppendFsync = Literal["everysec", "always"]


class ServerLocation:
    """Location of the server: the given address, else ``AMPSQ_URL``, else the embedded server, which is started."""

    def __init__(
        self, url: str | Sequence[str] | None, data_dir: str | os.PathLike[str], appendfsync: AppendFsync
    ) -> None:
        self._data_dir, self._appendfsync = data_dir, appendfsync
        self._embedded: EmbeddedServer | None = None
        self._changing = threading.Lock()
        found = join_addresses(url) if url is not None and url != "" else os.environ.get("AMPSQ_URL")
        if found:
            self.url = _memory(found) if "memory://" in found else found
        else:
            self._acquire()

    def again(self) -> ServerLocation:
        """Return another use of the same server, which is released for itself."""
        return ServerLocation(self.url if self._embedded is None else None, self._data_dir, self._appendfsync)

    def _acquire(self) -> None:
        from ampsq.server.embedded import acquire  # noqa: PLC0415  (needs the extra `embedded`)

        former, self._embedded = self._embedded, acquire(self._data_dir, appendfsync=self._appendfsync)
        self.url = self._embedded.url
        if former is not None:
            former.release()

    def revive(self) -> None:
        """Bring the embedded server back, where it is one: it keeps its address and its data."""
        with self._changing:
            if self._embedded is not None:
                try:
                    self._acquire()
                except AmpsqError as error:
                    _log.warning("the embedded server does not come back: %s", error)

    def release(self) -> None:
        """Stop using the embedded server."""
        with self._changing:
            embedded, self._embedded = self._embedded, None
            if embedded is not None:
                embedded.release()


def _memory(url: str) -> str:
    # The one import from a room to the right: what programs do not need in production stays out of them.
    from ampsq.testing.memory import memory_address  # noqa: PLC0415

    return memory_address(url)
