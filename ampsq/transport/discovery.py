"""Discovery of the server of an instance: Sentinels and cluster nodes are asked for it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, NotRequired, TypeAlias, TypedDict

import redis
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.retry import Retry
from redis.sentinel import Sentinel

from ampsq.base.addresses import Endpoint, parse_endpoints, redacted
from ampsq.base.errors import AuthenticationFailed, PrimaryUnknown, Unavailable
from ampsq.protocol.reads.greeting import ASK_SLOTS
from ampsq.transport.errors import translate_connect_error

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redis.maint_notifications import MaintNotificationsConfig
    from redis.retry import AbstractRetry

    from ampsq.base.errors import AmpsqError

__all__ = [
    "RedisOptions",
    "addresses_of",
    "ask_cluster",
    "ask_sentinels",
    "options_of",
    "primaries_by_slot",
    "primaries_of",
    "slot_of",
]

#: A node as ``CLUSTER SLOTS`` tells it: host, port and more.
_Node: TypeAlias = "tuple[bytes | None, int, *tuple[object, ...]]"
#: The first and the last of a run of slots, their primary and its replicas.
_Slots: TypeAlias = "tuple[int, int, _Node, *tuple[_Node, ...]]"
#: Whether redis-py has one option for what it is, or one each for its name and version, as before its version 7.1.
_NAMES_ITS_DRIVER: Final = hasattr(redis, "DriverInfo")
_NO_CLUSTER: Final = "cluster support disabled"


class RedisOptions(TypedDict):
    """Options of redis-py's for a connection, and for a pool of them."""

    socket_timeout: float | None
    socket_connect_timeout: float
    protocol: int
    retry: AbstractRetry[Exception]
    max_connections: NotRequired[int]
    socket_keepalive: NotRequired[bool]
    socket_keepalive_options: NotRequired[dict[int, int]]
    driver_info: NotRequired[None]
    lib_name: NotRequired[None]
    lib_version: NotRequired[None]
    maint_notifications_config: NotRequired[MaintNotificationsConfig]


def options_of(seconds: float) -> RedisOptions:
    """Return the options of every connection: deadlines, and no retries by redis-py, which would run a script twice."""
    options: RedisOptions = {
        "socket_timeout": seconds,
        "socket_connect_timeout": seconds,
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
    }
    # Of each connection redis-py would tell the server its name and version: two round trips, and for the version it
    # parses the metadata of its package each time, a quarter of what opening a client costs.
    if _NAMES_ITS_DRIVER:
        options["driver_info"] = None
    else:
        options["lib_name"] = options["lib_version"] = None
    return options


def slot_of(instance: str) -> int:
    """The slot of a cluster in which all keys of an instance are."""
    return int(key_slot(("{" + instance + "}").encode()))


def ask_sentinels(endpoint: Endpoint, seconds: float) -> str:
    """The address of the primary that the Sentinels name.

    Raises:
        PrimaryUnknown: none of them names one. AuthenticationFailed: they want another name or password.
    """
    parsed = redis.connection.parse_url(endpoint.at(*endpoint.hosts[0]))
    tls = {name: value for name, value in parsed.items() if name.startswith("ssl_")}
    if issubclass(parsed.get("connection_class", redis.Connection), redis.SSLConnection):
        tls["ssl"] = True
    sentinel = Sentinel(endpoint.hosts, sentinel_kwargs={**options_of(seconds), **dict(endpoint.asking), **tls})
    failures: list[str] = []
    kinds: set[type[AmpsqError]] = set()
    try:
        for client, (host, port) in zip(sentinel.sentinels, endpoint.hosts, strict=True):
            try:
                masters = client.sentinel_masters()
                # A list comes with another protocol than the options name.
                state = masters.get(endpoint.service) if isinstance(masters, dict) else None
            except (redis.RedisError, OSError) as error:
                ours = translate_connect_error(error, f"{host}:{port}")
                kinds.add(type(ours))
                failures.append(str(ours))
                continue
            if state and sentinel.check_master_state(state, endpoint.service):
                return endpoint.at(str(state["ip"]), int(state["port"]))
            kinds.add(PrimaryUnknown)
            failures.append(f"{host}:{port} " + ("says that it is down" if state else "does not know it"))
    finally:
        for client in sentinel.sentinels:
            with contextlib.suppress(redis.RedisError, OSError):
                client.close()
    text = f"{endpoint}: the Sentinels name no primary {endpoint.service!r} that is up: {'; '.join(failures)}"
    if kinds == {AuthenticationFailed}:
        raise AuthenticationFailed(f"{text}; their own password is ?sentinel_password=...")
    raise PrimaryUnknown(f"{text}; wait for the failover, or correct the name of the service")


def ask_cluster(
    endpoint: Endpoint, hosts: Iterable[tuple[str, int]], slot: int, seconds: float
) -> tuple[str, list[tuple[str, int]]]:
    """The address of the primary that serves a slot, and all nodes that were named.

    Args:
        endpoint: whose credentials and options to use.
        hosts: the nodes to ask, one after the other, until one names it.
        slot: the instance's.
        seconds: for each step.

    Raises:
        PrimaryUnknown: no node names one. Unavailable: no node answers; the cause of the first.
    """
    failures: list[Unavailable] = []
    for host, port in hosts:
        try:
            reply = _slots(endpoint.at(host, port), seconds)
        except Unavailable as error:
            failures.append(error)
            continue
        nodes = [(_name(node[0]) or host, int(node[1])) for part in reply for node in part[2:]]
        for first, last, primary, *_ in reply:
            if first <= slot <= last:
                return endpoint.at(_name(primary[0]) or host, int(primary[1])), nodes
        failures.append(PrimaryUnknown(f"{endpoint}: no node serves slot {slot} now"))
    kind = type(failures[0]) if len({type(error) for error in failures}) == 1 else PrimaryUnknown
    raise kind("; ".join(map(str, failures)))


def primaries_of(url: str, seconds: float) -> list[str]:
    """The addresses of all primaries of the cluster that a server is a node of; of one without a cluster its own.

    Args:
        url: of the server.
        seconds: for each step.

    Raises:
        Unavailable: it does not answer.
    """
    try:
        return list(dict.fromkeys(primary for _, _, primary in primaries_by_slot(url, seconds)))
    except PrimaryUnknown:
        return [url]


def primaries_by_slot(url: str, seconds: float) -> list[tuple[int, int, str]]:
    """The first and the last slot of each run, and the address of the primary that serves it, as a node has it.

    Args:
        url: of the node.
        seconds: for each step.

    Raises:
        Unavailable: it does not answer. PrimaryUnknown: it is no node of a cluster.
    """
    parts = _slots(url, seconds)
    here = redis.connection.parse_url(url)
    host = str(here.get("host", "localhost"))
    cluster = Endpoint.parse(url).of_cluster(((host, int(here.get("port", 6379))),))
    return [(first, last, cluster.at(_name(primary[0]) or host, int(primary[1]))) for first, last, primary, *_ in parts]


def addresses_of(url: str) -> list[str]:
    """The addresses of the servers that an address names, with its credentials and options; none of Sentinels."""
    found: list[str] = []
    for endpoint in parse_endpoints(url):
        if endpoint.kind == "server":
            found.append(endpoint.text)
        elif endpoint.kind == "cluster":
            found += [endpoint.at(*host) for host in endpoint.hosts]
    return found


def _name(host: bytes | None) -> str:
    return "" if host in (None, b"", b"?") else host.decode()


def _slots(url: str, seconds: float) -> list[_Slots]:
    client = redis.Redis.from_url(url, **options_of(seconds))
    connection = None
    try:
        connection = client.connection_pool.get_connection()
        connection.send_command(*ASK_SLOTS)
        return list(connection.read_response())
    except (redis.RedisError, OSError) as error:
        if _NO_CLUSTER in str(error):
            raise PrimaryUnknown(
                f"{redacted(url)}: this server is no cluster's: write redis:// instead of cluster://"
            ) from error
        raise translate_connect_error(error, url) from error
    finally:
        if connection is not None:
            connection.disconnect()
        client.close()
