"""The process: every duty of every instance, each in its turn, until it is told to stop."""

from __future__ import annotations

import logging
import signal
import threading
import time
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import AmpsqError, FormatMismatch, Unavailable
from ampsq.base.shutdown import StopRequest
from ampsq.coordinator.actions import Actions, OutsidePermissions
from ampsq.coordinator.flush_settings import FlushSettings
from ampsq.coordinator.foreign_entries import ForeignEntries
from ampsq.coordinator.links import Links
from ampsq.coordinator.lost_clients import LostClients
from ampsq.coordinator.rebuilds import Rebuilds
from ampsq.coordinator.retention import Retention
from ampsq.coordinator.sweep import SweepDue
from ampsq.coordinator.views import Views
from ampsq.coordinator.wanted_names import WantedNames
from ampsq.protocol.reads.instances import list_instances
from ampsq.transport.server_wait import ServerWait

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.coordinator.duty import Duty
    from ampsq.transport.store import Store

__all__ = ["Coordinator"]

_log = logging.getLogger("ampsq.coordinator")
_LOOK_FOR_INSTANCES: Final = 1.0
_AFTER_FAILURE: Final = 0.5
#: Seconds that all instances together have to end; what then still waits for a server is left.
_ENDS_WITHIN: Final = 2.0


class Coordinator:
    """Drives what must happen over time. Any number may run; none at all stops only what depends on time.

    Args:
        url: the server.
        instances: the instances to care for; default all that the server carries, later ones included.
        powers: what actions may do outside of the instance; default nothing.
    """

    def __init__(self, url: str, instances: Sequence[str] = (), powers: OutsidePermissions | None = None) -> None:
        self._powers = powers or OutsidePermissions()
        self._url = url
        self._named = tuple(instances)
        self._asked = StopRequest()
        self._stopping = threading.Event()
        # Held while an instance is begun with, and while the end of all begins.
        self._changing = threading.Lock()
        self._servers = ServerWait(_log)
        self._found: list[str] = []
        self._search_fault = ""
        self._threads: dict[str, tuple[threading.Thread, threading.Event]] = {}
        self._ran: dict[tuple[str, str], float] = {}

    @property
    def rounds(self) -> dict[tuple[str, str], float]:
        """Instance and duty -> seconds since that last ran to its end without a failure, or should have first."""
        now = time.monotonic()
        cared = {name for name, (_, leaving) in self._threads.copy().items() if not leaving.is_set()}
        return {which: now - at for which, at in self._ran.copy().items() if which[0] in cared}

    def stop(self) -> None:
        """Ask the coordinator to stop, from a signal's handler too; `run` returns within a few seconds."""
        self._asked.set()

    def run(self, *, signals: bool = False) -> None:
        """Do the duties until stopped, through restarts of the server.

        Args:
            signals: stop on SIGTERM and SIGINT; only in the main thread.
        """
        if signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: self.stop())
        _log.info("coordinator started for %s", ", ".join(self._named) or "all instances")
        finder = self._servers.store(self._url, "", retry_timeout=1.0)
        # In a thread of its own: what it asks for may take longer than stopping does.
        threading.Thread(target=self._follow, args=(finder,), name="coordinator-instances", daemon=True).start()
        try:
            self._asked.wait()
        finally:
            self._end()
            finder.close()
        _log.info("coordinator stopped")

    def _end(self) -> None:
        """Let all instances end at once, within one deadline."""
        with self._changing:
            self._stopping.set()
            for _, leaving in self._threads.values():
                leaving.set()
        self._servers.close()
        until = time.monotonic() + _ENDS_WITHIN
        for thread, _ in self._threads.values():
            thread.join(max(until - time.monotonic(), 0.0))
        if left := sum(thread.is_alive() for thread, _ in self._threads.values()):
            _log.warning("%d instances are left in the middle of a round: the server does not answer", left)

    def _follow(self, finder: Store) -> None:
        """Care for the instances that are named, or that there are."""
        while not self._stopping.is_set():
            try:
                self._take_up(self._named or self._find(finder))
            except Exception:  # noqa: BLE001  (without this thread no new instance would ever be cared for)
                _log.exception("looking for instances failed; trying again")
            self._stopping.wait(_LOOK_FOR_INSTANCES)

    def _take_up(self, instances: Sequence[str]) -> None:
        """Begin with those that are new, and let go of those that are not there any more."""
        with self._changing:
            if self._stopping.is_set():
                return
            for instance in instances:
                self._care_for(instance)
            for instance, (_, leaving) in self._threads.items():
                if instance not in instances:
                    leaving.set()

    def _find(self, store: Store) -> Sequence[str]:
        """The instances that clients have opened on this server; as they were, where nobody can say it."""
        try:
            found = store.call(list_instances())
        except AmpsqError as error:
            is_gone = isinstance(error, Unavailable) and self._servers.wait(store, self._stopping)
            if not is_gone and not self._stopping.is_set() and str(error) != self._search_fault:
                self._search_fault = str(error)
                _log.warning("cannot look for new instances, those known are cared for: %s", error)
        else:
            self._found, self._search_fault = found, ""
        return self._found

    def _care_for(self, instance: str) -> None:
        known = self._threads.get(instance)
        if known is None or not known[0].is_alive():
            leaving = threading.Event()
            thread = threading.Thread(
                target=self._serve, args=(instance, leaving), name=f"coordinator-{instance}", daemon=True
            )
            self._threads[instance] = (thread, leaving)
            thread.start()

    def _serve(self, instance: str, leaving: threading.Event) -> None:
        _log.info("caring for instance %s", instance)
        store = self._servers.store(self._url, instance, retry_timeout=0.5)
        links = Links(self._servers)
        duties: list[Duty] = [
            *(
                SweepDue(),
                WantedNames(),
                FlushSettings(),
                LostClients(),
                ForeignEntries(),
                links,
                Actions(self._powers),
                Views(),
                Rebuilds(),
                Retention(),
            )
        ]
        due = dict.fromkeys(range(len(duties)), 0.0)
        faults: dict[str, str] = {}
        self._ran.update(dict.fromkeys(((instance, duty.name) for duty in duties), time.monotonic()))
        try:
            while not leaving.is_set():
                for index, duty in enumerate(duties):
                    if time.monotonic() >= due[index] and not leaving.is_set():
                        due[index] = time.monotonic() + self._round(duty, store, leaving, faults)
                pause = min(due.values()) - time.monotonic()
                if pause > 0:
                    leaving.wait(pause)
        finally:
            links.close()
            store.close()

    def _round(self, duty: Duty, store: Store, leaving: threading.Event, faults: dict[str, str]) -> float:
        """One round of a duty. A failing duty is logged and tried again; it never stops the others.

        Args:
            duty: whose round it is.
            store: on the instance.
            leaving: set when the instance is not cared for any more.
            faults: duty -> why it waits, of this instance; each is told once.
        """
        try:
            pause = duty.run_once(store)
        except (Unavailable, FormatMismatch) as error:
            if isinstance(error, Unavailable) and self._servers.wait(store, leaving):
                return 0.0
            if str(error) not in faults.values() and not leaving.is_set():
                _log.warning("%s of %s waits: %s", duty.name, store.instance, error)
            faults[duty.name] = str(error)
        except Exception:  # noqa: BLE001  (one duty's bug must not stop the others)
            _log.exception("%s of %s failed; trying again", duty.name, store.instance)
        else:
            if faults.pop(duty.name, "") and not faults:
                _log.info("%s goes on", store.instance)
            self._ran[store.instance, duty.name] = time.monotonic()
            return pause
        return _AFTER_FAILURE
