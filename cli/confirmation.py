"""Changes of many things at once: --dry-run says how many, a person is asked, --yes is the answer beforehand."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeVar

import click

from ampsq.base.formatting import count_text
from ampsq.cli.plan import NOT_CONFIRMED

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["bulk", "go_on"]

Command = TypeVar("Command", bound="Callable[..., object]")


def bulk(function: Command) -> Command:
    """Give a command --dry-run and --yes."""
    asked = click.option("--yes", is_flag=True, help="Do not ask.")(function)
    return click.option("--dry-run", is_flag=True, help="Only say how many there are, and change nothing.")(asked)


def go_on(number: int, what: str, *, yes: bool, of: str = "") -> None:
    """Ask before a change is made; ends the program with 3 where the answer is no, or nobody can be asked.

    Args:
        number: of the things that would be changed; of none nobody is asked.
        what: would be done, as in ``would be acknowledged``.
        yes: the answer was given beforehand.
        of: what they are, in the singular; "" if that is plain.
    """
    if yes or not number:
        return
    click.echo(f"{count_text(number, of) if of else f'{number:,}'} {what}", err=True)
    if not sys.stdin.isatty():
        click.echo("Error: nothing was done: nobody can be asked here; allowed: --yes, or --dry-run to look", err=True)
        raise click.exceptions.Exit(NOT_CONFIRMED)
    if not click.confirm("Go on?", err=True):
        click.echo("nothing was done", err=True)
        raise click.exceptions.Exit(NOT_CONFIRMED)
