"""Time until a waiting consumer has a message, beside redis-py's blocking read: one consumer, and many."""

from __future__ import annotations

import contextlib
import itertools
import statistics
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from ampsq.bench import raw
from ampsq.bench.beside import spent_by
from ampsq.bench.setup import Stage
from ampsq.client.client import Client
from ampsq.definitions.queue import Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["PushBenchmark"]

#: Messages a second.
_RATE: Final = 1000
#: Pushed before anything is measured: the first calls send the scripts, which takes the server some ms each, once.
_WARMING: Final = 50
_STAMP: Final = 24
#: Subscriptions, and the queues that they are spread over.
_SUBSCRIPTIONS: Final = 50
_QUEUES: Final = 20
#: Seconds in which the last message has come.
_GIVE_UP_AFTER: Final = 60.0
#: Seconds of one wait of a consumer.
_WAIT: Final = 0.2
#: Publishes to the topic, or stream, of a number.
_Publish: TypeAlias = "Callable[[int, bytes], object]"
#: What one side took: seconds of each push, and the server's microseconds a message.
_Times: TypeAlias = "tuple[list[float], float]"


class _Arrivals:
    """The arrivals at all consumers: seconds from the call that published the message."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.stopping = threading.Event()
        #: Released by each consumer when it begins to wait.
        self.ready = threading.Semaphore(0)

    def note(self, bodies: list[bytes]) -> None:
        now = time.perf_counter()
        self.seconds.extend(now - float(body[:_STAMP]) for body in bodies)

    def wait(self, count: int) -> None:
        until = time.monotonic() + _GIVE_UP_AFTER
        while len(self.seconds) < count:
            if time.monotonic() > until:
                raise AssertionError(f"{count - len(self.seconds)} of {count} pushed messages did not come")
            time.sleep(0.002)


class PushBenchmark(Stage):
    """The measurements, on one server; see `Stage`."""

    def one(self) -> dict[str, float]:
        """One idle consumer: publish to handler, and the server's work of a whole cycle, acknowledgement included."""
        return self._beside("idle push latency", 1, 1)

    def many(self) -> dict[str, float]:
        """The same of 50 subscriptions to 20 queues, each with a topic of its own; as many streams and readers."""
        return self._beside(f"push latency of {_SUBSCRIPTIONS} subscriptions", _SUBSCRIPTIONS, _QUEUES)

    def _beside(self, what: str, consumers: int, queues: int) -> dict[str, float]:
        rounds = self.settings.rounds
        count = max(self.settings.latency // rounds, 200)
        found: dict[str, list[tuple[float, float]]] = {"p50": [], "p99": [], "cycle": []}
        for number in range(rounds):
            self.progress(f"{what}, round {number + 1} of {rounds}")
            other, other_cost = self._raw(consumers, queues, count)
            own, cost = self._ours(consumers, queues, count)
            for percent in (50, 99):
                found[f"p{percent}"].append((_percentile(own, percent) * 1e6, _percentile(other, percent) * 1e6))
            found["cycle"].append((cost, other_cost))
        out: dict[str, float] = {}
        for name, pairs in found.items():
            out[f"{name}_ratio"] = round(statistics.median(own / other for own, other in pairs), 2)
            out[f"{name}_us"] = round(statistics.median(own for own, _ in pairs), 1)
            out[f"{name}_raw_us"] = round(statistics.median(other for _, other in pairs), 1)
        return out

    def _timed(
        self, count: int, queues: int, readers: Sequence[Callable[[], None]], arrivals: _Arrivals, publish: _Publish
    ) -> _Times:
        """Publish to readers that wait in threads of their own."""
        numbers = itertools.cycle(range(queues))

        def work() -> None:
            raw.paced(_RATE, count, lambda: publish(next(numbers), raw.stamped()))
            arrivals.wait(count)

        with _running(readers, arrivals):
            for _ in range(_WARMING):
                publish(next(numbers), raw.stamped())
            arrivals.wait(_WARMING)
            arrivals.seconds.clear()
            spent = spent_by(self.redis, work, count)
        return arrivals.seconds[:count], spent.server

    def _raw(self, consumers: int, queues: int, count: int) -> _Times:
        arrivals = _Arrivals()
        for number in range(queues):
            raw.prepare(self.redis, number)
        readers = [partial(self._read_raw, raw.stream(at % queues), arrivals) for at in range(consumers)]
        times = self._timed(
            count, queues, readers, arrivals, lambda at, body: self.redis.xadd(raw.stream(at), {"b": body})
        )
        self.redis.delete(*map(raw.stream, range(queues)))
        return times

    def _read_raw(self, name: str, arrivals: _Arrivals) -> None:
        with raw.connected(self.url) as reader:
            arrivals.ready.release()
            while not arrivals.stopping.is_set():
                raw.read_blocked(reader, name, _WAIT, arrivals.note)

    def _ours(self, consumers: int, queues: int, count: int) -> _Times:
        arrivals, publisher = _Arrivals(), self.client()
        names = [f"work-{at}" for at in range(queues)]
        publisher.apply(
            *[
                Queue(name=name, underlying_topic=f"orders-{at}", lease_period="60s", max_per_subscription_backlog=100)
                for at, name in enumerate(names)
            ]
        )
        with Client(self.url, instance=publisher.instance) as consumer:
            readers = [partial(self._read, consumer, names[at % queues], arrivals) for at in range(consumers)]
            times = self._timed(
                count, queues, readers, arrivals, lambda at, body: publisher.publish(f"orders-{at}", body)
            )
        self.remove(publisher)
        return times

    @staticmethod
    def _read(consumer: Client, queue: str, arrivals: _Arrivals) -> None:
        with consumer.subscribe(queue, max_backlog=100) as messages:
            arrivals.ready.release()
            while not arrivals.stopping.is_set():
                message = messages.get(_WAIT)
                if message is not None:
                    arrivals.note([message.raw])
                    message.ack()


@contextlib.contextmanager
def _running(readers: Sequence[Callable[[], None]], arrivals: _Arrivals) -> Iterator[None]:
    """Run readers in threads of their own until the block is left."""
    threads = [threading.Thread(target=read) for read in readers]
    for thread in threads:
        thread.start()
    try:
        for _ in readers:
            if not arrivals.ready.acquire(timeout=_GIVE_UP_AFTER):
                raise AssertionError("a consumer that is to be measured does not stand")
        yield
    finally:
        arrivals.stopping.set()
        for thread in threads:
            thread.join()


def _percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1]
