"""Duty: entries and topics that somebody else wrote, with a plain XADD."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ampsq.base.values import is_name
from ampsq.catalog.first_use import add_recorded
from ampsq.coordinator.duty import Definitions
from ampsq.protocol.calls import duties as duty_calls
from ampsq.protocol.reads.duties import scan_logs

if TYPE_CHECKING:
    from ampsq.transport.store import Store

__all__ = ["ForeignEntries"]

_log = logging.getLogger("ampsq.coordinator")
_PAUSE = 0.1
#: Seconds of pause a topic: a thousand topics are looked at twice a second, which costs the server half a percent.
_PAUSE_PER_TOPIC = 0.0005
#: Least rounds between two looks for logs of topics that nobody has published to through ampsq; where the server has
#: many keys, as many rounds as the look takes steps.
_SCAN_EVERY = 10
#: Keys that one step of that look goes over, about.
_STEP = 1000
#: Topics of one call: each costs the server about 2 us while nothing is new.
_TOPICS = 250


class ForeignEntries:
    """Looks at the end of every log, and for new logs."""

    name = "notice"

    def __init__(self) -> None:
        self._definitions = Definitions()
        self._seen: dict[str, str] = {}
        self._rounds = 0
        self._next_scan = 0

    def run_once(self, store: Store) -> float:
        """Look at every known topic, and every second for unknown ones."""
        if self._rounds >= self._next_scan:
            steps = self._find_topics(store)
            self._next_scan = self._rounds + max(_SCAN_EVERY, steps)
        self._rounds += 1
        topics = list(self._seen)
        for first in range(0, len(topics), _TOPICS):
            some = {topic: self._seen[topic] for topic in topics[first : first + _TOPICS]}
            found = store.call(duty_calls.scan_foreign_entries(some))
            self._seen.update(found)
        return max(_PAUSE, len(topics) * _PAUSE_PER_TOPIC)

    def _find_topics(self, store: Store) -> int:
        """Look through the names of all keys; gives how many steps of a thousand that took."""
        catalog = self._definitions.read(store)
        cursor, logs, steps = "0", set[str](), 0
        while not steps or cursor != "0":
            steps += 1
            cursor, found = store.call(scan_logs(store.instance, cursor, _STEP))
            logs |= found
        for topic in sorted(logs - catalog.topics.keys()):
            if is_name(topic):
                _log.log(logging.WARNING if catalog.defined_only else logging.INFO, "topic %s appeared", topic)
                store.run(add_recorded(topic))
        for topic in (*catalog.topics, *logs):
            if is_name(topic):
                self._seen.setdefault(topic, "")
        return steps
