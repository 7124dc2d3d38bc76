"""``ampsq coordinator``."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING

import click

from ampsq.cli.console_options import Served, serving
from ampsq.cli.gateway import Gated, gated
from ampsq.cli.names import names
from ampsq.cli.options import log_format, log_to_stderr, on_stop
from ampsq.cli.output import json_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ampsq.coordinator.actions import OutsidePermissions

__all__ = ["care_for", "coordinator", "with_partitions"]

_EPILOG = """\b
Examples:
  ampsq coordinator --url redis://localhost:6379
  ampsq coordinator --instance nyc-1 --instance nyc-2     # AMPSQ_URL names the server
  ampsq coordinator --allow-webhooks https://hooks.example.com/ampsq
  ampsq coordinator --instance nyc-1 --gateway 127.0.0.1:8081 --gateway-config gateway.yaml
  ampsq coordinator --console 127.0.0.1:8080 --log-format json     # with web console, /metrics, /healthz, /readyz
"""


@click.command(epilog=_EPILOG)
@click.option(
    "--url", metavar="URL", help="An address, or several with commas (docs/connections.md); default AMPSQ_URL."
)
@click.option(
    "--instance",
    "instances",
    metavar="NAME",
    multiple=True,
    shell_complete=names("instances"),
    help="An instance to care for; may be repeated. Default AMPSQ_INSTANCE, else all of the server's.",
)
@click.option("--json", is_flag=True, help="Print one line of JSON when it starts.")
@click.option(
    "--allow-commands",
    is_flag=True,
    envvar="AMPSQ_ALLOW_COMMANDS",
    help="Let actions run programs on this machine, as this user.",
)
@click.option(
    "--allow-webhooks",
    "webhooks",
    metavar="PREFIX",
    multiple=True,
    envvar="AMPSQ_ALLOW_WEBHOOKS",
    help="Let actions call addresses below this one, as https://hooks.example.com/ampsq; may be repeated.",
)
@gated("gateway-", "--gateway", help="Serve a gateway there, of the one instance that is named (docs/gateway.md).")
@log_format
@serving
@click.pass_context
def coordinator(
    ctx: click.Context,
    url: str | None,
    instances: tuple[str, ...],
    webhooks: tuple[str, ...],
    *,
    json: bool,
    allow_commands: bool,
    served: Served,
    gated: Gated,
    log_format: str,
) -> None:
    """Run the coordinator: time-outs, dead letters and replication for your own server.

    It returns messages of lapsed leases and lost workers to their queues, notices messages written without ampsq, keeps
    views, and runs actions. One is enough, and any number may run; without any, this work waits. Runs until Ctrl-C or
    SIGTERM. The embedded server has its own.
    """
    group = ctx.parent.obj if ctx.parent is not None else None
    address = url or (group.url if group else os.environ.get("AMPSQ_URL"))
    if not address:
        raise click.UsageError(
            "a coordinator needs a server: --url URL or AMPSQ_URL. The embedded server has its own: ampsq up"
        )
    named = instances or ((group.instance,) if group and group.instance else ())
    wholes = named
    address, named, partitions = with_partitions(address, named)
    from ampsq.coordinator.actions import OutsidePermissions

    gated.check()
    if gated.where is not None and len(wholes) > 1:
        raise click.UsageError(
            f"a gateway is of one instance, and {len(wholes)} are named; run `ampsq gateway` for each"
        )
    powers = OutsidePermissions(allow_commands, webhooks)
    log_to_stderr(logging.INFO, times=True, form=log_format)
    instance = wholes[0] if wholes else os.environ.get("AMPSQ_INSTANCE") or "ampsq"
    with gated.serving(address, instance, partitions) as gateway:
        if gateway is not None:
            print(f"gateway  {gateway.address}", file=sys.stderr, flush=True)
        stop = gateway.begin_to_stop if gateway is not None else None
        care_for(address, named, served, json=json or bool(group and group.json), powers=powers, beside=stop)


def with_partitions(url: str, instances: Sequence[str]) -> tuple[str, tuple[str, ...], int | None]:
    """Return what a coordinator cares for where all partitions are asked for: each is an instance.

    Args:
        url: the server, with partitions= or without.
        instances: those that are named; none: all of the server's.

    Returns:
        The address without it, the instances, and how many partitions it asks for.
    """
    from ampsq.base.addresses import join_addresses
    from ampsq.base.partitions import asked_partitions, partitions_of

    bare, total = asked_partitions(url, None)
    if total is None:
        return url, tuple(instances), None
    names = [each.instance for name in instances for each in partitions_of(name, total)]
    return join_addresses(bare or ""), tuple(names), total


def care_for(
    url: str,
    instances: Sequence[str],
    served: Served,
    *,
    json: bool,
    powers: OutsidePermissions | None = None,
    beside: Callable[[], None] | None = None,
) -> None:
    """Run a coordinator until it is stopped, and what is to be served beside it.

    Args:
        url: the server.
        instances: as of `ampsq.coordinator.Coordinator`.
        served: what is served.
        json: print a line of JSON when it starts.
        powers: as of the coordinator.
        beside: lets something else end, too, when it is to stop; it does not wait.
    """
    from ampsq.base.addresses import redacted
    from ampsq.base.values import parse_name
    from ampsq.coordinator import Coordinator
    from ampsq.coordinator.main import collect_garbage_seldom

    for instance in instances:
        parse_name(instance)
    made = Coordinator(url, instances, powers)
    # From here on, not only once it runs: whoever reads the line may stop it at once.
    stops = [made.stop] if beside is None else [made.stop, beside]
    on_stop(*stops)
    with served.console(url, instances, lambda: made.rounds) as console:
        if console is not None:
            on_stop(*stops, console.begin_to_stop)
        if json:
            address = {"console": console.address} if console is not None else {}
            json_line({"url": redacted(url), "instances": list(instances), **address})
        elif console is not None:
            print(f"console  {console.address}", flush=True)
        collect_garbage_seldom()
        made.run()
