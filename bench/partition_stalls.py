"""The longest publish while slots are moved, and while a primary is killed, on a cluster of the benchmark's own."""

from __future__ import annotations

import itertools
import threading
import time
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import Unavailable
from ampsq.bench.private_cluster import private_cluster
from ampsq.bench.setup import NotAsRecorded
from ampsq.client.client import Client
from ampsq.definitions.queue import Queue
from ampsq.transport.discovery import slot_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampsq.bench.private_cluster import PrivateCluster

__all__ = ["PartitionStalls"]

#: A cluster as the smallest that fails over, and the partitions of the instance.
_PRIMARIES, _PARTITIONS = 3, 16
#: Slots that are moved, each with a partition, one after the other.
_MOVES: Final = 5
#: Seconds before anything happens, and after each thing.
_QUIET: Final = 1.0
#: Seconds in which a message is recorded, whatever happens.
_PATIENCE: Final = 60.0
_BODY: Final = b"x" * 250


class PartitionStalls:
    """The measurements.

    Args:
        progress: called with what is measured next.
    """

    def __init__(self, progress: Callable[[str], None]) -> None:
        self._progress = progress
        self._longest = self._recorded = 0.0
        self._is_over = threading.Event()
        self._failures: list[Exception] = []

    def run(self) -> dict[str, dict[str, float]]:
        """Publish one by one, to each partition in turn, while slots are moved, and while a primary is killed.

        Each message has a deduplication ID, so that a call whose answer was lost is made again.

        Raises:
            NotAsRecorded: not all that was published is recorded once; a kill may lose what no replica has yet, so
                that is looked at before it.
        """
        self._progress(f"a cluster of {_PRIMARIES} primaries with replicas")
        with (
            private_cluster(_PRIMARIES, has_replicas=True) as cluster,
            Client(cluster.url, instance="stalls", partitions=_PARTITIONS) as client,
        ):
            client.apply(Queue(name="work", underlying_topic="orders"))
            publisher = threading.Thread(target=self._publish, args=(client,), name="bench-stalls")
            publisher.start()
            try:
                figures = {"quiet": self._longest_while(lambda: None)}
                figures["move"] = self._longest_while(lambda: self._move(cluster, client))
                recorded = self._recorded
                found = client.admin.topics()["orders"].recorded
                # Between these two looks some more were published.
                if not recorded <= found <= self._recorded + 1:
                    raise NotAsRecorded(f"{found} of {recorded} messages are recorded after slots were moved")
                figures["kill"] = self._longest_while(lambda: cluster.kill(slot_of(client.partitions[0])))
            finally:
                self._is_over.set()
                publisher.join()
            if self._failures:
                raise self._failures[0]
            return figures

    def _publish(self, client: Client) -> None:
        try:
            for number in itertools.count():
                if self._is_over.is_set():
                    return
                began = time.monotonic()
                self._publish_once(client, str(number))
                self._longest, self._recorded = max(self._longest, time.monotonic() - began), number + 1
        except Exception as error:  # noqa: BLE001  (whoever waits for the figures gets it)
            self._failures.append(error)

    def _publish_once(self, client: Client, name: str) -> None:
        """Publish a message until it is recorded: the answer to an earlier call may have been lost."""
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                client.publish("orders", _BODY, key=name, deduplication_id=name)
            except Unavailable:
                if time.monotonic() >= until:
                    raise
            else:
                return

    def _longest_while(self, happens: Callable[[], None]) -> dict[str, float]:
        """Return the longest call while something happens, and how many messages were published meanwhile."""
        self._longest, before = 0.0, self._recorded
        time.sleep(_QUIET)
        happens()
        time.sleep(_QUIET)
        return {"longest_publish_s": round(self._longest, 2), "messages": self._recorded - before}

    def _move(self, cluster: PrivateCluster, client: Client) -> None:
        for number, name in enumerate(client.partitions[:_MOVES], 1):
            self._progress(f"move {number} of {_MOVES}")
            cluster.move(slot_of(name))
