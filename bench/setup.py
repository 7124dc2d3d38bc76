"""Setup that measurements share: a server, clients of instances of their own, and what they look at there."""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import redis

from ampsq.base.errors import AmpsqError
from ampsq.bench.replies import command_times, info, settings, slow_calls
from ampsq.client.client import Client
from ampsq.operations.functions import keep_functions
from ampsq.protocol import scripts
from ampsq.protocol.functions import PREFIX, are_used
from ampsq.protocol.reads.instances import unlist_instance
from ampsq.protocol.reads.streams import log_key
from ampsq.transport.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["BenchSettings", "NotAsRecorded", "Stage", "keep_functions_at"]

_numbers = itertools.count(1)
#: Where the server counts the time in scripts, and in functions.
_SCRIPT_CALLS: Final = (b"EVALSHA", b"EVAL", b"FCALL", b"FCALL_RO")
_SCRIPT_TIMES: Final = ("cmdstat_evalsha", "cmdstat_eval", "cmdstat_fcall", "cmdstat_fcall_ro")
#: No call is to hold the server longer, ms.
_GOAL: Final = 10


class NotAsRecorded(AmpsqError):
    """After something was measured `check` finds a queue that is not what its logs and journal say."""


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """The size of the measurements.

    Attributes:
        messages: of one throughput round.
        rounds: of publish and consume, ours and raw in turn.
        backlog: waiting messages of the growth figures.
        many: subscriptions, and queues on one topic, of the growth figures.
        latency: messages of the latency figures, 1,000 a second.
        letters: dead letters that are put back.
        outage: seconds for which a link is down.
        idle_instances: numbers of instances that are idle, each measured for itself.
        idle_seconds: for which they are.
        idle_rounds: of each latency at each of 20 of them; where there are fewer, four times as many at most.
        groups: numbers of groups, each measured for itself, with one message a group at least.
    """

    messages: int = 20_000
    rounds: int = 5
    backlog: int = 1_000_000
    many: int = 1_000
    latency: int = 3_000
    letters: int = 100_000
    outage: int = 60
    idle_instances: tuple[int, ...] = (1, 100)
    idle_seconds: int = 20
    idle_rounds: int = 5
    groups: tuple[int, ...] = (1, 100, 100_000, 1_000_000)

    @classmethod
    def small(cls) -> BenchSettings:
        """Return a tenth of it, or less."""
        return cls(
            messages=5_000,
            rounds=3,
            backlog=100_000,
            many=200,
            latency=1_000,
            letters=10_000,
            outage=10,
            idle_seconds=10,
            idle_rounds=2,
            groups=(1, 100, 10_000),
        )


class Stage:
    """The stage of a measurement.

    Args:
        url: the server; its keys beside the benchmark's own are left alone.
        settings: how much is measured.
        progress: called with what is measured next.
    """

    def __init__(self, url: str, settings: BenchSettings, progress: Callable[[str], None]) -> None:
        self.url, self.settings, self.progress = url, settings, progress
        self.redis = redis.Redis.from_url(url, protocol=2)

    def client(self) -> Client:
        """A client of a fresh instance."""
        keep_functions_at(self.url)
        return Client(self.url, instance=f"bench-{next(_numbers)}-{time.time_ns():x}")

    def remove(self, client: Client) -> None:
        """Leave nothing behind: unlink every key of the client's instance, whose queues `check` must find right.

        Raises:
            NotAsRecorded: a queue is not what its logs and journal say. Its instance is left as it is.
        """
        wrong = [str(report) for report in client.admin.check() if not report.clean or report.undecided]
        if wrong:
            raise NotAsRecorded(f"after it was measured, instance {client.instance} is not right: {'; '.join(wrong)}")
        client._store.call(unlist_instance(client.instance))  # noqa: SLF001  (nobody else needs it)
        client.close()
        for name in self.redis.scan_iter("{" + client.instance + "}:*", count=1000):
            self.redis.unlink(name)
        # Freed in the background, by a thread that would take the processor from what is measured next.
        until = time.monotonic() + 10
        while time.monotonic() < until:
            memory = info(self.redis, "memory")
            if not memory.get("lazyfree_pending_objects"):
                return
            time.sleep(0.05)

    def held(self, client: Client) -> int:
        """Bytes of the instance's keys, without its logs."""
        logs = log_key(client.instance, "")
        total = 0
        for name in self.redis.scan_iter("{" + client.instance + "}:*", count=1000):
            if not name.startswith(logs):
                total += int(self.redis.memory_usage(name, samples=0) or 0)
        return total

    @contextlib.contextmanager
    def timed_calls(self) -> Iterator[dict[str, float]]:
        """Gives a dict, filled at the end: the longest script call, the 99.9th percentile, how many took over 10 ms.

        It is the time that passed, by the server's own log: more than it worked, where others want the processor too.
        """
        times: dict[str, float] = {}
        with self.logged_calls() as calls:
            yield times
        spent = sorted(milliseconds for _, milliseconds in calls) or [0.0]
        times["longest_call_ms"] = round(spent[-1], 2)
        times["p999_call_ms"] = round(spent[len(spent) * 999 // 1000], 2)
        times["calls_over_10_ms"] = sum(each > _GOAL for each in spent)

    @contextlib.contextmanager
    def logged_calls(self) -> Iterator[list[tuple[str, float]]]:
        """Gives a list, filled at the end, of all calls of scripts: which one, and its milliseconds."""
        names = ("slowlog-log-slower-than", "slowlog-max-len")
        former = {name: settings(self.redis, name)[name] for name in names}
        self.redis.config_set("slowlog-max-len", 100_000)
        self.redis.config_set("slowlog-log-slower-than", 0)
        self.redis.slowlog_reset()
        calls: list[tuple[str, float]] = []
        try:
            yield calls
            for entry in slow_calls(self.redis, 100_000):
                # What is not a script of ours is not asked for by any client.
                words = entry["command"].split(b" ", 2)
                if words[0] in _SCRIPT_CALLS:
                    calls.append((_script_named(words[1]), entry["duration"] / 1000))
        finally:
            for name, value in former.items():
                self.redis.config_set(name, value)

    @contextlib.contextmanager
    def script_time(self) -> Iterator[list[float]]:
        """Gives a list with the server's microseconds in scripts, filled at the end of the block."""
        spent = [0.0]
        self.redis.config_resetstat()
        yield spent
        stats = command_times(self.redis)
        spent[0] = sum(float(stats[name]) for name in _SCRIPT_TIMES if name in stats)


@functools.cache
def keep_functions_at(url: str) -> None:
    """Load the server functions, once, where this process uses some and the server has no users."""
    if are_used():
        with contextlib.closing(Store(url, "")) as store:
            store.run(keep_functions())


@functools.cache
def _names_by_sha() -> dict[bytes, str]:
    return {scripts.script(name).sha.encode(): name for name in scripts.names()}


def _script_named(word: bytes) -> str:
    """Name the script of a call: by its SHA1, by its text, of which the log has the beginning, or by its function."""
    if word.startswith(b"#!"):
        return "eval"
    return _names_by_sha().get(word) or word.decode().removeprefix(PREFIX).rpartition("_")[0]
