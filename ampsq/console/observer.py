"""Keeps what the console shows: the last figures of each instance, and what they were before.

Figures are read once for all who ask, at most once a second, and so seldom that reading takes at most a twentieth of
the time: what looks at a server must not be what keeps it busy.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from ampsq.base.errors import AmpsqError, DefinitionError, OtherIncarnation, Unavailable
from ampsq.base.partitions import Partition
from ampsq.client.client import Client
from ampsq.operations.figures import read_figures
from ampsq.operations.group_counting import GroupCounter
from ampsq.protocol.reads.clock import server_time
from ampsq.protocol.reads.coordinators import read_coordinators
from ampsq.protocol.reads.instance import instance_state, is_opened
from ampsq.protocol.reads.instances import read_instances
from ampsq.protocol.reads.server import ping
from ampsq.transport.route import Route
from ampsq.transport.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ampsq.operations.figures import InstanceFigures, QueueFigures
    from ampsq.protocol.reads.coordinators import CoordinatorEntry
    from ampsq.protocol.request import Flow
    from ampsq.topics.topic_state import TopicState
    from ampsq.transport.pipeline import Pipeline

__all__ = ["MOMENTS", "FigureSample", "Observer", "Reading"]

T = TypeVar("T")
_log = logging.getLogger("ampsq.console")
#: Readings whose figures are kept for charts.
MOMENTS: Final = 90
#: Least seconds between two readings; reading takes at most one part of so many of the time.
_LEAST: Final = 1.0
_SHARE: Final = 20
#: Seconds between two readings while nobody looks, and after which nobody does.
_IDLE: Final = 10.0
_LOOKS_FOR: Final = 20.0
#: Topics whose figures are kept, those that were shown last.
_TOPICS: Final = 1_000
#: Seconds for which a page waits for a server that is away.
_RETRY_TIMEOUT: Final = 2.0


class FigureSample(NamedTuple):
    """A queue's figures at one time.

    Attributes:
        at: seconds, of the clock that never goes back.
        depth: messages that were not settled.
        entered: that had come in since the queue was defined.
        settled: that had left it.
    """

    at: float
    depth: int
    entered: int
    settled: int


@dataclass(frozen=True, slots=True)
class Reading:
    """An instance's figures, when they were read and what that took, in seconds.

    Attributes:
        figures: what was read.
        number: of the reading, from 1.
        at: when, by the clock that never goes back.
        took: how long it took.
        partition: which partition of another instance it is; None: none.
    """

    figures: InstanceFigures
    number: int
    at: float
    took: float
    partition: Partition | None = None

    @property
    def age(self) -> float:
        """Seconds since it was read."""
        return max(time.monotonic() - self.at, 0.0)

    @property
    def is_fresh(self) -> bool:
        """Return whether it is too early to read again."""
        return time.monotonic() < self.at + max(_LEAST, self.took * _SHARE)


class _Observed:
    """One instance: its client, the last reading, the moments before."""

    def __init__(self, url: str, instance: str, finder: Store) -> None:
        self._url, self._instance, self._finder = url, instance, finder
        self._client: Client | None = None
        #: Which partition of another instance it is; None: none, or it was never opened.
        self.partition: Partition | None = None
        self._lock = threading.Lock()
        self.reading: Reading | None = None
        #: Why the last attempt to read failed; "" where it did not.
        self.fault = ""
        self.moments: dict[str, deque[FigureSample]] = {}
        #: Of topics that pages have shown.
        self.topics: dict[str, deque[FigureSample]] = {}
        self._groups = GroupCounter()
        #: Of all queues together.
        self.totals: deque[FigureSample] = deque(maxlen=MOMENTS)

    def client(self) -> Client:
        """A client of the instance; raises `Unavailable`."""
        with self._lock:
            if self._client is None:
                # A client would make an instance that is not there, which is not for whoever looks.
                if not self._finder.call(is_opened(self._instance)):
                    raise DefinitionError(
                        f"instance {self._instance!r} is not on this server; a client that opens it makes it, as does "
                        "ampsq apply"
                    )
                self._client = Client(self._url, instance=self._instance, retry_timeout=_RETRY_TIMEOUT)
                stored = self._client._store.call(instance_state(self._instance)).partition  # noqa: SLF001  (as below)
                self.partition = Partition.stored(stored, self._instance)
                # Whoever looks is told, and a server's loss is not told once for each instance.
                self._client._store.route.log_level = logging.DEBUG  # noqa: SLF001  (nobody else wants it)
            return self._client

    def read(self) -> Reading:
        client = self.client()
        with self._lock:
            if self.reading is not None and self.reading.is_fresh:
                return self.reading
            began = time.monotonic()
            try:
                figures = self._run_on(client)
            except OtherIncarnation:
                # The client is of no use any more; whoever asks next gets one of the instance that is there now.
                client.close()
                self._client = None
                raise
            now = time.monotonic()
            number = 1 if self.reading is None else self.reading.number + 1
            self.reading = Reading(figures, number, now, now - began, self.partition)
            self._remember(figures.queues, now)
            return self.reading

    def forget(self) -> None:
        with self._lock:
            if self.reading is not None:
                self.reading = replace(self.reading, at=float("-inf"))

    def run(self, flow: Flow[T]) -> T:
        """Run a flow as the client's own methods do."""
        return self.client()._store.run(flow)  # noqa: SLF001  (it has no method for it)

    def run_ahead(self, made: Callable[[Pipeline], Flow[T]]) -> T:
        """Run a flow that sends calls ahead."""
        store = self.client()._store  # noqa: SLF001  (calls ahead need its channel)
        with store.pipeline() as pipeline:
            return store.run(made(pipeline))

    def _run_on(self, client: Client) -> InstanceFigures:
        store = client._store  # noqa: SLF001  (calls ahead need its channel)
        with store.pipeline() as pipeline:
            return store.run(read_figures(self._instance, pipeline, self._groups))

    def _remember(self, queues: dict[str, QueueFigures], now: float) -> None:
        for name, queue in queues.items():
            moments = self.moments.setdefault(name, deque(maxlen=MOMENTS))
            moments.append(FigureSample(now, queue.stats.depth, queue.entered, queue.settled))
        for gone in self.moments.keys() - queues.keys():
            del self.moments[gone]
        each = queues.values()
        self.totals.append(
            FigureSample(
                now, sum(one.stats.depth for one in each), sum(one.entered for one in each),
                sum(one.settled for one in each),
            )
        )  # fmt: skip

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()


class Observer:
    """Reads the figures of instances, for whoever asks, and now and then for the charts.

    Args:
        url: the server.
        instances: their names; default all that the server carries.
        log_level: at which the loss of the server is logged.
    """

    def __init__(self, url: str, instances: Sequence[str] = (), log_level: int = logging.WARNING) -> None:
        self._url, self._named = url, tuple(instances)
        self._observed: dict[str, _Observed] = {}
        self._finder = Store(Route(url, "", log_level=log_level), "", retry_timeout=_RETRY_TIMEOUT)
        self._listed: list[str] = []
        self._lock = threading.Lock()
        self._looked = float("-inf")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="console-observer", daemon=True)

    def start(self) -> None:
        """Begin to read by itself, so that charts have something to show."""
        self._thread.start()

    def stop(self, within: float = 1.5) -> None:
        """End it and close all connections; what still reads from a server after so many seconds is left."""
        self._stopping.set()
        # Closing waits for whoever reads just now.
        closing = threading.Thread(target=self._close, name="console-observer-end", daemon=True)
        closing.start()
        closing.join(within)

    def _close(self) -> None:
        if self._thread.is_alive():
            self._thread.join()
        with self._lock:
            observed, self._observed = list(self._observed.values()), {}
        for each in observed:
            each.close()
        self._finder.close()

    def ping(self) -> None:
        """Ask the server whether it is there; raises `Unavailable`."""
        self._finder.call(ping())

    def instances(self) -> list[str]:
        """The names of those that it reads, in order, as the server said them last.

        Raises:
            Unavailable: it is away, or has not said them yet.
        """
        if self._named:
            return sorted(self._named)
        try:
            self._listed = self._finder.run(read_instances())
        except Unavailable:
            # In a cluster the list may be out of reach while instances are not.
            if not self._listed:
                raise
            self.ping()
        return self._listed

    def client(self, instance: str) -> Client:
        """A client of an instance, to act with; raises `Unavailable`."""
        return self._of(instance).client()

    def run(self, instance: str, flow: Flow[T]) -> T:
        """Run a flow on an instance; raises `AmpsqError`."""
        return self._of(instance).run(flow)

    def run_ahead(self, instance: str, made: Callable[[Pipeline], Flow[T]]) -> T:
        """Run a flow on an instance that sends calls ahead of their replies; raises `AmpsqError`."""
        return self._of(instance).run_ahead(made)

    def coordinators(self) -> list[CoordinatorEntry]:
        """The coordinators of the server that gave a sign of life lately; raises `Unavailable`."""
        now = self._finder.call(server_time())
        return [each for each in self._finder.call(read_coordinators()) if each.is_alive(now)]

    def reading(self, instance: str) -> Reading:
        """The figures of an instance, read now if those that are there are old; raises `AmpsqError`."""
        observed = self._of(instance)
        try:
            found = observed.read()
        except AmpsqError as error:
            observed.fault = str(error)
            raise
        observed.fault = ""
        return found

    def fault(self, instance: str) -> str:
        """Return why there are no new figures; "" where there are."""
        return self._of(instance).fault

    def partition(self, instance: str) -> Partition | None:
        """Return which partition of another instance it is; None: none, or it was never reached."""
        return self._of(instance).partition

    def age(self, instance: str) -> float | None:
        """Seconds since the last figures of an instance were read; None where there are none."""
        reading = self._of(instance).reading
        return None if reading is None else reading.age

    def looked(self) -> None:
        """Note that somebody looks: figures are read each second for a while."""
        self._looked = time.monotonic()

    def number(self, instance: str) -> int:
        """The number of the last reading; another one than before: there is something new to show."""
        observed = self._observed.get(instance)
        return 0 if observed is None or observed.reading is None else observed.reading.number

    def forget(self, instance: str) -> None:
        """Read anew when somebody asks next: something was changed."""
        self._of(instance).forget()

    def moments(self, instance: str, queue: str) -> list[FigureSample]:
        """Return a queue's past figures, the earliest first."""
        return list(self._of(instance).moments.get(queue, ()))

    def totals(self, instance: str) -> list[FigureSample]:
        """Return the sums of the figures of all of its queues, the earliest first."""
        return list(self._of(instance).totals)

    def note_topics(self, instance: str, topics: Mapping[str, TopicState]) -> dict[str, list[FigureSample]]:
        """Remember how much was recorded in topics that a page shows; gives past figures, the earliest first."""
        kept, now = self._of(instance).topics, time.monotonic()
        with self._lock:
            for name, state in topics.items():
                moments = kept.pop(name, None) or deque(maxlen=MOMENTS)
                if not moments or now >= moments[-1].at + _LEAST / 2:
                    moments.append(FigureSample(now, state.messages, state.recorded, 0))
                kept[name] = moments
            while len(kept) > _TOPICS:
                del kept[next(iter(kept))]
            return {name: list(kept[name]) for name in topics if name in kept}

    @property
    def listed(self) -> list[str]:
        """The names of the instances, as they were told last."""
        return sorted(self._named) if self._named else self._listed

    def _of(self, instance: str) -> _Observed:
        with self._lock:
            if instance not in self._observed:
                self._observed[instance] = _Observed(self._url, instance, self._finder)
            return self._observed[instance]

    def _run(self) -> None:
        read = float("-inf")
        while not self._stopping.wait(0.25):
            now = time.monotonic()
            if now < read + (_LEAST if now < self._looked + _LOOKS_FOR else _IDLE):
                continue
            read = now
            for failure in self._read_all():
                # Whoever asks is told; here it is tried again.
                _log.debug("reading figures: %s", failure)

    def _read_all(self) -> Iterator[AmpsqError]:
        try:
            # One question to a server that is away, not one for each instance.
            self.ping()
            instances = self.instances()
        except Unavailable as error:
            for observed in list(self._observed.values()):
                observed.fault = str(error)
            yield error
            return
        for instance in instances:
            try:
                self.reading(instance)
            except AmpsqError as error:
                yield error
