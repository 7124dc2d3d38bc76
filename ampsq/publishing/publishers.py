"""Publishers that have a name, as the server knows them, and the numbers that a publisher gave."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, overload

from ampsq.base.bookmarks import ref_of
from ampsq.protocol.reads.message_names import name_messages
from ampsq.protocol.reads.publishers import read_last_messages, read_sessions

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
    known = sorted((await read_last_messages(instance)).items())
    sessions = await read_sessions(instance)
    recorded = [ref_of(last.topic, last.id) for _, last in known if last.topic and _ms(last.id)]
    bookmarks = dict(zip(recorded, (await name_messages(recorded)), strict=True))
    out = []
    for name, last in known:
        session = sessions.get(name)
        client, seen = (session.client, _moment(session.seen)) if session is not None else (None, None)
        bookmark = bookmarks.get(ref_of(last.topic, last.id))
        out.append(PublisherState(name, last.sequence, bookmark, _moment(_ms(last.id)), client, seen))
    return out


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


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
