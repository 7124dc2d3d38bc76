"""Keeping logs from being trimmed for as long as the driver of a stream lives."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from ampsq.base.errors import AmpsqError
from ampsq.protocol.calls.retention import hold
from ampsq.spark.reading import Hold, hold_call

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ampsq.base.log_positions import Id
    from ampsq.spark.logs import InstanceLog, Logs

__all__ = ["LogHold"]

_log = logging.getLogger("ampsq")


class LogHold:
    """Holds logs from where a stream is; says so again in a thread, since Spark may not ask for hours.

    Args:
        logs: the stream's.
        holder: its name.
        period: ms for which the logs stay held when the driver died.
    """

    def __init__(self, logs: Logs, holder: str, period: int) -> None:
        self._logs, self._holder, self._period = logs, holder, period
        self._places: dict[InstanceLog, Id] = {}
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None

    def keep(self, places: Mapping[InstanceLog, Id]) -> None:
        """Hold from behind these places on; what is held already moves on when it is said again."""
        with self._lock:
            came = {log: place for log, place in places.items() if log not in self._places}
            self._places.update(places)
        for log, place in came.items():
            self._hold(log, place)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="ampsq-holding", daemon=True)
            self._thread.start()

    def _hold(self, log: InstanceLog, place: Id) -> None:
        self._logs.store(log.address).call(hold_call(log, Hold(self._holder, place, self._period)))

    def _run(self) -> None:
        while not self._ended.wait(self._period / 3000):
            with self._lock:
                places = dict(self._places)
            try:
                for log, place in places.items():
                    self._hold(log, place)
            except AmpsqError as error:
                _log.warning("the logs of %s are not held again yet: %s", self._holder, error)

    def end(self) -> None:
        """Let the logs go."""
        self._ended.set()
        for log in self._places:
            self._logs.store(log.address).call(hold(log.topic, f"replay {self._holder}", None))
