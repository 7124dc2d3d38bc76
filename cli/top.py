"""``ampsq top``."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import sys
import time
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias, TypeVar

import click
from click.core import ParameterSource

from ampsq.base.errors import AmpsqError, DefinitionError, UnknownQueue
from ampsq.base.name_patterns import pattern_of
from ampsq.cli.names import names
from ampsq.cli.options import REFRESH, CommandSettings, connection_options
from ampsq.cli.output import json_line, table
from ampsq.cli.top_view import SORTS, TopView, cell, columns_within, head

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from rich.console import RenderableType
    from rich.live import Live

    from ampsq.base.name_automaton import NamePattern
    from ampsq.base.values import Interval
    from ampsq.cli.top_view import Cell
    from ampsq.client.client import Client
    from ampsq.protocol.request import Flow
    from ampsq.transport.pipeline import Pipeline

__all__ = ["top"]

T = TypeVar("T")

_EPILOG = """\b
Queues:
  ready    may be delivered, or wait behind what may; leased: delivered; delayed: come later
  in/s     messages that came in, and out/s that were settled, a second, since the last refresh
  oldest   for how long the oldest message that is not settled has been there
  p95      within which 95 of 100 messages took, of the last 15 minutes: delivery, from publishing to the first
           delivery; handling, from a delivery to the acknowledgement; at 100 columns and more, and with --json
Progress, where handlers report it: how much of a leased message is done, what its holder said, and how long ago
Of one queue also:
  dead letters  messages in the queues over topics to which actions publish what this one expires
  state         of a subscription: has room, full (it holds max messages), silent (it missed its sign of life)
Keys: q ends it; in the list, s goes on to the next order, r goes back to the last one.

\b
Examples:
  ampsq top
  ampsq top work
  ampsq top --sort in --filter '^work' --interval 5s
  ampsq top --once --json | jq '.queues[0]'
  ampsq top work --once --json | jq -r .next.sentence
"""
#: Reads what is shown once.
Refresh: TypeAlias = "Callable[[], None]"
#: Columns of an output that is no terminal.
_COLUMNS: Final = 80
#: Seconds for which a server that is away is waited for before that is shown.
_RETRY_TIMEOUT: Final = 2.0


class _View(Protocol):
    """A view that is shown live: of an instance, or of a queue of it."""

    @property
    def heading(self) -> str: ...
    @property
    def columns(self) -> Mapping[str, Sequence[str]]: ...
    def as_dict(self) -> Mapping[str, object]: ...
    def lines(self, width: int) -> list[str]: ...
    def tables(self) -> dict[str, list[dict[str, Cell]]]: ...
    def screen(self, title: str, width: int, height: int) -> RenderableType: ...
    def press(self, key: str) -> bool: ...


@click.command(epilog=_EPILOG)
@click.argument("queue", required=False, shell_complete=names("queues"))
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
def top(  # noqa: PLR0917  (click passes them by name)
    settings: CommandSettings,
    queue: str | None,
    sort: str,
    pattern: str | None,
    rows: int,
    interval: Interval,
    *,
    once: bool,
) -> None:
    """Watch queues, subscriptions, progress and links live, or one queue with all that is known of it.

    With QUEUE: messages a second in and out, what is in it, its oldest message, its dead letters, how long messages
    take, why the next one waits, its subscriptions, its groups, and how far handlers are. Without: all queues; a
    refresh is two round trips, however many there are. Ends with q or Ctrl-C. With --json, and where the output is no
    terminal, each refresh is printed below the last one. With partitions= in the address the figures are sums over all
    partitions, the oldest message and the next one are those of any, and a subscription to all is one row.
    """
    if queue is not None:
        _refuse_choices()
    seconds, filter_ = float(interval) / 1000, _compiled(pattern)
    with (
        settings.client(merged=True, retry_timeout=_RETRY_TIMEOUT) as client,
        contextlib.ExitStack() as pipelines,
    ):
        instances = [_Instance.opened(each, pipelines) for each in getattr(client, "clients", [client])]
        view, refresh = (
            _watching(instances, queue, rows)
            if queue is not None
            else _listing(instances, TopView(sort, rows, filter_))
        )
        with contextlib.closing(_refreshing(refresh)) as refreshes:
            if once or settings.json or not sys.stdout.isatty():
                _print_on(settings, view, refreshes, seconds, once=once)
            else:
                _watch(client, view, refreshes, seconds)


def _refuse_choices() -> None:
    """Refuse what chooses among queues beside the name of one."""
    context = click.get_current_context()
    for parameter, option in (("sort", "--sort"), ("pattern", "--filter")):
        if context.get_parameter_source(parameter) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"{option} is for the list of queues; leave it or QUEUE out")


def _compiled(pattern: str | None) -> NamePattern | None:
    try:
        return None if not pattern else pattern_of(pattern)
    except DefinitionError as error:
        raise click.UsageError(f"--filter {error}") from error


class _Instance(NamedTuple):
    """An instance that is watched, or a partition of one."""

    client: Client
    pipeline: Pipeline

    @classmethod
    def opened(cls, client: Client, pipelines: contextlib.ExitStack) -> _Instance:
        """Open what calls on their way together need."""
        return cls(client, pipelines.enter_context(client._store.pipeline()))  # noqa: SLF001  (our own)

    def run(self, flow: Flow[T]) -> T:
        """Run a flow to its end."""
        return self.client._store.run(flow)  # noqa: SLF001  (our own)


def _listing(instances: Sequence[_Instance], view: TopView) -> tuple[_View, Refresh]:
    """Make what takes a survey of the instance, or of all its partitions."""
    from ampsq.operations.survey import Survey, Surveyor, merge_by_name
    from ampsq.protocol.calls.queue_stats import QueueStats

    watched = [(each, Surveyor(each.client.instance)) for each in instances]

    def refresh() -> None:
        read = [each.run(surveyor.read_queues(each.pipeline)) for each, surveyor in watched]
        chosen = view.chosen(merge_by_name([each.queues for each in read], QueueStats.merged))
        parts = [
            each.run(surveyor.read_rest(each.pipeline, half, chosen))
            for (each, surveyor), half in zip(watched, read, strict=True)
        ]
        view.take(Survey.merged(parts))

    return view, refresh


def _watching(instances: Sequence[_Instance], queue: str, rows: int) -> tuple[_View, Refresh]:
    """Make what takes a survey of one queue, of all partitions."""
    from ampsq.cli.top_queue_view import QueueView
    from ampsq.operations.queue_survey import QueueSurvey, QueueSurveyor

    watched = [(each, QueueSurveyor(each.client, queue)) for each in instances]
    view = QueueView(queue, rows)

    def refresh() -> None:
        view.take(QueueSurvey.merged([each.run(surveyor.read(each.pipeline)) for each, surveyor in watched]))

    return view, refresh


def _refreshing(refresh: Refresh) -> Generator[str, None, None]:
    """Take a survey each time; gives why there was none, or nothing.

    Raises:
        UnknownQueue: the queue that is watched is not there, or no longer.
    """
    while True:
        try:
            refresh()
        except UnknownQueue:
            raise
        except AmpsqError as error:
            yield str(error)
        else:
            yield ""


def _print_on(settings: CommandSettings, view: _View, refreshes: Iterator[str], seconds: float, *, once: bool) -> None:
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


def _print(settings: CommandSettings, view: _View) -> None:
    if settings.json:
        json_line(view.as_dict())
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _COLUMNS
    for line in view.lines(width):
        print(line)
    for name, rows in view.tables().items():
        if rows or name == "queues":
            columns = columns_within(view.columns[name], width)
            print(name)
            table(
                [head(column) for column in columns],
                [[cell(column, row[column]) for column in columns] for row in rows],
            )
            print(flush=True)


def _watch(client: Client, view: _View, refreshes: Iterator[str], seconds: float) -> None:
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


def _draw(live: Live, client: Client, view: _View, failure: str) -> None:
    title = failure or f"{client.instance}  {view.heading}  {time.strftime('%H:%M:%S')}"
    width, height = shutil.get_terminal_size()
    live.update(view.screen(title, width, height), refresh=True)


def _is_over(live: Live, client: Client, view: _View, pressed: Callable[[float], str], seconds: float) -> bool:
    """Wait for the next refresh, and for keys meanwhile."""
    until = time.monotonic() + seconds
    while (rest := until - time.monotonic()) > 0:
        key = pressed(rest)
        if key == "q":
            return True
        if view.press(key):
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
