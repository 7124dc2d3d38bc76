"""Bodies of other message types than JSON as documents: what `lua/expressions/lib/body_formats.lua` does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ampsq.base.message_types import MessageType, load_msgpack

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["read_body"]

#: Values of a body of MessagePack, and fields of one of nvfix or fix; more are no document.
_MOST: Final = 20_000
#: Arrays and maps may be nested this deep.
_DEEPEST: Final = 100


def read_body(message_type: MessageType, body: bytes) -> tuple[bool, Any]:
    """Read a body that is not JSON.

    Returns:
        Whether it is of its type as `docs/message-types.md` defines it, and what it holds: texts are bytes, names are
        texts.
    """
    if message_type.name == "msgpack":
        return _Packed().read(body)
    return _fields(message_type, body) if message_type.has_fields else (False, None)


def _fields(message_type: MessageType, body: bytes) -> tuple[bool, Any]:
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
            if count > _MOST:
                return False, None
    except ValueError:
        return False, None
    return True, found


class _Packed:
    """Reads one body of MessagePack."""

    def __init__(self) -> None:
        self._values, self._containers = 1, 0

    def read(self, body: bytes) -> tuple[bool, Any]:
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
            return False, None
        if self._values > _MOST or (self._containers > _DEEPEST and _is_too_deep(content)):
            return False, None
        return True, content

    def _array(self, elements: list[Any]) -> list[Any]:
        self._values += len(elements)
        self._containers += 1
        return elements

    def _map(self, pairs: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
        self._values += 2 * len(pairs)
        self._containers += 1
        found: dict[Any, Any] = {}
        for number, (key, value) in enumerate(pairs):
            if isinstance(key, list | dict):
                raise ValueError("a key that is an array or a map")  # noqa: TRY004 - as of all that is malformed
            name = _name(key)
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
