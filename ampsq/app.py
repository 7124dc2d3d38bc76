"""The app: handlers registered by decorator, each with its queue, and what of the queue the handler needs.

A thin layer: each handler is run by a `Worker`, each queue is a definition as any other.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypedDict

from ampsq.base.errors import DefinitionError, NotPermitted
from ampsq.base.shutdown import StopRequest, stop_on_signals
from ampsq.base.values import is_name, shown
from ampsq.client.client import Client
from ampsq.client.handler_rules import as_hooks
from ampsq.definitions.action import Action
from ampsq.definitions.queue import Definition, Queue
from ampsq.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta
    from typing import TypeVar

    from ampsq.catalog.apply import Planned
    from ampsq.client.handler_rules import Hooks, OnInvalid

    T = TypeVar("T", bound=Callable[..., Any])

__all__ = ["App", "AppWorkers", "apply_definitions"]

_log = logging.getLogger("ampsq.worker")
#: By which the delay grows from each delivery to the next, where `backoff` is a range.
_GROWS_BY: Final = 2.0


class _HandlerOptions(TypedDict):
    """Options whose names are those of `Worker`."""

    concurrency: int
    time_limit: timedelta | float | str | None
    on_invalid: OnInvalid
    hooks: Hooks | Sequence[Hooks]


@dataclass(frozen=True, slots=True)
class _Registered:
    """A handler and how its worker is made."""

    handler: Callable[..., Any]
    queue: str
    options: _HandlerOptions

    def worker(
        self,
        client: Client,
        stop_timeout: timedelta | float | str,
        hooks: Sequence[Hooks],
    ) -> Worker:
        options: _HandlerOptions = {**self.options, "hooks": (*hooks, *as_hooks(self.options["hooks"]))}
        try:
            return Worker(self.handler, self.queue, client=client, stop_timeout=stop_timeout, **options)
        except DefinitionError as error:
            raise DefinitionError(f"{_decorated(self.queue)}: {error}") from error


class App:
    """Handlers of queues, which one process runs together: ``ampsq worker module:app``, or `run`.

    Args:
        definitions: what is to be defined beside the queues of the handlers: topics, dead-letter actions, and queues
            with more elements than a handler says.
        url: the server's address, or several with commas, ``#INSTANCE`` behind each. ``--url`` and AMPSQ_URL count
            more. Default: as of `Client`.

    Raises:
        DefinitionError: one of them is no definition.
    """

    def __init__(self, *definitions: Definition, url: str | None = None) -> None:
        for each in definitions:
            if not isinstance(each, Definition):
                raise DefinitionError(
                    f"{shown(each)} is no definition; allowed are those of ampsq, as in App(Queue(name='orders'))"
                )
        self._url = url
        self._given = definitions
        self._queues: list[Queue] = []
        self._dead_letters: list[Queue | Action] = []
        self._handlers: list[_Registered] = []
        self._stopping = StopRequest()

    def handler(
        self,
        queue: str,
        *,
        retries: int | None = None,
        backoff: str | None = None,
        dead_letters: str | None = None,
        concurrency: int = 1,
        time_limit: timedelta | float | str | None = None,
        on_invalid: OnInvalid = "cancel",
        hooks: Hooks | Sequence[Hooks] = (),
    ) -> Callable[[T], T]:
        """Register a function, or a coroutine function, as the handler of a queue; it stays what it is.

        With `retries` or `backoff` the app defines the queue, whole, as every definition is: elements that another
        definition gave it go back to their defaults. It has room for twice the concurrency. With neither, the queue
        stays as it is defined in the app or elsewhere. With `dead_letters` the app defines where messages go that are
        given up.

        Args:
            queue: its name, or a regular expression of queues that are defined elsewhere.
            retries: how often a message that failed is delivered again, before it expires, which makes it a dead
                letter where an action asks for that: the queue's `max_deliveries` less one. Default: without limit.
            backoff: how long a message that failed waits until it comes again: ``5s``, or from the first to the longest
                as in ``1s..5m``, doubled each time: the queue's `redelivery_delay`, `redelivery_delay_multiplier` and
                `max_redelivery_delay`. Default: not at all.
            dead_letters: the name of a queue to which messages go that are given up, as when there are no retries left:
                the app defines the queue, unless it has it, and an action. Several handlers may share it. Default: such
                messages stay in the log of their topic alone.
            concurrency: messages handled at the same time, as of `Worker`.
            time_limit: how long the handler may take, as of `Worker`.
            on_invalid: what becomes of a message that does not fit the type that it asks for, as of `Worker`.
            hooks: functions that are called before and behind it, as of `Worker`.

        Raises:
            DefinitionError: one of them is not what is allowed, the queue has a handler, or it is defined twice.
        """
        if not isinstance(queue, str):
            raise DefinitionError(
                f"@app.handler({shown(queue)}): allowed is the name of a queue, in parentheses before the function, "
                "as in @app.handler('orders')"
            )
        if any(each.queue == queue for each in self._handlers):
            raise DefinitionError(f"{_decorated(queue)}: the queue has a handler in this app; allowed is one")
        if not isinstance(concurrency, int) or concurrency < 1:
            raise DefinitionError(
                f"{_decorated(queue)}: concurrency={shown(concurrency)}: allowed is a whole number from 1 on"
            )
        made: Queue | None = None
        if retries is not None or backoff is not None:
            if any(isinstance(each, Queue) and each.name == queue for each in self._given):
                raise DefinitionError(
                    f"{_decorated(queue)}: the app has a definition of this queue; say retries and backoff there, as "
                    "max_deliveries and redelivery_delay, or leave it out"
                )
            made = _queue(queue, retries, backoff, concurrency)
        if dead_letters is not None:
            self._define_dead_letters(queue, dead_letters)
        if made is not None:
            self._queues.append(made)
        options: _HandlerOptions = {
            "concurrency": concurrency,
            "time_limit": time_limit,
            "on_invalid": on_invalid,
            "hooks": hooks,
        }

        def register(handler: T) -> T:
            if not callable(handler):
                raise DefinitionError(
                    f"{_decorated(queue)}: {shown(handler)} is no function; allowed is one of a message"
                )
            self._handlers.append(_Registered(handler, queue, options))
            return handler

        return register

    def _define_dead_letters(self, queue: str, name: str) -> None:
        if not is_name(queue):
            raise DefinitionError(
                f"{_decorated(queue)}: dead_letters={shown(name)}: allowed for a queue's name, not for a regular "
                "expression; give the app an Action.dead_letter for each queue"
            )
        if name == queue:
            raise DefinitionError(
                f"{_decorated(queue)}: dead_letters={shown(name)}: allowed is another queue than its own"
            )
        try:
            made: list[Queue | Action] = [Queue(name=name), Action.dead_letter(queue, name)]
        except DefinitionError as error:
            raise DefinitionError(f"{_decorated(queue)}: dead_letters={shown(name)}: {error}") from error
        there = {each.name for each in self.definitions if isinstance(each, Queue)}
        self._dead_letters += [each for each in made if isinstance(each, Action) or name not in there]

    @property
    def definitions(self) -> list[Definition]:
        """The definitions of the app: those that it was given, the queues of its handlers, and of dead letters."""
        return [*self._given, *self._queues, *self._dead_letters]

    @property
    def queues(self) -> list[str]:
        """The queues that have a handler: names and regular expressions."""
        return [each.queue for each in self._handlers]

    def stop(self) -> None:
        """Ask `run` to stop, from a signal's handler too."""
        self._stopping.set()

    def run(
        self,
        *,
        client: Client | None = None,
        stop_timeout: timedelta | float | str = "25s",
        signals: bool = False,
    ) -> None:
        """Apply the definitions where this user may, else log what differs; then handle messages until stopped.

        Args:
            client: one to use, which stays open; default one of its own, to the app's `url`.
            stop_timeout: how long running handlers may take to end.
            signals: stop on SIGTERM and SIGINT; only in the main thread.

        Raises:
            AmpsqError: a definition is refused, a queue is unknown, or the server could not be reached for longer than
                a client waits. Then no handler runs any more.
        """
        if client is None:
            with Client(self._url) as own:
                self.run(client=own, stop_timeout=stop_timeout, signals=signals)
            return
        apply_definitions(client, self)
        workers = AppWorkers(self, client, stop_timeout, stopping=self._stopping)
        if signals:
            stop_on_signals(self.stop)
        workers.run()


class AppWorkers:
    """The workers of an app, one a handler, which run and stop together.

    Args:
        app: theirs.
        client: that they share, which stays open.
        stop_timeout: how long running handlers may take to end.
        hooks: those of all handlers, around each one's own.
        stopping: a request to stop that others make, too.

    Attributes:
        workers: in the order in which their handlers were registered.

    Raises:
        DefinitionError: a handler or an option of one is not what is allowed, or there is none.
    """

    def __init__(
        self,
        app: App,
        client: Client,
        stop_timeout: timedelta | float | str,
        *,
        hooks: Sequence[Hooks] = (),
        stopping: StopRequest | None = None,
    ) -> None:
        handlers = app._handlers  # noqa: SLF001  (its other half)
        if not handlers:
            raise DefinitionError("the app has no handler; @app.handler('orders') before a function registers one")
        self.workers = [each.worker(client, stop_timeout, hooks) for each in handlers]
        self._stopping = StopRequest() if stopping is None else stopping
        self._failures: list[BaseException] = []

    @property
    def processed(self) -> int:
        """Messages so far whose handler returned."""
        return sum(each.processed for each in self.workers)

    @property
    def failed(self) -> int:
        """Messages so far whose handler raised, or ran too long."""
        return sum(each.failed for each in self.workers)

    @property
    def rejected(self) -> int:
        """Messages so far whose handler raised `Reject`."""
        return sum(each.rejected for each in self.workers)

    @property
    def invalid(self) -> int:
        """Messages so far that did not fit the type that their handler asks for."""
        return sum(each.invalid for each in self.workers)

    def stop(self) -> None:
        """Ask all to stop, from a signal's handler too."""
        self._stopping.set()

    def run(self) -> None:
        """Handle messages until stopped; where one worker fails, the others are stopped.

        Raises:
            AmpsqError: as of `Worker.run`.
        """
        if any(each._rules.is_coroutine for each in self.workers):  # noqa: SLF001  (its other half)
            # Not by several threads at the same time, which would each wait for the others' imports.
            import ampsq.async_worker  # noqa: F401, PLC0415  (slow to import)
        threads = [
            threading.Thread(target=self._run_one, args=(each,), name=f"ampsq-app-{each.queue}", daemon=True)
            for each in self.workers
        ]
        for thread in threads:
            thread.start()
        # Whoever asks for it, or a worker that ends.
        self._stopping.wait()
        for each in self.workers:
            each.stop()
        for thread in threads:
            # Each has a stop deadline of its own.
            thread.join()
        if self._failures:
            raise self._failures[0]

    def _run_one(self, worker: Worker) -> None:
        try:
            worker.run()
        except BaseException as error:  # noqa: BLE001  (raised again by `run`)
            self._failures.append(error)
        finally:
            self._stopping.set()


def apply_definitions(client: Client, app: App, name: str = "MODULE:APP") -> None:
    """Define what an app asks for and is not so, and log it; where this user may not define, log what differs.

    Args:
        client: of the instance.
        app: the app.
        name: of the app, as commands take it.

    Raises:
        DefinitionError: a change is refused.
    """
    definitions = app.definitions
    differing = [each for each in client.admin.plan(*definitions) if each.outcome != "unchanged"]
    if not differing:
        return
    try:
        client.apply(*definitions)
    except NotPermitted as error:
        _log.warning(
            "this user may not define; as an administrator `ampsq apply %s` does. It differs: %s (%s)",
            name,
            "; ".join(map(_difference, differing)),
            error,
        )
        return
    for each in differing:
        _log.info("defined: %s", _difference(each))


def _difference(planned: Planned) -> str:
    definition = planned.definition
    title = definition.title({"name": definition.name})
    if planned.outcome == "new":
        return f"{title} is new"
    changes = (f"{element} {before!r} -> {after!r}" for element, (before, after) in planned.changes.items())
    return f"{title}: {', '.join(changes)}"


def _decorated(queue: object) -> str:
    return f"@app.handler({shown(queue)})"


def _queue(name: str, retries: int | None, backoff: str | None, concurrency: int) -> Queue:
    """Make the definition of a handler's queue."""
    if retries is not None and (not isinstance(retries, int) or isinstance(retries, bool) or retries < 0):
        raise DefinitionError(
            f"{_decorated(name)}: retries={shown(retries)}: allowed is a whole number from 0 on, or None for no limit"
        )
    elements: dict[str, Any] = {"max_per_subscription_backlog": 2 * concurrency}
    if retries is not None:
        elements["max_deliveries"] = retries + 1
    if backoff is not None:
        if not isinstance(backoff, str):
            raise DefinitionError(
                f"{_decorated(name)}: backoff={shown(backoff)}: allowed is a text: an interval as in '5s', or two as "
                "in '1s..5m'"
            )
        first, dots, longest = backoff.partition("..")
        elements["redelivery_delay"] = first
        if dots:
            elements |= {"redelivery_delay_multiplier": _GROWS_BY, "max_redelivery_delay": longest}
    try:
        return Queue(name=name, **elements)
    except DefinitionError as error:
        raise DefinitionError(f"{_decorated(name)}: {error}") from error
