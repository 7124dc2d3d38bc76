"""Returns of a message, read from its attempts and the journal; consumers' reasons, checked.

A reason is one line: what a consumer says of a message that it hands back or removes. lua/leases/lib/return_history.lua
writes what is read here. A report is how far a consumer is with a message that it holds.
"""

from __future__ import annotations

import unicodedata
from typing import Final, NamedTuple
from urllib.parse import unquote

from ampsq.base.errors import DefinitionError
from ampsq.base.values import shown
from ampsq.protocol.limits import REASON_LENGTH

__all__ = [
    "CameBack",
    "HolderReport",
    "checked_reason",
    "failure_text",
    "last_reason",
    "read_report",
    "read_returns",
    "report_text",
    "shortened_reason",
]

#: Categories of signs that no line of text has: control signs, halves of characters, ends of lines and paragraphs.
_NO_TEXT: Final = frozenset(("Cc", "Cs", "Zl", "Zp"))
#: What stands at the end of a reason that was cut.
_CUT: Final = "..."


class CameBack(NamedTuple):
    """One return of a message.

    Attributes:
        at: when, ms.
        cause: ``cancelled``, ``lapsed`` or ``disconnected``.
        subscription: the one that had it.
        client: whose subscription that was, with the number of its request.
        consumer_reason: why, as its consumer says; "" where it says nothing.
    """

    at: int
    cause: str
    subscription: str
    client: str
    consumer_reason: str


class HolderReport(NamedTuple):
    """The last progress report of the consumer that holds a message.

    Attributes:
        at: when the server took it in, ms.
        done: the part of the work that is done, 0 to 1.
        text: the consumer's words; "" for none.
    """

    at: int
    done: float
    text: str


def read_report(text: str) -> HolderReport:
    """Read what the server keeps of a report: when, and what `report_text` made."""
    at, done, *words = text.split(" ", 2)
    return HolderReport(int(at), float(done), words[0] if words else "")


def report_text(done: float, text: str) -> str:
    """Write a report as it is sent.

    Raises:
        DefinitionError: `done` is no number from 0 to 1, or the text is no line, or too long.
    """
    if isinstance(done, bool) or not isinstance(done, int | float) or not 0 <= done <= 1:
        raise DefinitionError(f"done={shown(done)}: allowed is a number from 0 to 1, the part that is done")
    return f"{done:.6g} {_checked_line('text', text)}".strip()


def read_returns(text: str) -> list[CameBack]:
    """Read the returns of a message, the earliest first; ``-`` and "" are none."""
    found = []
    for item in text.split(";"):
        head, _, reason = item.partition("!")
        parts = head.split(",")
        if len(parts) == 4 and parts[0].isdecimal():  # noqa: PLR2004  (when, cause, subscription, client)
            at, cause, subscription, client = parts
            found.append(CameBack(int(at), cause, subscription, client, unquote(reason)))
    return found


def last_reason(returns: list[CameBack]) -> str:
    """Return the last consumer's reason; "" where there is none."""
    return next((each.consumer_reason for each in reversed(returns) if each.consumer_reason), "")


def checked_reason(reason: str | None) -> str:
    """A reason as it is sent; "" for none.

    Raises:
        DefinitionError: it is no line of text, or too long.
    """
    return "" if reason is None else _checked_line("reason", reason)


def _checked_line(name: str, text: str) -> str:
    if not isinstance(text, str) or any(unicodedata.category(sign) in _NO_TEXT for sign in text):
        raise DefinitionError(f"{name}={shown(text)}: allowed is one line of text, without control characters")
    if len(text) > REASON_LENGTH:
        raise DefinitionError(f"{name}={shown(text)}: allowed are {REASON_LENGTH} characters at most")
    return text.strip()


def shortened_reason(text: str) -> str:
    """Any text as a reason: in one line, cut where it is too long."""
    signs = (" " if unicodedata.category(sign) in _NO_TEXT else sign for sign in text)
    line = " ".join("".join(signs).split())
    return line if len(line) <= REASON_LENGTH else line[: REASON_LENGTH - len(_CUT)] + _CUT


def failure_text(error: BaseException) -> str:
    """Return a handler's error as a reason: its type and its text."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  (a type of the handler's, whose text fails in its turn)
        return shortened_reason(name)
    return shortened_reason(f"{name}: {text}" if text else name)
