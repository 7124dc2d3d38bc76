"""The rows of views that a coordinator keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.protocol.limits import BATCH
from ampsq.protocol.replies import pairs, text
from ampsq.protocol.request import command
from ampsq.protocol.schema import key

if TYPE_CHECKING:
    from ampsq.protocol.replies import RawHash
    from ampsq.protocol.request import Call

__all__ = ["MADE", "PENDING", "STATE", "kept_until", "read_rows", "view_state"]

#: Fields of a view's hash that are no rows: the definition whose rows they all are, the one that made each of them,
#: and what is being published.
STATE: Final = "state"
MADE: Final = "made"
PENDING: Final = "pending"


class _RowPage(NamedTuple):
    """A page of a view's hash: where the next begins (``0``: nowhere), and names and values."""

    next: bytes
    rows: dict[bytes, bytes]


def view_state(instance: str, view: str) -> Call[str]:
    """Read the mark of the definition whose rows are all there; "" where they are not."""
    return command(["HGET", key(instance, "view", view), STATE], text)


def kept_until(instance: str, view: str) -> Call[int]:
    """Read until when somebody keeps a view's rows, ms; 0 where nobody ever did."""
    return command(
        ["HGET", key(instance, "keepers"), view], lambda reply: int(reply.rpartition(b" ")[2]) if reply else 0
    )


async def read_rows(instance: str, view: str) -> dict[str, bytes]:
    """Read a view's rows, JSON, by their groups; each as it was at some moment of the call."""
    rows: dict[bytes, bytes] = {}
    cursor = b"0"
    while True:
        page = await _scan(instance, view, cursor)
        rows.update(page.rows)
        cursor = page.next
        if cursor == b"0":
            break
    return {name.decode(): row for name, row in sorted(rows.items()) if name.startswith(b"[")}


def _scan(instance: str, view: str, cursor: bytes) -> Call[_RowPage]:
    return command(["HSCAN", key(instance, "view", view), cursor, "COUNT", BATCH], _page)


def _page(reply: tuple[bytes, RawHash]) -> _RowPage:
    return _RowPage(reply[0], dict(pairs(reply[1])))
