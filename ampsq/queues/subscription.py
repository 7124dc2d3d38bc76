"""A subscription of the synchronous client: iterate over it, or call `get`."""

from __future__ import annotations

import logging
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Self

from ampsq.base.errors import AmpsqError, Closed, Unavailable
from ampsq.base.values import Interval
from ampsq.queues.message import Message
from ampsq.queues.returns import failure_text
from ampsq.queues.subscription_view import SubscriptionView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import timedelta
    from types import EllipsisType

    from ampsq.protocol.calls.queues import Verb
    from ampsq.protocol.context import ClientContext
    from ampsq.queues.heartbeat import Keepalive
    from ampsq.queues.subscription_core import SubscriptionCore
    from ampsq.transport.store import Store

__all__ = ["Subscription"]

_log = logging.getLogger("ampsq")
#: Seconds of one wait inside an endless one: so often a closed subscription is noticed.
_STEP = 1.0
#: Seconds between two looks whether a subscription has gone on at another instance.
_MOVING = 0.02


class Subscription(SubscriptionView):
    """Messages pushed to one consumer: iterate over it, or call `get`. Made by `Client.subscribe`."""

    def __init__(
        self,
        core: SubscriptionCore,
        store: Store,
        origin: str,
        end: Callable[[Subscription, SubscriptionCore], None],
    ) -> None:
        super().__init__(core, origin)
        self._store, self._end = store, end
        self._pipeline = store.pipeline()
        self._lock = threading.RLock()
        # Who waits for the lock to change the subscription holds this, so that readers, who take the lock again and
        # again, let it in: the lock itself is not fair.
        self._turnstile = threading.Lock()
        self._thread: threading.Thread | None = None

    def get(self, timeout: timedelta | float | str | None = None) -> Message | None:
        """Wait for the next message.

        Args:
            timeout: how long; default until there is one or the subscription is closed.

        Returns:
            The message; None when the time is over.

        Raises:
            Closed: the subscription is closed.
        """
        until = None if timeout is None else time.monotonic() + Interval.parse(timeout) / 1000
        while True:
            with self._turnstile:
                pass
            with self._lock:
                buffer = self._core.buffer
                if buffer:
                    message = Message(*buffer.popleft(), self._origin, self)
                    if not self._settled or not self._is_settled(message):
                        return message
                    continue
                self._check_open()
                wait = _STEP if until is None else min(until - time.monotonic(), _STEP)
                self._fetch(max(wait, 0.0))
                if not buffer and until is not None and time.monotonic() >= until:
                    return None

    def __iter__(self) -> Iterator[Message]:
        while not self._core.closed:
            # Another one when it goes on at another instance; this one is closed then.
            yield from self._messages(self._core, self._origin)

    def _messages(self, core: SubscriptionCore, origin: str) -> Iterator[Message]:
        buffer = core.buffer
        while not core.closed:
            try:
                # Taking from a deque is atomic: threads that share the iterator never get the same message.
                parts, body = buffer.popleft()
            except IndexError:
                with self._turnstile:
                    pass
                with self._lock:
                    if not buffer and not core.closed:
                        self._fetch(_STEP)
                continue
            message = Message(parts, body, origin, self)
            if not self._settled or not self._is_settled(message):
                yield message

    def _fetch(self, wait: float) -> None:
        try:
            self._store.run(self._core.fetch(self._pipeline, wait))
        except Unavailable:
            if not self._is_moving:
                raise
            time.sleep(_MOVING)

    # -- at another instance

    def prepare_failover(self, store: Store, client: ClientContext, keepalive: Keepalive) -> Callable[[], None]:
        """Subscribe at another instance; gives what lets it go on there, after `suspend`."""
        core = self._core.copy_for(client.instance, client.request())
        store.run(core.register())
        return partial(self._resume_at, core, store, client, keepalive)

    def _resume_at(self, core: SubscriptionCore, store: Store, client: ClientContext, keepalive: Keepalive) -> None:
        core.keep_again()
        keepalive.add(core)
        with self._turnstile, self._lock:
            self._pipeline.close()
            self._store, self._pipeline = store, store.pipeline()
            self._go_on(core, client.origin)

    def _is_settled(self, message: Message) -> bool:
        """Acknowledge what was acknowledged before, at another instance."""
        if not self._was_settled(message):
            return False
        self.acknowledge(message, wait=False)
        return True

    def run(self, on_message: Callable[[Message], object]) -> None:
        """Call a function with each message, in a thread, until the subscription is closed."""
        self._thread = threading.Thread(target=self._run, args=(on_message,), name=f"ampsq-{self.id}", daemon=True)
        self._thread.start()

    def _run(self, on_message: Callable[[Message], object]) -> None:
        for message in self:
            try:
                on_message(message)
            except Exception as error:  # noqa: BLE001  (whatever a handler raises is an answer)
                _log.exception("handler of %r failed; its message is cancelled", message)
                try:
                    message.cancel(reason=failure_text(error))
                except AmpsqError as lost:
                    _log.warning("%r could not be cancelled: %s", message, lost)

    def acknowledge(self, message: Message, *, wait: bool) -> None:
        """See `Message.ack`."""
        if self._is_elsewhere(message, acknowledged=True):
            if wait:
                raise self._leased_elsewhere(message)
            return
        if self._core.closed and not wait:
            raise Closed("this subscription was closed, and its unacknowledged messages went back to their queues")
        if wait:
            self._settle_here(message, "acknowledged", None, None)
        elif self._core.acknowledge(message) and not self._core.buffer:
            self._store.run(self._core.send_acks())

    def settle(self, message: Message, verb: Verb, period: int | None, reason: str | None = None) -> None:
        """See `Message.cancel`, `Message.expire` and `Message.extend`."""
        if self._is_elsewhere(message):
            raise self._leased_elsewhere(message)
        self._settle_here(message, verb, period, reason)

    def _settle_here(self, message: Message, verb: Verb, period: int | None, reason: str | None) -> None:
        store = self._store
        try:
            store.run(self._core.settle(message, verb, period, reason))
        except Unavailable as lost:
            if not store.route.left:
                raise
            # The client went on at another instance meanwhile, so nobody asks this one again.
            raise self._left_behind(message, acknowledged=verb == "acknowledged") from lost

    def flush(self) -> None:
        """Send the acknowledgements collected so far, and wait until they are done."""
        self._store.run(self._core.flush())

    def replace(
        self,
        *,
        name: str | None = None,
        max_backlog: int | None = None,
        filter: str | EllipsisType | None = ...,  # noqa: A002  (AMPS's word)
    ) -> None:
        """Ask for something else from now on, at once: other queues, another backlog, another filter, or all of them.

        Leases stay, also of messages that do not match any more and beyond the new backlog: then nothing is delivered
        until enough of them are settled. What was delivered and not yet handed out goes back to its queue, uncounted,
        so nothing is handed out from here on that the new wish does not want (AMPS, *Replacing Queue Subscriptions*).

        Args:
            name: a queue or a regular expression of queues; default as before.
            max_backlog: unacknowledged messages at most; default as before.
            filter: an expression, or None for everything; default as before.

        Raises:
            UnknownQueue, ExpressionError, TooManyFilters: as of `Client.subscribe`; then all is as before.
            Closed: the subscription is closed.
        """
        core = self._core
        with self._turnstile, self._lock:
            self._check_open()
            self._store.run(core.replace(self._pipeline, *core.spec_with(name, max_backlog, filter)))

    def give_back(self) -> None:
        """Ask for no more messages, and return those not handed out, uncounted."""
        with self._turnstile, self._lock:
            self._store.run(self._core.give_back(self._pipeline))

    def close(self) -> None:
        """End the subscription: acknowledgements are sent, messages not handed out go back uncounted."""
        if self._core.closed:
            return
        self._core.closed = True
        try:
            with self._turnstile, self._lock:
                try:
                    self._store.run(self._core.close(self._pipeline))
                finally:
                    self._pipeline.close()
        finally:
            # Interrupted while another thread has the lock, nobody reads the replies any more.
            self._core.give_up()
            self._end(self, self._core)

    def abandon(self, keepalive: Keepalive) -> None:
        """Let the client's own thread end it: closing the client failed before."""
        self._core.closed = True
        self._core.give_up()
        keepalive.remove(self._core)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
