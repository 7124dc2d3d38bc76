"""Scenes of guaranteed publishing: a server that can be away, a close that may fail."""

from __future__ import annotations

import contextlib

from ampsq.base.errors import AmpsqError
from ampsq.protocol.schema import key

#: A busy disk would make the server answer before it has written; what it answered is to be there after a kill.
_ALWAYS = ["--appendfsync", "always"]


class Frail:
    """A server that can be away for a while and keeps its data."""

    def __init__(self, start, instance):
        self._start, self._instance = start, instance
        self._server = start(appendonly=True, options=_ALWAYS)
        self.url = self._server.url

    @contextlib.contextmanager
    def stopped(self):
        self._server.process.kill()
        self._server.process.wait()
        yield
        self._server = self._start(appendonly=True, data_dir=self._server.directory, options=_ALWAYS)

    def bodies(self, topic):
        with contextlib.closing(self._server.client()) as redis:
            return [fields[b"b"].decode() for _, fields in redis.xrange(key(self._instance, "log", topic))]


def close_quietly(client):
    with contextlib.suppress(AmpsqError):
        client.close()
