"""Duty: entries and topics that somebody else wrote, with a plain XADD."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ampsq import calls
from ampsq.flow import command
from ampsq.schema import key
from ampsq.session import Session
from ampsq.values import is_name

if TYPE_CHECKING:
    from ampsq.store import Store

__all__ = ["Notice"]

_log = logging.getLogger("ampsq.coordinator")
_PAUSE = 0.1
#: Rounds between two looks for logs of topics that nobody has published to through ampsq.
_SCAN_EVERY = 10
#: Topics of one call: each costs the server about 2 us while nothing is new.
_TOPICS = 250


class Notice:
    """Looks at the end of every log, and for new logs."""

    name = "notice"

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}
        self._rounds = 0

    def run_once(self, store: Store) -> float:
        """Look at every known topic, and every second for unknown ones."""
        if self._rounds % _SCAN_EVERY == 0:
            self._find_topics(store)
        self._rounds += 1
        topics = list(self._seen)
        for first in range(0, len(topics), _TOPICS):
            some = {topic: self._seen[topic] for topic in topics[first : first + _TOPICS]}
            found = store.call(calls.notice(some))
            self._seen.update(found)
        return _PAUSE

    def _find_topics(self, store: Store) -> None:
        catalog = store.call(calls.catalog())
        prefix = key(store.instance, "log", "")
        cursor, logs = b"0", set()
        while True:
            cursor, found = store.call(
                command(
                    ["SCAN", cursor, "MATCH", _escaped(prefix) + "*", "COUNT", 1000, "TYPE", "stream"],
                    lambda reply: (reply[0], reply[1]),
                )
            )
            logs |= {name.decode(errors="replace").removeprefix(prefix) for name in found}
            if cursor == b"0":
                break
        for topic in sorted(logs - catalog.topics.keys()):
            if is_name(topic):
                _log.info("topic %s appeared", topic)
                store.run(Session(store.instance, None).add_topic(topic))
        for topic in (*catalog.topics, *logs):
            if is_name(topic):
                self._seen.setdefault(topic, "")


def _escaped(text: str) -> str:
    """Protect what SCAN's patterns give a meaning to."""
    return "".join(f"\\{letter}" if letter in "*?[]\\" else letter for letter in text)
