"""Queues with groups whose workers, coordinator and server are killed: ``group_kills.py --seed 1 --seeds 30``.

A seed decides the queue's definition, the messages, who is killed and when; fifteen seeds in turn have every choice of
groups with hold, pass and stop, one and several at a time. Each worker writes down when a handler starts and ends. The
judge demands of each run: nothing is lost; no message of a group starts before the one ahead of it is settled, where
that is promised; no more of a group is in hands than `group_concurrency`; after each kill `check` finds that the counts
of groups are those of their leases; at the end nothing is left of any group. Some queues give groups in batches: for
these all of that holds, too, and a worker has several messages of a group and one in its hands. Some have a rate: no
more of a group, or of all, is begun in any time than it lets go. Where a failure stops a group, each message is
delivered once: what is never handled is a dead letter, and nothing more of the group starts before it is released.
Some bind each group to the worker that got a message of it: then no two workers have messages of one group in their
hands at a time, and a worker that gets a group which another one had finds `group_begins` in its first message. Now and
then a group is paused while somebody is killed: it stays so, and nothing more of it is leased; of two groups what waits
is dropped: just these messages are never handled.
"""

# ruff: noqa: E402, T201  (imports behind a path; a command prints)
from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

# As a program it finds what pytest finds for tests.
sys.path[:0] = [str(Path(__file__).parents[1])]

from campaign import conftest
from group_judge import Held, judge, too_fast, wrong_workers
from network import Node
from observing import eventually

from ampsq import Action, Client, Queue
from ampsq.base.errors import Unavailable
from ampsq.protocol.schema import key

__all__ = ["run", "said"]

_CHILD = Path(__file__).parent / "child.py"
_WORKERS, _MESSAGES, _KILLS = 3, 900, 7
#: Seconds within which everything is handled: a coordinator that has just begun trusts no absence for ten.
_DRAINED = 120.0
#: What fifteen seeds in turn have: how many of a group at a time, and what a failure does to the others of it.
_LIMITS = [(1, "hold"), (1, "stop"), (2, "hold"), (5, "pass"), (3, "stop")]
_CHOICES = ["first", "round_robin", "fair"]


class _Run:
    """One seed: a server, a coordinator, workers, and who is killed."""

    def __init__(self, program, folder, seed):
        self.folder, self.rng = Path(folder), random.Random(seed)  # noqa: S311  (a test's dice)
        self.node = Node(program, self.folder / "server", ["--appendonly", "yes", "--appendfsync", "always"])
        self.instance = f"groups-{seed}"
        self.children, self.died, self.numbers = {}, {}, itertools.count()
        self.concurrency, failure = _LIMITS[(seed - 1) % len(_LIMITS)]
        choice = _CHOICES[(seed - 1) // len(_LIMITS) % len(_CHOICES)]
        self.in_order, self.stops = self.concurrency == 1, failure == "stop"
        self.batch = self.rng.choice([1, 5, 50]) if self.in_order else 1
        self.groups = self.rng.choice([3, 20, 100])
        limits = {}
        self.rate = self.rng.choice(["", "", "rate", "group_rate"])
        if self.rate:
            self.each_second = 400 if self.rate == "rate" else max(300 // self.groups, 5)
            self.burst = self.rng.choice([1, 5, 20])
            limits = {self.rate: f"{self.each_second}/s", f"{self.rate}_burst": self.burst}
        # How long a group stays with the worker that got a message of it; "": it does not.
        self.affinity = random.Random(f"affinity {seed}").choice(["", "300ms", "5s"])  # noqa: S311
        if self.affinity:
            limits["group_affinity"] = self.affinity
        self.queue = Queue(
            name="work",
            underlying_topic="orders",
            group_by="/g",
            group_concurrency=self.concurrency,
            group_choice=choice,
            on_group_failure=failure,
            group_batch=self.batch,
            max_per_subscription_backlog=50,
            max_deliveries=1 if self.stops else 0,
            lease_period="60s",
            **limits,
        )
        batches = f" in batches of {self.batch}" if self.batch > 1 else ""
        rates = f", {self.rate} {self.each_second}/s by {self.burst}" if self.rate else ""
        affinity = f", bound for {self.affinity}" if self.affinity else ""
        self.what = f"{choice}, {failure}, concurrency {self.concurrency}, {self.groups} groups"
        self.what += f"{batches}{rates}{affinity}"

        self.administers, self.dropped, self.pauses = random.Random(f"administers {seed}"), {}, 0  # noqa: S311
        self.releases = defaultdict(list)

    def release(self, client):
        """Let all stopped groups go on."""
        for each in client.admin.groups("work", limit=500).groups:
            if each.stopped is not None:
                self.releases[each.group].append(time.monotonic())
                client.admin.release_group("work", each.group)

    def letters(self):
        """Return group and number of the messages that are dead letters."""
        with self.node.client() as server:
            found = server.xrange(key(self.instance, "log", "dead"))
        bodies = [json.loads(fields["b"])["message"] for _, fields in found]
        return {(body["g"], body["n"]) for body in bodies}

    def unhandled(self, published, held):
        """Return group and number of each message that nobody handled to the end."""
        done = {(each.group, each.number) for each in held if each.is_done}
        return {(group, n) for group, number in published.items() for n in range(number)} - done

    def too_fast(self, held):
        """Say where more was begun than the rate lets go."""
        if not self.rate:
            return []
        if self.rate == "rate":
            # What was delivered before a time and is begun later waits in the backlog of a worker.
            backlogs = 6 * (_WORKERS + 1)
            return ["the rate was exceeded"] * too_fast(
                [each.start for each in held], self.burst + backlogs, self.each_second
            )
        by_group = defaultdict(list)
        for each in held:
            by_group[each.group].append(each.start)
        wrong = []
        for group, starts in by_group.items():
            # A release gives the whole burst again.
            bursts = self.burst * (1 + len(self.releases[group]))
            if too_fast(starts, bursts + max(self.concurrency, self.batch), self.each_second):
                wrong.append(f"{group}: its rate was exceeded")
        return wrong

    def pause(self, client):
        """Pause a group; gives its name, and how many messages of it are leased then."""
        group = f"g{self.administers.randrange(self.groups)}"
        client.admin.pause_group("work", group)
        self.pauses += 1
        return group, self.state(client, group).leased

    def resume(self, client, paused):
        """Resume what was paused; says whether it was so all the time."""
        if paused is None:
            return []
        group, leased = paused
        state = self.state(client, group)
        client.admin.resume_group("work", group)
        if state is None or state.paused is None:
            return [f"{group} was paused, and is not"]
        return [f"{group} is paused, and {state.leased} of it are leased"] if state.leased > leased else []

    def state(self, client, group):
        return next((each for each in client.admin.groups("work", limit=500).groups if each.group == group), None)

    def drop(self, client):
        """Drop what waits of a group, of two groups in a run at most."""
        group = f"g{self.administers.randrange(self.groups)}"
        if self.administers.random() < 0.3 and len({*self.dropped, group}) <= 2:
            self.dropped[group] = self.dropped.get(group, 0) + client.admin.drop_group("work", group)

    def start(self, role, *arguments):
        """Start a process under a name of its own; gives the name."""
        name = f"{role}-{next(self.numbers)}"
        self.children[name] = subprocess.Popen(
            [sys.executable, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        return name

    def start_worker(self):
        path = self.folder / f"records-{next(self.numbers)}"
        name = self.start("worker", _CHILD, "groups", self.node.url, self.instance, path, self.rng.randrange(2**31))
        self.children[name].records = path
        return name

    def start_coordinator(self):
        arguments = ("--url", self.node.url, "--instance", self.instance)
        return self.start("coordinator", "-m", "ampsq.coordinator", *arguments)

    def kill(self, name):
        self.children[name].kill()
        self.children[name].wait()
        self.died[name] = time.monotonic()

    def held(self):
        """Return what the workers had in their hands."""
        found = []
        for name, child in self.children.items():
            if not name.startswith("worker"):
                continue
            started = {}
            # A line that a killed one did not finish is left out.
            lines = child.records.read_text().splitlines(keepends=True) if child.records.exists() else []
            for record in (json.loads(line) for line in lines if line.endswith("\n")):
                what = (record.get("group"), record.get("number"), record.get("delivery"))
                if record["what"] == "start":
                    started[what] = record["at"], record["begins"]
                elif record["what"] in {"end", "failed"}:
                    start, begins = started.pop(what)
                    found.append(
                        Held(*what[:2], start, record["at"], record["what"] == "end", worker=name, begins=begins)
                    )
            over = self.died.get(name, float("inf"))
            found += [
                Held(*what[:2], at, over, is_done=False, worker=name, begins=begins)
                for what, (at, begins) in started.items()
            ]
        return found

    def close(self):
        for child in self.children.values():
            if child.poll() is None:
                child.kill()
            child.wait()
        if self.node.process.poll() is None:
            self.node.kill()


def run(program, folder, seed):
    """Carry out one seed; gives a row: what was done, and what is wrong."""
    with contextlib.closing(_Run(program, folder, seed)) as one, contextlib.ExitStack() as stack:
        client = stack.enter_context(Client(one.node.url, instance=one.instance))
        client.apply(one.queue, Action.dead_letter("work", "dead"))
        workers = [one.start_worker() for _ in range(_WORKERS)]
        coordinator = one.start_coordinator()
        eventually(lambda: client.admin.queue_stats("work").subscriptions == _WORKERS, within=40.0)
        published = dict.fromkeys((f"g{number}" for number in range(one.groups)), 0)
        wrong, kills, left = [], defaultdict(int), _MESSAGES
        for number in range(_KILLS):
            part = left if number == _KILLS - 1 else min(left, _MESSAGES // _KILLS)
            left -= part
            bodies = []
            for _ in range(part):
                group = one.rng.choice(list(published))
                bodies.append({"g": group, "n": published[group]})
                published[group] += 1
            # A kill of the server comes between two publishes: what a lost reply may double is not looked at here.
            client.publish_many("orders", bodies)
            paused = one.pause(client) if one.administers.random() < 0.5 else None
            one.drop(client)
            time.sleep(one.rng.uniform(0.1, 0.8))  # the workers are in the middle of it
            who = one.rng.choice(["worker", "worker", "coordinator", "server"])
            kills[who] += 1
            if who == "worker":
                victim = one.rng.randrange(_WORKERS)
                one.kill(workers[victim])
                workers[victim] = one.start_worker()
            elif who == "coordinator":
                one.kill(coordinator)
                coordinator = one.start_coordinator()
            else:
                one.node.kill()
                one.node.start()
            wrong += _checked(client, f"after a kill of the {who}")
            wrong += one.resume(client, paused)
            one.release(client)

        def is_drained():
            one.release(client)
            return client.admin.queue_stats("work").depth == 0

        try:
            eventually(is_drained, within=_DRAINED)
        except AssertionError:
            wrong.append(f"stuck: {client.admin.queue_stats('work')}")
        one.release(client)
        wrong += _checked(client, "at the end")
        try:
            # What is bound is there until its time is over.
            eventually(lambda: not client.admin.groups("work").groups, within=30.0 if one.affinity else 0.0)
        except AssertionError:
            groups = client.admin.groups("work").groups
            wrong.append(f"{len(groups)} groups are left: {groups[:2]}")
        held = one.held()
        wrong += judge(
            held, published, one.concurrency, in_order=one.in_order, in_batches=one.batch > 1, dropped=one.dropped,
            releases=one.releases if one.stops else None,
        )  # fmt: skip
        wrong += wrong_workers(held, one.concurrency) if one.affinity else []
        wrong += one.too_fast(held)
        unhandled = one.unhandled(published, held)
        try:
            eventually(lambda: unhandled <= one.letters(), within=60.0)
        except AssertionError:
            lost = sorted(unhandled - one.letters())
            wrong.append(f"{len(lost)} messages were neither handled nor given up: {lost[:5]}")
        return {
            "seed": seed,
            "queue": one.what,
            "kills": dict(kills),
            "paused": one.pauses,
            "dropped": sum(one.dropped.values()),
            "stops": sum(map(len, one.releases.values())),
            "handled": sum(each.is_done for each in held),
            "given_up": len(unhandled),
            "again": sum(not each.is_done for each in held),
            "begun": sum(each.begins for each in held),
            "wrong": wrong,
        }


def _checked(client, when):
    """Say what `check` finds, once the server answers again."""
    until = time.monotonic() + 30
    while True:
        try:
            return [f"{when} check finds {each}" for each in client.admin.check("work") if not each.clean]
        except Unavailable:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)  # the server is back in a moment


def said(row):
    """A line about a run."""
    kills = ", ".join(f"{number} of the {who}" for who, number in sorted(row["kills"].items()))
    well = "; ".join(row["wrong"]) or "well"
    done = f"{row['handled']} handled, {row['again']} again, {row['dropped']} dropped"
    done += f", {row['paused']} pauses, {row['stops']} stops, {row['begun']} times bound anew"
    return f"seed {row['seed']}: {row['queue']}; kills: {kills}; {done}: {well}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--server", choices=("redis", "valkey"), default="valkey")
    options = parser.parse_args()
    wrong = 0
    for seed in range(options.seed, options.seed + options.seeds):
        with tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp") as folder:
            row = run(conftest().program_of(options.server), folder, seed)
        print(said(row), flush=True)
        wrong += bool(row["wrong"])
    print(f"{options.seeds} seeds, {wrong} with anything wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
