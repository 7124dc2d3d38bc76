"""The worker: a handler called with each message of a queue; what it returns or raises settles the message.

Return is acknowledge, an exception is cancel, `Reject` is expire. Leases are renewed while a handler runs, from a
thread of their own, so that a handler that computes is not taken for a dead one. Stopping is graceful: no more
messages are asked for, what is unstarted goes back uncounted at once, what runs may finish until the deadline.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal

from ampsq.client import Client
from ampsq.errors import AlreadyAcked, AmpsqError, DefinitionError, StaleLease, Unavailable
from ampsq.values import Interval

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from ampsq.client import Subscription
    from ampsq.delivery import Message

__all__ = ["Reject", "Worker", "run_processes"]

_log = logging.getLogger("ampsq.worker")
#: Seconds of one wait for messages or for a handler to end.
_STEP = 0.25


class Reject(Exception):
    """Raised by a handler: this message can never be processed. It expires, and dead-letter actions see it."""


class Worker:
    """Runs a handler over the messages of a queue.

    Args:
        handler: a function or a coroutine function of one `Message`. Its return value is not used.
        queue: the queue, or a regular expression of queues.
        url, instance: as `Client`.
        concurrency: messages handled at the same time: threads for a function, tasks for a coroutine function. For
            more than one core use processes: `run_processes`, or ``ampsq worker --processes``.
        max_backlog: unacknowledged messages at most; default twice the concurrency, so that the next message is at
            hand when one ends.
        stop_timeout: how long running handlers may take to end once the worker is stopped; what then still runs is
            left, and its messages come back.
        cancel_delay: after an exception, how long the message stays away.

    Attributes:
        processed, failed, rejected: messages so far whose handler returned, raised, raised `Reject`.
    """

    def __init__(
        self,
        handler: Callable[[Message], Any],
        queue: str,
        *,
        url: str | None = None,
        instance: str | None = None,
        concurrency: int = 1,
        max_backlog: int | None = None,
        stop_timeout: timedelta | float | str = "25s",
        cancel_delay: timedelta | float | str | None = None,
        client: Client | None = None,
    ) -> None:
        if concurrency < 1:
            raise DefinitionError(f"concurrency={concurrency!r}: allowed is 1 or more")
        if not callable(handler):
            raise DefinitionError(f"handler={handler!r}: allowed is a function or a coroutine function")
        self.handler, self.queue, self.concurrency = handler, queue, concurrency
        self.max_backlog = 2 * concurrency if max_backlog is None else max_backlog
        self.processed = self.failed = self.rejected = 0
        self._client, self._owns_client = client, client is None
        self._address = (url, instance)
        self._stop_timeout = Interval.parse(stop_timeout) / 1000
        self._cancel_delay = cancel_delay
        self._stopping = threading.Event()
        self._counting = threading.Lock()

    def stop(self) -> None:
        """Ask the worker to stop; `run` returns when it has."""
        self._stopping.set()

    def run(self, *, signals: bool = False) -> None:
        """Handle messages until stopped.

        Args:
            signals: stop on SIGTERM and SIGINT; only in the main thread.

        Raises:
            AmpsqError: the queue is unknown, or the server could not be reached for longer than a client waits.
        """
        if signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: self.stop())
        client = self._client or Client(self._address[0], instance=self._address[1])
        runner = _Tasks(self) if inspect.iscoroutinefunction(self.handler) else _Threads(self)
        try:
            with client.subscribe(self.queue, max_backlog=self.max_backlog, renew=True) as subscription:
                self._loop(subscription, runner)
                # What was picked up and not started goes back before the running handlers are waited for.
                subscription.give_back()
                runner.finish(time.monotonic() + self._stop_timeout)
        finally:
            runner.close()
            if self._owns_client:
                client.close()

    def _loop(self, subscription: Subscription, runner: _Threads | _Tasks) -> None:
        while not self._stopping.is_set():
            if not runner.has_room(_STEP):
                continue
            try:
                message = subscription.get(_STEP)
            except Unavailable as error:
                _log.warning("no server, trying on: %s", error)
                self._stopping.wait(_STEP)
                continue
            if message is not None:
                runner.start(message)

    # -- one message

    def end(self, message: Message, error: BaseException | None) -> None:
        """Settle a message by what its handler did."""
        try:
            if error is None:
                message.ack()
            elif isinstance(error, Reject):
                message.expire()
            else:
                # Raising is an ordinary way to say "not now"; the traceback is for who looks for it.
                trace = error if _log.isEnabledFor(logging.DEBUG) else None
                _log.warning("%r is cancelled: %s: %s", message, type(error).__name__, error, exc_info=trace)
                message.cancel(self._cancel_delay)
        except (StaleLease, AlreadyAcked) as late:
            _log.warning("%r ended after its lease: %s", message, late)
        except AmpsqError as lost:
            # The lease lapses, and the message comes back by itself.
            _log.warning("%r could not be settled: %s", message, lost)
        with self._counting:
            if error is None:
                self.processed += 1
            elif isinstance(error, Reject):
                self.rejected += 1
            else:
                self.failed += 1


class _Threads:
    """Runs a function in threads; with a concurrency of one, in the worker's own."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._pool = ThreadPoolExecutor(worker.concurrency, "ampsq-worker") if worker.concurrency > 1 else None
        self._slots = threading.Semaphore(worker.concurrency)
        self._futures: set[Future[None]] = set()

    def has_room(self, timeout: float) -> bool:
        """Wait for a free slot."""
        if self._slots.acquire(timeout=timeout):
            self._slots.release()
            return True
        return False

    def start(self, message: Message) -> None:
        """Handle a message in a free slot."""
        if self._pool is None:
            self._handle(message)
            return
        self._slots.acquire()
        future = self._pool.submit(self._handle, message)
        self._futures.add(future)
        future.add_done_callback(self._done)

    def _done(self, future: Future[None]) -> None:
        self._futures.discard(future)
        self._slots.release()

    def _handle(self, message: Message) -> None:
        error: BaseException | None = None
        try:
            self._worker.handler(message)
        except Exception as raised:  # noqa: BLE001  (whatever a handler raises is an answer)
            error = raised
        self._worker.end(message, error)

    def finish(self, until: float) -> None:
        """Wait for running handlers until then."""
        while self._futures and time.monotonic() < until:
            self.has_room(_STEP)
        if self._futures:
            _log.warning("%d handlers still run at the stop deadline; their messages come back", len(self._futures))

    def close(self) -> None:
        """Let the threads go."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


class _Tasks:
    """Runs a coroutine function as tasks of one event loop, in a thread of its own."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._loop = asyncio.new_event_loop()
        self._slots = threading.Semaphore(worker.concurrency)
        self._futures: set[Future[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ampsq-tasks", daemon=True)
        self._thread.start()

    def has_room(self, timeout: float) -> bool:
        """Wait for a free slot."""
        if self._slots.acquire(timeout=timeout):
            self._slots.release()
            return True
        return False

    def start(self, message: Message) -> None:
        """Handle a message in a free slot."""
        self._slots.acquire()
        future = asyncio.run_coroutine_threadsafe(self._handle(message), self._loop)
        self._futures.add(future)
        future.add_done_callback(self._done)

    def _done(self, future: Future[None]) -> None:
        self._futures.discard(future)
        self._slots.release()

    async def _handle(self, message: Message) -> None:
        error: BaseException | None = None
        try:
            await self._worker.handler(message)
        except Exception as raised:  # noqa: BLE001  (whatever a handler raises is an answer)
            error = raised
        await asyncio.to_thread(self._worker.end, message, error)

    def finish(self, until: float) -> None:
        """Wait for running handlers until then."""
        while self._futures and time.monotonic() < until:
            self.has_room(_STEP)
        if self._futures:
            _log.warning("%d handlers still run at the stop deadline; their messages come back", len(self._futures))

    def close(self) -> None:
        """End the event loop."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5.0)
        if not self._thread.is_alive():
            self._loop.close()


def run_processes(arguments: Sequence[str], processes: int, *, restart: Literal["no", "on-failure"]) -> int:
    """Run worker processes and pass SIGTERM and SIGINT on to them.

    Args:
        arguments: what follows the Python interpreter.
        processes: how many.
        restart: whether a process that ends by itself with a failure is started again.

    Returns:
        The exit code: 0, or the last failure's.
    """
    stopping = threading.Event()
    children = [subprocess.Popen([sys.executable, *arguments]) for _ in range(processes)]

    def stop(number: int, _frame: object) -> None:
        stopping.set()
        for child in children:
            if child.poll() is None:
                os.kill(child.pid, number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    code = 0
    while any(child.poll() is None for child in children):
        for index, child in enumerate(children):
            if child.poll() not in (None, 0) and not stopping.is_set() and restart == "on-failure":
                _log.warning("worker process %d ended with %d; starting another", child.pid, child.returncode)
                children[index] = subprocess.Popen([sys.executable, *arguments])
        time.sleep(_STEP)
    for child in children:
        code = child.returncode or code
    return code
