"""One instance whose primary is lost: a Sentinel's or a cluster's, with one replica of each primary."""

from __future__ import annotations

import contextlib
import signal
import time
from pathlib import Path

import redis
from campaign_judge import PROMISED
from campaign_pair import define
from campaign_plan import ALONE
from campaign_processes import Crew
from cluster_harness import Cluster
from network import Node
from observing import eventually

from ampsq import Client
from ampsq.transport.discovery import slot_of

__all__ = ["Failover"]

_NAME = "campaign-a"
#: Seconds without an answer after which a primary is given up.
_GIVEN_UP = 1000
#: Seconds in which the servers find themselves again.
_WELL = 60.0


class Failover:
    """The servers, and each fault, as `campaign_pair.Pair` has them.

    Args:
        program: gives the path of a server program.
        folder: for all of it; a short path.
        plan: of the run.

    Attributes:
        losses: (from, until) of each time in which another server became the primary.
        lost: 0; what a fail-over takes is not measured in bytes.
        died: servers that ended by themselves.
    """

    def __init__(self, program, folder, plan):
        self.losses, self.lost, self.died = [], 0, []
        self._folder, self._program, self._options = Path(folder), program(plan.program), []
        self._nodes, self._sentinels = [], []
        self._stack = contextlib.ExitStack()
        self._stack.callback(self._end_nodes)
        self._options = ["--appendonly", "yes", "--appendfsync", plan.appendfsync]
        with self._stack as starting:
            url = self._begin_cluster() if plan.topology == "cluster" else self._begin_sentinels()
            self._url, self._down = url, set()
            self.crew = Crew(self._folder / "crew", "a", url, url, _NAME, "replicas=1", ALONE)
            starting.callback(self.crew.end)
            with self.client("a") as client:
                define(client)
            self._stack = starting.pop_all()

    def _start(self, *, options=(), sentinel=False):
        nodes = self._sentinels if sentinel else self._nodes
        more = options if sentinel else [*options, *self._options]
        nodes.append(
            Node(self._program, self._folder / f"{'s' if sentinel else 'n'}{len(nodes)}", more, sentinel=sentinel)
        )
        return nodes[-1]

    def _begin_cluster(self):
        self._cluster = Cluster(self._start, replicas=True)
        slot = slot_of(_NAME)
        owner = self._cluster.owner(slot)
        self._two = [owner, self._cluster.replica_of(owner)]
        return "cluster://" + ",".join(node.address for node in self._nodes)

    def _begin_sentinels(self):
        self._two = [self._start(), self._start()]
        self._two[1].follow(self._two[0])
        rules = [
            f"sentinel monitor main 127.0.0.1 {self._two[0].port} 2",
            f"sentinel down-after-milliseconds main {_GIVEN_UP}",
            "sentinel failover-timeout main 4000",
        ]
        for _ in range(3):
            self._start(options=rules, sentinel=True)
        eventually(lambda: all(self._is_known(each) for each in self._sentinels), within=_WELL)
        return f"sentinel://{','.join(each.address for each in self._sentinels)}/main"

    @staticmethod
    def _is_known(sentinel):
        with contextlib.closing(sentinel.client()) as client:
            state = client.sentinel_master("main")
            return state["num-slaves"] == 1 and state["num-other-sentinels"] == 2

    @property
    def crews(self):
        return [self.crew]

    def client(self, site):
        """A client of the instance."""
        del site
        return Client(self._url, instance=_NAME, retry_timeout="60s")

    def plain(self, site):
        """A plain client of the primary; once all is well there is one."""
        del site
        return redis.Redis(port=eventually(self._primary_with_replica, within=_WELL)[0].port)

    def _role(self, node):
        """Return a node's report on itself: master or slave, with the state of its link; None where it gives none."""
        plain = redis.Redis(port=node.port, decode_responses=True, socket_timeout=1)
        with contextlib.closing(plain):
            try:
                return plain.execute_command("ROLE")
            except redis.RedisError:
                return None

    def _primary_with_replica(self):
        """(primary, replica) where both live and the replica follows; else None."""
        for one, other in (self._two, self._two[::-1]):
            if {one, other} & self._down:
                continue
            here, there = self._role(one), self._role(other)
            if here and there and here[0] == "master" and there[0] == "slave" and there[3] == "connected" and here[2]:
                return one, other
        return None

    def begin(self):
        self.crew.begin()

    def look(self, busy):
        """Notice what ended by itself; `busy` are the targets of faults that last."""
        for node in [*self._nodes, *self._sentinels]:
            if node not in self._down and node.process.poll() is not None:
                self.died.append(f"the server at {node.address} ended by itself, code {node.process.returncode}")
                node.start()
        self.crew.look([role for role in self.crew.commands if ("a", role) in busy])

    @staticmethod
    def target(step):
        """Return what a fault has for itself while it lasts."""
        if step.fault in {"kill process", "stop process"}:
            return step.site, step.process
        return step.site, "sentinel" if step.fault == "kill sentinel" else "server"

    def fault(self, step):
        """Begin a fault: a generator."""
        return getattr(self, "_" + step.fault.replace(" ", "_"))(step)

    def _lose_primary(self, lose, come_back):
        """Take the primary away while its replica follows: another one becomes the primary, or the same one again."""
        found = self._primary_with_replica()
        if found is None:
            yield
            return False
        began = time.monotonic()
        self._down.add(found[0])
        lose(found[0])
        yield
        come_back(found[0])
        self._down.discard(found[0])
        with contextlib.suppress(AssertionError):
            eventually(self._primary_with_replica, within=_WELL / 2)
        self.losses.append((began, time.monotonic()))
        return True

    def _kill_primary(self, step):
        del step
        return self._lose_primary(Node.kill, Node.start)

    def _stop_primary(self, step):
        del step
        return self._lose_primary(
            lambda node: node.process.send_signal(signal.SIGSTOP), lambda node: node.process.send_signal(signal.SIGCONT)
        )

    def _planned_failover(self, step):
        del step
        found = self._primary_with_replica()
        if found is None:
            yield
            return False
        began = time.monotonic()
        with contextlib.suppress(redis.RedisError):
            if self._sentinels:
                self._sentinels[0].ask("SENTINEL", "FAILOVER", "main")
            else:
                found[1].ask("CLUSTER", "FAILOVER")
        yield
        with contextlib.suppress(AssertionError):
            eventually(lambda: (now := self._primary_with_replica()) and now[0] is found[1], within=_WELL / 4)
        self.losses.append((began, time.monotonic()))
        now = self._primary_with_replica()
        return now is not None and now[0] is found[1]

    def _kill_replica(self, step):
        del step
        found = self._primary_with_replica()
        if found is None:
            yield
            return False
        self._down.add(found[1])
        found[1].kill()
        yield
        found[1].start()
        self._down.discard(found[1])
        return True

    def _stop_replica(self, step):
        del step
        found = self._primary_with_replica()
        if found is None:
            yield
            return False
        found[1].process.send_signal(signal.SIGSTOP)
        yield
        found[1].process.send_signal(signal.SIGCONT)
        return True

    def _kill_sentinel(self, step):
        node = self._sentinels[int(step.amount * len(self._sentinels))]
        self._down.add(node)
        node.kill()
        yield
        node.start()
        self._down.discard(node)
        return True

    def _kill_process(self, step):
        return self.crew.killed(step.process)

    def _stop_process(self, step):
        return self.crew.stopped(step.process)

    def _close_connections(self, step):
        del step
        found, closed = self._primary_with_replica(), 0
        if found is not None:
            with contextlib.closing(found[0].client()) as plain:
                closed = plain.client_kill_filter(_type="normal", skipme=True)
        yield
        return bool(closed)

    def _fill_memory(self, step):
        found = self._primary_with_replica()
        if found is None:
            yield
            return False
        with contextlib.closing(found[0].client()) as plain:
            before = plain.info("errorstats").get("errorstat_OOM", {}).get("count", 0)
            plain.config_set("maxmemory", plain.info("memory")["used_memory"] + int(step.amount * 100_000))
            yield
            after = plain.info("errorstats").get("errorstat_OOM", {}).get("count", 0)
            plain.config_set("maxmemory", 0)
        return after > before

    def excuse(self, at):
        """Return why an answered message may be gone, and seconds until the former primary was a replica; else None."""
        ages = [max(0.0, ended - at) for began, ended in self.losses if began - PROMISED <= at <= ended + PROMISED]
        return ("lost in a fail-over", min(ages)) if ages else None

    def _end_nodes(self):
        for node in [*self._nodes, *self._sentinels]:
            if node.process and node.process.poll() is None:
                node.kill()

    def end(self):
        self._stack.close()
