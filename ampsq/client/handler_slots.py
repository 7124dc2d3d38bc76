"""The handlers of a worker as they run: in threads or as tasks of an event loop, as many as it has slots."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import queue
import threading
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from ampsq.queues.subscription import Message

    _Handler: TypeAlias = Callable[[Message], Any]
    _Settle: TypeAlias = Callable[[Message, BaseException | None], None]

__all__ = ["HandlerSlots", "HandlerTasks", "HandlerThreads", "is_of_kind"]

_log = logging.getLogger("ampsq.worker")
#: Seconds in which what still runs is cancelled, and then the thread ends.
_ENDS_WITHIN = 0.25


def is_of_kind(handler: Callable[..., Any], *tests: Callable[[Any], bool]) -> bool:
    """Ask whether a function, or an object's way of being called, is of a kind."""
    return any(test(handler) or test(getattr(handler, "__call__", None)) for test in tests)  # noqa: B004  (its kind)


async def _awaited(result: Awaitable[Any]) -> None:
    await result


class HandlerSlots:
    """The room for handlers that run at the same time.

    Args:
        handler: what is called with each message.
        concurrency: how many at the same time.
        settle: called with a message, and what its handler raised, once that has ended.

    Attributes:
        running: handlers that have begun and not ended; what settles their messages afterwards is not counted.
    """

    def __init__(self, handler: _Handler, concurrency: int, settle: _Settle) -> None:
        self._handler, self._concurrency, self._settle = handler, concurrency, settle
        self._slots = threading.Semaphore(concurrency)
        self._counting = threading.Lock()
        self.running = 0

    def has_room(self, timeout: float) -> bool:
        """Wait for a free slot."""
        if self._slots.acquire(timeout=timeout):
            self._slots.release()
            return True
        return False

    @property
    def is_idle(self) -> bool:
        """True where no handler runs and no message waits to be settled."""
        number = 0
        while self._slots.acquire(blocking=False):
            number += 1
        if number:
            self._slots.release(number)
        return number == self._concurrency

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count a handler while it runs."""
        with self._counting:
            self.running += 1
        try:
            yield
        finally:
            with self._counting:
                self.running -= 1

    def finish(self) -> None:
        """Let nothing be started any more."""
        while self._slots.acquire(blocking=False):
            pass
        if running := self.running:
            _log.warning("%d handlers still run at the stop deadline; their messages come back", running)


class HandlerThreads(HandlerSlots):
    """Runs a function in threads; with a concurrency of one, in the worker's own.

    They are daemons: what still runs at the stop deadline does not keep the process alive.
    """

    def __init__(self, handler: _Handler, concurrency: int, settle: _Settle) -> None:
        super().__init__(handler, concurrency, settle)
        self._messages: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._number = concurrency if concurrency > 1 else 0
        for number in range(self._number):
            threading.Thread(target=self._work, name=f"ampsq-worker-{number}", daemon=True).start()

    def start(self, message: Message) -> None:
        """Handle a message in a free slot."""
        self._slots.acquire()
        if self._number:
            self._messages.put(message)
        else:
            self._handle(message)

    def _work(self) -> None:
        while (message := self._messages.get()) is not None:
            self._handle(message)

    def _handle(self, message: Message) -> None:
        error: BaseException | None = None
        try:
            with self.counted():
                result = self._handler(message)
                if inspect.isawaitable(result):
                    # A plain function may hand back a coroutine, as a lambda or a decorator does: the work itself.
                    asyncio.run(_awaited(result))
        except BaseException as raised:  # noqa: BLE001  (whatever a handler raises is an answer, SystemExit too)
            error = raised
        try:
            self._settle(message, error)
        finally:
            self._slots.release()

    def close(self) -> None:
        """Let the threads go."""
        for _ in range(self._number):
            self._messages.put(None)


class HandlerTasks(HandlerSlots):
    """Runs a coroutine function as tasks of one event loop, in a thread of its own."""

    def __init__(self, handler: _Handler, concurrency: int, settle: _Settle) -> None:
        super().__init__(handler, concurrency, settle)
        self._closing = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ampsq-tasks", daemon=True)
        self._thread.start()

    def start(self, message: Message) -> None:
        """Handle a message in a free slot."""
        self._slots.acquire()
        future = asyncio.run_coroutine_threadsafe(self._handle(message), self._loop)
        future.add_done_callback(lambda _: self._slots.release())

    async def _handle(self, message: Message) -> None:
        error: BaseException | None = None
        try:
            with self.counted():
                await self._handler(message)
        except BaseException as raised:  # noqa: BLE001  (an answer too: CancelledError, SystemExit)
            if self._closing:
                # Cancelled at the stop deadline: the message comes back uncancelled.
                return
            error = raised
        await asyncio.to_thread(self._settle, message, error)

    async def _cancel_all(self) -> None:
        running = asyncio.all_tasks() - {asyncio.current_task()}
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def close(self) -> None:
        """End the event loop; what still runs is cancelled."""
        self._closing = True
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(self._cancel_all(), self._loop).result(timeout=_ENDS_WITHIN)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=_ENDS_WITHIN)
        if not self._thread.is_alive():
            self._loop.close()
