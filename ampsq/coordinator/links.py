"""Duty: a link to each destination of the instance, in a thread of its own; and requests for what waits elsewhere."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import Rejected
from ampsq.coordinator.duty import Definitions
from ampsq.definitions.destination import Destination
from ampsq.protocol.calls import ownership as ownership_calls
from ampsq.replication.link_runner import LinkRunner
from ampsq.replication.ownership import assume_lost
from ampsq.replication.recovery import Recovery, resume_recovered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.transport.server_wait import ServerWait
    from ampsq.transport.store import Store

__all__ = ["Links"]

_log = logging.getLogger("ampsq.coordinator")
#: Seconds between two rounds: how soon a new destination is linked, and what waits elsewhere is asked for.
_PAUSE: Final = 0.1
_SHORT_PAUSE: Final = 0.01
#: Of so many messages that others own the owners are looked at, a round.
_ASSUMED: Final = 1_000
#: Seconds that all links together have to end.
_ENDS_WITHIN: Final = 1.5


class Links:
    """Keeps a link to each destination that has an address.

    Args:
        servers: what waits for a lost server; None: each link waits by itself.
    """

    name = "links"

    def __init__(self, servers: ServerWait | None = None) -> None:
        self._servers = servers
        self._definitions = Definitions()
        self._runs: dict[str, tuple[str, threading.Thread, threading.Event]] = {}
        self._version = -1
        self._recovery: Recovery | None = None

    def run_once(self, store: Store) -> float:
        """Begin what is newly defined, end what is not defined any more, ask for what somebody here is free for."""
        catalog = self._definitions.read(store)
        if catalog.version != self._version or any(not thread.is_alive() for _, thread, _ in self._runs.values()):
            self._follow(store, catalog)
            self._recover(store)
            self._version = catalog.version
        elif self._recovery is not None:
            self._recover(store)
        # While messages change owner there will be more room, and more that waits.
        return _SHORT_PAUSE if catalog.destinations and self._request(store, catalog) else _PAUSE

    def close(self) -> None:
        """End all links."""
        self._end(list(self._runs))

    def _end(self, names: Sequence[str]) -> None:
        """End links together, within one deadline."""
        ended = [self._runs.pop(name) for name in names]
        for _, _, stopping in ended:
            stopping.set()
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
            stopping = threading.Event()
            run = LinkRunner(store.url, store.instance, definition, stopping, self._servers)
            thread = threading.Thread(target=run.run, name=f"link-{store.instance}-{name}", daemon=True)
            self._runs[name] = (text, thread, stopping)
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
    def _request(store: Store, catalog: Catalog) -> int:
        """Gives for how many messages."""
        asked = 0
        definitions = [Destination.from_json(text) for text in catalog.destinations.values()]
        for queue in catalog.queues:
            type_of = catalog.message_type(queue)
            if any(definition.topic_for(queue, type_of) is not None for definition in definitions):
                try:
                    wanted = store.call(ownership_calls.request_ownership(queue))
                    asked += wanted
                    if wanted:
                        store.run(assume_lost(store.instance, queue, _ASSUMED))
                except Rejected as error:
                    _log.debug("queue %s of %s: %s", queue, store.instance, error)
        return asked
