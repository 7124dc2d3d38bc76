"""One instance while a coordinator cares for it: its duties, and which of them have something to do."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.base.errors import FormatMismatch, Unavailable
from ampsq.catalog.action_sources import sources_of
from ampsq.coordinator.actions import Actions
from ampsq.coordinator.actions.sources import stream_of
from ampsq.coordinator.duty import Definitions
from ampsq.coordinator.flush_settings import FlushSettings
from ampsq.coordinator.foreign_entries import ForeignEntries
from ampsq.coordinator.links import Links
from ampsq.coordinator.lost_clients import LostClients
from ampsq.coordinator.queue_history import QueueHistory
from ampsq.coordinator.rebuilds import Rebuilds
from ampsq.coordinator.retention import Retention
from ampsq.coordinator.sweep import SweepDue
from ampsq.coordinator.views import Views
from ampsq.coordinator.wanted_names import WantedNames
from ampsq.definitions.action import Action
from ampsq.definitions.queue import View
from ampsq.protocol.calls.duties import WatchedInstance
from ampsq.protocol.reads.streams import events_of, log_of
from ampsq.views.upkeep import is_over_queue

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ampsq.coordinator.actions import OutsidePermissions
    from ampsq.coordinator.duty import Duty, Happened
    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.protocol.calls.duties import InstanceNews
    from ampsq.replication.link_rounds import LinkRounds
    from ampsq.transport.server_wait import ServerWait
    from ampsq.transport.store import Store

__all__ = ["InstanceDuties", "RoundFailure"]

_log = logging.getLogger("ampsq.coordinator")
#: Seconds until a duty that failed is tried again.
_AFTER_FAILURE: Final = 0.5
#: What a look may say of an instance, that duties are for.
_LOOKED_AT: Final[frozenset[Happened]] = frozenset({"catalog", "names", "clients", "rebuilds", "remote"})
#: Seconds until news in a log are looked at for what has become too old, or too much.
_TRIM_AFTER: Final = 1.0


class RoundFailure(NamedTuple):
    """A round that could not be done.

    Attributes:
        duty: whose it is.
        error: why: the server does not answer, or the instance has another format.
    """

    duty: str
    error: Unavailable | FormatMismatch


class InstanceDuties:
    """The duties of one instance. One round at a time; `wake` may be called meanwhile, from any thread.

    Args:
        store: on the instance.
        servers: what waits for a lost server.
        powers: what actions may do outside of the instance.
        rounds: what the links of all instances ask together.

    Attributes:
        store: on the instance.
        watched: what is to be looked at while nothing is to be done, and what was seen of it last.
        leaving: set when the instance is not cared for any more.
    """

    def __init__(
        self, store: Store, servers: ServerWait, powers: OutsidePermissions, rounds: LinkRounds | None = None
    ) -> None:
        self.store, self.leaving = store, threading.Event()
        self.watched = WatchedInstance(store.instance)
        self._definitions = Definitions()
        self._foreign = ForeignEntries(self._definitions, is_scanning=False)
        self._absence = LostClients()
        self._links = Links(servers, self._definitions, rounds=rounds)
        self._retention = Retention(definitions=self._definitions)
        self._duties: Sequence[Duty] = (
            SweepDue(),
            WantedNames(),
            FlushSettings(),
            self._absence,
            self._foreign,
            self._links,
            Actions(powers, self._definitions),
            Views(self._definitions),
            Rebuilds(),
            QueueHistory(self._definitions),
            self._retention,
        )
        self._wanted_at = [0.0] * len(self._duties)
        self._woken = set(range(len(self._duties)))
        self._well_at = dict.fromkeys((duty.name for duty in self._duties), time.monotonic())
        self._faults: dict[str, str] = {}
        # Held over a few assignments only.
        self._changing = threading.Lock()
        # Held over a round: where the instance was moved, one that began there may be under way.
        self._round = threading.Lock()
        self._watched_of: Catalog | None = None
        self._log_keys: frozenset[str] = frozenset()

    @property
    def channels(self) -> frozenset[str]:
        """The channels that clients of the instance have to listen to."""
        return self._absence.channels

    @property
    def seen_logs(self) -> dict[str, str] | None:
        """Key of each log -> the last ID that was seen in it; None before the catalog was read."""
        streams = self.watched.streams
        return {key: streams[key] for key in self._log_keys if key in streams} if self.watched.catalog else None

    @property
    def wanted_at(self) -> float:
        """Time of the next wanted round, by the monotonic clock; `math.inf` where only events count."""
        # Without the lock, since it is asked of all instances each second: either is read at once.
        return 0.0 if self._woken else min(self._wanted_at)

    def lateness(self, now: float) -> dict[str, float]:
        """Return for each duty the seconds since it had nothing left to do, or had done a round without a failure."""
        with self._changing:
            return {
                duty.name: now - self._well_at[duty.name]
                if index in self._woken or self._wanted_at[index] <= now
                else 0.0
                for index, duty in enumerate(self._duties)
            }

    def wake(self, what: Iterable[Happened]) -> None:
        """Let the duties have a round that have something to do when that happens."""
        happened = frozenset(what)
        if "catalog" in happened:
            self._definitions.is_current = False
        if "news" in happened:
            self._retention.has_news()
        now = time.monotonic()
        with self._changing:
            for index, duty in enumerate(self._duties):
                if index not in self._woken and ("catalog" in happened or duty.wakes & happened):
                    if self._wanted_at[index] > now:
                        self._well_at[duty.name] = now
                    self._woken.add(index)
            if "news" in happened:
                place = self._duties.index(self._retention)
                self._wanted_at[place] = min(self._wanted_at[place], now + _TRIM_AFTER)

    def wake_all(self) -> None:
        """Let every duty have a round: the server may be another one, or not what it was."""
        self.wake(("catalog",))

    def take_news(self, news: InstanceNews) -> None:
        """Take in what a look has found, and wake the duties that it concerns."""
        what = {word for word in _LOOKED_AT if word in news.what}
        if news.clients is not None:
            self.watched.clients = news.clients
        if news.streams:
            self.watched.streams = {**self.watched.streams, **news.streams}
            what.add("news")
        if news.wait == 0.0:
            what.add("due")
        elif news.wait is not None:
            with self._changing:
                self._wanted_at[0] = min(self._wanted_at[0], time.monotonic() + news.wait)
        if what:
            self.wake(what)

    def find_log(self, topic: str) -> bool:
        """Take in that there is a log of a topic; gives whether that is new, so that a round is wanted."""
        if not self._foreign.appear(topic):
            return False
        self.wake(("news",))
        return True

    def keep_clock(self, now: float) -> bool:
        """Compare the server's clock, in seconds, with the own one; False where it jumped."""
        return self._absence.keep_clock(now)

    def do_round(self) -> list[RoundFailure]:
        """Let each duty that has something to do have its round, one after the other.

        Returns:
            What could not be done since the server did not answer, or refused.
        """
        with self._round:
            return self._do_round()

    def _do_round(self) -> list[RoundFailure]:
        failures, before = [], self._definitions.known
        for index, duty in enumerate(self._duties):
            with self._changing:
                is_wanted = index in self._woken or self._wanted_at[index] <= time.monotonic()
                self._woken.discard(index)
            if is_wanted and not self.leaving.is_set():
                failure = self._do(index, duty)
                if failure is not None:
                    failures.append(failure)
        self._follow_catalog()
        if self._definitions.known is not before:
            # Some of them may have gone by the catalog as it was.
            with self._changing:
                self._woken.update(range(len(self._duties)))
        return failures

    def _do(self, index: int, duty: Duty) -> RoundFailure | None:
        """One round of a duty. A failing duty is logged and tried again; it never stops the others."""
        failure, pause = None, _AFTER_FAILURE
        try:
            pause = duty.run_once(self.store)
        except (Unavailable, FormatMismatch) as error:
            failure = RoundFailure(duty.name, error)
        except Exception:  # noqa: BLE001  (one duty's bug must not stop the others)
            _log.exception("%s of %s failed; trying again", duty.name, self.store.instance)
        else:
            if self._faults.pop(duty.name, "") and not self._faults:
                _log.info("%s goes on", self.store.instance)
            self._well_at[duty.name] = time.monotonic()
        with self._changing:
            self._wanted_at[index] = time.monotonic() + pause
        return failure

    def _follow_catalog(self) -> None:
        """Look at what the catalog has now."""
        catalog = self._definitions.known
        if catalog is None:
            return
        # Whoever looks sees from here on that it changes.
        version, instance, streams = str(catalog.version), self.store.instance, self.watched.streams
        if self.watched.catalog != version:
            self.watched.catalog = version
        self._definitions.is_current = True
        if catalog is not self._watched_of:
            self._watched_of = catalog
            self.watched.queues = self._links.shared_queues
            self.watched.follows = bool(catalog.actions or catalog.views or self.watched.queues)
            self._log_keys = frozenset(map(self._log_key, {**catalog.topics, **self._foreign.seen}))
            keys = [*sorted(self._log_keys), *_followed_keys(instance, catalog)]
            streams = {key: streams.get(key, "0-0") for key in keys}
        seen = {self._log_key(topic): last or "0-0" for topic, last in self._foreign.seen.items()}
        if streams is not self.watched.streams or any(streams.get(key) != last for key, last in seen.items()):
            self.watched.streams = {**streams, **seen}

    def _log_key(self, topic: str) -> str:
        return log_of(topic).key(self.store.instance)

    def warn(self, failure: RoundFailure) -> None:
        """Log why a duty waits, once for all of the instance that wait for the same reason."""
        text = str(failure.error)
        if text not in self._faults.values() and not self.leaving.is_set():
            _log.warning("%s of %s waits: %s", failure.duty, self.store.instance, failure.error)
        self._faults[failure.duty] = text

    def stop(self) -> None:
        """Ask for an end, without waiting for it."""
        self.leaving.set()
        self._links.stop()

    def join(self, until: float) -> None:
        """Wait for what the duties run beside their rounds, up to a moment of the monotonic clock."""
        self._links.join(until)

    def close(self) -> None:
        """End what the duties run beside their rounds."""
        self.leaving.set()
        self._links.close()
        self.store.close()


def _followed_keys(instance: str, catalog: Catalog) -> list[str]:
    """The streams beside logs in which actions and views find what is new."""
    streams = [
        stream_of(name, source)
        for name, text in catalog.actions.items()
        for source in sources_of(Action.from_json(text), catalog)
        if source.kind not in ("clock", "overdue")
    ]
    for text in catalog.views.values():
        view = View.from_json(text)
        if is_over_queue(catalog, view):
            streams.append(events_of(view.underlying_topic[0]))
    return [stream.key(instance) for stream in streams]
