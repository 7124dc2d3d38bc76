"""Cost of an evaluation: the steps that docs/expressions.md counts, the same here and on the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["COMPARED", "ENTERING", "HIT", "KEEPING", "PAIR", "PIECE", "STEPS", "OutOfSteps", "spend_search"]

STEPS: Final = 60_000
"""Of one evaluation; a step is some 0.05 us of the server's time, and 0.15 us at the worst."""

ENTERING: Final = 4
"""For each element of an array that an identifier enters."""

KEEPING: Final = 20
"""For each element that is read into a list."""

PIECE: Final = 16
"""Bytes of a text that are read for one step."""

COMPARED: Final = 64
"""Bytes of two texts that are compared for one step."""

PAIR: Final = 12
"""For each pair of elements that is compared."""

HIT: Final = 4
"""For each text that is replaced."""

_PLACES: Final = 8


class OutOfSteps(Exception):
    """An evaluation did more than it may, or built too long a string; its value is NULL."""


def spend_search(text: bytes, part: bytes, spend: Callable[[int], None]) -> None:
    """Count what it costs the server, at the worst, to look for a part of a text."""
    places = len(text) - len(part)
    if places >= _PLACES:
        spend(places // _PLACES * (1 + len(part) // PIECE))
