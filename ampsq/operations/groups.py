"""The groups of a queue as administrators see them: which wait or stand still; to pause one, let it go on, empty it."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from ampsq.base.bookmarks import parse_ref
from ampsq.base.errors import DefinitionError, Unavailable
from ampsq.base.formatting import time_text
from ampsq.base.values import shown
from ampsq.catalog.suggestions import with_suggestions
from ampsq.protocol.calls import browse as browse_calls
from ampsq.protocol.calls import groups as group_calls
from ampsq.protocol.limits import LONGEST_GROUP
from ampsq.queues.explain_snapshot import client_of
from ampsq.queues.returns import checked_reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ampsq.protocol.calls.groups import GroupCounts

__all__ = [
    "GroupState",
    "QueueGroups",
    "drop_group",
    "pause_group",
    "read_group",
    "read_groups",
    "release_group",
]

#: Groups of a queue that are looked at, and a call's share of them.
_LOOKED: Final = 20_000
_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class GroupState:
    """A group of a queue at one moment.

    Attributes:
        group: its name.
        leased: messages of it that are leased.
        waiting: messages of it that the queue has read and that wait.
        failed: messages of it that failed and hold it until they are settled.
        stopped: since when it stands still; None: it does not.
        weight: how many messages of it count as one when shares are compared; 1 where the queue has no `group_weight`.
        oldest: when the first one of those that wait was recorded; None where none waits.
        paused: since when `Admin.pause_group` keeps it back; None: it does not.
        paused_by: the client that paused it; "" where nobody did.
        bound_to: the subscription that it is bound to, by `group_affinity`, and its client; "" where it is to none.
        bound_until: until when it is, if nothing of it is leased then; None where it is not bound.
    """

    group: str
    leased: int
    waiting: int
    failed: int
    stopped: datetime | None
    weight: int
    oldest: datetime | None
    paused: datetime | None
    paused_by: str
    bound_to: str
    bound_until: datetime | None

    def as_dict(self) -> dict[str, object]:
        """As JSON values; times are text."""
        times = {
            "stopped": self.stopped, "oldest": self.oldest, "paused": self.paused, "bound_until": self.bound_until,
        }  # fmt: skip
        texts = {name: time_text(round(time.timestamp() * 1000)) if time else None for name, time in times.items()}
        return {**asdict(self), **texts}


@dataclass(frozen=True, slots=True)
class QueueGroups:
    """The groups of a queue that have most to say.

    Attributes:
        groups: stopped and paused ones first, then those that failed messages hold, then by how many wait.
        number: how many groups were looked at of which something is leased or waits, that stand still or are bound.
        is_all: whether these are all of the queue's. What is unread is in no group yet.
    """

    groups: list[GroupState]
    number: int
    is_all: bool

    @classmethod
    def merged(cls, parts: Sequence[QueueGroups], limit: int) -> QueueGroups:
        """Return those of a queue of all partitions, of those of each; a group that is in several counts once.

        Where partitions have more groups than were read of them, their number is a lower bound. Partitions
        bind no groups to subscriptions.
        """
        found: dict[str, list[GroupState]] = {}
        for part in parts:
            for state in part.groups:
                found.setdefault(state.group, []).append(state)
        groups = sorted(map(_merged_group, found.values()), key=_rank_of_state)
        is_all = all(part.is_all and part.number <= len(part.groups) for part in parts)
        return cls(groups[:limit], max(len(groups), *(part.number for part in parts)), is_all)


def _merged_group(parts: Sequence[GroupState]) -> GroupState:
    pauses = [(part.paused, part.paused_by) for part in parts if part.paused is not None]
    paused, paused_by = min(pauses, default=(None, ""))
    # Queues over partitions have no affinity, so that nothing is bound.
    return GroupState(
        parts[0].group, sum(part.leased for part in parts), sum(part.waiting for part in parts),
        sum(part.failed for part in parts), _first(part.stopped for part in parts), max(part.weight for part in parts),
        _first(part.oldest for part in parts), paused, paused_by, "", None,
    )  # fmt: skip


def _first(times: Iterable[datetime | None]) -> datetime | None:
    return min((time for time in times if time is not None), default=None)


def _rank_of_state(state: GroupState) -> tuple[bool, int, int, str]:
    return not (state.stopped or state.paused), -state.failed, -state.waiting, state.group


def _rank(counts: GroupCounts) -> tuple[bool, int, int, str]:
    return not (counts.stopped or counts.paused), -counts.failed, -counts.waiting, counts.name


def _time(milliseconds: int) -> datetime | None:
    return datetime.fromtimestamp(milliseconds / 1000, UTC) if milliseconds else None


def _bound_to(counts: GroupCounts) -> str:
    return f"{counts.bound_to} of {client_of(counts.bound_client)}" if counts.bound_client else counts.bound_to


def _state(counts: GroupCounts) -> GroupState:
    oldest = int(parse_ref(counts.first)[1].partition("-")[0]) if counts.first else 0
    return GroupState(
        counts.name, counts.leased, counts.waiting, counts.failed, _time(counts.stopped), counts.weight, _time(oldest),
        _time(counts.paused), counts.paused_by, _bound_to(counts), _time(counts.bound_until),
    )  # fmt: skip


@with_suggestions("queue")
async def read_groups(queue: str, limit: int) -> QueueGroups:
    """Read the groups of a queue; see `Admin.groups`."""
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= _PAGE:
        raise DefinitionError(f"limit={shown(limit)}: allowed is a whole number from 1 to {_PAGE}")
    found: dict[str, GroupCounts] = {}
    cursor, looked = 0, 0
    while True:
        page = await group_calls.list_groups(queue, cursor, _PAGE)
        found.update((counts.name, counts) for counts in page.groups)
        cursor, looked = page.cursor, looked + max(len(page.groups), 1)
        if cursor == 0 or looked >= _LOOKED:
            break
    names = [counts.name for counts in sorted(found.values(), key=_rank)[:limit]]
    rows = (await group_calls.list_groups(queue, 0, _PAGE, names)).groups if names else []
    return QueueGroups([_state(counts) for counts in sorted(rows, key=_rank)], len(found), cursor == 0)


def _stored_name(group: object) -> str:
    """Return the name that the queue knows a group by; see `group_name` in lua/groups/lib/group_names.lua."""
    if not isinstance(group, str) or not group:
        raise DefinitionError(f"group={shown(group)}: allowed is the name of a group, as `ampsq groups` shows it")
    try:
        name = group.encode(errors="surrogateescape")
    except UnicodeEncodeError as error:
        raise DefinitionError(f"group={shown(group)}: {error}; allowed is text that UTF-8 can say") from None
    if len(name) > LONGEST_GROUP or b"\0" in name or not _is_utf8(name):
        return f"#{hashlib.sha1(name, usedforsecurity=False).hexdigest()}"
    return group


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


@with_suggestions("queue")
async def read_group(queue: str, group: str) -> GroupState | None:
    """Read one group; None where nothing of it is leased or waits, and it does not stand still.

    Raises:
        UnknownQueue: there is no such queue.
    """
    rows = (await group_calls.list_groups(queue, 0, 1, [_stored_name(group)])).groups
    return _state(rows[0]) if rows else None


def _of_grouped_queue(queue: str, done: int) -> int:
    """Return what a script says that it did; refuse a queue without groups, of which that is -1."""
    if done < 0:
        raise DefinitionError(
            f"queue={shown(queue)}: it has no groups; allowed is a queue with group_by, or group_concurrency"
        )
    return done


@with_suggestions("queue")
async def release_group(queue: str, group: str) -> bool:
    """Let a group go on; see `Admin.release_group`."""
    return _of_grouped_queue(queue, await group_calls.release_group(queue, _stored_name(group))) > 0


@with_suggestions("queue")
async def pause_group(queue: str, group: str, by: str, *, paused: bool) -> bool:
    """Pause a group, or let it go on; see `Admin.pause_group`. by: the name of the client."""
    return _of_grouped_queue(queue, await group_calls.pause_group(queue, _stored_name(group), paused=paused, by=by)) > 0


@with_suggestions("queue")
async def drop_group(queue: str, group: str, reason: str | None, *, dry_run: bool) -> int:
    """Let all messages of a group that wait leave their queue; see `Admin.drop_group`."""
    name, why = _stored_name(group), checked_reason(reason)
    walk = await browse_calls.begin_walk(queue)
    number = 0
    # What is read while this lasts, and then has its place, is met in its log.
    sources = [("placed", ""), ("returned", ""), *((f"log {topic}", cursor) for topic, cursor in walk.cursors.items())]
    try:
        for source, begin in sources:
            after: str | None = begin
            while after is not None:
                following, done = await group_calls.drop_group(
                    queue, name, source, after, walk.end, why, only_count=dry_run
                )
                number, after = number + _of_grouped_queue(queue, done), following or None
    except Unavailable as error:
        error.may_have_run = error.may_have_run or number > 0
        raise
    return number
