"""The thread beside a client's own work: it shows that the client lives, also while a handler computes.

It keeps a connection subscribed to the client's channel, so that a killed process is noticed within a second; sends
a heartbeat for half-open connections; sends acknowledgements that have waited long enough; renews leases where asked.
Synchronous and asyncio clients use the same thread: an event loop that a handler blocks shows no life.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import redis

from ampsq import calls
from ampsq.errors import AmpsqError
from ampsq.registration import PATIENCE
from ampsq.schema import channel
from ampsq.store import Store
from ampsq.subscription import HEARTBEAT

if TYPE_CHECKING:
    from ampsq.subscription import SubscriptionCore

__all__ = ["Presence"]

_log = logging.getLogger("ampsq")
_TICK: Final = 0.1


class Presence:
    """A client's signs of life.

    Args:
        url: the server.
        instance: the instance.
        client: the client's name, unlike any other's.
        ack_timeout: seconds that an acknowledgement may wait for its batch.
    """

    def __init__(self, url: str, instance: str, client: str, ack_timeout: float) -> None:
        self._store = Store(url, instance, patience=1.0)
        self._channel = channel(instance, client)
        self._ack_timeout = ack_timeout
        self._subscriptions: list[SubscriptionCore] = []
        self._connection: Any = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"ampsq-presence-{client}", daemon=True)
        self._next_beat = 0.0
        self._started = False
        self._starting = threading.Lock()

    def start(self) -> None:
        """Show presence from now on; returns when the server sees it. Safe to call again."""
        with self._starting:
            if self._started:
                return
            try:
                self._attach()
            except (redis.RedisError, OSError) as error:
                # The thread tries again ten times a second; who subscribes meanwhile is told that there is no server.
                _log.debug("presence: %s", error)
            self._thread.start()
            self._started = True

    @property
    def is_started(self) -> bool:
        """Whether presence was shown."""
        return self._started

    def add(self, subscription: SubscriptionCore) -> None:
        """Care for a subscription."""
        self._subscriptions.append(subscription)

    def remove(self, subscription: SubscriptionCore) -> None:
        """Leave a subscription alone."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    def stop(self) -> None:
        """End the thread and its connections."""
        self._stopped.set()
        if self._started and self._thread.is_alive():
            self._thread.join(timeout=5.0)
        self._detach()
        self._store.close()

    def _attach(self) -> None:
        pool = self._store.redis.connection_pool
        connection = pool.get_connection()
        try:
            connection.send_command("SUBSCRIBE", self._channel)
            connection.read_response()
        except BaseException:
            connection.disconnect()
            pool.release(connection)
            raise
        self._connection = connection

    def _detach(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()
            self._store.redis.connection_pool.release(connection)

    def _run(self) -> None:
        while not self._stopped.wait(_TICK):
            try:
                self._tick()
            except (AmpsqError, redis.RedisError, OSError) as error:
                # The next tick tries again; until then absence is what others rightly see.
                _log.debug("presence: %s", error)
            except Exception:  # noqa: BLE001  (without this thread no lease is renewed and nobody is seen to live)
                _log.exception("presence failed; trying again")
            else:
                continue
            with contextlib.suppress(redis.RedisError, OSError):
                self._detach()
            self._stopped.wait(_TICK)

    def _tick(self) -> None:
        if self._connection is None:
            self._attach()
        elif self._connection.can_read(timeout=0):
            self._connection.read_response()
        for subscription in list(self._subscriptions):
            if subscription.acks_waiting() >= self._ack_timeout:
                self._store.run(subscription.flush())
            if subscription.renewed:
                self._store.run(subscription.renew())
        if time.monotonic() >= self._next_beat and self._subscriptions:
            ids = [subscription.id for subscription in self._subscriptions if subscription.id]
            self._store.call(calls.beat(PATIENCE, ids))
            self._next_beat = time.monotonic() + HEARTBEAT
