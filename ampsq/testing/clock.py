"""The clock of a server of the kit: the machine's, or one that a test holds and moves."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime

__all__ = ["Clock"]


class Clock:
    """The time of a server.

    Args:
        held_at: milliseconds since 1970 at which it stands until it is moved; None: it goes as the machine's does.
    """

    def __init__(self, held_at: int | None = None) -> None:
        self._held_at = held_at
        self._moving = threading.Lock()

    @property
    def is_held(self) -> bool:
        """Return whether it stands until somebody moves it."""
        return self._held_at is not None

    @property
    def milliseconds(self) -> int:
        """Milliseconds since 1970."""
        held_at = self._held_at
        return int(time.time() * 1000) if held_at is None else held_at

    @property
    def now(self) -> datetime:
        """The same as a time, UTC."""
        return datetime.fromtimestamp(self.milliseconds / 1000, UTC)

    def seconds(self) -> float:
        """Seconds by which duties pace themselves: they never go back."""
        return time.monotonic() if self._held_at is None else self._held_at / 1000

    def move_to(self, milliseconds: int) -> None:
        """Move a held clock forward; one that is there already, or later, stays."""
        with self._moving:
            if self._held_at is not None:
                self._held_at = max(self._held_at, milliseconds)
