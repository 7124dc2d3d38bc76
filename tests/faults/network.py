"""Servers on ports of the loopback: several of them, Sentinels; and a relay that falls silent."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
import time
from pathlib import Path

import redis
from observing import eventually

_HIGHEST = 55_000


def free_port():
    """A port that is free now, and so is the one 10,000 above it, which a cluster's node wants."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            if port >= _HIGHEST:
                continue
            with contextlib.suppress(OSError):
                second.bind(("127.0.0.1", port + 10_000))
                return port


class Node:
    """A server on a port, in a process of ours."""

    def __init__(self, program, directory, options=(), *, sentinel=False, password=None):
        self.port, self._password = free_port(), password
        self._directory = Path(directory)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._command = [program, *(["--sentinel"] if sentinel else [])]
        if sentinel:
            config = self._directory / "sentinel.conf"
            config.write_text("\n".join([f"port {self.port}", f"dir {self._directory}", "bind 127.0.0.1", *options]))
            self._command = [program, str(config), "--sentinel"]
        else:
            self._command = [
                *(program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._directory)),
                *("--save", "", "--repl-diskless-sync-delay", "0", *options),
            ]
        self.process = None
        self.start()

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    @property
    def url(self):
        return f"redis://{self.address}"

    def start(self):
        self.process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        with self.client() as client:
            eventually(lambda: answers(client), within=40.0)
            assert client.info("server")["process_id"] == self.process.pid

    def client(self):
        """A plain client of redis-py, to be closed by its user."""
        return redis.Redis(port=self.port, password=self._password, decode_responses=True, socket_timeout=30)

    def ask(self, *words):
        """One command, answered as it is, decoded."""
        plain = redis.Connection(port=self.port, password=self._password, socket_timeout=30, decode_responses=True)
        try:
            plain.send_command(*words)
            return plain.read_response()
        finally:
            plain.disconnect()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def follow(self, other):
        """Become a replica, and wait until all is here."""
        self.ask("REPLICAOF", "127.0.0.1", other.port)
        eventually(self.has_link, within=40.0)

    def has_link(self):
        """Return whether it follows a primary and has all of it."""
        return "master_link_status:up" in self.ask("INFO", "replication")

    def lead(self):
        self.ask("REPLICAOF", "NO", "ONE")


def answers(client):
    try:
        return bool(client.execute_command("INFO", "server"))
    except redis.RedisError:
        return False


class Relay:
    """Relays connections to a server; told to, it falls silent (nothing passes, nothing ends), loses replies or delays.

    Args:
        to: a port of the loopback, or the path of a Unix socket.
        path: of the Unix socket where it listens; default a port of the loopback.

    Attributes:
        lost: how many replies were lost, each with its connection.
        late: how many pieces of a reply came late, or waited until it spoke again.
    """

    def __init__(self, to, path=None):
        self._to = to
        if path is None:
            self._listener = socket.create_server(("127.0.0.1", 0))
            self.port = self._listener.getsockname()[1]
            self.url = f"redis://127.0.0.1:{self.port}"
        else:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(str(path))
            self._listener.listen(64)
            self.url = f"unix://{path}"
        self.lost = self.late = 0
        self._to_lose, self._delay = 0, 0.0
        self._guard = threading.Lock()
        self._speaking = threading.Event()
        self._speaking.set()
        self._ending = False
        self._sockets, self._threads = [], []
        self._start(self._accept)

    def silence(self):
        """From now on nothing passes, in either direction, on old and new connections."""
        self._speaking.clear()

    def speak(self):
        self._speaking.set()

    def lose(self, number):
        """Lose so many of the next replies: what was asked for is done, and the connection ends."""
        self._to_lose = number

    def delay(self, seconds):
        """Let each piece of a reply wait so long from now on."""
        self._delay = seconds

    def cut(self):
        """End all connections."""
        for end in list(self._sockets):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _start(self, function, *arguments):
        thread = threading.Thread(target=function, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _connect(self):
        if isinstance(self._to, int):
            return socket.create_connection(("127.0.0.1", self._to))
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(str(self._to))
        except OSError:
            server.close()
            raise
        return server

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = self._connect()
                except OSError:
                    client.close()
                    continue
                self._sockets += [client, server]
                self._start(self._pass, client, server)
                self._start(self._pass_replies, server, client)

    def _is_lost(self):
        with self._guard:
            if not self._to_lose:
                return False
            self._to_lose -= 1
            self.lost += 1
            return True

    def _pass_replies(self, source, target):
        self._pass(source, target, are_replies=True)

    def _pass(self, source, target, *, are_replies=False):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self.late += bool(self._delay) or not self._speaking.is_set()
                if are_replies and self._delay:
                    time.sleep(self._delay)  # how late replies are
                while not self._speaking.wait(0.05):
                    if self._ending:
                        return
                if are_replies and self._is_lost():
                    break
                target.sendall(data)
        for end in (target, source):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self._ending = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(30)
        for end in self._sockets:
            end.close()


class Heard:
    """A connection state listener that keeps what it was told, and when."""

    def __init__(self):
        self.events, self.times = [], []

    def __call__(self, event):
        self.times.append(time.monotonic())
        self.events.append(event)

    @property
    def states(self):
        return [str(event.state) for event in self.events]

    def wait_for(self, state, *, number=1, within=40.0):
        eventually(lambda: self.states.count(state) >= number, within=within)
        return [event for event in self.events if event.state == state][number - 1]
