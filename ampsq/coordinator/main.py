"""The process: every duty of every instance, each in its turn, until it is told to stop."""

from __future__ import annotations

import logging
import signal
import threading
import time
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import AmpsqError, FormatMismatch, Unavailable
from ampsq.coordinator.actions import Actions, OutsidePermissions
from ampsq.coordinator.flush_settings import FlushSettings
from ampsq.coordinator.foreign_entries import ForeignEntries
from ampsq.coordinator.links import Links
from ampsq.coordinator.lost_clients import LostClients
from ampsq.coordinator.rebuilds import Rebuilds
from ampsq.coordinator.retention import Retention
from ampsq.coordinator.sweep import SweepDue
from ampsq.coordinator.views import Views
from ampsq.protocol.request import command
from ampsq.protocol.schema import INSTANCES
from ampsq.transport.runner import Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.coordinator.duty import Duty

__all__ = ["Coordinator"]

_log = logging.getLogger("ampsq.coordinator")
_LOOK_FOR_INSTANCES: Final = 1.0
_AFTER_FAILURE: Final = 0.5


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
        self._stopping = threading.Event()
        self._reported: dict[tuple[str, str], str] = {}
        self._threads: dict[str, tuple[threading.Thread, threading.Event]] = {}
        self._ran: dict[tuple[str, str], float] = {}

    @property
    def rounds(self) -> dict[tuple[str, str], float]:
        """Instance and duty -> seconds since that last ran to its end without a failure, or should have first."""
        now = time.monotonic()
        cared = {name for name, (_, leaving) in self._threads.copy().items() if not leaving.is_set()}
        return {which: now - at for which, at in self._ran.copy().items() if which[0] in cared}

    def stop(self) -> None:
        """Ask the coordinator to stop; `run` returns when it has."""
        self._stopping.set()

    def run(self, *, signals: bool = False) -> None:
        """Do the duties until stopped, through restarts of the server.

        Args:
            signals: stop on SIGTERM and SIGINT; only in the main thread.
        """
        if signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: self.stop())
        _log.info("coordinator started for %s", ", ".join(self._named) or "all instances")
        finder = Store(self._url, "", retry_timeout=1.0)
        try:
            while not self._stopping.is_set():
                instances = self._named or self._found(finder)
                for instance in instances:
                    self._care_for(instance)
                for instance, (_, leaving) in self._threads.items():
                    if instance not in instances:
                        leaving.set()
                self._stopping.wait(_LOOK_FOR_INSTANCES)
        finally:
            self._stopping.set()
            for thread, leaving in self._threads.values():
                leaving.set()
                thread.join(timeout=10.0)
            finder.close()
        _log.info("coordinator stopped")

    def _found(self, store: Store) -> list[str]:
        """The instances that clients have opened on this server."""
        try:
            return store.call(command(["SMEMBERS", INSTANCES], lambda reply: sorted(name.decode() for name in reply)))
        except AmpsqError as error:
            _log.warning("cannot look for instances: %s", error)
            return []

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
        store = Store(self._url, instance, retry_timeout=0.5)
        links = Links()
        duties: list[Duty] = [
            *(
                SweepDue(),
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
        self._ran.update(dict.fromkeys(((instance, duty.name) for duty in duties), time.monotonic()))
        try:
            while not leaving.is_set():
                for index, duty in enumerate(duties):
                    if time.monotonic() >= due[index]:
                        due[index] = time.monotonic() + self._round(duty, store)
                pause = min(due.values()) - time.monotonic()
                if pause > 0:
                    leaving.wait(pause)
        finally:
            links.close()
            store.close()

    def _round(self, duty: Duty, store: Store) -> float:
        """One round of a duty. A failing duty is logged and tried again; it never stops the others."""
        try:
            pause = duty.run_once(store)
        except (Unavailable, FormatMismatch) as error:
            if self._reported.get((store.instance, duty.name)) != str(error):
                self._reported[store.instance, duty.name] = str(error)
                _log.warning("%s of %s waits: %s", duty.name, store.instance, error)
        except Exception:  # noqa: BLE001  (one duty's bug must not stop the others)
            _log.exception("%s of %s failed; trying again", duty.name, store.instance)
        else:
            if self._reported.pop((store.instance, duty.name), None):
                _log.info("%s of %s goes on", duty.name, store.instance)
            self._ran[store.instance, duty.name] = time.monotonic()
            return pause
        return _AFTER_FAILURE
