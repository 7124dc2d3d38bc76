"""How fields and strings are written in an expression."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["place_in_string", "read_path", "read_string", "split_topic"]

_STEPS = re.compile(r"\[/([^\]]*)\]|\[([0-9]+)\]|/([A-Za-z0-9_@:.-]+)")
_PIECE = re.compile(r"\\x[0-9a-fA-F]{2}|\\[0-3][0-7]{2}|\\.|[^\\]", re.DOTALL)
_NAMED = {"a": b"\a", "b": b"\b", "t": b"\t", "n": b"\n", "f": b"\f", "r": b"\r"}


def split_topic(source: str) -> tuple[str | None, str]:
    """Part ``[topic]./a`` into the topic and the path; the topic is None without one."""
    if source.startswith("[") and not source.startswith("[/"):
        topic, _, path = source[1:].partition("].")
        return topic, path
    return None, source


def read_path(source: str) -> tuple[str | int, ...]:
    """Read a field without its topic: names as texts, subscripts as numbers; a name may turn out to be empty."""
    steps: list[str | int] = []
    for bracketed, subscript, name in _STEPS.findall(source):
        if subscript:
            steps.append(int(subscript))
        else:
            steps += [name] if name else bracketed.split("/")
    return tuple(steps)


def read_string(source: str) -> bytes:
    """Read a string as it is written, with its quotes."""
    return b"".join(piece for _, piece in _pieces(source))


def place_in_string(source: str, position: int) -> int:
    """Where in a string's source, from 0, the byte at a position of its value is written."""
    read = 0
    for place, piece in _pieces(source):
        read += len(piece)
        if read > position:
            return place
    return len(source) - 1


def _pieces(source: str) -> Iterator[tuple[int, bytes]]:
    """The parts of a string, each with its place in the source."""
    if source[0] in "rR":
        for place, sign in enumerate(source[2:-1], 2):
            yield place, _encoded(sign)
        return
    for found in _PIECE.finditer(source, 1, len(source) - 1):
        yield found.start(), _unescaped(found[0])


def _unescaped(piece: str) -> bytes:
    if piece[0] != "\\":
        return _encoded(piece)
    if len(piece) == 4:  # noqa: PLR2004 - \xHH and \OOO
        return bytes.fromhex(piece[2:]) if piece[1] == "x" else bytes([int(piece[1:], base=8)])
    return _NAMED.get(piece[1]) or _encoded(piece[1])


def _encoded(sign: str) -> bytes:
    return sign.encode("utf-8", "surrogateescape")
