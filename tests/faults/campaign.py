"""A campaign of faults: two instances share a queue while servers, workers, coordinators and connections die.

python tests/faults/campaign.py --seconds 60 --seed 1
python tests/faults/campaign.py --power --seconds 60 --seed 1

With ``--power`` a server that dies comes back without up to the last 0.9 s of its append-only file. In the end, what
publishers were told to be on the disk is at both instances, each message once, all is handled, and `check` finds
nothing.
"""

# ruff: noqa: E402, S311, T201  (imports behind a path; chance is what is wanted; a command prints)

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import logging
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from pathlib import Path

# As a program it finds what pytest finds for tests.
sys.path[:0] = [str(Path(__file__).parents[1])]

from observing import eventually
from power import OPTIONS, cut_back, length_of

from ampsq import Client, Destination, MemoryPublishStore, Queue, Topic, Worker
from ampsq.base.errors import AmpsqError
from ampsq.protocol.schema import key

__all__ = ["Campaign", "Failed"]

HERE = Path(__file__)
#: Seconds of the file that a loss of power takes at most, and between two looks at how long it is.
_LOST, _LOOK = 0.9, 0.05
#: Seconds in which all has to be over once nothing is disturbed any more.
_HEALED = 240.0
#: Messages that a publisher sends a second, about.
_RATE = 100


class Failed(Exception):
    """Something is not as it must be; the text says what."""


def launcher():
    """How the tests start servers."""
    spec = importlib.util.spec_from_file_location("conftest_of_tests", HERE.parent.parent / "conftest.py")
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found
    spec.loader.exec_module(found)
    return found.launch


class Site:
    """One instance: its server, its coordinator and its worker, each a process that may be killed at any time."""

    def __init__(self, launch, folder, short):
        self._launch, self._folder, self.name = launch, folder / short, f"campaign-{short}"
        self.server = launch("valkey", self._folder, appendonly=True, options=OPTIONS)
        self.processes = {}
        self._lengths = deque()
        self._stopping = threading.Event()
        self._looking = threading.Thread(target=self._look)
        self._guard = threading.Lock()

    @property
    def url(self):
        return self.server.url

    def begin(self):
        self._looking.start()
        for role in ("coordinator", "worker"):
            self.start(role)

    def start(self, role):
        command = {
            "coordinator": ["-m", "ampsq.coordinator", "--url", self.url, "--instance", self.name],
            "worker": [str(HERE), "--work", self.url, self.name],
        }[role]
        self.processes[role] = subprocess.Popen(
            [sys.executable, *command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def kill(self, role):
        self.processes[role].kill()
        self.processes[role].wait()

    def _look(self):
        while not self._stopping.wait(_LOOK):
            with self._guard:
                now = time.monotonic()
                self._lengths.append((now, length_of(self._folder)))
                while self._lengths[0][0] < now - _LOST:
                    self._lengths.popleft()

    def crash(self, lost):
        """Kill the server; gives bytes lost: of the file all that came in the last `lost` seconds."""
        with self._guard:
            died = time.monotonic()
            self.server.process.kill()
            self.server.process.wait()
            known = [length for at, length in self._lengths if at >= died - lost]
            gone = cut_back(self._folder, known[0]) if known else 0
            self._lengths.clear()
        return gone

    def recover(self):
        self.server = self._launch("valkey", self._folder, appendonly=True, options=OPTIONS)

    def drop_connections(self):
        with contextlib.closing(self.server.client()) as redis:
            redis.client_kill_filter(_type="normal", skipme=True)

    def end(self):
        self._stopping.set()
        if self._looking.ident:
            self._looking.join()
        for role in self.processes:
            self.kill(role)
        self.server.end()


class Publisher:
    """Publishes with a guarantee, from a thread, and notes what it was told to be on the disk."""

    def __init__(self, site, name):
        self.bodies, self.told, self.failure = [], 0, None
        self._client = Client(site.url, instance=site.name, retry_timeout="60s", heartbeat="600ms")
        self._publisher = self._client.publisher(
            name, store=MemoryPublishStore(), persisted="fsync", on_persisted=self._persisted
        )
        self._name, self._stopping = name, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _persisted(self, ack):
        self.told = ack.sequence

    def _run(self):
        try:
            while not self._stopping.wait(10 / _RATE):
                body = [f"{self._name} {number}" for number in range(len(self.bodies), len(self.bodies) + 10)]
                self._publisher.publish_many("orders", body)
                self.bodies += body
        except BaseException as error:  # noqa: BLE001 - told at the end
            self.failure = error

    def finish(self):
        """Stop, and wait until all is on the disk."""
        self._stopping.set()
        self._thread.join(_HEALED)
        if self.failure is not None:
            raise Failed(f"publisher {self._name} gave up: {self.failure!r}") from self.failure
        self._publisher.flush(_HEALED)
        if self.told != len(self.bodies):
            raise Failed(f"publisher {self._name}: told {self.told} of {len(self.bodies)} after a flush")

    def close(self):
        self._stopping.set()
        self._thread.join(_HEALED)
        with contextlib.suppress(AmpsqError):
            self._client.close()


class Campaign:
    """One run.

    Args:
        folder: for the servers; a short path.
        seed: chooses the disturbances.
        power: servers lose the end of their files.
    """

    def __init__(self, folder, seed, *, power):
        self._chance, self._power = random.Random(seed), power
        launch = launcher()
        self._stack = contextlib.ExitStack()
        self.sites = []
        for short in "ab":
            self.sites.append(Site(launch, folder, short))
            self._stack.callback(self.sites[-1].end)
        self.publishers, self.faults, self.lost = [], Counter(), 0

    def run(self, seconds):
        """Disturb for so long, then let it heal and judge; gives a line of figures.

        Raises:
            Failed: something is not as it must be.
        """
        with self._stack:
            self._define()
            for number, site in enumerate(self.sites):
                site.begin()
                self.publishers.append(Publisher(site, f"till-{number}"))
                self._stack.callback(self.publishers[-1].close)
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                # How long it goes well between two faults is a part of the campaign.
                time.sleep(self._chance.uniform(0.1, 1.5))
                self._disturb()
            healing = time.monotonic()
            for publisher in self.publishers:
                publisher.finish()
            self._judge()
            published = sum(len(each.bodies) for each in self.publishers)
            return (
                f"{sum(self.faults.values())} faults ({', '.join(f'{n} {what}' for what, n in self.faults.items())}), "
                f"{self.lost:,} bytes lost, {published:,} messages at both instances once, handled "
                f"{time.monotonic() - healing:.1f} s after the last fault"
            )

    def _define(self):
        for here, there in (self.sites, self.sites[::-1]):
            with Client(here.url, instance=here.name) as client:
                client.apply(
                    Topic(name="orders"),
                    Queue(name="work", underlying_topic="orders", lease_period="20s", max_per_subscription_backlog=50),
                    Destination(
                        name="other", sync_type="sync", topics=["orders", "work"],
                        addresses=[f"{there.url}#{there.name}"],
                    ),
                )  # fmt: skip

    def _disturb(self):
        site = self._chance.choice(self.sites)
        what = self._chance.choice(["server", "server", "worker", "coordinator", "connections"])
        self.faults[what] += 1
        if what == "server":
            self.lost += site.crash(self._chance.uniform(0.0, _LOST) if self._power else 0.0)
            # It is away for a while.
            time.sleep(self._chance.uniform(0.0, 1.0))
            site.recover()
        elif what == "connections":
            site.drop_connections()
        else:
            site.kill(what)
            time.sleep(self._chance.uniform(0.0, 0.5))
            site.start(what)

    def _judge(self):
        wanted = Counter(json.dumps(body) for publisher in self.publishers for body in publisher.bodies)
        for site in self.sites:
            eventually(lambda site=site: self._bodies(site).keys() >= wanted.keys(), within=_HEALED)
        with contextlib.ExitStack() as stack:
            clients = [
                stack.enter_context(Client(site.url, instance=site.name, retry_timeout="60s")) for site in self.sites
            ]

            def is_handled():
                found = [client.admin.queue_stats("work") for client in clients]
                return all(not each.depth and not each.remote for each in found)

            eventually(is_handled, within=_HEALED)
            for site, client in zip(self.sites, clients, strict=True):
                found = self._bodies(site)
                if found != wanted:
                    raise Failed(f"{site.name}: more {found - wanted}, less {wanted - found}")
                for checked in client.admin.check():
                    if checked.differences or checked.undecided:
                        raise Failed(f"{site.name}: {checked}")

    @staticmethod
    def _bodies(site):
        with contextlib.closing(site.server.client()) as redis:
            return Counter(fields[b"b"].decode() for _, fields in redis.xrange(key(site.name, "log", "orders")))


def work(url, instance):
    """A worker, as a process of its own; it is killed."""
    Worker(lambda _: time.sleep(0.001), "work", url=url, instance=instance, concurrency=4, max_backlog=50).run()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--power", action="store_true", help="servers come back without their last moments")
    parser.add_argument("--seconds", type=float, default=60.0, help="for how long there are faults")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", nargs=2, metavar=("URL", "INSTANCE"), help="be a worker")
    options = parser.parse_args()
    if options.work:
        return work(*options.work)
    # That connections are lost is meant.
    logging.getLogger("ampsq").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp") as folder:
        print(Campaign(Path(folder), options.seed, power=options.power).run(options.seconds))
    return None


if __name__ == "__main__":
    main()
