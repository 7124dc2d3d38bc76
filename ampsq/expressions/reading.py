"""Part of a body that expressions read: the same as `lua/expressions/lib/reading_budget.lua` says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ampsq.base.message_types import EXPRESSION_LIMIT, SMALL_BODY
from ampsq.expressions.budget import STEPS

if TYPE_CHECKING:
    from ampsq.base.message_types import MessageType

__all__ = ["VALUE", "is_large", "steps_behind_reading"]

VALUE: Final = 6
"""Steps for each value of a large body of another type than JSON; of a small one, that many values are read."""

_SIGN: Final = 2
_BYTES: Final = 32
_SIGNS: Final = (b",", b":", b"[", b"{", b".")


def is_large(body: bytes) -> bool:
    """Return whether reading a body costs steps, and its numbers are doubles."""
    return len(body) > SMALL_BODY


def steps_behind_reading(body: bytes, message_type: MessageType) -> int:
    """Return the steps that an evaluation has left when a body was read; below 0 where it is not read.

    Of other types than JSON the values come on top, which are counted when they are read.
    """
    if not is_large(body):
        return STEPS
    limit = message_type.expression_limit
    if len(body) > limit:
        return -1
    left = STEPS * max(limit, EXPRESSION_LIMIT) // EXPRESSION_LIMIT - len(body) // _BYTES
    if message_type.name == "json" and left >= 0:
        left -= _SIGN * sum(map(body.count, _SIGNS))
    return left
