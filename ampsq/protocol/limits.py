"""Limits and periods of scripts and of those who call them: how much one call does, how much is kept and how long.

Scripts get them folded in, as `V.<name>`; see `ampsq.protocol.schema.VALUES`.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "ASKED_LATELY",
    "ASK_AGAIN",
    "BARRIERS_KEPT",
    "BATCH",
    "BELLS_RUNG",
    "BELL_SCORE",
    "BODY_BY_REF",
    "BYTES",
    "DEDUPLICATION_IDS",
    "DEDUPLICATION_ID_BYTES",
    "DEFERRED_PERIOD",
    "DELIVERIES",
    "DUE_PERIOD",
    "EVENTS",
    "FAILED",
    "FIRST_LOOK",
    "HAPPENINGS",
    "HISTORY_BUCKETS",
    "HISTORY_RANGES",
    "INDEX_STEP",
    "KEEP_FILTER",
    "KEY_WORK",
    "LISTED_PIECE",
    "LISTING_WALK",
    "LONGEST_GROUP",
    "LONG_REST_HORIZON",
    "LOST_AT_MOST",
    "LOST_CYCLE",
    "MARKS",
    "MAX_FILTERS",
    "NAMED_KEPT",
    "NOTED_LEAST",
    "NOTED_MORE",
    "NO_ROOM",
    "OPEN_RUN",
    "OWNERS_LOOKED",
    "PASS_AGAIN",
    "PUBLISHER_AGE",
    "RATE_STEP",
    "REASON_LENGTH",
    "REQUESTS",
    "REST_HORIZON",
    "RETURNED",
    "RETURNS_BYTES",
    "RETURNS_KEPT",
    "SCATTERED",
    "SORT_WORK",
    "TRIM_REFS",
    "USUAL_LEAST",
    "USUAL_MOST",
    "WANTED",
    "WISHES",
]

#: Most messages that one script call moves. 500 plain ones cost 1 to 4 ms of server time.
BATCH: Final = 500
#: Most messages whose leases a sweep looks at in one call to end them, and that the end of a subscription takes out of
#: its inbox: what comes back costs 15 to 25 us, several times what is handed over.
RETURNED: Final = 200
#: Messages of one piece of what is listed of a group; the group's text has those of two at most. More make fewer fields
#: and longer texts, which Lua makes anew with each message of the group that is given.
LISTED_PIECE: Final = 8
#: Entries that a queue with groups notes beyond its cursor before the cursor follows, and how many more after it could
#: not; and over how many it goes in one call: each is read once more, and a call notes fewer.
NOTED_LEAST: Final = 1_000
NOTED_MORE: Final = 250
LISTING_WALK: Final = 300
#: Most body bytes that one script call reads for delivery: large bodies make smaller batches, never longer calls.
BYTES: Final = 1_000_000
#: Most entries that a call reads of a log at first, where those before were small: who knows what these are.
FIRST_LOOK: Final = 64
#: A body larger than this is pushed as a reference and read from the log at pick-up, so inboxes stay small.
BODY_BY_REF: Final = 16_384
#: Work that one script call spends on sorting messages by filters and priorities: a unit is about 8 us of server time.
SORT_WORK: Final = 500
#: The same for reading the keys of messages, in some 0.05 us: what comes with a call, and a step of reading a log.
KEY_WORK: Final = 80_000
#: Bytes of a group's name; of a longer one its checksum stands for it.
LONGEST_GROUP: Final = 255
#: The largest weight of a group.
MOST_WEIGHT: Final = 1_000
#: Most messages that a queue leases in runs while it makes scattered ones: who looks for one of these reads them all.
SCATTERED: Final = 2_000
#: Most messages of an open run, whose one text is written anew with each push.
OPEN_RUN: Final = 16
#: Microseconds within which the tokens of a rate that come one after the other are waited for together.
RATE_STEP: Final = 10_000
#: Most distinct filters of a queue's subscriptions.
MAX_FILTERS: Final = 32
#: Milliseconds for which a filter's index is kept after its last subscription is gone.
KEEP_FILTER: Final = 60_000
#: About how many entries of a watched queue's `events` are kept; whoever falls further behind looks at everything anew.
EVENTS: Final = 10_000
#: Returns that are told of a message that came back, the last ones.
RETURNS_KEPT: Final = 20
#: Bytes that its returns take at most where consumers gave reasons; the last reason stays, however long.
RETURNS_BYTES: Final = 2_000
#: Deduplication IDs of one topic that are known at a time, and bytes of one.
DEDUPLICATION_IDS: Final = 1_000_000
DEDUPLICATION_ID_BYTES: Final = 256
#: Characters of a reason that a consumer gives.
REASON_LENGTH: Final = 500
#: About how many entries of a recorded queue's `deliveries` are kept; an entry is a batch.
DELIVERIES: Final = 100_000
#: About how many `happenings` are kept: an action that falls further behind misses some.
HAPPENINGS: Final = 10_000
#: Buckets of time of each range over which is kept how a queue was.
HISTORY_BUCKETS: Final = 60
#: Range, as people call it -> ms of each of its buckets.
HISTORY_RANGES: Final[Mapping[str, int]] = MappingProxyType(
    {name: minutes * 60_000 // HISTORY_BUCKETS for name, minutes in (("15m", 15), ("6h", 360), ("7d", 10_080))}
)
#: Most events of one action that are set aside; while there are so many, the action waits where it fails.
FAILED: Final = 10_000
#: Barriers that a subscription was sent and that are pushed again after a call whose outcome is unknown.
BARRIERS_KEPT: Final = 64
#: Score among the free subscriptions of those whose bells wait: behind all that have room, whose scores are tokens at
#: most.
BELL_SCORE: Final = 2**60
#: Most bells that one call rings.
BELLS_RUNG: Final = 64
#: Most names that are asked for at once by those who may not define them.
WANTED: Final = 1_000
#: Milliseconds whose changes a server loses at most with its power: 2,000 with `appendfsync everysec`, and what its
#: disk is late.
LOST_AT_MOST: Final = 15_000
#: Milliseconds, about 70 minutes, within which losses under a clock that is set back are told apart by their times.
LOST_CYCLE: Final = 2**22
#: Least milliseconds between two lease passes over one queue.
DUE_PERIOD: Final = 100
#: Milliseconds until the next lease pass over a queue whose leases never lapse, while it has any.
PASS_AGAIN: Final = 60_000
#: Milliseconds after its last message for which a publisher's sequence is remembered: seven days.
PUBLISHER_AGE: Final = 604_800_000
#: Entries of a log from one point of its index to the next, about.
INDEX_STEP: Final = 1_000
#: Refs that one step of trimming a journal, or of looking at what an action has not handled, reads.
TRIM_REFS: Final = 2_000
#: About how many requests for messages are kept; what is lost of them is asked for again.
REQUESTS: Final = 1_000
#: Milliseconds: what is due sooner than this from now on wakes a coordinator that rests, which else looks each second.
REST_HORIZON: Final = 1_500
#: The same of one that rests long, which looks each twenty seconds.
LONG_REST_HORIZON: Final = 23_000
#: About how many marks, and news of them, are kept: only the last ones are read.
MARKS: Final = 100
#: Milliseconds after which what nobody answered is asked for again: so soon is given what an owner can deliver no more.
ASK_AGAIN: Final = 150
#: Wishes of one request, at most: rooms of subscriptions with one filter each; with more, they take turns.
WISHES: Final = 16
#: Of so many messages owned elsewhere a request looks who owns them.
OWNERS_LOOKED: Final = 32
#: Milliseconds for which is known when a message was named to its owner.
NAMED_KEPT: Final = 10_000
#: Milliseconds after which the filter of another instance gives its place to one that is asked with now.
ASKED_LATELY: Final = 10_000
#: Least milliseconds that a message was here before it is asked for, however fast its owner usually is.
USUAL_LEAST: Final = 20
#: Most milliseconds of the same, however slow its owner usually is.
USUAL_MOST: Final = 400
#: Milliseconds for which what is told of a message waits for it: a day, as in AMPS, unless its queue says otherwise.
DEFERRED_PERIOD: Final = 86_400_000
#: The `backlog` of a paused queue: no number of leases leaves room in it, where 0 is no limit.
NO_ROOM: Final = 2**53 - 1
