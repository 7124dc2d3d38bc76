"""A relay in a process of its own that hands on what a client sends a moment later: a network with a delay.

``python -m ampsq.bench.delay ADDRESS SECONDS`` prints its port, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from typing import TYPE_CHECKING

import redis

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["delayed"]


@contextlib.contextmanager
def delayed(url: str, seconds: float) -> Iterator[str]:
    """Start a relay before a server; gives the address to use instead, and ends it afterwards.

    Args:
        url: the server's, over TCP or a Unix socket, without TLS.
        seconds: by which each request is late; answers come at once.
    """
    command = [sys.executable, "-m", "ampsq.bench.delay", url, str(seconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            asked = redis.connection.parse_url(url)
            user, password = asked.get("username") or "", asked.get("password") or ""
            login = f"{user}:{password}@" if user or password else ""
            yield f"redis://{login}127.0.0.1:{_line(process)}"
        finally:
            process.terminate()


def _line(process: subprocess.Popen[str]) -> str:
    return process.stdout.readline().strip() if process.stdout is not None else ""


class _Relay:
    def __init__(self, url: str, seconds: float) -> None:
        self._asked, self._seconds = redis.connection.parse_url(url), seconds

    async def run(self) -> None:
        """Relay until standard input ends."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
        sys.stdout.flush()
        async with server:
            await asyncio.to_thread(sys.stdin.read)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = self._asked
        if "path" in asked:
            answers, requests = await asyncio.open_unix_connection(asked["path"])
        else:
            answers, requests = await asyncio.open_connection(asked.get("host", "127.0.0.1"), asked.get("port", 6379))
        with contextlib.suppress(OSError):
            await asyncio.gather(self._hand_on_late(reader, requests), _hand_on(answers, writer))

    async def _hand_on_late(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while data := await reader.read(1 << 16):
            loop.call_later(self._seconds, writer.write, data)
        loop.call_later(self._seconds, writer.close)


async def _hand_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
    finally:
        writer.close()


if __name__ == "__main__":
    asyncio.run(_Relay(sys.argv[1], float(sys.argv[2])).run())
