"""Publishers that have a name, as the server knows them, and the numbers that a publisher gave."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from ampsq.base.bookmarks import ref_of
from ampsq.protocol.reads.message_names import name_messages
from ampsq.protocol.reads.publishers import read_last_messages, read_sessions

if TYPE_CHECKING:
    from ampsq.base.bookmarks import Bookmark

__all__ = ["PublisherState", "publishers"]


class PublisherState(NamedTuple):
    """The server's knowledge of a publisher.

    Attributes:
        name: its name; of an action or a view ``action:<name>@<origin>:...``, ``view:<name>``.
        sequence: of its last message.
        bookmark: of that message; None where the publisher has recorded nothing.
        at: when that was, or when it logged on before it recorded anything; None where it never did either.
        client: who is logged on; None where nobody is, and of publishers that never log on.
        seen: when that client showed last that it publishes; None where nobody is.
    """

    name: str
    sequence: int
    bookmark: Bookmark | None
    at: datetime | None
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
        # An action's has no time while all that it was to publish failed.
        at = _moment(_ms(last.id)) if _ms(last.id) else None
        out.append(PublisherState(name, last.sequence, bookmark, at, client, seen))
    return out


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _ms(stream_id: str) -> int:
    return int(stream_id.partition("-")[0])
