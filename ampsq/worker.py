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

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from ampsq.base.errors import AlreadyAcked, AmpsqError, StaleLease, Unavailable
from ampsq.base.shutdown import StopRequest, stop_on_signals
from ampsq.client.client import Client
from ampsq.client.handler_lanes import HandlerLanes
from ampsq.client.handler_rules import HandlerRules
from ampsq.client.handler_slots import HandlerSlots
from ampsq.client.partition_rules import managed_parts
from ampsq.queues.subscription import ManagedSubscription

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from ampsq.client.async_client import AsyncClient
    from ampsq.client.handler_rules import Hooks, OnInvalid
    from ampsq.queues.subscription import Message, Subscription


__all__ = ["Worker"]

_log = logging.getLogger("ampsq.worker")
#: Seconds of one wait for a handler to end, and before a server that is away is asked again.
_STEP: Final = 0.25
#: Seconds of one wait for messages; it ends when they are given back.
_WAIT: Final = 60.0
#: Seconds after which a stop is noticed at the latest.
_NOTICED: Final = 0.05
#: Seconds for which an ending worker waits for the server; one that does not answer notices the end by itself.
_ENDS_WITHIN: Final = 2.0
#: Seconds between two lines of a log that say why no more messages are taken.
_SAYS_AGAIN: Final = 60.0


class Worker:
    """Runs a handler over the messages of a queue.

    Args:
        handler: a function of one `Message`, or a coroutine function of one `AsyncMessage`, which may be a barrier:
            `message.is_barrier`. Or a function of data of a type, as in ``def handle(order: Order)``: a model of
            pydantic, a dataclass, a TypedDict or what else its TypeAdapter takes; the message is given to a second
            parameter, as in ``def handle(order: Order, message: Message)``. Its return value is not used.
        queue: the queue, or a regular expression of queues.
        filter: only messages that this expression matches, barriers included; default all.
        url, instance, failover: as `Client`.
        concurrency: messages handled at the same time: threads for a function, tasks of one event loop, in a thread
            of its own, for a coroutine function; `AsyncWorker` uses the loop that you have. For
            more than one core use processes: ``ampsq worker --processes``. The queue has to let a subscription hold as
            many, which by default it does not: `max_per_subscription_backlog`. A warning says so.
        max_backlog: unacknowledged messages at most; default twice the concurrency, so that the next message is at
            hand when one ends.
        stop_timeout: how long running handlers may take to end once the worker is stopped; what then still runs is
            left, and its messages come back.
        cancel_delay: after an exception, how long the message stays away.
        client: one to use, which stays open; default one of the worker's own, as `url` and the others say. A coroutine
            function has an `AsyncClient` beside it, to the same place and with the same options.
        on_invalid: what becomes of a message that does not fit the type that the handler asks for. ``cancel``
            (default): it comes again, after the delay of its queue, with what is wrong as its reason; after 20
            different ones in a row this worker takes no more messages, and says so, since its type may be the one that
            is wrong. ``expire``: it is a dead letter at once, and the worker goes on.
        time_limit: how long a handler may take. Then its message is cancelled, with the reason ``handler_time_limit``:
            it comes again, or is a dead letter, as its queue says. A coroutine is cancelled, too; a thread cannot be
            ended, so that it goes on and its slot is taken meanwhile, which is logged. Default no limit.
        hooks: functions that are called before and behind the handler, `Hooks` or several.

    Attributes:
        handler, queue, filter, concurrency: as given.
        max_backlog: unacknowledged messages at most, as given or worked out.
    """

    def __init__(
        self,
        handler: Callable[..., Any],
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
        on_invalid: OnInvalid = "cancel",
        time_limit: timedelta | float | str | None = None,
        hooks: Hooks | Sequence[Hooks] = (),
    ) -> None:
        self._rules = HandlerRules(
            *(handler, queue),
            filter=filter,
            concurrency=concurrency,
            max_backlog=max_backlog,
            stop_timeout=stop_timeout,
            cancel_delay=cancel_delay,
            on_invalid=on_invalid,
            time_limit=time_limit,
            hooks=hooks,
        )
        self.handler, self.queue, self.filter, self.concurrency = handler, queue, filter, concurrency
        self.max_backlog = self._rules.max_backlog
        self._client, self._owns_client = client, client is None
        self._address, self._failover = (url, instance), failover
        self._stop_timeout = self._rules.stop_timeout
        self._stopping = StopRequest()
        # That `run` has something to do: the worker is stopped, or what it runs has ended.
        self._noticed = StopRequest()
        self._subscription: Subscription | None = None
        # What waits in lanes is given back with what nobody has picked up.
        self._lanes: HandlerLanes[Message] = HandlerLanes()
        self._passed = threading.Event()

    @property
    def processed(self) -> int:
        """Messages so far whose handler returned, barriers included."""
        return self._rules.processed

    @property
    def failed(self) -> int:
        """Messages so far whose handler raised, or ran too long, barriers included."""
        return self._rules.failed

    @property
    def rejected(self) -> int:
        """Messages so far whose handler raised `Reject`, barriers included."""
        return self._rules.rejected

    @property
    def invalid(self) -> int:
        """Messages so far that did not fit the type that the handler asks for."""
        return self._rules.invalid

    @property
    def halted(self) -> str | None:
        """Reason why this worker takes no more messages though it is not stopped; None while it does."""
        return self._rules.halted

    def stop(self) -> None:
        """Ask the worker to stop, from a signal's handler too; `run` returns when it has."""
        self._stopping.set()
        self._noticed.set()

    def run(self, *, signals: bool = False) -> None:
        """Handle messages until stopped.

        Args:
            signals: stop on SIGTERM and SIGINT; only in the main thread.

        Raises:
            AmpsqError: the queue is unknown, or the server could not be reached for longer than a client waits.
        """
        if self._rules.is_coroutine:
            self._run_coroutines(signals=signals)
            return
        client = self._client or Client(self._address[0], instance=self._address[1], failover=self._failover)
        if signals:
            # From here on: before, a signal ends the process in the usual way, and nothing is held yet.
            stop_on_signals(self.stop)
        runner = HandlerSlots(self._rules, self._settle)
        self._lanes = runner.lanes
        try:
            self._serve(client, runner)
        finally:
            runner.close()

    def _serve(self, client: Client, runner: HandlerSlots) -> None:
        failures: list[BaseException] = []
        self._subscription, self._noticed = None, StopRequest()

        def loop() -> None:
            try:
                self._subscription = client.subscribe(
                    self.queue, max_backlog=self.max_backlog, filter=self.filter, renew=True
                )
                self._rules.advise(self._subscription.max_backlog)
                self._loop(self._subscription, runner)
            except BaseException as error:  # noqa: BLE001  (raised again by `run`)
                failures.append(error)
            finally:
                self._noticed.set()

        # In a thread of its own, so that neither a handler nor a wait keeps `run` from stopping in time.
        thread = threading.Thread(target=loop, name="ampsq-worker-loop", daemon=True)
        thread.start()
        self._wait_until_noticed()
        # Where it has ended by itself, it is not to be waited for as one that runs.
        thread.join(0.0 if self._stopping.is_set() else None)
        failures += self._end(client, runner, thread, has_failed=bool(failures))
        if failures:
            raise failures[0]

    def _wait_until_noticed(self) -> None:
        """Wait until the worker is stopped, or what it runs has ended; nothing else wakes this thread."""
        # Whoever stopped it before did not know of what is waited for now.
        if not self._stopping.is_set():
            self._noticed.wait()

    def _end(
        self, client: Client, runner: HandlerSlots, loop: threading.Thread, *, has_failed: bool
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
                _give_back(subscription, self._lanes)
            handled.wait()
            if subscription is not None:
                subscription.close()
        finally:
            if self._owns_client:
                client.close()

    def _loop(self, subscription: Subscription, runner: HandlerSlots) -> None:
        # One of all partitions is not told when what it has is given back.
        wait = _WAIT if len(managed_parts(subscription, ManagedSubscription.of)) == 1 else _STEP
        while not self._stopping.is_set():
            if self._rules.halted is not None:
                self._stay_halted(subscription)
                return
            if not runner.has_room(_STEP):
                continue
            try:
                message = subscription.get(wait)
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

    def _stay_halted(self, subscription: Subscription) -> None:
        """Take nothing more and give back what was not started, until the worker is stopped."""
        _give_back(subscription, self._lanes)
        while not self._stopping.wait(_SAYS_AGAIN):
            _log.error("%s", self.halted)

    # -- a coroutine function

    def _run_coroutines(self, *, signals: bool) -> None:
        """Await the handler in a thread with an event loop of its own, and end with it."""
        import asyncio  # noqa: PLC0415  (slow to import)

        from ampsq.client.handler_tasks import HandlerTasks  # noqa: PLC0415

        self._noticed = StopRequest()
        worker = HandlerTasks(self._rules, None, self._async_client)
        failures: list[BaseException] = []
        loop = asyncio.new_event_loop()

        def run() -> None:
            try:
                loop.run_until_complete(worker.run())
            except BaseException as error:  # noqa: BLE001  (raised again by `run`)
                failures.append(error)
            finally:
                try:
                    # Not what waits in threads: they may never end.
                    loop.close()
                finally:
                    self._noticed.set()

        if signals:
            stop_on_signals(self.stop)
        thread = threading.Thread(target=run, name="ampsq-worker-tasks", daemon=True)
        thread.start()
        self._wait_until_noticed()
        worker.stop()
        until = time.monotonic() + self._stop_timeout + 3 * _ENDS_WITHIN
        while thread.is_alive() and time.monotonic() < until:
            thread.join(_NOTICED)
        if thread.is_alive():
            _log.warning("a handler keeps the event loop at the stop deadline; its messages come back")
            worker.abandon()
        if failures:
            raise failures[0]

    def _async_client(self) -> AsyncClient:
        """Return an asyncio client to the same place, not connected."""
        from ampsq.client.async_client import AsyncClient  # noqa: PLC0415  (slow to import)

        if self._client is not None:
            return AsyncClient._beside(self._client)  # noqa: SLF001  (its other half)
        return AsyncClient(self._address[0], instance=self._address[1], failover=self._failover)

    # -- one message

    def _settle(self, message: Message, error: BaseException | None) -> None:
        """Settle a message by what its handler did, unless the handler has settled it itself."""
        was_halted = self.halted is not None
        settlement = self._rules.settlement(message, error)
        try:
            if settlement is None:
                pass
            elif settlement.verb == "ack":
                message.ack()
            elif settlement.verb == "expire":
                message.expire(reason=settlement.reason)
            else:
                message.cancel(settlement.delay, reason=settlement.reason)
        except (StaleLease, AlreadyAcked) as late:
            _log.warning("%r ended after its lease: %s", message, late)
        except AmpsqError as lost:
            # The lease lapses, and the message comes back by itself.
            _log.warning("%r could not be settled: %s", message, lost)
        if message.is_barrier:
            self._passed.set()
        self._rules.count(error)
        if self.halted is not None and not was_halted and self._subscription is not None:
            # Who waits for the next message is to have none.
            _give_back(self._subscription, self._lanes)


def _give_back(subscription: Subscription, lanes: HandlerLanes[Message]) -> None:
    """Give back what was picked up and not started, before the running handlers are waited for."""
    waiting, parts = lanes.take_waiting(), managed_parts(subscription, ManagedSubscription.of)
    for each in parts:
        own = waiting if len(parts) == 1 else [every for every in waiting if every._managed is each]  # noqa: SLF001
        try:
            each.give_back(own)
        except AmpsqError as error:
            _log.warning("what was not started could not be given back, and comes back by itself: %s", error)
