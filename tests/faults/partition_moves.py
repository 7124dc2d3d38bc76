"""An instance with partitions on a cluster: slots are moved, and primaries, consumers and coordinators are killed.

python tests/faults/partition_moves.py --seed 1 --seeds 20 --server both

A seed decides what is moved or killed, when and in which order. Meanwhile two publishers with a store, whose messages
wait for a replica, one without a name and two consumers, each a process, are at work; all messages have keys.

In the end: what a store took is recorded once, whatever was killed; what was answered for good is there; nothing is
recorded twice; messages of a key are in the order in which they were published; all that is recorded was handled; no
call raised for a move, and none took longer for it than a second, none longer for a killed primary than six; `check`
finds nothing.
"""

# ruff: noqa: E402, T201  (imports behind a path; a command prints)

from __future__ import annotations

import argparse
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from itertools import chain
from pathlib import Path
from typing import NamedTuple

# As a program it finds what pytest finds for tests.
sys.path[:0] = [str(Path(__file__).parents[1])]

from cluster_calls import Called
from cluster_moves import FEW, Harness, measure
from observing import eventually

from ampsq import Client, Queue
from ampsq.base.errors import Unavailable
from ampsq.transport.discovery import slot_of

__all__ = ["Published", "judge", "run"]

TOTAL, KEYS = 12, 8
WORK = Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=50, lease_period="20s")
#: Seconds between faults.
_QUIET = (0.4, 1.2)
#: Seconds in which all is handled once nothing is disturbed any more.
_HEALED = 90.0
#: Moves at most beside those of the seed.
_MORE_MOVES = 5


class Published(NamedTuple):
    """The words of publishers about their messages, each ``(publisher, key, number)``.

    Attributes:
        stored: taken by a store.
        answered: recorded, as the answer to a publisher without a name said.
        unknown: of its calls that raised.
        raised: what these raised.
    """

    stored: set[tuple[str, str, int]]
    answered: set[tuple[str, str, int]]
    unknown: set[tuple[str, str, int]]
    raised: list[Exception]


def judge(published, recorded, handled, *, killed):
    """Return what is wrong.

    Args:
        published: what publishers say.
        recorded: the messages of all partitions, those of each in its order.
        handled: what consumers have acknowledged, or begun to.
        killed: a primary was.
    """
    wrong, there = [], set(recorded)
    if len(there) < len(recorded):
        twice = sorted({each for each in there if recorded.count(each) > 1})
        wrong.append(f"{len(twice)} messages are recorded more than once: {twice[:5]}")
    if lost := sorted(published.stored - there):
        wrong.append(f"{len(lost)} messages of a store are LOST: {lost[:5]}")
    if not killed and (lost := sorted(published.answered - there)):
        wrong.append(f"{len(lost)} answered messages are LOST: {lost[:5]}")
    if made_up := sorted(there - published.stored - published.answered - published.unknown):
        wrong.append(f"{len(made_up)} messages are recorded that nobody published: {made_up[:5]}")
    wrong += _out_of_order(recorded)
    if left := sorted(there - handled):
        wrong.append(f"{len(left)} messages were not handled: {left[:5]}")
    # What a lost primary had recorded, and its replica not yet, may have been handled
    if not killed and (made_up := sorted(handled - there)):
        wrong.append(f"{len(made_up)} messages were handled that are not recorded: {made_up[:5]}")
    wrong += [
        f"raised: {error!r}"
        for error in published.raised
        if not (killed and isinstance(error, Unavailable) and error.may_have_run)
    ]
    return wrong


def _out_of_order(recorded):
    """Return which messages of a key stand behind later ones."""
    wrong, last = [], {}
    for publisher, key, number in recorded:
        if last.get((publisher, key), -1) > number:
            wrong.append(f"{number} of key {key} by {publisher} is recorded behind {last[publisher, key]}")
        last[publisher, key] = number
    return wrong


class _Crew:
    """Publishers in threads, and consumers and a coordinator in processes.

    Args:
        url: the cluster's, with its partitions.
        instance: its name.
        folder: for stores and what consumers write.
    """

    def __init__(self, url, instance, folder):
        self._url, self._instance, self._folder = url, instance, folder
        self._stop, self._threads, self._processes = threading.Event(), [], {}
        self.published, self.calls = Published(set(), set(), set(), []), []

    def client(self):
        return Client(self._url, instance=self._instance, retry_timeout="20s")

    def start(self, name):
        """Start a consumer or a coordinator."""
        if name == "coordinator":
            what = ["-m", "ampsq.cli", "coordinator", "--url", self._url, "--instance", self._instance]
        else:
            what = [__file__, "--consume", self._url, self._instance, str(self._folder / name)]
        self._processes[name] = subprocess.Popen(
            [sys.executable, *what], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def kill(self, name):
        self._processes[name].kill()
        self._processes[name].wait()

    def handled(self):
        """Return what consumers wrote; the last line of one that was killed may be cut."""
        found = set()
        for file in self._folder.glob("consumer-*"):
            for line in file.read_text().splitlines():
                with contextlib.suppress(ValueError):
                    found.add(tuple(json.loads(line)))
        return found

    def __enter__(self):
        for name in ("coordinator", "consumer-1", "consumer-2"):
            self.start(name)
        works = [(self._publish_for_good, "till-1"), (self._publish_for_good, "till-2"), (self._publish, "plain")]
        self._threads = [threading.Thread(target=work, args=(name,)) for work, name in works]
        for each in self._threads:
            each.start()
        return self

    def end_publishing(self):
        self._stop.set()
        for each in self._threads:
            each.join()

    def __exit__(self, *_):
        self.end_publishing()
        for name in self._processes:
            self.kill(name)

    def _call(self, name, call, *args, **options):
        began = time.monotonic()
        try:
            return call(*args, **options)
        finally:
            self.calls.append(Called(name, began, time.monotonic() - began))

    def _bodies(self, name, first):
        return [(name, f"{name}-{number % KEYS}", number) for number in range(first, first + 20)]

    def _publish_for_good(self, name):
        options = {"store": self._folder / f"{name}.db", "persisted": "replicas=1"}
        try:
            with self.client() as client, client.publisher(name, **options) as publisher:
                first = 0
                while not self._stop.wait(0.02):
                    bodies = self._bodies(name, first)
                    publisher.publish_many("orders", bodies, key=lambda body: body[1])
                    self.published.stored.update(bodies)
                    first += len(bodies)
                publisher.flush("60s")
        except Exception as error:  # noqa: BLE001  (what it is, the judge looks at)
            self.published.raised.append(error)

    def _publish(self, name):
        with self.client() as client:
            first = 0
            while not self._stop.wait(0.02):
                bodies = self._bodies(name, first)
                first += len(bodies)
                try:
                    many = self._call("publish_many", client.publish_many, "orders", bodies, key=lambda body: body[1])
                    assert len(many) == len(bodies)
                    self.published.answered.update(bodies)
                except Exception as error:  # noqa: BLE001  (see above)
                    self.published.unknown.update(bodies)
                    self.published.raised.append(error)


def consume(url, instance, file):
    """Handle messages until killed: each is written down, then acknowledged."""
    with (
        Path(file).open("a") as written,
        Client(url, instance=instance, retry_timeout="20s") as client,
        client.subscribe("work", max_backlog=10) as messages,
    ):
        for message in messages:
            print(json.dumps(message.data), file=written, flush=True)
            message.ack()


def run(harness, seed, patience=lambda: 1.0):
    """Run one seed; gives its row.

    Args:
        harness: the cluster, all of whose nodes are well.
        seed: decides.
        patience: gives, once the run is over, how many times as long as promised a call may take.
    """
    rng = random.Random(seed)  # noqa: S311  (no secret)
    instance = f"parts-{seed}-{uuid.uuid4().hex[:4]}"
    faults = ["move", "move", *rng.choices(["move", "consumer-1", "coordinator"], k=3)]
    if seed % 2 == 0:
        faults.append("primary")
    rng.shuffle(faults)
    happened, url = [], f"{harness.url}?partitions={TOTAL}"
    with (
        tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp") as folder,
        Client(url, instance=instance, retry_timeout="30s") as client,
    ):
        client.apply(WORK)
        crew = _Crew(url, instance, Path(folder))
        with crew:
            # Both consumers are at work.
            eventually(lambda: len(list(Path(folder).glob("consumer-*"))) == 2 and crew.handled(), within=60.0)
            for fault in chain(faults, _more_moves(crew.calls, happened)):
                began, slot = time.monotonic(), slot_of(rng.choice(client.partitions))
                if fault == "move":
                    harness.move(slot, rng)
                    happened.append(("move", began, time.monotonic()))
                elif fault == "primary":
                    lost = harness.cluster.lose_primary(slot)
                    # A client may find the new primary a little later.
                    happened.append(("kill", began, time.monotonic() + 1.0))
                    time.sleep(rng.uniform(*_QUIET))  # what is lost stays away
                    harness.cluster.bring_back(lost)
                else:
                    crew.kill(fault)
                    time.sleep(rng.uniform(*_QUIET))  # it stays away
                    crew.start(fault)
                time.sleep(rng.uniform(*_QUIET))  # nothing happens meanwhile
            crew.end_publishing()
            wrong = _settle(client)
        recorded, handled = _read(client), crew.handled()
        killed = "primary" in faults
        stalls, _, disturbed, slow = measure(crew.calls, happened, lambda _began, _until: 0.0, patience())
        wrong += slow + judge(crew.published, recorded, handled, killed=killed)
        wrong += [f"check finds {each}" for each in client.admin.check("work") if not each.clean or each.undecided]
    return {
        "seed": seed, "server": harness.kind, "faults": faults, "messages": len(recorded), "disturbed": disturbed,
        "stalls": {fault: round(took, 2) for fault, took in stalls.items()}, "wrong": wrong,
    }  # fmt: skip


def _more_moves(calls, happened):
    """Give further moves while too few calls were under way at those that happened to show anything."""
    for _ in range(_MORE_MOVES):
        if measure(list(calls), happened, lambda _began, _until: 0.0, 1.0)[2] >= FEW:
            return
        yield "move"


def _settle(client):
    """Wait until all is handled; gives what is wrong where it is not."""
    until = time.monotonic() + _HEALED
    while client.admin.queue_stats("work").depth:
        if time.monotonic() > until:
            return [f"not all is handled: {client.admin.queue_stats('work')}"]
        time.sleep(0.2)  # between two looks
    return []


def _read(client):
    """Return all messages of the topic, those of each partition in its order."""
    found = []
    with client.subscribe_topic("orders", bookmark="epoch") as read:
        while (message := read.get("3s")) is not None:
            found.append(tuple(message.data))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--server", choices=("redis", "valkey", "both"), default="both")
    parser.add_argument("--consume", nargs=3, metavar=("URL", "INSTANCE", "FILE"), help="be one of the consumers")
    options = parser.parse_args()
    if options.consume:
        consume(*options.consume)
        return 0
    rows = []
    for kind in ("valkey", "redis") if options.server == "both" else (options.server,):
        with (
            tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp") as folder,
            contextlib.closing(Harness(kind, folder)) as harness,
        ):
            for seed in range(options.seed, options.seed + options.seeds):
                rows.append(run(harness, seed))
                print(rows[-1], flush=True)
                eventually(harness.cluster.is_whole, within=60.0)
    wrong = sum(bool(row["wrong"]) for row in rows)
    print(f"{len(rows)} seeds, {sum(row['messages'] for row in rows):,} messages, {wrong} with anything wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
