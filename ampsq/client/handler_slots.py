"""The handlers of a worker as they run in threads, as many as it has slots; those that run longer than they may."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import queue
import threading
import time
from typing import TYPE_CHECKING, Any, TypeAlias

from ampsq.client.handler_lanes import HandlerLanes
from ampsq.client.handler_rules import HandlerTimeLimit, call_hooks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ampsq.client.handler_rules import HandlerRules
    from ampsq.queues.subscription import Message

    _Settle: TypeAlias = Callable[[Message, BaseException | None], None]

__all__ = ["HandlerSlots"]

_log = logging.getLogger("ampsq.worker")


async def _awaited(result: Awaitable[Any]) -> None:
    await result


class HandlerSlots:
    """Runs a function in threads, as many at the same time as there are slots; with one slot, in the worker's own.

    They are daemons: what still runs at the stop deadline does not keep the process alive.

    Args:
        rules: the handler, and how it is to be run.
        settle: called with a message, and what its handler raised, once that has ended or has run too long.

    Attributes:
        running: handlers that have begun and not ended, without those that ran too long; what settles their messages
            afterwards is not counted.
        overrun: handlers that run longer than their time limit, now.
        lanes: the messages that wait for those before them in their batches.
    """

    def __init__(self, rules: HandlerRules, settle: _Settle) -> None:
        self._rules, self._settle = rules, settle
        self._concurrency = rules.concurrency
        self._slots = threading.Semaphore(self._concurrency)
        self._counting = threading.Lock()
        self.running = self.overrun = 0
        self.lanes: HandlerLanes[Message] = HandlerLanes()
        self._messages: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._number = self._concurrency if self._concurrency > 1 else 0
        for number in range(self._number):
            threading.Thread(target=self._work, name=f"ampsq-worker-{number}", daemon=True).start()
        # Messages whose handlers run, in the order of their deadlines, with when that is; of a worker with a limit.
        self._deadlines: dict[int, tuple[float, Message]] = {}
        self._watched = threading.Condition(self._counting)
        self._is_closed = False
        if rules.time_limit is not None:
            threading.Thread(target=self._watch, name="ampsq-worker-limit", daemon=True).start()

    def has_room(self, timeout: float) -> bool:
        """Wait for a free slot."""
        if self._slots.acquire(timeout=timeout):
            self._slots.release()
            return True
        return False

    @property
    def is_idle(self) -> bool:
        """True where no handler runs within its time limit, and no message waits to be settled."""
        number = 0
        while self._slots.acquire(blocking=False):
            number += 1
        if number:
            self._slots.release(number)
        return number >= self._concurrency - self.overrun

    def start(self, message: Message) -> None:
        """Handle a message in a free slot, or behind the one before it in its batch."""
        if not self.lanes.enter(message):
            return
        self._slots.acquire()
        if self._number:
            self._messages.put(message)
        else:
            self._handle(message)

    def _work(self) -> None:
        while (message := self._messages.get()) is not None:
            self._handle(message)

    def _call(self, message: Message) -> None:
        result = self._rules.handler(message)
        if inspect.isawaitable(result):
            # A plain function may hand back a coroutine, as a lambda or a decorator does: the work itself.
            asyncio.run(_awaited(result))

    def _handle(self, message: Message) -> None:
        following: Message | None = message
        try:
            while following is not None:
                self._handle_one(following)
                following = self.lanes.next(following)
        finally:
            self._slots.release()

    def _handle_one(self, message: Message) -> None:
        rules = self._rules
        # What hooks set in it, as a span that is open, ends with the message.
        context = contextvars.copy_context() if rules.hooks else None
        error: BaseException | None = None
        self._begin(message)
        try:
            if context is None:
                self._call(message)
            else:
                context.run(call_hooks, rules.hooks_before(message))
                context.run(self._call, message)
        except BaseException as raised:  # noqa: BLE001  (whatever a handler raises is an answer, SystemExit too)
            error = raised
        if self._ended(message):
            if context is not None:
                context.run(call_hooks, rules.hooks_behind(message, error))
            self._settle(message, error)

    # -- the time limit

    def _begin(self, message: Message) -> None:
        limit = self._rules.time_limit
        with self._counting:
            self.running += 1
            if limit is not None:
                self._deadlines[id(message)] = time.monotonic() + limit, message
                self._watched.notify()

    def _ended(self, message: Message) -> bool:
        """Note that a handler has ended; gives whether its message is to be settled, as it was not at its limit."""
        with self._counting:
            if self._rules.time_limit is None or self._deadlines.pop(id(message), None) is not None:
                self.running -= 1
                return True
            self.overrun -= 1
        _log.warning("the handler of %r has ended, after its time limit; its message was given up before", message)
        return False

    def _watch(self) -> None:
        while (message := self._next_overrun()) is not None:
            _log.error(
                "the handler of %r runs longer than its time limit of %g s, and a thread cannot be ended: its message "
                "is given up, and its slot is taken until it ends",
                message,
                self._rules.time_limit,
            )
            error = HandlerTimeLimit()
            call_hooks(self._rules.hooks_behind(message, error))
            self._settle(message, error)
            self._rules.on_overrun()

    def _next_overrun(self) -> Message | None:
        """Wait for a handler that runs too long; None when nobody has to watch any more."""
        with self._watched:
            while not self._is_closed:
                first = next(iter(self._deadlines.items()), None)
                wait = None if first is None else first[1][0] - time.monotonic()
                if first is not None and wait is not None and wait <= 0:
                    del self._deadlines[first[0]]
                    self.running -= 1
                    self.overrun += 1
                    return first[1][1]
                self._watched.wait(wait)
        return None

    # -- the end

    def finish(self) -> None:
        """Let nothing be started any more."""
        while self._slots.acquire(blocking=False):
            pass
        # Those that ran too long were told of, and their messages are settled.
        if running := self.running:
            _log.warning("%d handlers still run at the stop deadline; their messages come back", running)

    def close(self) -> None:
        """Let the threads go."""
        for _ in range(self._number):
            self._messages.put(None)
        with self._watched:
            self._is_closed = True
            self._watched.notify()
