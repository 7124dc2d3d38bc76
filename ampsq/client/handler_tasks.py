"""The handlers of a worker as they run as tasks of an event loop: messages are taken, handled and settled."""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING, Any, Final

from ampsq.base.errors import AlreadyAcked, AmpsqError, StaleLease, Unavailable
from ampsq.client.handler_lanes import HandlerLanes
from ampsq.client.handler_rules import HandlerTimeLimit, log_failed_hook
from ampsq.client.partition_rules import managed_parts
from ampsq.queues.async_subscription import AsyncManagedSubscription

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from ampsq.client.async_client import AsyncClient
    from ampsq.client.handler_rules import HandlerRules, HookCall, Settlement
    from ampsq.queues.async_subscription import AsyncMessage, AsyncSubscription
    from ampsq.queues.heartbeat import Keepalive

__all__ = ["HandlerTasks"]

_log = logging.getLogger("ampsq.worker")
#: Seconds before a server that is away is asked again.
_STEP: Final = 0.25
#: Seconds of one wait for messages; it ends when they are given back.
_WAIT: Final = 60.0
#: Seconds for which an ending worker waits for the server; one that does not answer notices the end by itself.
_ENDS_WITHIN: Final = 2.0
#: Seconds in which a wait for messages ends that was cancelled.
_LET_GO: Final = 1.0
#: Seconds to tell a server of an end that has not answered before.
_ENDS_AT_ONCE: Final = 0.1
#: Seconds between two lines of a log that say why no more messages are taken.
_SAYS_AGAIN: Final = 60.0


class HandlerTasks:
    """A coroutine function awaited with each message of a queue, as many at the same time as its rules say.

    Args:
        rules: the handler, and how it is to be run.
        client: one to use, connected, which stays open; None: one of its own.
        connect: makes one of its own, not connected.
    """

    def __init__(self, rules: HandlerRules, client: AsyncClient | None, connect: Callable[[], AsyncClient]) -> None:
        self._rules, self._client, self._make_client = rules, client, connect
        self._is_stopped = False
        # Since the stop deadline: what is cancelled then comes back by itself.
        self._is_abandoning = self._is_silent = False
        self._wake: Callable[[], object] = lambda: None
        self._keepalives: list[Keepalive] = []
        self._lanes: HandlerLanes[AsyncMessage] = HandlerLanes()

    def stop(self) -> None:
        """Let `run` end, from any thread."""
        self._is_stopped = True
        self._wake()

    def abandon(self) -> None:
        """Show no more signs of life, from another thread, though a handler keeps the event loop."""
        for keepalive in self._keepalives:
            keepalive.stop()

    async def run(self) -> None:
        """Handle messages until stopped; see `AsyncWorker.run`."""
        loop, stopping = asyncio.get_running_loop(), asyncio.Event()
        self._wake = lambda: loop.call_soon_threadsafe(stopping.set)
        if self._is_stopped:
            stopping.set()
        self._is_abandoning = self._is_silent = False
        client = self._client or self._make_client()
        try:
            subscription = await self._begin(client, stopping)
            if subscription is not None:
                # Of all partitions, each has one.
                clients: list[AsyncClient] = getattr(client, "clients", [client])
                self._keepalives = [each._connection.parts.keepalive for each in clients]  # noqa: SLF001  (a friend)
                await self._serve(subscription, stopping)
        finally:
            self._wake, self._keepalives = lambda: None, []
            if self._client is None:
                await self._tell(client.close())

    async def _begin(self, client: AsyncClient, stopping: asyncio.Event) -> AsyncSubscription | None:
        """Subscribe; None where the worker is stopped before the server has answered."""

        async def subscribe() -> AsyncSubscription:
            if self._client is None:
                await client.connect()
            rules = self._rules
            return await client.subscribe(rules.queue, max_backlog=rules.max_backlog, filter=rules.filter, renew=True)

        subscribing = asyncio.create_task(subscribe(), name="ampsq-worker-begin")
        stopped = asyncio.create_task(stopping.wait(), name="ampsq-worker-stop")
        try:
            await asyncio.wait({subscribing, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not subscribing.done():
                subscribing.cancel()
                await asyncio.wait({subscribing}, timeout=_LET_GO)
                self._is_silent = True
                return None
            return subscribing.result()
        finally:
            subscribing.cancel()
            stopped.cancel()

    async def _serve(self, subscription: AsyncSubscription, stopping: asyncio.Event) -> None:
        running: set[asyncio.Task[None]] = set()
        self._rules.advise(subscription.max_backlog)
        taking = asyncio.create_task(self._take(subscription, running), name="ampsq-worker-take")
        stopped = asyncio.create_task(stopping.wait(), name="ampsq-worker-stop")
        try:
            await asyncio.wait({taking, stopped}, return_when=asyncio.FIRST_COMPLETED)
            taking.cancel()
            # Where the server is away, it may still be on its way back.
            await asyncio.wait({taking}, timeout=_LET_GO)
            self._is_silent = not taking.done()
            if taking.done() and not taking.cancelled() and (error := taking.exception()) is not None:
                raise error
            await self._end(subscription, running)
        finally:
            self._is_abandoning = True
            for task in (taking, stopped, *running):
                task.cancel()
            await asyncio.wait({taking, stopped, *running}, timeout=_ENDS_AT_ONCE if self._is_silent else _ENDS_WITHIN)
            await self._tell(subscription.close())

    async def _tell(self, work: Coroutine[Any, Any, None]) -> None:
        """Await what tells the server of an end; one that does not answer keeps nobody, and is not waited for again."""
        try:
            async with asyncio.timeout(_ENDS_AT_ONCE if self._is_silent else _ENDS_WITHIN):
                await work
        except TimeoutError:
            if not self._is_silent:
                _log.warning("the server does not answer; what is leased here comes back to its queue by itself")
            self._is_silent = True
        except AmpsqError as error:
            _log.warning("the server could not be told of the end, and finds out by itself: %s", error)

    async def _end(self, subscription: AsyncSubscription, running: set[asyncio.Task[None]]) -> None:
        """Give back what was not started, then let running handlers end."""
        if running:
            _log.info("stopping: %d handlers run, and have %.0f s to end", len(running), self._rules.stop_timeout)
        await self._give_back(subscription)
        if running:
            _, late = await asyncio.wait(running, timeout=self._rules.stop_timeout)
            if late:
                _log.warning("%d handlers still run at the stop deadline; their messages come back", len(late))

    async def _give_back(self, subscription: AsyncSubscription) -> None:
        """Give back what was picked up and not started."""
        waiting, parts = self._lanes.take_waiting(), managed_parts(subscription, AsyncManagedSubscription.of)
        for each in parts:
            own = waiting if len(parts) == 1 else [every for every in waiting if every._managed is each]  # noqa: SLF001
            await self._tell(each.give_back(own))

    async def _take(self, subscription: AsyncSubscription, running: set[asyncio.Task[None]]) -> None:
        slots = asyncio.Semaphore(self._rules.concurrency)
        # One of all partitions is not told when what it has is given back.
        wait = _WAIT if len(managed_parts(subscription, AsyncManagedSubscription.of)) == 1 else _STEP
        while True:
            await slots.acquire()
            # Only now: the handler that had the slot may have been the last one.
            if self._rules.halted is not None:
                break
            try:
                message = await subscription.get(wait)
            except Unavailable as error:
                slots.release()
                _log.warning("no server, trying on: %s", error)
                await asyncio.sleep(_STEP)
                continue
            except BaseException:
                slots.release()
                raise
            if message is None or not self._lanes.enter(message):
                slots.release()
                continue
            handling = self._handle(message, slots, subscription)
            task = asyncio.create_task(handling, name=f"ampsq-worker-{self._rules.queue}")
            running.add(task)
            task.add_done_callback(running.discard)
            if message.is_barrier:
                # What comes behind a barrier waits for its handler.
                await asyncio.wait({task})
        await self._give_back(subscription)
        while True:
            await asyncio.sleep(_SAYS_AGAIN)
            _log.error("%s", self._rules.halted)

    # -- one message

    async def _handle(self, message: AsyncMessage, slots: asyncio.Semaphore, subscription: AsyncSubscription) -> None:
        following: AsyncMessage | None = message
        try:
            while following is not None:
                was_halted = self._rules.halted is not None
                await self._handle_one(following)
                if self._rules.halted is not None and not was_halted:
                    # Who waits for the next message is to have none.
                    await self._give_back(subscription)
                following = None if self._is_abandoning else self._lanes.next(following)
        finally:
            slots.release()

    async def _handle_one(self, message: AsyncMessage) -> None:
        rules = self._rules
        error: BaseException | None = None
        try:
            if rules.hooks:
                await _await_hooks(rules.hooks_before(message))
            if rules.time_limit is None:
                await rules.handler(message)
            else:
                await self._handle_within(rules.time_limit, message)
        except BaseException as raised:  # noqa: BLE001  (an answer too: CancelledError, SystemExit)
            if self._is_abandoning:
                # Cancelled at the stop deadline: the message comes back uncancelled.
                return
            error = raised
        if rules.hooks:
            await _await_hooks(rules.hooks_behind(message, error))
        await self._settle(message, rules.settlement(message, error))
        rules.count(error)

    async def _handle_within(self, seconds: float, message: AsyncMessage) -> None:
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                await self._rules.handler(message)
        except TimeoutError:
            if limit.expired():
                raise HandlerTimeLimit from None
            raise

    async def _settle(self, message: AsyncMessage, settlement: Settlement | None) -> None:
        try:
            if settlement is None:
                return
            if settlement.verb == "ack":
                await message.ack()
            elif settlement.verb == "expire":
                await message.expire(reason=settlement.reason)
            else:
                await message.cancel(settlement.delay, reason=settlement.reason)
        except (StaleLease, AlreadyAcked) as late:
            _log.warning("%r ended after its lease: %s", message, late)
        except AmpsqError as lost:
            # The lease lapses, and the message comes back by itself.
            _log.warning("%r could not be settled: %s", message, lost)


async def _await_hooks(calls: Iterable[HookCall]) -> None:
    """Call hooks and await what can be awaited; what one raises is logged."""
    for hook, arguments in calls:
        try:
            result = hook(*arguments)
            if inspect.isawaitable(result):
                await result
        except Exception:  # noqa: BLE001  (whatever a hook of a user's raises)
            log_failed_hook(hook)
