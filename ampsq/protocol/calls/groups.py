"""The calls about the groups of a queue; see lua/queues/lib/group_state.lua."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ampsq.protocol.request import script_call

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.protocol.request import Call

__all__ = [
    "GroupCounts",
    "GroupPage",
    "GroupSums",
    "count_groups",
    "drop_group",
    "list_groups",
    "pause_group",
    "release_group",
]

#: What a row of the reply has.
_WIDTH = 11


class GroupCounts(NamedTuple):
    """Counts of one group of a queue.

    Attributes:
        name: the group.
        leased: messages of it that are leased.
        going: those that may go.
        waiting: those that were read and wait, `going` among them.
        failed: messages that failed and hold it.
        stopped: ms when it was stopped; 0: it is not.
        weight: 1, where messages say no other.
        first: the ref of the first one that waits, where it was asked for; else "".
        paused: ms when it was paused; 0: it is not.
        paused_by: the client that paused it; "" where it is not.
        bound_to: the subscription that it is bound to; "" where it is to none.
        bound_until: until when, ms, if nothing of it is leased then; 0 where it is not bound.
        bound_client: the client of that subscription, where groups are named; "" of one that has ended.
    """

    name: str
    leased: int
    going: int
    waiting: int
    failed: int
    stopped: int
    weight: int
    first: str
    paused: int
    paused_by: str
    bound_to: str
    bound_until: int
    bound_client: str


class GroupPage(NamedTuple):
    """A part of a queue's groups, and the cursor of the next one; 0 after the last."""

    cursor: int
    groups: list[GroupCounts]


class GroupSums(NamedTuple):
    """Counts of a part of a queue's groups.

    Attributes:
        now: ms by the server's clock.
        cursor: of the next part; 0 after the last.
        number: groups of the queue in all, of which something is leased or has its place, or that stand still.
        leased: those of the part of which something is leased.
        on_hold: those that failed messages hold.
        stopped: those that a dead letter stopped.
        paused: those that somebody paused.
        oldest: ms when the oldest message that has its place in the queue was recorded; 0 where none has.
    """

    now: int
    cursor: int
    number: int
    leased: int
    on_hold: int
    stopped: int
    paused: int
    oldest: int


def _read_page(reply: list[bytes]) -> GroupPage:
    found = []
    for i in range(1, len(reply), _WIDTH):
        name, *counts, first, paused, by, bound = reply[i : i + _WIDTH]
        leased, going, waiting, failed, stopped, weight = map(int, counts)
        group, place, who, binding = (text.decode(errors="replace") for text in (name, first, by, bound))
        to, until, client = binding.split(" ", 2) if binding else ("", "0", "")
        counted = GroupCounts(
            group, leased, going, waiting, failed, stopped, weight, place, int(paused), who, to, int(until), client,
        )  # fmt: skip
        found.append(counted)
    return GroupPage(int(reply[0]), found)


def list_groups(queue: str, cursor: int, count: int, names: Sequence[str] = ()) -> Call[GroupPage]:
    """Read about `count` of a queue's groups behind a cursor, or those that are named."""
    return script_call("list_groups", [queue, cursor, count, *names], _read_page, repeatable=True)


def count_groups(queue: str, cursor: int, count: int) -> Call[GroupSums]:
    """Count about `count` of a queue's groups behind a cursor."""

    def read(reply: list[bytes | int]) -> GroupSums:
        return GroupSums(*(int(value or 0) for value in reply))

    return script_call("count_groups", ["", queue, cursor, count], read, repeatable=True)


def release_group(queue: str, group: str) -> Call[int]:
    """Let a group go on, and be bound to no subscription; gives 1 if anything kept it, -1 of a queue without groups."""

    def read(reply: list[bytes | int]) -> int:
        return min(sum(map(int, reply)), 1)

    return script_call("release_group", ["", queue, group], read)


def pause_group(queue: str, group: str, *, paused: bool, by: str) -> Call[int]:
    """Pause a group or let it go on; gives 1 if that changed something, 0 if not, -1 of a queue without groups."""
    return script_call("pause_group", ["", queue, group, int(paused), by], int)


def drop_group(  # noqa: PLR0917  (where, what, how)
    queue: str, group: str, source: str, after: str, until: str, reason: str, *, only_count: bool
) -> Call[tuple[str, int]]:
    """Let a part of a group's messages that wait leave the queue; gives where the next begins, "", and how many left.

    Of a queue without groups -1 have left.

    `source`: ``placed``, ``returned`` or ``log <topic>``; `until`: the last ID that counts; `only_count`: do nothing.
    """
    arguments: list[str | int] = ["", queue, group, source, after, until, int(bool(only_count)), reason]
    return script_call("drop_group", arguments, lambda reply: (reply[0].decode(), int(reply[1])))
