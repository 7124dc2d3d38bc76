"""``ampsq acl``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from ampsq.cli.listing import output_options, print_records
from ampsq.cli.names import names
from ampsq.cli.output import note

if TYPE_CHECKING:
    from io import TextIOWrapper

    from ampsq.cli.options import CommandSettings

__all__ = ["acl"]

#: In the order of `ampsq.operations.roles.ROLES`, against which a test holds them.
_ROLES: Final = ("publisher", "worker", "gateway", "coordinator", "replicator", "admin")
#: No role of an instance: who loads functions.
_SERVER: Final = "server"
_COLUMNS: Final = ("role", "user", "keys", "channels", "commands", "rule")
_EPILOG = """\b
Examples:
  ampsq acl worker --instance nyc-1 --password-file worker.secret
  ampsq acl publisher --topic orders --topic trades --password-file - < secret
  ampsq acl coordinator --file >> users.acl
  ampsq acl coordinator --gateway
  ampsq acl worker | valkey-cli
  ampsq acl worker --instance shop --url 'cluster://n1,n2?partitions=64' --file >> users.acl
  ampsq acl server --password-file operator.secret
"""


@click.command(epilog=_EPILOG)
@click.argument("role", type=click.Choice((*_ROLES, _SERVER)))
@click.option("--user", metavar="NAME", help="The user's name at the server; default INSTANCE-ROLE.")
@click.option(
    "--password-file",
    type=click.File(),
    metavar="FILE",
    help="Its first line is the password, of which only the SHA-256 is printed; - is standard input.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    shell_complete=names("topics"),
    help="Of a publisher: record in this one; repeat.",
)
@click.option("--gateway", is_flag=True, help="Of a coordinator: it serves a gateway too.")
@click.option("--file", "as_file", is_flag=True, help="A line of an ACL file instead of a command.")
@output_options(_COLUMNS)
def acl(  # noqa: PLR0917  (click passes them by name)
    settings: CommandSettings,
    role: str,
    user: str | None,
    password_file: TextIOWrapper | None,
    topics: tuple[str, ...],
    gateway: bool,  # noqa: FBT001
    as_file: bool,  # noqa: FBT001
) -> None:
    """Print the access rules of a server's user by its role: publisher, worker, gateway and others.

    `server` is no role of an instance: it loads server functions (`ampsq functions load`), which no other may.

    No server is asked: the rules are what the role's scripts and commands are made of. Scripts see all keys of their
    instance, so a role bounds what a user can do to the server and to other instances; what users may do with a single
    queue is bounded by `ampsq gateway`. With partitions= in the address the rules are of all partitions, and each
    server of a cluster needs them.
    """
    from ampsq.operations.roles import rules, server_rules

    password = password_file.readline().rstrip("\r\n") if password_file is not None else None
    if role == _SERVER and (topics or gateway):
        raise click.UsageError("--topic and --gateway go with roles of an instance, and not with server")
    if role == _SERVER:
        found = server_rules(user, password)
    else:
        found = rules(
            role, settings.instance or "ampsq", user=user, password=password, topics=topics, gateway=gateway,
            partitions=settings.partitions,
        )  # fmt: skip
    line = found.file_line() if as_file else f"ACL SETUSER {found.user} {' '.join(found.words())}"
    record = {
        "role": role,
        "user": found.user,
        "keys": list(found.keys),
        "channels": list(found.channels),
        "commands": [name.lower() for name in found.commands],
        "rule": line,
    }
    if not print_records(settings, [record]):
        print(line)
    if not found.password:
        note(f"{found.user} cannot log in yet: --password-file gives a password")
