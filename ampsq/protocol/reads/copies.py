"""Copies of other instances' messages: of each origin of a topic, which IDs there are under which IDs here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampsq.base.bookmarks import parse_ref, ref_of
from ampsq.base.log_positions import id_text, parse_id
from ampsq.protocol.request import command
from ampsq.protocol.schema import key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.base.log_positions import Id
    from ampsq.protocol.request import Call

__all__ = ["CopyRun", "count_runs", "read_runs", "runs_behind", "runs_up_to"]


@dataclass(frozen=True, slots=True)
class CopyRun:
    """IDs of an origin that follow each other, and the IDs here under which they are.

    Attributes:
        first: the first ID there.
        count: how many there are.
        here: the ID of the first one here.
    """

    first: Id
    count: int
    here: Id

    @classmethod
    def parse(cls, member: bytes) -> CopyRun:
        """Read a member of the key `copies`."""
        order, count, here = member.decode().split(" ")
        return cls(parse_id(parse_ref(f"{order}/-")[1]), int(count), parse_id(here))

    def there(self, here: Id) -> Id:
        """The last ID there that is recorded here up to an ID, which is behind the beginning of the run."""
        steps = min(here[1] - self.here[1], self.count - 1) if here[0] == self.here[0] else self.count - 1
        return self.first[0], self.first[1] + steps

    def behind(self, there: Id) -> Id | None:
        """The ID here of the first one behind an ID there; None: all of it is before that."""
        if self.first > there:
            return self.here
        steps = there[1] - self.first[1] + 1 if there[0] == self.first[0] else self.count
        return (self.here[0], self.here[1] + steps) if steps < self.count else None


def _runs(reply: Sequence[bytes]) -> list[CopyRun]:
    return [CopyRun.parse(member) for member in reply]


def _order_of(number: Id) -> str:
    """The beginning of a ref."""
    return ref_of("", id_text(number)).partition("/")[0]


def count_runs(instance: str, topic: str, origin: str) -> Call[int]:
    """Count the runs of an origin's messages in a topic's log."""
    return command(["ZCARD", key(instance, "copies", topic, origin)], int)


def read_runs(instance: str, topic: str, origin: str, first: int, last: int) -> Call[list[CopyRun]]:
    """Read runs by their numbers, in the order of the origin."""
    return command(["ZRANGE", key(instance, "copies", topic, origin), first, last], _runs)


def runs_up_to(instance: str, topic: str, origin: str, there: Id, most: int) -> Call[list[CopyRun]]:
    """Read the runs that begin at an ID there or before it, the last one first."""
    copies = key(instance, "copies", topic, origin)
    return command(["ZRANGE", copies, f"[{_order_of(there)}~", "-", "BYLEX", "REV", "LIMIT", 0, most], _runs)


def runs_behind(instance: str, topic: str, origin: str, there: Id, most: int) -> Call[list[CopyRun]]:
    """Read the first runs that begin behind an ID there."""
    copies = key(instance, "copies", topic, origin)
    return command(["ZRANGE", copies, f"({_order_of(there)}~", "+", "BYLEX", "LIMIT", 0, most], _runs)
