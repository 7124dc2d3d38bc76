"""A subscription that asks for something else: until the server has confirmed it, and what it delivered before that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampsq.base.errors import Rejected, UnknownSubscription
from ampsq.protocol.calls import subscriptions as subscription_calls
from ampsq.protocol.encoding import document_of
from ampsq.queues.registration import SubscriptionSpec

if TYPE_CHECKING:
    from ampsq.protocol.calls.subscriptions import ReplaceReply, SubscribeRequest
    from ampsq.protocol.request import Call
    from ampsq.queues.registration import Registration

__all__ = ["Replacement"]


class Replacement:
    """A change of a subscription's request.

    Nothing that does not match is handed out afterwards, however late it comes: what was delivered under a former spec
    is tested here when it is picked up. When the server cannot be reached, it is asked as soon as it can.

    Args:
        registration: what it asked for so far.

    Attributes:
        pending: what the server has not confirmed.
        former: queue -> the last token that was delivered under a former spec.
    """

    def __init__(self, registration: Registration) -> None:
        self._registration = registration
        self.pending: SubscriptionSpec | None = None
        self.former: dict[bytes, int] = {}
        self._number = 0

    def ask(self, name: str, asked: int, text: str | None) -> None:
        """Check what is asked for, which `send` makes the one that counts.

        Raises:
            DefinitionError, ExpressionError: it is wrong.
        """
        self.pending = SubscriptionSpec.of(name, asked, text)
        self._number += 1

    async def send(self) -> None:
        """Make what is pending the one that counts.

        Raises:
            Rejected: then all is as before.
            UnknownSubscription: it counts when the subscription is made anew.
        """
        wanted, registration, number = self.pending, self._registration, self._number
        if wanted is None:
            return

        def replace(request: SubscribeRequest) -> Call[ReplaceReply]:
            return subscription_calls.replace(registration.id, number, request)

        try:
            replaced = await registration.matched(wanted, replace)
            while replaced.unfinished:
                replaced = await registration.matched(wanted, replace)
        except UnknownSubscription:
            registration.spec, self.pending = wanted, None
            raise
        except Rejected:
            self.pending = None
            raise
        registration.spec, self.pending = wanted, None
        registration.learn_backlog(replaced.max_backlog)
        for queue, token in replaced.tokens.items():
            self.former[queue] = max(token, self.former.get(queue, 0))

    def wants(self, parts: list[bytes], body: bytes) -> bool:
        """Return whether a message may be handed out; one delivered under a former spec may have to go back."""
        if int(parts[1]) > self.former.get(parts[0], 0):
            return True
        spec = self._registration.spec
        return spec.covers(parts[0].decode()) and (spec.filter is None or spec.filter.matches(document_of(parts, body)))
