"""What tests of every kind look with: waiting for something with a deadline, and what a journal says."""

from __future__ import annotations

import time

from ampsq.base.bookmarks import Bookmark, parse_ref
from ampsq.protocol.schema import key

__all__ = ["eventually", "journal_of"]


def eventually(condition, within=30.0):
    """Wait until a condition holds and give what it gave; fails after `within` seconds."""
    deadline = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {within} s in vain"
        time.sleep(0.01)
    return found


def journal_of(redis, instance, origin, queue):
    """(how, reason, bookmark) of each message that a queue settled, in that order, past ampsq with plain commands."""
    return [
        (fields[b"how"].decode(), fields[b"reason"].decode(), Bookmark.of(parse_ref(ref)[0], origin, parse_ref(ref)[1]))
        for _, fields in redis.xrange(key(instance, "journal", queue))
        for ref in fields[b"refs"].decode().split()
    ]
