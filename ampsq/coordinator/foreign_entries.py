"""Duty: entries and topics that somebody else wrote, with a plain XADD."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, ClassVar, Final

from ampsq.base.values import is_name
from ampsq.catalog.first_use import add_recorded
from ampsq.coordinator.duty import Definitions
from ampsq.protocol.calls import duties as duty_calls
from ampsq.protocol.reads.duties import scan_logs

if TYPE_CHECKING:
    from ampsq.coordinator.duty import Happened
    from ampsq.transport.store import Store

__all__ = ["ForeignEntries"]

_log = logging.getLogger("ampsq.coordinator")
#: Keys that one step of a look for logs goes over, about.
_STEP: Final = 1000
#: Topics of one call: each costs the server about 2 us while nothing is new.
_TOPICS: Final = 250


class ForeignEntries:
    """Looks at the end of every log, and for new logs.

    Args:
        definitions: the catalog that it goes by; default one of its own.
        is_scanning: each round looks through the names of all keys for logs of topics that nobody defined. A
            coordinator does that once for all its instances, and says what it found by `appear`.

    Attributes:
        seen: topic -> the last ID of its log that was looked at.
    """

    name = "notice"
    wakes: ClassVar[frozenset[Happened]] = frozenset({"news", "catalog"})

    def __init__(self, definitions: Definitions | None = None, *, is_scanning: bool = True) -> None:
        self._definitions = definitions or Definitions()
        self._is_scanning = is_scanning
        self._appeared: set[str] = set()
        self.seen: dict[str, str] = {}

    def appear(self, topic: str) -> bool:
        """Take in that there is a log of a topic; False where it was known."""
        if topic in self.seen or topic in self._appeared or not is_name(topic):
            return False
        self._appeared.add(topic)
        return True

    def run_once(self, store: Store) -> float:
        """Look at every known topic."""
        catalog = self._definitions.read(store)
        if self._is_scanning:
            self._appeared |= self._find_logs(store)
        for topic in sorted(self._appeared - catalog.topics.keys()):
            if is_name(topic):
                _log.log(logging.WARNING if catalog.defined_only else logging.INFO, "topic %s appeared", topic)
                store.run(add_recorded(topic))
        for topic in (*catalog.topics, *self._appeared):
            if is_name(topic):
                self.seen.setdefault(topic, "")
        self._appeared.clear()
        topics = list(self.seen)
        for first in range(0, len(topics), _TOPICS):
            some = {topic: self.seen[topic] for topic in topics[first : first + _TOPICS]}
            found = store.call(duty_calls.scan_foreign_entries(some))
            self.seen.update(found)
        return math.inf

    @staticmethod
    def _find_logs(store: Store) -> set[str]:
        """Look through the names of all keys for logs of the instance."""
        cursor, logs, is_first = "0", set[str](), True
        while is_first or cursor != "0":
            cursor, found = store.call(scan_logs(store.instance, cursor, _STEP))
            logs |= found
            is_first = False
        return logs
