"""What is wrong with the server, its clock, the way to it and the coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ampsq.doctor.look import Finding
from ampsq.written import size_text, span_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampsq.doctor.look import Glance, Look

__all__ = ["clock", "coordinator", "keepers", "latency", "memory", "persistence", "version"]

#: Milliseconds by which clocks may differ, and which a round trip may take.
_APART: Final = 2_000
_FAR: Final = 20.0
#: The share of its memory that a server may use.
_FULL: Final = 0.9
#: Milliseconds for which something due may wait where a coordinator is at work.
_LATE: Final = 2_000
_NEEDED: Final = "so lapsed leases, delays, expirations, dead letters, views and actions wait"
_START: Final = "ampsq coordinator"


def version(_before: Glance, now: Look) -> Iterator[Finding]:
    """Kind and version; one that is too old refuses before."""
    kind = "valkey" if "valkey_version" in now.server else "redis"
    yield Finding(
        "version", "server", well=True, text=f"{kind} {now.server.get(f'{kind}_version', 'of an unknown version')}"
    )


def persistence(_before: Glance, now: Look) -> Iterator[Finding]:
    """What a crash takes back."""
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


def _unsafe(now: Look) -> Iterator[Finding]:
    def wrong(text: str, why: str, mend: str) -> Finding:
        return Finding("persistence", "server", well=False, text=text, why=why, mend=mend)

    if now.server.get("aof_enabled") != "1":
        why = "a restart of the server loses messages"
        yield wrong("there is no append-only file", why, "redis-cli CONFIG SET appendonly yes")
    elif now.settings.get("appendfsync") == "no":
        why = "a crash of the machine takes back half a minute and more"
        yield wrong("the append-only file is never flushed", why, "redis-cli CONFIG SET appendfsync everysec")
    if now.settings.get("no-appendfsync-on-rewrite") == "yes":
        why = "a crash of the machine at that time takes back half a minute and more, whatever appendfsync is"
        mend = "redis-cli CONFIG SET no-appendfsync-on-rewrite no"
        yield wrong("the append-only file is not flushed while it is rewritten", why, mend)
    if now.server.get("aof_last_write_status", "ok") != "ok":
        why = "the server refuses to record anything"
        yield wrong("the append-only file could not be written", why, "df -h    # its disk is full, or broken")


def memory(_before: Glance, now: Look) -> Iterator[Finding]:
    """What happens when memory is full, and how soon it is."""

    def told(text: str, why: str = "", mend: str = "") -> Finding:
        return Finding("memory", "server", well=not why, text=text, why=why, mend=mend)

    policy = now.server.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        why = "a full server would delete queues"
        yield told(f"the eviction policy is {policy}", why, "redis-cli CONFIG SET maxmemory-policy noeviction")
    used, most = int(now.server.get("used_memory", 0)), int(now.server.get("maxmemory", 0))
    most = most or int(now.server.get("total_system_memory", 0))
    if most and used > most * _FULL:
        why = "when it is full, nothing can be published"
        yield told(
            f"{size_text(used)} of {size_text(most)} are used", why, "ampsq topics    # and ampsq trim TOPIC --age AGE"
        )
    elif policy == "noeviction":
        yield told(
            f"{size_text(used)} of {size_text(most)} are used; nothing is evicted" if most else "nothing is evicted"
        )


def clock(_before: Glance, now: Look) -> Iterator[Finding]:
    """The server's clock beside ours, and beside what it was."""
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


def latency(_before: Glance, now: Look) -> Iterator[Finding]:
    """What a round trip takes."""
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


def coordinator(before: Glance, now: Look) -> Iterator[Finding]:
    """Whether one runs, and does in time what is due."""
    if not now.seen.sign or now.seen.sign == before.sign:
        text = "no coordinator is at work" if now.seen.sign else "no coordinator was ever at work"
        yield Finding("coordinator", "coordinator", well=False, text=text, why=_NEEDED, mend=_START)
        return
    oldest = max((now.now - at for at in now.late.values()), default=0)
    if oldest > _LATE:
        text = f"what is due waits for {span_text(oldest)}, and a coordinator is at work"
        mend = "ampsq coordinator    # a second one; and look at the server's load: redis-cli --stat"
        yield Finding("coordinator", "coordinator", well=False, text=text, why=_NEEDED, mend=mend)
    else:
        yield Finding("coordinator", "coordinator", well=True, text="at work, and nothing that is due waits for it")


def keepers(before: Glance, now: Look) -> Iterator[Finding]:
    """Whether somebody keeps the views: each has one coordinator, which says so every few seconds."""
    is_attended = bool(now.seen.sign) and now.seen.sign != before.sign
    # Links and actions have keepers, too: theirs have signs that names of views do not.
    for view in sorted(name for name in now.keepers if not {" ", ":"} & set(name)):
        subject, away = f"view {view}", now.now - now.keepers[view]
        if not is_attended or away > _LATE:
            text = f"nobody has kept it up to date for {span_text(max(away, 0))}"
            why = "its rows are old, and queues over it get none"
            yield Finding("views", subject, well=False, text=text, why=why, mend=_START)
        else:
            yield Finding("views", subject, well=True, text="is kept up to date")
