"""Costs of instances while nothing happens, and the delay with which one of them does what is due then."""

from __future__ import annotations

import contextlib
import resource
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import redis

from ampsq.base.errors import Unavailable
from ampsq.bench.idle_latency import IdleLatency
from ampsq.bench.idle_world import define, instance_names, linked_pairs
from ampsq.bench.replication import end
from ampsq.bench.replies import info
from ampsq.bench.server import private_server
from ampsq.client.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ampsq.bench.setup import BenchSettings

__all__ = ["IdleBenchmark", "coordinator_at", "worked_by"]

#: Instances whose subscriptions one client process holds.
_HELD_TOGETHER: Final = 250
#: Seconds until what is started must stand, for each instance and beside that.
_STANDS_WITHIN: Final = (0.5, 60.0)
#: Seconds that a coordinator is at work before anything is measured: in ten of them it trusts no absence, and after
#: ten more without anything that happens an instance rests long.
_SETTLES: Final = 30.0
#: Seconds after which it counts as settled, whatever its work does, and between two looks at that.
_SETTLES_WITHIN, _LOOK_EVERY = 90.0, 6.4
#: By how much its work may differ from one look to the next one.
_STEADY: Final = 0.15
_SEED: Final = 22
#: Of the number of a process's clock: all its threads, ended ones too, in nanoseconds (clock_getcpuclockid(3)).
_SCHEDULED: Final = 2
#: Seconds of work by which one look may differ from the next one, however little it is.
_LITTLE: Final = 0.03


class _Used(NamedTuple):
    """The use until a moment: seconds, of the processor but for the first, and calls by command."""

    at: float
    coordinator: float
    clients: float
    server: float
    server_main: float
    calls: dict[str, float]


class IdleBenchmark:
    """The measurements; each number of instances on a server and with a coordinator of its own. Linux only.

    Args:
        settings: how much is measured: `idle_*`.
        progress: called with what is measured next.
    """

    def __init__(self, settings: BenchSettings, progress: Callable[[str], None]) -> None:
        self._settings, self._progress = settings, progress

    def run(self) -> dict[str, object]:
        """Measure each number of instances.

        Raises:
            Unavailable: the system does not tell what processes use.
        """
        if not Path("/proc/self/stat").exists():
            raise Unavailable("this part reads /proc, which only Linux has")
        # A server, a coordinator and clients each have several connections an instance.
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        try:
            return {str(number): self._measure(number) for number in self._settings.idle_instances}
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    def _measure(self, number: int) -> dict[str, object]:
        names = instance_names(number)
        with ExitStack() as stack:
            url = stack.enter_context(private_server())
            server = stack.enter_context(redis.Redis.from_url(url, protocol=2))
            # Of the same program with the same settings, which nobody uses: what is beyond it is ours.
            empty = stack.enter_context(redis.Redis.from_url(stack.enter_context(private_server()), protocol=2))
            server.config_set("maxclients", 8 * number + 1_000)
            self._progress(f"define {number:,} instances")
            began = time.monotonic()
            define(url, names)
            defined = time.monotonic() - began
            clients = [
                stack.enter_context(_clients(url, names[first : first + _HELD_TOGETHER]))
                for first in range(0, number, _HELD_TOGETHER)
            ]
            latencies = IdleLatency(url, names, self._settings.idle_rounds, _SEED, self._progress)
            with coordinator_at(url) as coordinator:
                self._settle(url, names, coordinator)
                processes = [coordinator.pid, *(each.pid for each in clients)]
                self._progress(f"{number:,} idle instances, {self._settings.idle_seconds} s")
                cpu, calls = self._idle(server, empty, processes)
                size, latency = _size(coordinator.pid), latencies.run()
            if linked_pairs(names):
                # Peers of a shared queue see what is durable: a hand-off within a second needs it at once. Links learn
                # how a server flushes when they connect.
                server.config_set("appendfsync", "always")
                with coordinator_at(url) as coordinator:
                    self._settle(url, names, coordinator)
                    latency |= latencies.hand_offs()
            return {
                "definition_s": round(defined, 1),
                "cpu": cpu,
                "commands": calls,
                "coordinator": size,
                "latency": latency,
            }

    def _settle(self, url: str, names: Sequence[str], coordinator: subprocess.Popen[bytes]) -> None:
        """Wait until all links stand and the coordinator works as much as it did before."""
        self._progress(f"{len(names):,} instances settle")
        began = time.monotonic()
        for name in (name for pair in linked_pairs(names) for name in pair):
            with Client(url, instance=name) as client:
                while not all(link.state == "connected" for link in client.admin.replication().links):
                    if time.monotonic() > began + _deadline(len(names)):
                        raise Unavailable(f"the links of {name} do not stand")
                    time.sleep(0.1)
        time.sleep(max(began + _SETTLES - time.monotonic(), 0))
        until, before = time.monotonic() + _SETTLES_WITHIN, 0.0
        while time.monotonic() < until:
            worked = worked_by(coordinator.pid)
            time.sleep(_LOOK_EVERY)
            now = worked_by(coordinator.pid) - worked
            if abs(now - before) <= max(_STEADY * before, _LITTLE):
                return
            before = now

    def _idle(
        self, server: redis.Redis, empty: redis.Redis, processes: Sequence[int]
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Return the cost of one second: ms of the processor, and calls by command.

        Args:
            server: that of the instances.
            empty: one that nobody uses, measured at the same time.
            processes: the coordinator, and the clients.
        """
        first, empty_first = _used(server, processes), _seconds(info(empty, "cpu"))
        time.sleep(self._settings.idle_seconds)
        last, empty_last = _used(server, processes), _seconds(info(empty, "cpu"))
        passed = last.at - first.at

        def each(name: str) -> float:
            return round(float(getattr(last, name) - getattr(first, name)) / passed * 1000, 3)

        cpu = {f"{name}_ms": each(name) for name in ("coordinator", "server", "server_main", "clients")}
        cpu["server_empty_ms"] = round((empty_last - empty_first) / passed * 1000, 3)
        cpu["server_net_ms"] = round(max(cpu["server_ms"] - cpu["server_empty_ms"], 0.0), 3)
        calls = {name: (calls - first.calls.get(name, 0)) / passed for name, calls in last.calls.items()}
        # INFO is ours.
        often = sorted(((number, name) for name, number in calls.items() if number and name != "info"), reverse=True)
        return cpu, {"all": round(sum(number for number, _ in often), 2), **{name: round(n, 2) for n, name in often}}


def _used(server: redis.Redis, processes: Sequence[int]) -> _Used:
    cpu = info(server, "cpu")
    main = "_main_thread" if "used_cpu_user_main_thread" in cpu else ""
    stats = cast("dict[str, dict[str, float]]", server.info("commandstats"))
    coordinator, *clients = map(worked_by, processes)
    return _Used(
        at=time.monotonic(),
        coordinator=coordinator,
        clients=sum(clients),
        server=_seconds(cpu),
        server_main=float(cpu[f"used_cpu_user{main}"]) + float(cpu[f"used_cpu_sys{main}"]),
        calls={name.removeprefix("cmdstat_").replace("|", " "): each["calls"] for name, each in stats.items()},
    )


def _seconds(cpu: dict[str, float]) -> float:
    return cpu["used_cpu_user"] + cpu["used_cpu_sys"]


def worked_by(pid: int) -> float:
    """Seconds of the processor that a process has used, by its own clock: /proc tells no less than 10 ms."""
    return time.clock_gettime(~pid << 3 | _SCHEDULED)


def _size(pid: int) -> dict[str, int]:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {
        "threads": int(status["Threads"]),
        "descriptors": len(list(Path(f"/proc/{pid}/fd").iterdir())),
        "resident_kb": int(status["VmRSS"].split()[0]),
    }


def _deadline(instances: int) -> float:
    return _STANDS_WITHIN[0] * instances + _STANDS_WITHIN[1]


@contextlib.contextmanager
def coordinator_at(url: str) -> Iterator[subprocess.Popen[bytes]]:
    """Have a coordinator at work at a server, in a process of its own."""
    command = [sys.executable, "-m", "ampsq.coordinator", "--url", url]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            end(process)


@contextlib.contextmanager
def _clients(url: str, names: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds a subscription at each of some instances."""
    command = [sys.executable, "-m", "ampsq.bench.idle_world", url, *names]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        giving_up = threading.Timer(_deadline(len(names)), process.kill)
        giving_up.start()
        try:
            if process.stdout is None or process.stdout.readline().strip() != b"subscribed":
                raise Unavailable(f"subscriptions at {len(names):,} instances do not stand")
            giving_up.cancel()
            yield process
        finally:
            giving_up.cancel()
            end(process)
