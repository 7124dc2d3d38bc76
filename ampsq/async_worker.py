"""The worker of asyncio: a coroutine function awaited with each message of a queue, in the event loop that runs it.

As `ampsq.worker`, whose docstring says what returning, raising and stopping mean; it gives handlers the asyncio
message, and no thread stands between them and the server.
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

from ampsq.base.shutdown import RepeatedSignals
from ampsq.client.async_client import AsyncClient
from ampsq.client.handler_rules import HandlerRules
from ampsq.client.handler_tasks import HandlerTasks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from ampsq.client.handler_rules import Hooks, OnInvalid

__all__ = ["AsyncWorker"]


class AsyncWorker:
    """Runs a coroutine function over the messages of a queue, as tasks of the running event loop.

    Args:
        handler: a coroutine function of one `AsyncMessage`, or of data of a type; see `Worker`.
        queue: the queue, or a regular expression of queues.
        client: one to use, connected, which stays open; default one of the worker's own, as `url` and the others say.
        filter, url, instance, failover: as `Worker`.
        concurrency: messages handled at the same time, each in a task.
        max_backlog, stop_timeout, cancel_delay, on_invalid, hooks: as `Worker`.
        time_limit: how long a handler may take. Then it is cancelled, and so is its message, with the reason
            ``handler_time_limit``: it comes again, or is a dead letter, as its queue says. Default no limit.

    Attributes:
        handler, queue, filter, concurrency: as given.
        max_backlog: unacknowledged messages at most, as given or worked out.
        processed, failed, rejected, invalid, halted: as of `Worker`.
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
        client: AsyncClient | None = None,
        on_invalid: OnInvalid = "cancel",
        time_limit: timedelta | float | str | None = None,
        hooks: Hooks | Sequence[Hooks] = (),
    ) -> None:
        rules = HandlerRules(
            *(handler, queue),
            awaited=True,
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
        self.max_backlog = rules.max_backlog
        self._rules = rules
        self._tasks = HandlerTasks(rules, client, lambda: AsyncClient(url, instance=instance, failover=failover))

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
        """Ask the worker to stop, from any thread and from a signal's handler too; `run` returns when it has."""
        self._tasks.stop()

    async def run(self, *, signals: bool = False) -> None:
        """Handle messages until stopped.

        Cancelled, it cancels the handlers, whose messages come back; `stop` lets them end.

        Args:
            signals: stop on SIGTERM and SIGINT; only in the main thread.

        Raises:
            AmpsqError: the queue is unknown, or the server could not be reached for longer than a client waits.
        """
        if signals:
            loop, came = asyncio.get_running_loop(), RepeatedSignals()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._signalled, loop, number, came)
        await self._tasks.run()

    def _signalled(self, loop: asyncio.AbstractEventLoop, number: int, came: RepeatedSignals) -> None:
        if came.is_again(number):
            # It ends the process in the usual way; its messages come back by themselves.
            loop.remove_signal_handler(number)
            signal.raise_signal(number)
        self.stop()
