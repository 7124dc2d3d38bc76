"""Progress of a guaranteed publisher, and of those who wait for it.

Acknowledgements are conflated: one proof that something is persisted is for all that was answered by then. Who waits
ends the interval, but not before all that they wait for is answered: a proof of a part of it would hold up that of the
rest, by more than a second where a disk is waited for.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ampsq.publishing.memory_store import PublishStore
    from ampsq.publishing.settlements import Settlements

__all__ = ["ANYTHING", "ProgressTarget", "PublishProgress"]


class ProgressTarget(NamedTuple):
    """The target of one who waits.

    Attributes:
        sequence: messages up to here.
        settlements: these of the numbers that settlements are kept under.
    """

    sequence: int
    settlements: frozenset[int]


#: Of those for whom whatever is persisted next is enough.
ANYTHING: Final = ProgressTarget(0, frozenset())


class PublishProgress:
    """Of one publisher.

    Args:
        kept: what is sent.

    Attributes:
        changed: guards this and its publisher; told whenever some of it changes.
        settlements: those of the present instance.
        answered: the last sequence that the server recorded.
        persisted: the last sequence that is persisted, with all before it.
    """

    def __init__(self, kept: PublishStore, settlements: Settlements) -> None:
        self._kept, self.settlements = kept, settlements
        self.changed = threading.Condition()
        self.answered = 0
        self.persisted = kept.lowest() - 1
        # What those wait for that wait.
        self._targets: list[Callable[[], ProgressTarget]] = []

    def everything(self) -> ProgressTarget:
        """All that was taken up to now."""
        return ProgressTarget(self._kept.last, self.settlements.outstanding())

    def left_of(self, target: ProgressTarget) -> int:
        """Return the number of settlements of a target that are not persisted."""
        return len(target.settlements & self.settlements.outstanding())

    def is_reached(self, target: ProgressTarget) -> bool:
        """Return whether all of a target is persisted."""
        return self.persisted >= target.sequence and not self.left_of(target)

    def wait(self, target: Callable[[], ProgressTarget], ends: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until a target, asked for at each step, is persisted or `ends` is true; False after the timeout."""

        def is_done() -> bool:
            return ends() or self.is_reached(target())

        with self.changed, self.hurrying(target):
            return self.changed.wait_for(is_done, timeout)

    @contextlib.contextmanager
    def hurrying(self, target: Callable[[], ProgressTarget]) -> Iterator[None]:
        """While somebody waits for a target, it is confirmed as soon as all of it is answered. The lock is held."""
        self._targets.append(target)
        self.changed.notify_all()
        try:
            yield
        finally:
            self._targets.remove(target)

    @property
    def has_answers(self) -> bool:
        """Return whether something was answered and is not persisted."""
        return self.answered > self.persisted or self.settlements.has_answers

    @property
    def is_urgent(self) -> bool:
        """Return whether answers are to be confirmed now: for one who waits, or for room. The lock is held."""
        return any(self._is_answered(target()) for target in self._targets) or (
            2 * self._kept.held > self._kept.messages
        )

    def _is_answered(self, target: ProgressTarget) -> bool:
        return self.answered >= target.sequence and target.settlements.isdisjoint(self.settlements.unanswered())
