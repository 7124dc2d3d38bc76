"""Redriving as people see it: a bar, a true count when it is stopped, what could not be put back and why."""

from __future__ import annotations

import contextlib
import importlib.util
import signal
import sys
from typing import TYPE_CHECKING, Final, Self, TypedDict, Unpack

import click

from ampsq.base.shutdown import ENDS_WITHIN, end_process_within
from ampsq.cli.output import json_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from ampsq.cli.options import CommandSettings
    from ampsq.client.client import Client
    from ampsq.queues.dead_letters import DeadLetter
    from ampsq.queues.redrive import Redriven, RedriveProgress, Refusal

__all__ = ["RedriveChoice", "redrive_watched", "tell_result"]

#: Refusals that are printed one by one.
_TOLD: Final = 20


class RedriveChoice(TypedDict, total=False):
    """The choice of letters that are put back, where, and how; see `Admin.redrive`."""

    filter: str | None
    source: str | None
    reason: str | None
    to: str | None
    bookmarks: list[str] | None
    edit: Callable[[DeadLetter], object]


class _Stopped(Exception):
    """Somebody wants it to end."""


class _Watch:
    """A watch over the redrive. A signal is acted on between two calls, so that no outcome is ever unknown."""

    def __init__(self, show: Callable[[RedriveProgress], None]) -> None:
        self._show = show
        self.done = self.signal = 0
        self._former: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def __call__(self, progress: RedriveProgress) -> None:
        self.done = progress.done
        self._show(progress)
        if self.signal:
            raise _Stopped

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self.signal:
            raise KeyboardInterrupt
        if number == signal.SIGTERM:
            # The call under way may be to a server that does not answer.
            end_process_within(ENDS_WITHIN, 128 + number)
        self.signal = number

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._former[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)


@contextlib.contextmanager
def _bar(settings: CommandSettings) -> Iterator[Callable[[RedriveProgress], None]]:
    """A bar on standard error, where somebody sees it."""
    if settings.json or not sys.stderr.isatty() or importlib.util.find_spec("rich") is None:
        yield lambda _: None
        return
    from rich import progress as drawn
    from rich.console import Console

    columns = (
        drawn.TextColumn("redriven"), drawn.BarColumn(), drawn.MofNCompleteColumn(), drawn.TimeRemainingColumn(),
    )  # fmt: skip
    with drawn.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("redriven", total=None)
        yield lambda at: bar.update(task, completed=at.done + at.refused, total=at.total)


def redrive_watched(
    settings: CommandSettings, client: Client, queue: str, rate: str | None = None, **wishes: Unpack[RedriveChoice]
) -> None:
    """Put letters back while somebody looks on; ends the command with the code that tells how it went."""
    with _bar(settings) as show, _Watch(show) as watch:
        try:
            result = client.admin.redrive(queue, progress=watch, rate=rate, **wishes)
        except _Stopped:
            result = None
        except BaseException:
            if watch.done:
                click.echo(f"redriven {watch.done} until then", err=True)
            raise
    if result is None:
        if settings.json:
            json_line({"redriven": watch.done, "stopped": True})
        else:
            print(f"redriven {watch.done}, then stopped", flush=True)
        click.get_current_context().exit(128 + watch.signal)
    tell_result(settings, result, "redriven")
    if result.refused:
        click.get_current_context().exit(1)


def tell_result(settings: CommandSettings, result: Redriven, verb: str, *, quiet: bool = False) -> None:
    """Print what was put back, or would be, where, and what could not be.

    Args:
        settings: whether JSON is wanted.
        result: what the client gave.
        verb: what was done.
        quiet: it is no result yet: for people alone, on standard error.
    """
    if settings.json and not quiet:
        json_line(
            {
                verb.replace(" ", "_"): int(result),
                "to": result.targets,
                "refused": result.refused,
                "refusals": [refusal._asdict() for refusal in result.refusals],
            }
        )
        return
    where = ", ".join(f"{number} to {queue}" for queue, number in result.targets.items())
    text = f"{int(result)} {verb}" if verb.startswith("would") else f"{verb} {int(result)}"
    click.echo(f"{text}: {where}" if where else text, err=quiet)
    _tell_refusals(result.refusals, result.refused)


def _tell_refusals(refusals: list[Refusal], number: int) -> None:
    for refusal in refusals[:_TOLD]:
        click.echo(f"Error: {refusal.bookmark}: {refusal.reason}", err=True)
    if number > _TOLD:
        click.echo(f"Error: {number - _TOLD} more could not be redriven; --json names them", err=True)
