"""What `ampsq bench` measures, one function a figure; each takes the public client and nothing else of ours."""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from typing import TYPE_CHECKING, TypedDict, cast

from ampsq.bench import raw
from ampsq.bench.replies import info, settings
from ampsq.bench.setup import Stage
from ampsq.client.client import Client
from ampsq.definitions.queue import Queue

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Bench"]

_BODY = b"x" * 250


def _percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1]


class _Compared(TypedDict):
    """Rates of ours beside raw ones."""

    ratio: float
    ratios: list[float]
    per_second: int
    raw_per_second: int


class Bench(Stage):
    """The measurements beside raw Streams, on one server; see `Stage`."""

    def run(self) -> dict[str, object]:
        """Measure everything; gives groups of figures, JSON-like."""
        server = self._server()
        # First, on a server that has done nothing yet: it is the latency of an idle one.
        latency, publish = self.latency(), self.publish()
        consume, spent = self.consume()
        return {
            "server": server,
            "latency": latency,
            "publish": publish,
            "consume": consume,
            "memory": self.memory(),
            "growth": self.growth(),
            "server_cpu_us_per_message": spent,
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
        }

    def _queue(self, name: str = "work") -> Queue:
        return Queue(name=name, underlying_topic="orders", lease_period="60s", max_per_subscription_backlog=10_000)

    def _cpu(self) -> float:
        used = info(self.redis, "cpu")
        return float(used["used_cpu_sys"]) + float(used["used_cpu_user"])

    def _worked(self) -> float:
        """Seconds that the server and this process have worked."""
        return self._cpu() + time.process_time()

    # -- throughput

    def publish(self) -> dict[str, object]:
        """Batches of 100 against pipelines of 100 `XADD`, by the time that passes and by what both processes work."""
        count = self.settings.messages
        ours, raws, saved = [], [], []
        client = self.client()
        client.apply(self._queue())
        # What only a first call does, such as loading the script, is not part of a rate.
        client.publish_many("orders", itertools.repeat(_BODY, 100))
        for number in range(self.settings.rounds):
            self.progress(f"publish, round {number + 1} of {self.settings.rounds}")
            raw.prepare(self.redis)
            began = self._worked()
            raws.append(raw.publish(self.redis, _BODY, count))
            between = self._worked()
            started = time.perf_counter()
            client.publish_many("orders", itertools.repeat(_BODY, count))
            ours.append(count / (time.perf_counter() - started))
            saved.append((between - began) / (self._worked() - between))
        raw.prepare(self.redis)
        self.remove(client)
        return {**_compared(ours, raws), "cpu_ratio": round(statistics.median(saved), 2)}

    def consume(self) -> tuple[dict[str, object], float]:
        """Subscribe and acknowledge, backlog 100 and 500, against `XREADGROUP` and `XACK` in hundreds.

        Returns:
            The figures, and microseconds of the server a message.
        """
        count, rounds = self.settings.messages, self.settings.rounds
        client = self.client()
        client.apply(self._queue())
        client.publish_many("orders", itertools.repeat(_BODY, count * rounds * 2 + 1000))
        raw.prepare(self.redis)
        raw.publish(self.redis, _BODY, count * rounds)
        raws: list[float] = []
        ours: dict[int, list[float]] = {100: [], 500: []}
        cpu = 0.0
        for number in range(rounds):
            self.progress(f"subscribe and acknowledge, round {number + 1} of {rounds}")
            raws.append(raw.consume(self.redis, count))
            for backlog, rates in ours.items():
                before = self._cpu()
                rates.append(self._drain(client, backlog, count))
                cpu += self._cpu() - before
        raw.prepare(self.redis)
        self.remove(client)
        figures = {f"backlog_{backlog}": _compared(rates, raws) for backlog, rates in ours.items()}
        least = min(figures.values(), key=lambda figure: figure["ratio"])
        return {"ratio": least["ratio"], **figures}, round(cpu / (2 * rounds * count) * 1e6, 2)

    @staticmethod
    def _drain(client: Client, backlog: int, count: int) -> float:
        with client.subscribe("work", max_backlog=backlog) as messages:
            started = time.perf_counter()
            for message in itertools.islice(messages, count):
                message.ack()
            messages.flush()
            return count / (time.perf_counter() - started)

    # -- latency

    def latency(self) -> dict[str, float]:
        """Publish to handler, 1,000 a second, one idle consumer."""
        self.progress("idle push latency")
        count, rate = self.settings.latency, 1000
        raws = raw.latencies(self.url, rate, count)
        ours = self._latencies(rate, count)
        figures = {
            f"p{percent}": (_percentile(ours, percent) * 1e6, _percentile(raws, percent) * 1e6) for percent in (50, 99)
        }
        out: dict[str, float] = {}
        for name, (own, other) in figures.items():
            out[f"{name}_ratio"] = round(own / other, 2)
            out[f"{name}_us"], out[f"{name}_raw_us"] = round(own), round(other)
        return out

    def _latencies(self, rate: int, count: int) -> list[float]:
        publisher = self.client()
        publisher.apply(self._queue())
        consumer = Client(self.url, instance=publisher.instance)
        found: list[float] = []
        with consumer.subscribe("work", max_backlog=100) as messages:
            # The first calls send the scripts, which takes the server some milliseconds each, once.
            for _ in range(50):
                publisher.publish("orders", raw.stamped())
                message = messages.get(2)
                if message is not None:
                    message.ack(wait=True)

            def read() -> None:
                while len(found) < count:
                    message = messages.get(2)
                    now = time.perf_counter()
                    if message is None:
                        return
                    found.append(now - float(message.raw[:24]))
                    message.ack()

            thread = threading.Thread(target=read)
            thread.start()
            started = time.perf_counter()
            for number in range(count):
                raw.wait_until(started + number / rate)
                publisher.publish("orders", raw.stamped())
            thread.join()
        consumer.close()
        self.remove(publisher)
        return found

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
        return {"bytes_per_queued": round(queued / count, 2), "bytes_per_leased": round(per_lease, 1)}

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
            ("take_and_ack", lambda: self._drain(client, 100, count)),
        ):
            with self.script_time() as spent:
                work()
            out[f"{name}_us"] = round(spent[0] / count, 2)
        self.remove(client)
        return out


def _compared(ours: list[float], raws: list[float]) -> _Compared:
    """Medians, and the median of the ratios of neighbouring rounds."""
    ratios = [own / other for own, other in zip(ours, raws, strict=True)]
    return {
        "ratio": round(statistics.median(ratios), 2),
        "ratios": [round(ratio, 2) for ratio in ratios],
        "per_second": round(statistics.median(ours)),
        "raw_per_second": round(statistics.median(raws)),
    }
