"""``ampsq demo``: 27,004 real flights, four workers, one of them killed, and the proof that none was lost."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampsq.cli.demo_run import DemoResult

__all__ = ["demo"]

_ALL: Final = 27_004
#: With fewer there is no middle in which a worker could be killed.
_FEWEST: Final = 500
_SECONDS: Final = 120.0


_EPILOG = """\b
Examples:
  ampsq demo
  ampsq demo --flights 2000 --keep
  ampsq demo --json | tail -n 1 | jq .lost
"""


@click.command(epilog=_EPILOG)
@click.option("--json", "as_json", is_flag=True, help="Print the figures, one JSON object in the last line.")
@click.option("--url", metavar="URL", help="Use this server, under a fresh instance name; tidy up at the end.")
@click.option(
    "--data-dir",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Run the embedded server here, and leave the data.",
)
@click.option(
    "--flights",
    "number",
    metavar="N",
    type=click.IntRange(_FEWEST, _ALL),
    default=_ALL,
    help=f"Only the first N flights, {_FEWEST} to {_ALL}.",
)
@click.option("--keep", is_flag=True, help="Leave data, records and logs, and say where they are.")
@click.pass_context
def demo(ctx: click.Context, *, as_json: bool, url: str | None, data_dir: Path | None, number: int, keep: bool) -> None:
    """See queues at work.

    Starts a server and a coordinator, publishes the 27,004 flights that were to leave New York in January
    2013, and lets four worker processes handle them, slowed down a little so that you can watch. One worker
    is killed with SIGKILL in the middle: what it held comes back. Flights that never left are refused by the
    handler until the queue sends them to a dead-letter topic. Each day ends with a barrier: no worker begins
    the next day before all flights of this one are settled. A second queue gets every flight, too.

    At the end every flight is accounted for, from the queue's journal and the workers' own records. The exit
    code is 1 if any is lost, or anything else is not as it should be. Without --url the demo has a server of
    its own, whatever AMPSQ_URL says.
    """
    url, data_dir, as_json = _merged(ctx, url, data_dir, as_json=as_json)
    with _terminated_like_interrupted():
        result = _play(url, data_dir, number, keep=keep, as_json=as_json)
    for failure in result.outcome.failures:
        click.echo(f"not as it should be: {failure}", err=True)
    if as_json:
        click.echo(json.dumps(_figures(result)))
    sys.exit(1 if result.outcome.failures else 0)


def _merged(
    ctx: click.Context, url: str | None, data_dir: Path | None, *, as_json: bool
) -> tuple[str | None, Path | None, bool]:
    """Add what was given before the command's name."""
    group = ctx.parent.params if ctx.parent else {}
    if group.get("instance"):
        raise click.UsageError("the demo makes an instance of its own; leave out --instance")
    if url is None and data_dir is None:
        url = group.get("url")
        data_dir = Path(group["data_dir"]) if group.get("data_dir") else None
    if url is not None and data_dir is not None:
        raise click.UsageError("--url names a server, --data-dir the embedded one; give one of them")
    return url, data_dir, as_json or bool(group.get("json"))


def _play(url: str | None, data_dir: Path | None, number: int, *, keep: bool, as_json: bool) -> DemoResult:
    try:
        from ampsq.cli import demo_run, demo_show, demo_world
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "rich":
            raise
        raise click.ClickException("the demo needs rich to show itself: pip install 'ampsq[cli,embedded]'") from error
    from ampsq.base.errors import AmpsqError
    from ampsq.cli.demo_crew import Deadline

    kept = keep or data_dir is not None
    try:
        with demo_show.watcher() as watch:
            watch.say("starting a server, a coordinator and five processes ...")
            with (
                demo_world.find_site(url, data_dir, keep=keep) as site,
                _telling_where(site.folder, always=as_json, keep=kept),
            ):
                result = demo_run.run(site, number, Deadline(_SECONDS), watch)
    except AmpsqError as error:
        raise click.ClickException(str(error)) from error
    if not as_json:
        demo_show.story(result, site, kept=kept)
    return result


def _figures(result: DemoResult) -> dict[str, object]:
    outcome = result.outcome
    return {
        "published": outcome.published,
        "acknowledged": outcome.acknowledged,
        "dead_lettered": outcome.dead_lettered,
        "lost": outcome.lost,
        "acknowledged_twice": outcome.acknowledged_twice,
        "redelivered": outcome.redelivered,
        "killed_workers": outcome.killed,
        "barriers": outcome.barriers,
        "seconds": round(result.seconds, 3),
    }


@contextlib.contextmanager
def _telling_where(folder: Path, *, always: bool, keep: bool) -> Iterator[None]:
    """Say where the logs are that are kept: always, or when it ends badly."""
    told = always
    try:
        yield
    except Exception:
        told = True
        raise
    finally:
        if told and keep:
            click.echo(f"records and logs of all processes are in {folder}", err=True)


@contextlib.contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Let SIGTERM leave through the same blocks as Ctrl-C, which end all processes."""

    def leave(number: int, _frame: object) -> NoReturn:
        sys.exit(128 + number)

    former = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


if __name__ == "__main__":
    demo()
