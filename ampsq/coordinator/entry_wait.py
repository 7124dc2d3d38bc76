"""Waiting for entries in the logs of instances that rest long: one blocked read for all of a server.

Scripts wake a coordinator themselves (lua/lib/timetable.lua). A plain XADD tells nobody: an instance that rests long is
looked at too seldom for that, so the server tells of it. A blocked read costs nothing while nothing comes, and as much
as a look when it begins: so one begins at most each second, and entries that come meanwhile are found by the next one.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Final, cast

from ampsq.base.errors import AmpsqError
from ampsq.protocol.reads.streams import wait_for_any
from ampsq.transport.kept_pipeline import KeptPipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ampsq.transport.store import Store

__all__ = ["EntryWait"]

_log = logging.getLogger("ampsq.coordinator")
#: Seconds of one blocked read: an instance that is to be waited for is from the next one on. Where the instances were
#: the same ones as before, the next read lasts twice as long, up to the most.
_WAIT: Final = 10.0
_LONGEST_WAIT: Final = 60.0
#: Least seconds from the beginning of a read to that of the next one.
_NOT_SOONER: Final = 0.9
#: Seconds until it is tried again after a failure.
_AFTER_FAILURE: Final = 15.0


class EntryWait:
    """A thread with a connection of its own, from the first instance on that is to be waited for.

    Args:
        store: on the server, for this alone; it is closed with it.
        wanted: gives the instances to wait for: of each its logs, by key, with the last ID seen in each.
        found: called with the instances in whose logs entries are, in the thread.

    Attributes:
        covered: the instances that are waited for: of each other one whoever wants to know has to look.
    """

    def __init__(
        self,
        store: Store,
        wanted: Callable[[], Mapping[str, Mapping[str, str]]],
        found: Callable[[set[str]], None],
    ) -> None:
        self._store, self._wanted, self._found = store, wanted, found
        self.covered: frozenset[str] = frozenset()
        self._seconds = _WAIT
        self._asking = KeptPipeline()
        self._closed, self._is_wanted = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def want(self) -> None:
        """Begin to wait, where nothing is waited for: there is an instance that could rest long."""
        if self._thread is None and not self._closed.is_set():
            self._thread = threading.Thread(target=self._run, name="coordinator-entries", daemon=True)
            self._thread.start()
        self._is_wanted.set()

    def close(self) -> None:
        """End the thread, without waiting for it."""
        self._closed.set()
        self._is_wanted.set()
        # It may be in the middle of a read.
        self._store.disconnect()

    def _run(self) -> None:
        while not self._closed.is_set():
            self._is_wanted.wait()
            self._is_wanted.clear()
            pause: float | None = 0.0
            while pause is not None and not self._closed.wait(pause):
                pause = self._wait()
            self.covered = frozenset()
        self._asking.close()
        self._store.close()

    def _wait(self) -> float | None:
        """Wait once; gives the seconds until the next read may begin, None where nothing is to be waited for."""
        began = time.monotonic()
        try:
            logs = self._wanted()
            if not logs:
                return None
            names = {key: name for name, places in logs.items() for key in places}
            places = {key: place for some in logs.values() for key, place in some.items()}
            is_same, self.covered = self.covered == logs.keys(), frozenset(logs)
            self._seconds = min(2 * self._seconds, _LONGEST_WAIT) if is_same else _WAIT
            with contextlib.closing(self._asking.ask(self._store, [wait_for_any(places, self._seconds)])) as replies:
                keys = cast("list[str]", next(replies))
        except AmpsqError as error:
            self.covered = frozenset()
            _log.debug("waiting for entries failed, so that all instances are looked at each second: %s", error)
            return _AFTER_FAILURE
        except Exception:  # noqa: BLE001  (without this thread instances would be looked at each second for good)
            self.covered = frozenset()
            # Closed by us while it was read.
            if not self._closed.is_set():
                _log.exception("waiting for entries failed, so that all instances are looked at each second")
            return _AFTER_FAILURE
        if keys:
            found = {names[key] for key in keys}
            self.covered -= found
            self._found(found)
        return max(began + _NOT_SOONER - time.monotonic(), 0.0)
