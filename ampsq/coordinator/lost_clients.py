"""Duty: subscriptions whose client is gone. Their leases are back in about a second."""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING, ClassVar, Final

from ampsq.protocol.calls import actions as action_calls
from ampsq.protocol.calls import subscriptions as subscription_calls
from ampsq.protocol.keepalive import RETURN_WITHIN, keepalive_channel
from ampsq.protocol.reads.clock import exact_server_time
from ampsq.protocol.reads.server import server_run
from ampsq.protocol.reads.subscribers import (
    count_listeners,
    known_clients,
    subscription_client,
    subscription_deadlines,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ampsq.coordinator.duty import Happened
    from ampsq.transport.store import Store

__all__ = ["LostClients"]

_log = logging.getLogger("ampsq.coordinator")
_PAUSE: Final = 0.3
#: Looks in a row that must find nobody: a client that reconnects is away for one.
_LOOKS: Final = 2
_BATCH: Final = 500
#: Seconds by which server and own clock may drift apart between two looks.
_JUMP: Final = 3.0


class LostClients:
    """Ends the subscriptions of clients that do not listen on their channel any more.

    Args:
        grace: seconds after a server's start in which absence counts for nothing.
        clock: seconds by which it paces itself, which never go back.

    Attributes:
        channels: those that somebody has to listen to: where nobody does, the next round is wanted.
    """

    name = "absence"
    wakes: ClassVar[frozenset[Happened]] = frozenset({"clients"})

    def __init__(self, grace: float = RETURN_WITHIN, clock: Callable[[], float] = time.monotonic) -> None:
        self._grace, self._own_clock = grace, clock
        self._run_id = ""
        self._clock: float | None = None
        self._trusted_from = 0.0
        self._returning: set[str] = set()
        self._missed: dict[str, int] = {}
        self._clients: dict[str, str] = {}
        self._left: set[str] = set()
        self._known: list[str] = []
        self.channels: frozenset[str] = frozenset()

    def run_once(self, store: Store) -> float:
        """Count the listeners of every subscription's client; end those that were away twice, or silent for long."""
        now = store.call(exact_server_time())
        subscriptions = store.call(subscription_deadlines(store.instance))
        self._clients = {name: client for name, client in self._clients.items() if name in subscriptions}
        self._watch_server(store, now, subscriptions)
        judged = {name: deadline for name, deadline in subscriptions.items() if name not in self._returning}
        for name in [name for name, deadline in judged.items() if deadline < now]:
            self._end(store, name, "its heartbeat stopped")
            del judged[name]
        absent = self._absent(store, list(judged))
        self._missed = {name: self._missed.get(name, 0) + 1 for name in absent}
        for name, looks in list(self._missed.items()):
            if looks >= _LOOKS:
                self._end(store, name, "its client is gone")
                del self._missed[name]
        self._tell_departures(store)
        self.channels = frozenset(keepalive_channel(store.instance, client) for client in self._listening())
        is_settled = not (self._missed or self._left or self._returning or self._own_clock() < self._trusted_from)
        return math.inf if is_settled else _PAUSE

    def keep_clock(self, now: float) -> bool:
        """Compare the server's clock, in seconds, with the own one since it was seen last; False where it jumped."""
        ahead = now - self._own_clock()
        if self._clock is None or abs(ahead - self._clock) > _JUMP:
            return self._clock is None
        self._clock = ahead
        return True

    def _listening(self) -> set[str]:
        """The clients whose going is noticed: those of subscriptions, and those that actions were told of."""
        return {*self._clients.values(), *self._known} - self._left

    def _tell_departures(self, store: Store) -> None:
        """Tell actions of clients that came and, in two looks, do not listen any more: they cannot tell it."""
        if self._own_clock() < self._trusted_from:
            self._left.clear()
            return
        known = self._known = store.call(known_clients(store.instance))
        there = set(self._clients.values())
        gone: set[str] = set()
        for first in range(0, len(known), _BATCH):
            some = [client for client in known[first : first + _BATCH] if client not in there]
            counts = store.run(count_listeners(store.instance, some))
            gone |= {client for client, number in zip(some, counts, strict=True) if not number}
        for client in gone & self._left:
            store.call(action_calls.emit_event("disconnect", client))
        self._left = gone - self._left

    def _watch_server(self, store: Store, now: float, subscriptions: Mapping[str, float]) -> None:
        """After the server's start, or a jump of its clock, give those that were there before time to come back."""
        run = store.call(server_run())
        clock, self._clock = self._clock, now / 1000 - self._own_clock()
        grace = 0.0
        if run.id != self._run_id:
            # Those that our first look finds may have been there long before a start that we did not see.
            grace = self._grace if self._run_id else self._grace - run.uptime
            self._run_id = run.id
        elif clock is not None and abs(self._clock - clock) > _JUMP:
            _log.warning("the server's clock jumped by %.0f s", self._clock - clock)
            grace = self._grace
        if grace > 0:
            self._trusted_from = self._own_clock() + grace
            self._returning = set(subscriptions)
            self._missed.clear()
        elif self._own_clock() >= self._trusted_from:
            self._returning.clear()

    def _absent(self, store: Store, subscriptions: list[str]) -> list[str]:
        absent: list[str] = []
        for first in range(0, len(subscriptions), _BATCH):
            some = subscriptions[first : first + _BATCH]
            counts = store.run(count_listeners(store.instance, [self._client(store, name) for name in some]))
            absent += [name for name, number in zip(some, counts, strict=True) if not number]
        return absent

    def _client(self, store: Store, subscription: str) -> str:
        # A subscription never changes its client: it is read once.
        if subscription not in self._clients:
            found = store.call(subscription_client(store.instance, subscription))
            self._clients[subscription] = found.rpartition("/")[0]
        return self._clients[subscription]

    def _end(self, store: Store, subscription: str, why: str) -> None:
        _log.info("subscription %s ends: %s", subscription, why)
        self._clients.pop(subscription, None)
        while store.call(subscription_calls.unsubscribe(subscription, {})):
            pass
