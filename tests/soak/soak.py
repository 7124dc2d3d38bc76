"""The soak: everything at once on real servers for a long time, and afterwards nothing is lost, doubled or has grown.

python tests/soak/soak.py --seconds 7200 --seed 1
python tests/soak/soak.py --seconds 300 --leak key

Exit code 1: something is lost or doubled, grew, or too little went through. `docs/testing.md` says what runs.
"""

# ruff: noqa: E402, S311, T201  (imports behind a path; chance is what is wanted; a command prints)

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# As a program it finds what pytest finds for tests.
sys.path[:0] = [str(Path(__file__).parents[1])]

from data.format4.load import instances_of, load, read_dump
from observing import eventually
from soak_measure import measure
from soak_report import Report
from soak_world import QUEUES, Child, Hook, Host, define, launcher

from ampsq import Client
from ampsq.base.errors import AmpsqError, ServerFull
from ampsq.protocol.schema import key

__all__ = ["Soak"]

#: Seconds between two kills of a long run; a short one has at least twelve.
_KILLS = 20.0
#: Seconds in which everything has to be done once nothing is disturbed any more.
_DRAINED = 180.0
#: Messages of the topic that nobody trims, so that a rewrite has something to write.
_ARCHIVED = 5_000
#: What one coordinator of the first instance does for all: a view, a webhook, a link.
_DUTIES = 3
#: Publishers that say that they are quiet.
_QUIET = ("plain", "guaranteed", "tasks", "kept", "keyed", "here", "there", "spark")


def _load_upgraded(host):
    """Load the dump of format 4, upgrade it as an administrator does, and let the soak be in the largest instance."""
    lines = read_dump()
    with host.redis() as redis:
        load(redis, lines)
    for name in instances_of(lines):
        command = [sys.executable, "-m", "ampsq.cli", "upgrade", "--url", host.url, "--instance", name, "--yes"]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=60.0)
    host.name = "format4-nyc"
    with Client(host.url, instance=host.name) as client:
        # Their peers are not there: what is to be replicated to them would never be.
        for name in client.admin.destinations():
            client.admin.remove_destination(name)


class Soak:
    """One run.

    Args:
        folder: for the servers and what processes write down; a short path.
        seed: chooses who is killed and when.
        leaks: what a consumer is to leak: `key`, `memory`, `thread`.
        has_spark: whether a job of Spark writes, too.
        is_upgraded: whether one of the instances is that of the dump of format 4, upgraded.
    """

    def __init__(self, folder, seed, leaks=(), *, has_spark=True, is_upgraded=False):
        self.folder, self.has_spark, self._chance = folder, has_spark, random.Random(seed)
        self.kills, self.misses, self.looks = [], 0, []
        self.rewrites, self.limits, self.behind, self.epoch = [], [], [], 0
        self._later = []
        for name in ("published", "consumed", "probe", "said", "quiet"):
            (folder / name).mkdir()
        self._stack = contextlib.ExitStack()
        try:
            self._make(leaks, is_upgraded=is_upgraded)
        except BaseException:
            self._stack.close()
            raise

    def _make(self, leaks, *, is_upgraded):
        """Start the servers, and say who is to work there."""
        self.hook = Hook()
        self._stack.callback(self.hook.end)
        launch = launcher().launch
        other = "redis" if shutil.which("redis-server") else "valkey"
        self.here = self._host(launch, "a", "valkey", "--repl-backlog-size", "16384", "--repl-diskless-sync-delay", "0",
                               "--client-output-buffer-limit", "replica 262144 65536 2")  # fmt: skip
        if is_upgraded:
            _load_upgraded(self.here)
        self.there = self._host(launch, "b", other)
        self.replica = self._host(launch, "r", "valkey", "--replicaof", f"127.0.0.1 {self.here.port}")
        define(self.here, self.there, self.hook.address)
        self.children = {each.name: each for each in self._people(leaks) if self.has_spark or each.name != "Spark"}
        self._stack.callback(self._end_people)

    def _host(self, launch, short, kind, *options):
        host = Host(launch, self.folder / short, f"soak-{short}", kind, *options)
        self._stack.callback(host.end)
        return host

    def _people(self, leaks):
        """The processes: those named `steady` are never killed."""

        def child(name, module, role, host, *more):
            return Child(self.folder, name, module, role, host.url, host.name, str(self.folder), *more)

        def coordinator(name, host):
            return Child(self.folder, name, "ampsq.coordinator", "--url", host.url, "--instance", host.name,
                         "--allow-webhooks", self.hook.address)  # fmt: skip

        here, there = self.here, self.there
        return [
            coordinator("coordinator (steady)", here),
            coordinator("coordinator", here),
            coordinator("coordinator there", there),
            child("publisher", "soak_publishers", "plain", here),
            child("publisher with a store", "soak_publishers", "guaranteed", here),
            child("publisher there", "soak_publishers", "there", there),
            child("publishing tasks (steady)", "soak_publishers", "tasks", here),
            child("Spark", "soak_publishers", "spark", here),
            child("worker (steady)", "soak_consumers", "work", here),
            child("worker", "soak_consumers", "work", here),
            child("subscriptions (steady)", "soak_consumers", "subscriptions", here, *leaks),
            child("subscription", "soak_consumers", "ranked", here),
            child("durable readers", "soak_consumers", "durable", here),
            child("consuming tasks (steady)", "soak_consumers", "tasks", here),
            child("shared worker (steady)", "soak_consumers", "shared", here),
            child("shared worker there", "soak_consumers", "shared", there),
            Child(self.folder, "ampsq worker", "ampsq.cli", "worker", "soak_consumers:handle", "--queue", "cli",
                  "--url", here.url, "--instance", here.name, "--concurrency", "2"),
        ]  # fmt: skip

    @property
    def _steady(self):
        return [child for child in self.children.values() if child.is_steady]

    def run(self, seconds):
        """Let everything go on for so long; gives a `Report`, whose `findings` are empty if all is well."""
        with self._stack:
            self._begin()
            self._look()
            self._resume()
            began = time.monotonic()
            rounds = max(8, min(24, round(seconds / 60)))
            pause = min(_KILLS, seconds / 12)
            next_kill = began + 2.0
            for number in range(rounds):
                ends = max(began + seconds * (number + 1) / rounds, time.monotonic() + 6.0)
                disturb = [self._rewrite, self._fill, self._stop_replica][number % 3]
                self._at(time.monotonic() + 1.0, disturb)
                while (now := time.monotonic()) < ends:
                    if now >= next_kill:
                        next_kill = now + pause
                        self._kill(is_early=now - began < seconds / 3)
                    self._do_what_is_due(now)
                    self._watch()
                    time.sleep(0.1)  # between two looks
                self._do_what_is_due(float("inf"))
                self._look()
                if number < rounds - 1:
                    self._resume()
                next_kill = max(next_kill, time.monotonic() + 2.0)
            report = Report(self, seconds, time.monotonic() - began)
            report.account()
            self._end_people()
            report.compare_replica()
            return report

    def _begin(self):
        with Client(self.here.url, instance=self.here.name) as client:
            client.publish_many("archive", ({"text": "x" * 400} for _ in range(_ARCHIVED)), batch=500)
        first, *others = self.children.values()
        first.start()
        # It takes up the duties that are one coordinator's, and keeps them: what it uses does not change with them.
        with self.here.redis() as redis:
            eventually(lambda: redis.hlen(key(self.here.name, "keepers")) >= _DUTIES, within=600.0)
        for child in others:
            child.start()
        first = ("cli", "shared", "main", "ranked", "topic-live")
        eventually(lambda: self._watch() or all(self._size(f"consumed/{name}") for name in first), within=600.0)
        # On a machine that is busy Spark takes minutes to begin: it joins in then, and its leg says how far it came.
        with contextlib.suppress(AssertionError):
            eventually(lambda: self._is_told("spark") or not self.has_spark, within=120.0)

    def _is_told(self, by):
        path = self.folder / "published" / by
        return path.exists() and "p " in path.read_text()

    def _size(self, name):
        path = self.folder / name
        return path.stat().st_size if path.exists() else 0

    # -- disturbing

    def _at(self, moment, act):
        self._later.append((moment, act))

    def _do_what_is_due(self, now):
        due = [each for each in self._later if each[0] <= now]
        self._later = [each for each in self._later if each[0] > now]
        for moment, act in sorted(due, key=lambda each: each[0]):
            # What ends something waits for its time also where everything else is over.
            time.sleep(max(moment - time.monotonic(), 0.0) if now == float("inf") else 0.0)
            act()
        if now == float("inf") and self._later:
            self._do_what_is_due(now)

    def _kill(self, *, is_early):
        """Kill somebody, who is started again soon. Servers die in the first third alone: the rest is one life."""
        victims = [child.name for child in self.children.values() if not child.is_steady and child.name != "Spark"]
        if is_early:
            # Each of them surely, in a short run too.
            killed = {name for name, _ in self.kills}
            servers = [name for name in ("server", "server there") if name not in killed]
            victims = servers or [*victims, "server", "server there"]
        name = self._chance.choice(victims)
        victim = {"server": self.here, "server there": self.there}.get(name) or self.children[name]
        if not victim.kill():
            self.misses += 1
            print(f"{name} was dead before it was killed", flush=True)
        else:
            self.kills.append((name, time.monotonic()))
        self._at(time.monotonic() + self._chance.uniform(0.0, 1.5), victim.start)

    def _rewrite(self):
        """Rewrite the append-only file; the server takes its time for it, while everything goes on."""
        with self.here.redis() as redis:
            redis.config_set("rdb-key-save-delay", 40_000)
            redis.bgrewriteaof()
        self._rewriting = (self._settled_lines(), self.here.pid)
        self._at(time.monotonic() + 2.0, self._rewritten)

    def _rewritten(self):
        before, pid = self._rewriting
        with self.here.redis() as redis:
            is_on = redis.info("persistence")["aof_rewrite_in_progress"]
            redis.config_set("rdb-key-save-delay", 0)
            eventually(lambda: not redis.info("persistence")["aof_rewrite_in_progress"], within=60.0)
            is_good = redis.info("persistence")["aof_last_bgrewrite_status"] == "ok"
        if is_good and pid == self.here.pid:
            self.rewrites.append((bool(is_on), self._settled_lines() - before))

    def _settled_lines(self):
        return sum(self._size(f"consumed/{name}") for name in ("main", "ranked", "days", "cli"))

    def _fill(self):
        """Let the server have less memory than it uses, until publishers are refused, and a while longer."""
        refused = self._size("refused")
        with self.here.redis() as redis:
            redis.config_set("maxmemory-policy", "noeviction")
            redis.config_set("maxmemory", int(redis.info("memory")["used_memory"] * 0.8))
        self._at(time.monotonic() + 3.0, lambda: self._empty(refused))

    def _empty(self, refused):
        with Client(self.here.url, instance=self.here.name) as client:
            try:
                client.publish("archive", "one more")
                is_full = False
            except ServerFull:
                is_full = True
            with self.here.redis() as redis:
                redis.config_set("maxmemory", 0)
            client.publish("archive", "and one more")
        if is_full and self._size("refused") > refused:
            self.limits.append(time.monotonic())

    def _stop_replica(self):
        """Stop the replica for a while: what it misses is more than the server keeps for it."""
        self.replica.server.process.send_signal(signal.SIGSTOP)
        self._at(time.monotonic() + 6.0, self._continue_replica)

    def _continue_replica(self):
        found = self.here.ask("replication")
        self.replica.server.process.send_signal(signal.SIGCONT)
        # One that is too far behind is not known any more.
        told = found.get("slave0", {}).get("offset", 0)
        self.behind.append(found["master_repl_offset"] - told)

    def _watch(self):
        """A process that ended by itself is a finding, and is started again."""
        for child in self.children.values():
            due = {act for _, act in self._later}
            if not child.is_alive and child.start not in due:
                raise RuntimeError(f"{child.name} ended by itself: see {self.folder / 'said' / child.name}")

    # -- looking

    def _look(self):
        """Let everything be done, trim, and look."""
        began = time.monotonic()
        self.epoch += 1
        (self.folder / "pause").write_text(str(self.epoch))
        eventually(
            lambda: all(self._said_quiet(name) for name in _QUIET if name != "spark" or self._size("published/spark")),
            within=_DRAINED,
        )
        quiet = time.monotonic()
        with contextlib.ExitStack() as stack:
            clients = [
                stack.enter_context(Client(each.url, instance=each.name, retry_timeout="60s"))
                for each in (self.here, self.there)
            ]
            self._drained(clients)
            drained = time.monotonic()
            self._trimmed(clients)
            settled = self.settled(clients)
        self.looks.append(measure(settled, [self.here, self.there], self._steady))
        now = time.monotonic()
        print(
            f"{settled:,} settled; quiet {quiet - began:.1f} s, drained {drained - quiet:.1f} s, "
            f"trimmed and looked at {now - drained:.1f} s; {len(self.kills)} kills",
            flush=True,
        )

    def _resume(self):
        (self.folder / "pause").unlink()

    def _said_quiet(self, name):
        path = self.folder / "quiet" / name
        return path.exists() and path.read_text() == str(self.epoch)

    @staticmethod
    def settled(clients):
        """Messages that all queues have settled."""
        found = [client.admin.queue_stats(name) for client in clients for name in client.admin.queues()]
        return sum(each.acknowledged + each.expired + each.evicted + each.missing for each in found)

    @staticmethod
    def _queues(client):
        return QUEUES.intersection(client.admin.queues())

    def _drained(self, clients):
        """Wait until nothing waits anywhere, twice in a row: what actions publish comes a little later."""

        def is_done():
            found = [client.admin.queue_stats(name) for client in clients for name in self._queues(client)]
            return all(not each.depth and not each.remote for each in found)

        try:
            for _ in range(2):
                eventually(is_done, within=_DRAINED)
                time.sleep(0.5)  # what comes late shows
            eventually(is_done, within=_DRAINED)
        except AssertionError:
            for client in clients:
                for name in self._queues(client):
                    stats = client.admin.queue_stats(name)
                    if stats.depth or stats.remote:
                        print(client.instance, name, {each: getattr(stats, each) for each in stats.__slots__})
                        with contextlib.suppress(AmpsqError):
                            print(client.admin.explain(name).sentence, flush=True)
            raise

    @staticmethod
    def _trimmed(clients):
        """Let logs and journals lose what they can; what a link has not passed on yet it has a moment later."""
        for _ in range(5):
            removed = [
                client.admin.trim(name, age="0s").removed
                for client in clients
                for name in client.admin.topics()
                if name != "archive"
            ]
            time.sleep(0.5)  # before it is asked again
            if not any(removed):
                return

    def _end_people(self):
        for child in self.children.values():
            if child.is_alive:
                child.process.terminate()
        for child in self.children.values():
            child.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=7_200.0, help="how long; default two hours")
    parser.add_argument("--seed", type=int, default=1, help="who is killed and when")
    parser.add_argument(
        "--leak",
        action="append",
        default=[],
        choices=["key", "memory", "thread"],
        help="what a consumer is to leak, one each 1,000 settled messages; may be repeated",
    )
    parser.add_argument("--no-spark", action="store_true", help="leave out the job of Spark, which needs a Java")
    parser.add_argument("--upgraded", action="store_true", help="with the dump of format 4, upgraded, as an instance")
    parser.add_argument("--keep", help="a folder for everything that was written down; default: it is removed")
    options = parser.parse_args()
    # Who ends it ends all that it started.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    # That connections are lost is meant.
    logging.getLogger("ampsq").setLevel(logging.ERROR)
    with contextlib.ExitStack() as stack:
        folder = options.keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp"))
        Path(folder).mkdir(exist_ok=True)
        soak = Soak(
            Path(folder), options.seed, options.leak, has_spark=not options.no_spark, is_upgraded=options.upgraded
        )
        report = soak.run(options.seconds)
        print(report.text())
        if options.keep:
            looks = [[look.settled, [[*name, *line] for name, line in look.lines.items()]] for look in report.looks]
            (Path(folder) / "looks.json").write_text(json.dumps(looks))
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
