"""The worker: a handler called with each message of a queue; what it returns or raises settles the message.

Return is acknowledge, an exception is cancel, `Reject` is expire. Leases are renewed while a handler runs, from a
thread of their own, so that a handler that computes is not taken for a dead one. Stopping is graceful: no more
messages are asked for, what is unstarted goes back uncounted at once, what runs may finish until the deadline.

A barrier (of a queue with `barrier_expression`) comes to every worker of the queue, in every process once, and its
handler sees `message.is_barrier`. By then every earlier message of the queue is settled, and this worker starts nothing
until the handler has ended, whatever its concurrency. There is no lease: what the handler returns or raises changes
nothing, and a barrier does not come again, not even to a worker that stopped before its handler had begun.
"""

from __future__ import annotations

import inspect
import logging
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

from ampsq.base.errors import AlreadyAcked, AmpsqError, DefinitionError, StaleLease, Unavailable
from ampsq.base.shutdown import StopRequest
from ampsq.base.values import Interval, is_name, shown
from ampsq.client.client import Client
from ampsq.client.handler_slots import HandlerTasks, HandlerThreads, is_of_kind
from ampsq.queues.returns import failure_text, shortened_reason
from ampsq.queues.subscription import ManagedSubscription

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from ampsq.queues.subscription import Message, Subscription


__all__ = ["Reject", "Worker", "advise_of_backlog"]

_log = logging.getLogger("ampsq.worker")
#: Seconds of one wait for messages or for a handler to end.
_STEP = 0.25
#: Seconds after which a stop is noticed at the latest.
_NOTICED = 0.05
#: Seconds in which the server is told of the end; one that does not answer finds out by itself.
_ENDS_WITHIN = 2.0


class Reject(Exception):
    """Raised by a handler: this message can never be processed. It expires, and dead-letter actions see it.

    Its text is noted as the reason; that of any other exception with its type, as the message is cancelled.
    """


class Worker:
    """Runs a handler over the messages of a queue.

    Args:
        handler: a function or a coroutine function of one `Message`, which may be a barrier: `message.is_barrier`.
            Its return value is not used.
        queue: the queue, or a regular expression of queues.
        filter: only messages that this expression matches, barriers included; default all.
        url, instance, failover: as `Client`.
        concurrency: messages handled at the same time: threads for a function, tasks for a coroutine function. For
            more than one core use processes: ``ampsq worker --processes``. The queue has to let a subscription hold as
            many, which by default it does not: `max_per_subscription_backlog`. A warning says so.
        max_backlog: unacknowledged messages at most; default twice the concurrency, so that the next message is at
            hand when one ends.
        stop_timeout: how long running handlers may take to end once the worker is stopped; what then still runs is
            left, and its messages come back.
        cancel_delay: after an exception, how long the message stays away.
        client: one to use, which stays open; default one of the worker's own, as `url` and the others say.

    Attributes:
        handler, queue, filter, concurrency: as given.
        max_backlog: unacknowledged messages at most, as given or worked out.
        processed, failed, rejected: messages so far, barriers included, whose handler returned, raised, raised
            `Reject`.
    """

    def __init__(
        self,
        handler: Callable[[Message], Any],
        queue: str,
        *,
        filter: str | None = None,  # noqa: A002  (AMPS's word, and the element's)
        url: str | Sequence[str] | None = None,
        instance: str | None = None,
        concurrency: int = 1,
        max_backlog: int | None = None,
        stop_timeout: timedelta | float | str = "25s",
        cancel_delay: timedelta | float | str | None = None,
        failover: str = "refuse",
        client: Client | None = None,
    ) -> None:
        if not isinstance(concurrency, int) or concurrency < 1:
            raise DefinitionError(f"concurrency={shown(concurrency)}: allowed is a whole number from 1 on")
        if not callable(handler) or is_of_kind(handler, inspect.isgeneratorfunction, inspect.isasyncgenfunction):
            raise DefinitionError(
                f"handler={shown(handler)}: allowed is a function or a coroutine function, no generator"
            )
        self.handler, self.queue, self.concurrency = handler, queue, concurrency
        self.max_backlog = 2 * concurrency if max_backlog is None else max_backlog
        self.filter = filter
        self.processed = self.failed = self.rejected = 0
        self._client, self._owns_client = client, client is None
        self._address, self._failover = (url, instance), failover
        self._stop_timeout = Interval.parse(stop_timeout) / 1000
        self._cancel_delay = cancel_delay
        self._stopping = StopRequest()
        self._subscription: Subscription | None = None
        self._counting = threading.Lock()
        self._passed = threading.Event()
        # Whether nobody is to be told any more that the queue leaves handlers idle.
        self._is_advised = False

    def stop(self) -> None:
        """Ask the worker to stop, from a signal's handler too; `run` returns when it has."""
        self._stopping.set()

    def run(self, *, signals: bool = False) -> None:
        """Handle messages until stopped.

        Args:
            signals: stop on SIGTERM and SIGINT; only in the main thread.

        Raises:
            AmpsqError: the queue is unknown, or the server could not be reached for longer than a client waits.
        """
        client = self._client or Client(self._address[0], instance=self._address[1], failover=self._failover)
        if signals:
            # From here on: before, a signal ends the process in the usual way, and nothing is held yet.
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._signalled)
        kind = HandlerTasks if is_of_kind(self.handler, inspect.iscoroutinefunction) else HandlerThreads
        runner = kind(self.handler, self.concurrency, self._settle)
        try:
            self._serve(client, runner)
        finally:
            runner.close()

    def _signalled(self, number: int, _frame: object) -> None:
        # A second one ends the process in the usual way; its messages come back by themselves.
        signal.signal(number, signal.SIG_DFL)
        self.stop()

    def _serve(self, client: Client, runner: HandlerThreads | HandlerTasks) -> None:
        failures: list[BaseException] = []
        self._subscription = None

        def loop() -> None:
            try:
                self._subscription = client.subscribe(
                    self.queue, max_backlog=self.max_backlog, filter=self.filter, renew=True
                )
                self._advise(self._subscription.max_backlog)
                self._loop(self._subscription, runner)
            except BaseException as error:  # noqa: BLE001  (raised again by `run`)
                failures.append(error)

        # In a thread of its own, so that neither a handler nor a wait keeps `run` from stopping in time.
        thread = threading.Thread(target=loop, name="ampsq-worker-loop", daemon=True)
        thread.start()
        # Not a wait for the event: a signal's handler sets it in this very thread.
        while thread.is_alive() and not self._stopping.is_set():
            thread.join(_NOTICED)
        failures += self._end(client, runner, thread, has_failed=bool(failures))
        if failures:
            raise failures[0]

    def _advise(self, backlog: int) -> None:
        """Warn once where the subscription may hold fewer messages than there are handlers."""
        if backlog < self.concurrency and not self._is_advised:
            self._is_advised = True
            _log.warning("%s", advise_of_backlog(self.queue, backlog, self.concurrency, self.max_backlog))

    def _end(
        self, client: Client, runner: HandlerThreads | HandlerTasks, loop: threading.Thread, *, has_failed: bool
    ) -> list[BaseException]:
        """Let running handlers end, and tell the server; one that does not answer keeps nobody. Gives what failed."""
        handled = threading.Event()
        failures: list[BaseException] = []

        def tell() -> None:
            try:
                self._tell_end(client, handled, has_failed=has_failed)
            except BaseException as error:  # noqa: BLE001  (raised again by `run`)
                failures.append(error)

        if running := runner.running:
            _log.info("stopping: %d handlers run, and have %.0f s to end", running, self._stop_timeout)
        now = time.monotonic()
        until, told_by = now + (0.0 if has_failed else self._stop_timeout), now + _ENDS_WITHIN
        telling = threading.Thread(target=tell, name="ampsq-worker-end", daemon=True)
        telling.start()
        while now < (until if runner.running else told_by) and (loop.is_alive() or not runner.is_idle):
            if runner.running:
                told_by = now + _ENDS_WITHIN
            time.sleep(_NOTICED)
            now = time.monotonic()
        runner.finish()
        handled.set()
        telling.join(max(told_by - now, _NOTICED))
        if telling.is_alive():
            _log.warning("the server does not answer; what is leased here comes back to its queue by itself")
        return failures

    def _tell_end(self, client: Client, handled: threading.Event, *, has_failed: bool) -> None:
        """Give back what was not started; once handlers have ended, end the subscription."""
        subscription = self._subscription
        try:
            if subscription is not None and not has_failed:
                # What was picked up and not started goes back before the running handlers are waited for.
                try:
                    ManagedSubscription.of(subscription).give_back()
                except AmpsqError as error:
                    _log.warning("what was not started could not be given back, and comes back by itself: %s", error)
            handled.wait()
            if subscription is not None:
                subscription.close()
        finally:
            if self._owns_client:
                client.close()

    def _loop(self, subscription: Subscription, runner: HandlerThreads | HandlerTasks) -> None:
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
                self._passed.clear()
                runner.start(message)
                # What comes behind a barrier waits for its handler.
                while message.is_barrier and not self._passed.wait(_STEP) and not self._stopping.is_set():
                    pass

    # -- one message

    def _settle(self, message: Message, error: BaseException | None) -> None:
        """Settle a message by what its handler did, unless the handler has settled it itself."""
        try:
            if message.is_barrier:
                if error is not None:
                    _log.warning("the handler of %r failed; a barrier does not come again: %r", message, error)
                self._passed.set()
            elif message.settled:
                pass
            elif error is None:
                message.ack()
            elif isinstance(error, Reject):
                _log.info("%r is rejected: %s", message, error)
                message.expire(reason=shortened_reason(str(error)))
            else:
                # Raising is an ordinary way to say "not now"; the traceback is for who looks for it.
                trace = error if _log.isEnabledFor(logging.DEBUG) else None
                _log.warning("%r is cancelled: %s: %s", message, type(error).__name__, error, exc_info=trace)
                message.cancel(self._cancel_delay, reason=failure_text(error))
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


def advise_of_backlog(queue: str, backlog: int, concurrency: int, asked: int) -> str:
    """Say what to write where a worker's subscription holds fewer messages than the worker handles at a time.

    Args:
        queue: a queue, or a regular expression of queues.
        backlog: what one subscription may hold.
        concurrency: of the worker.
        asked: its `max_backlog`.
    """
    held = f"{backlog} message{'s' * (backlog != 1)}"
    idle = f"so this worker handles {backlog} at a time, whatever its concurrency of {concurrency}"
    if asked <= backlog:
        return f"max_backlog={asked} lets a worker hold {held}, {idle}: leave it out, or write {2 * concurrency}"
    room, named = max(asked, concurrency), is_name(queue)
    who = f"the queue {queue!r}" if named else f"a queue that {queue!r} matches"
    name = f"name={queue!r}, " if named else ""
    return (
        f"{who} lets a subscription hold {held} (max_per_subscription_backlog), {idle}: define it with "
        f"max_per_subscription_backlog={room}, as in client.apply(Queue({name}max_per_subscription_backlog={room})), "
        f"in a file max_per_subscription_backlog: {room}"
    )
