"""``ampsq top``."""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import sys
import time
from typing import TYPE_CHECKING, Final

import click

from ampsq.base.errors import AmpsqError
from ampsq.cli.options import REFRESH, CommandSettings, connection_options
from ampsq.cli.output import json_line, table
from ampsq.cli.top_view import COLUMNS, HEADS, SORTS, TopView, cell, screen, tables

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from rich.live import Live

    from ampsq.base.values import Interval
    from ampsq.client.client import Client

__all__ = ["top"]

_EPILOG = """\b
Queues:
  ready    may be delivered, or wait behind what may; leased: delivered; delayed: come later
  in/s     messages that came in, and out/s that were settled, a second, since the last refresh
  oldest   for how long the oldest message that is not settled has been there
Progress, where handlers report it: how much of a leased message is done, what its holder said, and how long ago
Keys: q ends it, s goes on to the next order, r goes back to the last one.

\b
Examples:
  ampsq top
  ampsq top --sort in --filter '^work' --interval 5s
  ampsq top --once --json | jq '.queues[0]'
"""
#: Seconds for which a server that is away is waited for before that is shown.
_RETRY_TIMEOUT: Final = 2.0


@click.command(epilog=_EPILOG)
@click.option(
    "--sort",
    type=click.Choice(SORTS),
    default="depth",
    show_default=True,
    help="Sort by this column, the largest first.",
)
@click.option("--filter", "pattern", metavar="REGEX", help="Only queues whose names match, and their subscriptions.")
@click.option("--top", "rows", type=click.IntRange(1), default=50, show_default=True, help="Rows of a table at most.")
@click.option("--interval", type=REFRESH, default="2s", show_default=True, help="Between two refreshes.")
@click.option("--once", is_flag=True, help="Print one refresh, an interval after the start, and end: for scripts.")
@connection_options
def top(
    settings: CommandSettings, sort: str, pattern: str | None, rows: int, interval: Interval, *, once: bool
) -> None:
    """Watch queues, subscriptions, progress and links live: messages that wait, come in and go out.

    A refresh is two round trips, however many queues there are. Ends with q or Ctrl-C. With --json, and where the
    output is no terminal, each refresh is printed below the last one.
    """
    view, seconds = TopView(sort, rows, _compiled(pattern)), float(interval) / 1000
    with (
        settings.client(retry_timeout=_RETRY_TIMEOUT) as client,
        contextlib.closing(_refreshing(client, view)) as refreshes,
    ):
        if once or settings.json or not sys.stdout.isatty():
            _print_on(settings, view, refreshes, seconds, once=once)
        else:
            _watch(client, view, refreshes, seconds)


def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    try:
        return None if pattern is None else re.compile(pattern)
    except re.error as error:
        raise click.UsageError(f"--filter {pattern!r} is no regular expression: {error}") from error


def _refreshing(client: Client, view: TopView) -> Generator[str, None, None]:
    """Take a survey each time; gives why there was none, or nothing."""
    from ampsq.operations.survey import Surveyor

    surveyor, store = Surveyor(client.instance), client._store  # noqa: SLF001  (calls ahead need its channel)
    with store.pipeline() as pipeline:
        while True:
            try:
                view.take(store.run(surveyor.read(pipeline, view.chosen)))
            except AmpsqError as error:
                yield str(error)
            else:
                yield ""


def _print_on(
    settings: CommandSettings, view: TopView, refreshes: Iterator[str], seconds: float, *, once: bool
) -> None:
    """Print each refresh, from the second one on, which has rates."""
    for number, failure in enumerate(refreshes):
        if failure:
            raise click.ClickException(failure)
        if number:
            _print(settings, view)
            if once:
                return
        try:
            time.sleep(seconds)
        except KeyboardInterrupt:
            return


def _print(settings: CommandSettings, view: TopView) -> None:
    found = tables(view)
    if settings.json:
        json_line(found)
        return
    for name, rows in found.items():
        if rows or name == "queues":
            print(name)
            table(
                [HEADS.get(column, column) for column in COLUMNS[name]],
                [[cell(column, value) for column, value in row.items()] for row in rows],
            )
            print(flush=True)


def _watch(client: Client, view: TopView, refreshes: Iterator[str], seconds: float) -> None:
    """Draw each refresh over the last one, until somebody ends it."""
    try:
        from rich.console import Console
        from rich.live import Live
    except ImportError as error:
        raise click.ClickException("a live view needs rich: pip install 'ampsq[cli]', or --once") from error
    with (
        _keys() as pressed,
        Live(console=Console(), screen=True, auto_refresh=False) as live,
        # Ctrl-C is how one leaves it.
        contextlib.suppress(KeyboardInterrupt),
    ):
        for failure in refreshes:
            _draw(live, client, view, failure)
            if _is_over(live, client, view, pressed, seconds):
                return


def _draw(live: Live, client: Client, view: TopView, failure: str) -> None:
    survey = view.now
    counts = f"{len(survey.queues):,} queues, {survey.number:,} subscriptions" if survey is not None else ""
    title = failure or f"{client.instance}  {counts}  by {view.sort}  {time.strftime('%H:%M:%S')}"
    width, height = shutil.get_terminal_size()
    live.update(screen(view, title, width, height), refresh=True)


def _is_over(live: Live, client: Client, view: TopView, pressed: Callable[[float], str], seconds: float) -> bool:
    """Wait for the next refresh, and for keys meanwhile."""
    until = time.monotonic() + seconds
    while (rest := until - time.monotonic()) > 0:
        key = pressed(rest)
        if key == "q":
            return True
        if key in {"s", "r"}:
            view.sort = SORTS[(SORTS.index(view.sort) + (1 if key == "s" else -1)) % len(SORTS)]
            _draw(live, client, view, "")
    return False


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Read single keys, where somebody can press them; gives what waits so many seconds for one."""
    if not sys.stdin.isatty():
        yield _no_key
        return
    import termios
    import tty

    number = sys.stdin.fileno()
    former = termios.tcgetattr(number)
    try:
        tty.setcbreak(number)
        yield lambda seconds: os.read(number, 1).decode("ascii", "ignore") if _is_ready(number, seconds) else ""
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, former)


def _no_key(seconds: float) -> str:
    time.sleep(seconds)
    return ""


def _is_ready(number: int, seconds: float) -> bool:
    return bool(select.select([number], [], [], seconds)[0])
