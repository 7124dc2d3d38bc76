"""The groups of a queue as administrators see them: which wait, which stand still, and letting one go on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from ampsq.base.bookmarks import parse_ref
from ampsq.base.errors import DefinitionError
from ampsq.base.formatting import time_text
from ampsq.base.values import shown
from ampsq.catalog.suggestions import with_suggestions
from ampsq.protocol.calls import groups as group_calls

if TYPE_CHECKING:
    from ampsq.protocol.calls.groups import GroupCounts

__all__ = ["GroupState", "QueueGroups", "read_group", "read_groups", "release_group"]

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
    """

    group: str
    leased: int
    waiting: int
    failed: int
    stopped: datetime | None
    weight: int
    oldest: datetime | None

    def as_dict(self) -> dict[str, object]:
        """As JSON values; times are text."""
        times = {"stopped": self.stopped, "oldest": self.oldest}
        texts = {name: time_text(round(time.timestamp() * 1000)) if time else None for name, time in times.items()}
        return {**asdict(self), **texts}


@dataclass(frozen=True, slots=True)
class QueueGroups:
    """The groups of a queue that have most to say.

    Attributes:
        groups: stopped ones first, then those that failed messages hold, then by how many wait.
        number: how many groups were looked at, of which something is leased, waits or stands still.
        is_all: whether these are all of the queue's. What is unread is in no group yet.
    """

    groups: list[GroupState]
    number: int
    is_all: bool


def _rank(counts: GroupCounts) -> tuple[bool, int, int, str]:
    return not counts.stopped, -counts.failed, -counts.waiting, counts.name


def _state(counts: GroupCounts) -> GroupState:
    oldest = None
    if counts.first:
        milliseconds = int(parse_ref(counts.first)[1].partition("-")[0])
        oldest = datetime.fromtimestamp(milliseconds / 1000, UTC)
    stopped = datetime.fromtimestamp(counts.stopped / 1000, UTC) if counts.stopped else None
    return GroupState(counts.name, counts.leased, counts.waiting, counts.failed, stopped, counts.weight, oldest)


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


@with_suggestions("queue")
async def read_group(queue: str, group: str) -> GroupState | None:
    """Read one group; None where nothing of it is leased, waits or stands still.

    Raises:
        UnknownQueue: there is no such queue.
    """
    rows = (await group_calls.list_groups(queue, 0, 1, [group])).groups
    return _state(rows[0]) if rows else None


@with_suggestions("queue")
async def release_group(queue: str, group: str) -> bool:
    """Let a group go on; see `Admin.release_group`."""
    if not isinstance(group, str) or not group:
        raise DefinitionError(f"group={shown(group)}: allowed is the name of a group, as `ampsq groups` shows it")
    failed, stopped = await group_calls.release_group(queue, group)
    return failed + stopped > 0
