"""The rules by which both workers settle a message after its handler, and the counts that they keep."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from ampsq.base.errors import DefinitionError
from ampsq.base.values import Interval, is_name, shown
from ampsq.client.typed_handlers import InvalidMessage, as_handler, is_of_kind, is_typed
from ampsq.queues.returns import failure_text, shortened_reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import timedelta
    from typing import TypeAlias

    from ampsq.base.bookmarks import Bookmark
    from ampsq.queues.message import MessageView

    #: A hook, with what it is called with.
    HookCall: TypeAlias = tuple[Callable[..., object], tuple[object, ...]]

__all__ = [
    "HandlerRules",
    "HandlerTimeLimit",
    "Hooks",
    "OnInvalid",
    "Reject",
    "Settlement",
    "advise_of_backlog",
    "as_hooks",
    "call_hooks",
    "log_failed_hook",
]

_log = logging.getLogger("ampsq.worker")
#: Different messages in a row that do not fit a handler's type, after which its worker takes no more.
MOST_INVALID: Final = 20

OnInvalid = Literal["cancel", "expire"]


class Reject(Exception):
    """Raised by a handler: this message can never be processed. It expires, and dead-letter actions see it.

    Its text is noted as the reason; that of any other exception with its type, as the message is cancelled.
    """


class HandlerTimeLimit(Exception):
    """A handler ran longer than its worker's `time_limit`: it was cancelled, or its thread goes on without the message.

    Hooks are given it; its text is the reason with which the message is cancelled: ``handler_time_limit``.
    """

    def __str__(self) -> str:
        return "handler_time_limit"


@dataclass(frozen=True, slots=True)
class Hooks:
    """Functions that a worker calls around its handler, in the handler's thread or task and in a context of its own.

    What they raise is logged, and changes nothing. With several hooks those of `before` run in their order, the others
    the other way round. A worker that awaits its handler awaits what they return, too.

    Args:
        before: called with the message, before its data are validated and the handler runs.
        after: called with the message when the handler has returned, before the message is acknowledged.
        failed: called with the message and the error: what the handler raised, `Reject` too, `InvalidMessage` where
            the data did not fit, `HandlerTimeLimit` where it took too long; of a thread that goes on, from another one.
    """

    before: Callable[[Any], object] | None = None
    after: Callable[[Any], object] | None = None
    failed: Callable[[Any, BaseException], object] | None = None


class Settlement(NamedTuple):
    """The way in which a worker settles a message.

    Attributes:
        verb: acknowledge, cancel or expire.
        delay: how long a cancelled one stays away; None: as its queue says.
        reason: why, in one line.
    """

    verb: Literal["ack", "cancel", "expire"]
    delay: timedelta | float | str | None = None
    reason: str | None = None


class HandlerRules:
    """A worker's handler, how it is to be run, and what its results mean.

    Args:
        handler: as of `Worker`, like all others.
        awaited: whether the handler has to be a coroutine function.
        queue, filter, concurrency, max_backlog, stop_timeout, cancel_delay, on_invalid, time_limit, hooks: as of
            `Worker`.

    Attributes:
        handler: called with a message.
        is_coroutine: whether what it returns is awaited.
        max_backlog: as given or worked out.
        stop_timeout: seconds.
        time_limit: seconds; None: none.
        hooks: in their order.
        processed, failed, rejected, invalid: messages so far, by what became of them.
        halted: why no more messages are taken; None while they are.
        on_overrun: called, from a thread of its own, when a thread has run longer than the time limit and its message
            is settled; the process may be replaced. Default nothing.

    Raises:
        DefinitionError: one of them is not what is allowed.
    """

    def __init__(
        self,
        handler: Callable[..., Any],
        queue: str,
        *,
        awaited: bool = False,
        filter: str | None,  # noqa: A002  (AMPS's word)
        concurrency: int,
        max_backlog: int | None,
        stop_timeout: timedelta | float | str,
        cancel_delay: timedelta | float | str | None,
        on_invalid: OnInvalid,
        time_limit: timedelta | float | str | None,
        hooks: Hooks | Sequence[Hooks],
    ) -> None:
        if not isinstance(concurrency, int) or concurrency < 1:
            raise DefinitionError(f"concurrency={shown(concurrency)}: allowed is a whole number from 1 on")
        if on_invalid not in ("cancel", "expire"):
            raise DefinitionError(f"on_invalid={shown(on_invalid)}: allowed is cancel or expire")
        self.handler = as_handler(handler)
        self.is_coroutine = is_of_kind(handler, inspect.iscoroutinefunction)
        if awaited and not self.is_coroutine:
            raise DefinitionError(
                f"handler={shown(handler)}: AsyncWorker awaits its handler; allowed is a coroutine function, "
                "`async def`; for a plain function Worker, which runs it in threads"
            )
        self.queue, self.filter, self.concurrency = queue, filter, concurrency
        self.max_backlog = 2 * concurrency if max_backlog is None else max_backlog
        self.stop_timeout = Interval.of_argument("stop_timeout", stop_timeout) / 1000
        self.cancel_delay = cancel_delay
        self.time_limit = None if time_limit is None else _limit(time_limit)
        self.hooks = _hooks(hooks, is_awaited=self.is_coroutine)
        self.processed = self.failed = self.rejected = self.invalid = 0
        self.halted: str | None = None
        self.on_overrun: Callable[[], None] = _do_nothing
        self._expires_invalid = on_invalid == "expire"
        self._is_typed = is_typed(self.handler)
        # Messages that did not fit since the last one that did: one that comes again and again counts once.
        self._invalid_in_a_row: set[Bookmark] = set()
        self._counting = threading.Lock()
        # Whether nobody is to be warned any more that the queue leaves handlers idle.
        self.is_advised = False

    def settlement(self, message: MessageView, error: BaseException | None) -> Settlement | None:
        """Decide what becomes of a message whose handler has ended, and log what has to be known.

        Args:
            message: the message.
            error: what the handler raised; None where it returned.

        Returns:
            What to do; None where nothing is to be done: the handler has settled it itself, or it is a barrier.
        """
        if message.is_barrier:
            if error is not None:
                _log.warning("the handler of %r failed; a barrier does not come again: %r", message, error)
            return None
        if isinstance(error, InvalidMessage):
            return self._settlement_of_invalid(message, error)
        if self._invalid_in_a_row:
            with self._counting:
                self._invalid_in_a_row.clear()
        if error is None or message.settled:
            return None if message.settled else Settlement("ack")
        return self._settlement_of_failed(message, error)

    def _settlement_of_failed(self, message: MessageView, error: BaseException) -> Settlement:
        if isinstance(error, HandlerTimeLimit):
            _log.warning("%r is cancelled: its handler ran longer than %g s", message, self.time_limit)
            return Settlement("cancel", self.cancel_delay, str(error))
        if isinstance(error, Reject):
            _log.info("%r is rejected: %s", message, error)
            return Settlement("expire", reason=shortened_reason(str(error)))
        # Raising is an ordinary way to say "not now"; the traceback is for who looks for it.
        trace = error if _log.isEnabledFor(logging.DEBUG) else None
        _log.warning("%r is cancelled: %s: %s", message, type(error).__name__, error, exc_info=trace)
        return Settlement("cancel", self.cancel_delay, failure_text(error))

    def _settlement_of_invalid(self, message: MessageView, error: InvalidMessage) -> Settlement:
        reason = shortened_reason(str(error))
        if self._expires_invalid:
            _log.warning("%r is expired: %s", message, reason)
            return Settlement("expire", reason=reason)
        _log.warning("%r is cancelled: %s", message, reason)
        with self._counting:
            self._invalid_in_a_row.add(message.bookmark)
            if len(self._invalid_in_a_row) >= MOST_INVALID and self.halted is None:
                self.halted = (
                    f"{MOST_INVALID} messages in a row do not fit what the handler of {self.queue!r} asks for, the "
                    f"last one: {reason}. This worker takes no more of them: its type may be wrong. Mend it "
                    "and start the worker again; on_invalid='expire' makes dead letters of such messages instead"
                )
                _log.error("%s", self.halted)
        # The queue's back-off, whatever the worker's own delay: another worker may have the right type.
        return Settlement("cancel", None, reason)

    # -- hooks

    def hooks_before(self, message: MessageView) -> Iterator[HookCall]:
        """Give the hooks that precede a handler."""
        return ((each.before, (message,)) for each in self.hooks if each.before is not None)

    def hooks_behind(self, message: MessageView, error: BaseException | None) -> Iterator[HookCall]:
        """Give the hooks that follow a handler, by what it raised, the last one first."""
        for each in reversed(self.hooks):
            if error is None and each.after is not None:
                yield each.after, (message,)
            if error is not None and each.failed is not None:
                yield each.failed, (message, error)

    # -- figures

    def count(self, error: BaseException | None) -> None:
        """Count a message whose handler has ended, barriers included."""
        with self._counting:
            if error is None:
                self.processed += 1
            elif isinstance(error, InvalidMessage):
                self.invalid += 1
            elif isinstance(error, Reject):
                self.rejected += 1
            else:
                self.failed += 1

    def advise(self, backlog: int) -> None:
        """Warn once where the subscription may hold fewer messages than there are handlers."""
        if backlog < self.concurrency and not self.is_advised:
            self.is_advised = True
            _log.warning("%s", advise_of_backlog(self.queue, backlog, self.concurrency, self.max_backlog))


def _do_nothing() -> None:
    pass


def _limit(time_limit: timedelta | float | str) -> float:
    seconds = Interval.of_argument("time_limit", time_limit) / 1000
    if seconds <= 0:
        raise DefinitionError(f"time_limit={shown(time_limit)}: allowed is a time above 0, as in '30s'")
    return seconds


def as_hooks(hooks: Hooks | Sequence[Hooks]) -> tuple[Hooks, ...]:
    """Give several hooks, or one, as a tuple; what is neither as its only item."""
    return tuple(hooks) if isinstance(hooks, Iterable) else (hooks,)


def _hooks(hooks: Hooks | Sequence[Hooks], *, is_awaited: bool) -> tuple[Hooks, ...]:
    found = as_hooks(hooks)
    for each in found:
        if not isinstance(each, Hooks):
            raise DefinitionError(f"hooks={shown(each)}: allowed are ampsq.Hooks(before=..., after=..., failed=...)")
        for name in ("before", "after", "failed"):
            hook = getattr(each, name)
            if hook is not None and not callable(hook):
                raise DefinitionError(f"{name}={shown(hook)}: allowed is a function")
            if hook is not None and not is_awaited and is_of_kind(hook, inspect.iscoroutinefunction):
                raise DefinitionError(
                    f"{name}={shown(hook)} is a coroutine function, which nobody awaits beside a handler that is none; "
                    "allowed is a plain function"
                )
    return found


def call_hooks(calls: Iterable[HookCall]) -> None:
    """Call hooks; what one raises is logged."""
    for hook, arguments in calls:
        try:
            hook(*arguments)
        except Exception:  # noqa: BLE001  (whatever a hook of a user's raises)
            log_failed_hook(hook)


def log_failed_hook(hook: object) -> None:
    """Log what a hook raised; called while that is handled."""
    _log.exception("the hook %s failed; nothing else changes", shown(hook))


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
