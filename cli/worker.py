"""``ampsq worker``."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NoReturn, TypedDict, Unpack

import click
from click.core import ParameterSource

import ampsq
from ampsq.base.name_patterns import matches_name
from ampsq.base.shutdown import end_process_within, stop_on_signals
from ampsq.base.values import Interval, is_name
from ampsq.cli.handler import find_handler
from ampsq.cli.names import names
from ampsq.cli.options import INTERVAL, CommandSettings, connection_options, failover, log_format, log_to_stderr
from ampsq.cli.output import json_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from ampsq.app import AppWorkers
    from ampsq.client.client import Client

    _Handler: TypeAlias = Callable[..., object]

__all__ = ["worker"]

_EPILOG = """\b
The function is called with each message (a coroutine function is awaited), or with data of the type that it asks for:
  # tasks.py
  def handle(message):
      print(message.data)
  def handle_order(order: Order):
      print(order.id)
or registered, each with its queue, in an app:
  app = ampsq.App()
  @app.handler("orders", retries=5, backoff="1s..5m", concurrency=8)
  def handle_order(order: Order):
      print(order.id)
It returns: acknowledged. It raises: cancelled, so it comes again. It raises ampsq.Reject: expired.

\b
Examples:
  ampsq worker tasks:handle --queue work
  ampsq worker tasks:handle --queue work --concurrency 20 --processes 4
  ampsq worker tasks:handle --queue work --filter "/symbol = 'IBM'"
  ampsq worker tasks:app
  ampsq worker tasks:app --reload
"""
_log = logging.getLogger("ampsq.worker")
#: Seconds in which the connections of a worker that was stopped are closed.
_CLOSES_WITHIN: Final = 1.0
#: Milliseconds after which a worker that is to be stopped, or has ended, is noticed while no file is changed.
_LOOKS: Final = 250
#: Options that an app says for each of its handlers.
_OF_ONE_HANDLER: Final = (
    "queue", "filter", "concurrency", "max_backlog", "cancel_delay", "on_invalid", "time_limit",
)  # fmt: skip


class _WorkerOptions(TypedDict):
    """Options whose names are those of `Worker`."""

    filter: str | None
    concurrency: int
    max_backlog: int | None
    stop_timeout: Interval
    cancel_delay: Interval | None
    on_invalid: Literal["cancel", "expire"]
    time_limit: Interval | None


@click.command(epilog=_EPILOG)
@click.argument("function", metavar="MODULE:FUNCTION|MODULE:APP")
@click.option(
    "--queue", shell_complete=names("queues"), help="Of a function: the queue, or a regular expression of queues."
)
@click.option("--filter", metavar="EXPR", help="Only messages that match, barriers included, as in '/price > 10'.")
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Messages at the same time, a process.",
)
@click.option(
    "--processes",
    type=click.IntRange(1),
    help="Processes, for more cores. One whose handler runs longer than its time limit is replaced. Default: "
    "one, which is not replaced.",
)
@click.option(
    "--max-backlog",
    type=click.IntRange(1),
    help="Unacknowledged at most, a process; default twice the concurrency.",
)
@click.option(
    "--stop-timeout",
    type=INTERVAL,
    default="25s",
    show_default=True,
    help="How long handlers may take to end.",
)
@click.option(
    "--cancel-delay", type=INTERVAL, help="After an exception, how long the message stays away; default none."
)
@click.option(
    "--on-invalid",
    type=click.Choice(["cancel", "expire"]),
    default="cancel",
    show_default=True,
    help="Cancel or expire a message that does not fit the type that the function asks for.",
)
@click.option("--time-limit", type=INTERVAL, help="How long a handler may take; default no limit.")
@click.option(
    "--reload",
    is_flag=True,
    help="For development: start again when a Python file in the current folder or below is changed.",
)
@click.option("--trace", is_flag=True, help="A span and figures of OpenTelemetry for each call of a handler.")
@click.option("--verbose", is_flag=True, help="Log the tracebacks of handlers too.")
@click.option("--advised", is_flag=True, hidden=True)
@failover
@log_format
@connection_options
def worker(
    settings: CommandSettings,
    function: str,
    queue: str | None,
    processes: int | None,
    *,
    reload: bool,
    trace: bool,
    verbose: bool,
    advised: bool,
    log_format: str,
    failover: str,
    **options: Unpack[_WorkerOptions],
) -> None:
    """Handle the messages of a queue with a Python function, or those of several with an ampsq.App.

    An app says for each handler what --queue, --concurrency and the like say of a function. Its definitions are
    applied where this user may, else what differs is logged. MODULE is imported from the current folder or from
    what is installed. SIGTERM and Ctrl-C stop gracefully: handlers may end, what is unstarted goes back to the
    queue at once. Leases are renewed while a handler runs.
    """
    log_to_stderr(logging.DEBUG if verbose else logging.INFO, times=True, form=log_format)
    if reload:
        _reload()
    handler = find_handler(function)
    _check_options(function, handler, queue)
    if isinstance(handler, ampsq.App):
        settings = settings.completed(handler._url, None)  # noqa: SLF001  (said by the app, as by a file)
    hooks = (_tracing(),) if trace else ()
    if processes is not None:
        told = [f"--log-format={log_format}", f"--failover={failover}", *["--verbose"] * verbose, *["--trace"] * trace]
        told.append("--advised")
        _run_processes(settings, function, options, handler=handler, queue=queue or "", processes=processes, told=told)
    else:
        _run(
            *(settings, function, options),
            handler=handler,
            queue=queue or "",
            failover=failover,
            hooks=hooks,
            is_advised=advised,
        )


def _reload() -> NoReturn:
    """Run this command without --reload again and again; what it imports is imported there, anew each time."""
    from ampsq.server.processes import run_reloading

    try:
        from watchfiles import PythonFilter, watch
    except ModuleNotFoundError as error:
        raise click.ClickException("--reload needs watchfiles: pip install 'ampsq[reload]'") from error
    folder = Path.cwd()
    found = watch(
        folder, watch_filter=PythonFilter(), rust_timeout=_LOOKS, yield_on_timeout=True, raise_interrupt=False
    )
    # Closed where this process is, so that no thread watches on.
    with contextlib.closing(found):
        changes = ({os.path.relpath(path, folder) for _, path in each} for each in found)
        arguments = [each for each in sys.argv[1:] if each != "--reload"]
        code = run_reloading(["-m", "ampsq.cli", *arguments], changes)
    sys.exit(code)


def _check_options(function: str, handler: _Handler | ampsq.App, queue: str | None) -> None:
    """Refuse a function without a queue, and an app with what it says itself; raises `click.UsageError`."""
    if not isinstance(handler, ampsq.App):
        if queue is None:
            raise click.UsageError(f"{function} is a function: --queue QUEUE says whose messages it handles")
        return
    context = click.get_current_context()
    for name in _OF_ONE_HANDLER:
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            option = f"--{name.replace('_', '-')}"
            raise click.UsageError(
                f"{option} is for a function; {function} is an app, whose handlers say it themselves"
            )


def _tracing() -> ampsq.Hooks:
    try:
        from ampsq.tracing import TRACING
    except ModuleNotFoundError as error:
        raise click.ClickException(f"--trace needs {error.name}: pip install 'ampsq[tracing]'") from error
    return TRACING


def _run(
    settings: CommandSettings,
    function: str,
    options: _WorkerOptions,
    *,
    handler: _Handler | ampsq.App,
    queue: str,
    failover: str,
    hooks: Sequence[ampsq.Hooks],
    is_advised: bool,
) -> None:
    from ampsq.app import AppWorkers
    from ampsq.server.processes import REPLACE_ME, stop_with_parent

    with settings.client(advise=True, patient=True, failover=failover, merged=True) as client:
        made: ampsq.Worker | AppWorkers
        if isinstance(handler, ampsq.App):
            made = AppWorkers(handler, client, options["stop_timeout"], hooks=hooks)
            workers = made.workers
            # Of several processes the first one has done it.
            _prepare(client, handler, function, is_advised=is_advised)
        else:
            _refuse_unknown(client, queue)
            made = ampsq.Worker(handler, queue, client=client, hooks=hooks, **options)
            workers = [made]
        for each in workers:
            each._rules.is_advised = is_advised  # noqa: SLF001  (of several processes the first one says it)
            _log.info(
                "%s handles %r: concurrency %d, max_backlog %d",
                function,
                each.queue,
                each.concurrency,
                each.max_backlog,
            )
        is_replaced = threading.Event()

        def replace() -> None:
            _log.error("this process is replaced, since a handler cannot be ended; the others of it may end before")
            is_replaced.set()
            made.stop()

        if stop_with_parent(made.stop):
            for each in workers:
                each._rules.on_overrun = replace  # noqa: SLF001  (its other half)
        came = stop_on_signals(made.stop)
        made.run()
        code = REPLACE_ME if is_replaced.is_set() else 0
        if came or code:
            # Handlers have ended, or never do; nothing else is worth a wait for a server that does not answer.
            end_process_within(_CLOSES_WITHIN, code)
    counts = {name: getattr(made, name) for name in ("processed", "failed", "rejected", "invalid")}
    _log.info("stopped: %s", ", ".join(f"{number} {name}" for name, number in counts.items()))
    if settings.json:
        json_line(counts)
    if code:
        click.get_current_context().exit(code)


def _prepare(client: Client, app: ampsq.App, name: str, *, is_advised: bool = False) -> None:
    """Define what an app asks for, and raise `UnknownQueue` where a queue of it is not there all the same."""
    from ampsq.app import apply_definitions

    if not is_advised:
        apply_definitions(client, app, name)
    for queue in app.queues:
        _refuse_unknown(client, queue)


def _refuse_unknown(client: Client, queue: str) -> None:
    """Raise `UnknownQueue` where no queue has the name; a regular expression may match one that is to come."""
    if is_name(queue):
        client.admin.queue_stats(queue)


def _advise(client: Client, queue: str, concurrency: int, max_backlog: int | None) -> None:
    """Warn, once for all processes, of a queue that leaves handlers idle."""
    limits = {
        name: each.max_per_subscription_backlog
        for name, each in client.admin.queues().items()
        if matches_name(queue, name)
    }
    asked = 2 * concurrency if max_backlog is None else max_backlog
    backlog = min((*limits.values(), asked))
    if backlog < concurrency:
        from ampsq.client.handler_rules import advise_of_backlog

        _log.warning("%s", advise_of_backlog(queue, backlog, concurrency, asked))


def _run_processes(
    settings: CommandSettings,
    function: str,
    options: _WorkerOptions,
    *,
    handler: _Handler | ampsq.App,
    queue: str,
    processes: int,
    told: Sequence[str],
) -> None:
    """Run this command that many times, once it is sure to work once."""
    from ampsq.app import AppWorkers
    from ampsq.server.processes import run_processes

    with settings.client(merged=True) as client:
        if isinstance(handler, ampsq.App):
            workers = AppWorkers(handler, client, options["stop_timeout"]).workers
            _prepare(client, handler, function)
            for each in workers:
                _advise(client, each.queue, each.concurrency, each.max_backlog)
        else:
            _refuse_unknown(client, queue)
            _advise(client, queue, options["concurrency"], options["max_backlog"])
    arguments = ["-m", "ampsq.cli", "worker", function, *told]
    if queue:
        arguments.append(f"--queue={queue}")
    for name, value in options.items():
        if value is not None and not (isinstance(handler, ampsq.App) and name in _OF_ONE_HANDLER):
            text = value.text if isinstance(value, Interval) else str(value)
            arguments.append(f"--{name.replace('_', '-')}={text}")
    if settings.json:
        arguments.append("--json")
    if settings.instance:
        arguments.append(f"--instance={settings.instance}")
    if settings.url is None:
        arguments.append(f"--data-dir={settings.data_dir}")
    else:
        # Not an argument, which everybody on the machine can read: it may have a password.
        os.environ["AMPSQ_URL"] = settings.url
    code = run_processes(arguments, processes)
    click.get_current_context().exit(code)
