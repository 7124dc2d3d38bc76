"""Needs of each kind of client in a server's access control: its commands, keys and channels.

A script runs with the rights of whoever calls it, so a role's commands are those in the scripts that it runs, read from
the scripts themselves, and those that it sends beside them.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import DefinitionError
from ampsq.base.partitions import patterns_of_partitions
from ampsq.base.values import parse_name, shown
from ampsq.protocol.calls.queues import bell_channel
from ampsq.protocol.keepalive import keepalive_channel, wake_channel
from ampsq.protocol.reads.coordinators import LIST_KEY as COORDINATORS_KEY
from ampsq.protocol.reads.instances import LIST_KEY
from ampsq.protocol.reads.streams import log_of
from ampsq.protocol.scripts import names, script

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["ROLES", "SCRIPTED", "Role", "Rules", "rules", "server_rules"]

_SCRIPTED: Final = """
    DBSIZE DEL EXISTS GET HDEL HEXISTS HGET HGETALL HINCRBY HKEYS HLEN HMGET HRANDFIELD HSCAN HSET HSETNX HVALS
    INFO LINDEX LLEN LPOP LPOS LPUSH LRANGE LTRIM MEMORY PERSIST PEXPIRE RENAME RPUSH SADD SCARD SET SISMEMBER
    SMEMBERS SPUBLISH SREM SSCAN TIME UNLINK XADD XDEL XINFO XLEN XRANGE XREAD XREVRANGE XSETID XTRIM ZADD ZCARD ZCOUNT
    ZLEXCOUNT ZMSCORE ZPOPMIN ZRANGE ZRANGEBYSCORE ZRANK ZREM ZREMRANGEBYRANK ZREMRANGEBYSCORE ZREVRANGE ZSCAN ZSCORE
"""
#: Every command that a script may run. A test asks servers whether a script has another one.
SCRIPTED: Final = frozenset(_SCRIPTED.split())
#: Of a command with subcommands, the one that is used.
_PARTS: Final = {"MEMORY": "MEMORY|USAGE", "XINFO": "XINFO|STREAM"}
_QUOTED: Final = re.compile(r"'([A-Z]+)'")

#: What every connection asks, and what is asked before anything else.
#: Of server functions it calls those whose text it has read; who may load them, could have others run what he likes.
_CONNECTION: Final = "CLUSTER|SLOTS EVAL EVALSHA FCALL FUNCTION|LIST INFO PING ROLE SCRIPT|LOAD SELECT SISMEMBER"
#: What an operator of the server sends: functions are the server's and no instance's.
_OPERATING: Final = "CLUSTER|SLOTS FUNCTION|DELETE FUNCTION|LIST FUNCTION|LOAD INFO PING ROLE SELECT"
_USER: Final = re.compile(r"[A-Za-z0-9_.@-]{1,128}")
_USER_ALLOWED: Final = "1 to 128 of the characters A-Z a-z 0-9 _ . @ -"

_OPENING: Final = "read_catalog emit_event open"
_LOOKING: Final = """
    browse browse_records find_oldest_unacknowledged count_entries count_owners explain find_bookmarks find_index_point
    find_lacking_destinations find_numbers measure_lag measure_logs locate_in_log read_available measure_ages
    name_messages read_journal skip_entries read_stats verify begin_browse watch_queue index_log list_groups
    count_groups
"""
_TOPICS: Final = "catch_up_records begin_session hold_log save_bookmarks pin_messages report_reader"
_JOBS: Final = "commit_job drop_stages finish_job keep_stages record_stage stage_rows write_rows"
_CHECKS: Final = """
    check_delayed_counts check_timetable check_filter_index check_lease_count check_structure check_log check_queue
    check_free_subscriptions correct_read_count repair
"""
#: A topic, or a queue that an address setting wants, is made by whoever first names it and may define; others ask.
_FIRST_USE: Final = "define_queue define_topic want_name"
_PUBLISHING: Final = f"""
    {_OPENING} {_LOOKING} want_name catch_up_records confirm_sequence logoff logon set_mark publish publish_once
    sow_delete
"""
#: Where no coordinator is at work, a subscription sweeps and notices for itself.
_SUBSCRIBING: Final = f"""
    {_OPENING} {_LOOKING} {_TOPICS} want_name end_wait heartbeat set_mark scan_foreign_entries replace_subscription
    resize_backlog push_again settle subscribe sweep take unsubscribe
"""
#: What is of consumers, jobs and the far ends of links alone: who administers does without.
_NOT_ADMINISTERING: Final = f"""
    {_JOBS} apply_log apply_journal assume_ownership claim_messages end_wait heartbeat begin_session grant_messages
    offer_messages relay_requests replace_subscription report_reader request_messages resize_backlog push_again
    subscribe sweep take read_news
"""


@dataclass(frozen=True, slots=True)
class Role:
    """The work of one kind of client.

    Attributes:
        meaning: in a few words.
        scripts: those that it runs.
        sent: the commands that it sends beside them.
        writes_logs: whether it records messages.
        defines: whether it writes definitions; who does not asks a coordinator for what is used first.
        is_registrar: whether it adds the instance to those of the server.
        coordinates: whether it adds itself to the coordinators of the server.
    """

    meaning: str
    scripts: frozenset[str]
    sent: frozenset[str]
    writes_logs: bool = True
    defines: bool = True
    is_registrar: bool = False
    coordinates: bool = False

    @property
    def commands(self) -> list[str]:
        """All its commands, sorted; a subcommand behind ``|``."""
        used = self.sent.union(*(_scripted(name) for name in self.scripts))
        return sorted(used)


def _role(meaning: str, scripts: str, sent: str, **others: bool) -> Role:
    return Role(meaning, frozenset(scripts.split()), frozenset(f"{_CONNECTION} {sent}".split()), **others)


#: Everything that one who looks at topics, queues, rows and histories sends.
_READS: Final = """
    CLIENT|TRACKING EXISTS GET HGET HGETALL HKEYS HLEN HMGET HSCAN LRANGE MEMORY|USAGE SMEMBERS SSCAN TIME XINFO|STREAM
    XLEN XRANGE XREAD XREVRANGE PUBSUB|SHARDNUMSUB ZCARD ZRANGE ZRANGEBYSCORE ZSCORE
"""
#: A subscription waits at its inbox.
_INBOX: Final = "BLMPOP"
#: Publishers (`persisted="replicas=1"`) and durable subscriptions wait for replicas, behind a write of their own.
_REPLICAS: Final = "SET WAIT"
#: Clients are subscribed to a channel of their own, plain and of a shard, so that it is seen when they are gone: those
#: that subscribe, and all where an action is told of clients that come and go.
_PRESENCE: Final = "SSUBSCRIBE SUBSCRIBE SUNSUBSCRIBE UNSUBSCRIBE"
#: Whether the server may lose what it answered.
_FLUSHING: Final = "CONFIG|GET"

#: The keys that who does not define writes, what is used most first: all but logs, definitions (topics, queues, routes,
#: settings, views, conflated topics, transports with their limits, destinations, actions and what they keep) and what
#: coordinators and administrators alone write (`lasting`, `links`, `received`, `recovery`). A server has no pattern of
#: what is left out; a test goes through all keys.
_STATE: Final = (
    *("q:*", "[^acdlqrstv]*", "s[^e]*", "se[^t]*", "re[^c]*", "recor*"),
    *("c[^o]*", "co[^n]*", "confirmed", "d[^e]*", "de[^s]*"),
)

ROLES: Final[Mapping[str, Role]] = MappingProxyType(
    {
        "publisher": _role(
            "publishes messages, also with a guarantee, and deletes records",
            f"{_PUBLISHING} {_JOBS}",
            f"{_READS} {_PRESENCE} {_REPLICAS}",
            defines=False,
        ),
        "worker": _role(
            "subscribes to queues and topics, acknowledges, queries",
            _SUBSCRIBING,
            f"{_READS} {_PRESENCE} {_REPLICAS} {_INBOX}",
            writes_logs=False,
            defines=False,
        ),
        "gateway": _role(
            "publishes and subscribes for clients that have no rights at the server: `ampsq gateway`",
            f"{_PUBLISHING} {_SUBSCRIBING}",
            f"{_READS} {_PRESENCE} {_REPLICAS} {_INBOX}",
            defines=False,
        ),
        # Views and actions keep their places (HSET, HDEL, ZREM) and cut what was read (XTRIM); a link begins anew
        # (DEL); absence is looked for (PUBSUB|NUMSUB), foreign entries too (SCAN). The console is a client (SUBSCRIBE)
        # that tries failed events again (ZADD).
        "coordinator": _role(
            "does what must happen over time: sweeps, actions, views, trimming, links; and the console",
            f"""
                {_OPENING} {_LOOKING} {_TOPICS} {_CHECKS} advance_action apply_log apply_journal assume_ownership
                claim_messages read_news offer_messages raise_counter {_FIRST_USE} discard_unsettled downgrade
                end_recovery forget_publishers
                grant_messages keep_duty index_log scan_foreign_entries note_flushing emit_overdue begin_rebuild
                set_proxied_transfer publish rebuild begin_recovery retry_event redrive relay_requests report_sent
                request_messages end_rebuild set_event_aside settle sow_delete sweep track_matches trim_log trim_journal
                unsubscribe
            """,
            f"{_READS} {_PRESENCE} {_FLUSHING} DEL HDEL HEXISTS HSET PUBSUB|NUMSUB SADD SCAN XTRIM ZADD ZREM",
            coordinates=True,
        ),
        # It has no clients of ours, but stores: it opens nothing and sends no heartbeats. A link says how it is (HSET),
        # begins anew (DEL) and closes incarnations that are over (SADD).
        "replicator": _role(
            "the other end of a link: brings copies, fetches them, and says how far it is",
            f"""
                read_catalog {_FIRST_USE} apply_log apply_journal claim_messages grant_messages offer_messages
                read_journal begin_recovery relay_requests report_sent
            """,
            f"{_READS} {_FLUSHING} DEL HEXISTS HSET SADD",
        ),
        # It makes instances (HSETNX) and cuts off who uses a former incarnation (CLIENT|KILL).
        "admin": _role(
            "defines, looks at everything, checks, repairs and puts dead letters back",
            " ".join(sorted(set(names()) - set(_NOT_ADMINISTERING.split()))),
            f"{_READS} {_PRESENCE} {_FLUSHING} CLIENT|KILL DEL HDEL HEXISTS HSET HSETNX PUBSUB|NUMSUB SADD SCAN XTRIM "
            "ZADD ZREM",
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
        """Return the words that follow ``ACL SETUSER <user>``; rights that the user had before are gone."""
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
    gateway: bool = False,
    partitions: int | None = None,
) -> Rules:
    """The rules of a user who does what a role does at one instance, and nothing else.

    Args:
        role: one of `ROLES`.
        instance: its name.
        user: the user's name at the server; default ``<instance>-<role>``.
        password: the user's; only its hash goes into the rules. Default: none, so that nobody can log in.
        topics: of a publisher: the topics that it may record in; default all.
        gateway: of a coordinator: it also serves a gateway, in the same process and as the same user.
        partitions: how many the instance has, of which the rules are for all; default: it has none.

    Raises:
        DefinitionError: there is no such role, a name is none, the password is empty, there are no such partitions, or
            topics or a gateway are named for a role that has none.
    """
    if role not in ROLES:
        raise DefinitionError(f"role {shown(role)}: allowed are {', '.join(ROLES)}")
    if topics and role != "publisher":
        raise DefinitionError(
            f"topics of a {role}: only a publisher can be bound to some; what others may see by topic, queue and "
            "content is bounded by the gateway's entitlements (ampsq gateway)"
        )
    if gateway and role != "coordinator":
        raise DefinitionError(
            f"a gateway beside a {role}: allowed beside a coordinator; by itself it is the role gateway"
        )
    does, register = ROLES[role], []
    parts: tuple[str, ...] = (parse_name(instance),)
    if partitions is not None:
        parts = patterns_of_partitions(instance, partitions)
        # At the instance's own name stands how many partitions it has, and how the server flushes.
        register = [f"{'~' if does.defines else '%R~'}{{{instance}}}:*"]
    channels = [
        (
            *((f"&{keepalive_channel(part, '*')}",) if "SUBSCRIBE" in does.sent else ()),
            # Scripts of any role may wake a coordinator, and ring a consumer's bell.
            f"&{wake_channel(part)}",
            f"&{bell_channel(part, '*')}",
        )
        for part in parts
    ]
    return Rules(
        *_identity(user or f"{parse_name(instance).replace('/', '-')}-{role}", password),
        (*_keys(does, parts, [parse_name(each) for each in topics]), *register),
        tuple(chain.from_iterable(channels)),
        tuple(sorted({*does.commands, *ROLES["gateway"].commands}) if gateway else does.commands),
    )


def server_rules(user: str | None = None, password: str | None = None) -> Rules:
    """The rules of an operator of a server, who loads and removes functions, and reads no key of any instance.

    Args:
        user: its name at the server; default ``ampsq-server``.
        password: as of `rules`.

    Raises:
        DefinitionError: the name is none, or the password is empty.
    """
    return Rules(*_identity(user or "ampsq-server", password), (), (), tuple(_OPERATING.split()))


def _identity(user: str, password: str | None) -> tuple[str, str]:
    """A user's name, and the hash of its password."""
    if password == "":
        raise DefinitionError("the password is empty; allowed: any text, or none at all for a user who cannot log in")
    if not _USER.fullmatch(user):
        raise DefinitionError(f"user {shown(user)}: allowed are {_USER_ALLOWED}")
    return user, hashlib.sha256(password.encode()).hexdigest() if password else ""


def _keys(does: Role, instances: Sequence[str], topics: Sequence[str]) -> list[str]:
    """As few patterns as possible: a server looks at them for every key that a script touches.

    `instances` are names, or patterns of names.
    """
    tags = [f"{{{instance}}}" for instance in instances]
    # Every script names the tag alone as its key.
    beside = [*(f"~{tag}" for tag in tags), f"~{LIST_KEY}" if does.is_registrar else f"%R~{LIST_KEY}"]
    beside.append(f"~{COORDINATORS_KEY}" if does.coordinates else f"%R~{COORDINATORS_KEY}")
    if does.defines:
        return [*(f"~{tag}:*" for tag in tags), *beside]
    logged = topics or ("*",) if does.writes_logs else ()
    logs = [f"~{log_of(topic).key(instance)}" for topic in logged for instance in instances]
    # What is used most comes first.
    return [*(f"~{tag}:{part}" for part in _STATE for tag in tags), *logs, *beside, *(f"%R~{tag}:*" for tag in tags)]
