"""``ampsq up``."""

from __future__ import annotations

import logging
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import click

from ampsq.base.shutdown import StopRequest
from ampsq.cli.console_options import Served, serving
from ampsq.cli.options import DATA_DIR, CommandSettings, connection_options, log_format, log_to_stderr, on_stop
from ampsq.cli.output import json_line, note

if TYPE_CHECKING:
    from ampsq.console import Console
    from ampsq.server.embedded import EmbeddedServer

__all__ = ["up"]

_EPILOG = """\b
Examples:
  ampsq up
  ampsq up --data-dir /var/tmp/queues
  ampsq up --console                        # with a web console; the address is printed
  ampsq up --url redis://localhost:6379     # a coordinator for your own server
"""


@click.command(epilog=_EPILOG)
@click.option(
    "--appendfsync",
    type=click.Choice(["everysec", "always"]),
    default="everysec",
    show_default=True,
    help="When the embedded server writes to disk; at-most-once queues need `always`.",
)
@log_format
@serving
@connection_options
def up(settings: CommandSettings, appendfsync: Literal["everysec", "always"], served: Served, log_format: str) -> None:
    """Start the embedded server and keep it until Ctrl-C.

    A Valkey on a Unix socket, with a coordinator beside it. The data stays in its folder, ./.ampsq, for the
    next time. With --url or AMPSQ_URL no server is started, only a coordinator for that one.
    """
    named = [settings.instance] if settings.instance else []
    if settings.url is not None:
        from ampsq.base.addresses import redacted
        from ampsq.cli.coordinator import care_for, with_partitions

        with settings.client(makes=True, advise=True, merged=True) as client:
            note(f"{redacted(client.url)} is named, so no server is started, only a coordinator for it")
        log_to_stderr(logging.INFO, times=True, form=log_format)
        url, cared_for, _ = with_partitions(settings.url, named)
        care_for(url, cared_for, served, json=settings.json)
        return
    from ampsq.server.embedded import acquire

    stopped = StopRequest()
    on_stop(stopped.set)
    log_to_stderr(logging.WARNING, times=True, form=log_format)
    with (
        acquire(settings.data_dir, appendfsync=appendfsync) as server,
        served.console(server.url, named) as console,
    ):
        _make_instance(replace(settings, url=server.url))
        _tell(settings, server, console)
        stopped.wait()


def _make_instance(settings: CommandSettings) -> None:
    """Make the instance that is named, or else the first one, so that what is printed is there."""
    from ampsq.cli.open_instance import find_instance

    opening = find_instance(settings.url or "", settings.instance)
    if opening.is_first or (settings.instance is not None and not opening.is_there):
        with settings.client(makes=True):
            pass


def _tell(settings: CommandSettings, server: EmbeddedServer, console: Console | None) -> None:
    instance = settings.instance or "ampsq"
    if settings.json:
        facts = {"url": server.url, "data_dir": str(server.data_dir), "process_id": server.process_id}
        json_line({**facts, "instance": instance, **({"console": console.address} if console else {})})
        return
    served = f"\n  console   {console.address}" if console is not None else ""
    folder = "" if settings.data_dir == DATA_DIR else f" --data-dir {shlex.quote(settings.data_dir)}"
    print(
        f"""ampsq is up, with a coordinator.
  address   {server.url}
  data      {server.data_dir}
  instance  {instance}{served}

In another terminal, in this folder:
  ampsq queues{folder}
In any other folder, first:
  export AMPSQ_URL={shlex.quote(server.url)}

Ctrl-C ends it; the data stays.""",
        flush=True,
    )
