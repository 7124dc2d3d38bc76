"""The thread that reports for a client's topic subscriptions, and reads on for those that are offlined.

It runs only where limits are defined, one a client; synchronous and asyncio clients use the same.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import AmpsqError
from ampsq.base.values import parse_transport
from ampsq.protocol.calls import readers as reader_calls
from ampsq.topics.slow_reader import LimitedReader, spool_folder
from ampsq.transport.store import Store

if TYPE_CHECKING:
    from ampsq.protocol.calls.readers import Report
    from ampsq.topics.replay import LogReader
    from ampsq.topics.slow_reader import Consumer
    from ampsq.transport.pipeline import Pipeline
    from ampsq.transport.route import Route

__all__ = ["Reporting"]

_log = logging.getLogger("ampsq")
#: Seconds between two reports, between two that say the same, and ms after which a reader counts as gone.
_AGAIN: Final = 1.0
_AGAIN_SAME: Final = 5.0
_PERIOD: Final = 15_000
#: Seconds between two looks, and while something is spooled.
_LOOK: Final = 0.25
_LOOK_OFFLINE: Final = 0.02
#: Seconds in which the thread ends, and once more where its server hangs.
_ENDS_WITHIN: Final = 1.0
#: Pages that one reader reads in a row, so that every one gets its turn.
_PAGES: Final = 20


class _Reported:
    """One reader, and when it reported what."""

    def __init__(self, reader: LimitedReader, pipeline: Pipeline) -> None:
        self.reader, self.pipeline = reader, pipeline
        self.due = time.monotonic()
        self.last: Report | None = None
        self.sent = float("-inf")


class Reporting:
    """The reports of a client's topic subscriptions, for limits.

    Args:
        route: the way to the server, shared with the client.
        client: the client's name.
        transport: whose limits count for it.

    Raises:
        DefinitionError: the transport's name is none.
    """

    def __init__(self, route: Route, client: str, transport: str) -> None:
        self._route, self._client = route, client
        self.transport = parse_transport(transport)
        self._store: Store | None = None
        self._readers: list[_Reported] = []
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._number = 0

    def limited(self, reader: LogReader, consumer: Consumer, name: str, *, is_durable: bool) -> LimitedReader:
        """Care for a reader from now on.

        Args:
            reader: it was opened.
            consumer: for whom it reads.
            name: of what it reads.
            is_durable: see `LimitedReader`.
        """
        with self._starting:
            self._number += 1
            made = LimitedReader(
                reader, consumer, name=name, id=f"{self._client}/t{self._number}", is_durable=is_durable,
                on_close=self._forget,
            )  # fmt: skip
            if self._store is None:
                self._store = Store(self._route, self._route.instance, retry_timeout=1.0)
                name = f"ampsq-reporting-{self._client}"
                self._thread = threading.Thread(target=self._run, args=(self._store,), name=name, daemon=True)
                self._thread.start()
            # Of some readers it also waits for the disk.
            self._readers.append(_Reported(made, self._store.pipeline(follows=False)))
        return made

    def _forget(self, reader: LimitedReader) -> None:
        self._readers = [each for each in self._readers if each.reader is not reader]

    def stop(self) -> None:
        """End the thread and its connections."""
        self._stopped.set()
        if self._thread is None or self._store is None:
            return
        self._thread.join(_ENDS_WITHIN)
        if self._thread.is_alive():
            # The server hangs: nobody needs its answer any more.
            self._store.disconnect()
            self._thread.join(_ENDS_WITHIN)
        self._store.close()

    def _run(self, store: Store) -> None:
        pause = 0.0
        while not self._stopped.wait(pause):
            readers = list(self._readers)
            # Each of them, also behind one that is busy.
            is_busy = sum(self._cared_for(each, store) for each in readers) > 0
            is_offline = any(each.reader.is_offline for each in readers)
            pause = 0.0 if is_busy else _LOOK_OFFLINE if is_offline else _LOOK

    def _cared_for(self, each: _Reported, store: Store) -> bool:
        """Do what a reader needs; gives whether it needs more at once."""
        if self._stopped.is_set():
            return False
        try:
            return self._care(each, store)
        except (AmpsqError, OSError) as error:
            # Tried again: until then it is what it was.
            _log.debug("reporting: %s", error)
        except Exception:  # noqa: BLE001  (without this thread nobody is offlined, and logs are not held)
            # Ended, its connections are closed while they are read.
            if not self._stopped.is_set():
                _log.exception("reporting failed; trying again")
        each.due = time.monotonic() + _AGAIN
        return False

    def _care(self, each: _Reported, store: Store) -> bool:
        reader, is_busy = each.reader, False
        if reader.refusal is not None:
            return False
        for _ in range(_PAGES if reader.is_offline else 0):
            is_busy = store.run(reader.fill(each.pipeline))
            if not is_busy:
                break
        if time.monotonic() >= each.due:
            each.due = time.monotonic() + _AGAIN
            self._report(each, store)
            store.run(reader.hold_again())
        if reader.refusal is not None:
            each.pipeline.close()
            store.run(reader.release())
        return is_busy

    def _report(self, each: _Reported, store: Store) -> None:
        told: Report = store.run(each.reader.measure())
        now = time.monotonic()
        if told == each.last and not told.oldest and now < each.sent + _AGAIN_SAME:
            return
        facts = {
            "client": self._client,
            "transport": self.transport,
            "subscription": each.reader.name,
            "topics": sorted(each.reader.places())[:20],
        }
        order = store.call(
            reader_calls.report(
                each.reader.id, self.transport, told, period=_PERIOD, client=self._client, facts=json.dumps(facts)
            )
        )
        each.last, each.sent = told, now
        if each.reader.is_closed:
            # It ended meanwhile, and what it said last came behind that.
            store.call(reader_calls.leave_report(each.reader.id))
            return
        if order.word:
            each.reader.obey(order, spool_folder(each.reader.transports, self.transport))
            each.last = None
