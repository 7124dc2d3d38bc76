"""Explanation of a message's state: one look at the queue, at the journal for settled ones, and one plain sentence.

The script `explain` gathers facts and changes nothing. `ampsq.queues.explain_snapshot` chooses one reason among
`REASONS`, in the order in which one thing hides another: what stands first has to end before what stands behind it
matters. The words are made in `ampsq.queues.explain_texts`, the same as plain values in
`ampsq.queues.explain_snapshot`. All of it is flows.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from ampsq.base.values import check_text
from ampsq.catalog.suggestions import with_suggestions
from ampsq.protocol.calls import browse as browse_calls
from ampsq.protocol.reads.instance import is_attended
from ampsq.protocol.reads.journals import is_journal_whole, read_journal_back
from ampsq.protocol.reads.message_names import find_bookmark
from ampsq.protocol.reads.queues import read_timetable
from ampsq.protocol.transitions import MessageEvent, MessageState
from ampsq.queues.explain_snapshot import (
    ABSENT,
    EMPTY,
    JournalFinding,
    Snapshot,
    client_of,
    filter_of,
    journal_finding,
    settled_reason,
    state_of,
)
from ampsq.queues.explain_texts import REASONS, SEARCH_TIME, absence_of, sentence_of
from ampsq.queues.returns import last_reason

if TYPE_CHECKING:
    from ampsq.base.bookmarks import Bookmark
    from ampsq.protocol.reads.message_names import LocatedMessage


__all__ = ["REASONS", "Explanation", "InstanceIdentity", "explain", "facts_of"]

#: Entries of the timetable in which the next message of an empty queue is looked for.
_TIMETABLE: Final = 1_000
#: Entries of the journal that one step reads.
_STEP: Final = 500
#: Reasons that name something due: only then is it of interest whether a coordinator is at work.
_DUE: Final = ("lapsed", "holder_gone", "delay_over", "schedule_over", "over")
_DISPATCHED: Final = ("barrier_next", "resorting", "sorting", "indexing", "in_line", "next")


class InstanceIdentity(Protocol):
    """The identity of an instance: a `Session`, or an `InstanceContext`."""

    @property
    def instance(self) -> str:
        """Name of the instance."""
        ...

    @property
    def origin(self) -> str:
        """Name and incarnation of the instance, as bookmarks have it."""
        ...


@dataclass(frozen=True, slots=True)
class Explanation:
    """The reason for a message's state.

    Attributes:
        queue: the queue.
        bookmark: the message; None for the head of a queue where nothing waits.
        state: a word of `ampsq.protocol.transitions.MessageState`; ``absent`` if the queue does not have the message,
            ``empty`` if nothing waits.
        reason: a stable word, one of `REASONS`.
        sentence: the same for people; the text may change.
        facts: what it was concluded from, ready for JSON. Times are milliseconds since 1970 by the server's clock.
    """

    queue: str
    bookmark: Bookmark | None
    state: str
    reason: str
    sentence: str
    facts: dict[str, object] = field(hash=False)

    def as_dict(self) -> dict[str, object]:
        """The same as plain values, for JSON."""
        return {
            "queue": self.queue,
            "bookmark": None if self.bookmark is None else str(self.bookmark),
            "state": self.state,
            "reason": self.reason,
            "sentence": self.sentence,
            "facts": self.facts,
        }


@with_suggestions("queue")
async def explain(place: InstanceIdentity, queue: str, bookmark: Bookmark | str | None = None) -> Explanation:
    """Tell why a message is where it is; nothing is changed, and a look is bounded however much there is.

    Args:
        place: the instance.
        queue: the queue.
        bookmark: the message; default the head of the queue, the message that is to be delivered next.

    Raises:
        DefinitionError: it is no bookmark. UnknownQueue: there is no such queue.
    """
    check_text("queue", queue)
    named: LocatedMessage | None = None if bookmark is None else (await find_bookmark(place.origin, bookmark))
    pairs = await browse_calls.explain(queue, "" if named is None else named.ref)
    if named is not None and not named.id:
        facts = {"topic": named.bookmark.topic, "recorded": False, "may_come": named.may_come}
        return Explanation(queue, named.bookmark, ABSENT, "not_here", absence_of(named), facts)
    snapshot = Snapshot(pairs, is_head=bookmark is None)
    reason = snapshot.reason()
    if snapshot.where == "settled":
        snapshot.found = await _search(place.instance, queue, snapshot)
        reason = settled_reason(snapshot)
    if snapshot.is_head and (snapshot.where == "settled" or reason == "kept_out"):
        reason = "passed_over"
    if reason == EMPTY and (snapshot.number("delayed") or snapshot.number("scheduled")):
        snapshot.next_due, snapshot.next_due_is_exact = await _next_due(place.instance, queue)
    if reason in _DUE or (reason in _DISPATCHED and 0 < snapshot.number("dispatch_due") <= snapshot.now):
        snapshot.attended = await is_attended(place.instance)
    message = snapshot.bookmark if named is None else named.bookmark
    return Explanation(
        queue, message, state_of(snapshot, reason), reason, sentence_of(snapshot, reason), facts_of(snapshot)
    )


async def _next_due(instance: str, queue: str) -> tuple[int, bool]:
    """Return when a queue's next message is due, and whether that is exact: else it is no earlier."""
    due = await read_timetable(instance, _TIMETABLE)
    for entry in due:
        if entry.of == queue and entry.kind in ("scheduled", "ready"):
            return entry.at, True
    return (due[-1].at, False) if len(due) == _TIMETABLE else (0, True)


# -- the journal


async def _search(instance: str, queue: str, snapshot: Snapshot) -> JournalFinding:
    """Look for a message in the journal, from its end backwards, for `SEARCH_TIME` seconds."""
    wanted, at = snapshot.ref.encode(), 0
    # What the queue's filter refuses was hardly ever in the queue: its own time is where to stop looking.
    refused = snapshot.flag("enters") is False and snapshot.milliseconds <= snapshot.now
    before, since = None, snapshot.milliseconds if refused else None
    until = time.monotonic() + SEARCH_TIME
    while True:
        entries = await read_journal_back(instance, queue, before, since, _STEP)
        for entry in entries:
            at = entry.milliseconds
            number = entry.number_of(wanted)
            if number >= 0 and entry.how != MessageEvent.TRANSFERRED:
                return journal_finding(entry, number)
        if len(entries) < _STEP:
            whole = not at or (await is_journal_whole(instance, queue))
            return JournalFinding(at=at, whole=whole)
        if time.monotonic() >= until:
            return JournalFinding(at=at, ended=False)
        before = entries[-1].id


def facts_of(snapshot: Snapshot) -> dict[str, object]:
    """Return the known facts, ready for JSON; what does not apply is left out."""
    facts: dict[str, object] = {
        "now": snapshot.now,
        **{name: snapshot.number(name) for name in ("leased", "delayed", "scheduled", "held", "remote", "unread")},
        "ready": snapshot.number("ready") + snapshot.number("sorted"),
        "subscriptions_in_all": snapshot.number("subscriptions"),
    }
    if snapshot.attended is not None:
        facts["coordinator"] = snapshot.attended
    if not snapshot.ref:
        due = {"next_due": snapshot.next_due, "next_due_is_exact": snapshot.next_due_is_exact}
        return facts | (due if snapshot.next_due else {})
    facts |= {"topic": snapshot.topic, "recorded": snapshot.recorded, "head": snapshot.is_head}
    facts |= {name: snapshot.flag(name) for name in ("json", "enters", "is_barrier") if snapshot.flag(name) is not None}
    if snapshot.text("beyond"):
        facts["body"] = {"beyond": snapshot.text("beyond"), "bytes": snapshot.number("body_bytes")}
    if snapshot.text("priority"):
        facts["priority"] = snapshot.priority
    if snapshot.attempts is not None:
        attempts: dict[str, object] = dict(
            zip(("deliveries", "cancels", "last_reason"), snapshot.attempts, strict=True)
        )
        if said := last_reason(snapshot.returns):
            attempts["consumer_reason"] = said
        facts["attempts"] = attempts
    if snapshot.number("ends"):
        facts["ends"] = snapshot.number("ends")
    facts |= _facts_where(snapshot)
    if snapshot.text("before"):
        facts |= _waiting_facts(snapshot)
    return facts


def _facts_where(snapshot: Snapshot) -> dict[str, object]:
    """Return the facts that are known of a message because of its state."""
    match snapshot.where:
        case MessageState.LEASED:
            return {"lease": _lease_facts(snapshot)}
        case MessageState.DELAYED | MessageState.SCHEDULED:
            return {"due": snapshot.number("due")}
        case MessageState.REMOTE:
            return {"owner": snapshot.text("owner") or None, "asked": snapshot.number("asked") or None}
        case MessageState.SETTLED:
            return {"journal": _journal_facts(snapshot)}
    return {}


def _lease_facts(snapshot: Snapshot) -> dict[str, object]:
    holder, delivery, deadline = snapshot.lease
    facts: dict[str, object] = {
        "subscription": holder,
        "client": client_of(snapshot.text("client")) or None,
        "filter": filter_of(snapshot.text("tree")) if snapshot.text("tree") else None,
        "delivery": delivery,
        "until": deadline or None,
        "picked_up": not snapshot.flag("unseen"),
        "silent": bool(snapshot.flag("silent")),
    }
    return facts if snapshot.report is None else facts | {"progress": snapshot.report._asdict()}


def _journal_facts(snapshot: Snapshot) -> dict[str, object]:
    found = snapshot.found
    if not found.how:
        return {"found": False, "searched_back_to": found.at or None, "ended": found.ended, "whole": found.whole}
    facts: dict[str, object] = {"found": True, "how": found.how, "at": found.at, "ahead": bool(snapshot.text("ahead"))}
    if found.consumer_reason:
        facts["consumer_reason"] = found.consumer_reason
    if found.how == "acknowledged" and found.why:
        facts["reason"] = found.why
    if found.how == "expired":
        facts |= {"reasons": found.why.split(","), "deliveries": found.deliveries, "cancels": found.cancels}
    return facts


def _waiting_facts(snapshot: Snapshot) -> dict[str, object]:
    facts: dict[str, object] = {
        "before": snapshot.before,
        "before_is_exact": not snapshot.flag("at_least") and not snapshot.has_no_rank,
        "room": snapshot.room,
        "subscriptions": [
            {
                **{name: value for name, value in each._asdict().items() if name != "has_bell"},
                "filter": snapshot.filters[each.filter].text if each.filter in snapshot.filters else None,
            }
            for each in snapshot.subscriptions
        ],
        "holders": dict(snapshot.holders),
    }
    if snapshot.text("group"):
        facts["group"] = snapshot.text("group")
        facts |= {f"group_{name}": snapshot.number(f"group_{name}") for name in ("leased", "waiting", "failed")}
        if snapshot.number("group_paused"):
            facts |= {
                "group_paused": snapshot.number("group_paused"), "group_paused_by": snapshot.text("group_paused_by"),
            }  # fmt: skip
        if snapshot.takes_turns:
            facts |= {f"group_{name}": snapshot.number(f"group_{name}") for name in ("line", "before", "weight")}
    if bound := snapshot.group_bound:
        facts |= {"group_bound_to": bound[0], "group_bound_until": bound[1]}
    facts |= {name: snapshot.number(name) for name in ("rate_wait", "group_rate_wait") if snapshot.number(name)}
    if snapshot.text("barrier"):
        facts["barrier"] = str(snapshot.bookmark_of(snapshot.text("barrier")))
    if snapshot.definition.target_queue_depth is not None:
        facts["active"] = snapshot.active
    return facts
