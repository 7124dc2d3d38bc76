"""A subscription of the synchronous client and its messages: iterate over it, or call `get`.

`Subscription` and `Message` are what an application has in hand. What its client and a worker need besides, as going on
at another instance, is `ManagedSubscription`, which both work on.
"""

# Long: a quarter of it are the texts of `Message` and `Subscription`, which are the reference for both clients.

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Self

from ampsq.base.errors import AmpsqError, Closed, Unavailable
from ampsq.base.values import Interval
from ampsq.queues.failover import SettledElsewhere
from ampsq.queues.idle_duties import LONGEST_WAIT
from ampsq.queues.message import MessageView, head_of
from ampsq.queues.returns import failure_text, report_text
from ampsq.queues.settling import settle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import timedelta
    from types import EllipsisType

    from ampsq.protocol.calls.queues import Parts, Verb
    from ampsq.protocol.context import ClientContext
    from ampsq.queues.heartbeat import Keepalive
    from ampsq.queues.lease_table import LeaseTable
    from ampsq.queues.subscription_core import SubscriptionCore
    from ampsq.transport.store import Store

__all__ = ["ManagedSubscription", "Message", "Subscription", "handle_each"]

_log = logging.getLogger("ampsq")
#: Seconds of one wait inside an endless one. Who changes or closes the subscription meanwhile ends it.
_STEP = LONGEST_WAIT
#: Seconds between two looks whether a reader that was asked for it has let the subscription go.
_LETS_GO = 0.02
#: Seconds between two looks whether a subscription has gone on at another instance.
_MOVING = 0.02


class Message(MessageView):
    """A message delivered to a `Subscription`."""

    __slots__ = ("_managed",)

    def __init__(self, parts: Parts, body: bytes, leases: LeaseTable, managed: ManagedSubscription) -> None:
        self._parts = parts
        self._body = body
        self._leases = leases
        self._managed = managed
        self.settled = False
        if parts[1] in leases.measured:
            leases.samples.handed_out(parts)

    def ack(self, *, wait: bool = False) -> None:
        """Say that it was processed.

        Args:
            wait: False (default) adds it to the next batch, which travels with the next `take` or after the
                subscription's `ack_timeout`; at once where another thread waits for what it may let come, the next of
                its group or what there is room for then. A late one is logged and kept in `Subscription.late`. True
                sends it at once and waits for the answer.

        Raises:
            StaleLease: `wait`, and the lease ended before; somebody else may have it.
            AlreadyAcked: `wait`, and it was settled before.
        """
        inbox = self._managed.core.inbox
        if wait:
            self._managed.settle(self._leases, self._parts, "acknowledged", None)
        elif self._leases.acknowledge(self._parts) or (inbox.attention.now and inbox.may_let_come(self._parts)):
            self._managed.send_batch()
        self.settled = True

    def cancel(self, delay: timedelta | float | str | None = None, *, reason: str | None = None) -> None:
        """Hand it back: it is ready again, at its old place.

        Args:
            delay: after how long; 0: at once. Default: as the queue's `redelivery_delay` says, at once if it has none.
            reason: why, one line of at most 500 characters, for whoever looks at the message, and in its dead letter.

        Raises:
            StaleLease: the lease ended before. AlreadyAcked: it was settled before.
            DefinitionError: the reason is no line, or too long.
        """
        period = Interval.parse(delay) if delay is not None else None
        self._managed.settle(self._leases, self._parts, "cancelled", period, reason)
        self.settled = True

    def expire(self, *, reason: str | None = None) -> None:
        """Remove it unprocessed, with the reason ``forced_expire``; dead-letter actions see it.

        Args:
            reason: why, in the consumer's words; see `cancel`.

        Raises:
            StaleLease: the lease ended before. AlreadyAcked: it was settled before.
            DefinitionError: the reason is no line, or too long.
        """
        self._managed.settle(self._leases, self._parts, "expired", None, reason)
        self.settled = True

    def extend(self, period: timedelta | float | str) -> None:
        """Hold it for `period` from now on.

        Raises:
            StaleLease: the lease ended before. AlreadyAcked: it was settled before.
        """
        self._managed.settle(self._leases, self._parts, "extended", Interval.parse(period))

    def report(self, done: float, text: str = "") -> None:
        """Say how far its processing is, and hold it as long again.

        The lease is renewed by the length that it has: the queue's `lease_period`, or that of the last `extend`. What
        was said last is shown by `Client.admin.explain`, ``ampsq explain`` and the console, until the message is
        settled or comes back.

        Args:
            done: how much is done, a number from 0 to 1.
            text: the same in words, one line of at most 500 characters, as in ``page 40 of 100``; default nothing.

        Raises:
            StaleLease: the lease ended before. AlreadyAcked: it was settled before.
            DefinitionError: `done` is no such number, or the text is no line, or too long.
        """
        self._managed.settle(self._leases, self._parts, "extended", None, report_text(done, text))


def handle_each(messages: Iterable[Message], on_message: Callable[[Message], object]) -> None:
    """Call a function with each message; where it raises, that is logged and its message cancelled."""
    for message in messages:
        try:
            on_message(message)
        except Exception as error:  # noqa: BLE001  (whatever a handler raises is an answer)
            _log.exception("handler of %r failed; its message is cancelled", message)
            try:
                message.cancel(reason=failure_text(error))
            except AmpsqError as lost:
                _log.warning("%r could not be cancelled: %s", message, lost)


class ManagedSubscription:
    """One subscription with what moves it; `Subscription` is what an application sees of it.

    Args:
        core: the subscription at the instance where its client works.
        store: runs its flows.
        end: called when it is closed.

    Attributes:
        core, store: these; others when it goes on at another instance.
        pipeline: for what is sent ahead.
        lock: held by who reads, or changes the subscription.
        turnstile: who waits for the lock to change the subscription holds this, so that readers, who take the lock
            again and again, let it in: the lock itself is not fair.
        elsewhere: what was settled of another instance that does not know it.
        is_moving: between leaving an instance and going on at another one.
        is_given_back: no more messages are asked for: nothing is waited for.
    """

    def __init__(
        self, core: SubscriptionCore, store: Store, end: Callable[[ManagedSubscription, SubscriptionCore], None]
    ) -> None:
        self.core, self.store, self._end = core, store, end
        self.pipeline, self.elsewhere = store.pipeline(), SettledElsewhere()
        self.lock, self.turnstile = threading.RLock(), threading.Lock()
        self.is_moving = self.is_given_back = False
        self._thread: threading.Thread | None = None

    @classmethod
    def of(cls, subscription: Subscription) -> ManagedSubscription:
        """Return the managed subscription of a subscription, for a worker."""
        return subscription._managed  # noqa: SLF001  (its other half)

    @property
    def id(self) -> str:
        """The subscription's name on the instance."""
        return self.core.registration.id

    def run(self, on_message: Callable[[Message], object]) -> None:
        """Call a function with each message, in a thread, until the subscription is closed."""
        self._thread = threading.Thread(target=self._run, args=(on_message,), name=f"ampsq-{self.id}", daemon=True)
        self._thread.start()

    def _run(self, on_message: Callable[[Message], object]) -> None:
        handle_each(Subscription(self), on_message)

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the lock, to change the subscription; a reader that waits for messages is asked to let it go."""
        with self.turnstile:
            seconds = 0.0
            while not self.lock.acquire(timeout=seconds):
                self.store.run(self.core.inbox.end_wait())
                seconds = _LETS_GO
            try:
                yield
            finally:
                self.lock.release()

    # -- settling

    def settle(
        self, leases: LeaseTable, parts: Parts, verb: Verb, period: int | None, reason: str | None = None
    ) -> None:
        """Settle a message at once; see `Message.ack`, `Message.cancel`, `Message.expire` and `Message.extend`.

        Args:
            leases: where it is held, at the instance that delivered it.
            parts: its head.
            verb: what is done.
            period: ms.
            reason: why, in the consumer's words.
        """
        if leases.left_for is not None:
            raise self.elsewhere.refusal(leases.origin, parts, verb)
        store = self.store
        try:
            store.run(settle(leases, parts, verb, period, reason))
        except Unavailable as lost:
            if not store.route.left:
                raise
            # The client went on at another instance meanwhile, so nobody asks this one again.
            raise self.elsewhere.refusal(leases.origin, parts, verb) from lost

    def send_batch(self) -> None:
        """Send acknowledgements that have become many or are waited for, unless a fetch is to come soon that does."""
        if not self.core.inbox.buffer:
            self.store.run(self.core.leases.flush(waits=False))

    def is_settled(self, parts: Parts) -> bool:
        """Acknowledge what was acknowledged before, at another instance; it is not handed out."""
        leases = self.core.leases
        if not self.elsewhere.take_out(parts, leases.origin):
            return False
        if leases.acknowledge(parts):
            self.send_batch()
        return True

    def flush(self) -> None:
        """See `Subscription.flush`."""
        self.store.run(self.core.leases.flush())

    # -- at another instance

    def prepare_failover(self, store: Store, client: ClientContext, keepalive: Keepalive) -> Callable[[], None]:
        """Subscribe at another instance; gives what lets it go on there, after `suspend`."""
        core = self.core.copy_for(client.instance, client.request(), client.origin)
        store.run(core.registration.register())
        return partial(self._resume_at, core, store, keepalive)

    def suspend(self) -> None:
        """From here on the instance is out of reach, and what `prepare_failover` gave follows."""
        self.is_moving = True

    def _resume_at(self, core: SubscriptionCore, store: Store, keepalive: Keepalive) -> None:
        # Who keeps acknowledgements does so where it publishes now.
        core.leases.keep_in(core.leases.keeper)
        keepalive.add(core)
        with self.changing():
            self.pipeline.close()
            self.store, self.pipeline = store, store.pipeline()
            former, self.core = self.core, core
            self.elsewhere.leave(former.leases)
            former.registration.closed = True
            self.is_moving = False

    # -- ending

    def give_back(self, unstarted: Iterable[Message] = ()) -> None:
        """Ask for no more messages, and return those not handed out, uncounted, and those that nobody began with.

        A `get` that waits gives None.
        """
        self.is_given_back = True
        with self.changing():
            self.core.inbox.unwanted += [head_of(message) for message in unstarted]
            self.store.run(self.core.give_back(self.pipeline))

    def close(self) -> None:
        """See `Subscription.close`."""
        if self.core.registration.closed:
            return
        self.core.registration.closed = True
        try:
            with self.changing():
                try:
                    self.store.run(self.core.close(self.pipeline))
                finally:
                    self.pipeline.close()
        finally:
            # Interrupted while another thread has the lock, nobody reads the replies any more.
            self.core.inbox.ahead.give_up()
            self._end(self, self.core)

    def abandon(self, keepalive: Keepalive) -> None:
        """Let the client's own thread end it: closing the client failed before."""
        self.core.registration.closed = True
        self.core.inbox.ahead.give_up()
        keepalive.remove(self.core)


class Subscription:
    """Messages pushed to one consumer: iterate over it, or call `get`. Made by `Client.subscribe`."""

    def __init__(self, managed: ManagedSubscription) -> None:
        self._managed = managed

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._managed.core}>"

    @property
    def id(self) -> str:
        """The subscription's name on the instance."""
        return self._managed.id

    @property
    def max_backlog(self) -> int:
        """The effective backlog: the least of what was asked and of the queues' limits.

        Where a limit is changed, it follows with the next sign of life, within ten seconds.
        """
        return self._managed.core.registration.max_backlog

    @property
    def late(self) -> list[Exception]:
        """Acknowledgements of batches that came too late, at most the last thousand."""
        return list(self._managed.core.leases.late.errors)

    def get(self, timeout: timedelta | float | str | None = None) -> Message | None:
        """Wait for the next message.

        Args:
            timeout: how long; default until there is one or the subscription is closed.

        Returns:
            The message; None when the time is over.

        Raises:
            Closed: the subscription is closed.
        """
        seconds = math.inf if timeout is None else Interval.parse(timeout) / 1000
        managed, core = self._managed, self._managed.core
        if core.inbox.buffer and not managed.is_given_back and not managed.elsewhere.bookmarks:
            # Mostly: no lock, and no look at the clock. Taking from a deque is atomic, as `_delivered_by` says.
            try:
                return Message(*core.inbox.buffer.popleft(), core.leases, managed)
            except IndexError:
                pass
        return self._wait_for_next(seconds)

    def _wait_for_next(self, seconds: float) -> Message | None:
        managed = self._managed
        until = time.monotonic() + seconds
        while not managed.is_given_back:
            with managed.turnstile:
                pass
            if not managed.lock.acquire(timeout=min(max(until - time.monotonic(), 0.0), threading.TIMEOUT_MAX)):
                return None
            try:
                # Another one when it goes on at another instance.
                core = managed.core
                if core.inbox.buffer:
                    parts, body = core.inbox.buffer.popleft()
                    if not managed.elsewhere.bookmarks or not managed.is_settled(parts):
                        return Message(parts, body, core.leases, managed)
                    continue
                if core.registration.closed:
                    core.registration.check_open()
                wait = min(until - time.monotonic(), _STEP)
                try:
                    managed.store.run(core.inbox.fetch(managed.pipeline, max(wait, 0.0)))
                except Unavailable:
                    if not managed.is_moving:
                        raise
                    time.sleep(_MOVING)
                if not core.inbox.buffer and time.monotonic() >= until:
                    return None
            finally:
                managed.lock.release()
        return None

    def __iter__(self) -> Iterator[Message]:
        managed = self._managed
        while not managed.core.registration.closed:
            # Another one when it goes on at another instance; this one is closed then.
            yield from self._delivered_by(managed.core)
        managed.core.registration.check_process()

    def _delivered_by(self, core: SubscriptionCore) -> Iterator[Message]:
        managed, leases, registration, buffer = self._managed, core.leases, core.registration, core.inbox.buffer
        while not registration.closed:
            try:
                # Taking from a deque is atomic: threads that share the subscription never get the same message.
                parts, body = buffer.popleft()
            except IndexError:
                try:
                    message = self._wait_for_next(_STEP)
                except Closed:
                    return
                if message is not None:
                    yield message
                continue
            if not managed.elsewhere.bookmarks or not managed.is_settled(parts):
                yield Message(parts, body, leases, managed)

    def flush(self) -> None:
        """Send the acknowledgements collected so far, and wait until they are done."""
        self._managed.store.run(self._managed.core.leases.flush())

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
        so nothing is handed out from here on that is not asked for any more (AMPS, *Replacing Queue Subscriptions*).

        Args:
            name: a queue or a regular expression of queues; default as before.
            max_backlog: unacknowledged messages at most; default as before.
            filter: an expression, or None for everything; default as before.

        Raises:
            UnknownQueue, ExpressionError, TooManyFilters: as of `Client.subscribe`; then all is as before.
            Closed: the subscription is closed.
        """
        managed = self._managed
        with managed.changing():
            core = managed.core
            core.registration.check_open()
            managed.store.run(core.replace(managed.pipeline, name, max_backlog, filter))

    def close(self) -> None:
        """End the subscription: acknowledgements are sent, messages not handed out go back uncounted."""
        self._managed.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
