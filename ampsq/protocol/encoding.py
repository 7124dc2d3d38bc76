"""Encoding of bodies and headers: in batches when published, decoded when delivered."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from ampsq.base.bookmarks import parse_ref
from ampsq.base.errors import DefinitionError
from ampsq.base.message_types import JSON, SMALL_BODY, MessageType, is_structured
from ampsq.base.values import shown
from ampsq.protocol.entries import read_entry
from ampsq.protocol.limits import BATCH, BYTES
from ampsq.protocol.schema import FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ampsq.expressions import Document

__all__ = [
    "JSON_TEXT",
    "UNREADABLE",
    "are_messages",
    "batch_bytes",
    "batch_of",
    "decode",
    "decode_body",
    "delivered_type",
    "document_of",
    "due_of",
    "encode",
    "encode_batches",
    "encode_headers",
    "group_begins",
    "group_of",
    "group_pair",
    "read_headers",
    "read_pairs",
    "shorten",
    "sized_batches",
    "without_group",
]


UNREADABLE: Final = "(unreadable)"
"""The header under which headers stand that are no JSON object of texts."""
#: Kinds of elements whose body is JSON: our own, and one of somebody else's fields.
_JSON_KINDS: Final = (b"b", b"f")
#: The group of a message, as its queue and as its publisher says it.
_TOLD_GROUP: Final = FIELDS["told_group"].encode()
_TOLD_BATCH: Final = FIELDS["told_batch"].encode()
_TOLD_BEGINS: Final = FIELDS["told_begins"].encode()
_BATCH_SAID: Final = b"%d:%s" % (len(_TOLD_BATCH), _TOLD_BATCH)
_IN_GROUP: Final = FIELDS["in_group"].encode()
_DUE: Final = FIELDS["due"].encode()
#: Characters of a body that a representation has.
_SHOWN: Final = 80
JSON_TEXT = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)
encode = JSON.encode
"""Turn what a user publishes into a body of JSON; see `MessageType.encode`."""

decode = JSON.decode
"""Read JSON; see `MessageType.decode`."""


def are_messages(value: object) -> TypeGuard[Iterable[Any]]:
    """Say whether a value is many messages. A text or a model is one, though it can be iterated over."""
    one = isinstance(value, str | bytes | bytearray | memoryview | Mapping) or is_structured(value)
    return not one and isinstance(value, Iterable)


def check_batches(messages: object, size: object) -> None:
    """Refuse what cannot be cut into batches of this size.

    Raises:
        DefinitionError: the size is none, or these are no messages.
    """
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= BATCH:
        raise DefinitionError(f"batch={shown(size)}: allowed is a whole number from 1 to {BATCH}")
    if not are_messages(messages):
        raise DefinitionError(
            f"messages={shown(messages)}: allowed is a list or another iterable of messages; one: publish"
        )


def batch_bytes(message_type: MessageType) -> int:
    """Return the bytes after which a batch of bodies is full.

    Where the server reads each body, for the topic's key, that is about as much as one body that is read whatever it
    holds, so that the server rarely has too much to read in a batch, and never of JSON.
    """
    return SMALL_BODY if message_type.is_read_whole else BYTES


def encode_batches(messages: Iterable[Any], size: int, message_type: MessageType = JSON) -> Iterator[list[bytes]]:
    """Encode messages and cut them into runs of at most `size` and about a megabyte, or as `batch_bytes` says.

    Raises:
        DefinitionError: the size is none, these are no messages, or one cannot be encoded.
    """
    return (bodies for bodies, _ in sized_batches(messages, size, message_type))


def sized_batches(
    messages: Iterable[Any], size: int, message_type: MessageType = JSON
) -> Iterator[tuple[list[bytes], int]]:
    """Encode messages and cut them, as `encode_batches` does; gives the bytes of each run, too."""
    check_batches(messages, size)
    bodies: list[bytes] = []
    total, most = 0, batch_bytes(message_type)
    for data in messages:
        body = data if type(data) is bytes else message_type.encode(data)
        bodies.append(body)
        total += len(body)
        if len(bodies) >= size or total >= most:
            yield bodies, total
            bodies, total = [], 0
    if bodies:
        yield bodies, total


def decode_body(body: bytes, message_type: MessageType = JSON) -> Any:
    """Decode a body; the bytes as they are when they are not of its type."""
    try:
        return message_type.decode(body)
    except ValueError:
        return body


def shorten(data: Any) -> str:
    """A decoded body as the representation of its message has it."""
    text = repr(data)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def encode_headers(headers: Mapping[str, str] | None) -> bytes:
    """Turn headers, text to text, into their field; empty when there are none."""
    if not headers:
        return b""
    if not isinstance(headers, Mapping) or not all(
        isinstance(name, str) and isinstance(value, str) for name, value in headers.items()
    ):
        raise DefinitionError(f"headers={shown(headers)}: allowed is a dict of texts, as in {{'lang': 'en'}}")
    try:
        return JSON_TEXT.encode(dict(headers)).encode()
    except UnicodeEncodeError as error:
        raise DefinitionError(f"headers: {error}; allowed is text that UTF-8 can say") from error


def read_headers(field: bytes | str) -> dict[str, str]:
    """Read the headers of a message that somebody looks at.

    What another program wrote there may be no JSON object of texts: then all of it stands under `UNREADABLE`.
    """
    if not field:
        return {}
    try:
        found = json.loads(field)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict) and all(isinstance(value, str) for value in found.values()):
        return found
    return {UNREADABLE: field if isinstance(field, str) else field.decode(errors="backslashreplace")}


def read_pairs(text: bytes) -> list[bytes]:
    """Read ``<length>:<text>`` pairs, names and values in turn."""
    parts: list[bytes] = []
    at = 0
    while at < len(text):
        colon = text.index(b":", at)
        end = colon + 1 + int(text[at:colon])
        parts.append(text[colon + 1 : end])
        at = end
    return parts


def without_group(flat: Sequence[bytes]) -> Sequence[bytes]:
    """The fields of a delivered message that are its entry's, without what its queue says of its group and batch."""
    for name in (_TOLD_BATCH, _TOLD_BEGINS, _TOLD_GROUP):
        if flat and flat[0] == name:
            flat = flat[2:]
    return flat


def group_pair(group: str, *, begins: bool = False) -> bytes:
    """Write what the head of a delivered message says of its group, and whether it begins."""
    pairs = [*([(_TOLD_BEGINS, b"1")] if begins else []), (_TOLD_GROUP, group.encode())]
    return b"".join(b"%d:%s%d:%s" % (len(name), name, len(value), value) for name, value in pairs)


def group_of(parts: Sequence[bytes]) -> str | None:
    """Return the group of a delivered message: what its queue or its publisher says; None without one."""
    flat = read_pairs(parts[6]) if len(parts) > 6 else []  # noqa: PLR2004
    for name in (_TOLD_BATCH, _TOLD_BEGINS):
        if flat and flat[0] == name:
            flat = flat[2:]
    if flat and flat[0] == _TOLD_GROUP:
        return flat[1].decode(errors="replace")
    said = dict(zip(flat[::2], flat[1::2], strict=True)).get(_IN_GROUP) if parts[4] != b"f" else None
    return said.decode(errors="replace") if said else None


def group_begins(parts: Sequence[bytes]) -> bool:
    """Return whether the group of a delivered message was not bound to its subscription before."""
    flat = read_pairs(parts[6])[:4] if len(parts) > 6 else []  # noqa: PLR2004
    return _TOLD_BEGINS in flat[: 4 if flat[:1] == [_TOLD_BATCH] else 2 : 2]


def batch_of(parts: Sequence[bytes]) -> tuple[bytes, bytes] | None:
    """Return what names the batch of a group that a delivered message came in: its queue, and the batch's first token.

    None of a message that came by itself.
    """
    # What the queue says of the batch comes first.
    if len(parts) <= 6 or not parts[6].startswith(_BATCH_SAID):  # noqa: PLR2004
        return None
    return parts[0], read_pairs(parts[6])[1]


def due_of(parts: Sequence[bytes]) -> int:
    """Return when a delivered message is due, ms, if it was published for later; else 0."""
    # Fields that somebody else wrote say nothing to us.
    if len(parts) <= 6 or parts[4] == b"f":  # noqa: PLR2004
        return 0
    flat = read_pairs(parts[6])
    return int(dict(zip(flat[::2], flat[1::2], strict=True)).get(_DUE, 0))


def document_of(parts: list[bytes], body: bytes) -> Document:
    """A delivered message as expressions see it; instance and origin are unknown here."""
    from ampsq.expressions import Document  # noqa: PLC0415  (only a replaced subscription needs it)

    fields, source = read_entry(without_group(read_pairs(b"".join(parts[6:]))))
    topic, stream_id = parse_ref(parts[5].decode())
    found = None if parts[4] == b"f" else body
    kind = delivered_type(parts)
    return Document(found, fields=fields, topic=topic, stream_id=stream_id, source=source, message_type=kind)


def delivered_type(parts: list[bytes]) -> MessageType:
    """Return the message type that the head of a delivered message names."""
    return JSON if parts[4] in _JSON_KINDS else MessageType.parse(parts[4].decode())
