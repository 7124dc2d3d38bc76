"""The server's clock, as a client knows it from the server's answers."""

from __future__ import annotations

__all__ = ["ClockComparison"]


class ClockComparison:
    """The server's clock, as it is known from when questions were sent, and what their answers said."""

    def __init__(self) -> None:
        self._ahead: float | None = None

    def learn(self, sent: float, received: float, now: int) -> None:
        """Compare the clocks.

        Args:
            sent: when the server was asked, seconds of the monotonic clock.
            received: when its answer was here.
            now: ms of the server's clock at some time between the two.
        """
        least, most = now - received * 1000, now + 1 - sent * 1000
        # The nearest that this answer leaves possible: a slow answer says little, and a quick one of before stays.
        ahead = (least + most) / 2 if self._ahead is None else self._ahead
        self._ahead = min(max(ahead, least), most)

    def milliseconds(self, at: float) -> float | None:
        """Return the server's time at a moment of the monotonic clock; None where it is not known yet."""
        return None if self._ahead is None else at * 1000 + self._ahead
