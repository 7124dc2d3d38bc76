"""The other side of every ratio: what redis-py does with plain Streams, as its users write it."""

from __future__ import annotations

import gc
import time
from collections import deque
from typing import TYPE_CHECKING

import redis

from ampsq.bench.consuming import work_out_of_order
from ampsq.bench.replies import entries_of_one

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "connected",
    "consume",
    "consume_out_of_order",
    "paced",
    "prepare",
    "publish",
    "read_blocked",
    "stamped",
    "stream",
    "wait_until",
]

_STREAM, _GROUP = "ampsq-bench:raw", "g"
_BATCH = 100


def stream(number: int = 0) -> str:
    """Return the name of a stream, by its number."""
    return f"{_STREAM}-{number}" if number else _STREAM


def prepare(server: redis.Redis, number: int = 0) -> None:
    """Start from an empty stream with one group."""
    server.delete(stream(number))
    server.xgroup_create(stream(number), _GROUP, "0", mkstream=True)


def publish(server: redis.Redis, bodies: Sequence[bytes], *, batch: int = _BATCH) -> None:
    """`XADD` in pipelines of so many."""
    for start in range(0, len(bodies), batch):
        pipeline = server.pipeline(transaction=False)
        for body in bodies[start : start + batch]:
            pipeline.xadd(_STREAM, {"b": body})
        pipeline.execute()


def consume(server: redis.Redis, count: int, *, batch: int = _BATCH) -> None:
    """`XREADGROUP` and `XACK` of so many each."""
    done = 0
    while done < count:
        reply = server.xreadgroup(_GROUP, "c", {_STREAM: ">"}, count=batch)
        ids = [entry_id for entry_id, _ in entries_of_one(reply)]
        server.xack(_STREAM, _GROUP, *ids)
        done += len(ids)


def consume_out_of_order(server: redis.Redis, count: int, *, has_slow: bool) -> None:
    """`XREADGROUP` in hundreds, and what eight handlers have done meanwhile by one `XACK` before the next."""
    waiting: deque[bytes] = deque()
    done: list[bytes] = []

    def following() -> bytes:
        if not waiting:
            settle()
            reply = server.xreadgroup(_GROUP, "c", {_STREAM: ">"}, count=_BATCH)
            waiting.extend(entry_id for entry_id, _ in entries_of_one(reply))
        return waiting.popleft()

    def settle() -> None:
        if done:
            server.xack(_STREAM, _GROUP, *done)
            done.clear()

    work_out_of_order(count, following, done.append, has_slow=has_slow)
    settle()


def read_blocked(reader: redis.Redis, name: str, seconds: float, received: Callable[[list[bytes]], object]) -> None:
    """Wait once for entries of a stream by a blocked `XREADGROUP`; gives their bodies, then `XACK`s them."""
    reply = reader.xreadgroup(_GROUP, "c", {name: ">"}, count=_BATCH, block=round(seconds * 1000))
    if reply:
        entries = entries_of_one(reply)
        received([fields[b"b"] for _, fields in entries])
        reader.xack(name, _GROUP, *[entry_id for entry_id, _ in entries])


def stamped() -> bytes:
    """A body of 250 bytes that begins with the moment it was made."""
    return f"{time.perf_counter():.9f}".ljust(24).encode() + b"x" * 226


def connected(url: str) -> redis.Redis:
    """A plain client of redis-py."""
    return redis.Redis.from_url(url, protocol=2)


def paced(rate: int, count: int, publish: Callable[[], object]) -> None:
    """Call a function `count` times, `rate` times a second; collect garbage before.

    A full collection of what other measurements left behind takes 11 ms. At 1,000 calls a second these are ten
    calls: one collection that falls among them decides p99.
    """
    gc.collect()
    started = time.perf_counter()
    for number in range(count):
        wait_until(started + number / rate)
        publish()


def wait_until(moment: float) -> None:
    """Wait until `time.perf_counter` reads `moment`."""
    # Sleeping is too coarse for a steady rate of 1,000 a second; the last stretch is spent looking at the clock.
    while (left := moment - time.perf_counter()) > 0:
        time.sleep(left / 2 if left > 0.0005 else 0)
