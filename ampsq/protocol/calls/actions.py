"""The calls that actions are made with; see `ampsq.protocol.calls.queues`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ampsq.protocol.request import Call, command, script_call
from ampsq.protocol.schema import FIELDS, key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from redis.typing import EncodableT

__all__ = [
    "EventMessage",
    "SetAside",
    "SourcePosition",
    "advance",
    "count",
    "drop_overdue",
    "drop_retry",
    "emit_event",
    "finish",
    "note_error",
    "overdue",
    "redo",
    "retry_at_once",
    "set_aside",
    "track",
]


class EventMessage(NamedTuple):
    """The message that `retry_event` publishes for an event; headers: empty for none."""

    topic: str
    body: bytes
    headers: bytes
    publisher: str


class SetAside(NamedTuple):
    """The outcome of `set_aside`.

    Attributes:
        outcome: 0: the action is elsewhere; 1: the event is aside; 2: a publisher has got it; 3: too many are aside.
        number: the event's where it is aside, the publisher's place in the list where one has got it; else 0.
    """

    outcome: int
    number: int


class SourcePosition(NamedTuple):
    """An action's position in a source.

    Attributes:
        cursor: the ID of the last entry that is done; with ``+<events>`` behind it, so many of that entry are.
        sequence: events up to there.
        read: entries up to there.
    """

    cursor: str
    sequence: int
    read: int


def advance(action: str, source: str, expected: str, place: SourcePosition, done: int) -> Call[bool]:
    """Move an action on from the cursor `expected` of a source; False when somebody else did it before."""
    return script_call("advance_action", [action, source, expected, *place, done], bool, repeatable=True)


def set_aside(  # noqa: PLR0917  (in the order of the script's head)
    action: str, source: str, expected: str, place: SourcePosition, event: bytes, error: str, at: int,
    publishers: Sequence[tuple[str, str]],
) -> Call[SetAside]:  # fmt: skip
    """Put the event at an action's place among those that failed."""
    values = [text for pair in publishers for text in pair]
    arguments: list[EncodableT] = [action, source, expected, *place, event, error, at, *values]
    return script_call("set_event_aside", arguments, lambda reply: SetAside(int(reply[0]), int(reply[1])))


def redo(
    action: str,
    event: str,
    revision: int,
    value: bytes,
    at: int,
    *,
    count: str = "",
    message: EventMessage | None = None,
) -> Call[bool]:
    """Write where a failed event is, publishing a message in the same step; False when somebody else did it before.

    Args:
        action: the action.
        event: the event's number.
        revision: the one that it must have.
        value: the event as it is then; empty: nothing is left to do.
        at: ms of the next try.
        count: the figure that rises when nothing is left to do.
        message: what is published.
    """
    sent = message or EventMessage("", b"", b"", "")
    return script_call("retry_event", ["", action, event, revision, value, at, count, *sent], bool, repeatable=True)


def finish(action: str, event: str, revision: int, at: int) -> Call[bool]:
    """Say that nothing is left to do of a failed event, which was done; False when somebody else wrote it before."""
    return redo(action, event, revision, b"", at, count=FIELDS["done"])


def retry_at_once(instance: str, action: str, numbers: Iterable[int]) -> Call[int]:
    """Let failed events be tried again as soon as somebody looks; those that are not there any more are passed over."""
    times = [item for number in numbers for item in (0, number)]
    return command(["ZADD", key(instance, "retries", action), "XX", *times], int)


def drop_retry(instance: str, action: str, number: int) -> Call[int]:
    """Try a failed event no more, since it is not there."""
    return command(["ZREM", key(instance, "retries", action), number], int)


def note_error(instance: str, action: str, text: str) -> Call[int]:
    """Write why an action waits."""
    return command(["HSET", key(instance, "action", action), FIELDS["error"], text], int)


def drop_overdue(instance: str, action: str, until: str) -> Call[int]:
    """Remove the events before an ID of what matched for its time: they are done."""
    return command(["XTRIM", key(instance, "overdue", action), "MINID", until], int)


def count(action: str, place: str, sequence: int, counter: bytes) -> Call[bytes]:
    """Raise a counter, once for each sequence of a place; gives its value."""
    return script_call("raise_counter", [action, place, sequence, counter], bytes, repeatable=True)


def emit_event(what: str, client: str, topic: str = "", data: bytes = b"") -> Call[bool]:
    """Tell those actions that ask for it: `connect`, `disconnect`, or an `event`, whose name is the topic.

    Comings and goings are told once each; an event whose answer was lost is raised again.
    """
    return script_call("emit_event", ["", what, client, topic, data], bool, repeatable=True)


def track(  # noqa: PLR0917  (in the order of the script's head)
    action: str, source: str, expected: str, cursor: str, read: int, duration: int,
    changes: Iterable[tuple[str | bytes, str, str, bytes]],
) -> Call[bool]:  # fmt: skip
    """Note what matches an action's condition; False when somebody else did it before."""
    values = [text for change in changes for text in change]
    return script_call(
        "track_matches", [action, source, expected, cursor, read, duration, *values], bool, repeatable=True
    )


def overdue(action: str) -> Call[int]:
    """Make events of what matched for its time; gives how many."""
    return script_call("emit_overdue", ["", action], int, repeatable=True)
