"""Work that a client does beside its own, to show that it lives, also while a handler computes.

One connection and one thread of the process show that for all its clients (`ampsq.transport.shared_keepalive`). A
thread of the client's own runs while there is something else to do: it finds the server again when that is lost; sends
acknowledgements that have waited long enough; renews leases where asked; ends at the server what was closed while that
was away. Synchronous and asyncio clients use the same threads: an event loop that a handler blocks shows no life.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

import redis

from ampsq.base.errors import AmpsqError, Unavailable
from ampsq.protocol.calls import subscriptions as subscription_calls
from ampsq.protocol.calls.queue_latencies import latency_lines
from ampsq.protocol.keepalive import SESSION_TIMEOUT
from ampsq.protocol.reads.instance import is_opened
from ampsq.transport.connection_state import ConnectionState
from ampsq.transport.shared_keepalive import SharedKeepalive
from ampsq.transport.store import Store

if TYPE_CHECKING:
    from ampsq.protocol.calls.queue_latencies import Latencies
    from ampsq.protocol.calls.subscriptions import HeartbeatReply
    from ampsq.queues.subscription_core import SubscriptionCore
    from ampsq.transport.route import Route, ServerAddress

__all__ = ["LONGEST_PAUSE", "Keepalive"]

_log = logging.getLogger("ampsq")
_TICK: Final = 0.1
#: Seconds before a server that is lost is looked for again: none at first, then these, doubled up to the last.
_FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 1.0
#: Seconds for which the thread stays though there is nothing to do, so that a busy client needs no new one.
_STAYS: Final = 1.0
#: Seconds for which `stop` waits for the thread. Where the server hangs, the thread is left, and the coordinator finds
#: the client gone.
_ENDS_WITHIN: Final = 1.0
#: Seconds in which a server carries out what was sent on a connection that was closed since.
_STILL_RUNS: Final = 2.0


class Keepalive:
    """A client's signs of life.

    Args:
        route: the way to the server, the client's own.
        client: the client's name, unlike any other's.
        ack_timeout: seconds that an acknowledgement may wait for its batch.
    """

    def __init__(self, route: Route, client: str, ack_timeout: float) -> None:
        self.instance, self.client = route.instance, client
        self._route = route
        self._store = Store(route, route.instance, retry_timeout=1.0)
        self._ack_timeout = ack_timeout
        self._subscriptions: list[SubscriptionCore] = []
        # Closed, and the server does not know it yet: it would push to them.
        self._leaving: deque[SubscriptionCore] = deque()
        # Asked for by who did not wait for the answer, each with the moment after which the server makes it no more.
        self._unanswered: deque[tuple[SubscriptionCore, float]] = deque()
        # Where life is shown, and the server of the route that this was; set by one thread, lost by another.
        self._shared: SharedKeepalive | None = None
        self._server: ServerAddress | None = None
        # Where it was shown before, and is to be left.
        self._former: SharedKeepalive | None = None
        # The server is to be asked whether all is known there: before life is shown, where that may be another one.
        self._is_doubtful = self._asks_first = False
        # A coordinator was at work when that was looked at last; None: that was not looked at here.
        self._is_attended: bool | None = None
        # Somebody who waits for messages is to look what is wrong.
        self._calls_readers = False
        # Life is shown, and that is not told yet.
        self._is_new = False
        self._was_attached, self._returning = False, False
        self._stopped = threading.Event()
        self._started = False
        self._starting = threading.Lock()
        # Held over a few assignments only.
        self._changing = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Show life from now on; returns when the server sees it. Safe to call again."""
        with self._starting:
            if self._started:
                return
            try:
                self._attach()
                self._look_after_subscriptions()
            except (AmpsqError, redis.RedisError, OSError) as error:
                # The thread tries again; who subscribes meanwhile is told that there is no server.
                _log.debug("keepalive: %s", error)
                self._wake()
            self._started = True

    @property
    def is_started(self) -> bool:
        """Return whether life is shown."""
        return self._started

    def add(self, subscription: SubscriptionCore) -> None:
        """Care for a subscription."""
        self._subscriptions.append(subscription)

    def remove(self, subscription: SubscriptionCore) -> None:
        """Leave a closed subscription alone, once the server has ended it."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
            if not subscription.registration.left:
                self._leaving.append(subscription)
                self._wake()

    def end_unanswered(self, subscription: SubscriptionCore) -> None:
        """End a subscription that was asked for by who did not wait for the answer, should the server make it."""
        self._unanswered.append((subscription, time.monotonic() + _STILL_RUNS))
        self._wake()

    def stop(self) -> None:
        """Show no more life, and end the thread and its connections."""
        self._stopped.set()
        with self._changing:
            thread = self._thread
        if thread is not None:
            thread.join(_ENDS_WITHIN)
        for subscription in list(self._leaving):
            subscription.leases.abandon_acks()
        self._detach()
        self._leave()
        self._store.close()

    # -- what shows life says; called in its thread

    def subscription_ids(self) -> list[str]:
        """Return the names of the subscriptions, which end where no life is shown."""
        return [each.registration.id for each in self._subscriptions if each.registration.id]

    def take_latencies(self) -> str:
        """Return what was measured of messages since the last time; "" where that is nothing."""
        found: dict[str, Latencies] = {}
        for subscription in list(self._subscriptions):
            subscription.leases.samples.take(found)
        return latency_lines(found)

    def answered(self, sent: float, received: float, found: HeartbeatReply) -> None:
        """Compare the server's clock with ours, and what it knows of the subscriptions with what they know."""
        for subscription in list(self._subscriptions):
            registration = subscription.registration
            registration.clock.learn(sent, received, found.now)
            if (backlog := found.backlogs.get(registration.id)) is not None:
                registration.follow_backlog(backlog, sent)
            self._tell(subscription, found)

    def _tell(self, subscription: SubscriptionCore, found: HeartbeatReply) -> None:
        """Let whoever waits for messages wait on, or look what is wrong."""
        leased = found.leased.get(subscription.registration.id, 0)
        if leased is None:
            # Nothing in its inbox could end the wait any more.
            if not subscription.registration.closed:
                self._route.cut_waits()
        elif self._is_attended is not None and not subscription.inbox.duties.looks_itself:
            held = sum(map(len, list(subscription.leases.held.values())))
            is_well = self._is_attended and not found.is_late and leased <= held
            self._calls_readers = subscription.inbox.duties.told(is_well=is_well) or self._calls_readers

    def attended(self, *, is_attended: bool) -> None:
        """Note whether a coordinator is at work; where none is, whoever waits for messages does what is due."""
        self._is_attended = is_attended
        if not is_attended:
            for subscription in list(self._subscriptions):
                if not subscription.inbox.duties.looks_itself:
                    self._calls_readers = subscription.inbox.duties.told(is_well=False) or self._calls_readers

    def look(self, shared: SharedKeepalive) -> None:
        """Let the thread do what is to be done."""
        if self._shared is not shared or self._thread is not None:
            return
        if self._server is not self._route.current or self._has_work():
            self._wake()

    def refused(self, shared: SharedKeepalive) -> None:
        """Ask the server what it has, before it is asked for signs of life again."""
        if self._shared is shared:
            self._is_doubtful = True
            self._wake()

    def moved(self, shared: SharedKeepalive) -> None:
        """Look where the instance is now."""
        if self._shared is shared:
            self._asks_first = True
            self._detach()
            self._wake()

    def lost(self, shared: SharedKeepalive, error: AmpsqError) -> None:
        """Tell all others who use the same server, and look for it again."""
        server = self._server
        if self._shared is not shared or server is None:
            return
        self._detach()
        if isinstance(error, Unavailable):
            self._route.failed(server, error)
        self._wake()

    # -- attaching

    def _attach(self) -> None:
        """Show life where the route leads.

        Raises:
            AmpsqError, RedisError, OSError: that is not possible now.
        """
        if self._asks_first:
            self._ask()
        server = self._route.current or self._route.find()
        self._leave()
        # Only where that works: what a cluster moved is elsewhere, and what was lost may be, too.
        self._is_doubtful = self._asks_first = True
        try:
            shared = SharedKeepalive.join(server.url, self._route.heartbeat, self)
        except Unavailable as error:
            self._route.failed(server, error, connecting=True)
            raise
        with self._changing:
            is_stopped = self._stopped.is_set()
            if not is_stopped:
                self._shared, self._server = shared, server
        if is_stopped:
            shared.leave(self)
            return
        if not shared.shows(self):
            # Over before it could be told here; the call that is made first then says why.
            self._detach()
            self._wake()
            return
        # A server that was not greeted yet is, by a call, once others cannot take this client for gone.
        self._is_doubtful, self._asks_first, self._is_new = not self._route.is_up, False, True
        self._returning, self._was_attached = self._was_attached and bool(self._subscriptions), True

    def _detach(self) -> None:
        self._is_attended = None
        with self._changing:
            shared, self._shared, self._server = self._shared, None, None
            self._former = shared or self._former

    def _leave(self) -> None:
        with self._changing:
            former, self._former = self._former, None
        if former is not None:
            former.leave(self)

    def _ask(self) -> list[str]:
        """Show life by a call, which finds the server; gives the subscriptions that are gone there."""
        gone: list[str] = []
        if ids := self.subscription_ids():
            gone = self._store.call(subscription_calls.heartbeat(SESSION_TIMEOUT, ids)).gone
        else:
            # It may be a publisher's, whose user may send no signs of life.
            self._store.call(is_opened(self.instance))
        self._is_doubtful = self._asks_first = False
        return gone

    def _look_after_subscriptions(self) -> None:
        """See whether all is known to a server where life was not shown before, and tell what was reached."""
        gone = self._ask() if self._is_doubtful or self._returning else []
        server = self._server
        if server is None:
            return
        if self._is_new:
            self._is_new = False
            self._route.tell(server, ConnectionState.HEARTBEAT_INITIATED)
        # Whoever reads a subscription that is gone makes it again; that is looked at soon.
        if self._returning and not gone:
            self._returning = False
            self._route.tell(server, ConnectionState.RESUBSCRIBED)

    # -- the thread

    def _wake(self) -> None:
        with self._changing:
            if self._thread is None and not self._stopped.is_set():
                self._thread = threading.Thread(target=self._run, name=f"ampsq-keepalive-{self.client}", daemon=True)
                self._thread.start()

    def _has_work(self) -> bool:
        """Return whether there is work for the thread."""
        if self._shared is None or self._is_doubtful or self._returning or self._leaving or self._unanswered:
            return True
        if self._server is not self._route.current or self._calls_readers:
            return True
        for subscription in list(self._subscriptions):
            if subscription.leases.acks and subscription.leases.acks_waiting() >= self._ack_timeout:
                return True
            if subscription.renewal is not None and any(list(subscription.leases.held.values())):
                return True
        return False

    def _run(self) -> None:
        until, pause, is_over = time.monotonic() + _STAYS, 0.0, False
        while not is_over:
            try:
                self._do()
            except (AmpsqError, redis.RedisError, OSError) as error:
                # The next round tries again; until then absence is what others rightly see.
                _log.debug("keepalive: %s", error)
                pause = min(2 * pause, LONGEST_PAUSE) or _FIRST_PAUSE
            except Exception:  # noqa: BLE001  (without this thread no lease is renewed and nobody is seen to live)
                _log.exception("keepalive failed; trying again")
                pause = LONGEST_PAUSE
            else:
                pause = 0.0
            if self._has_work():
                until = time.monotonic() + _STAYS
            self._stopped.wait(pause * random.uniform(0.5, 1.0) or _TICK)  # noqa: S311  (no secret)
            is_over = self._is_over(until)
        if self._stopped.is_set() and self._shared is not None:
            with contextlib.suppress(AmpsqError, redis.RedisError, OSError):
                self._unsubscribe_closed()
                self._unsubscribe_unanswered()

    def _is_over(self, until: float) -> bool:
        """Return whether the thread ends; a caller who finds it gone then starts another one."""
        if self._stopped.is_set():
            return True
        with self._changing:
            if time.monotonic() < until or self._has_work():
                return False
            # No other thread has begun to use it.
            self._store.disconnect()
            self._thread = None
            return True

    def _do(self) -> None:
        if self._shared is not None and self._server is not self._route.current:
            # Another connection found out that the server is away, or is another one now.
            self._detach()
        if self._shared is None:
            self._attach()
        if self._is_doubtful or self._returning or self._is_new:
            self._look_after_subscriptions()
        self._leave()
        self._unsubscribe_closed()
        self._unsubscribe_unanswered()
        if self._calls_readers:
            self._calls_readers = False
            for subscription in list(self._subscriptions):
                if subscription.inbox.duties.are_due:
                    self._store.run(subscription.inbox.end_wait())
        for subscription in list(self._subscriptions):
            if subscription.leases.acks_waiting() >= self._ack_timeout:
                self._store.run(subscription.leases.flush(waits=False))
            if subscription.renewal is not None:
                self._store.run(subscription.renewal.renew())

    def _unsubscribe_closed(self) -> None:
        while self._leaving:
            try:
                self._store.run(self._leaving[0].leave())
            except Unavailable:
                raise
            except AmpsqError as error:
                _log.warning("subscription %s could not be ended: %s", self._leaving[0].registration.id, error)
            self._leaving.popleft()

    def _unsubscribe_unanswered(self) -> None:
        for _ in range(len(self._unanswered)):
            subscription, until = self._unanswered[0]
            try:
                is_ended = self._store.run(subscription.end_unanswered())
            except Unavailable:
                raise
            except AmpsqError as error:
                _log.warning("a subscription that nobody waited for could not be ended: %s", error)
                is_ended = True
            self._unanswered.popleft()
            if not is_ended and time.monotonic() < until:
                self._unanswered.append((subscription, until))
