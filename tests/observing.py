"""Observers for tests of every kind: waiting for something with a deadline, and the journal's entries."""

from __future__ import annotations

import time

from ampsq.base.bookmarks import Bookmark, parse_ref
from ampsq.protocol.schema import key

__all__ = ["eventually", "is_cared_for", "journal_of"]


def eventually(condition, within=30.0):
    """Wait until a condition holds and give what it gave; fails after `within` seconds."""
    deadline = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {within} s in vain"
        time.sleep(0.01)  # between two looks
    return found


def journal_of(redis, instance, origin, queue):
    """Return (how, reason, bookmark) of each message that a queue settled, in order, by plain commands alone."""
    return [
        (fields[b"how"].decode(), fields[b"reason"].decode(), Bookmark.of(parse_ref(ref)[0], origin, parse_ref(ref)[1]))
        for _, fields in redis.xrange(key(instance, "journal", queue))
        for ref in fields[b"refs"].decode().split()
    ]


def is_cared_for(redis, *instances, within=20.0):
    """Return whether a coordinator does what is due in each of the instances from here on; with plain commands."""
    # Of a subscription that nobody knows: the sweep takes it off, and that is all.
    for name in instances:
        redis.zadd(key(name, "due"), {"departed nobody": 1})
    eventually(lambda: not any(redis.zscore(key(name, "due"), "departed nobody") for name in instances), within)
    return True
