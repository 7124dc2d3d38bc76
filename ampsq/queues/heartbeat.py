"""The thread beside a client's own work: it shows that the client lives, also while a handler computes.

It keeps a connection subscribed to the client's channel, so that a killed process is noticed within a second; sends
heartbeats and looks whether they are answered, for half-open connections; sends acknowledgements that have waited long
enough; renews leases where asked; ends at the server what was closed while that was away. Synchronous and asyncio
clients use the same thread: an event loop that a handler blocks shows no life.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

import redis

from ampsq.base.errors import AmpsqError, Unavailable
from ampsq.protocol.calls import subscriptions as subscription_calls
from ampsq.protocol.keepalive import HEARTBEAT, SESSION_TIMEOUT, attach
from ampsq.transport.connection_state import ConnectionState
from ampsq.transport.errors import translate_error
from ampsq.transport.store import Store

if TYPE_CHECKING:
    from ampsq.queues.subscription_core import SubscriptionCore
    from ampsq.transport.route import Route
    from ampsq.transport.store import Connection

__all__ = ["Keepalive"]

_log = logging.getLogger("ampsq")
_TICK: Final = 0.1
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
        self._route = route
        self._store = Store(route, route.instance, retry_timeout=1.0)
        self._greeting = attach(route.instance, client)
        self._ack_timeout = ack_timeout
        self._subscriptions: list[SubscriptionCore] = []
        # Closed, and the server does not know it yet: it would push to them.
        self._leaving: deque[SubscriptionCore] = deque()
        # Asked for by who did not wait for the answer, each with the moment after which the server makes it no more.
        self._unanswered: deque[tuple[SubscriptionCore, float]] = deque()
        self._connection: Connection | None = None
        self._asked: float | None = None
        self._was_attached, self._returning = False, False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"ampsq-keepalive-{client}", daemon=True)
        self._next_heartbeat = 0.0
        self._started = False
        self._starting = threading.Lock()

    def start(self) -> None:
        """Send heartbeats from now on; returns when the server sees it. Safe to call again."""
        with self._starting:
            if self._started:
                return
            try:
                self._attach()
            except (AmpsqError, redis.RedisError, OSError) as error:
                # The thread tries again ten times a second; who subscribes meanwhile is told that there is no server.
                _log.debug("keepalive: %s", error)
            self._thread.start()
            self._started = True

    @property
    def is_started(self) -> bool:
        """Whether heartbeats are sent."""
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

    def end_unanswered(self, subscription: SubscriptionCore) -> None:
        """End a subscription that was asked for by who did not wait for the answer, should the server make it."""
        self._unanswered.append((subscription, time.monotonic() + _STILL_RUNS))

    def stop(self) -> None:
        """End the thread and its connections."""
        self._stopped.set()
        if self._started and self._thread.is_alive():
            self._thread.join(_ENDS_WITHIN)
        for subscription in list(self._leaving):
            subscription.leases.abandon_acks()
        self._detach()
        self._store.close()

    def _attach(self) -> None:
        connection = self._store.take_connection()
        try:
            connection.ask(*self._greeting)
            connection.read()
        except BaseException:
            connection.drop()
            connection.release()
            raise
        self._connection, self._asked, self._next_heartbeat = connection, None, 0.0
        self._returning, self._was_attached = self._was_attached, True
        self._route.tell(connection.server, ConnectionState.HEARTBEAT_INITIATED)

    def _detach(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.drop()
            connection.release()

    def _run(self) -> None:
        while not self._stopped.wait(_TICK):
            try:
                self._tick()
            except (AmpsqError, redis.RedisError, OSError) as error:
                # The next tick tries again; until then absence is what others rightly see.
                _log.debug("keepalive: %s", error)
                self._lost(error)
            except Exception:  # noqa: BLE001  (without this thread no lease is renewed and nobody is seen to live)
                _log.exception("presence failed; trying again")
            else:
                continue
            with contextlib.suppress(redis.RedisError, OSError):
                self._detach()
            self._stopped.wait(_TICK)
        if self._connection is not None:
            with contextlib.suppress(AmpsqError, redis.RedisError, OSError):
                self._unsubscribe_closed()
                self._unsubscribe_unanswered()

    def _lost(self, error: Exception) -> None:
        """Of what the store did not see, our own connection's end, tell all others who use the same server."""
        if self._connection is not None and not isinstance(error, AmpsqError):
            ours = translate_error(error, None, self._connection.server.url)
            if isinstance(ours, Unavailable):
                self._route.failed(self._connection.server, ours)

    def _tick(self) -> None:
        if self._connection is not None and self._connection.server is not self._route.current:
            # Another connection found out that the server is away, or is another one now.
            self._detach()
        if self._connection is None:
            self._attach()
        else:
            self._listen(self._connection)
        self._unsubscribe_closed()
        self._unsubscribe_unanswered()
        for subscription in list(self._subscriptions):
            if subscription.leases.acks_waiting() >= self._ack_timeout:
                self._store.run(subscription.leases.flush(waits=False))
            if subscription.renewal is not None:
                self._store.run(subscription.renewal.renew())
        if time.monotonic() >= self._next_heartbeat and self._subscriptions:
            self._heartbeat()

    def _listen(self, connection: Connection) -> None:
        if connection.is_readable():
            connection.read()
            self._asked = None
        elif self._asked is not None and time.monotonic() - self._asked >= self._route.heartbeat:
            raise redis.TimeoutError(f"no answer to a heartbeat within {self._route.heartbeat:g} s")

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

    def _heartbeat(self) -> None:
        """Show life, and ask for it; after a reconnect, see whether the subscriptions are known there."""
        self._next_heartbeat = time.monotonic() + self._route.heartbeat
        connection = self._connection
        if connection is not None and self._asked is None:
            connection.ask(*HEARTBEAT)
            self._asked = time.monotonic()
        ids = [each.registration.id for each in self._subscriptions if each.registration.id]
        gone = self._store.call(subscription_calls.heartbeat(SESSION_TIMEOUT, ids))
        if not self._returning:
            return
        if gone:
            # Whoever reads a subscription makes it again; that is looked at soon.
            self._next_heartbeat = time.monotonic() + _TICK
        elif connection is not None:
            self._returning = False
            self._route.tell(connection.server, ConnectionState.RESUBSCRIBED)
