"""A relay between clients and a server on Unix sockets that loses a reply, or lets a request arrive late."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque

from ampsq.protocol import scripts
from ampsq.protocol.functions import HOT, library


class Frames:
    """Cuts a stream of RESP into whole frames."""

    def __init__(self):
        self._buffer = b""

    def feed(self, data):
        self._buffer += data
        out = []
        while (end := self._end(0)) is not None:
            out.append(self._buffer[:end])
            self._buffer = self._buffer[end:]
        return out

    def _end(self, at):
        line = self._buffer.find(b"\r\n", at)
        if line < 0:
            return None
        kind, text, after = self._buffer[at : at + 1], self._buffer[at + 1 : line], line + 2
        if kind == b"$":
            end = after if text == b"-1" else after + int(text) + 2
            return end if end <= len(self._buffer) else None
        if kind == b"*":
            for _ in range(max(int(text), 0)):
                after = self._end(after)
                if after is None:
                    return None
        return after


def _name_of(frame):
    """Return the name of a request: the script's, or the command's."""
    words = frame.split(b"\r\n", 5)
    command = words[2].decode().upper()
    if command == "FCALL":
        return next(verb for verb in HOT if library().functions[verb].encode() in frame[:120])
    if command in {"EVALSHA", "EVAL"}:
        for name in scripts.names():
            script = scripts.script(name)
            if script.sha.encode() in frame[:120] or script.source.encode() in frame:
                return name
    return command


class Proxy:
    """Relays; `lose` says which reply is lost.

    Attributes:
        lost: names of the requests whose replies were lost, or that came late.
    """

    def __init__(self, path, upstream):
        self.path, self._upstream = str(path), str(upstream)
        self.lost = []
        self._wanted = None
        self._lock = threading.Lock()
        self._sockets, self._threads = [], []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen(64)
        self._start(self._accept)

    @property
    def url(self):
        return f"unix://{self.path}"

    def lose(self, name, nth=1, *, late=None):
        """Execute the nth request of that name from now on and close without its reply.

        late: instead, close at once and let the request arrive so many seconds later.
        """
        self._wanted = [name, nth, late]

    def move(self, upstream):
        """Lead connections that come from now on to another server."""
        self._upstream = str(upstream)

    def _start(self, function, *arguments):
        thread = threading.Thread(target=function, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                try:
                    server.connect(self._upstream)
                except OSError:
                    client.close()
                    server.close()
                    continue
                self._sockets += [client, server]
                names = deque()
                self._start(self._requests, client, server, names)
                self._start(self._replies, client, server, names)

    def _hit(self, name, *, late):
        with self._lock:
            if self._wanted is None or self._wanted[0] != name or (self._wanted[2] is not None) != late:
                return None
            self._wanted[1] -= 1
            if self._wanted[1]:
                return None
            wanted, self._wanted = self._wanted, None
            self.lost.append(name)
            return wanted

    def _requests(self, client, server, names):
        frames = Frames()
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                for frame in frames.feed(data):
                    name = _name_of(frame)
                    if wanted := self._hit(name, late=True):
                        client.shutdown(socket.SHUT_RDWR)
                        time.sleep(wanted[2])  # how late the reply is
                    names.append(name)
                    server.sendall(frame)
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_WR)

    def _replies(self, client, server, names):
        frames = Frames()
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                for frame in frames.feed(data):
                    if names and self._hit(names.popleft(), late=False):
                        client.shutdown(socket.SHUT_RDWR)
                        server.shutdown(socket.SHUT_RDWR)
                        return
                    client.sendall(frame)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

    def close(self):
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._sockets:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(30)
        for end in self._sockets:
            end.close()
