"""Keeps what the doctor finds in each instance, while somebody looks: what is wrong, why it matters, what mends it.

An examination looks at an instance twice, a moment apart, as `ampsq doctor` does. Examinations
are ten seconds apart or more, and take a twentieth of the time at most. While nobody looks, no instance is examined.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import AmpsqError
from ampsq.operations.doctor import examine

if TYPE_CHECKING:
    from ampsq.console.observer import Observer
    from ampsq.operations.doctor import Finding

__all__ = ["Examination", "Examiner"]

_log = logging.getLogger("ampsq.console")
#: Seconds between the two looks of an examination, between two examinations, and for which one after the last page
#: somebody still looks; most that are under way together.
_MOMENT: Final = 1.0
_EVERY: Final = 10.0
_LOOKS_FOR: Final = 20.0
_TOGETHER: Final = 4
_SHARE: Final = 20


@dataclass(frozen=True, slots=True)
class Examination:
    """Findings of one instance.

    Attributes:
        findings: what is wrong first.
        at: when it ended, seconds of the clock that never goes back.
        took: seconds.
        fault: why nothing could be found; "" where it could.
    """

    findings: tuple[Finding, ...]
    at: float
    took: float
    fault: str = ""


class Examiner:
    """Examines the instances of an observer.

    Args:
        observer: whose clients it uses.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._found: dict[str, Examination] = {}
        self._under_way: set[str] = set()
        self._lock = threading.Lock()
        self._looked = float("-inf")
        self._number = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="console-examiner", daemon=True)

    def start(self) -> None:
        """Begin to examine what somebody looks at."""
        self._thread.start()

    def stop(self) -> None:
        """Begin no further examination; those under way end with the observer's clients."""
        self._stopping.set()

    @property
    def number(self) -> int:
        """Return how many examinations have ended; another number than before: there is something new to show."""
        return self._number

    def looked(self) -> None:
        """Note that somebody looks."""
        self._looked = time.monotonic()

    def found(self, instance: str) -> Examination | None:
        """Return what was found last; None before the first examination has ended."""
        return self._found.get(instance)

    def _run(self) -> None:
        while not self._stopping.wait(0.25):
            if time.monotonic() < self._looked + _LOOKS_FOR:
                for instance in self._due():
                    # Each is a thread that nothing waits for: a server may keep it waiting when the console ends.
                    threading.Thread(target=self._examine, args=(instance,), name="examination", daemon=True).start()

    def _due(self) -> list[str]:
        """Choose the instances that are to be examined now, those that waited longest first."""
        try:
            instances = self._observer.instances()
        except AmpsqError as error:
            _log.debug("examining: %s", error)
            return []
        now = time.monotonic()
        with self._lock:
            for gone in self._found.keys() - set(instances):
                del self._found[gone]
            due = sorted(
                (at, name) for name in instances if name not in self._under_way and (at := self._next(name)) <= now
            )
            chosen = [name for _, name in due[: _TOGETHER - len(self._under_way)]]
            self._under_way.update(chosen)
        return chosen

    def _next(self, instance: str) -> float:
        last = self._found.get(instance)
        if last is None:
            return float("-inf")
        return last.at + max(_EVERY, (last.took - _MOMENT) * _SHARE)

    def _examine(self, instance: str) -> None:
        began, fault = time.monotonic(), ""
        findings: tuple[Finding, ...] = ()
        try:
            findings = tuple(self._observer.run_ahead(instance, lambda pipeline: examine(instance, pipeline, _MOMENT)))
        except AmpsqError as error:
            fault = str(error)
        finally:
            now = time.monotonic()
            with self._lock:
                self._found[instance] = Examination(findings, now, now - began, fault)
                self._under_way.discard(instance)
                self._number += 1
