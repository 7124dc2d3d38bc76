"""Costs of a consumer of an instance with partitions beside one of an instance without, on one server.

The costs are processor time, so that other work on the machine changes little. Latencies are times that passed.
"""

from __future__ import annotations

import itertools
import statistics
import time
from typing import TYPE_CHECKING, Final

from ampsq.bench.beside import server_seconds, spent_by
from ampsq.bench.replies import command_calls
from ampsq.bench.setup import Stage
from ampsq.client.client import Client
from ampsq.definitions.queue import Queue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.queues.subscription import Subscription

__all__ = ["PartitionsBenchmark"]

_BODY: Final = b"x" * 250
#: Numbers of partitions that are measured.
_PARTITIONS: Final = (4, 16, 64)
#: Messages of one call; an instance without partitions is asked for half of a backlog at once.
_A_CALL: Final = 100
#: Seconds between two messages that wake a consumer.
_PAUSE: Final = 0.005


class PartitionsBenchmark(Stage):
    """The measurements, on one server; see `Stage`."""

    def run(self) -> dict[str, object]:
        """Measure everything; gives groups of figures, JSON-like."""
        names = ["one", *map(str, _PARTITIONS)]
        clients = dict(zip(names, map(self._client, [None, *_PARTITIONS]), strict=True))
        try:
            for client in clients.values():
                client.apply(
                    Queue(
                        name="work",
                        underlying_topic="orders",
                        lease_period="60s",
                        max_per_subscription_backlog=10_000,
                    )
                )
            rounds: dict[str, list[dict[str, float]]] = {name: [] for name in names}
            for number in range(self.settings.rounds):
                self.progress(f"consume, round {number + 1} of {self.settings.rounds}")
                for name, client in clients.items():
                    rounds[name].append(self._consume(client, 2 * _A_CALL if name == "one" else _A_CALL))
            waits = {}
            for name, client in clients.items():
                self.progress(f"wait, partitions: {name}")
                waits[name] = self._wait(client)
        finally:
            for client in clients.values():
                self._remove(client)
        consumed = {
            name: {figure: round(statistics.median(each[figure] for each in some), 2) for figure in some[0]}
            for name, some in rounds.items()
        }
        return {"consume": consumed, "wait": waits}

    def _client(self, partitions: int | None) -> Client:
        one = self.client()
        if partitions is None:
            return one
        name = one.instance
        self.remove(one)
        return Client(self.url, instance=f"{name}-p", partitions=partitions)

    def _remove(self, client: Client) -> None:
        for name in client.partitions:
            self.remove(Client(self.url, instance=name))
        if client.partitions:
            client.close()
            for name in self.redis.scan_iter("{" + client.instance + "}:*"):
                self.redis.unlink(name)
        else:
            self.remove(client)

    def _consume(self, client: Client, backlog: int) -> dict[str, float]:
        """Take and acknowledge what waits, in whole calls: microseconds a message of client and server."""
        count = self.settings.messages // _A_CALL * _A_CALL
        client.publish_many("orders", itertools.repeat(_BODY, count), batch=_A_CALL)
        with client.subscribe("work", max_backlog=backlog) as messages:

            def drain() -> None:
                for message in itertools.islice(messages, count):
                    message.ack()
                messages.flush()

            self.redis.config_resetstat()
            spent = spent_by(self.redis, drain, count)
            calls = sum(command_calls(self.redis).get(name, 0) for name in ("cmdstat_evalsha", "cmdstat_fcall"))
        return {"client_us": spent.client, "server_us": spent.server, "messages_per_call": count / calls}

    def _wait(self, client: Client) -> dict[str, float]:
        """Wait for messages that come one by one, and for none: latencies, and shares of a core, in ms a second."""
        with client.subscribe("work", max_backlog=_A_CALL) as messages:
            messages.get("100ms")
            latencies = sorted(self._latencies(client, messages))
            used, worked, began = time.process_time(), server_seconds(self.redis), time.perf_counter()
            messages.get(5.0)
            passed = time.perf_counter() - began
            client_ms = (time.process_time() - used) / passed * 1_000
            server_ms = (server_seconds(self.redis) - worked) / passed * 1_000
            began = time.perf_counter()
        return {
            "p50_ms": round(statistics.median(latencies), 2),
            "p99_ms": round(latencies[len(latencies) * 99 // 100], 2),
            "idle_client_ms": round(client_ms, 2),
            "idle_server_ms": round(server_ms, 2),
            "close_ms": round((time.perf_counter() - began) * 1_000, 1),
        }

    def _latencies(self, client: Client, messages: Subscription) -> Sequence[float]:
        """Milliseconds from before a message is published until it is there, one after the other, by one thread."""
        found = []
        for number in range(max(self.settings.latency // 5, 50)):
            began = time.perf_counter()
            client.publish("orders", _BODY, key=str(number))
            message = messages.get("5s")
            found.append((time.perf_counter() - began) * 1_000)
            if message is None:
                raise AssertionError("a message that was published was not delivered")
            message.ack()
            time.sleep(_PAUSE)
        return found
