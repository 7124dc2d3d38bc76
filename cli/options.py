"""Common options of commands: those that say where the server is, and how they reach it."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import signal
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

import click

import ampsq
from ampsq.base.errors import DefinitionError
from ampsq.base.shutdown import ENDS_WITHIN, end_process_within
from ampsq.base.values import Interval
from ampsq.cli.names import names
from ampsq.cli.output import in_commands, note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ampsq.client.client import Client

__all__ = [
    "DATA_DIR",
    "FILE",
    "INTERVAL",
    "NUMBER",
    "REFRESH",
    "CommandSettings",
    "connection_options",
    "failover",
    "log_format",
    "log_to_stderr",
    "on_stop",
    "pointing_to",
]

DATA_DIR: Final = ".ampsq"
#: Those of `ampsq.transport.instances.POLICIES`, against which a test holds them.
_POLICIES: Final = ("refuse", "warn")


def pointing_to(command: str, what: str, *options: str) -> type[click.Command]:
    """Make the class of a command that, given an option of another one, names that.

    Args:
        command: the other one.
        what: it is for, as in ``topics``.
        options: that it has and this one has not.
    """

    class Pointing(click.Command):
        def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
            try:
                return super().parse_args(ctx, args)
            except click.NoSuchOption as error:
                if error.option_name not in options:
                    raise
                text = f"{error.option_name} is for {what}: ampsq {command} has it"
                raise click.UsageError(text, ctx) from None

    return Pointing


class ClientOptions(TypedDict, total=False):
    """Options of `Client` that some commands give it."""

    failover: str
    retry_timeout: float


@dataclass(frozen=True, slots=True)
class CommandSettings:
    """The server's address, and the form of the output.

    Attributes:
        url: the server's address; None for the embedded server.
        instance: the instance's name, when one was named.
        data_dir: the embedded server's folder.
        json: print JSON lines.
        output: of listings, one of `ampsq.cli.listing.FORMS`.
        held: a client that is used again and again.
    """

    url: str | None
    instance: str | None
    data_dir: str
    json: bool
    output: str = "table"
    held: Client | None = None

    def completed(self, url: str | None, instance: str | None) -> CommandSettings:
        """The same, with what a file says of its server and its instance where nobody else said it."""
        is_named = self.url is not None or self.data_dir != DATA_DIR
        return replace(self, url=self.url if is_named else url, instance=self.instance or instance)

    @contextlib.contextmanager
    def client(
        self,
        *,
        makes: bool = False,
        advise: bool = False,
        patient: bool = False,
        merged: bool = False,
        **options: Unpack[ClientOptions],
    ) -> Iterator[Client]:
        """Connect; to the embedded server, which is started, when no other one is named.

        Args:
            merged: work with all partitions, where they are asked for; else that is refused.
            makes: make the instance if it is not there; else it is refused.
            advise: say on standard error what is badly configured at the server.
            patient: wait for a server that is away, as services do.
            options: further ones of `Client`.
        """
        if self.held is not None:
            yield self.held
            return
        if not merged:
            self._refuse_partitions()
        with self._found(makes=makes, patient=patient):
            logger = logging.getLogger("ampsq")
            level = logger.level
            logger.setLevel(level if advise else logging.ERROR)
            try:
                client = ampsq.Client(self.url, instance=self.instance, data_dir=self.data_dir, **options)
            finally:
                logger.setLevel(level)
        with client:
            yield client

    @property
    def partitions(self) -> int | None:
        """Number of partitions that the address asks for; None: none."""
        from ampsq.base.partitions import asked_partitions

        return asked_partitions(self.url, None)[1] if self.url else None

    @property
    def server_url(self) -> str:
        """The address without what it asks for of partitions; "" for the embedded server."""
        from ampsq.base.addresses import join_addresses
        from ampsq.base.partitions import asked_partitions

        return join_addresses(asked_partitions(self.url, None)[0] or "") if self.url else ""

    def _refuse_partitions(self) -> None:
        if self.partitions:
            from ampsq.cli.open_instance import refuse_one_instance

            raise refuse_one_instance(click.get_current_context().command_path, self.instance, self.partitions)

    @contextlib.contextmanager
    def address(self, *, merged: bool = False) -> Iterator[str]:
        """The server's address, for who opens no instance there; a folder without data gets no server.

        Args:
            merged: look at the server, or at all partitions, where they are asked for; else that is refused.

        Raises:
            click.ClickException: there is no such folder. click.UsageError: it asks for all partitions of one.
        """
        if self.url is not None:
            if not merged:
                self._refuse_partitions()
            yield self.server_url
            return
        from ampsq.server.embedded import acquire

        if not Path(self.data_dir).exists():
            raise click.ClickException(
                f"{Path(self.data_dir).resolve()}: there is no server; `ampsq up` begins one, --url or AMPSQ_URL name "
                "another"
            )
        with acquire(self.data_dir) as server:
            yield server.url

    @contextlib.contextmanager
    def _found(self, *, makes: bool, patient: bool) -> Iterator[None]:
        """Look whether the instance is there, and keep the embedded server until it is opened."""
        from ampsq.cli.open_instance import find_instance, refuse_new_folder

        if self.url is not None:
            opening = find_instance(self.url, self.instance, patient=patient)
            if not makes:
                opening.check(is_named=self.instance is not None or "#" in self.url)
                if opening.is_first:
                    note(f"a new instance, 'ampsq', the first one of {opening.instance_address}")
            yield
            return
        from ampsq.server.embedded import acquire

        is_new = not Path(self.data_dir).exists()
        if is_new and not makes:
            refuse_new_folder(self.instance, self.data_dir)
        with acquire(self.data_dir) as server:
            if not makes:
                find_instance(server.url, self.instance).check(is_named=self.instance is not None)
            yield
        if is_new:
            where = Path(self.data_dir).resolve()
            note(f"a new, empty server in {where}; --url or AMPSQ_URL name another one")


class _IntervalType(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on only
    """An interval such as ``30s``; a plain number is seconds."""

    name = "interval"

    def __init__(self, least: str = "0s") -> None:
        self._least = least

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Interval:
        try:
            found = Interval.parse(value)
        except DefinitionError as error:
            self.fail(str(error), param, ctx)
        if found < Interval.parse(self._least):
            self.fail(f"{value!r} is too short to see anything; allowed: {self._least} or longer, as in 2s", param, ctx)
        return found


INTERVAL: Final = _IntervalType()
#: How many messages, at most as many as Python counts.
NUMBER: Final = click.IntRange(1, sys.maxsize)
#: A file that shells complete; whether it can be read is told by who reads it.
FILE: Final = click.Path(readable=False, allow_dash=True)
_FOLDER: Final = click.Path(readable=False, file_okay=False)
#: Between two refreshes of what a person watches.
REFRESH: Final = _IntervalType("100ms")


def _merged(url: str | None, instance: str | None, data_dir: str | None, *, json: bool) -> CommandSettings:
    """Settle the options of a command: its own, else the group's, else the environment's."""
    context = click.get_current_context()
    group = context.parent.obj if context.parent is not None else None
    if url is not None and data_dir is not None:
        raise click.UsageError("--url names a server, --data-dir the embedded one; give one of them")
    if url is None and data_dir is None and group is not None:
        url, data_dir = group.url, group.data_dir
    elif data_dir is not None:
        # What is asked for in words counts more than the environment, which the client would look at.
        os.environ.pop("AMPSQ_URL", None)
    elif url is None:
        url = os.environ.get("AMPSQ_URL") or None
    instance = instance or (group.instance if group else os.environ.get("AMPSQ_INSTANCE") or None)
    if url is not None and "#" in url:
        url, instance = _of_whole(url, instance)
    outer = group.output if group else "table"
    return CommandSettings(
        url,
        instance,
        data_dir or DATA_DIR,
        json or outer == "jsonl" or bool(group and group.json),
        "jsonl" if json else outer,
    )


def connection_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command --url, --instance, --data-dir and --json, as its first argument, `CommandSettings`."""

    @click.option(
        "--url",
        metavar="URL",
        help="An address, or several with commas, #INSTANCE behind each; default AMPSQ_URL, else embedded.",
    )
    @click.option(
        "--instance",
        metavar="NAME",
        shell_complete=names("instances"),
        help="The instance; default AMPSQ_INSTANCE, else 'ampsq'.",
    )
    @click.option("--data-dir", type=_FOLDER, metavar="DIR", help="The embedded server's folder; default ./.ampsq.")
    @click.option("--json", is_flag=True, help="Print JSON, one object a line.")
    @functools.wraps(function)
    def wrapped(
        *arguments: object,
        url: str | None,
        instance: str | None,
        data_dir: str | None,
        json: bool,
        **others: object,
    ) -> None:
        function(*arguments, settings=_merged(url, instance, data_dir, json=json), **others)

    return wrapped


#: Gives a command that goes on at another instance --failover, as its argument `failover`.
failover: Final = click.option(
    "--failover",
    type=click.Choice(_POLICIES),
    default="refuse",
    show_default=True,
    help="With several instances in --url: stay, or go on with a warning, where messages may be missing.",
)
#: Gives a service --log-format, as its argument `log_format`.
log_format: Final = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    envvar="AMPSQ_LOG_FORMAT",
    help="How log lines are written on standard error; json: an object a line.",
)


class _JsonLines(logging.Formatter):
    """A record as one line of JSON, for programs that collect logs."""

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "process": record.process,
            "thread": record.threadName,
            "message": record.getMessage(),
        }
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False)


class _ForPeople(logging.Formatter):
    """Names commands where the library names its calls."""

    def format(self, record: logging.LogRecord) -> str:
        return in_commands(super().format(record))


def log_to_stderr(level: int, *, times: bool, form: str = "text") -> None:
    """Show what the library logs.

    Args:
        level: the least level shown.
        times: for services: with time and logger; else for a person at a terminal.
        form: ``text``, or ``json``: an object a line, with all that services say.
    """
    text = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s" if times else "%(levelname)s: %(message)s"
    handler = logging.StreamHandler(sys.stderr)
    plain = logging.Formatter(text) if times else _ForPeople(text)
    handler.setFormatter(_JsonLines() if form == "json" else plain)
    logging.basicConfig(handlers=[handler])
    logging.getLogger("ampsq").setLevel(level)


def on_stop(*stops: Callable[[], None]) -> None:
    """Let SIGTERM and SIGINT stop a service; what does not end by itself is ended, whatever its server does.

    Args:
        stops: each asks a part of it to stop, without a wait; a signal's handler must be able to call them.
    """

    def stopping(_number: int, _frame: object) -> None:
        end_process_within(ENDS_WITHIN, 0)
        for stop in stops:
            stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stopping)


def _of_whole(url: str, instance: str | None) -> tuple[str, str | None]:
    """Take the name behind ``#`` out of an address that asks for all partitions: it names the whole instance."""
    from ampsq.base.partitions import asked_partitions
    from ampsq.cli.open_instance import DEFAULT
    from ampsq.transport.instances import whole_instance

    try:
        bare, partitions = asked_partitions(url, None)
        if partitions is None:
            return url, instance
        whole, name = whole_instance(bare, instance or DEFAULT)
    except DefinitionError as error:
        raise click.UsageError(str(error)) from error
    return f"{whole}{'&' if '?' in str(whole) else '?'}partitions={partitions}", name
