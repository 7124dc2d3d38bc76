"""A message of a topic, as it was recorded. Nobody else waits for it: to handle it is to note that it was handled."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from ampsq.base.message_types import JSON
from ampsq.expressions import Document
from ampsq.protocol.encoding import decode_body, read_headers
from ampsq.protocol.entries import body_in, body_of, bookmark_of, headers_of, read_entry, source_in
from ampsq.queues.query import as_json

if TYPE_CHECKING:
    from ampsq.base.bookmarks import Bookmark
    from ampsq.base.message_types import MessageType
    from ampsq.topics.durable_subscription import Received
    from ampsq.topics.merge import Entry

__all__ = ["TopicMessageView", "document_of"]

_SHOWN: Final = 80


def document_of(entry: Entry, origin: str, instance: str, message_type: MessageType = JSON) -> Document:
    """An entry as expressions see it."""
    topic, stream_id, flat = entry
    fields, source = read_entry(flat)
    return Document(
        body_in(fields),
        fields=fields,
        topic=topic,
        stream_id=stream_id.decode(),
        origin=origin,
        source=source,
        instance=instance,
        message_type=message_type,
    )


class TopicMessageView:
    """A message of a topic; `TopicMessage` and `AsyncTopicMessage` can be acknowledged."""

    __slots__ = ("_fields", "_id", "_managed", "_received", "topic")

    def __init__(self, entry: Entry, received: Received | None, managed: Any) -> None:
        #: The topic that it was published to.
        self.topic, self._id, self._fields = entry
        # What a durable subscription notes of it.
        self._received = received
        self._managed = managed

    @property
    def raw(self) -> bytes:
        """The body as it was published; for an entry that somebody wrote without ampsq, its fields as JSON."""
        body = body_of(self._fields)
        return as_json(read_entry(self._fields)[0]) if body is None else body

    @property
    def data(self) -> Any:
        """The body decoded by the topic's message type, or the bytes as they are where it cannot be."""
        body = body_of(self._fields)
        return decode_body(self.raw) if body is None else decode_body(body, self._managed.core.type_of(self.topic))

    @property
    def message_type(self) -> str:
        """The message type of its topic."""
        return str(self._managed.core.type_of(self.topic).name)

    @property
    def bookmark(self) -> Bookmark:
        """Public identity of the message, the same on every instance, for ever; a subscription may begin behind it."""
        return bookmark_of(self.topic, self._managed.core.origin, self._id.decode(), source_in(self._fields))

    @property
    def headers(self) -> dict[str, str]:
        """The headers that it was published with; empty when there were none.

        What another program wrote there and is no JSON object of texts stands under ``(unreadable)``.
        """
        headers = headers_of(self._fields)
        return read_headers(headers or b"")

    @property
    def timestamp(self) -> datetime:
        """Time when it was recorded, by the server's clock, to the millisecond."""
        return datetime.fromtimestamp(int(self._id.partition(b"-")[0]) / 1000, UTC)

    def __repr__(self) -> str:
        text = repr(self.data)
        return f"<{type(self).__name__} {self.bookmark}: {text if len(text) <= _SHOWN else text[:_SHOWN] + '...'}>"
