"""A socket of this process in front of a server: what clients of any kind send passes it, and is given the time.

One thread a connection. A client's blocking read is cut short, so that a thread that is to end does so soon; clients
ask again.
"""

from __future__ import annotations

import contextlib
import selectors
import shutil
import socket
import tempfile
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import hiredis

from ampsq.protocol.reads.instances import LIST_KEY
from ampsq.testing.scripts import OWN_TIME, known_script, script_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ampsq.testing.clock import Clock
    from ampsq.testing.scripts import ScriptText

__all__ = ["Backend", "Relay", "RelayedRequests", "Words", "pass_on"]

#: A request: a command and its arguments.
Words = list[bytes]
#: Seconds of one blocking read at most.
_LONGEST_WAIT: Final = 0.25
_CHUNK: Final = 65_536
#: Seconds between two looks whether the relay was closed.
_LOOK: Final = 0.25
#: Of no server.
_UNKNOWN_COMMAND: Final = b"NO-FUNCTIONS-HERE"
#: Words of EVAL and of EVALSHA before their keys.
_BEFORE_KEYS: Final = 3


class Backend(Protocol):
    """A server behind a relay."""

    #: Whether it knows the first line of our scripts, with their flags.
    knows_shebang: bool

    def serve(self, client: socket.socket, requests: RelayedRequests) -> None:
        """Answer what a client sends until it goes or the relay is closed."""
        ...

    def close(self) -> None:
        """Forget it."""
        ...


class Relay:
    """A server that clients of this process and of others reach by its address.

    Args:
        backend: the server behind it.
        clock: its time.

    Attributes:
        url: the address, of a Unix socket.
    """

    def __init__(self, backend: Backend, clock: Clock) -> None:
        self._backend, self._clock = backend, clock
        # Sockets need short paths.
        self._folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
        self._removed = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        path = self._folder / "s"
        self.url = f"unix://{path}"
        self._stopping = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(128)
        self._clients: set[threading.Thread] = set()
        self._thread = threading.Thread(target=self._accept, name="ampsq-testing", daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(client,), name="ampsq-testing-client", daemon=True)
            self._clients.add(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        requests = RelayedRequests(self._clock, self._stopping, knows_shebang=self._backend.knows_shebang)
        # A client that goes in the middle of an answer has no use for it.
        with client, contextlib.suppress(ConnectionError):
            self._backend.serve(client, requests)
        self._clients.discard(threading.current_thread())

    def close(self) -> None:
        """End all connections; a client that is open yet loses its server."""
        self._stopping.set()
        # Wakes who waits for a client, which closing the socket alone does not.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(timeout=5.0)
        for thread in list(self._clients):
            thread.join(timeout=5.0)
        self._backend.close()
        self._removed()


class RelayedRequests:
    """The requests of one client as its server is to see them.

    Args:
        clock: the time that they are given; one that goes by itself is the server's own.
        stopping: set when no more are wanted.
        knows_shebang: whether the server knows the first line of our scripts.
    """

    def __init__(self, clock: Clock, stopping: threading.Event, *, knows_shebang: bool) -> None:
        self._clock, self._stopping, self._knows_shebang = clock, stopping, knows_shebang
        self._reader = hiredis.Reader()

    def until_end(self, selector: selectors.BaseSelector) -> Iterator[list[selectors.SelectorKey]]:
        """Wait for what can be read, again and again, until the relay is closed."""
        while not self._stopping.is_set():
            if ready := selector.select(_LOOK):
                yield [key for key, _ in ready]

    def read(self, data: bytes) -> Iterator[Words]:
        """Give the requests that are whole with this data."""
        self._reader.feed(data)
        while (found := self._reader.gets()) is not False:
            if isinstance(found, list) and found:
                yield self._changed(found)

    def _changed(self, words: Words) -> Words:
        name = words[0].upper()
        if name in (b"EVALSHA", b"EVAL") and len(words) >= _BEFORE_KEYS:
            return self._with_script(name, words)
        if name == b"SCRIPT" and words[1].upper() == b"LOAD":
            return [*words[:2], self._script(b"EVAL", words[2]).source]
        if name == b"FUNCTION":
            # A function would ask the server for the time, and not the test's clock: no server behind a relay has any.
            return [_UNKNOWN_COMMAND]
        if name in (b"BLMPOP", b"BLPOP", b"XREAD"):
            return _cut_short(name, words)
        return self._timed(name, words) if self._clock.is_held else words

    def _timed(self, name: bytes, words: Words) -> Words:
        """Give a command the time that it would ask the server for."""
        if name == b"SADD" and words[1] == LIST_KEY.encode():
            # Whoever cares for listed instances would do that by another clock.
            return [b"SISMEMBER", *words[1:3]]
        now = b"%d" % self._clock.milliseconds
        if name == b"TIME":
            return [b"EVAL", OWN_TIME, b"0", now[:-3], now[-3:] + b"000"]
        if name == b"XADD" and b"*" in words[2:6]:
            at = words.index(b"*", 2)
            return [*words[:at], now + b"-*", *words[at + 1 :]]
        return words

    def _with_script(self, name: bytes, words: Words) -> Words:
        """Have our scripts as this server takes them; those of others stay as they are."""
        script = self._script(name, words[1])
        given = [b"%d" % self._clock.milliseconds] if script.is_ours and self._clock.is_held else []
        return [name, script.sha if name == b"EVALSHA" else script.source, *words[2:], *given]

    def _script(self, name: bytes, word: bytes) -> ScriptText:
        find = known_script if name == b"EVALSHA" else script_text
        return find(word, shebang=self._knows_shebang, with_time=self._clock.is_held)


def _cut_short(name: bytes, words: Words) -> Words:
    """Let a blocking read wait for a moment only."""
    if name == b"XREAD":
        upper = [word.upper() for word in words[:6]]
        if b"BLOCK" not in upper:
            return words
        at, most = upper.index(b"BLOCK") + 1, b"%d" % (_LONGEST_WAIT * 1000)
    else:
        at, most = (1 if name == b"BLMPOP" else len(words) - 1), b"%g" % _LONGEST_WAIT
    seconds = float(words[at])
    return words if 0 < seconds <= float(most) else [*words[:at], most, *words[at + 1 :]]


def pass_on(client: socket.socket, server: socket.socket, requests: RelayedRequests) -> None:
    """Send what a client asks to a server, and what the server answers to the client, as it is."""
    with selectors.DefaultSelector() as selector:
        for each in (client, server):
            selector.register(each, selectors.EVENT_READ)
        for ready in requests.until_end(selector):
            for key in ready:
                data = key.fileobj.recv(_CHUNK)  # type: ignore[union-attr]  # both are sockets
                if not data:
                    return
                if key.fileobj is server:
                    client.sendall(data)
                else:
                    server.sendall(b"".join(map(_packed, requests.read(data))))


def _packed(words: Sequence[bytes]) -> bytes:
    return b"".join([b"*%d\r\n" % len(words), *(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)])
