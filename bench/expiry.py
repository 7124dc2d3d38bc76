"""Expiry of waiting messages whose lives end together: its rate, and how long one call holds the server."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final, TypedDict

from ampsq.bench.replies import info
from ampsq.bench.setup import Stage
from ampsq.definitions.queue import Queue
from ampsq.protocol.calls import duties as duty_calls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampsq.client.client import Client

__all__ = ["Expiry"]

_LIFE: Final = "1h"
#: ms after the publishing when everything is over.
_LATER: Final = 3_700_000


class _Elements(TypedDict, total=False):
    """The elements of the queue that differ from kind to kind."""

    expiration: str
    priority: str


#: Elements of the queue, and the expiration that messages are published with.
_KINDS: Final[dict[str, tuple[_Elements, str | None]]] = {
    "queue": ({"expiration": _LIFE}, None),
    "message": ({}, _LIFE),
    "priority": ({"expiration": _LIFE, "priority": "/p"}, None),
}


class Expiry(Stage):
    """The measurements, on one server; see `Stage`."""

    def run(self) -> dict[str, object]:
        """Let a backlog expire by the queue's expiration, by the messages' own, and in a queue with priorities."""
        return {kind: self._expire(kind, *given) for kind, given in _KINDS.items()}

    def _expire(self, kind: str, elements: _Elements, own: str | None) -> dict[str, float]:
        count, client = self.settings.backlog, self.client()
        client.apply(Queue(name="work", underlying_topic="orders", **elements))
        self.progress(f"{count:,} messages that expire together: {kind}")
        client.publish_many("orders", self._bodies(count), batch=500, expiration=own)
        self._sweep(client, 0)
        began = self._processor()
        with self.timed_calls() as times:
            started = time.perf_counter()
            self._sweep(client, int(time.time() * 1000) + _LATER)
            took = time.perf_counter() - started
        worked = self._processor() - began
        expired = client.admin.queue_stats("work").expired
        self.remove(client)
        return {
            "messages": expired,
            "per_second": round(expired / took),
            "server_us": round(1e6 * worked / max(expired, 1), 1),
            **times,
        }

    @staticmethod
    def _bodies(count: int) -> Iterator[bytes]:
        return (json.dumps({"id": i, "p": i % 1000, "x": "x" * 220}).encode() for i in range(count))

    @staticmethod
    def _sweep(client: Client, now: int) -> None:
        """Until nothing more is due at a time, 0 for the server's."""
        while client._store.call(duty_calls.sweep(now or ""))[0]:  # noqa: SLF001  (time is given to scripts alone)
            pass

    def _processor(self) -> float:
        """Seconds that the server has worked."""
        used = info(self.redis, "cpu")
        return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])
