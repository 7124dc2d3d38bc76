"""What a subscription tells of itself; waiting and settling are in `Subscription` and `AsyncSubscription`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampsq.base.errors import Closed, StaleLease
from ampsq.queues.message import MessageView

if TYPE_CHECKING:
    from ampsq.queues.subscription_core import SubscriptionCore

__all__ = ["SubscriptionView"]


class SubscriptionView:
    """What a subscription is: its name, its backlog, what came too late; and what it was at another instance."""

    def __init__(self, core: SubscriptionCore, origin: str) -> None:
        self._core, self._origin = core, origin
        # Between leaving an instance and going on at another one.
        self._is_moving = False
        # What was settled of another instance that does not know it: bookmarks.
        self._settled: set[str] = set()

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

    # -- at another instance

    def suspend(self) -> None:
        """From here on the instance is out of reach, and what `prepare_failover` gave follows."""
        self._is_moving = True

    def _go_on(self, core: SubscriptionCore, origin: str) -> None:
        """Go on at another instance; whoever waits for messages is kept out meanwhile.

        What was delivered and not handed out is that of the former one, which still owns it. So is what was
        acknowledged and not answered: should it be delivered here, it is acknowledged and not handed out.
        """
        former, self._core = self._core, core
        former.closed = True
        self._settled |= {str(MessageView(parts, b"", self._origin, self).bookmark) for parts in former.unanswered()}
        self._origin, self._is_moving = origin, False

    def _was_settled(self, message: MessageView) -> bool:
        """Whether it was acknowledged before, at another instance: then it is here, too."""
        bookmark = str(message.bookmark)
        if bookmark not in self._settled:
            return False
        self._settled.discard(bookmark)
        return True

    def _is_elsewhere(self, message: MessageView, *, acknowledged: bool = False) -> bool:
        """Whether a message was delivered by a former instance; if it is acknowledged, that is remembered."""
        if message.origin == self._origin:
            return False
        if acknowledged:
            self._settled.add(str(message.bookmark))
        return True

    def _left_behind(self, message: MessageView, *, acknowledged: bool) -> StaleLease:
        """Return the error for a message of an instance that the client left; an acknowledgement is remembered."""
        if acknowledged:
            self._settled.add(str(message.bookmark))
        return self._leased_elsewhere(message)

    @staticmethod
    def _leased_elsewhere(message: MessageView) -> StaleLease:
        return StaleLease(bookmark=str(message.bookmark), queue=message.queue, leased_at=message.origin)

    def _check_open(self) -> None:
        if self._core.closed:
            raise Closed("this subscription was closed")
