"""``ampsq gateway``, and the options of whatever serves one."""

from __future__ import annotations

import contextlib
import functools
import logging
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

import click

from ampsq.base.shutdown import StopRequest
from ampsq.cli.options import CommandSettings, connection_options, log_format, log_to_stderr, on_stop
from ampsq.cli.output import json_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ampsq.gateway import Gateway

__all__ = ["Gated", "gated", "gateway"]

_FILE: Final = click.Path(exists=True, dir_okay=False)
_EPILOG = """\b
Examples:
  ampsq gateway --hash < secret                              # for the file: what is kept of a user's secret
  ampsq gateway --config gateway.yaml --url redis://localhost:6379
  ampsq gateway --config gateway.yaml --listen 0.0.0.0:8443 --certificate cert.pem --key key.pem --host queues.example
  ampsq gateway --config gateway.yaml --certificate cert.pem --key key.pem --client-authorities clients.pem
"""


@dataclass(frozen=True, slots=True)
class Gated:
    """The gateway that was asked for.

    Attributes:
        where: host and port; None: none is served.
        config: the file with its users and what they are entitled to.
        certificate, key, clients: see `ampsq.gateway.server.Tls`.
        hosts: names under which it is called.
    """

    where: str | None
    config: str | None
    certificate: str | None
    key: str | None
    clients: str | None
    hosts: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise `click.UsageError` for options that do not go together."""
        if self.where is None and (self.config or self.certificate or self.key or self.clients or self.hosts):
            raise click.UsageError("the options of a gateway go with --gateway HOST:PORT")
        if self.where is not None and not self.config:
            raise click.UsageError("a gateway needs its users and what they are entitled to: --config FILE")
        if bool(self.certificate) != bool(self.key) or (self.clients and not self.certificate):
            raise click.UsageError("TLS needs a certificate and its key; the authorities of clients go with both")

    @contextlib.contextmanager
    def serving(self, url: str, instance: str, partitions: int | None = None) -> Iterator[Gateway | None]:
        """Serve it as long as the block runs. None: it was not asked for.

        Args:
            url: the server.
            instance: the name of the instance.
            partitions: how many it has; None: none.
        """
        if self.where is None or self.config is None:
            yield None
            return
        try:
            from ampsq.gateway import Gateway, read_rules
            from ampsq.gateway.server import Tls
        except ModuleNotFoundError as error:
            raise click.ClickException(f"a gateway needs {error.name}: pip install 'ampsq[gateway]'") from error
        tls = Tls(self.certificate, self.key, self.clients) if self.certificate and self.key else None
        try:
            path = Path(self.config)
            rules = read_rules(path)
            made = Gateway(url, instance, rules, self.where, tls, file=path, hosts=self.hosts, partitions=partitions)
        except OSError as error:
            raise click.ClickException(
                f"gateway at {self.where}: {error}; allowed: a free port of this host"
            ) from error
        made.start()
        former = signal.signal(signal.SIGHUP, lambda *_: made.reload())
        try:
            yield made
        finally:
            signal.signal(signal.SIGHUP, former)
            made.stop()


class _WhereOption(TypedDict, total=False):
    """The texts for click on the option with host and port."""

    default: str
    show_default: bool
    help: str


def gated(
    prefix: str, where: str, **options: Unpack[_WhereOption]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of a gateway, as its argument `gated`.

    Args:
        prefix: what stands before their names.
        where: the name of the option with host and port.
        options: further ones of that.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @click.option(where, "gateway_where", metavar="HOST:PORT", **options)
        @click.option(
            f"--{prefix}config", "gateway_config", type=_FILE, help="YAML: users, entitlements (docs/gateway.md)."
        )
        @click.option(f"--{prefix}certificate", "gateway_certificate", type=_FILE, help="PEM: speak TLS with this one.")
        @click.option(f"--{prefix}key", "gateway_key", type=_FILE, help="PEM: the key of the certificate.")
        @click.option(
            f"--{prefix}client-authorities",
            "gateway_clients",
            type=_FILE,
            help="PEM: let in clients alone whose certificate is of these (mTLS).",
        )
        @click.option(
            f"--{prefix}host",
            "gateway_hosts",
            metavar="NAME",
            multiple=True,
            help="A name under which it is called, beside localhost, addresses and its own host; may be repeated.",
        )
        @functools.wraps(function)
        def wrapped(
            *arguments: object,
            gateway_where: str | None,
            gateway_config: str | None,
            gateway_certificate: str | None,
            gateway_key: str | None,
            gateway_clients: str | None,
            gateway_hosts: tuple[str, ...],
            **others: object,
        ) -> None:
            given = Gated(
                gateway_where, gateway_config, gateway_certificate, gateway_key, gateway_clients, gateway_hosts
            )
            function(*arguments, gated=given, **others)

        return wrapped

    return decorate


@click.command(epilog=_EPILOG)
@gated("", "--listen", default="127.0.0.1:8081", show_default=True, help="Where to listen.")
@click.option("--hash", "is_hash", is_flag=True, help="Read a secret from standard input and print its hash; end.")
@log_format
@connection_options
def gateway(settings: CommandSettings, gated: Gated, *, is_hash: bool, log_format: str) -> None:
    """Serve HTTP and WebSockets to clients that hold no credentials of the server.

    They publish, subscribe and query as far as they are entitled to, by name and content. Runs until Ctrl-C or
    SIGTERM; then subscriptions give back what they hold. The file is read again when it has changed, and at SIGHUP.
    """
    if is_hash:
        _print_hash(json=settings.json)
        return
    gated.check()
    log_to_stderr(logging.INFO, times=True, form=log_format)
    stopped = StopRequest()
    with (
        settings.client(patient=True, merged=True) as client,
        gated.serving(client.url, client.instance, len(client.partitions) or None) as made,
    ):
        on_stop(stopped.set)
        if made is not None:
            if settings.json:
                json_line({"gateway": made.address, "instance": client.instance})
            else:
                print(f"gateway  {made.address}", flush=True)
        stopped.wait()


def _print_hash(*, json: bool) -> None:
    from ampsq.gateway.users import Secret

    secret = sys.stdin.readline().rstrip("\r\n")
    if not secret:
        raise click.UsageError("--hash reads the secret from standard input, and there was none")
    hashed = str(Secret.of(secret))
    if json:
        json_line({"secret": hashed})
    else:
        print(hashed)
