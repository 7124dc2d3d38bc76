"""The layout of an instance's keys: with `ampsq.protocol.transitions`, the first file to open.

Every key, field, value and code of the system is spelled here once; scripts get them folded in as literals, Python
reads them from here.
"""
# Long: one table: whoever looks for a key, a field or a value finds all of them here.

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import DefinitionError
from ampsq.base.histogram import BOUNDS
from ampsq.base.message_types import EXPRESSION_LIMIT, SMALL_BODY
from ampsq.base.values import NAME_ALLOWED, shown
from ampsq.protocol.limits import (
    ASK_AGAIN,
    ASKED_LATELY,
    BARRIERS_KEPT,
    BATCH,
    BELL_SCORE,
    BELLS_RUNG,
    BODY_BY_REF,
    BYTES,
    DEDUPLICATION_IDS,
    DEFERRED_PERIOD,
    DELIVERIES,
    DUE_PERIOD,
    EVENTS,
    FAILED,
    FIRST_LOOK,
    HAPPENINGS,
    HISTORY_BUCKETS,
    HISTORY_RANGES,
    INDEX_STEP,
    KEEP_FILTER,
    KEY_WORK,
    LISTED_PIECE,
    LISTING_WALK,
    LONG_REST_HORIZON,
    LONGEST_GROUP,
    LOST_AT_MOST,
    LOST_CYCLE,
    MARKS,
    MAX_FILTERS,
    MOST_WEIGHT,
    NAMED_KEPT,
    NO_ROOM,
    NOTED_LEAST,
    NOTED_MORE,
    OPEN_RUN,
    OWNERS_LOOKED,
    PASS_AGAIN,
    PUBLISHER_AGE,
    RATE_STEP,
    REQUESTS,
    REST_HORIZON,
    RETURNED,
    RETURNS_BYTES,
    RETURNS_KEPT,
    SCATTERED,
    SORT_WORK,
    TRIM_REFS,
    USUAL_LEAST,
    USUAL_MOST,
    WANTED,
    WISHES,
)
from ampsq.protocol.transitions import MessageEvent, MessageState

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "COMPILED",
    "COORDINATORS",
    "COUNTED_SINCE",
    "END_OF_WAIT",
    "FIELDS",
    "FORMAT",
    "FORMAT_OF_GROUPS",
    "INSTANCES",
    "KEYS",
    "LEASES_ANCHOR",
    "POLICY",
    "VALUES",
    "WAKE",
    "Key",
    "key",
    "slot_key",
]

#: Layout version of everything below. Every script compares it with the instance's own before it does anything.
#: docs/upgrading.md says what raises it; each such change has its step in `ampsq.operations.upgrade`.
FORMAT: Final = 5
#: That of an instance that has had a queue with groups, or a subscription with a bell; all else of it is as in
#: `FORMAT`. The release before reads `FORMAT` and would deliver out of groups' order, or find a subscription free that
#: has no room, so it is to refuse such an instance, and that alone.
FORMAT_OF_GROUPS: Final = 6
#: Keys outside of all instances: the set of those that clients have opened on a server, and the hash of its
#: coordinators, which share them: ID -> what it says of itself, JSON, with each sign of life.
INSTANCES: Final = "ampsq:instances"
COORDINATORS: Final = "ampsq:coordinators"
#: The permanent field that keeps a queue's leases in a real hash table: Redis stores small hashes with short
#: values as a list that is searched from its head, which is quadratic for a batch of acknowledgements.
LEASES_ANCHOR: Final = "." * 65
#: The head of an element in an inbox that is no message: it ends a blocked read. No queue can have that name, and no
#: other element that kind.
END_OF_WAIT: Final = "~ 0 1 0 w ~"
#: From when on tokens and rates count microseconds, and sessions milliseconds, ms since 1970: the begin of 2026.
COUNTED_SINCE: Final = 1_767_225_600_000


#: What follows the hash tag in the channel to which coordinators of an instance listen.
WAKE: Final = ":wake"


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
            ":instance", "hash",
            "format, origin, catalog version, subscription counter; `resting`; label; `defined_only`, "
            "where a first publish makes no topic; `open <topic>`; group, if it is not its name; `former`: its former "
            "incarnations, the last ID here and the origin of each; 0-0 for none; `upgrade` while one lasts; "
            "`partitions` of an instance that has some and is nothing else; of a partition `partition`, `definitions` "
            "and `intent`",
            "clients that open partitions, set_intent, open, begin_incarnation, begin_recovery, begin_upgrade and its "
            "steps, and every script that changes the catalog", "never",
            "nothing: its loss is a new incarnation",
        ),
        "clock": Key(
            ":clock", "string", "the last ID given to any topic",
            "publish, scan_foreign_entries; `first_behind_loss`: the server lost what it gave", "never", "the logs",
        ),
        "topics": Key(
            ":topics", "hash", "topic -> definition, JSON", "define_topic", "never", "the configuration, the logs",
        ),
        "wanted": Key(
            ":wanted", "zset", "name that was first used by somebody who may not define it -> ms when", "want_name",
            "the coordinator, which makes it; its own length", "not needed: whoever waits asks again",
        ),
        "queues": Key(
            ":queues", "hash", "queue -> definition, JSON", "define_queue", "remove_queue", "the configuration",
        ),
        "settings": Key(
            ":settings", "hash",
            "match of an address setting -> definition, JSON; behind `>` while queues are still to be compiled by it",
            "define_setting", "remove_setting", "the configuration",
        ),
        "transports": Key(
            ":transports", "hash", "transport -> definition, JSON", "define_transport", "remove_transport",
            "the configuration",
        ),
        "limits": Key(
            ":limits", "hash",
            "transport -> bytes behind, bytes spooled, percent of these of one reader, ms; `-` for no limit",
            "define_transport", "remove_transport", "the transports",
        ),
        "lasting": Key(
            ":lasting", "string",
            "how the server flushes, for those who may not ask it: its `run_id`, `appendfsync`, "
            "`no-appendfsync-on-rewrite`, and until when it flushes nothing since its clock went back: ms by it, or 0",
            "note_flushing", "never", "the coordinator, which asks the server each second",
        ),
        "readers": Key(
            ":readers", "hash",
            "reader -> its last report: whose pools of memory and disk, state, bytes behind and spooled, ms of the "
            "oldest message, reason, use and limit; and behind a line break what it is, JSON",
            "report_reader", "report_reader", "its client, which reports again",
        ),
        "reporting": Key(
            ":reporting", "zset", "reader -> ms when it counts as gone if it does not report", "report_reader",
            "report_reader",
            "the readers",
        ),
        "pools": Key(
            ":pools", "hash", "pool `<memory|disk> <transport>` -> bytes that its readers use together",
            "report_reader",
            "report_reader", "the readers",
        ),
        "uses": Key(
            ":uses:<pool>", "zset", "reader -> bytes that it uses of the pool", "report_reader", "report_reader",
            "the readers",
        ),
        "conflated": Key(
            ":conflated", "hash", "conflated topic -> definition, JSON", "define_conflated", "remove_conflated",
            "the configuration",
        ),
        "destinations": Key(
            ":destinations", "hash", "destination -> definition, JSON, with the credentials of its addresses",
            "define_destination", "remove_destination", "the configuration",
        ),
        "actions": Key(
            ":actions", "hash", "action -> definition, JSON", "define_action", "remove_action", "the configuration",
        ),
        "received": Key(
            ":received", "hash",
            "`log <topic>@<origin>` and `journal <queue>@<origin>` -> ID up to which everything of that origin in that "
            "stream is here, the digest of the filters that it passed, `-` for none",
            "apply_log, apply_journal", "never", "the sources of the copies",
        ),
        "origins": Key(
            ":origins:<topic>", "set", "origins of which the topic's log has copies", "apply_log", "trim_log",
            "the log",
        ),
        "copies": Key(
            ":copies:<topic>@<origin>", "zset",
            "runs of IDs that follow each other there and here, all scores 0: order of the first there, count, ID of "
            "the first here",
            "apply_log", "trim_log", "the sources of the copies",
        ),
        "same": Key(
            ":same:<topic>", "stream",
            "in the order of the clock: a message that is here came under another bookmark, too: ID here, source, path",
            "apply_log", "trim_log", "the sources of the copies",
        ),
        "searches": Key(
            ":searches:<topic>", "hash",
            "origin -> what a search for its messages has found that publishers sent here, too: the ID behind which it "
            "goes on, then a line a message: its ID here, number, publisher; `behind` and an ID once it is over",
            "apply_log", "trim_log", "nothing: what is lost of it is looked for again",
        ),
        "counting": Key(
            ":counting", "hash",
            "`<topic> <ID here>` of a message with several bookmarks -> `<origin>~<id>` of the lowest, where that is "
            "not its entry's",
            "apply_log", "trim_log", "the sources of the copies",
        ),
        "sequences": Key(
            ":sequences", "hash",
            "publisher -> runs of its numbers that are recorded, `<first>-<last>`, rising; `<publisher> open`: the "
            "first of a run that its session goes on with, and its last one where copies overtook it; `<publisher> "
            "after`: topic and bookmark of its last message, of another origin, that its next one there names",
            "apply_log, logon, publish", "forget_publishers",
            "nothing: its loss may let a message that was published twice be two",
        ),
        "deferred": Key(
            ":deferred:<topic>", "hash",
            "`<queue> <origin>~<id>` of a message that is not here yet -> ms when it is given up, and what its owner "
            "journaled: how, owner, epoch, reason, consumer_reason",
            "apply_journal", "apply_log, apply_journal", "not needed: it is given up in time",
        ),
        "requests": Key(
            ":requests", "stream",
            "what instances say to each other of queues (ownership/lib/requests): who asks for how much of whom, with "
            "which filters; which messages an owner offers then; which of those are taken",
            "request_messages, offer_messages, claim_messages, relay_requests",
            "its own length", "not needed: whoever has room asks again",
        ),
        "closed": Key(
            ":closed", "set", "incarnations of other instances that are over: what is read of them comes too late",
            "links", "never", "not needed: a link tells it again when it is opened",
        ),
        "recovery": Key(
            ":recovery", "hash",
            "while a new incarnation holds its queues: `from <instance>` that everything was read of -> the word of "
            "`recovering`, the group there; `without <destination>` that is not waited for -> that word",
            "links, the operator", "begin_incarnation, begin_recovery, define_queue, end_recovery",
            "not needed: links read it again",
        ),
        "links": Key(
            ":links", "hash",
            "`out <destination>` and `in <instance>` -> what the link last said of itself, JSON", "report_link",
            "report_link", "not needed: it says it again",
        ),
        "sync": Key(
            ":sync", "hash",
            "destination whose acknowledgement is waited for -> ``, or ms since when it is downgraded and is not",
            "define_destination, downgrade", "remove_destination", "the destinations",
        ),
        "marks": Key(
            ":marks", "stream", "marks behind what is waited for: a link that read one has read all before it",
            "set_mark",
            "its own length", "not needed: whoever waits sets another one",
        ),
        "confirmed": Key(
            ":confirmed", "stream", "news for those who wait for sync destinations", "report_sent, downgrade",
            "its own length", "not needed: it only wakes",
        ),
        "sent": Key(
            ":sent:<destination>", "hash",
            "`log <topic>` and `journal <queue>` -> ID up to which the destination has what it is sent; `marked` -> "
            "the mark up to which it has everything; `peer`: its origin; `catalog`: version of what the link carries",
            "report_sent", "remove_destination", "the destination's `received`",
        ),
        "routes": Key(
            ":routes", "hash",
            "topic -> the queues that it feeds, `*` before one of several topics, `* ` before all of one with a key; "
            "queue -> `>` and its publish target",
            "define_topic, define_queue", "never", "topics and queues",
        ),
        "patterns": Key(
            ":patterns", "hash", "subscription -> its pattern of queues", "subscribe", "unsubscribe",
            "the subscriptions",
        ),
        "publishers": Key(
            ":publishers", "hash", "publisher -> sequence, ID, topic of its last message", "publish, logon",
            "forget_publishers", "the logs",
        ),
        "sessions": Key(
            ":sessions", "hash", "publisher that is logged on -> its session, ms of its last sign, its client",
            "logon, confirm_sequence", "logoff, forget_publishers", "its client, which logs on again",
        ),
        "partitions": Key(
            ":partitions", "hash",
            "`<job>/<partition>` of a job that writes in sequence -> epoch, rows recorded in it, their checksum, ms",
            "write_rows", "forget_publishers", "nothing: its loss lets a job that is run again record rows twice",
        ),
        "jobs": Key(
            ":jobs", "hash",
            "job -> its last epoch; the highest partition that wrote in it, or `open` while what was committed is "
            "recorded, or `done`; ms", "write_rows, commit_job, finish_job", "forget_publishers",
            "nothing: its loss lets a job that is run again record rows twice",
        ),
        "manifest": Key(
            ":manifest:<job>", "hash",
            "lane (`<instance>/<partition>`) -> the attempt that counts, its rows, how many of them are recorded",
            "commit_job, record_stage", "finish_job", "nothing: it is the decision",
        ),
        "stage": Key(
            ":stage:<job>:<lane>:<attempt>", "list",
            "rows put aside: before those of each call a head, `<values> <shape> <topic>`", "stage_rows",
            "record_stage, drop_stages, time", "the job, which is run again",
        ),
        "sow": Key(
            ":sow:<topic>", "hash",
            "of a topic with a key: the key's trees, the `format` of its bodies, `life` of a record in ms, `read_to` "
            "where its records come to in the log, `keyless`, entries there without the key",
            "define_topic, publish, catch_up_records, sow_delete, sweep", "define_topic", "the definition and the log",
        ),
        "records": Key(
            ":records:<topic>", "hash",
            "key -> the last message with it: ID, ms when its life is over or 0, kind, other fields, body",
            "publish, catch_up_records, sweep", "sow_delete, sweep, define_topic",
            "the log, as far as it is still there",
        ),
        "ends": Key(
            ":ends:<topic>", "zset", "key of a record whose life ends -> when, ms", "publish, catch_up_records, sweep",
            "publish, sow_delete, sweep, define_topic", "the records",
        ),
        "retention": Key(
            ":retention", "hash",
            "`log <topic>`, `journal <queue>` -> how far a trimming walk came: its place, how many it left standing, "
            "ms when it came to the end or 0, the furthest place of all walks; `pin <topic>` -> what it found needed "
            "first, and by whom; `removed <topic>` -> the greatest ID that was removed; `forgotten <topic>@<origin>` "
            "-> the same of copies, by the origin's ID; `index <topic>` -> up to where its index was looked through",
            "trim_log, trim_journal, index_log", "define_topic", "not needed: a walk begins anew",
        ),
        "holds": Key(
            ":holds:<topic>", "hash",
            "`<kind> <name>` of a replay, destination or action -> the least ID that it needs, until when, ms, or 0",
            "hold_log", "hold_log, trim_log", "its holder, which holds again",
        ),
        "bookmarks": Key(
            ":bookmarks:<subscription>", "hash",
            "up to where a durable subscription has handled everything: `floor`, `at <topic>` -> ID; and what it has "
            "handled behind that: `beyond <topic> <ID>`; of a client with several instances: `of <topic> <origin>` -> "
            "ID, and `had <topic> <origin> <first> <publisher>` -> last, ms of a publisher's numbers that are handled; "
            "with any bookmark store: `session` -> its number, its client",
            "begin_session, save_bookmarks", "save_bookmarks", "nothing: it is the record",
        ),
        "marker": Key(
            ":marker", "string", "nothing: whoever waits for disk or replicas writes it, behind what it waits for",
            "fully durable subscriptions", "never", "not needed",
        ),
        "pins": Key(
            ":pins:<topic>", "zset",
            "single messages that somebody needs: score 0, the ID in the order of refs, a space, `<kind> <name>`",
            "pin_messages", "pin_messages", "its holder, which pins again",
        ),
        "subscriptions": Key(
            ":subscriptions", "zset", "subscription -> heartbeat deadline, ms", "subscribe, heartbeat", "unsubscribe",
            "the subscription hashes",
        ),
        "due": Key(
            ":due", "zset",
            "the timetable: `leases <queue>`, `dispatch <queue>`, `ready <queue> <ref>`, `scheduled <queue> <ref>`, "
            "`rates <queue>`, `expiry <queue>`, `expirations <topic>`, `records <topic>`, `filter <queue> <id>`, "
            "`watch <queue>`, `windows <topic>` -> ms",
            "publish, dispatch, settle, unsubscribe, watch_queue", "sweep",
            "leases, log and definitions; for delays of what came back: nothing, they are not durable",
        ),
        "subscription": Key(
            ":s:<subscription>", "hash",
            "queues, asked, max, leased, client, filter and its tree, `turn <queue>`; `left`: queues left with leases; "
            "`unseen`: elements of its inbox to be looked at while it is replaced; "
            "`again <queue>`: the queue's last token when messages were pushed again; "
            "of one with a bell `bell` and `visit`",
            "subscribe, replace_subscription, dispatch, settle", "unsubscribe", "its client, which subscribes again",
        ),
        "bell": Key(
            ":s:<subscription>:bell", "list", "when its bell rang, ms, until its client has heard it",
            "dispatch", "its client, unsubscribe", "nothing: a client that may have missed one visits the instance",
        ),
        "departed": Key(
            ":departed", "hash", "subscription that ended with leases -> its client, for an hour", "unsubscribe",
            "sweep",
            "not needed: it names who held what came back",
        ),
        "barriers": Key(
            ":s:<subscription>:barriers", "list", "barriers sent last, `<queue> <token> <ref>`", "dispatch",
            "unsubscribe", "nothing: its loss matters only after a lost reply",
        ),
        "inbox": Key(
            ":s:<subscription>:inbox", "list", "pushed, not yet picked up", "dispatch, end_wait", "take, unsubscribe",
            "leases",
        ),
        "expirations": Key(
            ":expirations:<topic>", "zset", "ID of a message with an expiration of its own -> ms when its life is over",
            "publish", "sweep", "the log",
        ),
        "deduplicated": Key(
            ":deduplicated:<topic>", "hash",
            "ID under which a message was published -> ms until when it is known, ID of the message's entry",
            "publish_once", "publish_once, sweep", "nothing: its loss lets a message that is published again be two",
        ),
        "windows": Key(
            ":windows:<topic>", "zset", "the same IDs -> ms until when they are known", "publish_once",
            "publish_once, sweep", "the IDs",
        ),
        "log": Key(
            ":log:<topic>", "stream", "this instance's order of the topic's messages", "publish, anyone", "trim_log",
            "nothing: it is the record",
        ),
        "index": Key(
            ":index:<topic>", "zset",
            "ID of about every thousandth entry of the log -> how many were ever added to it up to there",
            "whatever records, trim_log, index_log", "trim_log", "the log, by index_log",
        ),
        "queue": Key(
            ":q:<queue>", "hash", "compiled definition, counters, the filters' names", "define_queue, dispatch, settle",
            "remove_queue",
            "the definition, the journal",
        ),
        "cursors": Key(
            ":q:<queue>:cursors", "hash", "topic -> last ID read and how many were read", "dispatch", "remove_queue",
            "the journal",
        ),
        "behind": Key(
            ":q:<queue>:behind", "zset",
            "of a queue over several topics: those with something unread -> at most the ms of the first unread ID",
            "publish, scan_foreign_entries", "dispatch", "cursors and logs",
        ),
        "ahead": Key(
            ":q:<queue>:ahead", "hash", "refs settled, scheduled or delivered beyond the cursor -> how",
            "publish, settle, dispatch", "dispatch, sweep", "the journal, the log",
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
        "groups": Key(
            ":q:<queue>:groups", "hash",
            "of a grouped queue: group -> how many of it are leased, may go, wait, failed and hold it; ms when it was "
            "stopped, or 0; where groups take turns, its turn and weight; behind a line feed when it was paused, and "
            "by whom; behind another one its subscription, and until when; behind the last one what of it is listed; "
            "see lua/queues/lib/group_state and group_lists",
            "dispatch, settle, sweep, pause_group", "dispatch, settle, sweep, release_group, pause_group",
            "leases, `grouped`, `pinned`, the log; of what is stopped or paused: nothing",
        ),
        "listed": Key(
            ":q:<queue>:listed", "hash",
            "of a grouped queue: group, NUL, a number -> refs of eight messages of it, in the last one fewer, that "
            "wait unread, up to where the queue's field `listed` says; those before stand in `groups`. What the queue "
            "has read, or has in `ahead`, is passed over; see lua/queues/lib/group_lists",
            "dispatch", "dispatch, drop_group", "log and the definition",
        ),
        "grouped": Key(
            ":q:<queue>:grouped", "zset",
            "of a grouped queue: what waits with a place: group, NUL, `0` of what failed and holds its group, else "
            "`1`, ref; score 0. What `sorted` does not have any more is passed over",
            "dispatch", "dispatch", "log and the definition",
        ),
        "going": Key(
            ":q:<queue>:going", "zset",
            "of a grouped queue: what may go: the first of each group, as many as it has room for; ref, group; score "
            "0. Where groups take turns: one of each; the score is its share of what is leased, then its turn",
            "dispatch, settle, sweep", "dispatch, settle, sweep", "`groups` and `grouped`",
        ),
        "going_of": Key(
            ":q:<queue>:going:<line>", "zset",
            "of a queue with affinity: as `going`, of groups that are bound to a subscription; the line is its ID, and "
            "`+` behind it of groups of which something is leased",
            "dispatch, settle, sweep", "dispatch, settle, sweep, release_group", "`groups` and `grouped`",
        ),
        "lines": Key(
            ":q:<queue>:lines", "zset",
            "of a queue with affinity: subscriptions for which groups wait; score 0, 1 where something is leased of "
            "all these groups",
            "dispatch, settle, sweep", "dispatch, settle, sweep, release_group", "`groups`",
        ),
        "bound": Key(
            ":q:<queue>:bound", "zset",
            "of a queue with affinity: group that is bound to a subscription -> ms until when, if nothing is leased "
            "of it then; see lua/queues/lib/group_bindings",
            "dispatch", "dispatch, settle, sweep, release_group", "`groups`; without these nothing: not durable",
        ),
        "batches": Key(
            ":q:<queue>:batches", "hash",
            "of a grouped queue with batches: group -> the tokens of the first and last message of the batch of it "
            "that is leased, if it has several, then their refs in order, also of those that are settled already",
            "dispatch", "dispatch, settle, sweep", "leases",
        ),
        "turns": Key(
            ":q:<queue>:turns", "zset",
            "of a grouped queue where groups take turns: those of which nothing is left, until the turns of their "
            "round are over; the score is the turn",
            "dispatch, settle, sweep", "dispatch", "nothing: a group that comes again is a new one",
        ),
        "rates": Key(
            ":q:<queue>:rates", "zset",
            "of a queue with rates: `` for its own, or a group -> when its bucket of tokens is full again, in "
            "microseconds since 2026; of one that is full there is none; see lua/queues/lib/rates",
            "dispatch", "sweep", "nothing: a bucket begins full",
        ),
        "later": Key(
            ":q:<queue>:later", "zset",
            "group of which something waits for its rate alone -> when that lets it go, microseconds since 2026",
            "dispatch, settle, sweep", "dispatch, sweep", "`groups` and `rates`",
        ),
        "pinned": Key(
            ":q:<queue>:pinned", "hash", "ref that failed and is not settled -> the group that it holds",
            "settle, sweep", "settle, sweep, release_group", "nothing: not durable, as attempts",
        ),
        "places": Key(
            ":q:<queue>:places", "hash", "ref -> the prefix of its member, for priorities of 2^53 and more",
            "dispatch", "dispatch, settle", "log and priority",
        ),
        "lives": Key(
            ":q:<queue>:lives", "zset",
            "ref -> ms when its life is over: what is scheduled or delayed and, in a queue with priorities, sorted",
            "publish, dispatch, settle", "dispatch, sweep", "the log and the definition",
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
            ":q:<queue>:free:<filter>", "zset",
            "subscriptions with room -> the fairness model's score; behind them those whose bells wait",
            "subscribe, dispatch, settle", "dispatch, unsubscribe", "the subscriptions",
        ),
        "members": Key(
            ":q:<queue>:subscriptions", "set", "the subscriptions of the queue", "subscribe, define_queue",
            "unsubscribe", "the subscriptions",
        ),
        "leases": Key(
            ":q:<queue>:leases", "hash", "ref -> subscription, deadline, token, delivery, length in ms",
            "dispatch, settle, push_again", "settle, sweep", "nothing: a lost lease is a message that is ready again",
        ),
        "runs": Key(
            ":q:<queue>:runs", "zset",
            "leases of messages of one topic that a subscription was given at once: topic, order of the first, its "
            "token, how many, subscription, deadline, length in ms; behind a space where they are no neighbours in "
            "the log; score 0; see lua/queues/lib/lease_runs",
            "take", "settle, sweep, push_again", "nothing: a lost lease is a message that is ready again",
        ),
        "run_refs": Key(
            ":q:<queue>:run_refs", "hash",
            "first token of a run -> its refs, padded to one width; `<token> m` -> a character each, 1 where it is not "
            "leased in the run any more",
            "take, settle, push_again", "settle, sweep, push_again", "nothing: without it a run is of no use",
        ),
        "history": Key(
            ":q:<queue>:history", "hash",
            "`<range> <place in its ring>` -> a sample for charts: ms, entered, settled, depth, age of the oldest",
            "the coordinator's duty `history`", "its own length; remove_queue", "nothing: charts begin anew",
        ),
        "latencies": Key(
            ":q:<queue>:latencies", "hash",
            "`<range> <place in its ring>` -> number of its bucket of time, and histograms of what publish to delivery "
            "and delivery to acknowledgement took, of some messages; `total`: since the queue was defined; see "
            "lua/queues/lib/latency_buckets",
            "heartbeat", "its own length; remove_queue", "nothing: figures begin anew",
        ),
        "progress": Key(
            ":q:<queue>:progress", "hash",
            "ref of a leased message -> token, ms, 0 to 1 and perhaps a text: how far its holder is, as it said last; "
            "only what was reported of; whether there is any: `progress` of the queue",
            "settle", "settle, sweep", "not needed: its holder reports again",
        ),
        "attempts": Key(
            ":q:<queue>:attempts", "hash",
            "ref -> deliveries, cancels, last cause, returns: `<ms>,<cause>,<subscription>,<client>;...`, behind each "
            "`!` and its consumer's reason if there is one; only what came back",
            "settle, sweep", "settle", "nothing: not durable, as in AMPS",
        ),
        "remote": Key(
            ":q:<queue>:remote", "zset", "refs that were read and that another instance owns; score 0",
            "dispatch, grant_messages", "apply_journal", "log, journal, owners",
        ),
        "owners": Key(
            ":q:<queue>:owners", "hash",
            "ref -> owner, epoch, who journaled it; only what was transferred and is not settled",
            "grant_messages, assume_ownership, apply_journal", "settle, trim_log", "the journal",
        ),
        "asked": Key(
            ":q:<queue>:asked", "zset", "ref that its owner was asked for by name -> ms when", "claim_messages",
            "request_messages, apply_journal, trim_log",
            "not needed: it tells how long grants take",
        ),
        "granted": Key(
            ":q:<queue>:granted", "hash",
            "name of an instance that asked -> its origin, the own one, up to where it has heard this journal; then of "
            "each grant behind that the ID in the journal and how many messages",
            "grant_messages", "grant_messages, remove_queue",
            "not needed: without it an instance may be granted its room once more",
        ),
        "journal": Key(
            ":q:<queue>:journal", "stream", "what was settled, one entry a batch", "settle, dispatch", "trim_journal",
            "nothing: it is the record",
        ),
        "definitions": Key(
            ":q:<queue>:definitions", "stream",
            "where the queue begins in its topics, if not at their start, and the filters that it had, each with the "
            "cursors up to which it judged",
            "define_queue, begin_rebuild", "remove_queue", "nothing: it is the record",
        ),
        "rebuilding": Key(
            ":rebuilding", "zset", "queue that is being rebuilt -> ms when somebody else may begin anew",
            "begin_rebuild, rebuild", "end_rebuild", "the queues' hashes",
        ),
        "rebuilt": Key(
            ":q:<queue>:rebuilt", "zset", "what becomes part of `ready` at the end of a rebuild", "rebuild",
            "begin_rebuild, end_rebuild", "log and journal: a rebuild begins anew",
        ),
        "view": Key(
            ":view:<view>", "hash",
            "group, a JSON list -> row, JSON; `state`: the definition whose rows are all there; `made`: the one that "
            "made those there; `pending`: rows being sent; `left_out`: messages whose bodies are more than is read",
            "the coordinator", "the coordinator, remove_view", "the underlying topic",
        ),
        "views": Key(
            ":views", "hash", "view -> definition, JSON", "define_view", "remove_view", "the configuration",
        ),
        "keepers": Key(
            ":keepers", "hash",
            "view -> who keeps it up to date, and until when, ms; `action:<action>` of those with effects outside, "
            "`link <destination>` of links",
            "keep_duty", "remove_view, remove_action, remove_destination", "not needed: any coordinator takes it again",
        ),
        "action": Key(
            ":action:<action>", "hash",
            "of each source `<kind> <name>`, and `<kind> <name> <pattern>` of a pattern: `cursor`, the ID of the last "
            "entry that is done, and `+<events>` if a part of it is; `sequence`, events up to there; `read`, entries. "
            "`counted <place>`: sequence and value of its last increment. `failures`, `done`, `error`",
            "define_action, advance_action, set_event_aside, retry_event, raise_counter, track_matches", "never",
            "the sources and the targets' logs",
        ),
        "failed": Key(
            ":action:<action>:failed", "hash", "events that failed, by number -> revision and the event, JSON",
            "set_event_aside, retry_event", "retry_event", "nothing: it is the record",
        ),
        "retries": Key(
            ":action:<action>:retries", "zset", "number of an event that failed -> ms when to try again",
            "set_event_aside, retry_event", "retry_event", "the failed events",
        ),
        "counters": Key(
            ":counters", "hash", "counter of actions -> its value", "raise_counter", "never",
            "nothing: it is the record",
        ),
        "tracked": Key(
            ":action:<action>:tracked", "hash",
            "`<topic> <key, JSON>` of what matches a condition -> since when, ms, 1 if its time-out was told, ID and "
            "body of the last message",
            "track_matches, emit_overdue", "track_matches, define_action", "the topic's log",
        ),
        "waits": Key(
            ":action:<action>:waits", "zset", "what is tracked and not told yet -> ms when its time is over",
            "track_matches", "emit_overdue, track_matches, define_action", "what is tracked",
        ),
        "overdue": Key(
            ":action:<action>:overdue", "stream", "messages whose time is over", "emit_overdue", "the coordinator",
            "nothing: it is the record",
        ),
        "happenings": Key(
            ":happenings", "stream", "while an action asks for it: who came, went, subscribed; events that were raised",
            "emit_event, subscribe, unsubscribe", "its own length", "nothing: it is the record",
        ),
        "clients": Key(
            ":clients", "hash", "client that came while an action asks for it -> since when, ms",
            "emit_event, subscribe", "emit_event", "not needed: it says whose leaving is told",
        ),
        "deliveries": Key(
            ":q:<queue>:deliveries", "stream",
            "of a recorded queue: refs that were delivered or, with `cause`, came back, perhaps `consumer_reason`; "
            "holder and client of each",
            "dispatch, settle", "its own length", "nothing: it is the record",
        ),
    }
)
#: Fields of hashes and stream entries, `F.<name>` in Lua.
FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        # instance; `registered`: the numbers of the subscriptions that came last, newest first; `logons`: that of the
        # session that did
        "format": "format", "name": "name", "origin": "origin", "catalog": "catalog", "registered": "registered",
        "heard": "heard", "logons": "logons", "group": "group", "label": "label",
        "former": "former",
        # the run ID of the server's process in which the instance was opened first, or last went on behind a
        # loss; and ms below which it gave no number of a delivery or a session since
        "run": "run", "numbers_from": "numbers_from",
        # while a coordinator waits for something to happen: 1, it is to be woken for what is due soon and for what it
        # must do at once; 2: for whatever actions and views read, too
        "resting": "resting",
        # `open <topic>`: version of the catalog and name of the queue that alone read that topic and had an open run,
        # a hint for who publishes there: lua/publishing/lib/open_run_pushes
        # how far an upgrade is, while it lasts: `<part> <cursor>`; the format is `<from>><to>` then
        "upgrade": "upgrade",
        # of an instance that has partitions, and no other keys: how many, and the version of the rule that names them;
        # of a partition: `<name> <number> <how many> <version of the rule>`, and the version of the definitions of all
        # that it has or is given; of the first one: that version, and what is to be so while not all have it
        "partitions": "partitions", "partition": "partition", "definitions": "definitions", "intent": "intent",
        # bytes of the largest body that scripts read, where the instance says it
        "expression_limit": "expression_limit",
        # 1 where a first publish makes no topic; absent elsewhere
        "defined_only": "defined_only",
        # of the instance: ms and version of the catalog since when its queues are held; of a queue that is held: up to
        # which token leases are void
        "recovering": "recovering",
        # queue; `skipped`: of the numbers up to `token`, how many were never given
        "compiled": "compiled", "target": "target", "token": "token", "skipped": "skipped",
        "delayed": "delayed", "passing": "pass",
        "acknowledged": "acknowledged", "expired": "expired", "returned": "returned", "missing": "missing",
        "sorted": "sorted", "watched": "watched", "filtered": "filtered", "barrier": "barrier",
        "policy": "policy", "scheduled": "scheduled", "evicted": "evicted", "aged": "aged",
        "recorded": "recorded", "progress": "progress",
        # how many messages are leased in runs
        "in_runs": "in_runs",
        # messages that were pushed one by one, and their leases: lua/queues/lib/open_run
        "open_run": "open_run",
        "paused": "paused", "rebuild": "rebuild",
        # owner: `*`, whoever a message was published at; an instance's name; absent of a queue of this instance alone.
        # deferral: ms, absent where it is V.deferred_period
        "owner": "owner", "domain": "domain", "deferral": "deferral",
        # of a grouped queue: how many of a group may be leased, for how long a delivery binds it, if it does, what a
        # failure does to the others of it, and by what groups take turns, if they do. round: their turns, see
        # lua/queues/lib/group_turns
        "grouping": "grouping", "round": "round",
        # of a grouped queue: up to where its log is looked through though its cursor is before that, and the number of
        # times that this began; see the include named listing
        "listed": "listed", "listings": "listings",
        # intervals in microseconds and bursts of the rates of a queue and of each of its groups: lua/queues/lib/queue
        "rated": "rated",
        # filters
        "grouped_by": "group", "weighed_by": "weight",
        "entry": "entry", "priority": "priority", "kept": "kept", "resort": "resort", "ring": "ring",
        # subscription
        "queues": "queues", "asked": "asked", "max": "max", "leased": "leased", "client": "client",
        "filter": "filter", "tree": "tree", "wish": "wish", "left": "left",
        # while a wish is carried out in several calls: how many elements of its inbox are still to be looked at
        "unseen": "unseen",
        # of one with a bell, which has no room but while its client takes: 1 while the bell waits for messages, else
        # 0; the number of its client's last visit, so that a late one lends it nothing
        "bell": "bell", "visit": "visit",
        # log entries; a foreign entry has none of these
        "body": "b", "headers": "h", "publisher": "p", "sequence": "n",
        "expiration": "e", "due": "d", "addressed": "q", "routing_key": "r",
        "in_group": "g",
        # with a delivered message, where its entry does not say its group
        "told_group": "ampsq:group",
        # with a delivered message of a batch of its group: the token of the first one
        "told_batch": "ampsq:batch",
        # with a delivered message whose group was not bound to its subscription before: 1
        "told_begins": "ampsq:begins",
        # ends of records, in the log
        "ended": "o", "record": "k",
        # copies of other instances' entries, in logs and journals; `here`: an ID of this instance
        "source": "s", "path": "v", "here": "here",
        # the bookmark of a publisher's message before, where that is of another origin
        "after": "a",
        # state of the world
        "paths": "paths", "life": "life", "read_to": "read_to", "keyless": "keyless",
        # definitions
        "cursors": "cursors",
        # journal entries
        "how": "how", "reason": "reason", "refs": "refs", "attempts": "attempts", "by": "by", "returns": "history",
        # what whoever settled a message says of it; of deliveries, too
        "consumer_reason": "consumer_reason",
        # transfers
        # told of a message before that came: behind what its origin journaled later
        "late": "late",
        "epochs": "epochs", "usual": "usual", "transferred_in": "transferred_in",
        "transferred_out": "transferred_out", "proxied": "proxied",
        # what links carry
        "marked": "marked", "peer": "peer",
        # requests; `shares`, and `rooms` where messages are named: owners, and for how many messages of each there is
        # room. `heard`: up to where each origin's journal is known. `place`: up to where an owner has offered. Of a
        # queue: `answered`, the last message that was granted, when, since when grants came one upon the other, how
        # many messages they brought, how many ms one takes; `requested`: when it was asked last, since when without a
        # pause, for how many, and how many of these are ahead; `assumed`: up to where was looked for messages of
        # owners out of reach
        "bookmarks": "bookmarks", "rooms": "rooms", "answered": "answered", "shares": "shares", "wishes": "wishes",
        "place": "place", "to": "to", "offered": "offered", "requested": "requested", "assumed": "assumed",
        # deliveries
        "cause": "cause",
        # action
        "cursor": "cursor", "sequence_of": "sequence", "read": "read", "counted": "counted", "done": "done",
        "failures": "failures", "error": "error",
        # happenings and what is overdue
        "what": "what", "topic": "topic", "data": "data", "options": "options", "since": "since", "key": "key",
        "id": "id",
        # bookmarks
        "session": "session",
    }
)
# fmt: on
#: Order of the numbers in a queue's `compiled` field; `ratio` and `turn` are the weights of the fairness score. Behind
#: them stands the queue's topic, if it can have only one: such a queue needs no `behind`; then, behind a colon,
#: the message type where it is not JSON, as `MessageType.word` has it.
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
#: Order of the numbers in a queue's `policy` field, which is absent where all have these values: `life` and delays in
#: ms; `model`: 0 default, 1 queue, 2 latest, 3 earliest; multiplier and jitter in thousandths.
POLICY: Final[Mapping[str, int]] = MappingProxyType(
    {"life": 0, "model": 0, "redelivery": 0, "multiplier": 1000, "longest": 0, "jitter": 0}
)
#: Words and limits that scripts and Python share, `V.<name>` in Lua.
VALUES: Final[Mapping[str, str | int]] = MappingProxyType(
    {
        **{event.value: event.value for event in MessageEvent},
        "forced_expire": "forced_expire",
        "max_deliveries": "max_deliveries",
        "max_cancels": "max_cancels",
        "time_limit": "time_limit",
        "ring": "ring",
        "returns_kept": RETURNS_KEPT,
        "returns_bytes": RETURNS_BYTES,
        "redriven": "redriven",
        "none": "none",
        "no_room": NO_ROOM,
        "remote": MessageState.REMOTE.value,
        "everywhere": "*",
        "requests": REQUESTS,
        "marks": MARKS,
        "ask_again": ASK_AGAIN,
        "asked_lately": ASKED_LATELY,
        "named_kept": NAMED_KEPT,
        "owners_looked": OWNERS_LOOKED,
        "wishes": WISHES,
        "usual_least": USUAL_LEAST,
        "usual_most": USUAL_MOST,
        "deferred_period": DEFERRED_PERIOD,
        "retention": "retention",
        # Why a reader is offlined or disconnected: the elements of a transport.
        "message_memory_limit": "message_memory_limit",
        "message_disk_limit": "message_disk_limit",
        "client_max_capacity": "client_max_capacity",
        "client_message_age_limit": "client_message_age_limit",
        "publisher_age": PUBLISHER_AGE,
        "trim_refs": TRIM_REFS,
        "index_step": INDEX_STEP,
        "first_id": "0-0",
        "last_id": "18446744073709551615-18446744073709551615",
        "deleted": "deleted",
        # The topic of a queue that is being rebuilt, and whom an entry is for that no queue takes: no name can be that.
        "nowhere": "~",
        "end_of_wait": END_OF_WAIT,
        "format": str(FORMAT),
        "format_of_groups": str(FORMAT_OF_GROUPS),
        "batch": BATCH,
        "returned": RETURNED,
        "bytes": BYTES,
        "body_by_ref": BODY_BY_REF,
        "small_body": SMALL_BODY,
        "expression_limit": EXPRESSION_LIMIT,
        "sort_work": SORT_WORK,
        "scattered": SCATTERED,
        "open_run": OPEN_RUN,
        "key_work": KEY_WORK,
        "max_filters": MAX_FILTERS,
        "keep_filter": KEEP_FILTER,
        "events": EVENTS,
        "deliveries": DELIVERIES,
        "happenings": HAPPENINGS,
        "history_buckets": HISTORY_BUCKETS,
        "history_ranges": " ".join(f"{name}={length}" for name, length in HISTORY_RANGES.items()),
        "latency_intervals": len(BOUNDS) + 1,
        "most_failed": FAILED,
        "wanted": WANTED,
        "barriers_kept": BARRIERS_KEPT,
        "bell_score": str(BELL_SCORE),
        "bells_rung": BELLS_RUNG,
        "first_look": FIRST_LOOK,
        "due_period": DUE_PERIOD,
        "deduplication_ids": DEDUPLICATION_IDS,
        "pass_again": PASS_AGAIN,
        "anchor": LEASES_ANCHOR,
        "hold": "hold",
        "pass": "pass",
        "stop": "stop",
        "first": "first",
        "round_robin": "round_robin",
        "longest_group": LONGEST_GROUP,
        # what is listed of a grouped queue: all of it is unread; nothing more is to be listed; some was settled
        "listing_whole": "0",
        "listing_ends": "1",
        "listing_broken": "2",
        "listed_piece": LISTED_PIECE,
        "listing_walk": LISTING_WALK,
        "noted_least": NOTED_LEAST,
        "noted_more": NOTED_MORE,
        "most_weight": MOST_WEIGHT,
        "rate_step": RATE_STEP,
        "run_over": "run_over",
        "counted_since": COUNTED_SINCE,
        "lost_at_most": LOST_AT_MOST,
        "lost_cycle": LOST_CYCLE,
        "wake": WAKE,
        "rest_horizon": REST_HORIZON,
        "long_rest_horizon": LONG_REST_HORIZON,
    }
)


def slot_key(instance: str) -> str:
    """The key that scripts declare, in the slot of all keys of the instance; there is never one of that name."""
    return "{" + instance + "}"


def key(instance: str, name: str, *parameters: str) -> str:
    """Spell one key of an instance.

    Args:
        instance: the instance's name; it is the hash tag, so all keys of an instance share a slot.
        name: a name of `KEYS`.
        parameters: what replaces the ``<...>`` of the key's suffix, in order.

    Raises:
        KeyError: no key has this name.
        ValueError: the number of parameters is wrong.
        DefinitionError: one of them is no text.
    """
    parts = KEYS[name].suffix.replace(">", "<").split("<")
    if len(parts) // 2 != len(parameters):
        raise ValueError(f"key {name!r} takes {len(parts) // 2} parameters, got {len(parameters)}")
    parts[1::2] = parameters
    try:
        return slot_key(instance) + "".join(parts)
    except TypeError as error:
        wrong = next(each for each in parameters if not isinstance(each, str))
        raise DefinitionError(f"{shown(wrong)} is not a name; allowed: {NAME_ALLOWED}") from error
