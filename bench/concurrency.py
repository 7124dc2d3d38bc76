"""Publishing by threads and by tasks at once, over a network with a delay: none of them is to wait for another."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from typing import TYPE_CHECKING, Final

from ampsq.bench.delay import delayed
from ampsq.bench.setup import Stage
from ampsq.client.async_client import AsyncClient
from ampsq.client.client import Client
from ampsq.definitions.queue import Topic

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["AT_ONCE", "DELAY", "FLOOR", "ConcurrencyBenchmark"]

_BODY: Final = b"x" * 250
#: Threads, or tasks.
AT_ONCE: Final = 8
#: Seconds by which a request is late.
DELAY: Final = 0.001
#: What so many publish at least beside one. Behind a lock that is held over a round trip it would be 1.
FLOOR: Final = 3.0


class ConcurrencyBenchmark(Stage):
    """The measurement, on one server; see `Stage`."""

    def run(self) -> dict[str, object]:
        """Publish one by one, by one thread and by eight, and the same by tasks."""
        out: dict[str, object] = {}
        count = max(self.settings.latency // 10, 100)
        client = self.client()
        try:
            client.apply(Topic(name="orders"))
            with delayed(self.url, DELAY) as url:
                for kind, measured in (("threads", self._threads), ("tasks", self._tasks)):
                    rounds = []
                    for number in range(self.settings.rounds):
                        self.progress(f"publish at once, {kind}, round {number + 1} of {self.settings.rounds}")
                        rounds.append([measured(url, client.instance, each, count) for each in (1, AT_ONCE)])
                    out[kind] = {
                        "alone_per_second": round(statistics.median(alone for alone, _ in rounds)),
                        "at_once_per_second": round(statistics.median(together for _, together in rounds)),
                        "ratio": round(statistics.median(together / alone for alone, together in rounds), 2),
                    }
        finally:
            self.remove(client)
        return out

    @staticmethod
    def _threads(url: str, instance: str, number: int, count: int) -> float:
        """Messages a second of so many threads, each of which publishes so many one by one."""
        with Client(url, instance=instance) as client:

            def publish(times: int) -> None:
                for _ in range(times):
                    client.publish("orders", _BODY)

            def at_once(times: int) -> None:
                threads = [threading.Thread(target=publish, args=(times,)) for _ in range(number)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()

            # Each has a connection of its own from then on.
            at_once(5)
            return _rate(number * count, lambda: at_once(count))

    @staticmethod
    def _tasks(url: str, instance: str, number: int, count: int) -> float:
        """The same of tasks."""

        async def work() -> float:
            async with AsyncClient(url, instance=instance) as client:

                async def publish(times: int) -> None:
                    for _ in range(times):
                        await client.publish("orders", _BODY)

                await asyncio.gather(*(publish(5) for _ in range(number)))
                started = time.perf_counter()
                await asyncio.gather(*(publish(count) for _ in range(number)))
                return number * count / (time.perf_counter() - started)

        return asyncio.run(work())


def _rate(number: int, work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return number / (time.perf_counter() - started)
