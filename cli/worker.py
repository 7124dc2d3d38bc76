"""``ampsq worker``."""

from __future__ import annotations

import logging
import os
import signal
from typing import TYPE_CHECKING, Final, Literal, TypedDict, Unpack

import click

import ampsq
from ampsq.base.shutdown import end_process_within
from ampsq.base.values import Interval, is_name, pattern_of
from ampsq.cli.handler import find_handler
from ampsq.cli.names import names
from ampsq.cli.options import INTERVAL, CommandSettings, connection_options, failover, log_format, log_to_stderr
from ampsq.cli.output import json_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ampsq.client.client import Client

__all__ = ["worker"]

_EPILOG = """\b
The function is called with each message (a coroutine function is awaited), or with data of the type that it asks for:
  # tasks.py
  def handle(message):
      print(message.data)
  def handle_order(order: Order):
      print(order.id)
It returns: acknowledged. It raises: cancelled, so it comes again. It raises ampsq.Reject: expired.

\b
Examples:
  ampsq worker tasks:handle --queue work
  ampsq worker tasks:handle --queue work --concurrency 20 --processes 4
  ampsq worker tasks:handle --queue work --filter "/symbol = 'IBM'"
"""
_log = logging.getLogger("ampsq.worker")
#: Seconds in which the connections of a worker that was stopped are closed.
_CLOSES_WITHIN: Final = 1.0


class _WorkerOptions(TypedDict):
    """Options whose names are those of `Worker`."""

    queue: str
    filter: str | None
    concurrency: int
    max_backlog: int | None
    stop_timeout: Interval
    cancel_delay: Interval | None
    on_invalid: Literal["cancel", "expire"]
    time_limit: Interval | None


@click.command(epilog=_EPILOG)
@click.argument("function", metavar="MODULE:FUNCTION")
@click.option(
    "--queue", required=True, shell_complete=names("queues"), help="The queue, or a regular expression of queues."
)
@click.option("--filter", metavar="EXPR", help="Only messages that match, barriers included, as in '/price > 10'.")
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Messages at the same time, a process.",
)
@click.option("--processes", type=click.IntRange(1), default=1, show_default=True, help="Processes, for more cores.")
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
    help="What becomes of a message that does not fit the type that the function asks for.",
)
@click.option("--time-limit", type=INTERVAL, help="How long a handler may take; default no limit.")
@click.option("--trace", is_flag=True, help="A span of OpenTelemetry around each call of the handler.")
@click.option("--verbose", is_flag=True, help="Log the tracebacks of handlers too.")
@click.option("--advised", is_flag=True, hidden=True)
@failover
@log_format
@connection_options
def worker(
    settings: CommandSettings,
    function: str,
    processes: int,
    *,
    trace: bool,
    verbose: bool,
    advised: bool,
    log_format: str,
    failover: str,
    **options: Unpack[_WorkerOptions],
) -> None:
    """Handle the messages of a queue with a Python function.

    MODULE is imported from the current folder or from what is installed. SIGTERM and Ctrl-C stop gracefully:
    handlers may end, what is unstarted goes back to the queue at once. Leases are renewed while a handler
    runs.
    """
    log_to_stderr(logging.DEBUG if verbose else logging.INFO, times=True, form=log_format)
    handler = find_handler(function)
    if trace:
        handler = _traced(handler)
    if processes > 1:
        told = [f"--log-format={log_format}", f"--failover={failover}", *["--verbose"] * verbose, *["--trace"] * trace]
        told.append("--advised")
        _run_processes(settings, function, processes, options, told)
    else:
        _run(settings, function, handler, options, failover, is_advised=advised)


def _traced(handler: Callable[..., object]) -> Callable[..., object]:
    try:
        from ampsq.tracing import traced
    except ModuleNotFoundError as error:
        raise click.ClickException(f"--trace needs {error.name}: pip install 'ampsq[tracing]'") from error
    return traced(handler)


def _run(
    settings: CommandSettings,
    function: str,
    handler: Callable[..., object],
    options: _WorkerOptions,
    failover: str,
    *,
    is_advised: bool,
) -> None:
    from ampsq.server.processes import stop_with_parent

    with settings.client(advise=True, patient=True, failover=failover) as client:
        _refuse_unknown(client, options["queue"])
        made = ampsq.Worker(handler, client=client, **options)
        made._rules.is_advised = is_advised  # noqa: SLF001  (of several processes the first one says it)
        _log.info(
            "%s handles %r: concurrency %d, max_backlog %d",
            function,
            made.queue,
            made.concurrency,
            made.max_backlog,
        )
        stop_with_parent(made.stop)
        is_told = _stop_on_signals(made)
        made.run()
        if is_told():
            # Handlers have ended; nothing else is worth a wait for a server that does not answer.
            end_process_within(_CLOSES_WITHIN, 0)
    _log.info("stopped: %d processed, %d failed, %d rejected", made.processed, made.failed, made.rejected)
    if settings.json:
        json_line({"processed": made.processed, "failed": made.failed, "rejected": made.rejected})


def _stop_on_signals(made: ampsq.Worker) -> Callable[[], bool]:
    """Let SIGTERM and SIGINT stop a worker, and a second one end the process; gives whether one came."""
    told: list[int] = []

    def stop(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        told.append(number)
        made.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    return lambda: bool(told)


def _refuse_unknown(client: Client, queue: str) -> None:
    """Raise `UnknownQueue` where no queue has the name; a regular expression may match one that is to come."""
    if is_name(queue):
        client.admin.queue_stats(queue)


def _advise(client: Client, queue: str, concurrency: int, max_backlog: int | None) -> None:
    """Warn, once for all processes, of a queue that leaves handlers idle."""
    pattern = pattern_of(queue)
    limits = {
        name: each.max_per_subscription_backlog
        for name, each in client.admin.queues().items()
        if (name == queue if is_name(queue) else pattern.search(name))
    }
    asked = 2 * concurrency if max_backlog is None else max_backlog
    backlog = min((*limits.values(), asked))
    if backlog < concurrency:
        from ampsq.client.handler_rules import advise_of_backlog

        _log.warning("%s", advise_of_backlog(queue, backlog, concurrency, asked))


def _run_processes(
    settings: CommandSettings, function: str, processes: int, options: _WorkerOptions, told: Sequence[str]
) -> None:
    """Run this command that many times, once it is sure to work once."""
    from ampsq.server.processes import run_processes

    with settings.client() as client:
        _refuse_unknown(client, options["queue"])
        _advise(client, options["queue"], options["concurrency"], options["max_backlog"])
    arguments = ["-m", "ampsq.cli", "worker", function, *told]
    for name, value in options.items():
        if value is not None:
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
