"""The calls of what coordinators do from time to time, and of who does it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ampsq.protocol import schema
from ampsq.protocol.request import Call, command, script_call

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redis.typing import EncodableT

__all__ = [
    "SweepReply",
    "hold_view",
    "note_flushing",
    "scan_foreign_entries",
    "show_life",
    "sweep",
]


class SweepReply(NamedTuple):
    """The work that a sweep has left.

    Attributes:
        more: more is due already.
        pause: seconds until the next entry is; None: there is none.
    """

    more: bool
    pause: float | None


def show_life(instance: str, sign: str) -> Call[int]:
    """Show that a coordinator is at work, by another sign than the last one."""
    return command(["HSET", schema.key(instance, "instance"), schema.FIELDS["attended"], sign], int)


def sweep(now: int | str = "") -> Call[SweepReply]:
    """Do what is due; gives whether more is due already, and the seconds until the next entry, if any.

    Args:
        now: milliseconds; default the server's time.
    """
    return script_call(
        "sweep",
        [now],
        lambda reply: SweepReply(bool(reply[0]), None if reply[1] < 0 else reply[1] / 1000),
        repeatable=True,
    )


def scan_foreign_entries(topics: Mapping[str, str]) -> Call[dict[str, str]]:
    """Find what others wrote into logs; topic -> last ID seen, gives topic -> last ID."""
    arguments: list[EncodableT] = [text for pair in topics.items() for text in pair]

    def read(reply: list[bytes]) -> dict[str, str]:
        return {topic: last.decode() for topic, last in zip(topics, reply, strict=True)}

    return script_call("scan_foreign_entries", ["", *arguments], read, repeatable=True)


def hold_view(view: str, owner: str, period: int) -> Call[bool]:
    """Be the one that keeps a view up to date, for `period` ms; False while somebody else is."""
    return script_call("keep_duty", ["", view, owner, period], bool, repeatable=True)


def note_flushing(run: str, appendfsync: str, on_rewrite: str, held_until: int) -> Call[bool]:
    """Note how the server flushes, of the run that it is in; False where that was noted.

    Args:
        run: the ID of its process.
        appendfsync: the setting.
        on_rewrite: the setting ``no-appendfsync-on-rewrite``.
        held_until: its clock was set back: until it shows this, in ms, it flushes nothing; 0: it was not.
    """
    return script_call("note_flushing", [run, appendfsync, on_rewrite, held_until], bool, repeatable=True)
