"""Rate of a replay: messages a second, bytes a second, or the pace at which they were recorded."""

from __future__ import annotations

import re
import sys
from typing import Final

from ampsq.base.errors import DefinitionError
from ampsq.base.values import Interval, parse_size, shown

__all__ = ["RateLimiter"]

_TIMES = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)[xX]")
_NUMBER = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_SIZE = re.compile(r"[0-9.]+ ?(?:[kmgtKMGT]?[bB])")
_ALLOWED: Final = "messages a second, as in 1000; bytes a second, as in '100KB'; times the recorded pace, as in '1.5X'"
#: Seconds that may be caught up with a burst: what a slow reader or a short pause took.
_BURST: Final = 0.1


def _is_number(rate: object) -> bool:
    if isinstance(rate, str):
        return _NUMBER.fullmatch(rate.strip()) is not None
    return isinstance(rate, int | float) and not isinstance(rate, bool) and 0 < rate <= sys.float_info.max


class RateLimiter:
    """The time when the next message may go, by `time.monotonic`.

    Args:
        rate: messages a second (``1000``), bytes a second (``100KB``), or a multiple of the recorded pace (``1.5X``).
        max_gap: of a recorded pace: the longest time between two messages that is kept; default all.

    Raises:
        DefinitionError: it is no rate; or a gap without a recorded pace.
    """

    def __init__(self, rate: object, max_gap: object = None) -> None:
        self._times = self._messages = self._bytes = 0.0
        if isinstance(rate, str) and (found := _TIMES.fullmatch(rate.strip())):
            self._times = float(found[1])
        elif isinstance(rate, str) and _SIZE.fullmatch(rate.strip()):
            self._bytes = float(parse_size(rate.strip()))
        elif _is_number(rate):
            self._messages = float(rate)  # type: ignore[arg-type]
        if max(self._times, self._messages, self._bytes) <= 0:
            raise DefinitionError(f"rate={shown(rate)} is no rate; allowed: {_ALLOWED}, more than 0")
        if max_gap is not None and not self._times:
            raise DefinitionError(
                f"rate_max_gap={shown(max_gap)} with rate={shown(rate)}: allowed with the recorded pace, as in '1.5X'"
            )
        self._max_gap = None if max_gap is None else Interval.parse(max_gap) / 1000
        self._due: float | None = None
        self._recorded: int | None = None

    def wait(self, now: float, recorded: int) -> float:
        """Seconds until a message may go that was recorded at a time, ms; 0 or less: at once."""
        if self._due is None:
            self._due = now
        if not self._times or self._recorded is None:
            return self._due - now
        gap = max(recorded - self._recorded, 0) / 1000
        return self._due + min(gap, self._max_gap or gap) / self._times - now

    def spend(self, now: float, recorded: int, size: int) -> None:
        """A message of so many bytes goes now."""
        due = now + self.wait(now, recorded)
        self._recorded = recorded
        # A pause is no reason for a burst afterwards.
        due = max(due, now - _BURST)
        self._due = due + (1 / self._messages if self._messages else size / self._bytes if self._bytes else 0.0)

    def forget(self) -> None:
        """Begin anew, as after a pause."""
        self._due = self._recorded = None
