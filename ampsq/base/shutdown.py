"""Requests to stop, and a last resort that ends a process in time though its server does not answer."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import queue
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ENDS_WITHIN", "RepeatedSignals", "StopRequest", "end_process_within", "stop_on_signals"]

_log = logging.getLogger("ampsq")
#: Seconds from SIGTERM until a process ends, whatever it still waits for.
ENDS_WITHIN: Final = 3.5
#: Seconds of one wait for a request to stop, and where signals cannot end it.
_LONGEST: Final = 3_600.0
_LOOK: Final = 1.0
#: Seconds in which that is logged: whoever reads standard error may be gone, too.
_TELLING: Final = 0.3
#: Seconds within which a signal that comes again says the same: timeout(1) sends it to the process and to its group.
_SAME: Final = 0.5
_begun = threading.Lock()


class StopRequest:
    """A request to stop, which a signal handler may make. Who waits for it has nothing to do meanwhile.

    `threading.Event` does not fit: the thread that the handler interrupts may hold the event's lock.
    """

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_set = False
        # What wakes the main thread, while it waits.
        self._waker: socket.socket | None = None

    def set(self) -> None:
        """Make the request."""
        self._is_set = True
        self._asked.put(None)
        if (waker := self._waker) is not None:
            # Full, it wakes as well; and closed, nobody waits.
            with contextlib.suppress(OSError):
                waker.send(b"\0")

    def is_set(self) -> bool:
        """Return whether `set` was called."""
        return self._is_set

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until `set` is called, at most so many seconds; return whether it was."""
        until = math.inf if seconds is None else time.monotonic() + seconds
        if threading.current_thread() is threading.main_thread():
            self._wait_for_signals(until)
        while not self._is_set and (left := until - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                self._asked.get(timeout=min(left, threading.TIMEOUT_MAX))
                # For whoever else waits.
                self._asked.put(None)
        return self._is_set

    def _wait_for_signals(self, until: float) -> None:
        """Wait in the main thread, where signal handlers run.

        A signal that comes just before a thread begins to wait does not end the wait, and its handler runs only when
        the thread comes back. What a signal writes where the thread waits is there, whenever it came.
        """
        ours, waker = socket.socketpair()
        with ours, waker:
            waker.setblocking(False)
            others = signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
            if others != -1:
                # Somebody else is to learn of signals.
                signal.set_wakeup_fd(others)
            self._waker = waker
            try:
                while not self._is_set and (left := until - time.monotonic()) > 0:
                    ours.settimeout(min(left, _LONGEST if others == -1 else _LOOK))
                    with contextlib.suppress(TimeoutError):
                        ours.recv(4096)
            finally:
                self._waker = None
                if others == -1:
                    signal.set_wakeup_fd(-1)


class RepeatedSignals:
    """Signals that came, and which of them are more than a repetition at once."""

    def __init__(self) -> None:
        self._first: dict[int, float] = {}

    def __bool__(self) -> bool:
        return bool(self._first)

    def is_again(self, number: int) -> bool:
        """Note a signal; return whether the same one came before, and not just now."""
        now = time.monotonic()
        return now - self._first.setdefault(number, now) > _SAME


def stop_on_signals(stop: Callable[[], None]) -> RepeatedSignals:
    """Call `stop` at SIGTERM and SIGINT; a second one ends the process in the usual way, at any place.

    Args:
        stop: asks for the end, without a wait.

    Returns:
        The signals that came.
    """
    came = RepeatedSignals()

    def signalled(number: int, _frame: object) -> None:
        if came.is_again(number):
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signalled)
    return came


def end_process_within(seconds: float, code: int) -> None:
    """End this process after so many seconds, unless it has ended before; a signal's handler may call it.

    The first call counts. It is for programs: what other threads do ends with the process, at any place.

    Args:
        seconds: from now on.
        code: the exit code.
    """
    if _begun.acquire(blocking=False):
        threading.Thread(target=_end, args=(seconds, code), name="ampsq-shutdown", daemon=True).start()


def _end(seconds: float, code: int) -> None:
    time.sleep(seconds)
    telling = threading.Thread(target=_tell, args=(seconds,), name="ampsq-shutdown-log", daemon=True)
    telling.start()
    telling.join(_TELLING)
    os._exit(code)


def _tell(seconds: float) -> None:
    _log.warning(
        "not ended within %g s: what waits for a server is left; what is leased comes back to its queue by itself",
        seconds,
    )
