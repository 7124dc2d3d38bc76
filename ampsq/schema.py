"""The state machine and the layout of an instance's keys: the first file to open.

A message of one queue is always in exactly one of the states below, and the rows of `TRANSITIONS` are all the
ways between them. Every key, field, value and code of the system is spelled here once; scripts get them folded
in as literals, Python reads them from here. This module imports nothing of ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "BARRIERS_KEPT",
    "BATCH",
    "BODY_BY_REF",
    "BYTES",
    "COMPILED",
    "DUE_PERIOD",
    "EVENTS",
    "FIELDS",
    "FORMAT",
    "INSTANCES",
    "KEEP_FILTER",
    "KEYS",
    "LEASES_ANCHOR",
    "MAX_FILTERS",
    "PASS_AGAIN",
    "SORT_WORK",
    "TRANSITIONS",
    "VALUES",
    "Event",
    "Key",
    "State",
    "Transition",
    "channel",
    "key",
]

#: Layout version of everything below. Every script compares it with the instance's own before it does anything.
FORMAT: Final = 2

#: The set of all instances that clients have opened on a server, for coordinators; the only key outside an instance.
INSTANCES: Final = "ampsq:instances"

#: Most messages that one script call moves. 500 plain ones cost 1 to 4 ms of server time.
BATCH: Final = 500

#: Most body bytes that one script call reads for delivery: large bodies make smaller batches, never longer calls.
BYTES: Final = 1_000_000

#: A body larger than this is pushed as a reference and read from the log at pick-up, so inboxes stay small.
BODY_BY_REF: Final = 16_384

#: Work that one script call spends on sorting messages by filters and priorities: a unit is about 8 us of server time.
SORT_WORK: Final = 500

#: Most distinct filters of a queue's subscriptions.
MAX_FILTERS: Final = 32

#: Milliseconds for which a filter's index is kept after its last subscription is gone.
KEEP_FILTER: Final = 60_000

#: About how many entries of a watched queue's `events` are kept; whoever falls further behind looks at everything anew.
EVENTS: Final = 10_000

#: Barriers that a subscription was sent and that are pushed again after a doubt.
BARRIERS_KEPT: Final = 64

#: Least milliseconds between two lease passes over one queue.
DUE_PERIOD: Final = 100

#: Milliseconds until the next lease pass over a queue whose leases never lapse, while it has any.
PASS_AGAIN: Final = 60_000

#: The permanent field that keeps a queue's leases in a real hash table: Redis stores small hashes with short
#: values as a list that is searched from its head, which is quadratic for a batch of acknowledgements.
LEASES_ANCHOR: Final = "." * 65


class State(StrEnum):
    """Where a message of one queue is. Waiting messages cost no key of their own: the cursor says it."""

    WAITING = "waiting"  # beyond the cursor of its topic, not in `ahead`
    READY = "ready"  # read and waiting: it came back, its time has come, or it has its place by priority and filters
    HELD = "held"  # a barrier that waits for all before it, or read behind one
    DELAYED = "delayed"  # due later: an entry of `due`
    LEASED = "leased"  # delivered and unacknowledged: an entry of `leases`
    SETTLED = "settled"  # for ever: an entry of the journal, and of nothing else


class Event(StrEnum):
    """What moves a message, named as in the journal and in `TRANSITIONS`."""

    DELIVERED = "delivered"
    ACKNOWLEDGED = "acknowledged"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    EXTENDED = "extended"
    LAPSED = "lapsed"
    DISCONNECTED = "disconnected"
    GIVEN_BACK = "given_back"
    DUE = "due"
    SORTED = "sorted"
    HELD = "held"
    RELEASED = "released"
    BARRIER = "barrier"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Transition:
    """One row: in these states, this event leads to that state."""

    event: Event
    before: tuple[State, ...]
    after: tuple[State, ...]
    meaning: str


_UNLEASED = (State.WAITING, State.READY, State.DELAYED, State.HELD)

TRANSITIONS: Final = (
    Transition(
        Event.DELIVERED,
        (State.WAITING, State.READY),
        (State.LEASED,),
        "given to the best free subscription under a new token; at-most-once: journaled in the same step",
    ),
    Transition(
        Event.ACKNOWLEDGED,
        (State.LEASED, *_UNLEASED),
        (State.SETTLED,),
        "processed; by token, or by bookmark as `leasing` allows",
    ),
    Transition(
        Event.CANCELLED,
        (State.LEASED,),
        (State.READY, State.DELAYED, State.SETTLED),
        "handed back by its holder; settled when a limit is reached",
    ),
    Transition(
        Event.EXPIRED,
        (State.LEASED, *_UNLEASED),
        (State.SETTLED,),
        "removed unprocessed, with the reason",
    ),
    Transition(Event.EXTENDED, (State.LEASED,), (State.LEASED,), "a later deadline for the same token"),
    Transition(
        Event.LAPSED,
        (State.LEASED,),
        (State.READY, State.SETTLED),
        "the deadline passed without an acknowledgement; counts as a delivery",
    ),
    Transition(
        Event.DISCONNECTED,
        (State.LEASED,),
        (State.READY, State.SETTLED),
        "its subscription is gone; counts as a delivery if it was picked up",
    ),
    Transition(
        Event.GIVEN_BACK,
        (State.LEASED,),
        (State.READY,),
        "returned before anyone began to process it; counts for nothing",
    ),
    Transition(Event.DUE, (State.DELAYED,), (State.READY,), "its time has come; keeps its old place"),
    Transition(
        Event.SORTED,
        (State.WAITING, State.READY),
        (State.READY,),
        "judged by priority and filters and put in its place; what the queue's filter refuses never was in the queue",
    ),
    Transition(Event.HELD, (State.WAITING, State.READY), (State.HELD,), "read, and a barrier or behind one"),
    Transition(Event.RELEASED, (State.HELD,), (State.READY,), "the barrier before it was sent or settled"),
    Transition(
        Event.BARRIER,
        (State.HELD,),
        (State.SETTLED,),
        "all before it is settled: sent to every subscription whose filter it matches, without a lease",
    ),
    Transition(
        Event.MISSING,
        (State.READY, State.DELAYED, State.HELD, State.LEASED),
        (State.SETTLED,),
        "somebody else removed it from the log; journaled so that the counts stay true",
    ),
)


@dataclass(frozen=True, slots=True)
class Key:
    """One key of an instance.

    Attributes:
        suffix: what follows the hash tag ``{instance}``; ``<...>`` are the parameters, in order.
        type: the Redis type.
        holds: what is in it.
        writes: who writes it.
        empties: what empties it.
        rebuilds: what it can be rebuilt from.
    """

    suffix: str
    type: str
    holds: str
    writes: str
    empties: str
    rebuilds: str


# fmt: off
KEYS: Final[Mapping[str, Key]] = MappingProxyType(
    {
        "instance": Key(
            ":instance", "hash", "format, origin, catalog version, subscription counter, coordinators' life sign",
            "open, and every script that changes the catalog", "never", "nothing: its loss is a new incarnation",
        ),
        "clock": Key(
            ":clock", "string", "the last ID given to any topic", "publish, notice", "never", "the logs",
        ),
        "topics": Key(
            ":topics", "hash", "topic -> definition, JSON", "define_topic", "never", "the configuration, the logs",
        ),
        "queues": Key(
            ":queues", "hash", "queue -> definition, JSON", "define_queue", "never", "the configuration",
        ),
        "actions": Key(
            ":actions", "hash", "action -> definition, JSON", "define_action", "never", "the configuration",
        ),
        "routes": Key(
            ":routes", "hash",
            "topic -> the queues that it feeds, `*` before one of several topics; queue -> `>` and its publish target",
            "define_topic, define_queue", "never", "topics and queues",
        ),
        "patterns": Key(
            ":patterns", "hash", "subscription -> its pattern of queues", "subscribe", "unsubscribe",
            "the subscriptions",
        ),
        "publishers": Key(
            ":publishers", "hash", "publisher -> sequence, topic, ID of its last message", "publish",
            "ageing", "the logs",
        ),
        "subscriptions": Key(
            ":subscriptions", "zset", "subscription -> heartbeat deadline, ms", "subscribe, beat", "unsubscribe",
            "the subscription hashes",
        ),
        "due": Key(
            ":due", "zset",
            "the timetable: `leases <queue>`, `dispatch <queue>`, `ready <queue> <ref>`, `filter <queue> <id>`, `watch "
            "<queue>` -> ms",
            "dispatch, settle, unsubscribe, watch", "sweep", "leases; for delays: nothing, they are not durable",
        ),
        "subscription": Key(
            ":s:<subscription>", "hash",
            "queues, asked, max, leased, client, filter and its tree, `turn <queue>`; `left`: queues left with leases",
            "subscribe, replace, dispatch, settle", "unsubscribe", "its client, which subscribes again",
        ),
        "barriers": Key(
            ":s:<subscription>:barriers", "list", "barriers sent last, `<queue> <token> <ref>`", "dispatch",
            "unsubscribe", "nothing: its loss matters only after a lost reply",
        ),
        "inbox": Key(
            ":s:<subscription>:inbox", "list", "pushed, not yet picked up", "dispatch", "take, unsubscribe",
            "leases",
        ),
        "log": Key(
            ":log:<topic>", "stream", "this instance's order of the topic's messages", "publish, anyone", "trimming",
            "nothing: it is the record",
        ),
        "queue": Key(
            ":q:<queue>", "hash", "compiled definition, counters, the filters' names", "define_queue, dispatch, settle",
            "never",
            "the definition, the journal",
        ),
        "cursors": Key(
            ":q:<queue>:cursors", "hash", "topic -> last ID read and how many were read", "dispatch", "never",
            "the journal",
        ),
        "behind": Key(
            ":q:<queue>:behind", "zset",
            "of a queue over several topics: those with something unread -> at most the ms of the first unread ID",
            "publish, notice", "dispatch", "cursors and logs",
        ),
        "ahead": Key(
            ":q:<queue>:ahead", "hash", "refs settled beyond the cursor", "settle", "dispatch", "the journal",
        ),
        "ready": Key(
            ":q:<queue>:ready", "zset",
            "refs that were read and wait; score 0, so refs are the order. If sorted: those without a place yet",
            "settle, sweep", "dispatch, settle", "log, cursors, journal, leases",
        ),
        "filters": Key(
            ":q:<queue>:filters", "hash",
            "of a sorted queue: `entry`, `priority`, `barrier`, `filter <id>` -> tree; `users <id>`; `place <id>`, up "
            "to which its index is built; `kept` if the definition sorts; `resort` while all is to be judged anew",
            "define_queue, subscribe, dispatch", "sweep", "the definition and the subscriptions",
        ),
        "sorted": Key(
            ":q:<queue>:sorted:<filter>", "zset",
            "the index of a filter: matching messages in order of delivery; `none` has all. Score -priority, member "
            "the ref, behind `#` and the low bits of a priority of 2^53 or more",
            "dispatch", "dispatch, settle, sweep", "log, cursors, journal, leases",
        ),
        "places": Key(
            ":q:<queue>:places", "hash", "ref -> the prefix of its member, for priorities of 2^53 and more",
            "dispatch", "dispatch, settle", "log and priority",
        ),
        "held": Key(
            ":q:<queue>:held", "zset", "a barrier that waits, first, and what was read behind it; score 0", "dispatch",
            "dispatch, settle", "log, cursors, journal",
        ),
        "events": Key(
            ":q:<queue>:events", "stream", "of a watched queue: refs whose availability may have changed",
            "dispatch, settle, sweep", "its own length; sweep", "not needed: whoever missed some looks at everything",
        ),
        "free": Key(
            ":q:<queue>:free:<filter>", "zset", "subscriptions with room -> the fairness model's score",
            "subscribe, dispatch, settle", "dispatch, unsubscribe", "the subscriptions",
        ),
        "members": Key(
            ":q:<queue>:subscriptions", "set", "the subscriptions of the queue", "subscribe, define_queue",
            "unsubscribe", "the subscriptions",
        ),
        "leases": Key(
            ":q:<queue>:leases", "hash", "ref -> subscription, deadline, token, delivery, length in ms",
            "dispatch, settle", "settle, sweep", "nothing: a lost lease is a message that is ready again",
        ),
        "attempts": Key(
            ":q:<queue>:attempts", "hash", "ref -> deliveries, cancels, last reason; only what came back",
            "settle, sweep", "settle", "nothing: not durable, as in AMPS",
        ),
        "journal": Key(
            ":q:<queue>:journal", "stream", "what was settled, one entry a batch", "settle, dispatch", "trimming",
            "nothing: it is the record",
        ),
        "view": Key(
            ":view:<view>", "hash",
            "group, a JSON list -> row, JSON; `state`: the definition whose rows are all there; `made`: the one that "
            "made those there; `pending`: rows being sent",
            "the coordinator", "the coordinator", "the underlying topic",
        ),
        "views": Key(
            ":views", "hash", "view -> definition, JSON", "define_view", "never", "the configuration",
        ),
        "keepers": Key(
            ":keepers", "hash", "view -> who keeps it up to date, and until when, ms", "hold_view", "never",
            "not needed: any coordinator takes it again",
        ),
        "action": Key(
            ":action:<action>", "hash", "journal cursor and publisher sequence", "advance", "never",
            "the journal and the target's log",
        ),
    }
)

#: Fields of hashes and stream entries, `F.<name>` in Lua.
FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        # instance
        "format": "format", "name": "name", "origin": "origin", "catalog": "catalog", "registered": "registered",
        "attended": "attended",
        # queue
        "compiled": "compiled", "target": "target", "token": "token", "delayed": "delayed", "passing": "pass",
        "acknowledged": "acknowledged", "expired": "expired", "returned": "returned", "missing": "missing",
        "sorted": "sorted", "watched": "watched", "filtered": "filtered", "barrier": "barrier",
        # filters
        "entry": "entry", "priority": "priority", "kept": "kept", "resort": "resort",
        # subscription
        "queues": "queues", "asked": "asked", "max": "max", "leased": "leased", "client": "client",
        "filter": "filter", "tree": "tree", "wish": "wish", "left": "left",
        # log entries; a foreign entry has none of these
        "body": "b", "headers": "h", "publisher": "p", "sequence": "n",
        # journal entries
        "how": "how", "reason": "reason", "refs": "refs", "attempts": "attempts",
        # action
        "cursor": "cursor", "done": "sequence",
    }
)
# fmt: on

#: Order of the numbers in a queue's `compiled` field; `ratio` and `turn` are the weights of the fairness score. Behind
#: them stands the queue's topic, if it can have only one: such a queue needs no `behind`.
COMPILED: Final = (
    "lease",
    "backlog",
    "deliveries",
    "cancels",
    "ratio",
    "turn",
    "once",
    "strict",
    "room",
    "depth",
)

#: Words and limits that scripts and Python share, `V.<name>` in Lua.
VALUES: Final[Mapping[str, str | int]] = MappingProxyType(
    {
        **{event.value: event.value for event in Event},
        "forced_expire": "forced_expire",
        "max_deliveries": "max_deliveries",
        "max_cancels": "max_cancels",
        "none": "none",
        "format": str(FORMAT),
        "batch": BATCH,
        "bytes": BYTES,
        "body_by_ref": BODY_BY_REF,
        "sort_work": SORT_WORK,
        "max_filters": MAX_FILTERS,
        "keep_filter": KEEP_FILTER,
        "events": EVENTS,
        "barriers_kept": BARRIERS_KEPT,
        "due_period": DUE_PERIOD,
        "pass_again": PASS_AGAIN,
        "anchor": LEASES_ANCHOR,
    }
)


def key(instance: str, name: str, *parameters: str) -> str:
    """Spell one key of an instance.

    Args:
        instance: the instance's name; it is the hash tag, so all keys of an instance share a slot.
        name: a name of `KEYS`.
        parameters: what replaces the ``<...>`` of the key's suffix, in order.

    Raises:
        KeyError: no key has this name.
        ValueError: the number of parameters is wrong.
    """
    parts = KEYS[name].suffix.replace(">", "<").split("<")
    if len(parts) // 2 != len(parameters):
        raise ValueError(f"key {name!r} takes {len(parts) // 2} parameters, got {len(parameters)}")
    parts[1::2] = parameters
    return "{" + instance + "}" + "".join(parts)


def channel(instance: str, client: str) -> str:
    """The pub/sub channel to which a client stays subscribed, so that its absence is seen."""
    return "{" + instance + "}:client:" + client
