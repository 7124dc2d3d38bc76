"""Faults of the server: whether it can serve at all, and how; its clock, and the way to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ampsq.base.formatting import size_text, span_text
from ampsq.operations.doctor.instance_facts import Finding
from ampsq.protocol.functions import HOT, are_used, library_name
from ampsq.protocol.reads.server import is_too_old

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ampsq.operations.doctor.server_facts import ServerFacts

__all__ = ["SERVER_RULES"]

#: Milliseconds by which clocks may differ, and which a round trip may take.
_APART: Final = 2_000
_FAR: Final = 20.0
#: The share of its memory that a server may use.
_FULL: Final = 0.9
#: Milliseconds for which a client repeats a call by default, and within which a cluster should take a node for lost,
#: since its replica has to be elected and found, too.
_RETRY_TIMEOUT: Final = 15_000
_NODE_TIMEOUT: Final = 10_000
#: Of server functions.
_STATES: Final = ("here", "missing", "replaced", "other")


def version(now: ServerFacts) -> Iterator[Finding]:
    """Kind and version, and whether we can use it."""
    if not now.kind:
        return
    text = f"{now.kind} {now.version}"
    if is_too_old(now.kind, now.version):
        why = "scripts need what it does not have: nothing works there, and what is on it was not looked at"
        mend = "install Redis 7.0 or newer, or Valkey 8.0 or newer"
        yield Finding("version", "server", well=False, text=f"{text} is too old", why=why, mend=mend)
    else:
        yield Finding("version", "server", well=True, text=text)


def role(now: ServerFacts) -> Iterator[Finding]:
    """Check that it takes changes: it is no replica, and no Sentinel."""
    if now.mode == "sentinel":
        why, mend = "it has no data; it tells where those are", "--url sentinel://HOST:PORT/SERVICE"
        yield Finding("role", "server", well=False, text="it is a Sentinel", why=why, mend=mend)
    elif now.info.get("role") == "slave":
        primary = f"{now.info.get('master_host', '?')}:{now.info.get('master_port', '?')}"
        lost = ", to which it has no connection" if now.info.get("master_link_status") == "down" else ""
        why = "it takes no changes: nothing can be published, delivered or acknowledged here"
        mend = f"--url redis://{primary}    # the primary; or all addresses in one list, Sentinel or cluster"
        yield Finding("role", "server", well=False, text=f"it is a replica of {primary}{lost}", why=why, mend=mend)


def loading(now: ServerFacts) -> Iterator[Finding]:
    """Check whether it still reads its data."""
    if now.is_loading:
        text = f"it loads its data, {float(now.info.get('loading_loaded_perc') or 0):.0f}% are there"
        why = "until it has all, it answers nothing, and what is on it was not looked at"
        seconds = int(now.info.get("loading_eta_seconds") or 0)
        mend = f"ampsq doctor    # again, in about {span_text(max(seconds, 1) * 1000)}"
        yield Finding("loading", "server", well=False, text=text, why=why, mend=mend)


def rights(now: ServerFacts) -> Iterator[Finding]:
    """Find what this user may not ask of the server."""
    if now.refused:
        text = f"this user may not use {' and '.join(now.refused)}"
        why = "what the server is, how it keeps data and how far it is cannot be told"
        yield Finding("rights", "server", well=False, text=text, why=why, mend=now.rules)


def persistence(now: ServerFacts) -> Iterator[Finding]:
    """Tell what a crash takes back."""
    if not now.kind:
        return
    wrong = list(_unsafe(now))
    yield from wrong
    if not wrong:
        flushed = now.settings.get("appendfsync")
        words = {
            "always": "append-only file, flushed at every command",
            "everysec": "append-only file, flushed each second: a crash of the machine takes back about two seconds",
        }
        unknown = "append-only file; when it is flushed may not be asked here (CONFIG), and is taken as each second"
        yield Finding("persistence", "server", well=True, text=words.get(flushed or "", unknown))


def _unsafe(now: ServerFacts) -> Iterator[Finding]:
    def wrong(text: str, why: str, mend: str) -> Finding:
        return Finding("persistence", "server", well=False, text=text, why=why, mend=mend)

    if now.info.get("aof_enabled") != "1":
        why = "a restart of the server loses messages"
        yield wrong("there is no append-only file", why, "redis-cli CONFIG SET appendonly yes")
    elif now.settings.get("appendfsync") == "no":
        why = "a crash of the machine takes back half a minute and more"
        yield wrong("the append-only file is never flushed", why, "redis-cli CONFIG SET appendfsync everysec")
    if now.settings.get("no-appendfsync-on-rewrite") == "yes":
        why = "a crash of the machine at that time takes back half a minute and more, whatever appendfsync is"
        mend = "redis-cli CONFIG SET no-appendfsync-on-rewrite no"
        yield wrong("the append-only file is not flushed while it is rewritten", why, mend)
    if now.info.get("aof_last_write_status", "ok") != "ok":
        why = "the server refuses to record anything"
        yield wrong("the append-only file could not be written", why, "df -h    # its disk is full, or broken")


def memory(now: ServerFacts) -> Iterator[Finding]:
    """Tell what happens when memory is full, and how soon it is."""

    def told(text: str, why: str = "", mend: str = "") -> Finding:
        return Finding("memory", "server", well=not why, text=text, why=why, mend=mend)

    if not now.kind:
        return
    policy = now.info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        why = "a full server would delete queues"
        yield told(f"the eviction policy is {policy}", why, "redis-cli CONFIG SET maxmemory-policy noeviction")
    used, most = now.used
    most = most or int(now.info.get("total_system_memory", 0))
    if most and used > most * _FULL:
        why = "nothing can be published" if now.is_full else "when it is full, nothing can be published"
        yield told(
            f"{size_text(used)} of {size_text(most)} are used", why, "ampsq topics    # and ampsq trim TOPIC --age AGE"
        )
    elif policy == "noeviction":
        yield told(
            f"{size_text(used)} of {size_text(most)} are used; nothing is evicted" if most else "nothing is evicted"
        )


def cluster(now: ServerFacts) -> Iterator[Finding]:
    """Check whether a cluster goes on in time when it loses one of its primaries."""
    if now.mode != "cluster" or "cluster-node-timeout" not in now.settings:
        return

    def told(text: str, why: str = "", mend: str = "") -> Finding:
        return Finding("cluster", "server", well=not why, text=text, why=why, mend=mend)

    is_whole = now.settings.get("cluster-require-full-coverage") == "yes"
    waits = int(now.settings["cluster-node-timeout"])
    if is_whole:
        why = "while one primary is lost, no instance on any node can be used, not only those in its slots"
        mend = "redis-cli CONFIG SET cluster-require-full-coverage no    # at each node, and in its file"
        yield told("cluster-require-full-coverage is yes", why, mend)
    if waits > _NODE_TIMEOUT:
        why = (
            "a lost primary is replaced after this time and about 2 s more; clients repeat a call for "
            f"{span_text(_RETRY_TIMEOUT)} (retry_timeout), and then it fails"
        )
        mend = "redis-cli CONFIG SET cluster-node-timeout 5000    # at each node, and in its file"
        yield told(f"cluster-node-timeout is {span_text(waits)}", why, mend)
    if not is_whole and waits <= _NODE_TIMEOUT:
        yield told(f"a node of a cluster, which replaces a lost primary after {span_text(waits)}")


def clock(now: ServerFacts) -> Iterator[Finding]:
    """The server's clock beside ours, and beside what it was."""
    if not now.now:
        return
    apart = int(now.ahead)
    if abs(apart) > _APART:
        way = "before" if apart > 0 else "behind"
        why = "leases and times of messages go by the server's clock; times that are given here mean others"
        text = f"the server's clock is {span_text(abs(apart))} {way} the clock of this machine"
        yield Finding("clock", "server", well=False, text=text, why=why, mend="timedatectl    # at both machines")
    back = now.clock - now.now
    if back > _APART:
        why = "until it is there again, ages, delays and leases are wrong by as much"
        text = f"the server's clock is {span_text(back)} behind the last message that it recorded"
        yield Finding("clock", "server", well=False, text=text, why=why, mend="timedatectl    # at the server")
    if max(abs(apart), back) <= _APART:
        text = f"within {span_text(max(abs(apart), 1))} of the clock of this machine"
        yield Finding("clock", "server", well=True, text=text)


def latency(now: ServerFacts) -> Iterator[Finding]:
    """Measure the time of a round trip."""
    if not now.now:
        return
    text = f"a round trip takes {now.latency:.2f} ms"
    if now.latency > _FAR:
        why = "each call waits for one: a worker that acknowledges one message after the other handles few a second"
        yield Finding(
            "latency",
            "server",
            well=False,
            text=text,
            why=why,
            mend="redis-cli --intrinsic-latency 5    # at the server",
        )
    else:
        yield Finding("latency", "server", well=True, text=text)


def functions(now: ServerFacts) -> Iterator[Finding]:
    """Check that the server functions are ours, and there where this process would call them."""

    def told(text: str, why: str = "", mend: str = "") -> Finding:
        return Finding("functions", "server", well=not why, text=text, why=why, mend=mend)

    names = {state: [each.name for each in now.functions if each.state == state] for state in _STATES}
    if names["replaced"]:
        why = "a user with FUNCTION LOAD put it there, and it runs with the rights of every user that calls it"
        text = f"the library {library_name()} has another text than this release's"
        yield told(text, why, "redis-cli ACL LIST    # then ampsq functions load")
    if names["missing"] and now.functions and are_used():
        # Nothing fails for it, and a coordinator loads them by itself where it may.
        text = f"{len(names['missing'])} of {len(HOT)} server functions are missing"
        yield told(f"{text}: scripts are sent in their place, which cost the server more (ampsq functions load)")
    if names["other"] and names["here"]:
        text = f"{len(names['here'])} server functions, and {len(names['other'])} of other releases"
        yield told(f"{text} (ampsq functions remove)")
    elif names["here"]:
        yield told(f"{len(names['here'])} server functions")


#: All of them, in the order of the report.
SERVER_RULES: Final[Sequence[Callable[[ServerFacts], Iterator[Finding]]]] = (
    version, role, loading, rights, persistence, memory, cluster, functions, clock, latency,
)  # fmt: skip
