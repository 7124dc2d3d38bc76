"""Message types: what the bodies of a topic are, how data become a body and a body becomes data."""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, Literal, Self, get_args
from uuid import UUID

from ampsq.base.errors import DefinitionError
from ampsq.base.limits import limits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

__all__ = [
    "EXPRESSION_LIMIT",
    "JSON",
    "SEPARATOR",
    "SMALL_BODY",
    "MessageType",
    "MessageTypeName",
    "is_structured",
    "load_msgpack",
]

MessageTypeName = Literal["json", "msgpack", "nvfix", "fix", "binary"]
SEPARATOR: Final = "\x01"
"""Separator of the fields of nvfix and fix, unless a topic says otherwise: SOH."""

EXPRESSION_LIMIT: Final = 2**20
"""Bytes of the largest body that expressions read, unless its topic or its instance says otherwise."""

SMALL_BODY: Final = 32_768
"""Bytes up to which a body is read at no cost of steps, and its numbers are exact; the least `expression_limit`."""

_WITH_FIELDS: Final = ("nvfix", "fix")
#: What is written as text, or an enum's value, by every message type.
_SCALARS: Final = (datetime, date, time, timedelta, UUID, Decimal, Enum)
_WORD: Final = re.compile(r"([a-z]+)([0-9]*)")
_TAG: Final = re.compile(r"[0-9]+")


def is_structured(value: object) -> bool:
    """Ask whether a value is a pydantic model or a dataclass, of pydantic or not."""
    kind = type(value)
    return hasattr(kind, "__pydantic_serializer__") or dataclasses.is_dataclass(kind)


def _scalar(value: object) -> object:
    """Return a time, UUID, Decimal or enum as pydantic writes it in JSON."""
    from pydantic_core import to_jsonable_python  # noqa: PLC0415  (needed by few)

    return to_jsonable_python(value)


def _jsonable(value: object) -> object:
    """Return what JSON says for a value that it does not know; called for such values alone."""
    if isinstance(value, _SCALARS) or is_structured(value):
        return _scalar(value)
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def _as_mapping(value: object) -> dict[str, object] | object:
    """Return the fields of a model or a dataclass, its values as they are; anything else as it is."""
    kind = type(value)
    serializer: Any = getattr(kind, "__pydantic_serializer__", None)
    if serializer is not None:
        fields: dict[str, object] = serializer.to_python(value, by_alias=True)
        return fields
    if dataclasses.is_dataclass(kind):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(kind)}
    return value


def _packable(value: object) -> object:
    """Return what MessagePack says for a value that it does not know; bytes and times with a zone it does."""
    if isinstance(value, _SCALARS):
        return _scalar(value)
    if isinstance(value, set | frozenset):
        # Within a model, whose type says that it is one.
        return list(value)
    if is_structured(value):
        return _as_mapping(value)
    raise TypeError(f"can not serialize {type(value).__name__!r} object")


_JSON_WRITER: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_jsonable)


def load_msgpack() -> ModuleType:
    """Import the package that reads and writes MessagePack.

    Raises:
        DefinitionError: it is not installed.
    """
    try:
        return importlib.import_module("msgpack")
    except ImportError:
        raise DefinitionError("the message type msgpack needs a package: pip install 'ampsq[msgpack]'") from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_JSON_READER: Final = json.JSONDecoder(parse_constant=_refuse)


@dataclasses.dataclass(frozen=True, slots=True)
class MessageType:
    """A message type with what separates its fields; equal ones are alike.

    Attributes:
        name: the message type.
        separator: the one character between fields; of nvfix and fix only.
        expression_limit: bytes of the largest body that expressions read, where it was asked of a topic. It does not
            make types unlike.
        is_read_whole: whether the server reads each body when it is published, since the topic has a key. It does not
            make types unlike, either.
    """

    name: MessageTypeName
    separator: str = SEPARATOR
    expression_limit: int = dataclasses.field(default=EXPRESSION_LIMIT, compare=False)
    is_read_whole: bool = dataclasses.field(default=False, compare=False, repr=False)

    @classmethod
    @lru_cache(maxsize=64)
    def parse(cls, word: str) -> Self:
        """Read what `word` wrote; "" is JSON.

        Raises:
            DefinitionError: it is no message type that this version knows.
        """
        found = _WORD.fullmatch(word or "json")
        if found is None or found[1] not in get_args(MessageTypeName):
            raise DefinitionError(
                f"message type {word!r} is not known; allowed: {', '.join(get_args(MessageTypeName))}"
            )
        name: Any = found[1]
        return cls(name, chr(int(found[2]))) if found[2] else cls(name)

    @classmethod
    def of_definition(cls, text: str | bytes | None, limit: int = EXPRESSION_LIMIT) -> MessageType:
        """The type that the definition of a topic or a queue has, as the catalog keeps it; JSON where it is none.

        Args:
            text: the definition.
            limit: the `expression_limit` where it says none.
        """
        elements = json.loads((text or b"").lstrip() or b"{}")
        word = elements.get("message_type", "")
        separator = elements.get("field_separator")
        found = cls.parse(word) if separator is None else cls(word, separator)
        own = elements.get("expression_limit", limit)
        is_keyed = bool(elements.get("key"))
        if (own, is_keyed) == (found.expression_limit, found.is_read_whole):
            return found
        return dataclasses.replace(found, expression_limit=own, is_read_whole=is_keyed)

    @property
    def has_fields(self) -> bool:
        """Return whether a body is fields with a separator."""
        return self.name in _WITH_FIELDS

    @property
    def word(self) -> str:
        """The same as scripts have it; "" for JSON."""
        if self.name == "json":
            return ""
        return f"{self.name}{ord(self.separator)}" if self.has_fields else self.name

    def __str__(self) -> str:
        return f"{self.name} separated by {self.separator!r}" if self.separator != SEPARATOR else self.name

    def encode(self, data: Any) -> bytes:
        """Turn what a user publishes into a body: bytes go as they are, whatever the type.

        Raises:
            DefinitionError: the type cannot say such data.
        """
        if isinstance(data, bytes):
            return data
        if self.name == "binary":
            raise DefinitionError(
                f"data of type {type(data).__name__} cannot be published to a topic of message type binary; allowed: "
                "bytes, as text.encode() gives them"
            )
        if self.name in _WITH_FIELDS:
            return self._fields(data)
        body: bytes
        try:
            if self.name == "msgpack":
                body = load_msgpack().packb(data, datetime=True, default=_packable)
                return body
            body = _JSON_WRITER.encode(data).encode()
        except DefinitionError:
            raise
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            can = "JSON" if self.name == "json" else "MessagePack"
            raise DefinitionError(
                f"data of type {type(data).__name__} cannot be published: {error}; allowed: bytes, or what "
                f"{can} can say, with models, dataclasses, times, UUIDs, Decimals and enums in it"
            ) from error
        deepest = limits().json_depth
        # A body with fewer brackets is not nested deeper.
        if len(body) > deepest and body.count(b"[") + body.count(b"{") > deepest:
            limits().check_depth(body)
        return body

    def decode(self, body: bytes) -> Any:
        """Read a body: what JSON or MessagePack says, the fields of nvfix and fix as a dict of texts, or bytes.

        Raises:
            ValueError: the body is not of this type, or nested so deep that it cannot be read.
            DefinitionError: MessagePack, and its package is not installed.
        """
        if self.name == "binary":
            return body
        if self.has_fields:
            return self._read_fields(body)
        try:
            if self.name == "json":
                return _JSON_READER.decode(body.decode())
            return load_msgpack().unpackb(body, strict_map_key=False, timestamp=3)
        except RecursionError as error:
            raise ValueError("nested too deep") from error
        except (TypeError, OverflowError) as error:
            # A map whose key is a map, or a time that no datetime can be.
            raise ValueError(str(error)) from error

    def pairs(self, body: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The names and values of a body of nvfix or fix, in order.

        Raises:
            ValueError: it is no such body.
        """
        fields = body.split(self.separator.encode())
        if len(fields) > 1 and not fields[-1]:
            fields.pop()
        for field in fields:
            name, equals, value = field.partition(b"=")
            if not equals or not name or (self.name == "fix" and not _TAG.fullmatch(name.decode("latin-1"))):
                raise ValueError(f"{field[:80]!r} is no field of {self.name}")
            yield name, value

    def _read_fields(self, body: bytes) -> dict[str, str | list[str]]:
        found: dict[str, str | list[str]] = {}
        for name_bytes, value_bytes in self.pairs(body):
            name, value = (part.decode("utf-8", "surrogateescape") for part in (name_bytes, value_bytes))
            known = found.get(name)
            if known is None:
                found[name] = value
            elif isinstance(known, list):
                known.append(value)
            else:
                found[name] = [known, value]
        return found

    def _fields(self, data: Any) -> bytes:
        if not isinstance(data, Mapping):
            data = _as_mapping(data)
        if not isinstance(data, Mapping) or not data:
            example = {"55" if self.name == "fix" else "symbol": "IBM"}
            raise DefinitionError(
                f"data of type {type(data).__name__} cannot be published to a topic of message type {self.name}; "
                f"allowed: bytes, or a mapping with fields, as in {example}"
            )
        end, out = self.separator.encode(), []
        for name, given in data.items():
            written = self._name(name)
            values = given if isinstance(given, list | tuple) else (given,)
            out += [written + b"=" + self._value(name, value) + end for value in values]
        return b"".join(out)

    def _name(self, name: object) -> bytes:
        text = str(name) if isinstance(name, int) and not isinstance(name, bool) else name
        if isinstance(text, str) and self.name == "fix" and not _TAG.fullmatch(text):
            raise DefinitionError(f"{name!r} is no tag of fix; allowed: digits, as in '55'; names need the type nvfix")
        if not isinstance(text, str) or not text or "=" in text or self.separator in text:
            raise DefinitionError(
                f"{name!r} is no name of a field; allowed: a text that has neither '=' nor the separator "
                f"{self.separator!r}"
            )
        return text.encode("utf-8", "surrogateescape")

    def _value(self, name: object, value: object) -> bytes:
        if isinstance(value, float) and isfinite(value):
            value = repr(value)
        elif isinstance(value, int | Decimal) and not isinstance(value, bool):
            value = str(value)
        elif isinstance(value, _SCALARS) and not isinstance(value, str):
            value = str(_scalar(value))
        body = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
        if not isinstance(body, bytes) or self.separator.encode() in body:
            raise DefinitionError(
                f"field {name!r}: {value!r} cannot be a value of {self.name}; allowed: texts, bytes and finite numbers "
                f"without the separator {self.separator!r}, or a list of them"
            )
        return body


JSON: Final = MessageType("json")
"""Message type of a topic that names none."""
