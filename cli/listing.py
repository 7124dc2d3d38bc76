"""Common parts of all listings: the forms in which they are printed, and watching them."""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import json
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import click

from ampsq.cli.options import REFRESH, CommandSettings, connection_options
from ampsq.cli.output import json_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from ampsq.base.values import Interval
    from ampsq.client.client import Client

__all__ = ["FORMS", "columns_of", "listing_options", "output_options", "print_columns", "print_records"]

#: table is for people; the others have every column, whatever fits a terminal.
FORMS: Final = ("table", "json", "jsonl", "yaml", "csv")
_EVERY: Final = "2s"
_COLUMNS: Final = "columns"


def output_options(columns: Sequence[str]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command what `connection_options` gives, and --output.

    Args:
        columns: what each of its records has, in this order, under names that stay: the columns of CSV.
    """

    def decorated(function: Callable[..., None]) -> Callable[..., None]:
        @click.option("-o", "--output", type=click.Choice(FORMS), help="How it is printed; --json is -o jsonl.")
        @connection_options
        @functools.wraps(function)
        def wrapped(*arguments: object, settings: CommandSettings, output: str | None, **others: object) -> None:
            function(*arguments, settings=_chosen(settings, output), **others)

        setattr(wrapped, _COLUMNS, tuple(columns))
        return wrapped

    return decorated


def listing_options(
    columns: Sequence[str],
    held: Callable[[CommandSettings], AbstractContextManager[Client | None]] = CommandSettings.client,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command what `output_options` gives, and --watch: what it prints changes with the server.

    Args:
        columns: as of `output_options`.
        held: opens what is used again and again; None: each time connects anew.
    """

    def decorated(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def again(*arguments: object, settings: CommandSettings, watch: Interval | None, **others: object) -> None:
            if watch is None:
                function(*arguments, settings=settings, **others)
                return
            if click.get_current_context().invoked_subcommand is not None:
                raise click.UsageError("--watch goes behind the subcommand")
            with held(settings) as client:
                watched = replace(settings, held=client)
                _watch(watched, lambda: function(*arguments, settings=watched, **others), float(watch) / 1000)

        option = click.option(
            "--watch",
            type=REFRESH,
            is_flag=False,
            flag_value=_EVERY,
            metavar="[INTERVAL]",
            help="Print it again and again, by default each 2s, until Ctrl-C.",
        )
        return output_options(columns)(option(again))

    return decorated


def columns_of(command: click.Command) -> Sequence[str]:
    """The columns of a listing; none of another command."""
    found: Sequence[str] = getattr(command.callback, _COLUMNS, ())
    return found


def _chosen(settings: CommandSettings, output: str | None) -> CommandSettings:
    if output is None:
        return replace(settings, output="jsonl") if settings.json else settings
    given = click.get_current_context().params.get("json")
    if given and output != "jsonl":
        raise click.UsageError(f"--json is -o jsonl; it was given with -o {output}: leave one of them out")
    return replace(settings, output=output, json=output == "jsonl")


def _watch(settings: CommandSettings, show: Callable[[], None], seconds: float) -> None:
    """Show it again and again, until somebody ends it."""
    # Ctrl-C is how one leaves it.
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            if settings.output == "table" and sys.stdout.isatty():
                click.clear()
            # What is wrong now may be well the next time.
            with contextlib.suppress(click.exceptions.Exit):
                show()
            if settings.output == "table" and not sys.stdout.isatty():
                print()
            sys.stdout.flush()
            time.sleep(seconds)


def print_records(settings: CommandSettings, records: Iterable[Mapping[str, object] | str]) -> bool:
    """Print records in the form that programs asked for.

    Args:
        settings: which form.
        records: each of the columns of the listing; or its JSON, where that is to be printed as it is written.

    Returns:
        Whether it was done; else the caller is to print a table for people.
    """
    columns = columns_of(click.get_current_context().command)
    return print_columns(settings, records, columns)


def print_columns(
    settings: CommandSettings, records: Iterable[Mapping[str, object] | str], columns: Sequence[str]
) -> bool:
    """Do the same with columns that are not the command's own."""
    if settings.output == "table":
        return False
    if settings.output == "jsonl":
        for record in records:
            print(record if isinstance(record, str) else json_text(record), flush=True)
        return True
    texts = [record if isinstance(record, str) else json_text(record) for record in records]
    if settings.output == "json":
        print("[" + ",".join(f"\n  {text}" for text in texts) + ("\n]" if texts else "]"), flush=True)
    elif settings.output == "csv":
        print(_csv([json.loads(text) for text in texts], columns), end="", flush=True)
    else:
        print(_yaml([json.loads(text) for text in texts]), end="", flush=True)
    return True


def _csv(records: Sequence[Mapping[str, object]], columns: Sequence[str]) -> str:
    """A head and a line a record (RFC 4180, with plain line ends); what is no text or number is JSON."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(columns)
    lines.writerows([_cell(record.get(column)) for column in columns] for record in records)
    return text.getvalue()


def _cell(value: object) -> object:
    if value is None:
        return ""
    return json_text(value) if isinstance(value, bool | list | dict) else value


def _yaml(records: Sequence[Mapping[str, object]]) -> str:
    try:
        import yaml
    except ImportError as error:
        raise click.ClickException("-o yaml needs PyYAML: pip install 'ampsq[cli]', or -o json") from error
    written: str = yaml.safe_dump(list(records), sort_keys=False, allow_unicode=True)
    return written
