"""Clusters on ports of the loopback: three primaries, each with a replica where wanted, whose slots are moved."""

from __future__ import annotations

import contextlib
import tempfile
import time
from pathlib import Path

import redis
from network import Node
from observing import eventually

__all__ = ["Cluster", "three_primaries"]

#: States of an atomic move that has ended.
_OVER = {"success", "failed", "cancelled", "canceled"}


class Cluster:
    """Three nodes that share the slots, each in a process of ours, and a replica of each where wanted."""

    def __init__(self, start_node, *, replicas=False, options=(), node_timeout=1000):
        options = [
            *options,
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            str(node_timeout),
            "--cluster-replica-no-failover",
            "no",
        ]
        self.nodes = [start_node(options=options) for _ in range(6 if replicas else 3)]
        for number, (first, last) in enumerate(((0, 5460), (5461, 10922), (10923, 16383))):
            self.nodes[number].ask("CLUSTER", "ADDSLOTSRANGE", first, last)
            self.nodes[number].ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node in self.nodes[1:]:
            node.ask("CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port)
        eventually(lambda: all(self._knows_all(node) for node in self.nodes), within=40.0)
        for primary, replica in zip(self.nodes[:3], self.nodes[3:], strict=False):
            name = primary.ask("CLUSTER", "MYID")
            eventually(lambda replica=replica, name=name: replicates(replica, name), within=40.0)
        eventually(lambda: all(self._is_well(node) for node in self.nodes), within=30.0)
        for replica in self.nodes[3:]:
            eventually(lambda r=replica: r.has_link(), within=40.0)

    def _knows_all(self, node):
        lines = node.ask("CLUSTER", "NODES").splitlines()
        return len(lines) == len(self.nodes) and not any("handshake" in line for line in lines)

    @staticmethod
    def _is_well(node):
        return "cluster_state:ok" in node.ask("CLUSTER", "INFO")

    def owner(self, slot):
        """The node that serves a slot, as the first one that lives has it."""
        for node in self.nodes:
            if node.process.poll() is None:
                port = next(part[2][1] for part in node.ask("CLUSTER", "SLOTS") if part[0] <= slot <= part[1])
                return next(each for each in self.nodes if each.port == port)
        raise AssertionError("no node lives")

    def primaries(self):
        """The nodes that serve slots, in their order, as the first one that lives has it."""
        living = next(node for node in self.nodes if node.process.poll() is None)
        ports = {part[2][1] for part in living.ask("CLUSTER", "SLOTS")}
        return [node for node in self.nodes if node.port in ports]

    def begin_move(self, slot, target=None):
        """Begin to move a slot, as an operator does: gives the node that has it and the one that is to have it."""
        source = self.owner(slot)
        primaries = self.primaries()
        target = target or primaries[(primaries.index(source) + 1) % len(primaries)]
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.ask("CLUSTER", "MYID"))
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.ask("CLUSTER", "MYID"))
        return source, target

    def carry(self, slot, source, target, number=100):
        """Move some of the keys; gives how many there were."""
        names = source.ask("CLUSTER", "GETKEYSINSLOT", slot, number)
        if names:
            source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *names)
        return len(names)

    def end_move(self, slot, target):
        """Let a node have the slot, whose keys are all there."""
        name = target.ask("CLUSTER", "MYID")
        for node in (target, *(each for each in self.primaries() if each is not target)):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", name)

    def cancel_move(self, slot, source, target):
        """Leave the slot where it is, of which no key was moved."""
        for node in (source, target):
            node.ask("CLUSTER", "SETSLOT", slot, "STABLE")

    def move_by_keys(self, slot, target, number=5, lasts=0.0, within=30.0):
        """Move a slot step by step, some keys at a time, to its end: the way of Redis 7.

        Args:
            slot: the slot.
            target: the node that is to have it.
            number: keys at a time.
            lasts: seconds that it takes, or more where the keys are many.
            within: seconds in which every node has to know it.
        """
        until = time.monotonic() + lasts
        source, target = self.begin_move(slot, target)
        left = source.ask("CLUSTER", "COUNTKEYSINSLOT", slot)
        while self.carry(slot, source, target, number):
            left = max(left - number, 0)
            # Half of an instance is here and half of it there for a while, as with one that is large.
            time.sleep(max(until - time.monotonic(), 0.0) / (left // number + 1))
        self.end_move(slot, target)
        eventually(lambda: self.all_agree(slot, target), within=within)

    def move_at_once(self, slot, target, within=30.0):
        """Move a slot atomically: the way of Valkey 9. Tries again where the server gave up by itself."""
        source, until = self.owner(slot), time.monotonic() + within
        while not self.all_agree(slot, target):
            assert time.monotonic() < until, f"slot {slot} was not moved within {within} s"
            migrations = source.ask("CLUSTER", "GETSLOTMIGRATIONS")
            if not any(each["state"] not in _OVER for each in migrations) and self.owner(slot) is source:
                name = target.ask("CLUSTER", "MYID")
                source.ask("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", name)
            time.sleep(0.02)  # between two looks

    def all_agree(self, slot, target):
        """Return whether every living node says that a slot is served by this one."""
        living = [node for node in self.nodes if node.process.poll() is None]
        return all(
            part[2][1] == target.port
            for node in living
            for part in node.ask("CLUSTER", "SLOTS")
            if part[0] <= slot <= part[1]
        )

    def lose_primary(self, slot, within=30.0):
        """Kill the node that serves a slot; gives it once another one serves it, and is ready."""
        lost = self.owner(slot)
        lost.kill()
        eventually(lambda: (now := self.owner(slot)) is not lost and self._is_well(now), within=within)
        return lost

    def bring_back(self, node, within=60.0):
        """Start a node that was killed, and wait until it and all others are well again, each with its replica."""
        node.start()
        eventually(self.is_whole, within=within)

    def is_whole(self):
        """Return whether all nodes live and are well, and each replica has all of its primary."""
        roles = [node.ask("ROLE") for node in self.nodes]
        replicas = [node for node, role in zip(self.nodes, roles, strict=True) if role[0] == "slave"]
        followed = {role[2] for role in roles if role[0] == "slave"}
        return (
            len(followed) == len(self.nodes) - len(replicas)
            and all(node.has_link() for node in replicas)
            and all(self._is_well(node) for node in self.nodes)
        )

    def replica_of(self, node):
        return self.nodes[self.nodes.index(node) + 3]


@contextlib.contextmanager
def three_primaries(program, *options):
    """Run three primaries, which end with this; when one is lost the others go on serving."""
    nodes = []
    with tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp") as folder:

        def start(*, options):
            nodes.append(Node(program, Path(folder, str(len(nodes))), options))
            return nodes[-1]

        try:
            yield Cluster(start, options=["--cluster-require-full-coverage", "no", *options])
        finally:
            for node in nodes:
                node.kill()


def replicates(replica, name):
    try:
        replica.ask("CLUSTER", "REPLICATE", name)
    except redis.ResponseError:
        return False
    return True
