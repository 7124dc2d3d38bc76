"""Duty: rebuilds of queues that somebody began and did not end; until then such a queue reads nothing."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from typing import TYPE_CHECKING, ClassVar, Final

from ampsq.base.errors import AmpsqError, Rebuilding
from ampsq.operations.check.queue import check
from ampsq.protocol.context import InstanceContext
from ampsq.protocol.reads.clock import server_time
from ampsq.protocol.reads.duties import rebuilds
from ampsq.protocol.reads.origin import read_origin
from ampsq.transport.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.coordinator.duty import Happened

__all__ = ["Rebuilds"]

_log = logging.getLogger("ampsq.coordinator")
#: Seconds until it is seen whether a rebuild that lasts is late.
_PAUSE: Final = 2.0


class Rebuilds:
    """Takes over what shows no sign of life, in a thread of its own: the other duties do not wait for it."""

    name = "rebuilds"
    wakes: ClassVar[frozenset[Happened]] = frozenset({"rebuilds"})

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def run_once(self, store: Store) -> float:
        """Look whether something is left over; one small read while nothing is."""
        if self._thread is not None and self._thread.is_alive():
            return _PAUSE
        queues = store.call(rebuilds(store.instance))
        if not queues:
            return math.inf
        now = store.call(server_time())
        late = [name for name, at in queues.items() if at <= now]
        if late:
            self._thread = threading.Thread(target=_take_over, args=(store.url, store.instance, late), daemon=True)
            self._thread.start()
        return _PAUSE


def _take_over(url: str, instance: str, queues: Sequence[str]) -> None:
    with contextlib.closing(Store(url, instance, retry_timeout=5.0)) as store:
        for queue in queues:
            _log.warning("the rebuild of queue %s was not ended; beginning anew", queue)
            try:
                origin = store.call(read_origin(instance))
                store.run(check(InstanceContext(instance, origin), [queue], repair=True))
            except Rebuilding:
                _log.info("somebody else rebuilds queue %s", queue)
            except AmpsqError as error:
                _log.warning("queue %s is not rebuilt yet: %s", queue, error)
