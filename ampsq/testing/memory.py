"""Servers inside this process: fakeredis behind a socket, one a name, for as long as the process lives."""

from __future__ import annotations

import importlib.util
import os
import selectors
import threading
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from ampsq.base.errors import DefinitionError, ServerUnsuitable
from ampsq.coordinator import Coordinator
from ampsq.testing.clock import Clock
from ampsq.testing.relay import Relay
from ampsq.testing.scripts import MEMORY_USAGE

if TYPE_CHECKING:
    import socket

    import fakeredis

    from ampsq.testing.relay import RelayedRequests, Words

__all__ = ["FakeServer", "memory_address"]

_CHUNK: Final = 65_536
_MISSING: Final = "it needs the package fakeredis with Lua: pip install 'ampsq[testing]'"
#: What it says of itself: a server of this version that keeps nothing on a disk.
_FACTS: Final = {
    "redis_version": "7.4.0",
    "redis_mode": "standalone",
    "role": "master",
    "aof_enabled": "0",
    "aof_last_write_status": "ok",
    "maxmemory": "0",
    "maxmemory_policy": "noeviction",
    "connected_slaves": "0",
    "loading": "0",
}

_servers: dict[str, Relay] = {}
_opening = threading.Lock()


class FakeServer:
    """A server of fakeredis. Every script runs under its one lock."""

    knows_shebang = False

    def __init__(self) -> None:
        if importlib.util.find_spec("fakeredis") is None or importlib.util.find_spec("lupa") is None:
            raise ServerUnsuitable(f"memory://: {_MISSING}")
        import fakeredis  # noqa: PLC0415  (an extra)

        self._server = fakeredis.FakeServer(version=(7, 4), server_type="redis")
        self._connection = fakeredis.FakeRedisConnection
        self._began = time.monotonic()

    def serve(self, client: socket.socket, requests: RelayedRequests) -> None:
        """Answer what a client sends until it goes or the relay is closed."""
        fakes = [self._connected()]
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(client, selectors.EVENT_READ)
                for _ in requests.until_end(selector):
                    data = client.recv(_CHUNK)
                    if not data:
                        return
                    client.sendall(b"".join(self._answer(fakes, words) for words in requests.read(data)))
        finally:
            for fake in fakes:
                fake.disconnect()

    def _connected(self) -> fakeredis.FakeRedisConnection:
        fake = self._connection(server=self._server, protocol=2)
        fake.connect()
        return fake

    def _answer(self, fakes: list[fakeredis.FakeRedisConnection], words: Words) -> bytes:
        """Answer one command; of a connection that speaks RESP3 a second one is subscribed, as fakeredis needs it."""
        name = words[0].upper()
        if name == b"HELLO":
            if words[1:] == [b"3"] and len(fakes) == 1:
                fakes.append(self._connected())
            return b"%%1\r\n$5\r\nproto\r\n:%d\r\n" % (len(fakes) + 1)
        if name == b"INFO":
            return _encoded(self._facts())
        if name == b"ROLE":
            return _encoded([b"master", 0, []])
        if name == b"MEMORY":
            words = [b"EVAL", MEMORY_USAGE, b"1", words[-1]]
        is_pushed = len(fakes) > 1 and name.endswith(b"SUBSCRIBE")
        fake = fakes[is_pushed]
        fake.send_command(*words, check_health=False)
        replies = []
        # A command with several channels has several answers.
        while fake.can_read(0):
            try:
                reply = _encoded(fake.read_response(disable_decoding=True))
                replies.append(b">" + reply[1:] if is_pushed else reply)
            except Exception as error:  # noqa: BLE001  (whatever the server refuses with is the answer)
                replies.append(_refusal(error))
        return b"".join(replies)

    def _facts(self) -> bytes:
        facts = {**_FACTS, "run_id": "0", "process_id": str(os.getpid())}
        facts["uptime_in_seconds"] = str(int(time.monotonic() - self._began))
        return "".join(f"{name}:{value}\r\n" for name, value in facts.items()).encode()

    def close(self) -> None:
        """End it; what it holds goes with it."""
        self._server.connected = False


def _refusal(error: Exception) -> bytes:
    """Write an error as a server does; redis-py has taken the first word of some."""
    text = " ".join(str(error).split())
    if type(error).__name__ == "NoScriptError":
        text = f"NOSCRIPT {text}"
    elif not text.partition(" ")[0].replace("_", "").isupper():
        text = f"ERR {text}"
    return f"-{text}\r\n".encode()


def _encoded(reply: object) -> bytes:
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, bool | int):
        return b":%d\r\n" % reply
    if isinstance(reply, list | tuple):
        return b"*%d\r\n%s" % (len(reply), b"".join(map(_encoded, reply)))
    if isinstance(reply, Exception):
        return _refusal(reply)
    text = reply if isinstance(reply, bytes) else str(reply).encode()
    return b"$%d\r\n%s\r\n" % (len(text), text)


def memory_address(url: str) -> str:
    """Give the address of the socket on which a server inside this process answers; it is made when it is first used.

    Beside it a coordinator runs, in a thread.

    Args:
        url: ``memory://`` or ``memory://NAME``, with the instance's name behind ``#`` where it is not the default.

    Raises:
        DefinitionError: it has more than a name. ServerUnsuitable: the package that it needs is not installed.
    """
    parts = urlsplit(url)
    if "," in url or parts.query or parts.path.strip("/") or any(mark in parts.netloc for mark in "@:"):
        raise DefinitionError(f"address {url!r}: allowed are memory:// and memory://NAME, alone, without options")
    with _opening:
        relay = _servers.get(parts.netloc)
        if relay is None:
            relay = _servers[parts.netloc] = Relay(FakeServer(), Clock())
            threading.Thread(target=Coordinator(relay.url).run, name="ampsq-testing-duties", daemon=True).start()
    return f"{relay.url}#{parts.fragment}" if parts.fragment else relay.url
