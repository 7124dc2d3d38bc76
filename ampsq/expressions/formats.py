"""Bodies of other message types than JSON as documents: what `lua/expressions/lib/body_formats.lua` does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ampsq.base.message_types import MessageType, load_msgpack

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["as_double", "read_body"]

_EXACT: Final = 2**53
#: Arrays and maps may be nested this deep.
_DEEPEST: Final = 100


def as_double(number: float) -> int | float:
    """Return a number of a large body: an integer where it is whole and below 2^53, however it is written."""
    return int(number) if -_EXACT < number < _EXACT and number == int(number) else number


def read_body(message_type: MessageType, body: bytes, most: int, *, doubles: bool = False) -> tuple[bool, Any, int]:
    """Read a body that is not JSON.

    Args:
        message_type: its type.
        body: the body.
        most: values of a body of MessagePack, and fields of one of nvfix or fix; more are no document.
        doubles: read numbers as those of large bodies are; see `as_double`.

    Returns:
        Whether it is of its type as `docs/message-types.md` defines it, and what it holds: texts are bytes, names are
        texts. Last, how many values it has.
    """
    if message_type.name == "msgpack":
        return _Packed(doubles=doubles).read(body, most)
    return _fields(message_type, body, most) if message_type.has_fields else (False, None, 0)


def _fields(message_type: MessageType, body: bytes, most: int) -> tuple[bool, Any, int]:
    found: dict[str, Any] = {}
    count = 0
    try:
        for name_bytes, value in message_type.pairs(body):
            name = name_bytes.decode("utf-8", "surrogateescape")
            known = found.get(name)
            if known is None:
                found[name] = value
            elif isinstance(known, list):
                known.append(value)
            else:
                found[name] = [known, value]
            count += 1
            if count > most:
                return False, None, count
    except ValueError:
        return False, None, count
    return True, found, count


class _Packed:
    """Reads one body of MessagePack."""

    def __init__(self, *, doubles: bool) -> None:
        self._values, self._containers, self._has_doubles = 1, 0, doubles

    def read(self, body: bytes, most: int) -> tuple[bool, Any, int]:
        """See `read_body`."""
        try:
            content = load_msgpack().unpackb(
                body,
                raw=True,
                strict_map_key=False,
                object_pairs_hook=self._map,
                list_hook=self._array,
                ext_hook=lambda _code, _data: None,
            )
        except (ValueError, RecursionError):
            # Its own refusals are ValueErrors, too.
            return False, None, self._values
        if self._values > most or (self._containers > _DEEPEST and _is_too_deep(content)):
            return False, None, self._values
        return True, self._value(content), self._values

    def _value(self, value: Any) -> Any:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return as_double(float(value)) if self._has_doubles and is_number else value

    def _array(self, elements: list[Any]) -> list[Any]:
        self._values += len(elements)
        self._containers += 1
        return list(map(self._value, elements)) if self._has_doubles else elements

    def _map(self, pairs: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
        self._values += 2 * len(pairs)
        self._containers += 1
        found: dict[Any, Any] = {}
        for number, (key, each) in enumerate(pairs):
            if isinstance(key, list | dict):
                raise ValueError("a key that is an array or a map")  # noqa: TRY004 - as of all that is malformed
            name, value = _name(key), self._value(each)
            # Under a number no identifier leads there, but its depth counts.
            if name is None or name in found:
                found[number,] = value if name is None else found[name]
            if name is not None:
                found[name] = value
        return found


def _name(key: Any) -> str | None:
    if isinstance(key, bytes):
        return key.decode("utf-8", "surrogateescape")
    return str(key) if isinstance(key, int) and not isinstance(key, bool) else None


def _is_too_deep(content: Any) -> bool:
    level = [content]
    for _ in range(_DEEPEST):
        inner: list[Any] = []
        for value in level:
            inner += value.values() if isinstance(value, dict) else value
        level = [value for value in inner if isinstance(value, list | dict)]
    return bool(level)
