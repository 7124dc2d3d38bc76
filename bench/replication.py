"""Cost and delay of replication: on two servers of the benchmark's own."""

from __future__ import annotations

import contextlib
import itertools
import signal
import statistics
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Literal

from ampsq.bench import raw
from ampsq.bench.replies import entries, info
from ampsq.bench.server import private_server
from ampsq.client.client import Client
from ampsq.definitions.destination import Destination
from ampsq.definitions.queue import Queue, Topic
from ampsq.protocol.reads.streams import log_of
from ampsq.publishing.memory_store import MemoryPublishStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ampsq.bench.setup import BenchSettings

__all__ = ["ReplicationBenchmark"]

_BODY: Final = b'{"id": 1, "symbol": "AAPL", "price": 12.5, "x": "' + b"x" * 198 + b'"}'
_SyncType = Literal["async", "sync"]
_SYNC_TYPES: Final[tuple[_SyncType, ...]] = ("async", "sync")
_RATE: Final = 5_000
#: Messages of one call at that rate.
_TOGETHER: Final = 5
#: Seconds until anything measured here is given up.
_GIVE_UP_AFTER: Final = 300.0
#: Seconds after which a link whose process is gone may be run by another one.
_LAPSES: Final = 5.5
#: Seconds behind within which a link counts as caught up; an append-only file flushed every second takes most of it.
_CAUGHT_UP: Final = 2.0
#: Messages that the subscriber which dies holds.
_HELD: Final = 10
_SUBSCRIBER: Final = """
import sys, time
from ampsq.client.client import Client
with Client(sys.argv[1], instance="a") as client, client.subscribe("work", max_backlog=int(sys.argv[2])) as messages:
    print("subscribed", flush=True)
    held = [messages.get(60) for _ in range(int(sys.argv[2]))]
    print("holding", flush=True)
    time.sleep(600)
"""


class _Pair:
    """Two instances that replicate to each other; only the links that are started run."""

    def __init__(self, urls: dict[str, str], stack: ExitStack) -> None:
        self.urls, self._stack = urls, stack
        self.clients = {name: stack.enter_context(Client(url, instance=name)) for name, url in urls.items()}
        self.servers = {name: stack.enter_context(raw.connected(url)) for name, url in urls.items()}
        for name in urls:
            self.define(name, "async")

    def define(self, name: str, sync_type: _SyncType) -> None:
        other = "b" if name == "a" else "a"
        way = Destination(name=other, sync_type=sync_type, topics=["orders", "work"], addresses=[self.urls[other]])
        work = Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=100)
        self.clients[name].apply(Topic(name="orders"), work, way)

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """Start a coordinator, which runs the link from there; gives it when that stands."""
        options = ["--url", self.urls[name], "--instance", name]
        process = subprocess.Popen(
            [sys.executable, "-m", "ampsq.coordinator", *options], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        self._stack.callback(end, process)
        self.until(lambda: self._is_connected(name))
        return process

    def _is_connected(self, name: str) -> bool:
        (link,) = (link for link in self.clients[name].admin.replication().links if link.direction == "out")
        return link.state == "connected"

    def until(self, condition: Callable[[], object]) -> None:
        give_up = time.monotonic() + _GIVE_UP_AFTER
        while not condition():
            if time.monotonic() > give_up:
                raise AssertionError("what was to be measured did not happen")
            time.sleep(0.005)

    def length(self, name: str) -> int:
        return int(self.servers[name].xlen(log_of("orders").key(name)))

    def caught_up(self) -> None:
        """Wait until b has all of a."""
        self.until(lambda: self.length("b") == self.length("a"))

    def copies(self, after: str) -> Iterator[tuple[int, int]]:
        """Of each copy at b behind an ID: ms when a recorded it, ms when b did."""
        while True:
            rows = entries(self.servers["b"].xrange(log_of("orders").key("b"), f"({after}", count=5_000))
            for stream_id, fields in rows:
                after = stream_id.decode()
                yield _milliseconds(fields[b"s"].rpartition(b"~")[2]), _milliseconds(stream_id)
            if not rows:
                return

    def last(self) -> tuple[str, int]:
        """The newest copy at b: its ID, and ms when a recorded it."""
        rows = entries(self.servers["b"].xrevrange(log_of("orders").key("b"), count=1))
        if not rows:
            return "0-0", 0
        return rows[0][0].decode(), _milliseconds(rows[0][1][b"s"].rpartition(b"~")[2])

    def worked(self, name: str) -> float:
        """Microseconds of processor that a server has used."""
        used = info(self.servers[name], "cpu")
        return (float(used["used_cpu_user"]) + float(used["used_cpu_sys"])) * 1e6


class ReplicationBenchmark:
    """The measurements; two servers each, see `private_server`.

    Args:
        settings: how much is measured.
        progress: called with what is measured next.
    """

    def __init__(self, settings: BenchSettings, progress: Callable[[str], None]) -> None:
        self._settings, self._progress = settings, progress

    def run(self) -> dict[str, object]:
        """Rates one way, lag, latency of a sync publish, time to another instance's consumer, time to catch up."""
        return {
            "rates": self.rates(),
            "lag": {flushed: self._lag(flushed) for flushed in ("none", "everysec", "always")},
            "sync": self._sync(),
            "takeover": self._takeover(),
            "recovery": self._recovery(),
        }

    @contextlib.contextmanager
    def _pair(self, flushed: str = "everysec") -> Iterator[_Pair]:
        with ExitStack() as stack:
            urls = {
                name: stack.enter_context(private_server(append_only=flushed != "none", flushed=flushed))
                for name in ("a", "b")
            }
            yield _Pair(urls, stack)

    # --- how much

    def rates(self) -> dict[str, object]:
        """Measure publishing with the link stopped and running, in turn, and how fast it takes over what was left."""
        count, rows = self._settings.messages * 5, []
        with self._pair("none") as pair:
            link = pair.start("a")
            for number in range(self._settings.rounds):
                self._progress(f"replication, round {number + 1} of {self._settings.rounds}")
                link.send_signal(signal.SIGSTOP)
                alone, cost = self._publish(pair, count)
                before, worked = pair.last()[0], pair.worked("b")
                link.send_signal(signal.SIGCONT)
                pair.caught_up()
                taken = [here for _, here in pair.copies(before)]
                drained = count / max(taken[-1] - taken[0], 1) * 1000
                there = (pair.worked("b") - worked) / count
                beside, _ = self._publish(pair, count)
                pair.caught_up()
                rows.append((alone, beside, drained, cost, there, beside / alone))
            reading = self._reading(pair, link, count)
        names = ("publish_per_second", "publish_beside_link_per_second", "replicated_per_second")
        middle = [statistics.median(column) for column in zip(*rows, strict=True)]
        rates = {name: round(value) for name, value in zip(names, middle, strict=False)}
        costs = [round(cost, 2) for cost in (middle[3], reading, middle[4])]
        named = zip(("source_us", "source_us_of_the_link", "destination_us"), costs, strict=True)
        return {**rates, "ratio_beside_link": round(middle[5], 2), **dict(named)}

    @staticmethod
    def _publish(pair: _Pair, count: int) -> tuple[float, float]:
        """Messages a second in batches of 100, and microseconds of the server each."""
        worked, started = pair.worked("a"), time.perf_counter()
        pair.clients["a"].publish_many("orders", itertools.repeat(_BODY, count))
        return count / (time.perf_counter() - started), (pair.worked("a") - worked) / count

    def _reading(self, pair: _Pair, link: subprocess.Popen[bytes], count: int) -> float:
        """Microseconds of the source's server that the link costs a message."""
        link.send_signal(signal.SIGSTOP)
        self._publish(pair, count)
        worked = pair.worked("a")
        link.send_signal(signal.SIGCONT)
        pair.caught_up()
        return (pair.worked("a") - worked) / count

    # --- how soon

    def _lag(self, flushed: str) -> dict[str, float]:
        self._progress(f"lag at {_RATE:,}/s, appendfsync {flushed}")
        count = self._settings.latency * 10
        with self._pair(flushed) as pair:
            pair.start("a")
            self._steadily(pair, count)
            pair.caught_up()
            lags = [here - there for there, here in pair.copies("0-0")]
        return {f"p{percent}_ms": _percentile(lags, percent) for percent in (50, 99)} | {"messages": len(lags)}

    @staticmethod
    def _steadily(pair: _Pair, count: int) -> None:
        publisher, bodies = pair.clients["a"], [_BODY] * _TOGETHER
        raw.paced(_RATE // _TOGETHER, count // _TOGETHER, lambda: publisher.publish_many("orders", bodies))

    def _sync(self) -> dict[str, object]:
        """From the call until the message is persisted, one at a time, appendfsync always."""
        out: dict[str, object] = {}
        with self._pair("always") as pair:
            pair.start("a")
            for sync_type in _SYNC_TYPES:
                self._progress(f"publish until persisted, destination {sync_type}")
                pair.define("a", sync_type)
                pair.until(lambda: pair.clients["a"].admin.replication().links[0].connected_for is not None)
                times = self._persisted(pair.urls["a"], max(self._settings.latency // 5, 100))
                out[sync_type] = {f"p{percent}_ms": _percentile(times, percent) for percent in (50, 99)}
        return out

    @staticmethod
    def _persisted(url: str, count: int) -> list[float]:
        times = []
        store = MemoryPublishStore()
        with (
            Client(url, instance="a") as client,
            client.publisher("bench", store=store, persisted="fsync") as publisher,
        ):
            for _ in range(count):
                started = time.perf_counter()
                publisher.publish("orders", _BODY)
                publisher.flush()
                times.append((time.perf_counter() - started) * 1000)
        return times

    def _takeover(self) -> dict[str, object]:
        """From the death of a subscriber at a until a subscriber at b has all that it held."""
        first, last = [], []
        with self._pair("none") as pair:
            for name in ("a", "b"):
                pair.start(name)
            for number in range(self._settings.rounds):
                self._progress(f"dead subscriber, round {number + 1} of {self._settings.rounds}")
                times = self._die(pair)
                first.append(times[0])
                last.append(times[-1])
        return {"first_ms": round(statistics.median(first)), "all_ms": round(statistics.median(last)), "held": _HELD}

    @staticmethod
    def _die(pair: _Pair) -> list[float]:
        process = subprocess.Popen(
            [sys.executable, "-c", _SUBSCRIBER, pair.urls["a"], str(_HELD)], stdout=subprocess.PIPE
        )
        if process.stdout is None:
            raise AssertionError("a process that was started with a pipe has none")
        told = process.stdout
        try:
            told.readline()
            pair.clients["a"].publish_many("orders", [_BODY] * _HELD)
            told.readline()
            with pair.clients["b"].subscribe("work", max_backlog=_HELD) as messages:
                pair.until(lambda: pair.clients["b"].admin.queue_stats("work").remote == _HELD)
                process.kill()
                died, times = time.perf_counter(), []
                for _ in range(_HELD):
                    message = messages.get(_GIVE_UP_AFTER)
                    if message is None:
                        raise AssertionError("what a dead subscriber held was not delivered elsewhere")
                    times.append((time.perf_counter() - died) * 1000)
                    message.ack()
        finally:
            end(process)
            told.close()
        pair.until(lambda: pair.clients["a"].admin.queue_stats("work").depth == 0)
        return times

    def _recovery(self) -> dict[str, object]:
        """Measure how long a link that was down takes to be within two seconds again, while publishing goes on."""
        count = self._settings.outage * _RATE
        self._progress(f"a link that was down for {self._settings.outage} s at {_RATE:,}/s")
        with self._pair() as pair:
            end(pair.start("a"))
            ended = time.monotonic()
            self._publish(pair, count)
            time.sleep(max(ended + _LAPSES - time.monotonic(), 0))
            stopping = threading.Event()
            thread = threading.Thread(target=self._go_on, args=(pair.urls["a"], stopping))
            thread.start()
            started = time.perf_counter()
            pair.start("a")
            stands = time.perf_counter()
            pair.until(lambda: time.time() - pair.last()[1] / 1000 < _CAUGHT_UP)
            done = time.perf_counter()
            stopping.set()
            thread.join()
        seconds = {"link_stands_after_s": round(stands - started, 1), "caught_up_after_s": round(done - started, 1)}
        return {"outage_s": self._settings.outage, "messages": count, **seconds}

    @staticmethod
    def _go_on(url: str, stopping: threading.Event) -> None:
        with Client(url, instance="a") as publisher:
            started = time.perf_counter()
            for number in itertools.count():
                if stopping.is_set():
                    return
                raw.wait_until(started + number * _TOGETHER / _RATE)
                publisher.publish_many("orders", [_BODY] * _TOGETHER)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process that may be stopped, or ended."""
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def _milliseconds(stream_id: bytes) -> int:
    return int(stream_id.partition(b"-")[0])


def _percentile(values: Sequence[float], percent: int) -> float:
    return round(float(statistics.quantiles(values, n=100)[percent - 1]), 1)
