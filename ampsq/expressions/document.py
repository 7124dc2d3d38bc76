"""The documents that expressions read: what a message's body holds, and what else is known of the message."""

from __future__ import annotations

import json
import re
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self

from ampsq.base.message_types import JSON
from ampsq.expressions.budget import ENTERING, KEEPING, PIECE, STEPS
from ampsq.expressions.formats import as_double, read_body
from ampsq.expressions.reading import VALUE, is_large, steps_behind_reading
from ampsq.expressions.values import integer_or_float

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ampsq.base.message_types import MessageType
    from ampsq.expressions.values import Scalar, Value

__all__ = ["Document", "decode", "read"]

#: Arrays and objects in a body may be nested this deep.
_DEEPEST: Final = 100
_LONG: Final = 1_000

_CONTROL: Final = bytes(sign for sign in range(32) if sign not in b"\t\n\r")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(rb"\\(?:u[dD][89aAbB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F])|.)", re.DOTALL)
# A string that nobody closed runs to the end, so that this stays linear whatever the body.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_OPENING: Final = b"[{"
_NO_BRACKET: Final = bytes(sign for sign in range(256) if sign not in b"[{]}")

_NOTHING: Final[Mapping[bytes, bytes]] = MappingProxyType({})


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


_PLAIN = json.JSONDecoder(strict=False, parse_constant=_refuse)
# Python refuses to read integers of thousands of digits; they are floats here.
_PATIENT = json.JSONDecoder(
    strict=False, parse_constant=_refuse, parse_int=lambda digits: int(digits) if len(digits) < _LONG else float(digits)
)

_DOUBLES = json.JSONDecoder(
    strict=False,
    parse_constant=_refuse,
    parse_int=lambda digits: as_double(float(digits)),
    parse_float=lambda text: as_double(float(text)),
)


def decode(body: bytes, *, doubles: bool = False) -> tuple[bool, Any]:
    """Read a body.

    Args:
        body: the body.
        doubles: read numbers as those of large bodies are: whole ones below 2^53 as integers, all others as floats.

    Returns:
        Whether it is JSON as `docs/expressions.md` defines it, and what it holds.
    """
    if len(body.translate(None, _CONTROL)) < len(body) or _is_too_deep(body) or _has_lone_surrogate(body):
        return False, None
    text = body.decode("utf-8", "surrogateescape")
    try:
        return True, (_DOUBLES if doubles else _PLAIN).decode(text)
    except json.JSONDecodeError:
        return False, None
    except ValueError:
        pass
    try:
        return True, _PATIENT.decode(text)
    except ValueError:
        return False, None


def _is_too_deep(body: bytes) -> bool:
    if body.count(b"[") + body.count(b"{") <= _DEEPEST:
        return False
    depth = 0
    for bracket in _STRING.sub(b"", body).translate(None, _NO_BRACKET):
        if bracket not in _OPENING:
            depth -= 1
        elif depth == _DEEPEST:
            return True
        else:
            depth += 1
    return False


def _has_lone_surrogate(body: bytes) -> bool:
    if not _SURROGATE.search(body):
        return False
    return any(found[1] for found in _ESCAPE.finditer(body))


class Document:
    """The document that an expression is evaluated on; the body is decoded when something first asks, and once.

    Attributes:
        body: the message's body; None for an entry that has no body field, whose fields are its document.
        message_type: the body's message type.
        fields: the entry's other fields, such as ``h`` (headers, JSON) and ``p`` (the publisher).
        topic: the topic of the log that the entry is in.
        stream_id: the entry's id in that log, milliseconds and a sequence.
        origin: of the instance that evaluates, for the bookmarks of what was published there.
        source: of a copy, where it was published, ``<origin>~<id>``; "" of what was published at `origin`.
        instance: the name of the instance that evaluates.
        deliveries: how often a queue delivered the message before.
        now: the server's time in milliseconds; None reads this machine's clock.
    """

    __slots__ = (
        "_decoded",
        "_is_unread",
        "_steps",
        "body",
        "deliveries",
        "fields",
        "instance",
        "message_type",
        "now",
        "origin",
        "source",
        "stream_id",
        "topic",
        "topics",
    )

    def __init__(
        self,
        body: bytes | None,
        *,
        fields: Mapping[bytes, bytes] = _NOTHING,
        topic: str = "",
        stream_id: str = "0-0",
        origin: str = "",
        source: str = "",
        instance: str = "",
        deliveries: int = 0,
        now: int | None = None,
        message_type: MessageType = JSON,
    ) -> None:
        self.body = body
        self.message_type = message_type
        self.fields = fields
        self.topic = topic
        self.stream_id = stream_id
        self.origin = origin
        self.source = source
        self.instance = instance
        self.deliveries = deliveries
        self.now = now
        self.topics: Mapping[str, Any] = {}
        self._decoded: tuple[bool, Any] | None = None
        self._steps = STEPS
        self._is_unread = False

    @classmethod
    def of_topics(cls, topics: Mapping[str, Any], **known: Any) -> Self:
        """Make the document of a row over several topics, for views.

        Args:
            topics: topic -> its message's content, as `json.loads` gives it; a topic without a message is left out.
            known: whatever else a document has, such as `now`.
        """
        document = cls(None, **known)
        document.topics = topics
        document._decoded = (True, {})
        return document

    @property
    def is_json(self) -> bool:
        """Return whether there is a document, JSON or of another type, and it is read: else no filter matches."""
        return self._content()[0]

    @property
    def content(self) -> Any:
        """Value of the body, as `json.loads` gives it; None where it is not of its message type."""
        return self._content()[1]

    @property
    def is_unread(self) -> bool:
        """Return whether the body is more than expressions read: larger than its topic's limit, or beyond the steps."""
        if self.body is None or (self.message_type == JSON and not is_large(self.body)):
            return False
        self._content()
        return self._is_unread

    @property
    def steps(self) -> int:
        """Steps that an evaluation may do, those for reading the body taken off."""
        self._content()
        return self._steps

    @property
    def seconds(self) -> int:
        """The server's time in whole seconds since 1970."""
        return int(time.time()) if self.now is None else self.now // 1000

    def _content(self) -> tuple[bool, Any]:
        if self._decoded is None:
            if self.body is None:
                self._decoded = True, {_text(name): _text(value) for name, value in self.fields.items()}
            else:
                self._decoded = self._read(self.body, doubles=is_large(self.body))
        return self._decoded

    def _read(self, body: bytes, *, doubles: bool) -> tuple[bool, Any]:
        if doubles:
            self._steps = steps_behind_reading(body, self.message_type)
            if self._steps < 0:
                self._is_unread = True
                return False, None
        if self.message_type == JSON:
            return decode(body, doubles=doubles)
        is_of_type, content, values = read_body(self.message_type, body, self._steps // VALUE, doubles=doubles)
        most = self._steps // VALUE
        self._is_unread = values > most
        if doubles:
            self._steps -= VALUE * min(values, most)
        return is_of_type, content


def _text(field: bytes) -> str:
    return field.decode("utf-8", "surrogateescape")


def read(content: Any, path: tuple[str | int, ...], spend: Callable[[int], None]) -> Value:
    """Read an identifier.

    Args:
        content: what `json.loads` gave.
        path: names of objects' members, and numbers of arrays' elements.
        spend: told the steps, when the path entered an array.

    Returns:
        NULL, one element, or the list of several.
    """
    for place, step in enumerate(path):
        if isinstance(content, dict):
            content = content.get(step)
        elif isinstance(content, list):
            if isinstance(step, str):
                return _gather(content, path[place:], spend)
            content = content[step] if step < len(content) else None
        else:
            return None
    return _gather(content, (), spend) if isinstance(content, list) else _scalar(content)


def _gather(content: list[Any], path: tuple[str | int, ...], spend: Callable[[int], None]) -> Value:
    found: list[Scalar] = []
    spend(ENTERING * len(content))
    for element in content:
        _collect(element, path, found, spend)
    if not found:
        return None
    return found if len(found) > 1 else found[0]


def _collect(content: Any, path: tuple[str | int, ...], found: list[Scalar], spend: Callable[[int], None]) -> None:
    """Add what lies at the end of the path; the body's depth bounds the recursion."""
    for place, step in enumerate(path):
        if isinstance(content, dict):
            content = content.get(step)
        elif isinstance(content, list):
            if isinstance(step, str):
                spend(ENTERING * len(content))
                for element in content:
                    _collect(element, path[place:], found, spend)
                return
            content = content[step] if step < len(content) else None
        else:
            return
    if isinstance(content, list):
        spend(ENTERING * len(content))
        for element in content:
            _collect(element, (), found, spend)
        return
    scalar = _scalar(content)
    if scalar is not None:
        spend(KEEPING + (len(scalar) // PIECE if isinstance(scalar, bytes) else 0))
        found.append(scalar)


def _scalar(content: Any) -> Scalar | None:
    """Return the scalar that a value which is no array counts as; null, objects and the empty string are NULL."""
    if isinstance(content, bytes):
        return content or None
    if isinstance(content, str):
        return content.encode("utf-8", "surrogateescape") or None
    if isinstance(content, bool):
        return int(content)
    if isinstance(content, int):
        return integer_or_float(content)
    return content if isinstance(content, float) else None
