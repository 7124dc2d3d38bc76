"""Display of the demo: a live table at a terminal, else plain lines, and the story at the end."""

from __future__ import annotations

import time
from datetime import date
from typing import TYPE_CHECKING, Final, Self

import click
from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ampsq.cli import demo_world as world

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from rich.console import RenderableType

    from ampsq.cli.demo_check import CarrierDelay, DemoOutcome
    from ampsq.cli.demo_days import Day
    from ampsq.cli.demo_run import DemoResult, DemoView, Kill

__all__ = ["LinesWatcher", "LiveWatcher", "story", "watcher"]

_LINE_EVERY: Final = 1.0
_FRAMES: Final = 10
_WIDTH: Final = 92
#: Carriers in the last table, and the part of all flights that one must have had to be in it.
_CARRIERS: Final = 5
_LEAST_PART: Final = 0.01
_ORDINALS: Final = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd", 31: "st"}
_BARS: Final = "▁▂▃▄▅▆▇█"
_STYLES: Final = {"working": "green", "killed": "bold red", "done": "dim", "ready": "dim", "starting": "dim"}
_NAMES: Final = {
    "9E": "Endeavor Air", "AA": "American Airlines", "AS": "Alaska Airlines", "B6": "JetBlue", "DL": "Delta",
    "EV": "ExpressJet", "F9": "Frontier", "FL": "AirTran", "HA": "Hawaiian", "MQ": "Envoy Air",
    "OO": "SkyWest", "UA": "United", "US": "US Airways", "VX": "Virgin America", "WN": "Southwest",
    "YV": "Mesa",
}  # fmt: skip


class LinesWatcher:
    """Prints a line about every second to standard error."""

    def __init__(self) -> None:
        self._next = 0.0
        self._kill_told = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def say(self, text: str) -> None:
        """Print a line now."""
        click.echo(text, err=True)

    def __call__(self, view: DemoView) -> None:
        """Print the moment, if it is time for a line."""
        if view.kill and not self._kill_told:
            self._kill_told = True
            self.say(_killed(view.kill))
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _LINE_EVERY
            self.say(view_line(view))


class LiveWatcher:
    """Keeps a table up to date on a terminal."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._console = console
        self._next = 0.0

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, traceback)

    def say(self, text: str) -> None:
        """Show a line until there is more to see."""
        self._live.update(Text(text, style="dim"), refresh=True)

    def __call__(self, view: DemoView) -> None:
        """Show the moment, if it is time for a frame."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + 1 / _FRAMES
            self._live.update(frame(view), refresh=True)


def watcher() -> LinesWatcher | LiveWatcher:
    """Return the watcher that fits standard error."""
    console = Console(stderr=True)
    return LiveWatcher(console) if console.is_terminal and not console.is_dumb_terminal else LinesWatcher()


def view_line(view: DemoView) -> str:
    """One moment in a line."""
    workers = ", ".join(
        f"{child.name} {child.done:,}" + (" (killed)" if child.state == "killed" else "")
        for child in view.crew.children
        if child.backlogs
    )
    return (
        f"{view.seconds:5.1f} s  published {view.published:,}  acknowledged {view.delays.acknowledged:,}  "
        f"waiting {view.delays.depth - view.delays.leased:,}  leased {view.delays.leased:,}  "
        f"dead letters {view.letters:,}  days ended {view.days}  |  {workers}"
    )


def frame(view: DemoView) -> RenderableType:
    """One moment as a table."""
    settled = view.delays.acknowledged + view.delays.expired
    head = Table.grid(padding=(0, 2))
    head.add_row(
        Text("queue delays", style="bold"),
        ProgressBar(total=view.total, completed=settled, width=40),
        f"{settled:,} of {view.total:,} flights, {view.seconds:.1f} s",
    )
    head.add_row(
        Text("queue board", style="bold"),
        ProgressBar(total=view.total, completed=view.board.acknowledged, width=40),
        f"{view.board.acknowledged:,} of {view.total:,} flights",
    )
    facts = Text.assemble(
        ("depth ", "dim"), f"{view.delays.depth:,}", ("   leased ", "dim"), f"{view.delays.leased:,}",
        ("   came back ", "dim"), f"{view.delays.returned:,}",
        ("   dead letters ", "dim"), f"{view.letters:,}",
        ("   days ended ", "dim"), f"{view.days}",
    )  # fmt: skip
    news = Text(_killed(view.kill), style="red") if view.kill else Text("")
    return Padding(Group(head, "", facts, "", _workers(view), "", news), (1, 2))


def _workers(view: DemoView) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 3, 0, 0))
    table.add_column("process", min_width=9)
    table.add_column("queue")
    for name in ("backlog", "processed", "per second"):
        table.add_column(name, justify="right", min_width=9)
    table.add_column("state")
    for child in view.crew.children:
        if not child.backlogs:
            continue
        queue = world.BOARD if child.name == world.BOARD else world.DELAYS
        rate = "" if child.state == "killed" else f"{child.rate:,.0f}"
        backlog = " + ".join(map(str, child.backlogs))
        style = _STYLES[child.state]
        table.add_row(child.name, queue, backlog, f"{child.done:,}", rate, Text(child.state, style=style))
    return table


def _killed(kill: Kill) -> str:
    held = _count(kill.held, "flight")
    text = f"{kill.name} was killed with SIGKILL while it held {held}"
    if kill.noticed_after is None:
        return f"{text}; they will come back"
    return f"{text}; noticed {kill.noticed_after:.1f} s later, they came back"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


# -- the end


def story(result: DemoResult, site: world.DemoSite, *, kept: bool) -> None:
    """Tell on standard output what happened, in words and figures."""
    console = Console(highlight=False)
    console = Console(highlight=False, width=min(console.width, _WIDTH))
    console.print()
    for paragraph in _paragraphs(result):
        console.print(Padding(Text.from_markup(paragraph), (0, 2, 1, 2), expand=False))
    console.print(Padding(_figures(result), (0, 2, 1, 2), expand=False))
    if result.outcome.delays:
        console.print(Padding(_delays(result.outcome.delays), (0, 2, 1, 2), expand=False))
        console.print(Padding(_days(result.outcome.days), (0, 2, 1, 2), expand=False))
    console.print(Padding(_next_steps(site, kept=kept), (0, 2, 1, 2), expand=False))


def _paragraphs(result: DemoResult) -> Iterator[str]:
    outcome = result.outcome
    verdict = "[red]but not all is well.[/]" if outcome.failures else "and every one accounted for."
    yield f"[bold]{outcome.published:,} flights in {result.seconds:.1f} s, {verdict}[/]"
    yield (
        f"Each flight was published once, to the topic [bold]{world.FLIGHTS}[/]. {len(world.WORKERS)} worker "
        f"processes shared the queue [bold]{world.DELAYS}[/] over it; the queue pushed flights to them, "
        "never more at a time than the backlog of each."
    )
    if result.kill:
        yield _death(result.kill, outcome)
    yield (
        f"{_count(outcome.dead_lettered, 'flight')} never left. The handler refused each of them "
        f"{world.DELAYS_QUEUE.max_cancels} times; then the queue gave up (max_cancels), and an action "
        f"published them, with the reason, to the topic [bold]{world.NEVER_LEFT}[/]."
    )
    yield (
        f"Each day ended with a barrier, {outcome.barriers} in all: a message that [bold]{world.DELAYS}[/] knows by "
        f"its barrier_expression, {world.DELAYS_QUEUE.barrier_expression}. It waited until every earlier flight was "
        "settled, and every later one waited for it; then each worker got it, with nothing to acknowledge."
    )
    yield (
        f"A second queue, [bold]{world.BOARD}[/], watched the same topic under rules of its own "
        f"(round-robin, other backlogs, only what matches {world.BOARD_QUEUE.filter}) and delivered "
        f"{_count(outcome.board, 'flight')} once each. Nothing was copied for it: a queue is a view."
    )


def _death(kill: Kill, outcome: DemoOutcome) -> str:
    when = f"{kill.noticed_after:.1f} s later" if kill.noticed_after is not None else "Soon"
    text = (
        f"After {kill.acknowledged:,} flights [bold]{kill.name}[/] was killed (SIGKILL), with "
        f"{_count(kill.held, 'flight')} in its hands. {when} the coordinator noticed and gave them back to "
        f"the queue, and the other workers got them: {outcome.redelivered:,} delivered again."
    )
    if not outcome.handled_twice:
        return text
    return (
        f"{text} Handled but not yet acknowledged were {outcome.handled_twice:,} of them; handling those "
        'twice is what "at least once" means.'
    )


def _figures(result: DemoResult) -> Table:
    outcome = result.outcome
    table = Table(title="What became of the flights", title_justify="left", title_style="bold", box=None)
    table.pad_edge = False
    table.add_column("", min_width=18)
    table.add_column("number", justify="right")
    table.add_column("as counted from", style="dim")
    bad = "bold red"
    for name, number, source, style in (
        ("published", outcome.published, "the bookmarks that publishing returned", ""),
        ("acknowledged", outcome.acknowledged, "the journal, and the workers' own records", ""),
        ("dead-lettered", outcome.dead_lettered, f"the messages in {world.NEVER_LEFT}", ""),
        ("lost", outcome.lost, "published, and neither of the above", bad if outcome.lost else "bold green"),
        (
            "acknowledged twice",
            outcome.acknowledged_twice,
            "the queue's journal",
            bad if outcome.acknowledged_twice else "bold green",
        ),
        ("delivered again", outcome.redelivered, "the workers' own records, cancels apart", ""),
        ("on the board", outcome.board, "the second queue's journal and records", ""),
        ("barriers", outcome.barriers, "the journal, and every worker's own records", ""),
    ):
        table.add_row(name, Text(f"{number:,}", style=style), source)
    return table


def _delays(delays: list[CarrierDelay]) -> Table:
    total = sum(delay.flights for delay in delays)
    table = Table(
        title="What the workers found: the latest carriers, New York, January 2013",
        title_justify="left", title_style="bold", box=None,
    )  # fmt: skip
    table.pad_edge = False
    table.add_column("carrier", min_width=18)
    table.add_column("departures", justify="right")
    table.add_column("mean delay", justify="right")
    usual = [delay for delay in delays if delay.flights >= _LEAST_PART * total]
    longest = max((delay.mean for delay in usual), default=1.0)
    for delay in usual[:_CARRIERS]:
        bar = Text("█" * max(round(24 * delay.mean / longest), 0), style="cyan")
        name = _NAMES.get(delay.carrier, delay.carrier)
        table.add_row(name, f"{delay.flights:,}", f"{delay.mean:.1f} min", bar)
    return table


def _days(days: list[Day]) -> Text:
    """A bar for each day, and the ends of the scale."""
    best, worst = min(days, key=_mean), max(days, key=_mean)
    text = Text()
    text.append("Day by day, from barrier to barrier: the mean delay, at least and at most\n", style="bold")
    for day in days:
        part = max(day.mean, 0.0) / worst.mean if worst.mean > 0 else 0.0
        style = "bold red" if day is worst else "bold green" if day is best else "cyan"
        text.append(_BARS[round(part * (len(_BARS) - 1))], style=style)
    return text.append(f"   {_named(best)}, {_named(worst)}")


def _mean(day: Day) -> float:
    return day.mean


def _named(day: Day) -> str:
    when = date.fromisoformat(day.date)
    return f"{day.mean:.1f} min on the {when.day}{_ORDINALS.get(when.day, 'th')}"


def _next_steps(site: world.DemoSite, *, kept: bool) -> Text:
    text = Text()
    text.append("Where to go next\n", style="bold")
    if kept:
        where = f"--url {site.url}" if site.data_dir is None else f"--data-dir {site.data_dir}"
        text.append(f"  What is left:  ampsq queues {where} --instance {site.instance}\n")
        text.append(f"  Records and logs of every process:  {site.folder}\n")
    text.append("  Your own queue:  python -c 'import ampsq; help(ampsq.Client)'\n")
    text.append("  Everything that the command line can do:  ampsq --help\n")
    text.append("  On a server of yours:  ampsq demo --url redis://localhost:6379")
    return text
