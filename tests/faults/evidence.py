"""Evidence of what really happened: log and journal, read from the server, beside what consumers wrote down."""

from __future__ import annotations

import contextlib
import json
from collections import Counter

import redis
from observing import journal_of

from ampsq.base.bookmarks import Bookmark
from ampsq.protocol.schema import key


class Evidence:
    """Reads an instance past ampsq, with plain commands."""

    def __init__(self, url, instance, origin):
        self._url, self._instance, self._origin = url, instance, origin

    def _ask(self, question):
        with contextlib.closing(redis.Redis.from_url(self._url)) as client:
            return question(client)

    def published(self, topic):
        """Bookmark -> data of everything in a topic's log."""
        entries = self._ask(lambda client: client.xrange(key(self._instance, "log", topic)))
        return {Bookmark.of(topic, self._origin, entry.decode()): json.loads(fields[b"b"]) for entry, fields in entries}

    def settled(self, queue):
        """Return (how, bookmark) of everything in a queue's journal, in order."""
        entries = self._ask(lambda client: journal_of(client, self._instance, self._origin, queue))
        return [(how, bookmark) for how, _, bookmark in entries]

    def check(self, topic, queue, data):
        """Everything was published once and settled once: lost 0, doubled 0."""
        published = self.published(topic)
        assert sorted(published.values()) == sorted(data)
        settled = Counter(bookmark for _, bookmark in self.settled(queue))
        assert {bookmark: times for bookmark, times in settled.items() if times != 1} == {}
        assert set(settled) == set(published)


def check_never_held_twice(holds):
    """holds: (bookmark, from, until) of every delivery that surely was a live lease then; none overlap."""
    last = {}
    for bookmark, start, end in sorted(holds, key=lambda hold: hold[1]):
        assert start >= last.get(bookmark, 0.0), (
            f"{bookmark} was held twice at once: {[hold for hold in holds if hold[0] == bookmark]}"
        )
        last[bookmark] = end
