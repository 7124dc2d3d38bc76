"""Addresses of servers: what one may look like, which hosts it names, and its form without passwords for people.

    redis://[user:password@]HOST[:PORT][/DB][?option=...]          rediss://... with TLS, unix:///PATH
    sentinel://[user:password@]HOST[:PORT][,HOST...]/SERVICE[/DB][?sentinel_password=...]
    cluster://[user:password@]HOST[:PORT][,HOST...]                a few nodes of a cluster; it tells the others

`sentinel+tls://` and `cluster+tls://` are the same with TLS. Several addresses are a list, or one text with commas.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from inspect import signature
from typing import TYPE_CHECKING, Final, Literal, Self
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import redis

from ampsq.base.errors import DefinitionError
from ampsq.base.suggestions import nearest_names

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = ["Endpoint", "is_host_of", "join_addresses", "parse_endpoints", "redacted"]

_ALLOWED: Final = (
    "allowed are redis://HOST:PORT/DB, rediss://..., unix:///PATH, sentinel://HOST:PORT,HOST:PORT/SERVICE and "
    "cluster://HOST:PORT,HOST:PORT, or several of them with commas between"
)
#: Only a comma that a scheme follows ends an address: hosts of one address have commas between them too.
_BETWEEN: Final = re.compile(r"\s*,\s*(?=[a-z+]+://)")
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\[\]:@/]+)(?::(\d{1,5}))?")
_PLAIN: Final = ("redis://", "rediss://", "unix://")
_KINDS: Final[Mapping[str, tuple[Literal["sentinel", "cluster"], str, int]]] = {
    "sentinel": ("sentinel", "redis", 26379),
    "sentinel+tls": ("sentinel", "rediss", 26379),
    "cluster": ("cluster", "redis", 6379),
    "cluster+tls": ("cluster", "rediss", 6379),
}


def is_host_of(names: Collection[str], header: str) -> bool:
    """Return whether a ``Host`` header names ``localhost``, an IP address, or one of these names.

    An address is no name, so nobody can have it point here.
    """
    try:
        name = urlsplit(f"//{header}").hostname or ""
        if name not in {"localhost", *(each.lower() for each in names)}:
            ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def redacted(url: str) -> str:
    """The addresses without their passwords, for texts that people and logs see."""
    if "//" not in url:
        # Not an address, but what stands in front of an @ may have been meant as one.
        url = re.sub(r"^([^@:,]*):.*@", r"\1:***@", url, flags=re.DOTALL)
    url = re.sub(r"(//[^/@:,]*):[^/]*?@(?=[^@]*(?:,[a-z+]+://|$))", r"\1:***@", url)
    return re.sub(r"((?:^|[?&])\w*password=)[^&,]*", r"\1***", url)


def join_addresses(url: str | Sequence[str]) -> str:
    """One text of an address or of several."""
    if isinstance(url, str):
        return url
    if not isinstance(url, Sequence) or not url or not all(isinstance(each, str) for each in url):
        raise DefinitionError(f"address {url!r}: allowed is a text or a list of texts; {_ALLOWED}")
    return ",".join(url)


def parse_endpoints(url: str | Sequence[str]) -> tuple[Endpoint, ...]:
    """Read an address or several.

    Raises:
        DefinitionError: one has another scheme, or cannot be read.
    """
    return tuple(Endpoint.parse(text) for text in _BETWEEN.split(join_addresses(url).strip()))


@dataclass(frozen=True, slots=True, repr=False)
class Endpoint:
    """One address.

    Attributes:
        text: as it was given.
        kind: ``server``, or who is asked for the server: ``sentinel``, ``cluster``.
        hosts: those who are asked.
        service: the Sentinel's name of the primary and its replicas.
        asking: the credentials of the Sentinels, where they have some.
    """

    text: str
    kind: Literal["server", "sentinel", "cluster"]
    hosts: tuple[tuple[str, int], ...] = ()
    service: str = ""
    asking: tuple[tuple[str, str], ...] = ()
    _template: tuple[str, str, str] = ("", "", "")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read one address; raises as `parse_endpoints` does."""
        try:
            scheme = text.split("://", 1)[0]
            if scheme in _KINDS and "://" in text:
                return cls._asked(text, scheme)
            _check_commas(text)
            _check_plain(text)
        except ValueError as error:
            is_known = text.startswith((*_PLAIN, *(f"{kind}://" for kind in _KINDS)))
            reason = str(error) if is_known else "it has no scheme that is known"
            raise DefinitionError(f"address {redacted(text)!r}: {reason}; {_ALLOWED}") from error
        return cls(text, "server")

    @classmethod
    def _asked(cls, text: str, scheme: str) -> Self:
        kind, plain, port = _KINDS[scheme]
        parts = urlsplit(text)
        user, _, hosts = parts.netloc.rpartition("@")
        query = dict(parse_qsl(parts.query))
        own = {name: query.pop(name) for name in list(query) if name.startswith("sentinel_")}
        service, _, database = parts.path.strip("/").partition("/")
        if kind == "cluster":
            service, database = "", service
        elif not service:
            raise ValueError("the name of the service is missing, as in sentinel://HOST:26379/mymaster")
        if kind == "cluster" and (own or database or query.pop("db", "0") != "0"):
            raise ValueError("a cluster has one database and no Sentinels")
        if unknown := own.keys() - {"sentinel_username", "sentinel_password"}:
            raise ValueError(f"unknown option {min(unknown)}; allowed: sentinel_username, sentinel_password")
        asking = tuple((name.removeprefix("sentinel_"), value) for name, value in own.items())
        template = (f"{plain}://{user}@" if user else f"{plain}://", database, urlencode(query))
        made = cls(text, kind, _hosts(hosts, port), unquote(service), asking, template)
        for host in made.hosts:
            _check_plain(made.at(*host))
        return made

    def at(self, host: str, port: int) -> str:
        """The address of a server that was told to us, with this one's credentials and options."""
        if self.kind == "server":
            parts = urlsplit(self.text)
            user = parts.netloc.rpartition("@")[0]
            return parts._replace(netloc=f"{user}@{_netloc(host, port)}" if user else _netloc(host, port)).geturl()
        before, database, query = self._template
        return f"{before}{_netloc(host, port)}/{database}{'?' + query if query else ''}"

    def of_cluster(self, hosts: tuple[tuple[str, int], ...]) -> Endpoint:
        """The same address, of a server that turned out to be a node of a cluster."""
        parts = urlsplit(self.text)
        user = parts.netloc.rpartition("@")[0]
        template = (f"{parts.scheme}://{user}@" if user else f"{parts.scheme}://", "", parts.query)
        return Endpoint(self.text, "cluster", hosts, "", (), template)

    def __str__(self) -> str:
        return redacted(self.text)

    def __repr__(self) -> str:
        return f"<Endpoint {self}>"


def _check_commas(text: str) -> None:
    if "," in urlsplit(text).netloc.rpartition("@")[2]:
        raise ValueError(
            "behind a comma comes another address, with its scheme, as in redis://one:6379,redis://two:6379; "
            "and none is empty"
        )


def _check_plain(url: str) -> None:
    """Raise `ValueError` for what redis-py cannot read, leaves out without a word, or cannot look up."""
    redis.connection.parse_url(url)
    parts = urlsplit(url)
    for name in dict(parse_qsl(parts.query, keep_blank_values=True)):
        _check_option(parts.scheme, name)
    database = unquote(parts.path).strip("/")
    if parts.scheme != "unix" and database and not database.isdecimal():
        raise ValueError(f"{database!r} is no number of a database, as in redis://HOST:6379/2")
    try:
        (parts.hostname or "").encode("idna")
    except UnicodeError as error:
        raise ValueError(f"{parts.hostname!r} is no name of a host") from error


def _check_option(scheme: str, name: str) -> None:
    if name == "partitions":
        raise ValueError(
            "partitions= is for Client, AsyncClient and commands; this takes the address without it, and "
            "works at one partition, by its name as instance"
        )
    if name not in _known_options(scheme):
        meant = nearest_names(name.lower(), {*_known_options(scheme), "partitions"})
        guess = f", did you mean {meant[0]!r}?" if meant else ""
        raise ValueError(
            f"unknown option {name!r}{guess}; allowed are those of redis-py for {scheme}://, as socket_timeout=5, and "
            "partitions=4"
        )


@cache
def _known_options(scheme: str) -> frozenset[str]:
    """Give the options that redis-py's connections of a scheme have: another one ends in a TypeError there."""
    kind = {"rediss": redis.SSLConnection, "unix": redis.UnixDomainSocketConnection}.get(scheme, redis.Connection)
    takers = [redis.ConnectionPool, *(each for each in kind.__mro__ if each is not object)]
    taken = {name for each in takers for name in signature(each).parameters}
    return frozenset(taken - {"self", "args", "kwargs", "connection_kwargs"})


def _netloc(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _hosts(text: str, port: int) -> tuple[tuple[str, int], ...]:
    found = []
    for each in text.split(","):
        match = _HOST.fullmatch(each.strip())
        if match is None or not 0 < int(match[2] or port) < 2**16:
            raise ValueError(f"{each!r} is no HOST:PORT")
        found.append((match[1].strip("[]"), int(match[2] or port)))
    return tuple(found)
