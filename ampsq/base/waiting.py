"""Time that a `get` waits: in short steps, so that it notices when its subscription is closed."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from ampsq.base.values import Interval

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = ["MOVING", "STEP", "acquire", "time_limit", "wait_of"]

#: Seconds of one wait inside an endless one: so often a closed subscription is noticed.
STEP: Final = 1.0
#: Seconds between two looks whether a subscription has gone on at another instance.
MOVING: Final = 0.02


def time_limit(timeout: timedelta | float | str | None) -> float:
    """Return until when a user waits, by `time.monotonic`; without a timeout for ever."""
    return float("inf") if timeout is None else time.monotonic() + Interval.parse(timeout) / 1000


def wait_of(until: float) -> float:
    """Return the seconds of the next short wait."""
    return min(max(until - time.monotonic(), 0.0), STEP)


async def acquire(lock: asyncio.Lock, timeout: float) -> bool:  # noqa: ASYNC109  (as the locks of threads have it)
    """Acquire a lock within a time, in seconds; False where that did not do."""
    if not lock.locked():
        return await lock.acquire()
    if timeout <= 0:
        return False
    try:
        async with asyncio.timeout(timeout):
            return await lock.acquire()
    except TimeoutError:
        return False
