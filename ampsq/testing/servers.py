"""Servers of the kit that are real ones: one at an address, or the embedded one, which all tests of a process share."""

from __future__ import annotations

import atexit
import contextlib
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import redis

from ampsq.base.addresses import parse_endpoints, redacted
from ampsq.base.errors import DefinitionError
from ampsq.base.partitions import asked_partitions
from ampsq.testing.memory import FakeServer
from ampsq.testing.relay import pass_on
from ampsq.transport.discovery import options_of

if TYPE_CHECKING:
    import socket

    from ampsq.testing.relay import Backend, RelayedRequests

__all__ = ["RealServer", "backend_of"]

_CONNECT_WITHIN = 10.0
_starting = threading.Lock()
_embedded: list[str] = []


class RealServer:
    """A server behind an address.

    Args:
        url: the address, of one server.
        instance: whose keys are removed from it in the end.
    """

    knows_shebang = True

    def __init__(self, url: str, instance: str) -> None:
        self._redis = redis.Redis.from_url(url, **options_of(_CONNECT_WITHIN))
        self._instance = instance

    def serve(self, client: socket.socket, requests: RelayedRequests) -> None:
        """Pass on what a client sends until it or the server goes, or the relay is closed."""
        pool = self._redis.connection_pool
        connection = pool.get_connection()
        try:
            # redis-py has named the user and chosen the database on it.
            server: socket.socket | None = connection._sock  # noqa: SLF001
            if server is None:
                return
            server.settimeout(_CONNECT_WITHIN)
            pass_on(client, server, requests)
        finally:
            connection.disconnect()
            pool.release(connection)

    def close(self) -> None:
        """Remove the instance, and close the connections."""
        tag = "{" + self._instance + "}:*"
        with contextlib.closing(self._redis) as client:
            keys = list(client.scan_iter(match=tag, count=1000))
            for first in range(0, len(keys), 1000):
                client.delete(*keys[first : first + 1000])


def backend_of(server: str, instance: str) -> Backend:
    """Give the server behind an instance of a test.

    Args:
        server: ``memory``, ``embedded`` or the address of one server.
        instance: the instance's name.

    Raises:
        DefinitionError: it is none of these. ServerUnsuitable: the package that it needs is not installed.
    """
    if server == "memory":
        return FakeServer()
    if server == "embedded":
        return RealServer(_start_embedded(), instance)
    if server.startswith(("redis://", "rediss://", "unix://")):
        if asked_partitions(server, None)[1] is not None:
            raise DefinitionError(
                f"server={redacted(server)!r}: the instance of a test has no partitions; allowed: the address without "
                "partitions=, where a program does the same, or a client of memory://?partitions=4"
            )
        parse_endpoints(server)
        return RealServer(server, instance)
    raise DefinitionError(
        f"server={server!r}: allowed are memory, embedded, redis://HOST:PORT/DB, rediss://... and unix:///PATH"
    )


def _start_embedded() -> str:
    from ampsq.server.embedded import acquire  # noqa: PLC0415  (needs the extra `embedded`)

    with _starting:
        if not _embedded:
            # The address is that of a socket in it, which has to be short.
            folder = tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp")
            found = acquire(Path(folder.name) / "data", coordinator=False)
            atexit.register(folder.cleanup)
            atexit.register(found.release)
            _embedded.append(found.url)
        return _embedded[0]
