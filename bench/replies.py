"""Replies of redis-py as they are: it says of them no more than that they are some."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, TypedDict, cast

if TYPE_CHECKING:
    import redis

__all__ = [
    "SlowCall",
    "StreamEntry",
    "command_calls",
    "command_times",
    "entries",
    "entries_of_one",
    "info",
    "settings",
    "slow_calls",
]

#: An entry of a stream: its ID, and its fields.
StreamEntry: TypeAlias = "tuple[bytes, dict[bytes, bytes]]"


class SlowCall(TypedDict):
    """A call that the server's log of slow ones has."""

    duration: int
    command: bytes


def entries(reply: object) -> list[StreamEntry]:
    """Return the entries of `XRANGE` and `XREVRANGE`."""
    return cast("list[StreamEntry]", reply)


def entries_of_one(reply: object) -> list[StreamEntry]:
    """Return the entries of `XREAD` and `XREADGROUP` of one stream, which gave some."""
    return cast("list[tuple[bytes, list[StreamEntry]]]", reply)[0][1]


def info(server: redis.Redis, section: str) -> dict[str, float]:
    """The figures of a section of `INFO` that has nothing but numbers."""
    return cast("dict[str, float]", server.info(section))


def command_times(server: redis.Redis) -> dict[str, float]:
    """Microseconds that the server has spent in each command; the names are those of `INFO`, as ``cmdstat_xread``."""
    found = cast("dict[str, dict[str, float]]", server.info("commandstats"))
    return {name: each["usec"] for name, each in found.items()}


def command_calls(server: redis.Redis) -> dict[str, int]:
    """Return how often the server has run each command; the names are those of `INFO`, as ``cmdstat_xread``."""
    found = cast("dict[str, dict[str, int]]", server.info("commandstats"))
    return {name: each["calls"] for name, each in found.items()}


def settings(server: redis.Redis, pattern: str) -> dict[str, str]:
    """Return the reply of `CONFIG GET`."""
    return cast("dict[str, str]", server.config_get(pattern))


def slow_calls(server: redis.Redis, number: int) -> list[SlowCall]:
    """Return the reply of `SLOWLOG GET`."""
    return cast("list[SlowCall]", server.slowlog_get(number))
