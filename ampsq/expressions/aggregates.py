"""Aggregates from which values can be taken back: counts, sums, averages, deviations, the least and the greatest.

What was added, its removal takes away without a trace: sums are kept as whole numbers (every float is a whole number of
2**-1074), so that nothing is rounded before a value is asked for, and the least and the greatest value come from a heap
that forgets lazily.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from typing import TYPE_CHECKING, Final, Protocol

from ampsq.expressions.values import integer_or_float, number_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ampsq.expressions.values import Scalar

__all__ = ["ACCUMULATORS", "Accumulator", "place_of"]

#: Every finite float is a whole number of 2 ** -_BITS.
_BITS: Final = 1074
_SQUARE_BITS: Final = 2 * _BITS
#: A heap is built anew when it holds this many entries more than twice the values that are left.
_STALE: Final = 64
#: Places of values in their order.
_NUMBERS, _STRINGS, _NO_NUMBER = range(3)


class Accumulator(Protocol):
    """One aggregate of one group. Values are added and removed in any order; NULLs never come here."""

    def add(self, value: Scalar) -> None:
        """Count a value."""
        ...

    def remove(self, value: Scalar) -> None:
        """Take back a value that was added."""
        ...

    def value(self) -> Scalar | None:
        """The aggregate of what is there now; None, NULL, where SQL has it."""
        ...


class _Count:
    """Number of values."""

    __slots__ = ("_number",)

    def __init__(self) -> None:
        self._number = 0

    def add(self, _: Scalar) -> None:
        self._number += 1

    def remove(self, _: Scalar) -> None:
        self._number -= 1

    def value(self) -> Scalar | None:
        return self._number


class _Moments:
    """Numbers, their sum and, where it is asked for, the sum of their squares; exact.

    Attributes:
        number: how many values there are.
        floats: how many of them are floats.
        total: the sum of the finite ones, in units of 2**-1074.
        squares: the sum of their squares, in units of 2**-2148.
        odd: the values that are not finite, by their text.
    """

    __slots__ = ("floats", "number", "odd", "squared", "squares", "total")

    def __init__(self, *, squared: bool = False) -> None:
        self.number = self.floats = self.total = self.squares = 0
        self.squared = squared
        self.odd: Counter[str] = Counter()

    def add(self, value: Scalar) -> None:
        self._count(value, 1)

    def remove(self, value: Scalar) -> None:
        self._count(value, -1)

    def _count(self, value: Scalar, sign: int) -> None:
        number = number_of(value)
        self.number += sign
        if isinstance(number, float):
            self.floats += sign
            if not math.isfinite(number):
                self.odd[str(number)] += sign
                return
            numerator, denominator = number.as_integer_ratio()
            units = numerator << (_BITS + 1 - denominator.bit_length())
        else:
            units = number << _BITS
        self.total += sign * units
        if self.squared:
            self.squares += sign * units * units

    def infinite(self) -> float | None:
        """Return the sum that the values which are not finite make of every sum; None without such values."""
        odd = +self.odd
        if not odd:
            return None
        return float(next(iter(odd))) if len(odd) == 1 else math.nan


def _ratio(numerator: int, denominator: int) -> float:
    """The float nearest to a quotient of whole numbers, which Python's division of them is."""
    try:
        return numerator / denominator
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf


def _root(numerator: int, denominator: int) -> float:
    """The float nearest to the square root of a quotient, which itself may be beyond the floats."""
    # 55 bits of the root, of which the last is set where there is more: enough to round right.
    shift = (numerator.bit_length() - denominator.bit_length() - 109) // 2
    if shift >= 0:
        denominator <<= 2 * shift
    else:
        numerator <<= -2 * shift
    root = math.isqrt(numerator // denominator)
    root |= root * root * denominator != numerator
    return _ratio(root << shift, 1) if shift >= 0 else _ratio(root, 1 << -shift)


class _Sum(_Moments):
    """The sum; an integer while all values are integers and it stays in their range."""

    __slots__ = ()

    def value(self) -> Scalar | None:
        if not self.number:
            return None
        infinite = self.infinite()
        if infinite is not None:
            return infinite
        return _ratio(self.total, 1 << _BITS) if self.floats else integer_or_float(self.total >> _BITS)


class _Average(_Moments):
    """The mean, always a float."""

    __slots__ = ()

    def value(self) -> Scalar | None:
        if not self.number:
            return None
        infinite = self.infinite()
        return _ratio(self.total, self.number << _BITS) if infinite is None else infinite


class _Deviation(_Moments):
    """The standard deviation, of a population (`less` 0) or of a sample (`less` 1)."""

    __slots__ = ("_less",)

    def __init__(self, less: int) -> None:
        super().__init__(squared=True)
        self._less = less

    def value(self) -> Scalar | None:
        if self.number <= self._less:
            return None
        if self.infinite() is not None:
            return math.nan
        squares = self.number * self.squares - self.total * self.total
        return _root(squares, self.number * (self.number - self._less) << _SQUARE_BITS)


def place_of(value: Scalar) -> tuple[int, Scalar]:
    """Return the place of a value among all others: numbers, then strings, then NaN.

    Strings stay strings here even if they spell a number: the language's `<`, which reads them as numbers beside
    numbers and as texts beside texts, has cycles (``"9" < 9.5 < "10" < "9"``), and an order must have none.
    """
    if isinstance(value, bytes):
        return _STRINGS, value
    return (_NUMBERS, value) if value == value else (_NO_NUMBER, 0)  # noqa: PLR0124


class _Later:
    """A place in the other direction, for a heap that has the greatest value first."""

    __slots__ = ("place",)

    def __init__(self, value: Scalar) -> None:
        self.place = place_of(value)

    def __lt__(self, other: _Later) -> bool:
        return other.place < self.place


class _Values:
    """The values that are there, each with how often."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        # By place: a NaN is unequal to itself, and would never be found again.
        self.counts: dict[tuple[int, Scalar], int] = {}

    def add(self, value: Scalar) -> None:
        place = place_of(value)
        self.counts[place] = self.counts.get(place, 0) + 1

    def remove(self, value: Scalar) -> None:
        place = place_of(value)
        left = self.counts[place] - 1
        if left:
            self.counts[place] = left
        else:
            del self.counts[place]


class _Distinct(_Values):
    """Number of different values."""

    __slots__ = ()

    def value(self) -> Scalar | None:
        return len(self.counts)


class _Extreme(_Values):
    """The first value in an order. NaN counts only where there is nothing else."""

    __slots__ = ("_heap", "_key")

    def __init__(self, key: Callable[[Scalar], object]) -> None:
        super().__init__()
        self._key = key
        self._heap: list[tuple[object, int, Scalar]] = []

    def add(self, value: Scalar) -> None:
        new = place_of(value) not in self.counts
        super().add(value)
        if new and value == value:  # noqa: PLR0124
            if len(self._heap) > 2 * len(self.counts) + _STALE:
                self._heap = [self._entry(known) for kind, known in self.counts if kind != _NO_NUMBER]
                heapq.heapify(self._heap)
            else:
                heapq.heappush(self._heap, self._entry(value))

    def _entry(self, value: Scalar) -> tuple[object, int, Scalar]:
        return self._key(value), 0, value

    def value(self) -> Scalar | None:
        while self._heap and place_of(self._heap[0][2]) not in self.counts:
            heapq.heappop(self._heap)
        if self._heap:
            return self._heap[0][2]
        return math.nan if self.counts else None


#: What keeps each aggregate.
ACCUMULATORS: Final[Mapping[str, Callable[[], Accumulator]]] = {
    "COUNT": _Count,
    "COUNT_DISTINCT": _Distinct,
    "SUM": _Sum,
    "AVG": _Average,
    "MIN": lambda: _Extreme(place_of),
    "MAX": lambda: _Extreme(_Later),
    "STDDEV_POP": lambda: _Deviation(0),
    "STDDEV_SAMP": lambda: _Deviation(1),
}
