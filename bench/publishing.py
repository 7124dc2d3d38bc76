"""Cost of a guarantee: publishing with a store in memory and in a file, at each level, beside plain publishing."""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import ServerUnsuitable
from ampsq.bench.setup import Stage
from ampsq.definitions.queue import Topic
from ampsq.publishing.file_store import FilePublishStore
from ampsq.publishing.memory_store import MemoryPublishStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampsq.client.client import Client
    from ampsq.client.publisher import Publisher
    from ampsq.publishing.memory_store import PublishStore

__all__ = ["PublishingBenchmark"]

_BODY: Final = b"x" * 250
_STORES: Final[dict[str, Callable[[Path], PublishStore]]] = {
    "memory": lambda _: MemoryPublishStore(),
    "file": FilePublishStore,
    "file, fsync": lambda path: FilePublishStore(path, fsync=True),
}
#: Each with `appendfsync` of the server meanwhile. Under `everysec` a run would mostly wait for the flush at its end.
_LEVELS: Final = {"memory": "everysec", "fsync": "always"}
#: One at a time takes about twenty times as long as in batches.
_SINGLE: Final = 10


class PublishingBenchmark(Stage):
    """The measurement, on one server; see `Stage`."""

    def run(self) -> dict[str, object]:
        """Publish in batches of 100 and one by one until all is persisted; each store and level beside plain."""
        out: dict[str, object] = {}
        for store, level in itertools.product(_STORES, _LEVELS):
            rounds = []
            try:
                self._flush(_LEVELS[level])
                for number in range(self.settings.rounds):
                    self.progress(f"publish store: {store}, persisted: {level}, round {number + 1}")
                    rounds.append((self._plain(), self._guaranteed(store, level)))
            except ServerUnsuitable as error:
                self.progress(str(error))
                continue
            finally:
                self._flush("everysec")
            row: dict[str, float] = {}
            for index, name in enumerate(("many", "single")):
                row[f"{name}_per_second"] = round(statistics.median(own[index] for _, own in rounds))
                row[f"plain_{name}_per_second"] = round(statistics.median(plain[index] for plain, _ in rounds))
                row[f"{name}_ratio"] = round(statistics.median(own[index] / plain[index] for plain, own in rounds), 2)
            out[f"{store}; {level}"] = row
        return out

    def _flush(self, when: str) -> None:
        self.redis.config_set("appendfsync", when)

    def _plain(self) -> tuple[float, float]:
        client = self.client()
        try:
            return self._rates(client, client, lambda: None)
        finally:
            self.remove(client)

    def _guaranteed(self, store: str, level: str) -> tuple[float, float]:
        with tempfile.TemporaryDirectory(prefix="ampsq-bench-") as folder:
            client, kept = self.client(), _STORES[store](Path(folder, "till.db"))
            try:
                publisher = client.publisher("bench", store=kept, persisted=level)
                return self._rates(client, publisher, publisher.flush)
            finally:
                self.remove(client)

    def _rates(self, client: Client, publisher: Client | Publisher, flush: Callable[[], None]) -> tuple[float, float]:
        """Messages a second from the first call until all are persisted: in batches of 100, and one by one."""
        client.apply(Topic(name="orders"))
        count, single = self.settings.messages, self.settings.messages // _SINGLE
        started = time.perf_counter()
        publisher.publish_many("orders", itertools.repeat(_BODY, count))
        flush()
        many = count / (time.perf_counter() - started)
        started = time.perf_counter()
        for _ in range(single):
            publisher.publish("orders", _BODY)
        flush()
        one_by_one = single / (time.perf_counter() - started)
        return many, one_by_one
