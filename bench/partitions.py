"""Costs of publishers and consumers of an instance with partitions beside those of one without.

Both are on one server, or on the primaries of a cluster, of which one has the instance without partitions. The costs
are processor time, so that other work on the machine changes little; without what the servers take by themselves in the
same time, since eight of them take eight times as much whatever is asked. Latencies are times that passed.

Each round measures all rows, so that a row is compared with what the instance without partitions took in the same
minute. What was taken is removed between measurements, and one round before the first fills the memory that the others
use: no row pays for memory that the server has never had.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
import time
from typing import TYPE_CHECKING, Final

import redis

from ampsq.bench.beside import server_seconds
from ampsq.bench.idle import coordinator_at, worked_by
from ampsq.bench.replies import command_calls
from ampsq.bench.setup import NotAsRecorded, keep_functions_at
from ampsq.client.client import Client
from ampsq.definitions.queue import Queue
from ampsq.protocol.reads.instances import unlist_instance
from ampsq.transport.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ampsq.bench.setup import BenchSettings
    from ampsq.queues.subscription import Subscription

__all__ = ["PartitionsBenchmark"]

_BODY: Final = b"x" * 250
#: Numbers of partitions that are measured.
_PARTITIONS: Final = (4, 16, 64, 256)
#: Messages of one call, and the backlog of a consumer, which asks for all of it at once.
_A_CALL: Final = 100
#: Full calls that are published to each partition, of which there are most, and that a consumer finds in each: so many
#: that what a partition takes once, settling its last call among it, is little of them. Where fewer wait, that is
#: another row: calls are not full then.
_PUBLISHED_CALLS: Final = 5
_CALLS: Final = 16
#: Whose processor time a message takes.
_SIDES: Final = ("client", "server")
#: Statistics of the server of calls of scripts, and of functions.
_CALL_NAMES: Final = ("cmdstat_evalsha", "cmdstat_fcall")
#: Messages of one call of `publish_many` that keys spread over partitions.
_BY_KEY: Final = 1_000
#: Partitions of which nothing is asked.
_IDLE: Final = 1_000
#: Seconds that a coordinator is at work before it rests; and a consumer, at which messages came.
_SETTLES: Final = 30.0
_RESTS: Final = 6.0
#: Seconds for which it is measured what servers take of which nothing is asked.
_BY_THEMSELVES: Final = 5.0
#: Calls on each connection before anything is measured on it: where scripts are called often it learns of functions.
_WARM: Final = 20
#: Seconds between two messages that wake a consumer.
_PAUSE: Final = 0.005


class PartitionsBenchmark:
    """The measurements, on one server or the primaries of a cluster.

    Args:
        url: of the server, or of the cluster.
        settings: how much is measured.
        progress: called with what is measured next.
        servers: the primaries of the cluster; of one server none.
    """

    def __init__(
        self,
        url: str,
        settings: BenchSettings,
        progress: Callable[[str], None],
        servers: Sequence[redis.Redis] = (),
    ) -> None:
        self.url, self.settings, self.progress = url, settings, progress
        self._servers = list(servers) or [redis.Redis.from_url(url, protocol=2)]
        self._numbers = itertools.count(1)
        # Seconds of the processor a second that all servers take while nothing is asked of them.
        self._by_themselves = 0.0

    def run(self) -> dict[str, object]:
        """Measure everything; gives groups of figures, JSON-like."""
        names = ["one", *map(str, _PARTITIONS)]
        clients = dict(zip(names, map(self._client, [None, *_PARTITIONS]), strict=True))
        try:
            for client in clients.values():
                client.apply(
                    Queue(
                        name="work",
                        underlying_topic="orders",
                        lease_period="60s",
                        max_per_subscription_backlog=10_000,
                    )
                )
                # A client has a connection to each server.
                count = _WARM * len(self._servers) * _A_CALL
                client.publish_many("warm", itertools.repeat(_BODY, count), batch=_A_CALL)
            rounds: dict[str, dict[str, list[dict[str, float]]]] = {
                what: {name: [] for name in names} for what in ("publish", "by_key", "open", "consume", "consume_few")
            }
            # No coordinator yet: what it does for each partition that is published to is its own work.
            idle = {"publish_server_ms": self._rest()}
            self._rounds(clients, self._publish, rounds)
            with coordinator_at(self.url):
                # Without one a consumer looks at each partition every second.
                self._settle("clients that consume")
                idle["consume_server_ms"] = self._rest()
                self._rounds(clients, self._consume, rounds)
                self._settle("clients that wait")
                waits = {}
                for name, client in clients.items():
                    self.progress(f"wait, partitions: {name}")
                    waits[name] = self._wait(client)
        finally:
            for client in clients.values():
                self._remove(client)
        medians = {what: {name: _medians(some) for name, some in found.items()} for what, found in rounds.items()}
        return {**medians, "wait": waits, "by_themselves": idle, "idle": {str(_IDLE): self._idle(_IDLE)}}

    def _rest(self) -> float:
        """Measure what the servers take by themselves, which counts as nobody's from now on; gives ms a second."""
        self.progress("nothing is asked of the servers")
        began, served = time.perf_counter(), self._served()
        time.sleep(min(_BY_THEMSELVES, self.settings.idle_seconds))
        self._by_themselves = (self._served() - served) / (time.perf_counter() - began)
        return round(self._by_themselves * 1_000, 2)

    def _settle(self, what: str) -> None:
        """Wait until a coordinator that began now rests."""
        self.progress(f"{what}: a coordinator settles")
        time.sleep(min(3 * self.settings.idle_seconds, _SETTLES))

    def _idle(self, partitions: int) -> dict[str, float]:
        """Have partitions of which nothing is asked: shares of a core of coordinator and servers, in ms a second.

        The servers' are also measured before a coordinator is at work: what idle servers, and nodes of a cluster that
        talk to each other, take by themselves.
        """
        self.progress(f"define {partitions:,} partitions")
        client = self._client(partitions)
        try:
            client.apply(Queue(name="work", underlying_topic="orders"))
            self.progress(f"{partitions:,} idle partitions without a coordinator")
            began, served = time.perf_counter(), self._served()
            time.sleep(self.settings.idle_seconds)
            alone = (self._served() - served) / (time.perf_counter() - began)
            with coordinator_at(self.url) as coordinator:
                self._settle(f"{partitions:,} idle partitions")
                began, worked, served = time.perf_counter(), worked_by(coordinator.pid), self._served()
                time.sleep(self.settings.idle_seconds)
                passed = time.perf_counter() - began
                return {
                    "coordinator_ms": round((worked_by(coordinator.pid) - worked) / passed * 1_000, 2),
                    "server_ms": round((self._served() - served) / passed * 1_000, 2),
                    "server_alone_ms": round(alone * 1_000, 2),
                }
        finally:
            self._remove(client)

    def _client(self, partitions: int | None) -> Client:
        # As a coordinator does, which is not there yet.
        for server in self._servers:
            address = server.connection_pool.connection_kwargs
            keep_functions_at(f"redis://{address['host']}:{address['port']}" if len(self._servers) > 1 else self.url)
        name = f"bench-p{next(self._numbers)}-{time.time_ns():x}"
        return Client(self.url, instance=name, partitions=partitions)

    def _remove(self, client: Client) -> None:
        wrong = [str(report) for report in client.admin.check() if not report.clean or report.undecided]
        if wrong:
            raise NotAsRecorded(f"after it was measured, instance {client.instance} is not right: {'; '.join(wrong)}")
        with contextlib.closing(Store(self.url, "")) as store:
            for name in client.partitions or (client.instance,):
                store.call(unlist_instance(name))
        client.close()
        for server in self._servers:
            for key in server.scan_iter("{" + client.instance + "[.}]*", count=1_000):
                server.unlink(key)

    def _served(self) -> float:
        """Seconds of the processor that all servers have used."""
        return sum(map(server_seconds, self._servers))

    def _rounds(
        self,
        clients: Mapping[str, Client],
        measure: Callable[[Client], dict[str, dict[str, float]]],
        rounds: Mapping[str, dict[str, list[dict[str, float]]]],
    ) -> None:
        """Measure all clients in turn, so that what the machine does meanwhile meets all of them; once for nothing."""
        for number in range(self.settings.rounds + 1):
            kind = f"round {number} of {self.settings.rounds}" if number else "to fill memory"
            self.progress(f"{measure.__name__.strip('_')}, {kind}")
            found: dict[str, dict[str, dict[str, float]]] = {}
            # Each is first now and then.
            for name in list(clients)[:: 1 if number % 2 else -1]:
                found[name] = measure(clients[name])
                clients[name].admin.trim("orders", age="0s")
            for name, measured in found.items() if number else ():
                for what, figures in measured.items():
                    rounds[what][name].append({**figures, **_beside(figures, found["one"][what])})

    @property
    def _few(self) -> int:
        """Messages of a round, however many partitions there are."""
        return self.settings.messages // _BY_KEY * _BY_KEY

    def _many(self, calls: int) -> int:
        """Messages of a round that are so many full calls in each partition, of which there are most.

        As many everywhere, since a coordinator's rounds are a part of the cost, and memory that is read.
        """
        return max(self._few, calls * _A_CALL * max(_PARTITIONS))

    def _publish(self, client: Client) -> dict[str, dict[str, float]]:
        """Publish whole batches, then by key: microseconds a message."""
        many, few = self._many(_PUBLISHED_CALLS), self._few
        found = {
            "publish": self._spent(lambda: self._publish_whole(client, many), many),
            "by_key": self._spent(lambda: self._publish_by_key(client, few), few),
        }
        self._drain(client, many + few)
        return found

    def _consume(self, client: Client) -> dict[str, dict[str, float]]:
        """Begin to consume; then take and acknowledge what comes: full calls, then few messages a partition.

        Gives microseconds a partition of the beginning, and a message of the rest.
        """
        many, few = self._many(_CALLS), self._few
        begun: list[Subscription] = []
        open_us = self._spent(lambda: begun.append(self._begin(client)), max(len(client.partitions), 1))
        with begun[0] as messages:
            # A subscription may have a connection of its own.
            warm = _WARM * len(self._servers) * _A_CALL
            self._publish_whole(client, warm)
            self._take(messages, warm)
            self._publish_whole(client, many)
            consume = self._spent(lambda: self._take(messages, many), many)
            self._publish_by_key(client, few)
            consume_few = self._spent(lambda: self._take(messages, few), few)
        del open_us["messages_per_call"]
        return {"open": open_us, "consume": consume, "consume_few": consume_few}

    @staticmethod
    def _publish_whole(client: Client, count: int) -> None:
        client.publish_many("orders", itertools.repeat(_BODY, count), batch=_A_CALL)

    @staticmethod
    def _publish_by_key(client: Client, count: int) -> None:
        # Each call waits until all of its messages are recorded, so those of a partition are a call of their own.
        keys = map(str, itertools.count())
        for _ in range(count // _BY_KEY):
            client.publish_many("orders", itertools.repeat(_BODY, _BY_KEY), batch=_A_CALL, key=lambda _: next(keys))

    def _spent(self, work: Callable[[], object], count: int) -> dict[str, float]:
        """Do a piece of work: microseconds a message of client and server, and messages of a call.

        What the servers take by themselves in that time is left out.
        """
        for server in self._servers:
            server.config_resetstat()
        served, at, began = self._served(), time.perf_counter(), time.process_time()
        work()
        client, worked = time.process_time() - began, self._served() - served
        worked = max(worked - self._by_themselves * (time.perf_counter() - at), 0.0)
        calls = sum(command_calls(each).get(name, 0) for each in self._servers for name in _CALL_NAMES)
        return {
            "client_us": client / count * 1e6,
            "server_us": worked / count * 1e6,
            "messages_per_call": count / calls,
        }

    def _drain(self, client: Client, count: int) -> None:
        """Take and acknowledge what waits."""
        with client.subscribe("work", max_backlog=_A_CALL) as messages:
            self._take(messages, count)

    @staticmethod
    def _begin(client: Client) -> Subscription:
        messages = client.subscribe("work", max_backlog=_A_CALL)
        # Each partition is visited, and its bell is listened to.
        messages.get("100ms")
        return messages

    @staticmethod
    def _take(messages: Subscription, count: int) -> None:
        for message in itertools.islice(messages, count):
            message.ack()
        messages.flush()

    def _wait(self, client: Client) -> dict[str, float]:
        """Wait for messages that come one by one, and for none: latencies, and shares of a core, in ms a second."""
        with client.subscribe("work", max_backlog=_A_CALL) as messages:
            messages.get("100ms")
            latencies = sorted(self._latencies(client, messages))
            # What a look for what was lost costs is over: all is well.
            messages.get(_RESTS)
            used, worked, began = time.process_time(), self._served(), time.perf_counter()
            messages.get(float(self.settings.idle_seconds))
            passed = time.perf_counter() - began
            client_ms = (time.process_time() - used) / passed * 1_000
            server_ms = (self._served() - worked) / passed * 1_000
            began = time.perf_counter()
        return {
            "p50_ms": round(statistics.median(latencies), 2),
            "p99_ms": round(latencies[len(latencies) * 99 // 100], 2),
            "idle_client_ms": round(client_ms, 2),
            "idle_server_ms": round(server_ms, 2),
            "close_ms": round((time.perf_counter() - began) * 1_000, 1),
        }

    def _latencies(self, client: Client, messages: Subscription) -> Sequence[float]:
        """Milliseconds from before a message is published until it is there, one after the other, by one thread."""
        found = []
        for number in range(max(self.settings.latency // 5, 50)):
            began = time.perf_counter()
            client.publish("orders", _BODY, key=str(number))
            message = messages.get("5s")
            found.append((time.perf_counter() - began) * 1_000)
            if message is None:
                raise AssertionError("a message that was published was not delivered")
            message.ack()
            time.sleep(_PAUSE)
        return found


def _beside(figures: Mapping[str, float], none: Mapping[str, float]) -> dict[str, float]:
    """Return the ratios to what the instance without partitions took in the same round."""
    return {f"{side}_to_none": figures[f"{side}_us"] / max(none[f"{side}_us"], 0.01) for side in _SIDES}


def _medians(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the median of each figure; of the ratios to no partitions, those of the rounds."""
    return {figure: round(statistics.median(each[figure] for each in rounds), 2) for figure in rounds[0]}
