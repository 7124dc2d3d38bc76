"""The other side of every ratio: what redis-py does with plain Streams, as its users write it."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import redis

from ampsq.bench.replies import entries_of_one

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["connected", "consume", "latencies", "paced", "prepare", "publish", "stamped", "wait_until"]

_STREAM, _GROUP = "ampsq-bench:raw", "g"
_BATCH = 100


def prepare(server: redis.Redis) -> None:
    """Start from an empty stream with one group."""
    server.delete(_STREAM)
    server.xgroup_create(_STREAM, _GROUP, "0", mkstream=True)


def publish(server: redis.Redis, body: bytes, count: int) -> float:
    """`XADD` in pipelines of 100; gives messages a second."""
    started = time.perf_counter()
    for _ in range(count // _BATCH):
        pipeline = server.pipeline(transaction=False)
        for _ in range(_BATCH):
            pipeline.xadd(_STREAM, {"b": body})
        pipeline.execute()
    return count / (time.perf_counter() - started)


def consume(server: redis.Redis, count: int) -> float:
    """`XREADGROUP` and `XACK` in hundreds; gives messages a second."""
    started, done = time.perf_counter(), 0
    while done < count:
        reply = server.xreadgroup(_GROUP, "c", {_STREAM: ">"}, count=_BATCH)
        ids = [entry_id for entry_id, _ in entries_of_one(reply)]
        server.xack(_STREAM, _GROUP, *ids)
        done += len(ids)
    return count / (time.perf_counter() - started)


def latencies(url: str, rate: int, count: int) -> list[float]:
    """Publish one at a time at `rate` a second to a blocked `XREADGROUP`; gives seconds from call to receipt."""
    server, reader = connected(url), connected(url)
    prepare(server)
    found: list[float] = []

    def read() -> None:
        while len(found) < count:
            reply = reader.xreadgroup(_GROUP, "c", {_STREAM: ">"}, count=_BATCH, block=2000)
            now = time.perf_counter()
            if not reply:
                return
            entries = entries_of_one(reply)
            found.extend(now - float(fields[b"b"][:24]) for _, fields in entries)
            reader.xack(_STREAM, _GROUP, *[entry_id for entry_id, _ in entries])

    thread = threading.Thread(target=read)
    thread.start()
    paced(rate, count, lambda: server.xadd(_STREAM, {"b": stamped()}))
    thread.join()
    server.delete(_STREAM)
    server.close()
    reader.close()
    return found


def stamped() -> bytes:
    """A body of 250 bytes that begins with the moment it was made."""
    return f"{time.perf_counter():.9f}".ljust(24).encode() + b"x" * 226


def connected(url: str) -> redis.Redis:
    """A plain client of redis-py."""
    return redis.Redis.from_url(url, protocol=2)


def paced(rate: int, count: int, publish: Callable[[], object]) -> None:
    """Call a function `count` times, `rate` times a second."""
    started = time.perf_counter()
    for number in range(count):
        wait_until(started + number / rate)
        publish()


def wait_until(moment: float) -> None:
    """Wait until `time.perf_counter` reads `moment`."""
    # Sleeping is too coarse for a steady rate of 1,000 a second; the last stretch is spent looking at the clock.
    while (left := moment - time.perf_counter()) > 0:
        time.sleep(left / 2 if left > 0.0005 else 0)
