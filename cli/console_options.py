"""The options of whatever serves metrics, health and the console, and serving them."""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ampsq.console import Console

__all__ = ["TOKEN", "Served", "serving"]

#: Names the token; else each start makes one.
TOKEN: Final = "AMPSQ_CONSOLE_TOKEN"  # noqa: S105  (the name of a variable)
_LEAST_TOKEN: Final = 16


@dataclass(frozen=True, slots=True)
class Served:
    """The console that was asked for.

    Attributes:
        where: host and port; None: nothing is served.
        hosts: names under which it is called.
        is_read_only: nobody may change anything.
    """

    where: str | None
    hosts: tuple[str, ...]
    is_read_only: bool

    @contextlib.contextmanager
    def console(
        self,
        url: str,
        instances: Sequence[str],
        rounds: Callable[[], Mapping[tuple[str, str], float]] | None = None,
    ) -> Iterator[Console | None]:
        """Serve it as long as the block runs; arguments as of `ampsq.console.Console`. None: it was not asked for."""
        if self.where is None:
            yield None
            return
        try:
            from ampsq.console import Access, Console
        except ModuleNotFoundError as error:
            raise click.ClickException(f"--console needs {error.name}: pip install 'ampsq[console]'") from error
        token = os.environ.get(TOKEN)
        if token is not None and len(token) < _LEAST_TOKEN:
            raise click.ClickException(f"{TOKEN} has {len(token)} characters; allowed: {_LEAST_TOKEN} or more")
        access = Access(token or secrets.token_urlsafe(24), self.hosts, self.is_read_only)
        try:
            made = Console(url, self.where, access, instances=instances, rounds=rounds)
        except OSError as error:
            raise click.ClickException(f"--console {self.where}: {error}; allowed: a free port of this host") from error
        made.start()
        try:
            yield made
        finally:
            made.stop()


def serving(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command --console and what belongs to it, as its argument `served`."""

    @click.option(
        "--console",
        "where",
        metavar="HOST:PORT",
        is_flag=False,
        flag_value="127.0.0.1:0",
        help="Serve the web console, /metrics and /healthz there; without a value on the loopback, at a free port.",
    )
    @click.option("--console-read-only", is_flag=True, help="Nobody may change anything on the console.")
    @click.option(
        "--console-host",
        "hosts",
        metavar="NAME",
        multiple=True,
        help="A name under which the console is called, beside localhost and addresses; may be repeated.",
    )
    @functools.wraps(function)
    def wrapped(
        *arguments: object, where: str | None, hosts: tuple[str, ...], console_read_only: bool, **others: object
    ) -> None:
        if where is None and (hosts or console_read_only):
            raise click.UsageError("--console-host and --console-read-only go with --console")
        function(*arguments, served=Served(where, hosts, console_read_only), **others)

    return wrapped
