"""Snapshot of a message by the script `explain`, and the reason that follows from it."""
# Long: one table of the reasons for which a message waits, and what each of them is read from.

from __future__ import annotations

import json
from collections import Counter
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.base.bookmarks import Bookmark, parse_ref
from ampsq.definitions.stored import read_stored_queue
from ampsq.expressions.unparse import show
from ampsq.protocol.reads.journals import MessageAttempts
from ampsq.protocol.transitions import MessageState
from ampsq.queues.returns import last_reason, read_report, read_returns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ampsq.protocol.reads.journals import QueueEntry
    from ampsq.queues.returns import CameBack, HolderReport

__all__ = [
    "ABSENT",
    "EMPTY",
    "ExplainedSubscription",
    "Filter",
    "JournalFinding",
    "Snapshot",
    "client_of",
    "filter_of",
    "journal_finding",
    "settled_reason",
    "state_of",
]

#: What is of no state: a message that the queue does not have, and the head of a queue where nothing waits.
ABSENT: Final = "absent"
EMPTY: Final = "empty"

_HOW: Final[Mapping[str, str]] = MappingProxyType({"barrier": "barrier_sent"})


class JournalFinding(NamedTuple):
    """The journal's entry on a message.

    Attributes:
        how: the event; "" when it was not found.
        why: the reason of an expiry.
        at: when, ms; if it was not found, the time of the earliest entry looked at, 0 if there was none.
        deliveries, cancels: of a message that expired.
        consumer_reason: what a consumer said of it, last.
        whole: everything was looked at, and nothing was trimmed.
        ended: everything was looked at.
    """

    how: str = ""
    why: str = ""
    at: int = 0
    deliveries: int = 0
    cancels: int = 0
    consumer_reason: str = ""
    whole: bool = False
    ended: bool = True


def journal_finding(entry: QueueEntry, number: int) -> JournalFinding:
    """One message's part of an entry of the journal."""
    attempts = entry.attempts_of(number) or MessageAttempts(0, 0)
    said = entry.consumer_reason or last_reason(read_returns(entry.returns_of(number)))
    return JournalFinding(entry.how, entry.reason, entry.milliseconds, *attempts, said)


class ExplainedSubscription(NamedTuple):
    """One subscription of the queue.

    Attributes:
        id: its name.
        client: its client's name.
        leased: how many unacknowledged messages it has.
        max: how many it may have.
        queues: over how many queues.
        filter: the name of its filter.
        matches: whether the message matches that.
        silent: its client's life sign is overdue.
        has_bell: it is a part of one over several instances, and `max` is how many it may have in all of them.
    """

    id: str
    client: str
    leased: int
    max: int
    queues: int
    filter: str
    matches: bool
    silent: bool
    has_bell: bool = False


class Filter(NamedTuple):
    """One filter of the queue's subscriptions.

    Attributes:
        matches: whether the message matches it.
        free: how many of its subscriptions have room.
        building: its index is being built.
        before: how many messages come before this one in its index; -1 where it has no place there.
        text: the filter.
    """

    matches: bool
    free: int
    building: bool
    before: int
    text: str | None


def client_of(text: str) -> str:
    """A client's name without the number of its request."""
    return text.rpartition("/")[0] or text


def filter_of(tree: str) -> str:
    """A filter's text, of its tree as JSON."""
    return show(json.loads(tree))


class Snapshot:
    """The reply of the script `explain`.

    Attributes:
        found: what the journal says, once it was searched.
        attended: whether a coordinator is at work; None where nobody looked.
        next_due: when the first delayed or scheduled message of an empty queue is due, ms; 0 where nobody looked. If
            that is not exact, none is due before.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]], *, is_head: bool) -> None:
        self._rows: dict[str, list[str]] = {}
        for name, value in pairs:
            self._rows.setdefault(name, []).append(value)
        self._names = dict(row.split(" ", 1) for row in self._rows.get("name", ()))
        self.is_head = is_head
        self.found = JournalFinding()
        self.attended: bool | None = None
        self.next_due = 0
        self.next_due_is_exact = True
        self.where = self.text("where")
        self.ref = self.text("ref")
        self.now = self.number("now")
        self.definition = read_stored_queue(self.text("definition"))

    def text(self, name: str) -> str:
        """A fact; "" where it was not told."""
        return self._rows.get(name, [""])[0]

    def number(self, name: str) -> int:
        """A fact that is a number; 0 where it was not told."""
        return int(float(self.text(name) or 0))

    def flag(self, name: str) -> bool | None:
        """A fact that is yes or no; None where it was not told."""
        return {"": None, "0": False}.get(self.text(name), True)

    def bookmark_of(self, ref: str) -> Bookmark:
        """The bookmark of the message that was looked at, or of the barrier that it is about."""
        return Bookmark(self._names[ref])

    @property
    def bookmark(self) -> Bookmark | None:
        """The message that was looked at."""
        return self.bookmark_of(self.ref) if self.ref else None

    @property
    def topic(self) -> str:
        """Topic of the message."""
        return parse_ref(self.ref)[0]

    @property
    def milliseconds(self) -> int:
        """The first part of its ID."""
        return int(parse_ref(self.ref)[1].split("-")[0])

    @property
    def recorded(self) -> bool:
        """Return whether the log has it."""
        return bool(self.flag("recorded"))

    @property
    def is_shared(self) -> bool:
        """Return whether other instances may own messages of the queue."""
        return bool(self.text("remote"))

    @property
    def once(self) -> bool:
        """Return whether the queue is at-most-once."""
        return self.definition.semantics == "at-most-once"

    @property
    def report(self) -> HolderReport | None:
        """The holder's last progress report; None where the holder sent none."""
        return read_report(self.text("progress")) if self.text("progress") else None

    @property
    def lease(self) -> tuple[str, int, int]:
        """Holder, number of the delivery, deadline or 0."""
        holder, delivery, deadline = self.text("lease").split(" ")
        return holder, int(delivery), int(deadline)

    @property
    def attempts(self) -> tuple[int, int, str] | None:
        """Deliveries, cancels and the last reason, of a message that came back."""
        if not self.text("attempts"):
            return None
        deliveries, cancels, cause = self.text("attempts").split(" ")[:3]
        return int(deliveries), int(cancels), cause

    @cached_property
    def returns(self) -> list[CameBack]:
        """Returns of the message to the queue, one by one, as far as they are known."""
        return read_returns((*self.text("attempts").split(" "), "", "", "", "")[3])

    @property
    def priority(self) -> int | None:
        """Priority of the message, read as the queue reads it; None for the lowest."""
        score, prefix = self.text("priority").split(" ")
        # The lowest bits of a large priority stand in the member: see lua/expressions/lib/expression.lua.
        low = 2047 - int(prefix[1:], 16) if prefix else 0
        return None if float(score) > 0 else int(-float(score)) + low

    @cached_property
    def subscriptions(self) -> list[ExplainedSubscription]:
        """The subscriptions that were looked at."""
        out = []
        for row in self._rows.get("subscription", ()):
            name, leased, most, queues, silent, matches, filter_id, client = row.split(" ", 7)
            flags, room = (matches == "1", silent == "1", most.endswith("b")), int(most.rstrip("b"))
            out.append(
                ExplainedSubscription(name, client_of(client), int(leased), room, int(queues), filter_id, *flags)
            )
        return out

    @cached_property
    def filters(self) -> dict[str, Filter]:
        """The filters of all subscriptions, those that take everything first."""
        out = {}
        for row in self._rows.get("filter", ()):
            name, matches, free, building, before, tree = row.split(" ", 5)
            text = filter_of(tree) if tree else None
            out[name] = Filter(matches == "1", int(free), building == "1", int(before), text)
        return out

    @cached_property
    def holders(self) -> Counter[str]:
        """Clients, and how many of the first hundred leases they have."""
        counts: Counter[str] = Counter()
        for row in self._rows.get("holder", ()):
            name, count, client = row.split(" ", 2)
            counts[f"{name} of {client_of(client)}" if client else f"{name}, which has ended"] += int(count)
        return counts

    @cached_property
    def free_filters(self) -> list[Filter]:
        """The filters that the message matches and whose subscriptions have room."""
        return [each for each in self.filters.values() if each.matches and each.free]

    @property
    def free(self) -> list[ExplainedSubscription]:
        """The subscriptions that could get it now, of those looked at."""
        return [each for each in self.subscriptions if each.matches and each.leased < each.max]

    @property
    def room(self) -> int:
        """Number of messages that those could get."""
        room = sum(each.max - each.leased for each in self.free)
        most = self.definition.max_backlog
        return room if most is None else min(room, most - self.number("leased"))

    @property
    def before(self) -> int:
        """Number of messages before it, for whoever could get it if there is somebody."""
        if self.is_in_turn:
            return self.number("group_line") + self.number("group_before")
        ranks = [each.before for each in self.free_filters if each.before >= 0]
        return min(ranks) if ranks and self.where == "sorted" else self.number("before")

    @property
    def active(self) -> int:
        """Number of messages that count toward `target_queue_depth`."""
        return sum(map(self.number, ("ready", "sorted", "delayed"))) + (0 if self.once else self.number("leased"))

    @property
    def group_holders(self) -> list[tuple[str, int]]:
        """Holders of messages of its group, and since when, ms; of the first leases."""
        found = []
        for row in self._rows.get("group_holder", ()):
            name, since, client = row.split(" ", 2)
            found.append((f"{name} of {client_of(client)}" if client else f"{name}, which has ended", int(since)))
        return found

    @property
    def group_bound(self) -> tuple[str, int] | None:
        """The subscription that its group is bound to, and until when, ms; None: it is bound to none."""
        row = self.text("group_bound")
        if not row:
            return None
        name, until, client = row.split(" ", 2)
        return f"{name} of {client_of(client)}" if client else f"{name}, which has ended", int(until)

    # -- the reason

    def reason(self) -> str:
        """Return the one of `REASONS` that holds; of what is settled, the journal knows."""
        match self.where:
            case "":
                return "other_topic" if self.ref else EMPTY
            case "leased":
                return self._leased()
            case "delayed" | "scheduled":
                return self._later()
            case MessageState.REMOTE:
                return "owned_elsewhere"
            case "settled":
                return "acknowledged"
        return self._unleased()

    def _unleased(self) -> str:
        if self.where == "waiting" and self.is_for_another:
            return "addressed_elsewhere"
        if self.recorded and 0 < self.number("ends") <= self.now:
            return "over"
        if self.where in ("held", "waiting") and (self._is_barrier or self.text("barrier")):
            return self._barrier()
        return next(reason for reason, holds in _WAITING if holds(self))

    def _later(self) -> str:
        if self.number("due") > self.now:
            return self.where
        return "delay_over" if self.where == "delayed" else "schedule_over"

    @property
    def is_for_another(self) -> bool:
        """Return whether it is in the log for another queue alone."""
        return self.text("addressed") not in ("", self.definition.name)

    def _leased(self) -> str:
        _, _, deadline = self.lease
        if not self.text("client"):
            return "holder_gone"
        if self.once:
            return "unacknowledged"
        return "lapsed" if 0 < deadline <= self.now else "leased"

    @property
    def _is_barrier(self) -> bool:
        if self.where == "held":
            return self.ref == self.text("barrier")
        return self.where == "waiting" and bool(self.flag("is_barrier")) and not self.text("barrier")

    def _barrier(self) -> str:
        if not self.recorded:
            return "removed" if self.where == "held" else "no_message"
        if self.where == "waiting" and self.flag("enters") is False:
            return "kept_out"
        if not self._is_barrier:
            return "behind_barrier"
        if any(map(self.number, ("leased", "delayed", "before"))):
            return "barrier"
        return "barrier_next" if self.number("subscriptions") else "barrier_unsubscribed"

    def beyond_depth(self) -> bool:
        """Return whether it is unread because enough is active."""
        depth = self.definition.target_queue_depth
        if depth is None or self.where != "waiting":
            return False
        unread_before = self.number("before") - sum(map(self.number, ("ready", "sorted", "held")))
        return unread_before >= depth - self.active

    def unsorted(self) -> int:
        """Return the number of messages without a place yet in a queue that gives nothing before all have one."""
        is_read_first = self.definition.priority or self.takes_turns
        return self.number("unread") + self.number("ready") if is_read_first else 0

    @property
    def has_no_rank(self) -> bool:
        """Return whether nobody knows yet what comes before it: it gets its place when everything is read."""
        return self.where != "sorted" and self.unsorted() > 0

    @property
    def takes_turns(self) -> bool:
        """Return whether the groups of the queue take turns."""
        return self.definition.group_choice not in (None, "first")

    @property
    def is_in_turn(self) -> bool:
        """Return whether it is of a group that has its turn among others."""
        return self.takes_turns and bool(self.text("group")) and self.where == "sorted"


#: What keeps a message that waits, in the order in which one hides the other.
_WAITING: Final[Sequence[tuple[str, Callable[[Snapshot], object]]]] = (
    ("no_message", lambda snapshot: not snapshot.recorded and snapshot.where == "waiting"),
    ("removed", lambda snapshot: not snapshot.recorded),
    ("kept_out", lambda snapshot: snapshot.where == "waiting" and snapshot.flag("enters") is False),
    ("rebuilding", lambda snapshot: snapshot.where == "waiting" and snapshot.flag("paused")),
    ("recovering", lambda snapshot: snapshot.flag("recovering")),
    ("queue_paused", lambda snapshot: snapshot.definition.paused),
    ("beyond_depth", Snapshot.beyond_depth),
    ("no_subscription", lambda snapshot: not snapshot.number("subscriptions")),
    ("queue_full", lambda snapshot: 0 < (snapshot.definition.max_backlog or 0) <= snapshot.number("leased")),
    ("group_paused", lambda snapshot: snapshot.number("group_paused")),
    ("group_stopped", lambda snapshot: snapshot.number("group_stopped")),
    ("group_held", lambda snapshot: snapshot.number("group_failed") and not snapshot.flag("group_pinned")),
    ("group_rated", lambda snapshot: snapshot.number("group_rate_wait")),
    ("group_full", lambda snapshot: snapshot.text("group") and not snapshot.flag("group_has_place")),
    ("group_bound", lambda snapshot: snapshot.flag("group_bound_full")),
    (
        "no_filter_matches",
        lambda snapshot: not snapshot.free_filters and not any(each.matches for each in snapshot.subscriptions),
    ),
    (
        "bell_rang",
        lambda snapshot: (
            not snapshot.free_filters and any(each.matches and each.has_bell for each in snapshot.subscriptions)
        ),
    ),
    (
        "backlogs_full",
        lambda snapshot: not snapshot.free_filters and all(each.matches for each in snapshot.subscriptions),
    ),
    ("matching_full", lambda snapshot: not snapshot.free_filters),
    ("rated", lambda snapshot: snapshot.number("rate_wait")),
    ("resorting", lambda snapshot: snapshot.flag("resort")),
    ("sorting", Snapshot.unsorted),
    ("indexing", lambda snapshot: all(each.building for each in snapshot.free_filters)),
    ("in_line", lambda snapshot: snapshot.before >= snapshot.room and snapshot.free),
    ("next", lambda _: True),
)


#: What a settled message is that the journal does not tell of, in the order in which one hides the other.
_SETTLED: Final[Sequence[tuple[str, Callable[[Snapshot, JournalFinding], object]]]] = (
    ("before_start", lambda snapshot, _: snapshot.flag("outside")),
    ("addressed_elsewhere", lambda snapshot, _: snapshot.is_for_another),
    ("unfound", lambda _, found: not found.ended),
    ("kept_out", lambda snapshot, _: snapshot.flag("enters") is False),
    ("no_message", lambda snapshot, found: found.whole and not snapshot.recorded),
    (
        "kept_out_before",
        lambda snapshot, found: found.whole and snapshot.number("filtered") and not snapshot.text("ahead"),
    ),
    ("beyond_journal", lambda *_: True),
)


_ABSENT: Final = (
    "kept_out", "kept_out_before", "other_topic", "no_message", "addressed_elsewhere", "before_start", "not_here",
)  # fmt: skip


def settled_reason(snapshot: Snapshot) -> str:
    """The reason of a message that was read and is nowhere in the queue any more."""
    found = snapshot.found
    if found.how:
        return _HOW.get(found.how, found.how)
    return next(reason for reason, holds in _SETTLED if holds(snapshot, found))


def state_of(snapshot: Snapshot, reason: str) -> str:
    """The word for where it is: of `MessageState`, `ABSENT` or `EMPTY`."""
    if reason == EMPTY:
        return EMPTY
    if reason in _ABSENT:
        return ABSENT
    return MessageState.READY if snapshot.where == "sorted" else MessageState(snapshot.where)
