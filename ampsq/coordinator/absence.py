"""Duty: subscriptions whose client is gone. Their leases are back in about a second."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from ampsq import calls
from ampsq.flow import command
from ampsq.schema import channel, key

if TYPE_CHECKING:
    from ampsq.store import Store

__all__ = ["Absence"]

_log = logging.getLogger("ampsq.coordinator")
_PAUSE: Final = 0.3
#: Seconds after a server's start in which absence counts for nothing: clients are still coming back.
_GRACE: Final = 10.0
#: Looks in a row that must find nobody: a client that reconnects is away for one.
_LOOKS: Final = 2
_BATCH: Final = 500


class Absence:
    """Ends the subscriptions of clients that do not listen on their channel any more.

    Args:
        grace: seconds after a server's start in which absence counts for nothing.
    """

    name = "absence"

    def __init__(self, grace: float = _GRACE) -> None:
        self._grace = grace
        self._run_id = b""
        self._trusted_from = 0.0
        self._missed: dict[str, int] = {}
        self._clients: dict[str, str] = {}

    def run_once(self, store: Store) -> float:
        """Count the listeners of every subscription's client; end those that were away twice, or silent for long."""
        self._watch_restarts(store)
        now = store.call(command(["TIME"], lambda reply: int(reply[0]) * 1000))
        subscriptions = store.call(
            command(
                ["ZRANGE", key(store.instance, "subscriptions"), 0, -1, "WITHSCORES"],
                lambda reply: {reply[i].decode(): float(reply[i + 1]) for i in range(0, len(reply), 2)},
            )
        )
        self._clients = {name: client for name, client in self._clients.items() if name in subscriptions}
        silent = [name for name, deadline in subscriptions.items() if deadline < now]
        for name in silent:
            self._end(store, name, "its heartbeat stopped")
        if time.monotonic() < self._trusted_from:
            return _PAUSE
        present = [name for name in subscriptions if name not in silent]
        absent = self._absent(store, present)
        self._missed = {name: self._missed.get(name, 0) + 1 for name in absent}
        for name, looks in list(self._missed.items()):
            if looks >= _LOOKS:
                self._end(store, name, "its client is gone")
                del self._missed[name]
        return _PAUSE

    def _watch_restarts(self, store: Store) -> None:
        run_id = store.call(command(["INFO", "server"], _run_id))
        if run_id != self._run_id:
            # At our own start nobody has to come back: clients have been connected before.
            if self._run_id:
                self._trusted_from = time.monotonic() + self._grace
                self._missed.clear()
            self._run_id = run_id

    def _absent(self, store: Store, subscriptions: list[str]) -> list[str]:
        absent: list[str] = []
        for first in range(0, len(subscriptions), _BATCH):
            some = subscriptions[first : first + _BATCH]
            channels = [channel(store.instance, self._client(store, name)) for name in some]
            counts = store.call(
                command(["PUBSUB", "NUMSUB", *channels], lambda reply: dict(zip(reply[::2], reply[1::2], strict=True)))
            )
            absent += [name for name, where in zip(some, channels, strict=True) if not counts.get(where.encode())]
        return absent

    def _client(self, store: Store, subscription: str) -> str:
        # A subscription never changes its client: it is read once.
        if subscription not in self._clients:
            field = key(store.instance, "subscription", subscription)
            found = store.call(command(["HGET", field, "client"], lambda reply: (reply or b"").decode()))
            self._clients[subscription] = found.rpartition("/")[0]
        return self._clients[subscription]

    def _end(self, store: Store, subscription: str, why: str) -> None:
        _log.info("subscription %s ends: %s", subscription, why)
        self._clients.pop(subscription, None)
        while store.call(calls.unsubscribe(subscription, {})):
            pass


def _run_id(reply: bytes) -> bytes:
    for line in reply.splitlines():
        if line.startswith(b"run_id:"):
            return line[7:]
    return b""
