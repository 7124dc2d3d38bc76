"""Duty: a link to each destination of the instance, in a thread of its own; and requests for what waits elsewhere."""

from __future__ import annotations

import logging
import math
import threading
import time
from typing import TYPE_CHECKING, ClassVar, Final

from ampsq.base.errors import Rejected
from ampsq.coordinator.duty import Definitions
from ampsq.definitions.destination import Destination
from ampsq.protocol.calls import ownership as ownership_calls
from ampsq.protocol.reads.queues import count_remote
from ampsq.protocol.reads.subscribers import count_members
from ampsq.replication.link_runner import LinkRunner
from ampsq.replication.ownership import assume_lost
from ampsq.replication.recovery import Recovery, resume_recovered

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ampsq.coordinator.duty import Happened
    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.replication.link_rounds import LinkRounds
    from ampsq.transport.server_wait import ServerWait
    from ampsq.transport.store import Store

__all__ = ["Links"]

_log = logging.getLogger("ampsq.coordinator")
#: Seconds between two rounds while something waits elsewhere that somebody here may be free for, and until it is seen
#: that a link has ended by itself.
_PAUSE: Final = 0.1
_LINKED_PAUSE: Final = 60.0
_SHORT_PAUSE: Final = 0.01
#: Seconds after which messages that stay elsewhere, such as delayed ones, are asked for only when a look at the
#: instance finds them, each second, or when something happens here.
_QUIET_AFTER: Final = 2.0
#: Of so many messages that others own the owners are looked at, a round.
_ASSUMED: Final = 1_000
#: Seconds that all links together have to end.
_ENDS_WITHIN: Final = 1.5


class Links:
    """Keeps a link to each destination that has an address.

    Args:
        servers: what waits for a lost server; None: each link waits by itself.
        definitions: the catalog that it goes by; default one of its own.
        clock: seconds; default the monotonic clock.
        rounds: what all links ask together; None: each link asks by itself.

    Attributes:
        shared_queues: the queues that another instance has, too.
    """

    name = "links"
    wakes: ClassVar[frozenset[Happened]] = frozenset({"catalog", "clients", "due", "news", "remote"})

    def __init__(
        self,
        servers: ServerWait | None = None,
        definitions: Definitions | None = None,
        clock: Callable[[], float] = time.monotonic,
        rounds: LinkRounds | None = None,
    ) -> None:
        self._servers, self._clock, self._rounds = servers, clock, rounds
        self._definitions = definitions or Definitions()
        self.shared_queues: tuple[str, ...] = ()
        self._runs: dict[str, tuple[str, threading.Thread, LinkRunner]] = {}
        self._version = -1
        self._recovery: Recovery | None = None
        # Consumers here, and messages elsewhere by queue, as they were seen last; and since when that is so.
        self._seen: tuple[int, ...] = ()
        self._seen_since = 0.0

    def run_once(self, store: Store) -> float:
        """Begin what is newly defined, end what is not defined any more, ask for what somebody here is free for."""
        catalog = self._definitions.read(store)
        if catalog.version != self._version or any(not thread.is_alive() for _, thread, _ in self._runs.values()):
            self._follow(store, catalog)
            self._recover(store)
            self._version = catalog.version
            self.shared_queues = _shared_queues(catalog)
        elif self._recovery is not None:
            self._recover(store)
        if not catalog.destinations:
            return math.inf
        members = {name: store.call(count_members(store.instance, name)) for name in self.shared_queues}
        wanted = [name for name, number in members.items() if number]
        if wanted:
            remote = {name: store.call(count_remote(store.instance, name)) for name in wanted}
            waiting = [name for name, number in remote.items() if number]
            is_quiet, asked = self._is_quiet(*members.values(), *remote.values()), self._request(store, waiting)
            if waiting and not is_quiet:
                # While messages change owner there will be more room, and more that waits.
                return _SHORT_PAUSE if asked else _PAUSE
        return _PAUSE if self._recovery is not None else _LINKED_PAUSE

    def _is_quiet(self, *seen: int) -> bool:
        """Note how many consumers and messages there are; gives whether the numbers have been the same for a while."""
        now = self._clock()
        if seen != self._seen:
            self._seen, self._seen_since = seen, now
        return now - self._seen_since > _QUIET_AFTER

    def stop(self) -> None:
        """Ask all links to end, without waiting for them."""
        for _, _, run in self._runs.values():
            run.stop()

    def close(self) -> None:
        """End all links."""
        self._end(list(self._runs))

    def join(self, until: float) -> None:
        """Wait for links that were asked to end, up to a moment of the monotonic clock."""
        for _, thread, _ in self._runs.values():
            thread.join(max(until - time.monotonic(), 0.0))

    def _end(self, names: Sequence[str]) -> None:
        """End links together, within one deadline."""
        ended = [self._runs.pop(name) for name in names]
        for _, _, run in ended:
            run.stop()
        until = time.monotonic() + _ENDS_WITHIN
        for _, thread, _ in ended:
            thread.join(max(until - time.monotonic(), 0.0))

    def _follow(self, store: Store, catalog: Catalog) -> None:
        runs = self._runs.items()
        self._end([n for n, (text, thread, _) in runs if catalog.destinations.get(n) != text or not thread.is_alive()])
        for name, text in catalog.destinations.items():
            definition = Destination.from_json(text)
            if name in self._runs or not definition.addresses:
                continue
            run = LinkRunner(
                store.url, store.instance, definition, threading.Event(), self._servers, rounds=self._rounds
            )
            thread = threading.Thread(target=run.run, name=f"link-{store.instance}-{name}", daemon=True)
            self._runs[name] = (text, thread, run)
            thread.start()

    def _recover(self, store: Store) -> None:
        """Let queues go on that are held, once all is here; whatever begins that, changes the catalog."""
        before, self._recovery = self._recovery, store.run(resume_recovered(store.instance))
        if self._recovery is not None and self._recovery != before:
            _log.warning(
                "%s is a new incarnation: queues %s are held until everything is read of %s",
                *(store.instance, ", ".join(self._recovery.queues), ", ".join(self._recovery.waits_for)),
            )
        elif self._recovery is None and before is not None:
            _log.warning("%s has recovered: queues %s go on", store.instance, ", ".join(before.queues))

    @staticmethod
    def _request(store: Store, queues: Sequence[str]) -> int:
        """Ask for what others own and somebody here is free for; gives for how many messages."""
        asked = 0
        for queue in queues:
            try:
                wanted = store.call(ownership_calls.request_ownership(queue))
                asked += wanted
                if wanted:
                    store.run(assume_lost(store.instance, queue, _ASSUMED))
            except Rejected as error:
                _log.debug("queue %s of %s: %s", queue, store.instance, error)
        return asked


def _shared_queues(catalog: Catalog) -> tuple[str, ...]:
    definitions = [Destination.from_json(text) for text in catalog.destinations.values()]
    return tuple(
        queue
        for queue in catalog.queues
        if any(definition.topic_for(queue, catalog.message_type(queue)) is not None for definition in definitions)
    )
