"""The calls about a topic's records: letting them follow the log, looking through them, deleting.

See `ampsq.protocol.calls.queues` for how calls are made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeVar

from ampsq.base.bookmarks import parse_ref, ref_of
from ampsq.base.errors import RecordsBehind
from ampsq.protocol.calls.browse import Browsed
from ampsq.protocol.request import Call, command, script_call
from ampsq.protocol.schema import FIELDS, VALUES, key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redis.typing import EncodableT

    from ampsq.protocol.request import Call


__all__ = [
    "Deleted",
    "RecordEnd",
    "RecordPage",
    "StoredRecord",
    "browse_records",
    "call_caught_up",
    "catch_up",
    "catch_up_records",
    "count_records",
    "end_in",
    "is_end",
    "record_of",
    "sow_delete",
    "sow_delete_logged_on",
]

T = TypeVar("T")
_BODY: Final = FIELDS["body"].encode()
_ADDRESSED: Final = FIELDS["addressed"].encode()
_ENDED: Final = FIELDS["ended"].encode()
_KEY: Final = FIELDS["record"].encode()
_NOWHERE: Final = str(VALUES["nowhere"]).encode()


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """The last message of a key.

    Attributes:
        key: as it is kept.
        message: the message, as a walk over a queue would give it.
    """

    key: bytes
    message: Browsed

    @property
    def id(self) -> str:
        """The message's, in the log."""
        return parse_ref(self.message.ref.decode())[1]


def is_end(fields: Mapping[bytes, bytes]) -> bool:
    """Return whether a log entry tells that a record ended, and is no message."""
    return fields.get(_ADDRESSED) == _NOWHERE and _BODY in fields


class RecordEnd(NamedTuple):
    """The end of a record, as an entry tells it.

    Attributes:
        key: which one.
        how: ``deleted`` or ``expired``.
    """

    key: bytes
    how: str


def end_in(fields: Mapping[bytes, bytes]) -> RecordEnd | None:
    """Read which record an entry ends; None of a message."""
    return RecordEnd(fields[_KEY], fields[_ENDED].decode()) if is_end(fields) else None


def record_of(topic: str, key: bytes, stream_id: bytes, flat: Sequence[bytes]) -> StoredRecord:
    """Make a record of its key and of the log entry of its message, fields in turn."""
    return StoredRecord(key, Browsed.of(ref_of(topic, stream_id.decode()).encode(), flat))


@dataclass(frozen=True, slots=True)
class RecordPage:
    """One step of a walk over records: where the next begins (None: nowhere), and those that match."""

    next: str | None
    records: list[StoredRecord]


@dataclass(frozen=True, slots=True)
class Deleted:
    """The result of one step of a deletion: next step's start (None: nowhere), number, and if it was done before."""

    next: str | None
    number: int
    repeated: bool


class CatchUpStep(NamedTuple):
    """One step of records that follow their log: whether more is to be read, and the ID of the last entry that was."""

    has_more: bool
    last: str


def catch_up(topic: str) -> Call[CatchUpStep]:
    """Let the records follow the log, one step."""
    return script_call(
        "catch_up_records", [topic], lambda reply: CatchUpStep(bool(reply[0]), reply[1].decode()), repeatable=True
    )


def browse_records(topic: str, tree: str, after: str, keys: Sequence[bytes] = ()) -> Call[RecordPage]:
    """Look through a part of a topic's records; nothing changes.

    Args:
        topic: the topic.
        tree: of the filter that records must match, "" for all.
        after: the `next` of the step before, "" at first.
        keys: only these; none: all, of which one may come twice.
    """

    def read(reply: tuple[bytes, *tuple[object, ...]]) -> RecordPage:
        records = []
        for i in range(1, len(reply), 3):
            row: tuple[bytes, bytes, list[bytes]] = reply[i : i + 3]  # type: ignore[assignment]  # three in turn
            records.append(record_of(topic, *row))
        return RecordPage(reply[0].decode() or None, records)

    return script_call("browse_records", ["", topic, tree, after, *keys], read, repeatable=True)


def count_records(instance: str, topic: str) -> Call[int]:
    """Count a topic's records, as far as they have followed its log."""
    return command(["HLEN", key(instance, "records", topic)], int)


def _read_deleted(reply: tuple[bytes, int, int]) -> Deleted:
    return Deleted(reply[0].decode() or None, reply[1], bool(reply[2]))


def sow_delete(  # noqa: PLR0917  (in the order of the script's head)
    topic: str,
    how: Literal["keys", "data", "filter"],
    values: Sequence[bytes],
    tree: str = "",
    after: str = "",
    publisher: str = "",
    sequence: int | None = None,
) -> Call[Deleted]:
    """Delete records: those of keys, those with the keys of messages, or a part of those that match a filter.

    With a publisher and its sequence it is done once, however often it is sent; otherwise a repeat could delete what
    was published meanwhile.
    """
    arguments = ["", topic, publisher, "" if sequence is None else sequence, tree, after, how, *values]
    return script_call("sow_delete", arguments, _read_deleted, repeatable=bool(publisher))


def sow_delete_logged_on(publisher: str, session: int, sequence: int, arguments: Sequence[EncodableT]) -> Call[Deleted]:
    """Delete records for a publisher that is logged on; `arguments`: topic, how (not by filter) and values."""
    topic, *rest = arguments
    return script_call(
        "sow_delete",
        ["", topic, publisher, f"{session} {sequence}", "", "", *rest],
        _read_deleted,
        repeatable=True,
    )


#: Times that records are let come to the end of their log for one call; more than this is somebody who never stops.
_CATCH_UPS: Final = 50


async def catch_up_records(topic: str) -> str:
    """Let a topic's records come to the end of its log; gives the last ID there.

    Raises:
        NoRecords: the topic has no key.
    """
    while (step := await catch_up(topic)).has_more:
        pass
    return step.last


async def call_caught_up(call: Call[T]) -> T:
    """Make a call that needs the records as the log says they are: they are let come there, and it is made again.

    Raises:
        RecordsBehind: somebody else writes into the log without ampsq, faster than that.
    """
    for _ in range(_CATCH_UPS):
        try:
            result: T = await call
        except RecordsBehind as error:
            await catch_up_records(str(error.detail["topic"]))
            continue
        return result
    last: T = await call
    return last
