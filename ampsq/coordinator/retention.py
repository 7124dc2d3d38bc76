"""Duty: retention. Logs lose what their topics' retention gives up and nobody needs; journals and publishers follow."""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING, ClassVar, Final

from ampsq.base.errors import CatalogChanged
from ampsq.base.values import Interval
from ampsq.coordinator.duty import Definitions
from ampsq.definitions.queue import Topic
from ampsq.protocol.calls.retention import LOG_START, discard_unsettled, forget_publishers
from ampsq.protocol.reads.clock import server_time
from ampsq.protocol.reads.streams import entries_between, log_of
from ampsq.topics.retention import limits_of, trim_journal_step, trim_step
from ampsq.topics.topic_state import feeding

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampsq.coordinator.duty import Happened
    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.protocol.calls.retention import Pin
    from ampsq.transport.store import Store

__all__ = ["Retention"]

_log = logging.getLogger("ampsq.coordinator")
#: Seconds of one round, while the other duties wait.
_ROUND: Final = 0.05
#: Seconds between two looks at a log: the least, and while nothing is removed the double each time, up to the most;
#: then the next one waits for news, or for the age of the oldest message.
_LEAST_PAUSE: Final = 1.0
_MOST_PAUSE: Final = 8.0
#: Seconds for which a message is kept beyond its retention before that is told.
_TELL_AFTER: Final = 60.0
#: Seconds between two looks for publishers that were not heard of for long.
_PUBLISHERS: Final = 3_600.0


class Retention:
    """Trims in turn the logs of the topics that have a retention, and the journals of the queues that they feed.

    Args:
        tell_after: seconds for which a message is kept beyond its retention before that is told.
        definitions: the catalog that it goes by; default one of its own.
        clock: seconds by which it paces itself, which never go back.
    """

    name = "retention"
    wakes: ClassVar[frozenset[Happened]] = frozenset({"catalog"})

    def __init__(
        self,
        tell_after: float = _TELL_AFTER,
        definitions: Definitions | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._definitions = definitions or Definitions()
        self._tell_after = tell_after
        self._version = -1
        self._topics: dict[str, Topic] = {}
        self._work: list[tuple[str, str]] = []
        self._turn = 0
        self._due: dict[tuple[str, str], float] = {}
        self._pause: dict[tuple[str, str], float] = {}
        self._pinned: dict[str, tuple[Pin, float, bool]] = {}
        self._discards: dict[str, tuple[str, int]] = {}
        self._publishers, self._publishers_at = "0", 0.0
        self._is_renewed = False

    def run_once(self, store: Store) -> float:
        """Work on what is due until the time of a round is over; the next one goes on from there."""
        self._forget_publishers(store)
        catalog = self._definitions.read(store)
        if catalog.version != self._version:
            self._plan(catalog)
        if self._is_renewed:
            self._is_renewed = False
            self._renew()
        until = self._clock() + _ROUND
        for _ in range(len(self._work)):
            work = self._work[self._turn % len(self._work)]
            if self._due.get(work, 0.0) <= self._clock():
                if self._clock() >= until:
                    return 0.0
                try:
                    self._trim(store, catalog, work, until)
                except CatalogChanged:
                    self._definitions.is_current = False
                    return 0.0
            self._turn += 1
        wanted = min((self._due[work] for work in self._work), default=math.inf)
        return max(min(wanted, self._publishers_at) - self._clock(), 0.0)

    def has_news(self) -> None:
        """Look again soon at what nothing was to be removed of: something was recorded, or settled."""
        self._is_renewed = True

    def _plan(self, catalog: Catalog) -> None:
        """Plan the work: topics with a retention, and the queues that read them."""
        topics = {name: Topic.stored(name, text) for name, text in catalog.topics.items() if text != "{}"}
        self._topics = {name: topic for name, topic in topics.items() if topic.has_retention}
        queues = dict.fromkeys(queue for name in self._topics for queue in feeding(catalog, name))
        self._work = [*(("log", name) for name in self._topics), *(("journal", name) for name in queues)]
        self._pinned = {name: pinned for name, pinned in self._pinned.items() if name in self._topics}
        self._due, self._pause, self._discards = {}, {}, {}
        self._version = catalog.version

    def _renew(self) -> None:
        for work in self._work:
            if self._due.get(work, 0.0) > self._clock() + _MOST_PAUSE:
                self._due[work], self._pause[work] = self._clock() + _LEAST_PAUSE, _LEAST_PAUSE

    def _trim(self, store: Store, catalog: Catalog, work: tuple[str, str], until: float) -> None:
        """Walk on over one stream, and say when to come again."""
        kind, name = work
        trim: Callable[[Store, Catalog, str], tuple[int, bool]] = self._log if kind == "log" else self._journal
        removed, more = 0, True
        while more:
            number, more = trim(store, catalog, name)
            removed += number
            if self._clock() >= until:
                break
        if removed or more:
            self._pause[work] = _LEAST_PAUSE
        self._due[work] = self._clock() + (0.0 if more else self._pause.get(work, _LEAST_PAUSE))
        if removed:
            self._renew()
        if not removed and not more:
            pause = self._pause.get(work, _LEAST_PAUSE)
            if pause >= _MOST_PAUSE and not (kind == "log" and name in self._pinned):
                self._due[work] = self._at_the_age(store, name) if kind == "log" else math.inf
            self._pause[work] = min(2 * pause, _MOST_PAUSE)

    def _at_the_age(self, store: Store, name: str) -> float:
        """The moment from which the oldest message of a log is too old, by the monotonic clock."""
        age = self._topics[name].retention_age
        if age is None:
            return math.inf
        first = store.call(entries_between(store.instance, log_of(name), "-", "+", 1))
        if not first:
            return math.inf
        milliseconds = int(first[0][0].partition(b"-")[0]) + float(age) - store.call(server_time())
        return self._clock() + max(milliseconds / 1000, _MOST_PAUSE)

    def _log(self, store: Store, catalog: Catalog, name: str) -> tuple[int, bool]:
        topic = self._topics[name]
        step = store.call(trim_step(catalog, name, limits_of(topic)))
        self._tell(name, step.pin, ended=step.next is None)
        if step.next is None and step.pin and topic.retention_unsettled == "discard":
            lost, more = self._discard(store, catalog, topic)
            return step.removed + lost, more or lost > 0
        return step.removed, step.next is not None

    def _discard(self, store: Store, catalog: Catalog, topic: Topic) -> tuple[int, bool]:
        """Let queues lose what is beyond the retention: as many steps as a round has time for, the next one goes on."""
        until = self._clock() + _ROUND
        place, passed = self._discards.pop(topic.name, (LOG_START, 0))
        total = 0
        after: str | None = place
        while after is not None and self._clock() < until:
            after, passed, lost = store.call(
                discard_unsettled(catalog.version, topic.name, limits_of(topic), after, passed)
            )
            total += lost
        if total:
            _log.warning("topic %s: queues lost %d messages beyond its retention", topic.name, total)
        if after is not None:
            self._discards[topic.name] = (after, passed)
        return total, after is not None

    @staticmethod
    def _journal(store: Store, catalog: Catalog, name: str) -> tuple[int, bool]:
        step = store.call(trim_journal_step(catalog, name))
        return step.removed, step.next is not None

    def _tell(self, name: str, pin: Pin | None, *, ended: bool) -> None:
        """Say once that a message is kept beyond the retention for long, and that it is not any more."""
        known = self._pinned.get(name)
        if pin is None:
            if known and ended:
                del self._pinned[name]
                if known[2]:
                    _log.info("topic %s: nothing is kept beyond its retention any more", name)
            return
        if known is None or known[0].id != pin.id:
            self._pinned[name] = (pin, self._clock(), known is not None and known[2])
            return
        if not known[2] and self._clock() - known[1] >= self._tell_after:
            state = f", where it is {pin.state}" if pin.state else ""
            _log.warning(
                "topic %s: message %s is kept beyond its retention (%s) by %s%s",
                name, pin.id, _shown(self._topics[name]), pin.by, state,
            )  # fmt: skip
            self._pinned[name] = (pin, known[1], True)

    def _forget_publishers(self, store: Store) -> None:
        """One step an hour begins a look at all publishers, one a round goes on with it."""
        if self._clock() < self._publishers_at:
            return
        self._publishers = store.call(forget_publishers(self._publishers))
        if self._publishers == "0":
            self._publishers_at = self._clock() + _PUBLISHERS


def _shown(topic: Topic) -> str:
    limits = {"age": topic.retention_age, "size": topic.retention_size, "count": topic.retention_count}
    texts = {
        name: Interval(value).text if name == "age" else value for name, value in limits.items() if value is not None
    }
    return ", ".join(f"{name} {value}" for name, value in texts.items())
