"""Publishers that have a name, as the server knows them, and the numbers that a publisher gave."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, overload

from ampsq.base.bookmarks import ref_of
from ampsq.protocol.reads.message_names import name_messages
from ampsq.protocol.request import command
from ampsq.protocol.schema import key

if TYPE_CHECKING:
    from ampsq.base.bookmarks import Bookmark

__all__ = ["PublisherState", "Sequences", "publishers"]


class PublisherState(NamedTuple):
    """What the server knows of a publisher.

    Attributes:
        name: its name; of an action or a view ``action:<name>@<origin>:...``, ``view:<name>``.
        sequence: of its last message.
        bookmark: of that message; None where the publisher has recorded nothing.
        at: when that was, or when it logged on before it recorded anything.
        client: who is logged on; None where nobody is, and of publishers that never log on.
        seen: when that client showed last that it publishes; None where nobody is.
    """

    name: str
    sequence: int
    bookmark: Bookmark | None
    at: datetime
    client: str | None
    seen: datetime | None


async def publishers(instance: str) -> list[PublisherState]:
    """Read all publishers, by name."""

    def read(reply: list[bytes]) -> dict[str, str]:
        return {reply[i].decode(): reply[i + 1].decode() for i in range(0, len(reply), 2)}

    known = await command(["HGETALL", key(instance, "publishers")], read)
    sessions = await command(["HGETALL", key(instance, "sessions")], read)
    rows = [(name, *value.split(" ", 2)) for name, value in sorted(known.items())]
    recorded = [ref_of(topic, stream_id) for _, _, stream_id, topic in rows if topic and _ms(stream_id)]
    bookmarks = dict(zip(recorded, (await name_messages(recorded)), strict=True))
    out = []
    for name, sequence, stream_id, topic in rows:
        _, seen, client = sessions[name].split(" ", 2) if name in sessions else ("", "", None)
        at = _moment(stream_id.partition("-")[0])
        bookmark = bookmarks.get(ref_of(topic, stream_id))
        out.append(
            PublisherState(name, int(sequence), bookmark, at, client, _moment(seen) if client is not None else None)
        )
    return out


def _moment(milliseconds: str) -> datetime:
    return datetime.fromtimestamp(int(milliseconds) / 1000, UTC)


def _ms(stream_id: str) -> int:
    return int(stream_id.partition("-")[0])


class Sequences(Sequence[int]):
    """The numbers of many messages, kept as runs: other threads may have published between them."""

    __slots__ = ("_runs", "_total")

    def __init__(self) -> None:
        self._runs: list[tuple[int, int]] = []
        self._total = 0

    def add(self, first: int, number: int) -> None:
        """Add `number` numbers from `first` on."""
        if not self._runs or self._runs[-1][1] + self._total - self._runs[-1][0] != first:
            self._runs.append((self._total, first))
        self._total += number

    def __len__(self) -> int:
        return self._total

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._total))]
        at = index + self._total if index < 0 else index
        if not 0 <= at < self._total:
            raise IndexError(index)
        start, first = next(run for run in reversed(self._runs) if run[0] <= at)
        return first + at - start
