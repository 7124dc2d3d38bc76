"""What a subscription tells of itself; waiting and settling are in `Subscription` and `AsyncSubscription`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampsq.errors import Closed

if TYPE_CHECKING:
    from ampsq.subscription import SubscriptionCore

__all__ = ["SubscriptionView"]


class SubscriptionView:
    """What a subscription is: its name, its backlog, what came too late."""

    def __init__(self, core: SubscriptionCore) -> None:
        self._core = core

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._core}>"

    @property
    def id(self) -> str:
        """Its name on the instance."""
        return self._core.id

    @property
    def max_backlog(self) -> int:
        """The effective backlog: the least of what was asked and of the queues' limits."""
        return self._core.max_backlog

    @property
    def late(self) -> list[Exception]:
        """Acknowledgements of batches that came too late, at most the last thousand."""
        return list(self._core.late)

    def _check_open(self) -> None:
        if self._core.closed:
            raise Closed("this subscription was closed")
