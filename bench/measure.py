"""Measurements of `ampsq bench`, one function a figure; each takes the public client and nothing else of ours."""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING, Final, Unpack, cast

from ampsq.bench import raw
from ampsq.bench.beside import compared, spent_by
from ampsq.bench.consuming import drain, drain_out_of_order
from ampsq.bench.extremes import Extremes
from ampsq.bench.pushes import PushBenchmark
from ampsq.bench.queue_kinds import json_bodies
from ampsq.bench.replication import ReplicationBenchmark
from ampsq.bench.replies import settings
from ampsq.bench.setup import Stage
from ampsq.definitions.queue import Queue
from ampsq.protocol.functions import are_used

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampsq.bench.beside import Compared
    from ampsq.bench.queue_kinds import Elements
    from ampsq.client.client import Client

__all__ = ["Bench"]

_BODY = b"x" * 250


#: Policies of queues beside raw Streams, by name: elements of the queue, and the filter of the subscription.
_POLICIES: Final[dict[str, tuple[Elements, str | None]]] = {
    "priority": ({"priority": "/p"}, None),
    "filter": ({"filter": "/n >= 0"}, None),
    "selective": ({}, "/n >= 0"),
    "barrier": ({"barrier_expression": "/end = 1"}, None),
}


class Bench(Stage):
    """The measurements beside raw Streams, on one server; see `Stage`."""

    def run(self) -> dict[str, object]:
        """Measure everything; gives groups of figures, JSON-like."""
        server, pushes = self._server(), PushBenchmark(self.url, self.settings, self.progress)
        # First, on a server that has done nothing yet: it is the latency of an idle one.
        latency = pushes.one()
        publish, publish_500 = self.publish(100), self.publish(500)
        consume = self.consume()
        extremes = Extremes(self.url, self.settings, self.progress)
        return {
            "server": server,
            "latency": latency,
            "publish": publish,
            "publish_500": publish_500,
            "consume": consume,
            "policies": self.policies(),
            "latency_many": pushes.many(),
            "memory": self.memory(),
            "many_queues": extremes.many_queues(),
            "calls": extremes.longest_calls(),
            "growth": self.growth(),
            "link": ReplicationBenchmark(self.settings, self.progress).rates(),
            "server_cpu_us_per_message": cast("dict[str, Compared]", consume)["backlog_100"]["server_us"],
        }

    def _server(self) -> dict[str, str]:
        known = cast("dict[str, object]", self.redis.info())
        found = settings(self.redis, "append*")
        kind = "valkey" if "valkey_version" in known else "redis"
        return {
            "kind": kind,
            "version": str(known[f"{kind}_version"]),
            "appendonly": found.get("appendonly", "?"),
            "appendfsync": found.get("appendfsync", "?"),
            "functions": "on" if are_used() else "off",
        }

    def _queue(self, name: str = "work", **elements: Unpack[Elements]) -> Queue:
        return Queue(
            name=name, underlying_topic="orders", lease_period="60s", max_per_subscription_backlog=10_000, **elements
        )

    # -- throughput

    def publish(self, batch: int) -> Compared:
        """Batches of so many against pipelines of as many `XADD`."""
        count = self.settings.messages
        bodies = [_BODY] * count
        rounds = []
        client = self.client()
        client.apply(self._queue())
        # What only a first call does, such as loading the script, is not part of a rate.
        client.publish_many("orders", bodies[:batch], batch=batch)
        for number in range(self.settings.rounds):
            self.progress(f"publish {batch} a call, round {number + 1} of {self.settings.rounds}")
            raw.prepare(self.redis)
            other = spent_by(self.redis, lambda: raw.publish(self.redis, bodies, batch=batch), count)
            own = spent_by(self.redis, lambda: client.publish_many("orders", bodies, batch=batch), count)
            rounds.append((own, other))
        self.redis.delete(raw.stream())
        self.remove(client)
        return compared(rounds)

    def consume(self) -> dict[str, object]:
        """Subscribe and acknowledge against `XREADGROUP` and `XACK`: by backlogs in order, and by eight at once."""
        count = self.settings.messages
        client = self.client()
        client.apply(self._queue())
        figures: dict[str, Compared] = {}
        for backlog in (10, 100, 500):
            batch = min(backlog, 100)
            figures[f"backlog_{backlog}"] = self._consumed(
                f"subscribe and acknowledge, backlog {backlog}",
                client,
                [_BODY] * count,
                partial(drain, client, count, backlog=backlog),
                partial(raw.consume, self.redis, count, batch=batch),
            )
        for name, has_slow in (("out_of_order", False), ("out_of_order_slow", True)):
            figures[name] = self._consumed(
                f"subscribe and acknowledge, {name.replace('_', ' ')}",
                client,
                [_BODY] * count,
                partial(drain_out_of_order, client, count, has_slow=has_slow),
                partial(raw.consume_out_of_order, self.redis, count, has_slow=has_slow),
            )
        self.remove(client)
        least = min(figures[name]["ratio"] for name in ("backlog_100", "backlog_500"))
        return {"ratio": least, **figures}

    def policies(self) -> dict[str, Compared]:
        """The same, backlog 100, of queues that choose; raw Streams have the same bodies."""
        bodies = json_bodies(self.settings.messages)
        figures = {}
        for name, (elements, text) in _POLICIES.items():
            client = self.client()
            client.apply(self._queue(**elements))
            figures[name] = self._consumed(
                f"subscribe and acknowledge, {name}",
                client,
                bodies,
                partial(drain, client, len(bodies), text=text),
                partial(raw.consume, self.redis, len(bodies)),
            )
            self.remove(client)
        return figures

    def _consumed(
        self, what: str, client: Client, bodies: list[bytes], own: Callable[[], None], other: Callable[[], None]
    ) -> Compared:
        rounds = []
        for number in range(self.settings.rounds):
            self.progress(f"{what}, round {number + 1} of {self.settings.rounds}")
            raw.prepare(self.redis)
            raw.publish(self.redis, bodies)
            client.publish_many("orders", bodies, batch=500)
            raws = spent_by(self.redis, other, len(bodies))
            rounds.append((spent_by(self.redis, own, len(bodies)), raws))
        self.redis.delete(raw.stream())
        return compared(rounds)

    # -- memory

    def memory(self) -> dict[str, float]:
        """Bytes that a queue adds to 100,000 recorded messages, and that 10,000 leases add."""
        self.progress("memory")
        count, leased = 100_000, 10_000
        client = self.client()
        client.publish_many("orders", itertools.repeat(_BODY, count), batch=500)
        before = self.held(client)
        client.apply(self._queue())
        queued = self.held(client) - before
        messages = client.subscribe("work", max_backlog=leased)
        for _ in range(leased):
            messages.get(5)
        per_lease = (self.held(client) - before - queued) / leased
        self.remove(client)
        return {
            "bytes_per_queued": round(queued / count, 2),
            "bytes_per_leased": round(per_lease, 1),
            "bytes_per_leased_singly": round(self._singly(leased // 5), 1),
        }

    def _singly(self, leased: int) -> float:
        """Bytes of the lease of a message that was pushed by itself."""
        client = self.client()
        client.apply(self._queue())
        with client.subscribe("work", max_backlog=leased) as messages:
            client.publish("orders", _BODY)
            messages.get(5)
            before = self.held(client)
            for _ in range(leased):
                client.publish("orders", _BODY)
                messages.get(5)
            per_lease = (self.held(client) - before) / leased
        self.remove(client)
        return per_lease

    # -- growth

    def growth(self) -> dict[str, dict[str, float]]:
        """Microseconds of server time a message, publish and acknowledge, alone and beside what is idle or queued."""
        many, backlog = self.settings.many, self.settings.backlog
        rows: dict[str, dict[str, float]] = {}
        self.progress("growth: alone")
        rows["alone"] = self._costs(lambda _: None)
        self.progress(f"growth: {many} idle subscriptions")
        rows[f"idle_subscriptions_{many}"] = self._costs(lambda client: self._idle(client, many))
        self.progress(f"growth: {many} queues on the topic")
        rows[f"queues_{many}"] = self._costs(lambda client: self._queues(client, many))
        self.progress(f"growth: a backlog of {backlog}")
        rows[f"backlog_{backlog}"] = self._costs(
            lambda client: client.publish_many("orders", itertools.repeat(_BODY, backlog), batch=500)
        )
        return rows

    def _idle(self, client: Client, many: int) -> None:
        client.apply(Queue(name="idle", max_per_subscription_backlog=100))
        for _ in range(many):
            client.subscribe("idle", max_backlog=100)

    def _queues(self, client: Client, many: int) -> None:
        client.apply(*[self._queue(f"queue-{number}") for number in range(many)])

    def _costs(self, prepare: Callable[[Client], object]) -> dict[str, float]:
        count = 5_000
        client = self.client()
        client.apply(self._queue())
        prepare(client)
        out = {}
        for name, work in (
            ("publish", lambda: client.publish_many("orders", itertools.repeat(_BODY, count))),
            ("take_and_ack", lambda: drain(client, count)),
        ):
            with self.script_time() as spent:
                work()
            out[f"{name}_us"] = round(spent[0] / count, 2)
        self.remove(client)
        return out
