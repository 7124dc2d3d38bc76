"""What each kind of client needs of a server's access control: its commands, keys and channels.

A script runs with the rights of whoever calls it, so a role's commands are those in the scripts that it runs, read from
the scripts themselves, and those that it sends beside them.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ampsq.errors import DefinitionError
from ampsq.schema import INSTANCES, channel, key
from ampsq.scripts import names, script
from ampsq.values import parse_name, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["ROLES", "SCRIPTED", "Role", "Rules", "rules"]

_SCRIPTED: Final = """
    DEL EXISTS GET HDEL HEXISTS HGET HGETALL HINCRBY HKEYS HLEN HMGET HRANDFIELD HSCAN HSET HSETNX HVALS
    LINDEX LLEN LPOP LPOS LPUSH LRANGE LTRIM MEMORY PERSIST PEXPIRE RENAME RPUSH SADD SCARD SET SISMEMBER
    SMEMBERS SREM SSCAN TIME UNLINK XADD XDEL XINFO XLEN XRANGE XREVRANGE XSETID XTRIM ZADD ZCARD ZCOUNT
    ZMSCORE ZPOPMIN ZRANGE ZRANGEBYSCORE ZRANK ZREM ZREMRANGEBYRANK ZREMRANGEBYSCORE ZREVRANGE ZSCAN ZSCORE
"""
#: Every command that a script may run. A test asks servers whether a script has another one.
SCRIPTED: Final = frozenset(_SCRIPTED.split())
#: Of a command with subcommands, the one that is used.
_PARTS: Final = {"MEMORY": "MEMORY|USAGE", "XINFO": "XINFO|STREAM"}
_QUOTED: Final = re.compile(r"'([A-Z]+)'")

#: What every connection asks, and what is asked before anything else.
_CONNECTION: Final = "CLUSTER|SLOTS EVAL EVALSHA INFO PING ROLE SCRIPT|LOAD SELECT SISMEMBER SUBSCRIBE"
_USER: Final = re.compile(r"[A-Za-z0-9_.@-]{1,128}")
_USER_ALLOWED: Final = "1 to 128 of the characters A-Z a-z 0-9 _ . @ -"

_OPENING: Final = "catalog happen open"
_LOOKING: Final = """
    browse browse_records behind count_entries count_owners explain find_bookmarks find_point lacking lag locate look
    measure name_messages read_journal skip_entries stats verify walk watch
"""
_TOPICS: Final = "catch_up claim hold note_place pin report"
_JOBS: Final = "commit_job drop_stages finish_job keep_stages record_stage stage_rows write_rows"
_CHECKS: Final = """
    check_counts check_due check_index check_leased check_live check_log check_queue check_room correct_count repair
"""
_PUBLISHING: Final = f"{_OPENING} {_LOOKING} confirm logoff logon mark publish sow_delete"
_SUBSCRIBING: Final = (
    f"{_OPENING} {_LOOKING} {_TOPICS} beat mark replace resize resume settle subscribe take unsubscribe"
)


@dataclass(frozen=True, slots=True)
class Role:
    """What one kind of client does.

    Attributes:
        meaning: in a few words.
        scripts: those that it runs; None: all.
        sent: the commands that it sends beside them.
        writes_logs: whether it records messages.
        is_registrar: whether it adds the instance to those of the server.
    """

    meaning: str
    scripts: frozenset[str] | None
    sent: frozenset[str]
    writes_logs: bool = True
    is_registrar: bool = False

    @property
    def commands(self) -> list[str]:
        """All its commands, sorted; a subcommand behind ``|``."""
        used = self.sent.union(*(_scripted(name) for name in (names() if self.scripts is None else self.scripts)))
        return sorted(used)


def _role(meaning: str, scripts: str | None, sent: str, **others: bool) -> Role:
    run = frozenset(scripts.split()) if scripts is not None else None
    return Role(meaning, run, frozenset(f"{_CONNECTION} {sent}".split()), **others)


#: Everything that one who looks at topics, queues, rows and histories sends.
_READS: Final = """
    EXISTS GET HGET HGETALL HKEYS HLEN HMGET LRANGE MEMORY|USAGE SMEMBERS TIME XINFO|STREAM XLEN XRANGE XREAD XREVRANGE
    ZCARD ZRANGE
"""
#: And who waits until something is on a disk or at replicas.
_DURABLE: Final = "SET WAIT"

ROLES: Final[Mapping[str, Role]] = MappingProxyType(
    {
        "publisher": _role(
            "publishes messages, also with a guarantee, and deletes records",
            f"{_PUBLISHING} {_JOBS}",
            f"{_READS} {_DURABLE}",
        ),
        "worker": _role(
            "subscribes to queues and topics, acknowledges, queries",
            _SUBSCRIBING,
            f"{_READS} {_DURABLE} BLMPOP BLPOP",
            writes_logs=False,
        ),
        "gateway": _role(
            "publishes and subscribes for clients that have no rights at the server: `ampsq gateway`",
            f"{_PUBLISHING} {_SUBSCRIBING}",
            f"{_READS} {_DURABLE} BLMPOP BLPOP",
        ),
        "coordinator": _role(
            "does what must happen over time: sweeps, actions, views, trimming, links",
            f"""{_OPENING} {_LOOKING} {_TOPICS} {_CHECKS} advance apply apply_journal assume beat count define_queue
            define_topic discard downgrade forget_publishers grant hold_view index_log mark note_flushing notice overdue
            pause_queue proxy publish rebuild redo redrive relay report_sent request resume_queue set_aside settle
            sow_delete sweep track trim trim_journal unsubscribe""",
            f"{_READS} {_DURABLE} BLMPOP CONFIG|GET DEL HDEL HEXISTS HSET PUBSUB|NUMSUB SCAN XTRIM ZREM",
        ),
        "replicator": _role(
            "the other end of a link: brings copies, fetches them, and says how far it is",
            f"""{_OPENING} {_LOOKING} apply apply_journal assume define_topic discard downgrade grant hold mark publish
            relay report_sent request""",
            f"{_READS} {_DURABLE} CONFIG|GET DEL HEXISTS HSET",
        ),
        "admin": _role(
            "defines, looks at everything, checks, repairs and puts dead letters back",
            None,
            f"{_READS} {_DURABLE} BLMPOP BLPOP CLIENT|KILL CONFIG|GET DEL HDEL HEXISTS HSET HSETNX PUBSUB|NUMSUB SCAN "
            "XTRIM ZADD ZREM",
            is_registrar=True,
        ),
    }
)


@cache
def _scripted(name: str) -> frozenset[str]:
    """The commands in one script."""
    words = frozenset(_QUOTED.findall(script(name).source)) & SCRIPTED
    return frozenset(_PARTS.get(word, word) for word in words)


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one user, as the server's access control takes them.

    Attributes:
        user: its name at the server.
        password: SHA-256 of its password, in hex; "" for none: then nobody can log in.
        keys: patterns of keys, each behind ``~`` or, only to be read, ``%R~``.
        channels: patterns of channels, each behind ``&``.
        commands: those that are allowed; no others are.
    """

    user: str
    password: str
    keys: tuple[str, ...]
    channels: tuple[str, ...]
    commands: tuple[str, ...]

    def words(self) -> list[str]:
        """What follows ``ACL SETUSER <user>``; what the user had before is gone."""
        allowed = [f"+{name.lower()}" for name in self.commands]
        return ["reset", "on", *self._password(), *self.keys, *self.channels, "-@all", *allowed]

    def file_line(self) -> str:
        """A line of an ACL file."""
        # There a user begins with nothing, and `reset` is not taken.
        return " ".join(["user", self.user, *self.words()[1:]])

    def _password(self) -> list[str]:
        return [f"#{self.password}"] if self.password else []


def rules(
    role: str,
    instance: str,
    *,
    user: str | None = None,
    password: str | None = None,
    topics: Sequence[str] = (),
) -> Rules:
    """The rules of a user who does what a role does at one instance, and nothing else.

    Args:
        role: one of `ROLES`.
        instance: its name.
        user: the user's name at the server; default ``<instance>-<role>``.
        password: the user's; only its hash goes into the rules. Default: none, so that nobody can log in.
        topics: of a publisher: the topics that it may record in; default all.

    Raises:
        DefinitionError: there is no such role, a name is none, the password is empty, or topics are named for a role
            that is not bound to them.
    """
    if role not in ROLES:
        raise DefinitionError(f"role {shown(role)}: allowed are {', '.join(ROLES)}")
    if topics and role != "publisher":
        raise DefinitionError(
            f"topics of a {role}: only a publisher can be bound to some; what others may see by topic, queue and "
            "content is bounded by the gateway's entitlements (ampsq gateway)"
        )
    if password == "":
        raise DefinitionError("the password is empty; allowed: any text, or none at all for a user who cannot log in")
    named = user or f"{parse_name(instance).replace('/', '-')}-{role}"
    if not _USER.fullmatch(named):
        raise DefinitionError(f"user {shown(named)}: allowed are {_USER_ALLOWED}")
    hashed = hashlib.sha256(password.encode()).hexdigest() if password else ""
    does = ROLES[role]
    return Rules(
        named,
        hashed,
        tuple(_keys(does, parse_name(instance), [parse_name(each) for each in topics])),
        (f"&{channel(instance, '*')}",),
        tuple(does.commands),
    )


def _keys(does: Role, instance: str, topics: Sequence[str]) -> list[str]:
    """As few patterns as possible: a server looks at them for every key that a script touches."""
    tag = f"{{{instance}}}"
    # Every script names the tag alone as its key.
    beside = [f"~{tag}", f"~{INSTANCES}" if does.is_registrar else f"%R~{INSTANCES}"]
    if does.writes_logs and not topics:
        return [f"~{tag}:*", *beside]
    # What begins with l is the logs, and what coordinators and administrators alone write.
    return [f"~{tag}:[^l]*", f"%R~{tag}:l*", *(f"~{key(instance, 'log', topic)}" for topic in topics), *beside]
