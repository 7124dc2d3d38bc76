"""A server with `appendfsync everysec` that loses its power: it comes back without the end of its append-only file."""

from __future__ import annotations

import contextlib
import os

from observing import eventually

__all__ = ["OPTIONS", "Everysec", "cut_back", "file_of", "length_of"]

#: How the server is started; its file is not rewritten meanwhile, so that a length stays a place in it.
OPTIONS = ("--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0")


def file_of(directory):
    """The file to which a server that runs there appends."""
    return max(directory.glob("appendonlydir/*.incr.aof"), key=lambda path: int(path.name.split(".")[-3]))


def length_of(directory):
    """Return the number of bytes in the file now."""
    return file_of(directory).stat().st_size


def cut_back(directory, length):
    """Take from a file what a machine that lost its power had not flushed; gives how many bytes."""
    path = file_of(directory)
    lost = path.stat().st_size - length
    os.truncate(path, length)
    return lost


class Everysec:
    """One server, across its deaths.

    Args:
        start: the fixture `start_server`.
        kind: which program.
    """

    def __init__(self, start, kind="valkey"):
        self._start, self._kind = start, kind
        self.server = start(kind, appendonly=True, options=OPTIONS)

    @property
    def url(self):
        return self.server.url

    def mark(self):
        """All up to here is on the disk."""
        with contextlib.closing(self.server.client()) as client:
            # A server whose disk is busy answers before it writes.
            eventually(lambda: client.info("persistence")["aof_buffer_length"] == 0, within=60.0)
        return length_of(self.server.directory)

    def lose_power(self, mark):
        """Lose all bytes written since a mark; the server is there again afterwards."""
        self.server.process.kill()
        self.server.process.wait()
        cut_back(self.server.directory, mark)
        self.server = self._start(self._kind, appendonly=True, data_dir=self.server.directory, options=OPTIONS)
