"""The facts by which coordinators choose their duties: what is due, who keeps what, which rebuilds are under way."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ampsq.protocol.replies import pairs, texts
from ampsq.protocol.request import command
from ampsq.protocol.schema import key

if TYPE_CHECKING:
    from ampsq.protocol.request import Call

__all__ = ["AllLogsScan", "LogScan", "due_until", "duty_keepers", "rebuilds", "scan_all_logs", "scan_logs"]


class LogScan(NamedTuple):
    """A step through the names of all keys of a server.

    Attributes:
        next: where the next step begins; "0": there is none.
        topics: those of the logs that were found, of whatever names.
    """

    next: str
    topics: set[str]


def due_until(instance: str, until: int, most: int) -> Call[dict[str, int]]:
    """Read what is due up to a moment, ms, the first entries: ``<kind> <name> ...`` -> since when, ms."""
    return command(
        ["ZRANGE", key(instance, "due"), "-inf", until, "BYSCORE", "LIMIT", 0, most, "WITHSCORES"],
        lambda reply: {member.decode(): int(float(at)) for member, at in pairs(reply)},
    )


def duty_keepers(instance: str) -> Call[dict[str, int]]:
    """Read until when, ms, a coordinator has promised to keep each view, link and action with effects outside."""
    return command(
        ["HGETALL", key(instance, "keepers")],
        lambda reply: {name: int(text.split(" ")[-1]) for name, text in texts(reply).items()},
    )


def rebuilds(instance: str) -> Call[dict[str, float]]:
    """Read the queues that are being rebuilt, and when, ms, somebody else may begin each anew."""
    return command(
        ["ZRANGE", key(instance, "rebuilding"), 0, -1, "WITHSCORES"],
        lambda reply: {name.decode(): float(at) for name, at in pairs(reply)},
    )


def scan_logs(instance: str, cursor: str, count: int) -> Call[LogScan]:
    """Look for logs among about so many of the server's keys; `cursor`: the `next` of the step before, "0" at first."""
    prefix = key(instance, "log", "")

    def read(reply: tuple[bytes, list[bytes]]) -> LogScan:
        return LogScan(reply[0].decode(), {name.decode(errors="replace").removeprefix(prefix) for name in reply[1]})

    return command(["SCAN", cursor, "MATCH", _escaped(prefix) + "*", "COUNT", count, "TYPE", "stream"], read)


class AllLogsScan(NamedTuple):
    """A step through the names of all keys of a server, for the logs of all its instances.

    Attributes:
        next: where the next step begins; "0": there is none.
        logs: the instance and the topic of each that was found.
    """

    next: str
    logs: list[tuple[str, str]]


def scan_all_logs(cursor: str, count: int) -> Call[AllLogsScan]:
    """Look for logs among about so many of the server's keys; `cursor`: the `next` of the step before, "0" at first."""
    middle = key("", "log", "").removeprefix("{}")

    def read(reply: tuple[bytes, list[bytes]]) -> AllLogsScan:
        logs = []
        for name in reply[1]:
            tag, is_one, topic = name.decode(errors="replace").removeprefix("{").partition("}" + middle)
            if is_one:
                logs.append((tag, topic))
        return AllLogsScan(reply[0].decode(), logs)

    return command(["SCAN", cursor, "MATCH", "{*}" + middle + "*", "COUNT", count, "TYPE", "stream"], read)


def _escaped(text: str) -> str:
    """Protect what SCAN's patterns give a meaning to."""
    return "".join(f"\\{letter}" if letter in "*?[]\\" else letter for letter in text)
