"""What kind of server this is, whether it can be trusted with messages, and what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ampsq.errors import AmpsqError, ServerUnsuitable
from ampsq.flow import Call, Flow, command

__all__ = ["Server", "configuration", "examine", "information"]


@dataclass(frozen=True, slots=True)
class Server:
    """A server as it was at connect.

    Attributes:
        kind: ``redis`` or ``valkey``.
        version: the server's own version.
        process_id: of the server, as it says.
        never_forgets: what it has answered survives a crash of the machine: an append-only file, flushed at
            every command. Only then can at-most-once be promised.
        appends: it has an append-only file.
        appendfsync: when it flushes that: ``always``, ``everysec`` (also where nobody may ask), or ``no``.
        pauses_for_saving: it does not flush while it rewrites that file, or may not.
        notes: what is badly configured, each a sentence that says what to do; empty when all is well.
    """

    kind: str
    version: str
    process_id: int
    never_forgets: bool
    appends: bool
    appendfsync: str
    pauses_for_saving: bool
    notes: tuple[str, ...]


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _sections(text: bytes) -> dict[str, str]:
    lines = text.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def _settings(reply: Any) -> dict[str, str]:
    flat = [part.decode() for part in reply]
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _refuse_old(kind: str, version: str) -> None:
    least = (8, 0) if kind == "valkey" else (7, 0)
    if _number(version) < least:
        raise ServerUnsuitable(f"{kind} {version} is too old; allowed: Redis 7.0 or newer, Valkey 8.0 or newer")


def _judge(info: dict[str, str], settings: dict[str, str]) -> list[str]:
    notes = []
    policy = info.get("maxmemory_policy", settings.get("maxmemory-policy", "noeviction"))
    if policy != "noeviction":
        text = f"maxmemory-policy is {policy}: a full server would delete queues; set it to noeviction"
        if int(info.get("maxmemory", "0")) > 0:
            raise ServerUnsuitable(text)
        notes.append(text)
    if info.get("aof_enabled") != "1":
        notes.append(
            "no append-only file: a restart loses messages; set appendonly yes "
            "(appendfsync always for at-most-once queues)"
        )
    if not settings:
        notes.append("CONFIG is not allowed here: appendfsync is unknown and taken as everysec")
    return notes


def information() -> Call[dict[str, str]]:
    """Read what the server says of itself, ``INFO``."""
    return command(["INFO"], _sections)


def configuration() -> Call[dict[str, str]]:
    """Read how it flushes its append-only file; refused with an `AmpsqError` where nobody may ask."""
    return command(["CONFIG", "GET", "appendfsync", "no-appendfsync-on-rewrite"], _settings)


def examine() -> Flow[Server]:
    """Look at the server.

    Raises:
        ServerUnsuitable: it is too old, or evicts keys when its memory is full.
    """
    facts = yield information()
    try:
        settings = yield configuration()
    except AmpsqError:
        settings = {}
    kind = "valkey" if "valkey_version" in facts else "redis"
    version = facts.get(f"{kind}_version", "0")
    _refuse_old(kind, version)
    notes = _judge(facts, settings)
    appends = facts.get("aof_enabled") == "1"
    return Server(
        kind,
        version,
        int(facts.get("process_id", "0")),
        never_forgets=appends and settings.get("appendfsync") == "always",
        appends=appends,
        appendfsync=settings.get("appendfsync", "everysec"),
        pauses_for_saving=settings.get("no-appendfsync-on-rewrite") != "no",
        notes=tuple(notes),
    )
