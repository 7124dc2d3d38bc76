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
    from collections.abc import Callable, Collection, Iterable, Sequence

__all__ = ["REPLACE_ME", "run_processes", "run_reloading", "stop_with_parent"]

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
        return _start(self._arguments)

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
    """Run worker processes until they end; SIGTERM and SIGINT are passed on, as SIGTERM.

    One that failed is started again, later each time that it fails soon; one that ends with `REPLACE_ME` at once.

    Args:
        arguments: what follows the Python interpreter.
        processes: how many.

    Returns:
        0 when all ended well, else the exit code of one that did not.
    """
    stopping = _stop_on_signals()
    stop_with_parent(stopping.set)
    children = [_Child(arguments) for _ in range(processes)]
    while not stopping.is_set() and any(child.process.poll() != 0 for child in children):
        for child in children:
            child.tend()
        stopping.wait(_STEP)
    for child in children:
        # Not SIGINT: a terminal has sent that to all of them, and a second one ends a worker at once.
        if child.process.poll() is None:
            child.process.terminate()
    # Each has a stop deadline of its own.
    codes = (child.process.wait() for child in children)
    # One that has only just begun ends by the signal itself: it had nothing to do yet.
    well = (REPLACE_ME, -signal.SIGTERM) if stopping.is_set() else (REPLACE_ME,)
    return max((0 if code in well else abs(code) for code in codes), default=0)


def run_reloading(arguments: Sequence[str], changes: Iterable[Collection[str]]) -> int:
    """Run a worker process, and another one after each change, until SIGTERM or SIGINT.

    The running one may let its handlers end. One that ends by itself, as with an error in what it imports, is started
    again with the next change; one that ends with `REPLACE_ME` at once.

    Args:
        arguments: what follows the Python interpreter.
        changes: gives the names of files that were changed, or nothing, each second or more often.

    Returns:
        0.
    """
    stopping = _stop_on_signals()
    process = _start(arguments)
    is_ended = False
    for changed in changes:
        if stopping.is_set():
            break
        if changed:
            _log.info("changed: %s; starting another worker", ", ".join(sorted(changed)))
            process.terminate()
            process.wait()
        elif process.poll() is not None and process.returncode != REPLACE_ME:
            if not is_ended:
                _log.warning("the worker ended with %s; a change starts another one", process.returncode)
            is_ended = True
        if changed or process.poll() == REPLACE_ME:
            process, is_ended = _start(arguments), False
    if process.poll() is None:
        process.terminate()
    process.wait()
    return 0


def _stop_on_signals() -> StopRequest:
    stopping = StopRequest()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stopping.set())
    return stopping


def _start(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    environment = {**os.environ, _PARENT: str(os.getpid())}
    return subprocess.Popen([sys.executable, *arguments], env=environment)


def stop_with_parent(stop: Callable[[], None]) -> bool:
    """Call `stop` when the process is gone that started this one by `run_processes` or `run_reloading`.

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
