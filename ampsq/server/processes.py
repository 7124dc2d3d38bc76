"""Worker processes: started together, stopped together, replaced, and none outlives the one that started them."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

from ampsq.base.shutdown import StopRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["REPLACE_ME", "run_processes", "stop_with_parent"]

_log = logging.getLogger("ampsq.worker")
_PARENT: Final = "AMPSQ_PARENT_PROCESS"
_STEP: Final = 0.25
#: The exit code of a process that asks to be replaced: a handler of it runs too long, and a thread cannot be ended.
REPLACE_ME: Final = 75
#: Seconds before a failed process is started again; doubled with each failure in a row, up to the last.
_RESTART_PAUSE, _LONGEST_PAUSE = 0.5, 30.0


class _Child:
    """One place in the crew, and the process that fills it now."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = arguments
        self._pause = _RESTART_PAUSE
        self._started = 0.0
        self._restart_at = 0.0
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self._started = time.monotonic()
        environment = {**os.environ, _PARENT: str(os.getpid())}
        return subprocess.Popen([sys.executable, *self._arguments], env=environment)

    def tend(self) -> None:
        """Start a process that failed again, later each time that it fails soon."""
        if self.process.poll() in (None, 0):
            return
        if self.process.returncode == REPLACE_ME:
            ended, self.process = self.process.pid, self._start()
            _log.info("worker process %d is replaced by %d", ended, self.process.pid)
            return
        if not self._restart_at:
            lived = time.monotonic() - self._started
            self._pause = _RESTART_PAUSE if lived > _LONGEST_PAUSE else min(2 * self._pause, _LONGEST_PAUSE)
            self._restart_at = time.monotonic() + self._pause
            _log.warning(
                "worker process %d ended with %s; starting another in %.1f s",
                self.process.pid,
                self.process.returncode,
                self._pause,
            )
        elif time.monotonic() >= self._restart_at:
            self._restart_at = 0.0
            self.process = self._start()


def run_processes(arguments: Sequence[str], processes: int) -> int:
    """Run worker processes until they end; SIGTERM and SIGINT are passed on.

    One that failed is started again, later each time that it fails soon; one that ends with `REPLACE_ME` at once.

    Args:
        arguments: what follows the Python interpreter.
        processes: how many.

    Returns:
        0 when all ended well, else the exit code of one that did not.
    """
    stopping = StopRequest()
    wanted: list[int] = []

    def stop(number: int, _frame: object) -> None:
        wanted.append(number)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    children = [_Child(arguments) for _ in range(processes)]
    while not stopping.is_set() and any(child.process.poll() != 0 for child in children):
        for child in children:
            child.tend()
        stopping.wait(_STEP)
    for child in children:
        if child.process.poll() is None:
            child.process.send_signal(wanted[0] if wanted else signal.SIGTERM)
    # Each has a stop deadline of its own.
    codes = (child.process.wait() for child in children)
    return max((0 if code == REPLACE_ME else abs(code) for code in codes), default=0)


def stop_with_parent(stop: Callable[[], None]) -> bool:
    """In a process that `run_processes` started: call `stop` when the starter is gone, however it ended.

    Returns:
        Whether this is such a process.
    """
    # Not for what a handler starts, which has another parent.
    parent = os.environ.pop(_PARENT, None)
    if parent is None:
        return False

    def watch() -> None:
        while os.getppid() == int(parent):
            time.sleep(_STEP)
        stop()

    threading.Thread(target=watch, name="ampsq-parent", daemon=True).start()
    return True
