"""Kind of a server, whether it can be trusted with messages, and what is wrong with it."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.base.errors import NotPermitted, ScriptBug, ServerUnsuitable
from ampsq.protocol.reads.greeting import ASK_SLOTS
from ampsq.protocol.replies import texts
from ampsq.protocol.request import Call, Pause, command
from ampsq.protocol.schema import key
from ampsq.protocol.scripts import script

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ampsq.protocol.replies import RawHash

__all__ = [
    "ON_REWRITE",
    "FlushFacts",
    "Server",
    "ServerRun",
    "ask_role",
    "cluster_configuration",
    "configuration",
    "connected_replicas",
    "count_ended_connections",
    "count_keys",
    "examine",
    "examine_flushing",
    "flush_facts",
    "flush_note",
    "information",
    "is_cluster_node",
    "is_too_old",
    "kind_and_version",
    "load_script",
    "ping",
    "server_run",
    "wait_for_replicas",
    "write_marker",
]

#: The setting that lets a server not flush while it rewrites its append-only file.
ON_REWRITE: Final = "no-appendfsync-on-rewrite"
#: Seconds for which a coordinator's note is waited for, and between two looks: it is made each second.
_NOTED_WITHIN, _LOOK = 3.0, 0.1
#: Words of such a note.
_NOTE: Final = 4


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
        appendfsync: when it flushes that: ``always``, ``everysec`` (also where the server has no CONFIG), ``no``, or ""
            where this user may not ask and no coordinator has noted it since the server began.
        pauses_for_saving: it does not flush while it rewrites that file, or may not.
        notes: what is badly configured, each a sentence that says what to do; empty when all is well.
        instance: whose keys are on it.
    """

    kind: str
    version: str
    process_id: int
    never_forgets: bool
    appends: bool
    appendfsync: str
    pauses_for_saving: bool
    notes: tuple[str, ...]
    instance: str


@dataclass(frozen=True, slots=True)
class ServerRun:
    """One run of a server, from its start to its end.

    Attributes:
        id: unlike that of any other run.
        uptime: seconds since its start.
    """

    id: str
    uptime: int


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _sections(text: bytes) -> dict[str, str]:
    lines = text.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def _settings(reply: RawHash) -> dict[str, str]:
    return texts(reply)


def kind_and_version(info: Mapping[str, str]) -> tuple[str, str]:
    """Of what ``INFO`` says: ``redis`` or ``valkey``, and its own version."""
    kind = "valkey" if "valkey_version" in info else "redis"
    return kind, info.get(f"{kind}_version", "0")


def is_too_old(kind: str, version: str) -> bool:
    """Return whether the server lacks what our scripts need."""
    return _number(version) < ((8, 0) if kind == "valkey" else (7, 0))


def _refuse_old(kind: str, version: str) -> None:
    if is_too_old(kind, version):
        raise ServerUnsuitable(f"{kind} {version} is too old; allowed: Redis 7.0 or newer, Valkey 8.0 or newer")


def _check_flushing(info: dict[str, str], settings: dict[str, str]) -> list[str]:
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
    return notes


def information() -> Call[dict[str, str]]:
    """Read what the server says of itself, ``INFO``."""
    return command(["INFO"], _sections)


def is_cluster_node() -> Call[bool]:
    """Ask whether the server is a node of a cluster."""
    return command(["INFO", "cluster"], lambda reply: b"cluster_enabled:1" in bytes(reply))


def slots() -> Call[object]:
    """Ask a node of a cluster who serves which slots, for who compares the answer as it comes."""
    return command(ASK_SLOTS, lambda reply: reply)


def server_run() -> Call[ServerRun]:
    """Read since when the server runs."""
    return command(["INFO", "server"], _read_run)


def count_keys() -> Call[int]:
    """Count the keys of a server. Refused with `NotPermitted` where this user may not."""
    return command(["DBSIZE"], int)


def count_ended_connections() -> Call[int]:
    """Count the connections that have ended since the server began: where it is another number, some have since."""

    def read(reply: bytes) -> int:
        sections = _sections(reply)
        return int(sections["total_connections_received"]) - int(sections["connected_clients"])

    return command(["INFO", "clients", "stats"], read)


def _read_run(reply: bytes) -> ServerRun:
    facts = _sections(reply)
    return ServerRun(facts["run_id"], int(facts["uptime_in_seconds"]))


def configuration() -> Call[dict[str, str]]:
    """Read how it flushes its append-only file.

    Refused with `NotPermitted` where this user may not ask, with another `AmpsqError` where the server has no CONFIG.
    """
    return command(["CONFIG", "GET", "appendfsync", ON_REWRITE], _settings)


def cluster_configuration() -> Call[dict[str, str]]:
    """Read how a node of a cluster behaves when another one is lost. Refused as `configuration` is."""
    return command(["CONFIG", "GET", "cluster-require-full-coverage", "cluster-node-timeout"], _settings)


class FlushNote(NamedTuple):
    """A coordinator's note on the way a server flushes.

    Attributes:
        run: the ID of the server's process that it is about; "": nothing was noted.
        settings: of its configuration, name -> value.
        held_until: its clock was set back, and it flushes nothing until it shows this: seconds since 1970. 0: it was
            not.
    """

    run: str
    settings: dict[str, str]
    held_until: float


def flush_note(instance: str) -> Call[FlushNote]:
    """Read what a coordinator of an instance has noted."""
    return command(["GET", key(instance, "lasting")], _flush_note)


def _flush_note(reply: bytes | None) -> FlushNote:
    words = (reply or b"").decode().split()
    if len(words) != _NOTE:
        return FlushNote("", {}, 0.0)
    return FlushNote(words[0], dict(zip(("appendfsync", ON_REWRITE), words[1:3], strict=True)), int(words[3]) / 1000)


async def _flushing(instance: str, run: str) -> tuple[dict[str, str], list[str]]:
    """Return the settings by which the server flushes, and remarks on them."""
    try:
        return (await configuration()), []
    except NotPermitted:
        noted = await flush_note(instance)
    except ScriptBug:
        note = "this server has no CONFIG: how it flushes its append-only file is not known and taken as everysec"
        return {"appendfsync": "everysec"}, [note]
    if run and noted.run == run:
        return noted.settings, []
    note = (
        "CONFIG is not allowed here, and no coordinator has noted how the server flushes since it began: nothing is "
        "promised of its disk until one does"
    )
    return {}, [note]


async def examine(instance: str) -> Server:
    """Look at the server.

    Args:
        instance: whose coordinator has noted what this user may not ask.

    Raises:
        ServerUnsuitable: it is too old, or evicts keys when its memory is full. Unavailable: there is no answer.
    """
    facts = await information()
    settings, told = await _flushing(instance, facts.get("run_id", ""))
    kind, version = kind_and_version(facts)
    _refuse_old(kind, version)
    notes = _check_flushing(facts, settings) + told
    appends = facts.get("aof_enabled") == "1"
    return Server(
        kind,
        version,
        int(facts.get("process_id", "0")),
        never_forgets=appends and settings.get("appendfsync") == "always",
        appends=appends,
        appendfsync=settings.get("appendfsync", ""),
        pauses_for_saving=settings.get(ON_REWRITE) != "no",
        notes=tuple(notes),
        instance=instance,
    )


async def examine_flushing(instance: str) -> Server:
    """Look at the server, and wait a little for a coordinator to note how it flushes, where this user may not ask.

    Raises:
        ServerUnsuitable, Unavailable: as `examine`.
    """
    until = time.monotonic() + _NOTED_WITHIN
    while True:
        server = await examine(instance)
        if server.appendfsync or not server.appends or time.monotonic() >= until:
            return server
        await Pause(_LOOK)


def ask_role() -> Call[bool]:
    """Ask a server for its role, which it answers in nearly every state; only whether it answers counts."""
    return command(["ROLE"], bool)


def ping() -> Call[bool]:
    """Ask a server whether it is there."""
    return command(["PING"], bool)


class FlushFacts(NamedTuple):
    """A server's settings and state of writing to its disk.

    Attributes:
        is_flushing: a flush of its append-only file is under way.
        is_saving: another process of it writes a snapshot, or that file anew.
        is_well: its last write to the file succeeded.
        forks: how many such processes there have been.
        run: the ID of its process.
        time: by its clock, seconds since 1970; None where it does not say.
    """

    is_flushing: bool
    is_saving: bool
    is_well: bool
    forks: int
    run: str
    time: float | None


def flush_facts() -> Call[FlushFacts]:
    """Read what the server says of writing to its disk."""
    return command(["INFO", "persistence", "stats", "server"], _flush_facts)


#: Coordinators read these all day, and the reply has 140 lines.
_FLUSH_LINES: Final = re.compile(
    rb"^(aof_pending_bio_fsync|rdb_bgsave_in_progress|aof_rewrite_in_progress|aof_last_write_status|total_forks|run_id"
    rb"|server_time_usec):([^\r\n]*)",
    re.MULTILINE,
)


def _flush_facts(reply: bytes) -> FlushFacts:
    known = {name.decode(): value.decode(errors="replace") for name, value in _FLUSH_LINES.findall(reply)}
    return FlushFacts(
        is_flushing=known.get("aof_pending_bio_fsync", "0") != "0",
        is_saving="1" in (known.get("rdb_bgsave_in_progress"), known.get("aof_rewrite_in_progress")),
        is_well=known.get("aof_last_write_status") == "ok",
        forks=int(known.get("total_forks", "0")),
        run=known.get("run_id", ""),
        time=int(known["server_time_usec"]) / 1e6 if "server_time_usec" in known else None,
    )


def connected_replicas() -> Call[int]:
    """Count the replicas that are connected to the server."""
    return command(["INFO", "replication"], lambda reply: int(_sections(reply).get("connected_slaves", "0")))


def wait_for_replicas(number: int, period: int) -> Call[int]:
    """Wait, `period` ms at most, until so many replicas have what this connection wrote; gives how many have it."""
    return command(["WAIT", number, period], int, blocks=period / 1000)


def write_marker(instance: str) -> Call[bool]:
    """Write something behind what a connection has read, so that it can wait for replicas to have that."""
    return command(["SET", key(instance, "marker"), "1"], bool)


def load_script(name: str) -> Call[bool]:
    """Let the server know a script before it is sent as its hash."""
    return command(["SCRIPT", "LOAD", script(name).source], bool)
