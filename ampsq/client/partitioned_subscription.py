"""A subscription to a queue of all partitions, for threads: one backlog, lent to where messages are."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Never

from ampsq.base.errors import AmpsqError, Closed, Unavailable, UnknownSubscription
from ampsq.base.forks import was_inherited
from ampsq.base.values import Interval
from ampsq.client.partition_rules import (
    ATTEMPTS,
    FIRST_PAUSE,
    FULL,
    LONGEST_PAUSE,
    SEPARATELY,
    STEP,
    PartitionFailures,
    check_backlog,
    check_ended,
    only_for_one,
    spec_after,
)
from ampsq.client.partition_turns import PartitionTurns
from ampsq.protocol.calls.queues import bell_channel, wait_for_bell
from ampsq.protocol.reads.instance import is_opened
from ampsq.queues.inbox import Attention
from ampsq.queues.subscription import ManagedSubscription, Message, Subscription, handle_each
from ampsq.transport.blocking_reads import BlockingReads
from ampsq.transport.server_pools import ServerPools
from ampsq.transport.shard_channels import ShardChannels
from ampsq.transport.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import timedelta
    from types import EllipsisType

    from ampsq.protocol.request import Call
    from ampsq.transport.blocking_reads import EndedRead

__all__ = ["PartitionedSubscription"]

_log = logging.getLogger("ampsq")


class PartitionedSubscription(Subscription):
    """Messages of all partitions: iterate over it, or call `get`. Made by `Client.subscribe`; threads may share it.

    Args:
        parts: the subscriptions, one of each partition, which have bells.
        end: called when it is closed.
    """

    def __init__(self, parts: Sequence[Subscription], end: Callable[[PartitionedSubscription], None]) -> None:
        self._subscriptions, self._end = list(parts), end
        self._parts = [ManagedSubscription.of(each) for each in parts]
        # Their calls are soon over where a partition is away, since the others wait.
        self._stores = [each.store.of_instance(each.store.instance) for each in self._parts]
        for store in self._stores:
            store.retry_timeout = min(store.retry_timeout, ATTEMPTS)
        self._failures = PartitionFailures(len(parts), self._parts[0].store.retry_timeout)
        cores = [each.core for each in self._parts]
        # The name, backlog and filter that are asked for. A partition that is away may ask for something else yet.
        self._wanted = cores[0].registration.spec_with(None, None, ...)
        self._turns = PartitionTurns([each.leases for each in cores], self._wanted[1])
        self._attention = Attention()
        for each in cores:
            each.inbox.attention = self._attention
        # Beyond some partitions a connection to each of their servers, not to each of them.
        self._bells = BlockingReads() if len(parts) <= SEPARATELY else ShardChannels()
        # Not those of calls: a connection on which somebody waits is ended with the wait.
        self._pools, self._next_look = ServerPools(), 0.0
        # Held by who visits a partition or waits for a bell; and by who waits for the lock to change the subscription,
        # so that readers, who take the lock again and again, let it in.
        self._lock, self._turnstile = threading.Lock(), threading.Lock()
        self._closed = False
        self._mending: threading.Thread | None = None
        self._mended: list[int] = []

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(str(each.core) for each in self._parts)}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Never:
            only_for_one(name)

    @property
    def id(self) -> str:
        """The names of the subscriptions at the partitions, with commas between."""
        return ", ".join(each.id for each in self._parts)

    @property
    def max_backlog(self) -> int:
        """The effective backlog of all partitions together: what was asked for, or the sum of the queues' limits.

        It follows changed limits, as that of `Subscription` does.
        """
        self._turns.follow()
        return self._turns.max_backlog

    @property
    def late(self) -> list[Exception]:
        """Acknowledgements of batches that came too late, at most the last thousand of each partition."""
        return [error for each in self._subscriptions for error in each.late]

    def run(self, on_message: Callable[[Message], object]) -> None:
        """Call a function with each message, in a thread, until the subscription is closed."""
        threading.Thread(target=handle_each, args=(self, on_message), name="ampsq-partitions", daemon=True).start()

    def get(self, timeout: timedelta | float | str | None = None) -> Message | None:
        """Wait for the next message, of whichever partition; see `Subscription.get`."""
        # Mostly: no lock, and no look at the clock.
        message = self._next()
        if message is not None:
            return message
        until = None if timeout is None else time.monotonic() + Interval.parse(timeout) / 1000
        late = 0
        while True:
            # Before the lock: a thread that is not in this process may have it.
            self._parts[0].core.registration.check_process()
            left = -1.0 if until is None else max(until - time.monotonic(), 0.0)
            if self._turnstile.locked():
                if not self._turnstile.acquire(timeout=left):
                    return None
                self._turnstile.release()
                continue
            if not self._lock.acquire(timeout=left):
                return None
            try:
                # Another thread may have visited a partition meanwhile.
                message = self._next()
                if message is not None:
                    return message
                if self._closed:
                    raise Closed("this subscription was closed")
                is_over = self._go_on(until)
            finally:
                self._lock.release()
            # Each whose bell rings is visited once, also where nobody waits.
            late += until is not None and time.monotonic() >= until
            message = self._next()
            if message is not None or is_over or late > len(self._parts):
                return message

    def _next(self) -> Message | None:
        """Take out the next message that is at hand."""
        managed = self._parts[self._turns.current]
        core = managed.core
        if not core.inbox.buffer:
            return None
        try:
            parts, body = core.inbox.buffer.popleft()
        except IndexError:
            # Another thread took the last one.
            return None
        return Message(parts, body, core.leases, managed)

    def _go_on(self, until: float | None) -> bool:
        """Visit the partition whose turn it is, or wait for a bell; True when the time is over and no bell rings."""
        turns, now = self._turns, time.monotonic()
        if not turns.goes_on(now):
            self._note(self._bells.wait(0.0))
            now = time.monotonic()
        self._failures.check(now)
        number = turns.next(now)
        if number is None:
            # Before that is sent: from here on whoever acknowledges sees that this waits.
            self._attention.now = True
            try:
                self._flush(turns.acknowledged())
                return self._wait(until, STEP)
            finally:
                self._attention.now = False
        if not turns.is_full(number):
            self._flush(turns.acknowledged(number))
            if not turns.is_worth(number):
                # All of the backlog is being worked on.
                return self._wait(until, FULL)
        self._visit(number)
        return False

    def _wait(self, until: float | None, most: float) -> bool:
        left = most if until is None else min(max(until - time.monotonic(), 0.0), most)
        ended = self._bells.wait(left)
        self._note(ended)
        rang = any(each.found or each.is_lost for each in ended)
        return until is not None and time.monotonic() >= until and not rang

    def _note(self, ended: Iterable[EndedRead]) -> None:
        """Note whose bells rang, or may have; do what is due where one was silent for long."""
        while self._mended:
            self._turns.ring(self._mended.pop())
        if self._turns.away:
            self._look_for_lost()
        for number, at, is_lost in ended:
            if is_lost:
                self._ask(number)
                continue
            if at:
                self._turns.ring(number, at)
                continue
            self._do_duties(number)
        if isinstance(self._bells, ShardChannels) and (now := time.monotonic()) >= self._next_look:
            self._next_look = now + STEP
            for number in range(len(self._parts)):
                if number in self._bells:
                    self._do_duties(number)

    def _do_duties(self, number: int) -> None:
        """Do what is due at a partition where no coordinator does, if it is time to look; visit it if its bell rang."""
        inbox = self._parts[number].core.inbox
        if inbox.duties.are_due:
            try:
                if not self._stores[number].run(inbox.do_duties()):
                    self._turns.ring(number)
            except AmpsqError as error:
                self._lose(number, error)

    def _ask(self, number: int) -> None:
        """Ask whether a partition is there whose bell is not heard: a visit that is not answered keeps its credits."""
        call = is_opened(self._stores[number].instance)
        call.patience = 0.0
        try:
            self._stores[number].call(call)
        except AmpsqError as error:
            self._lose(number, error)
        else:
            self._turns.ring(number)

    def _listen(self, number: int) -> None:
        """Wait for the bell of a partition from now on."""
        if number in self._bells:
            return
        core = self._parts[number].core
        us, duties, calls = core.registration, core.inbox.duties, self._stores[number]
        store = Store(calls.route, calls.instance, retry_timeout=ATTEMPTS, pools=self._pools)
        if isinstance(self._bells, ShardChannels):
            self._bells.begin(number, store, bell_channel(us.instance, us.id))
            # What a lost connection did not hear is asked for when the next one listens.
            duties.looks_itself = self._bells.is_refused
            return

        def read() -> Call[int]:
            return wait_for_bell(us.instance, us.id, duties.wait)

        self._bells.begin(number, store, read)

    def _visit(self, number: int) -> None:
        """Take messages of a partition, as many as there are credits for."""
        managed, store = self._parts[number], self._stores[number]
        if managed.core.inbox.replacement.pending is not None:
            try:
                self._replace_at(number)
            except AmpsqError as error:
                self._lose(number, error)
                return
            self._turns.resize(self._wanted[1])
        lent, visit = self._turns.begin(number)
        try:
            try:
                answer = store.run(managed.core.inbox.visit(lent, visit))
                self._turns.end(number, answer.leased, is_done=answer.is_done)
            except UnknownSubscription:
                self._bells.end(number)
                store.run(managed.core.inbox.begin_anew(managed.pipeline))
                self._turns.end(number, 0, is_done=False)
        except AmpsqError as error:
            self._turns.fail(number, error)
            self._lose(number, error)
            return
        self._failures.note(number, None)
        try:
            self._listen(number)
        except AmpsqError as error:
            self._lose(number, error)

    def _flush(self, numbers: Iterable[int]) -> None:
        """Send what was acknowledged of some partitions, so that its credits come back."""
        for number in numbers:
            try:
                self._stores[number].run(self._parts[number].core.leases.flush())
            except AmpsqError as error:
                self._lose(number, error)

    def _lose(self, number: int, error: AmpsqError) -> None:
        """Go on without a partition, until it can be reached again."""
        self._failures.note(number, error)
        self._bells.end(number)
        self._turns.lose(number)
        self._look_for_lost()

    def _look_for_lost(self) -> None:
        if self._mending is None or not self._mending.is_alive():
            self._mending = threading.Thread(target=self._mend, name="ampsq-partitions-away", daemon=True)
            self._mending.start()

    def _mend(self) -> None:
        """Look for the partitions that are away, until all are back."""
        pause, away = FIRST_PAUSE, self._turns.away
        while not self._closed and away.keys() - self._mended:
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            for number in away.keys() - self._mended:
                store = self._stores[number]
                try:
                    store.call(is_opened(store.instance))
                except AmpsqError:
                    continue
                self._mended.append(number)
                self._bells.wake()

    def __iter__(self) -> Iterator[Message]:
        while True:
            managed = self._parts[self._turns.current]
            leases, registration, buffer = managed.core.leases, managed.core.registration, managed.core.inbox.buffer
            while buffer and not registration.closed:
                try:
                    parts, body = buffer.popleft()
                except IndexError:
                    # Another thread took the last one.
                    break
                yield Message(parts, body, leases, managed)
            try:
                message = self.get()
            except Closed:
                self._parts[0].core.registration.check_process()
                return
            if message is not None:
                yield message

    def flush(self) -> None:
        """Send the acknowledgements collected so far, and wait until they are done."""
        for each in self._subscriptions:
            each.flush()

    def replace(
        self,
        *,
        name: str | None = None,
        max_backlog: int | None = None,
        filter: str | EllipsisType | None = ...,  # noqa: A002  (AMPS's word)
    ) -> None:
        """Ask for something else from now on, in all partitions; see `Subscription.replace`.

        Partitions do it one after the other. Where one refuses it, those before ask for what they had before. One that
        is away does it when it is back, before anything else.
        """
        if max_backlog is not None:
            check_backlog(max_backlog)
        with self._changing():
            if self._closed:
                raise Closed("this subscription was closed")
            former, wanted = self._wanted, spec_after(self._wanted, name, max_backlog, filter)
            failures: list[AmpsqError] = []
            for managed in self._parts:
                # The first one finds out what is wrong with it. Where this ends early, the next visits ask for it.
                managed.core.inbox.replacement.ask(*wanted)
            self._wanted = wanted
            try:
                for number in range(len(self._parts)):
                    try:
                        self._replace_at(number)
                    except Unavailable as error:
                        self._lose(number, error)
                        failures.append(error)
            except AmpsqError:
                self._wanted = former
                self._replace_back(number)
                raise
            finally:
                self._turns.resize(self._wanted[1])
                # What is wanted now may have been there before.
                for each in range(len(self._parts)):
                    if each not in self._turns.away:
                        self._turns.ring(each)
        if len(failures) == len(self._parts):
            raise failures[0]

    def _replace_at(self, number: int) -> None:
        """Ask a partition for what is asked for now."""
        managed = self._parts[number]
        former = managed.id
        self._stores[number].run(managed.core.replace_pending(managed.pipeline))
        if managed.id != former:
            # It had to be made anew, with another bell.
            self._bells.end(number)

    def _replace_back(self, end: int) -> None:
        """Ask for what was asked for before a partition refused something else; those before it at once."""
        for number, managed in enumerate(self._parts):
            managed.core.inbox.replacement.ask(*self._wanted)
            try:
                if number < end:
                    self._replace_at(number)
            except AmpsqError as error:
                _log.warning("partition %d does not ask yet for what it asked for before: %s", number, error)
                self._lose(number, error)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock, to change the subscription; who waits for messages is asked to let it go."""
        with self._turnstile:
            seconds = 0.0
            while not self._lock.acquire(timeout=seconds):
                self._bells.wake()
                seconds = FULL
            try:
                yield
            finally:
                self._lock.release()

    def close(self) -> None:
        """End the subscription at all partitions; see `Subscription.close`.

        Where some are away, that is logged, and they end it by themselves.
        """
        if self._closed or was_inherited(self._parts[0].core.registration.process):
            return
        self._closed = True
        self._bells.wake()
        failures: list[AmpsqError] = []
        with self._lock:
            self._bells.close()
            self._pools.close()
            for number, managed in enumerate(self._parts):
                # Where a partition is away, its client ends it as soon as it is back.
                managed.store = self._stores[number]
                if number in self._turns.away or failures:
                    managed.store.retry_timeout = 0.0
                try:
                    managed.close()
                except AmpsqError as error:
                    failures.append(error)
        self._end(self)
        check_ended(failures, len(self._parts))
