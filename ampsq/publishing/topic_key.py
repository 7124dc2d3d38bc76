"""The keys that a topic's messages have by its definition, which choose their partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from ampsq.base.errors import DefinitionError
from ampsq.base.message_types import JSON, MessageType
from ampsq.base.values import is_name
from ampsq.expressions import parse
from ampsq.expressions.document import read
from ampsq.expressions.values import text_of
from ampsq.protocol.reads.definitions import read_queue, read_topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.definitions.queue import Topic

#: The steps of an identifier.
_Path: TypeAlias = "tuple[str | int, ...]"

__all__ = ["UNSAID", "TopicKey", "joined_key", "read_topic_key"]


def joined_key(parts: Sequence[bytes]) -> bytes:
    """Return the text of a key of several parts; a key of one part is that part."""
    if len(parts) == 1:
        return parts[0]
    return b"|".join(part.replace(b"\\", b"\\\\").replace(b"|", b"\\|") for part in parts)


def _spend(_: int) -> None:
    """Count no steps: it is the publisher's own time."""


class TopicKey(NamedTuple):
    """The identifiers whose values choose the partition of a topic's messages, and how its bodies are read.

    Attributes:
        paths: of the identifiers, those of `partition_by`, else of the topic's `key`; none of a topic with neither.
        type: of the bodies.
        of_record: those of the `key`, where `partition_by` goes before it: for a message that lacks what that names.
    """

    paths: tuple[_Path, ...]
    type: MessageType
    of_record: tuple[_Path, ...] = ()

    @classmethod
    def of(cls, topic: Topic) -> TopicKey:
        """Read it from a definition."""
        by, of_record = _paths(topic.partition_by), _paths(topic.key)
        return cls(by, topic.type, of_record) if by else cls(of_record, topic.type)

    def text(self, data: object, body: bytes | None = None) -> bytes | None:
        """Return the text of a message's key; None where it does not have one value at each identifier.

        Args:
            data: what is published.
            body: the same encoded, where that is known.
        """
        if not self.paths:
            return None
        if self.type.name == "json" and len(self.paths) == 1 and (short := _short_text(data, self.paths[0])):
            return short
        body = self.type.encode(data) if body is None else body
        try:
            content = self.type.decode(body)
        except ValueError:
            # Not of the topic's type.
            return None
        text = _text(content, self.paths)
        return text if text is not None or not self.of_record else _text(content, self.of_record)

    def choosing_name(
        self, topic: str, data: Any, key: str | None, *others: str | bytes | None, changes: bool = False
    ) -> tuple[str | bytes | None, Any]:
        """Return the name that chooses the partition of a message, None: nothing does; and the data, perhaps encoded.

        Args:
            topic: which has this key.
            data: of the message.
            key: what its publisher says; None: nothing.
            others: names that choose where neither `key` nor the topic does, the first that is one.
            changes: it changes a record.

        Raises:
            DefinitionError: it does not say which partition has the record that it changes.
        """
        name: str | bytes | None = key
        if key is None and self.paths:
            data = self.type.encode(given := data)
            name = self.text(given, data)
            if changes:
                self.check_change(topic, given)
        return next((each for each in (name, *others) if each is not None), None), data

    def check_change(self, topic: str, data: object) -> None:
        """Refuse what changes a record and does not say which partition has it.

        Raises:
            DefinitionError: what `partition_by` names is not there, so that the record would be looked for elsewhere.
        """
        if self.of_record and self._replace(of_record=()).text(data) is None:
            by = ", ".join("/" + "/".join(map(str, path)) for path in self.paths)
            raise DefinitionError(
                f"delta_publish to {topic!r}: its partition_by is {by}, and the change does not say it, so that nobody "
                f"knows which partition has the record; allowed: a change that has {by} beside the key, or key="
            )


def _paths(identifiers: Sequence[str]) -> tuple[_Path, ...]:
    return tuple(tuple(parse(text, "filter").tree[1:]) for text in identifiers)


def _text(content: object, paths: Sequence[_Path]) -> bytes | None:
    """Return the text of what a message has at each identifier; None where it is not one value."""
    texts = []
    try:
        for path in paths:
            value = read(content, path, _spend)
            if value is None or isinstance(value, list):
                return None
            texts.append(text_of(value))
    except ValueError:
        # Half a character.
        return None
    return joined_key(texts)


UNSAID: Final = TopicKey((), JSON)
"""Key of messages of a topic that is made by publishing to it: none."""


def _short_text(data: object, path: Sequence[str | int]) -> bytes | None:
    """Return the text of what JSON says as it is; None of what has to be encoded before it is known."""
    for step in path:
        if type(data) is not dict:
            return None
        data = data.get(step)
    if type(data) is str:
        return data.encode() if data.isascii() else None
    return b"%d" % data if type(data) is int and abs(data) < 2**53 else None


async def read_topic_key(instance: str, name: str) -> TopicKey | None:
    """Read how messages find their partition, of a topic, or of a queue, whose publish target it is.

    None: nothing has this name at the instance.
    """
    if not isinstance(name, str) or not is_name(name):
        return None
    topic = await read_topic(instance, name)
    if topic is None:
        queue = await read_queue(instance, name)
        if queue is None:
            return None
        topic = await read_topic(instance, queue.default_publish_target)
    return TopicKey.of(topic) if topic is not None else UNSAID
