"""Waiting for entries in the logs of instances of a cluster's node that rest long: the node tells of each log once.

A blocked read (entry_wait.py) cannot wait at several slots. A node of a cluster that was asked for a key tells of its
next change, `CLIENT TRACKING`, for any number of keys on one connection. It tells that when it forgets a key, too.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import AmpsqError
from ampsq.transport.tracked_keys import TrackedKeys

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ampsq.transport.route import Route
    from ampsq.transport.tracked_keys import KeyNews

__all__ = ["TrackedEntries"]

_log = logging.getLogger("ampsq.coordinator")
#: Seconds of one wait; the connection is looked after in between.
_WAIT: Final = 5.0
#: Seconds until logs are asked for again that the node does not tell of.
_AFTER_FAILURE: Final = 15.0


class TrackedEntries:
    """A thread with a connection of its own, from the first instance on that is to be waited for.

    Args:
        wanted: gives the instances to wait for: of each its logs, by key, with the last ID seen in each.
        found: called with the instances in whose logs entries are, in the thread.
        route: gives the way to an instance; None: it is not cared for here any more.

    Attributes:
        covered: the instances whose logs the node tells of: of each other one whoever wants to know has to look. One
            that comes to it is to be looked at once more: what its logs have by then, nobody tells.
    """

    def __init__(
        self,
        wanted: Callable[[], Mapping[str, Mapping[str, str]]],
        found: Callable[[set[str]], None],
        route: Callable[[str], Route | None],
    ) -> None:
        self._wanted, self._found, self._route = wanted, found, route
        self.covered: frozenset[str] = frozenset()
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str] = {}
        # Those that the node was asked about and has not answered.
        self._asked: set[str] = set()
        self._failed_at: dict[str, float] = {}
        self._is_wanted, self._is_closed = False, False
        self._keys: TrackedKeys | None = None
        # Guards all of it; held over a few assignments only.
        self._changing = threading.Lock()

    def want(self) -> None:
        """Ask for instances that could rest long, and are not waited for."""
        with self._changing:
            if self._is_closed:
                return
            self._is_wanted = True
            if self._keys is None:
                self._keys = TrackedKeys()
                threading.Thread(target=self._run, args=(self._keys,), name="coordinator-entries", daemon=True).start()
            self._keys.wake()

    def uncover(self, instance: str) -> None:
        """Wait for an instance no more: something happens there, and it may have other logs when it rests again."""
        with self._changing:
            self._asked.discard(instance)
            if instance in self.covered:
                self.covered -= {instance}

    def close(self) -> None:
        """End the thread, without waiting for it."""
        with self._changing:
            self._is_closed, self.covered = True, frozenset()
            if self._keys is not None:
                self._keys.wake()

    def _run(self, keys: TrackedKeys) -> None:
        while not self._is_closed:
            try:
                if self._is_wanted:
                    self._ask(keys)
                news = keys.wait(_WAIT)
                self._take_in(news, is_refused=keys.is_refused)
            except Exception:  # noqa: BLE001  (without this thread instances would be looked at each second for good)
                with self._changing:
                    self.covered = frozenset()
                    # Their answers may be lost, so that they are to be asked about again.
                    self._asked.clear()
                _log.exception("waiting for entries failed, so that all instances are looked at each second")
                time.sleep(1.0)
        keys.close()

    def _ask(self, keys: TrackedKeys) -> None:
        """Ask the node for the logs of all that are to be waited for, and are not."""
        self._is_wanted = False
        now = time.monotonic()
        for name, places in self._wanted().items():
            with self._changing:
                is_known = name in self.covered or name in self._asked
                if is_known or now < self._failed_at.get(name, now):
                    continue
                number = self._numbers.setdefault(name, len(self._numbers))
                self._names[number] = name
                if places:
                    self._asked.add(name)
                else:
                    self.covered |= {name}
                    continue
            route = self._route(name)
            try:
                if route is not None:
                    keys.ask(number, route, list(places))
            except AmpsqError as error:
                self._fail(name)
                _log.debug("waiting for entries of %s failed, so that it is looked at each second: %s", name, error)

    def _fail(self, name: str) -> None:
        self._failed_at[name] = time.monotonic() + _AFTER_FAILURE
        with self._changing:
            self._asked.discard(name)

    def _take_in(self, news: list[KeyNews], *, is_refused: bool) -> None:
        found: set[str] = set()
        with self._changing:
            covered = set(self.covered)
            for each in news:
                name = self._names[each.number]
                match each.what:
                    case "asked" if is_refused:
                        self._asked.discard(name)
                        self._failed_at[name] = time.monotonic() + _AFTER_FAILURE
                    case "asked" if name in self._asked and not self._is_closed:
                        self._asked.discard(name)
                        covered.add(name)
                    case "changed":
                        self._asked.discard(name)
                        covered.discard(name)
                        found.add(name)
                    case "lost":
                        self._asked.discard(name)
                        covered.discard(name)
                        self._failed_at[name] = time.monotonic() + _AFTER_FAILURE
                    case _:
                        pass
            if covered != self.covered:
                self.covered = frozenset(covered)
        if found:
            self._found(found)
