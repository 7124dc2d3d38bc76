"""Rate of replaying a topic beside raw paged `XRANGE`, and the delay until a durable subscriber has a message."""

from __future__ import annotations

import itertools
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Unpack

from ampsq.bench import raw
from ampsq.bench.replies import command_times, entries, entries_of_one
from ampsq.bench.setup import Stage
from ampsq.client.client import Client
from ampsq.definitions.queue import Topic
from ampsq.protocol.reads.streams import log_of
from ampsq.topics.bookmark_store import RedisBookmarkStore, SqliteBookmarkStore

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from ampsq.topics.bookmark_store import BookmarkStore
    from ampsq.topics.subscription_spec import ReplayOptions

__all__ = ["Replay"]

_BODY: Final = b'{"id": 1, "symbol": "AAPL", "price": 12.5, "x": "' + b"x" * 198 + b'"}'
#: Entries of a page of the raw side, the best of 100, 500 and 1,000.
_PAGE: Final = 500


class Replay(Stage):
    """The measurements, on one server; see `Stage`."""

    def run(self) -> dict[str, object]:
        """Replay rates beside raw ones, in turn; latencies beside a raw blocked `XREAD`."""
        return {"rates": self._rates(), "latency": self._latency()}

    def _rates(self) -> dict[str, object]:
        client, count = self.client(), self.settings.messages * 10
        self.progress(f"replay: {count:,} messages")
        topics = ["orders", *(f"many-{number}" for number in range(10))]
        client.apply(*(Topic(name=topic) for topic in topics))
        client.publish_many("orders", itertools.repeat(_BODY, count), batch=500)
        for topic in topics[1:] * 10:
            client.publish_many(topic, itertools.repeat(_BODY, count // 100), batch=100)
        found: dict[str, list[float]] = {}
        with tempfile.TemporaryDirectory(prefix="ampsq-bench-") as folder:
            file = SqliteBookmarkStore(Path(folder, "places"))
            ways: dict[str, Callable[[], float]] = {
                "raw": lambda: raw_replay(self.redis, log_of("orders").key(client.instance), count),
                "one_topic": lambda: _replay(client, "orders", count),
                "ten_topics": lambda: _replay(client, "^many-", count),
                "filter": lambda: _replay(client, "orders", count, "/price > 10"),
                "durable_file": lambda: _replay(client, "orders", count, sub_id="bench", bookmark_store=file),
                "durable_redis": lambda: _replay(
                    client, "orders", count, sub_id="bench", bookmark_store=RedisBookmarkStore()
                ),
            }
            for number in range(self.settings.rounds):
                self.progress(f"replay, round {number + 1} of {self.settings.rounds}")
                for name, measure in ways.items():
                    found.setdefault(name, []).append(measure())
            file.close()
        self.redis.config_resetstat()
        _replay(client, "orders", count)
        spent = command_times(self.redis)
        self.remove(client)
        raws = found.pop("raw")
        out: dict[str, object] = {"raw_per_second": round(statistics.median(raws))}
        for name, rates in found.items():
            ratios = [own / other for own, other in zip(rates, raws, strict=True)]
            out[name] = {"per_second": round(statistics.median(rates)), "ratio": round(statistics.median(ratios), 2)}
        out["server_us"] = round(spent["cmdstat_xread"] / count, 2)
        return out

    def _latency(self) -> dict[str, object]:
        self.progress("latency to a durable subscriber")
        count, rate = self.settings.latency, 1000
        raws = raw_latencies(self.url, rate, count)
        out: dict[str, object] = {}
        with tempfile.TemporaryDirectory(prefix="ampsq-bench-") as folder:
            file = SqliteBookmarkStore(Path(folder, "places"))
            ways: dict[str, BookmarkStore | None] = {"live": None, "file": file, "redis": RedisBookmarkStore()}
            for name, store in ways.items():
                out[name] = _percentiles(self._latencies(rate, count, store), raws)
            file.close()
        return out

    def _latencies(self, rate: int, count: int, store: BookmarkStore | None) -> list[float]:
        publisher = self.client()
        publisher.apply(Topic(name="orders"))
        consumer = Client(self.url, instance=publisher.instance)
        options: ReplayOptions = {} if store is None else {"sub_id": "bench", "bookmark_store": store}
        found: list[float] = []
        with consumer.subscribe_topic("orders", bookmark="now", **options) as messages:

            def read() -> None:
                while len(found) < count and (message := messages.get(2)) is not None:
                    found.append(time.perf_counter() - float(message.raw[:24]))

            thread = threading.Thread(target=read)
            thread.start()
            raw.paced(rate, count, lambda: publisher.publish("orders", raw.stamped()))
            thread.join()
        consumer.close()
        self.remove(publisher)
        return found


def _percentiles(ours: list[float], raws: list[float]) -> dict[str, object]:
    out: dict[str, object] = {}
    for percent in (50, 99):
        own, other = (statistics.quantiles(values, n=100)[percent - 1] * 1e6 for values in (ours, raws))
        out[f"p{percent}_us"], out[f"p{percent}_raw_us"] = round(own), round(other)
        out[f"p{percent}_ratio"] = round(own / other, 2)
    return out


def _replay(client: Client, name: str, count: int, text: str | None = None, **options: Unpack[ReplayOptions]) -> float:
    """Read everything; gives messages a second."""
    started, number = time.perf_counter(), 0
    with client.subscribe_topic(name, bookmark="[epoch:now]", filter=text, **options) as messages:
        for message in messages:
            number += len(message.raw) > 0
    if number != count:
        raise AssertionError(f"{number} of {count} messages came")
    return count / (time.perf_counter() - started)


def raw_replay(server: redis.Redis, log: str, count: int) -> float:
    """Read a stream page by page with `XRANGE`, as users of redis-py write it; gives messages a second."""
    started, number, after = time.perf_counter(), 0, "-"
    while True:
        page = entries(server.xrange(log, after, "+", count=_PAGE))
        for _, fields in page:
            number += len(fields[b"b"]) > 0
        if len(page) < _PAGE:
            break
        after = "(" + page[-1][0].decode()
    if number != count:
        raise AssertionError(f"{number} of {count} messages came")
    return count / (time.perf_counter() - started)


def raw_latencies(url: str, rate: int, count: int) -> list[float]:
    """Publish at `rate` a second to a blocked `XREAD`; gives seconds from call to receipt."""
    server, reader = raw.connected(url), raw.connected(url)
    found: list[float] = []

    def read() -> None:
        after: bytes | str = "0"
        while len(found) < count:
            reply = reader.xread({"ampsq-bench:raw": after}, count=100, block=2000)
            now = time.perf_counter()
            if not reply:
                return
            came = entries_of_one(reply)
            found.extend(now - float(fields[b"b"][:24]) for _, fields in came)
            after = came[-1][0]

    server.delete("ampsq-bench:raw")
    thread = threading.Thread(target=read)
    thread.start()
    raw.paced(rate, count, lambda: server.xadd("ampsq-bench:raw", {"b": raw.stamped()}))
    thread.join()
    server.delete("ampsq-bench:raw")
    server.close()
    reader.close()
    return found
