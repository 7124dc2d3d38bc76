"""Text of fields and strings in an expression."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["place_in_string", "raw_pattern_advice", "read_path", "read_string", "split_topic"]

_STEPS = re.compile(r"\[/([^\]]*)\]|\[([0-9]+)\]|/([A-Za-z0-9_@:.-]+)")
_PIECE = re.compile(r"\\x[0-9a-fA-F]{2}|\\[0-3][0-7]{2}|\\.|[^\\]", re.DOTALL)
_NAMED = {"a": b"\a", "b": b"\b", "t": b"\t", "n": b"\n", "f": b"\f", "r": b"\r"}
#: Escapes that a pattern needs its backslash for: a text drops it, or makes a backspace of it.
_LOST_IN_TEXTS = re.compile(r"\\(?:[^\W_atnfrx]|[-.()\[\]{}+*?^$|])", re.ASCII)
_LONGEST_SHOWN = 60


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
    """Return the place in a string's source, from 0, that spells the byte at a position of its value."""
    read = 0
    for place, piece in _pieces(source):
        read += len(piece)
        if read > position:
            return place
    return len(source) - 1


def raw_pattern_advice(source: str) -> tuple[int, str] | None:
    r"""Return what to write instead of a pattern whose text loses a backslash, as that of `'\d'` and `'\.'` does.

    Args:
        source: the pattern's string as it is written, with its quotes.

    Returns:
        Where in the source that escape is, from 0, and the advice; None for raw strings and where all is kept.
    """
    if source[0] in "rR":
        return None
    for found in _PIECE.finditer(source, 1, len(source) - 1):
        piece = found[0]
        if _LOST_IN_TEXTS.fullmatch(piece):
            meaning = "a backspace" if piece == r"\b" else f"'{piece[1]}'"
            return found.start(), f"'{piece}' is {meaning} in a text; {_written_raw(source, piece)}"
    return None


def _written_raw(source: str, piece: str) -> str:
    r"""Return the pattern as a raw string, which has no escaped quote and no doubled backslash."""
    pieces = (found[0] for found in _PIECE.finditer(source, 1, len(source) - 1))
    body = "".join(part[1] if part[0] == "\\" and part[1] in "\\'\"" else part for part in pieces)
    quote = next((sign for sign in (source[0], "'", '"') if sign not in body), None)
    if quote is None or len(body) > _LONGEST_SHOWN:
        return f"write the pattern raw, as in r'{piece}', or the backslash twice: \\{piece}"
    return f"write the pattern raw: r{quote}{body}{quote}"


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
