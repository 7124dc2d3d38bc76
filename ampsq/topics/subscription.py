"""Subscriptions to topics and their messages: iterate over one, or call `get`.

`TopicSubscription` and `TopicMessage` are what an application has in hand. Both work on
`ManagedTopicSubscription`, which has what the client needs besides, to go on at another instance.
"""

from __future__ import annotations

import logging
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Self

from ampsq.base.errors import AmpsqError, BookmarkNotFound, Closed, NameInUse, SlowClient, Unavailable
from ampsq.base.forks import closed, was_inherited
from ampsq.base.waiting import MOVING, STEP, time_limit, wait_of
from ampsq.topics.message import TopicMessageView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import timedelta

    from ampsq.protocol.context import ClientContext
    from ampsq.topics.durable_subscription import Received
    from ampsq.topics.failover import FailoverPlan
    from ampsq.topics.reader_reports import Reporting
    from ampsq.topics.subscription_core import Handed, TopicSubscriptionCore
    from ampsq.transport.pipeline import Pipeline
    from ampsq.transport.store import Store
    from ampsq.transport.tracked_keys import TrackedKeys

__all__ = ["ManagedTopicSubscription", "TopicMessage", "TopicSubscription"]

_log = logging.getLogger("ampsq")


class TopicMessage(TopicMessageView):
    """A message of a `TopicSubscription`."""

    __slots__ = ()

    _managed: ManagedTopicSubscription

    def ack(self, *, wait: bool = False) -> None:
        """Note that it was handled, so that a durable subscription does not get it again; elsewhere nothing.

        Args:
            wait: False (default) writes it down with others, while messages are asked for within the client's
                `ack_timeout`, and when the subscription waits or is closed. True writes it down now.
        """
        self._managed.acknowledge(self._received, wait=wait)


class ManagedTopicSubscription:
    """One subscription to topics with what moves it; `TopicSubscription` is what an application sees of it.

    Args:
        core: the subscription as its client knows it.
        store: runs its flows.
        end: called when it is closed.

    Attributes:
        core: as it was given.
        pipeline: what it reads with; another one at another instance.
    """

    def __init__(
        self, core: TopicSubscriptionCore, store: Store, end: Callable[[ManagedTopicSubscription], None]
    ) -> None:
        self.core, self._store, self._end = core, store, end
        # What `fill` reads with.
        self._reading = store
        self.pipeline = store.pipeline(follows=not core.is_fully_durable)
        # Whoever reads has it.
        self._lock = threading.Lock()
        # What was handled is written down in the order in which it was.
        self._saving = threading.Lock()
        # Between leaving an instance and going on at another one.
        self._is_moving = False

    def __repr__(self) -> str:
        return f"<TopicSubscription {self.core}>"

    @staticmethod
    def of(subscription: TopicSubscription) -> ManagedTopicSubscription:
        """Return what a subscription of one instance works on."""
        return subscription._managed  # noqa: SLF001  (our own)

    def open(self) -> None:
        """Begin; see `TopicSubscriptionCore.open`."""
        try:
            self._store.run(self.core.open(self.pipeline))
        except BaseException:
            self.pipeline.close()
            raise

    def get(self, timeout: timedelta | float | str | None) -> TopicMessage | None:
        """Wait for the next message; see `TopicSubscription.get`."""
        owner = threading.current_thread()
        self.core.asks(owner)
        handed = self._next(owner, time_limit(timeout))
        return None if handed is None else self.message(handed)

    def message(self, handed: Handed) -> TopicMessage:
        """Make the message of what is handed out."""
        self.core.last = handed[0]
        return TopicMessage(handed[0], handed[1], self)

    def _next(self, owner: threading.Thread | None, until: float) -> Handed | None:
        core = self.core
        while True:
            if self._lock.acquire(timeout=wait_of(until)):
                try:
                    if core.is_due:
                        self._attend(self._store)
                    taken = core.take(owner) or self._fetch(owner, until)
                except Unavailable:
                    if not self._is_moving:
                        raise
                    taken = None
                finally:
                    self._lock.release()
                if taken is not None:
                    return taken
            if core.completed or time.monotonic() >= until:
                return None
            if self._is_moving:
                time.sleep(MOVING)

    def _fetch(self, owner: threading.Thread | None, until: float) -> Handed | None:
        if self.core.closed:
            raise closed("this subscription", self.core.process)
        self._save(self._store)
        self._store.run(self.core.fetch(self.pipeline, wait_of(until)))
        return self.core.take(owner)

    @property
    def is_ready(self) -> bool:
        """Return whether something can be handed out."""
        return self.core.is_ready

    @property
    def is_over(self) -> bool:
        """Return whether nothing more comes."""
        return self.core.completed

    def fill(self, seconds: float) -> None:
        """Do what is due, and read until something can be handed out, for so many seconds at most."""
        with self._lock:
            if self.core.is_due:
                self._attend(self._reading)
            if not self.core.closed:
                self._save(self._reading)
                self._reading.run(self.core.fetch(self.pipeline, seconds))

    def share_connections(self) -> None:
        """Read with `fill` alone, which keeps no connection after `rest` and fails at once where a server is away."""
        self.core.reads_ahead = False
        self._reading = self._store.of_instance(self._store.instance)
        self._reading.retry_timeout = 0.0
        self.pipeline = self._reading.pipeline()

    @property
    def patience(self) -> float:
        """Seconds for which its client repeats a call."""
        return self._store.retry_timeout

    def rest(self) -> None:
        """Give back the connection that `fill` has used."""
        with self._lock:
            self.pipeline.close()

    def track(self, tracked: TrackedKeys, number: int) -> None:
        """Ask its server to tell when there is something new in its logs, under a number."""
        tracked.ask(number, self._store.route, self.core.log_keys)

    def _attend(self, store: Store) -> None:
        """Do what is to be done from time to time; whoever holds the lock."""
        self._save(store)
        store.run(self.core.attend(self.pipeline))

    def messages(self) -> Iterator[TopicMessage]:
        """Hand out messages until the subscription is closed or completed; asking for one handles that before it."""
        core = self.core
        for handed in self._handed():
            # As `message` and `returned` do, whose calls take a twentieth of a replay.
            core.last = handed[0]
            yield TopicMessage(handed[0], handed[1], self)
            if core.auto_ack:
                core.handle(handed[1])

    def _handed(self) -> Iterator[Handed]:
        core, buffer = self.core, self.core.buffer
        while not (core.closed or core.completed):
            if core.is_due:
                self._attend_aside()
            if core.is_unpaced and not core.is_paused and not core.is_full:
                try:
                    # Taking from a deque is atomic: threads never get the same message.
                    handed: Handed | None = buffer.popleft()
                except IndexError:
                    handed = self._step()
            else:
                handed = self._step()
            if handed is not None:
                yield handed
        if core.closed and was_inherited(core.process):
            raise closed("this subscription", core.process)

    def _attend_aside(self) -> None:
        """Do what is due, unless somebody else has the lock, who does it."""
        if self._lock.acquire(timeout=0):
            try:
                self._attend(self._store)
            except Unavailable:
                if not self._is_moving:
                    raise
            finally:
                self._lock.release()

    def _step(self) -> Handed | None:
        try:
            return self._next(None, time.monotonic() + STEP)
        except Closed:
            return None

    def returned(self, handed: Handed) -> None:
        """Note a message as handled, since its iterator was asked for the next one."""
        if self.core.auto_ack:
            self.core.handle(handed[1])

    def run(self, on_message: Callable[[TopicMessage], object]) -> None:
        """Call a function with each message, in a thread, until the subscription is closed or completed."""
        threading.Thread(target=self._run, args=(on_message,), name=f"ampsq-{self.core.id}", daemon=True).start()

    def _run(self, on_message: Callable[[TopicMessage], object]) -> None:
        while not (self.core.closed or self.core.completed):
            try:
                for handed in self._handed():
                    self.call(on_message, handed)
            except BookmarkNotFound:
                _log.exception("%r ends", self)
                return
            except (SlowClient, NameInUse) as error:
                _log.error("%r ends: %s", self, error)
                return
            except AmpsqError as error:
                _log.warning("%r: %s; trying again", self, error)
                time.sleep(STEP)

    def call(self, on_message: Callable[[TopicMessage], object], handed: Handed) -> None:
        """Call a function with a message, which is handled when it returns."""
        message = self.message(handed)
        try:
            on_message(message)
        except Exception:  # noqa: BLE001  (whatever a handler raises is an answer)
            _log.exception("handler of %r failed; it does not count as handled", message)
            return
        self.returned(handed)

    def acknowledge(self, received: Received | None, *, wait: bool) -> None:
        """Note that a message was handled; see `TopicMessage.ack`."""
        self.core.handle(received)
        if wait:
            self.flush()

    def flush(self) -> None:
        """Write down now what was handled."""
        while True:
            try:
                return self._save(self._store)
            except Unavailable:
                if not self._is_moving:
                    raise
            time.sleep(MOVING)

    def _save(self, store: Store) -> None:
        with self._saving:
            store.run(self.core.save())

    # -- at another instance

    def prepare_failover(
        self,
        store: Store,
        client: ClientContext,
        reporting: Reporting,
    ) -> Callable[[], None]:
        """Begin at another instance; gives what lets it go on there, after `suspend`."""
        if self.core.is_over:
            return lambda: None
        pipeline = store.pipeline(follows=not self.core.is_fully_durable)
        try:
            arrival = store.run(self.core.prepare_failover(client, reporting, pipeline))
        except BaseException:
            pipeline.close()
            raise
        return partial(self._resume_at, arrival, pipeline, store)

    def suspend(self) -> None:
        """From here on the instance is out of reach, and what `prepare_failover` gave follows."""
        self._is_moving = not self.core.is_over

    def _resume_at(self, arrival: FailoverPlan, pipeline: Pipeline, store: Store) -> None:
        with self._lock, self._saving:
            self.pipeline.close()
            self.pipeline, self._store = pipeline, store
            self.core.resume_at(arrival)
            self._is_moving = False

    # -- the end

    def refuse_in_child(self) -> None:
        """Refuse all that is asked for, in a process that was forked from the one that subscribed."""
        self.core.closed = True
        self.core.buffer.clear()
        # A thread that is not in this process may have had them.
        self._lock, self._saving = threading.Lock(), threading.Lock()

    def close(self) -> None:
        """End it; see `TopicSubscription.close`."""
        if self.core.closed:
            return
        self.core.closed = True
        try:
            with self._lock:
                self.pipeline.close()
                try:
                    with self._saving:
                        self._store.run(self.core.close(self.pipeline))
                finally:
                    self.pipeline.close()
        finally:
            self._end(self)


class TopicSubscription:
    """Messages of topics, in order, from a place on and then live: iterate over it, or call `get`.

    Made by `Client.subscribe_topic`. Threads may share it: each message goes to one of them.
    """

    def __init__(self, managed: ManagedTopicSubscription) -> None:
        self._managed = managed

    def __repr__(self) -> str:
        return repr(self._managed)

    @property
    def id(self) -> str:
        """Name of the subscription: `sub_id` of a durable one."""
        return self._managed.core.id

    @property
    def origin(self) -> str:
        """Origin of the messages of this instance: its name and its incarnation."""
        return self._managed.core.origin

    @property
    def position(self) -> str:
        """Place where it is: a text for `bookmark`, with which another one begins behind what was handed out here.

        Of an instance with partitions it has a bookmark of each, with commas between.

        Raises:
            DefinitionError: it is conflated, or of ranges, so that no place says what was handed out.
        """
        return self._managed.core.position

    @property
    def completed(self) -> bool:
        """Return whether the end of the requested ranges was handed out; False for ever of what has no end."""
        return self._managed.core.completed

    @property
    def missed(self) -> tuple[str, ...]:
        """The topics of which something that was asked for had been trimmed; see `bookmark_not_found`."""
        return self._managed.core.missed

    @property
    def is_paused(self) -> bool:
        """Return whether it was told to pause."""
        return self._managed.core.is_paused

    def pause(self) -> None:
        """Hand out nothing until `resume`. It goes on at the same place, and keeps it while messages are asked for."""
        self._managed.core.is_paused = True

    def resume(self) -> None:
        """Hand out again."""
        self._managed.core.resume()

    def get(self, timeout: timedelta | float | str | None = None) -> TopicMessage | None:
        """Wait for the next message.

        Args:
            timeout: how long; default until there is one or the subscription is closed.

        Returns:
            The message; None when the time is over, or `completed`.

        Raises:
            Closed: the subscription is closed.
            Unavailable: the server was away longer than the client's `retry_timeout`; call again to go on.
            SlowClient: it was beyond the limits of its transport (docs/slow-clients.md), and stays disconnected.
            NameInUse: it is durable, and another one began under its `sub_id`; it stays ended.
        """
        return self._managed.get(timeout)

    def __iter__(self) -> Iterator[TopicMessage]:
        return self._managed.messages()

    def flush(self) -> None:
        """Write down now what was handled."""
        self._managed.flush()

    def close(self) -> None:
        """End it: what was handled is written down; the message handed out last counts as such if `ack` was called."""
        self._managed.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
