"""The coordinator's process: it cares for instances of a server until somebody stops it."""

from __future__ import annotations

import gc
import logging
import math
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import AmpsqError, Unavailable
from ampsq.base.shutdown import StopRequest
from ampsq.coordinator.actions import OutsidePermissions
from ampsq.coordinator.cluster_nodes import ClusterNodes
from ampsq.coordinator.instance_duties import InstanceDuties
from ampsq.coordinator.membership import PERIOD, Membership
from ampsq.coordinator.server_watch import ServerWatch
from ampsq.protocol.reads.instances import list_instances
from ampsq.protocol.reads.server import is_cluster_node
from ampsq.replication.link_rounds import LinkRounds
from ampsq.transport.server_pools import ServerPools
from ampsq.transport.server_wait import ServerWait

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ampsq.transport.store import Store

__all__ = ["Coordinator", "collect_garbage_seldom"]

_log = logging.getLogger("ampsq.coordinator")
#: Seconds without a sign of life after which one is given though no watch asks anything.
_UNMET: Final = 1.0
#: Seconds until the thread that follows the instances looks by itself, while a watch says what changes.
_RESTS: Final = 30.0
#: Seconds between two counts of what is late.
_COUNT_EVERY: Final = 2.5
#: Seconds for which a call is repeated while the server cannot be reached.
_RETRY_TIMEOUT: Final = 0.5
#: Rounds of instances at the same time: most of a round is waiting for the server.
_ROUNDS: Final = 8
#: Objects that are made and not freed until the next look for circles among the young ones.
_COLLECTED_EVERY: Final = 50_000
#: Seconds in which this coordinator takes itself off the list of coordinators, and its search for instances ends.
_LEAVES_WITHIN: Final = 0.5
#: Seconds that all instances together have to end; what then still waits for a server is left.
_ENDS_WITHIN: Final = 2.0


def collect_garbage_seldom() -> None:
    """Let the interpreter look for circles among objects seldom; for a process that does nothing but coordinate.

    A link reads hundreds of entries at once, each of them some lists, none of which is part of a circle. To look
    through them took a third of its time.
    """
    # What is imported by now stays for good.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECTED_EVERY)


class Coordinator:
    """Drives what must happen over time. Any number may run; none at all stops only what depends on time.

    Args:
        url: the server.
        instances: the instances to care for; default all that the server carries, later ones included.
        powers: what actions may do outside of the instance; default nothing.
    """

    def __init__(self, url: str, instances: Sequence[str] = (), powers: OutsidePermissions | None = None) -> None:
        self._powers = powers or OutsidePermissions()
        self._url = url
        self._named = tuple(instances)
        self._asked = StopRequest()
        self._stopping = threading.Event()
        # Held while instances are begun with and let go of, and while the end of all begins.
        self._changing = threading.Lock()
        self._servers = ServerWait(_log)
        self._link_rounds = LinkRounds(self._servers)
        self._found: Sequence[str] = ()
        self._search_fault = ""
        self._pool = ThreadPoolExecutor(_ROUNDS, thread_name_prefix="coordinator-round")
        # The watch of each instance, which all of a server have together; and those of a cluster's primaries.
        self._watches: dict[str, ServerWatch] = {}
        self._nodes: dict[str, ServerWatch] = {}
        self._cluster: ClusterNodes | None = None
        # What instances of a cluster's node ask, they ask on the same connections.
        self._pools = ServerPools()
        # The lists by which instances were taken up last.
        self._taken: object = None
        self._membership = Membership(self._named, self._powers.words, self._work)
        self._counted_at = -math.inf
        self._late: dict[str, float] = {}
        self._others: dict[str, set[str]] = {}

    @property
    def rounds(self) -> dict[tuple[str, str], float]:
        """Instance and duty -> seconds by which it is late: since it has something to do, or could not be looked at."""
        watches = self._all_watches()
        return {which: late for watch in watches for which, late in watch.lateness().items()}

    def stop(self) -> None:
        """Ask the coordinator to stop, from a signal's handler too; `run` returns within a few seconds."""
        self._asked.set()

    def run(self, *, signals: bool = False) -> None:
        """Do the duties until stopped, through restarts of the server.

        Args:
            signals: stop on SIGTERM and SIGINT; only in the main thread.
        """
        if signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: self.stop())
        _log.info("coordinator started for %s", ", ".join(self._named) or "all instances")
        finder = self._servers.store(self._url, "", retry_timeout=1.0)
        # In a thread of its own: what it asks for may take longer than stopping does.
        following = threading.Thread(target=self._follow, args=(finder,), name="coordinator-instances", daemon=True)
        following.start()
        try:
            self._asked.wait()
        finally:
            self._end(finder)
            # In the middle of a call it would connect once more.
            following.join(_LEAVES_WITHIN)
            finder.close()
        _log.info("coordinator stopped")

    def _end(self, finder: Store) -> None:
        """Let all instances end at once, within one deadline."""
        with self._changing:
            self._stopping.set()
            self._membership.changed.set()
            watches = {*self._watches.values(), *self._nodes.values()}
        for watch in watches:
            watch.close()
        # Where the server hangs, the others take the instances without that.
        leaving = threading.Thread(target=self._membership.leave, args=(finder,), daemon=True)
        leaving.start()
        leaving.join(_LEAVES_WITHIN)
        self._servers.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        until = time.monotonic() + _ENDS_WITHIN
        left = [watch for watch in watches if not watch.join(until)]
        self._pools.close()
        if left:
            number = sum(len(watch.names) for watch in left)
            _log.warning("%d instances are left in the middle of a round: the server does not answer", number)

    def _follow(self, finder: Store) -> None:
        """Care for the instances that are named, or that there are."""
        is_cluster: bool | None = None
        while not self._stopping.is_set():
            try:
                if is_cluster is None:
                    is_cluster = finder.call(is_cluster_node())
                    self._cluster = ClusterNodes(self._servers, self._url) if is_cluster else None
                if self._cluster is not None:
                    self._follow_cluster(self._cluster)
                else:
                    self._meet(finder)
                    found = self._named or self._find(finder)
                    self._take_up([name for name in found if self._membership.owns(name)])
                    self._tell_of_others()
            except Unavailable:
                self._servers.wait(finder, self._stopping)
            except Exception:  # noqa: BLE001  (without this thread no new instance would ever be cared for)
                _log.exception("looking for instances failed; trying again")
            # While a watch gives the signs of life with what it asks, this thread has nothing to do; the watch says
            # when it gives none.
            is_met = time.monotonic() < self._membership.met_at + _UNMET
            is_met = is_met and bool(self._watches) and not is_cluster
            self._membership.changed.wait(_RESTS if is_met else PERIOD)
            self._membership.changed.clear()
        if self._cluster is not None:
            self._cluster.close()

    def _follow_cluster(self, cluster: ClusterNodes) -> None:
        """Care for the instances of a cluster, each by the watch of the primary that serves it."""
        is_as_before = cluster.are_as_before()
        if is_as_before and not (self._membership.is_among_others or self._membership.owes_sign):
            self._membership.met_at = time.monotonic()
            return
        # Whoever gives no sign of life leaves its instances to others.
        if not any(watch.is_stuck for watch in self._all_watches()):
            cluster.meet(self._membership)
        if not is_as_before:
            if not self._named:
                self._find_in_cluster(cluster)
            cluster.find_primaries()
        found = self._named or self._found
        taken = found, cluster.runs, self._membership.version
        if taken != self._taken:
            self._take_up([name for name in found if self._membership.owns(name)])
            self._tell_of_others()
            self._taken = taken

    def _meet(self, finder: Store) -> None:
        """Share the instances with the other coordinators of the server, where no watch gives the signs of life."""
        # Whoever gives no sign of life leaves its instances to others.
        is_met = time.monotonic() < self._membership.met_at + _UNMET and not self._membership.owes_sign
        if not is_met and not any(watch.is_stuck for watch in self._all_watches()):
            self._membership.meet(finder)

    def _all_watches(self) -> set[ServerWatch]:
        with self._changing:
            return {*self._watches.values(), *self._nodes.values()}

    def _work(self) -> tuple[int, Mapping[str, float]]:
        """Return how many instances are cared for, and what is late, as it was counted last; for signs of life."""
        if time.monotonic() >= self._counted_at + _COUNT_EVERY:
            self._counted_at = time.monotonic()
            late: dict[str, float] = {}
            for watch in self._all_watches():
                for duty, seconds in watch.late_duties().items():
                    late[duty] = max(round(seconds, 1), late.get(duty, 0.0))
            self._late = late
        return len(self._watches), self._late

    def _take_up(self, instances: Sequence[str]) -> None:
        """Begin with those that are new or at another node, and let go of those that are not there any more."""
        with self._changing:
            if self._stopping.is_set():
                return
            for instance in instances:
                if self._cluster is not None:
                    self._place(instance, self._cluster.primary_of(instance))
                elif instance not in self._watches:
                    self._watches[instance] = self._care_for(instance)
            wanted = set(instances)
            for instance in [name for name in self._watches if name not in wanted]:
                self._watches.pop(instance).remove(instance)
            used = set(self._watches.values())
            for url, watch in [(url, watch) for url, watch in self._nodes.items() if watch not in used]:
                del self._nodes[url]
                watch.close()
                self._pool.submit(watch.join, time.monotonic() + _ENDS_WITHIN)

    def _place(self, instance: str, node: str) -> None:
        """Let an instance be cared for by the watch of a cluster's node; "": it stays where it is."""
        watch = self._watches.get(instance)
        if not node or (watch is not None and watch is self._nodes.get(node)):
            return
        if node not in self._nodes:
            store = self._servers.store(node, "", _RETRY_TIMEOUT)
            self._nodes[node] = ServerWatch(store, self._servers, self._pool.submit, moved=self._has_moved)
        duties = watch.release(instance) if watch is not None else None
        if duties is None:
            _log.info("caring for instance %s", instance)
            own = self._servers.store(self._url, instance, _RETRY_TIMEOUT, self._pools)
            own.route.lead_to(node)
            duties = InstanceDuties(own, self._servers, self._powers, self._link_rounds)
        self._watches[instance] = self._nodes[node]
        self._nodes[node].add(duties)

    def _has_moved(self) -> None:
        """Have the cluster looked at: an instance may be at another node."""
        if self._cluster is not None:
            self._cluster.is_doubtful = True
            self._membership.changed.set()

    def _tell_of_others(self) -> None:
        """Log which instances that this coordinator was told to care for another one has."""
        for instance in self._named:
            others = set() if self._membership.owns(instance) else self._membership.others_of(instance)
            if others != self._others.get(instance, set()):
                self._others[instance] = others
                if others:
                    _log.info("instance %s has another coordinator: %s", instance, ", ".join(sorted(others)))

    def _find(self, store: Store) -> Sequence[str]:
        """The instances that clients have opened on this server; as they were, where nobody can say it."""
        listed = self._membership.listed
        try:
            found = store.call(list_instances()) if listed is None else listed
        except AmpsqError as error:
            is_gone = isinstance(error, Unavailable) and self._servers.wait(store, self._stopping)
            if not is_gone:
                self._say_search_fault(error)
        else:
            self._found, self._search_fault = found, ""
        return self._found

    def _find_in_cluster(self, cluster: ClusterNodes) -> None:
        """Read the instances that clients have opened in a cluster; they are as they were where nobody can say it."""
        try:
            self._found, self._search_fault = cluster.list_instances(), ""
        except AmpsqError as error:
            # Those of other nodes do not wait for the one that has the list.
            self._say_search_fault(error)

    def _say_search_fault(self, error: AmpsqError) -> None:
        if not self._stopping.is_set() and str(error) != self._search_fault:
            self._search_fault = str(error)
            _log.warning("cannot look for new instances, those known are cared for: %s", error)

    def _care_for(self, instance: str) -> ServerWatch:
        _log.info("caring for instance %s", instance)
        watch = next(iter(self._watches.values()), None)
        if watch is None:
            # A user may have rights at one instance alone.
            name = instance if len(self._named) == 1 else ""
            store = self._servers.store(self._url, name, _RETRY_TIMEOUT)
            watch = ServerWatch(store, self._servers, self._pool.submit, self._membership)
        own = watch.store.of_instance(instance)
        watch.add(InstanceDuties(own, self._servers, self._powers, self._link_rounds))
        return watch
