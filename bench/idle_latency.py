"""Delay of an idle instance's duties: lapses, delays, lost clients, actions, foreign entries, hand-offs."""

from __future__ import annotations

import contextlib
import math
import random
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import redis

from ampsq.base.errors import StaleLease
from ampsq.bench.idle_world import linked_pairs
from ampsq.bench.replication import end
from ampsq.client.client import Client
from ampsq.protocol.reads.streams import log_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from ampsq.queues.subscription import Message, Subscription

__all__ = ["IdleLatency"]

_At = TypeVar("_At")
#: Seconds each, as many as are asked for.
_Samples: TypeAlias = "Generator[float, None, None]"
_INSTANCES: Final = 20
#: Instances at which something is measured at once.
_AT_ONCE: Final = 4
#: Times as many rounds at most, where fewer instances are there to measure at.
_MORE_ROUNDS: Final = 4
#: Seconds after which what did not come is given up.
_GIVE_UP_AFTER: Final = 30.0
_CHOSEN: Final = {"kind": "chosen"}
_WORKER: Final = """
import sys
from ampsq.client.client import Client
with Client(sys.argv[1], instance=sys.argv[2]) as client, client.subscribe("later") as messages:
    print("subscribed", flush=True)
    message = messages.get(60)
    print("leased", flush=True)
    sys.stdin.read()
"""


class IdleLatency:
    """The measurements, at 20 instances at random, or at all if there are fewer.

    Args:
        url: the server.
        names: all instances.
        rounds: at each of 20 instances; more where there are fewer.
        seed: decides which instances.
        progress: called with what is measured next.
    """

    def __init__(self, url: str, names: Sequence[str], rounds: int, seed: int, progress: Callable[[str], None]) -> None:
        self._url, self._progress = url, progress
        chance = random.Random(seed)  # noqa: S311  (no secret)
        self._names = chance.sample(names, min(_INSTANCES, len(names)))
        pairs = linked_pairs(names)
        self._pairs = chance.sample(pairs, min(_INSTANCES, len(pairs)))
        self._rounds = rounds

    def run(self) -> dict[str, object]:
        """Measure each kind: p50, p99 and the longest, ms, and of how many samples."""
        kinds: dict[str, Callable[[str], _Samples]] = {
            "lapse": self._lapses,
            "delay": self._delays,
            "action": self._actions,
            "foreign_entry": self._foreign_entries,
            "killed_worker": self._killed_workers,
        }
        return {kind: self._measured(kind, self._names, each) for kind, each in kinds.items()}

    def hand_offs(self) -> dict[str, object]:
        """Measure the hand-off of a shared queue's message, in the same figures; without links none."""
        return {"hand_off": self._measured("hand_off", self._pairs, self._hand_offs)} if self._pairs else {}

    def _measured(self, kind: str, where: Sequence[_At], samples: Callable[[_At], _Samples]) -> object:
        self._progress(f"idle instances, {kind.replace('_', ' ')} at {len(where)}")
        rounds = min(math.ceil(self._rounds * _INSTANCES / len(where)), self._rounds * _MORE_ROUNDS)
        if kind == "killed_worker":
            # Each is a process of its own.
            rounds = max(rounds // _AT_ONCE, 1)

        def work(at: _At) -> list[float]:
            with contextlib.closing(samples(at)) as found:
                return [next(found) for _ in range(rounds)]

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            times = sorted(each * 1000 for some in pool.map(work, where) for each in some)
        return {
            **{f"p{percent}_ms": round(times[math.ceil(len(times) * percent / 100) - 1], 1) for percent in (50, 99)},
            "max_ms": round(times[-1], 1),
            "samples": len(times),
        }

    def _lapses(self, name: str) -> _Samples:
        """From the end of a lease until another subscription has the message."""
        with Client(self._url, instance=name) as client, client.subscribe("chosen", max_backlog=2) as slow:
            # With one that stays leased, this subscription is fuller than the other one, which is served first.
            client.publish("orders", _CHOSEN)
            kept = _next_kept(slow)
            while True:
                kept.extend("60s")
                client.publish("orders", _CHOSEN)
                lapsing = _next(slow)
                until = lapsing.lease_until
                if until is None:
                    raise AssertionError("a lease of this queue has an end")
                with client.subscribe("chosen", max_backlog=10) as other:
                    again = _next(other)
                    took = time.time() - until.timestamp()
                    again.ack(wait=True)
                yield took

    def _delays(self, name: str) -> _Samples:
        """From the moment that a message was due until it is delivered."""
        with Client(self._url, instance=name) as client, client.subscribe("later") as messages:
            while True:
                due = datetime.now(UTC) + timedelta(seconds=0.3)
                client.publish("late", {}, at=due)
                message = _next(messages)
                took = time.time() - due.timestamp()
                message.ack(wait=True)
                yield took

    def _actions(self, name: str) -> _Samples:
        """From a consumer's giving a message up until a subscriber has its dead letter."""
        with (
            Client(self._url, instance=name) as client,
            client.subscribe("chosen") as messages,
            client.subscribe_topic("dead") as dead_letters,
        ):
            while True:
                client.publish("orders", _CHOSEN)
                message = _next_kept(messages)
                _pause()
                began = time.perf_counter()
                message.expire()
                if dead_letters.get(_GIVE_UP_AFTER) is None:
                    raise AssertionError("no dead letter came")
                yield time.perf_counter() - began

    def _foreign_entries(self, name: str) -> _Samples:
        """From an entry that a plain `XADD` writes until it is delivered."""
        with (
            Client(self._url, instance=name) as client,
            redis.Redis.from_url(self._url) as server,
            client.subscribe("later") as messages,
        ):
            while True:
                _pause()
                server.xadd(log_of("late").key(name), {"b": b"{}"})
                began = time.perf_counter()
                message = _next(messages)
                took = time.perf_counter() - began
                message.ack(wait=True)
                yield took

    def _killed_workers(self, name: str) -> _Samples:
        """From the death of a process that has a lease until another subscription has the message."""
        command = [sys.executable, "-c", _WORKER, self._url, name]
        with Client(self._url, instance=name) as client:
            while True:
                process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                try:
                    _expect(process, b"subscribed")
                    client.publish("late", {})
                    _expect(process, b"leased")
                    with client.subscribe("later") as messages:
                        _pause()
                        process.kill()
                        began = time.perf_counter()
                        message = _next(messages)
                        took = time.perf_counter() - began
                        message.ack(wait=True)
                finally:
                    end(process)
                    for pipe in (process.stdin, process.stdout):
                        if pipe is not None:
                            pipe.close()
                yield took

    def _hand_offs(self, pair: tuple[str, str]) -> _Samples:
        """From the end of the owner's only subscription until a consumer elsewhere has the message that waits."""
        with Client(self._url, instance=pair[0]) as here, Client(self._url, instance=pair[1]) as there:
            while True:
                before = there.admin.queue_stats("later").remote
                with here.subscribe("later") as only:
                    here.publish("late", {})
                    _next(only)
                    with there.subscribe("later") as messages:
                        _until(lambda: there.admin.queue_stats("later").remote > before)  # noqa: B023  (within it)
                        _pause()
                        began = time.perf_counter()
                        only.close()
                        message = _next(messages)
                        took = time.perf_counter() - began
                        message.ack(wait=True)
                _until(lambda: here.admin.queue_stats("later").leased == 0)
                yield took


def _next(messages: Subscription) -> Message:
    message = messages.get(_GIVE_UP_AFTER)
    if message is None:
        raise AssertionError("what was to be measured did not come")
    return message


def _next_kept(messages: Subscription) -> Message:
    """Return the next message, leased for longer than the queue says; one that lapsed before that comes again."""
    while True:
        message = _next(messages)
        with contextlib.suppress(StaleLease):
            message.extend("60s")
            return message


def _expect(process: subprocess.Popen[bytes], word: bytes) -> None:
    """Read what a worker says next; one that says nothing is killed, which ends the reading."""
    if process.stdout is None:
        raise AssertionError("a process that was started with a pipe has none")
    giving_up = threading.Timer(_GIVE_UP_AFTER, process.kill)
    giving_up.start()
    try:
        if process.stdout.readline().strip() != word:
            raise AssertionError(f"a worker did not say {word.decode()}")
    finally:
        giving_up.cancel()


def _pause() -> None:
    """Let it be idle again, for no multiple of anybody's interval."""
    time.sleep(random.uniform(0.05, 0.15))  # noqa: S311  (no secret)


def _until(condition: Callable[[], object]) -> None:
    give_up = time.monotonic() + _GIVE_UP_AFTER
    while not condition():
        if time.monotonic() > give_up:
            raise AssertionError("what was to be measured did not happen")
        time.sleep(0.005)
