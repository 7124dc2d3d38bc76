"""Output of commands: tables for people, JSON lines for programs, notes beside them on standard error."""

from __future__ import annotations

import ast
import base64
import contextlib
import json
import re
import shlex
import shutil
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Final

from ampsq.base.formatting import printable, printable_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "Bodies",
    "body_text",
    "in_commands",
    "json_line",
    "json_text",
    "labelled",
    "message_json",
    "note",
    "table",
]

_GAP: Final = 2
#: Least characters of a column that is folded.
_FOLDED: Final = 8
#: Most characters of a free text in a cell, and least where the terminal has no room for it.
_CELL: Final = 100
_LEAST_CELL: Final = 16
#: Most characters of a body on a line of its own.
_LINE: Final = 400
_CUT: Final = "..."
_WHOLE: Final = "what ends in ... was cut; -o jsonl prints it whole"
#: A call to subscribe, as texts of the library name it, and the name that it is given.
_CALL: Final = re.compile(r"""\b(subscribe(?:_topic)?)\(('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\)""")
_NEEDS_RICH: Final = "for tables with colours: pip install 'ampsq[cli]'"


def in_commands(text: str) -> str:
    """Name the commands where a text of the library names the calls to subscribe."""

    def command(call: re.Match[str]) -> str:
        return f"`ampsq {call[1].replace('_', '-')} {shlex.quote(ast.literal_eval(call[2]))}`"

    return _CALL.sub(command, text)


def json_text(value: object) -> str:
    """Write a value as one line of JSON.

    Raises:
        ValueError: it holds NaN or infinity.
    """
    # What acts on a terminal stands in texts alone, where JSON has these escapes, too.
    text = printable(json.dumps(value, ensure_ascii=False, allow_nan=False, default=_escape_spaces))
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False, default=_escape_spaces)
    return text


def _escape_spaces(value: object) -> object:
    """Return a JSON value for one that MessagePack knows and JSON does not: bytes, times."""
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    return value.isoformat() if isinstance(value, datetime) else str(value)


def json_line(value: Mapping[str, object]) -> None:
    """Print one object, at once."""
    print(json_text(value), flush=True)


def message_json(facts: Mapping[str, object], raw: bytes) -> str:
    """Write a message's facts as one line of JSON; `data` that JSON cannot say is ``{"base64": ...}`` of `raw`."""
    if not isinstance(facts["data"], bytes):
        try:
            return json_text(facts)
        except (ValueError, TypeError):
            # NaN and infinity, which Python reads and JSON does not have; and names that are no texts.
            pass
    return json_text({**facts, "data": {"base64": base64.b64encode(raw).decode()}})


def body_text(raw: bytes, data: object, message_type: str = "json") -> str:
    """Write a body for people, on one line: as it is if it can be printed, else escaped or as base64.

    What is MessagePack is written as JSON, and in nvfix and fix a bar stands for SOH.
    """
    if message_type == "msgpack" and not isinstance(data, bytes):
        with contextlib.suppress(ValueError, TypeError):
            return json_text(data)
    if message_type in {"nvfix", "fix"}:
        raw = raw.replace(b"\x01", b"|")
    try:
        body = raw.decode()
    except UnicodeDecodeError:
        return f"base64 {base64.b64encode(raw).decode()}"
    if body.isprintable():
        return body
    try:
        return ascii(body)[1:-1] if isinstance(data, bytes) else json_text(data)
    except ValueError:
        # A number beyond all floats, which Python reads as infinity.
        return ascii(body)[1:-1]


class Bodies:
    """Bodies for people, each on a line: long ones are cut, and with the first it is said how to see them whole."""

    def __init__(self) -> None:
        self._is_told = False

    def text(self, raw: bytes, data: object, message_type: str = "json") -> str:
        """Write one as `body_text` does."""
        text = body_text(raw, data, message_type)
        if len(text) > _LINE and not self._is_told:
            self._is_told = True
            note(_WHOLE)
        return _cut(text, _LINE)


def labelled(facts: Sequence[tuple[str, object]]) -> None:
    """Print facts, each on a line behind its label, in one column."""
    width = max((len(label) for label, _ in facts), default=0)
    for label, value in facts:
        print(f"{label:{width}}  {printable(str(value))}")


def note(text: str) -> None:
    """Tell a person something that is no result."""
    print(f"Note: {text}", file=sys.stderr, flush=True)


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    short: Mapping[str, str] | None = None,
    spare: Sequence[str] = (),
    free: Sequence[str] = (),
) -> None:
    """Print rows in aligned columns: with rich at a terminal, else as plain text. Names and numbers are never cut.

    Args:
        columns: the heads.
        rows: of as many cells; numbers go to the right, None is a dash.
        short: shorter heads for a terminal that is too narrow for the usual ones.
        spare: columns that such a terminal does not get, the first ones first, where they have nothing but zeros
            and dashes.
        free: columns of texts that may be of any length: long ones are cut, shorter ones too at a terminal where they
            do not fit; what was cut is told.
    """
    whole = [["-" if cell is None else printable_line(str(cell)) for cell in row] for row in rows]
    texts = [columns.index(column) for column in free]
    cells = [[_cut(cell, _CELL) if at in texts else cell for at, cell in enumerate(row)] for row in whole]
    right = [all(isinstance(row[i], int) for row in rows) for i in range(len(columns))]
    heads = list(columns)
    if sys.stdout.isatty():
        room = shutil.get_terminal_size().columns
        if _width(heads, cells) > room:
            names = short or {}
            heads = [names.get(head, head) for head in heads]
            _leave_out([names.get(column, column) for column in spare], room, heads, right, cells)
            _narrow([heads.index(names.get(column, column)) for column in free], room, heads, cells)
        # Names may be folded, numbers not: a table that does not fit all the same is left to the terminal.
        least = [min(width, _FOLDED) for width in _widths(heads, cells)]
        fits = sum(map(max, zip(least, _numbers(heads, cells, right), strict=True))) + _GAP * (len(heads) - 1) <= room
        if not (fits and _rich_table(heads, cells, right)):
            _plain_table(heads, cells, right)
    else:
        _plain_table(heads, cells, right)
    if free and any(set(row).difference(full) for row, full in zip(cells, whole, strict=True)):
        note(_WHOLE)


def _plain_table(heads: list[str], cells: list[list[str]], right: list[bool]) -> None:
    widths = _widths(heads, cells)
    for row in (heads, *cells):
        padded = [
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, right, strict=True)
        ]
        print((" " * _GAP).join(padded).rstrip())


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - len(_CUT)] + _CUT


def _narrow(free: Sequence[int], room: int, heads: list[str], cells: list[list[str]]) -> None:
    """Cut free texts until the table has room, the widest column first."""
    widths = _widths(heads, cells)
    left = sum(widths) + _GAP * (len(heads) - 1) - room
    while left > 0 and free and widths[at := max(free, key=widths.__getitem__)] > max(_LEAST_CELL, len(heads[at])):
        widths[at], left = widths[at] - 1, left - 1
    for row in cells:
        for at in free:
            row[at] = _cut(row[at], widths[at])


def _leave_out(spare: Sequence[str], room: int, heads: list[str], right: list[bool], cells: list[list[str]]) -> None:
    """Take columns of zeros and dashes away until the others have room."""
    for head in spare:
        at = heads.index(head)
        if _width(heads, cells) > room and all(row[at] in {"0", "-"} for row in cells):
            del heads[at], right[at]
            for row in cells:
                del row[at]


def _width(heads: list[str], cells: list[list[str]]) -> int:
    return sum(_widths(heads, cells)) + _GAP * (len(heads) - 1)


def _numbers(heads: list[str], cells: list[list[str]], right: list[bool]) -> list[int]:
    """The widths of the columns with numbers, 0 of the others."""
    return [width if number else 0 for width, number in zip(_widths(heads, cells), right, strict=True)]


def _widths(heads: list[str], cells: list[list[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(heads, *cells, strict=True)]


def _rich_table(heads: list[str], cells: list[list[str]], right: list[bool]) -> bool:
    """Print with rich; False when it is not installed."""
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        note(_NEEDS_RICH)
        return False
    drawn = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for head, number in zip(heads, right, strict=True):
        drawn.add_column(head, justify="right" if number else "left", overflow="fold", no_wrap=number)
    for row in cells:
        drawn.add_row(*map(Text, row))
    Console().print(drawn)
    return True
