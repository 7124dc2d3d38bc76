"""The values of expressions and what operators make of them: NULL, integers, floats, strings of bytes, lists.

Everything here is exact to `docs/expressions.md`, because Lua does the same on the server.
"""

from __future__ import annotations

import math
import operator
import re
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "BIGGEST",
    "NAN",
    "SMALLEST",
    "Scalar",
    "Value",
    "add",
    "below",
    "comparison",
    "divide",
    "equal",
    "first",
    "integer_or_float",
    "multiply",
    "negate",
    "number_of",
    "read_number",
    "remainder",
    "subtract",
    "text_of",
    "truth",
]

Scalar: TypeAlias = int | float | bytes
Value: TypeAlias = int | float | bytes | list[Scalar] | None

SMALLEST = -(2**63)
BIGGEST = 2**64 - 1
"""The range of exact integers, both ends included."""

NAN = math.nan

_NUMBER = re.compile(rb"[ \t\n\v\f\r]*([+-]?(?:[0-9]+(\.[0-9]*)?|(\.[0-9]+))([eE][+-]?[0-9]+)?)[ \t\n\v\f\r]*")
_INTEGER_DIGITS = 21
_LONGEST_NUMBER = 256
_SHORT = 15


def integer_or_float(number: int) -> int | float:
    """An integer as it is when it is in the exact range, else the nearest float; infinite beyond the floats."""
    if SMALLEST <= number <= BIGGEST:
        return number
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def read_number(text: bytes) -> int | float | None:
    """Read the number that a string spells, with white space round it; None when it spells none, or is too long."""
    found = _NUMBER.fullmatch(text) if len(text) <= _LONGEST_NUMBER else None
    if found is None:
        return None
    digits, point, bare_point, exponent = found.groups()
    if point is None and bare_point is None and exponent is None:
        # Python refuses to read very long integers; those are floats in any case.
        short = digits if len(digits) <= _INTEGER_DIGITS else digits[:1].strip(b"0123456789") + digits.lstrip(b"+-0")
        if len(short) <= _INTEGER_DIGITS:
            return integer_or_float(int(short or b"0"))
    return float(digits)


def number_of(value: Scalar) -> int | float:
    """A value as a number: a string as the number that it spells, else NaN."""
    if isinstance(value, bytes):
        number = read_number(value)
        return NAN if number is None else number
    return value


def text_of(value: Scalar) -> bytes:
    """A value as text: a float with 15 digits where they read back as the same number, else with 17."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, int):
        return b"%d" % value
    short = f"{value:.{_SHORT}g}"
    return (short if float(short) == value or value != value else f"{value:.17g}").encode()  # noqa: PLR0124


def first(value: Value) -> Scalar | None:
    """The first element of a list, any other value as it is."""
    return value[0] if isinstance(value, list) else value


def truth(value: Value) -> bool | None:
    """Return whether a value is true; None for NULL."""
    if value is None:
        return None
    if isinstance(value, list):
        return any(map(_is_true, value))
    return _is_true(value)


def _is_true(value: Scalar) -> bool:
    number = number_of(value)
    return number == number and number != 0  # noqa: PLR0124


def comparison(compare: Callable[[Any, Any], bool]) -> Callable[[Scalar, Scalar], bool]:
    """Make a comparison of any two scalars out of one of values of the same type."""

    def run(left: Scalar, right: Scalar) -> bool:
        if type(left) is type(right):
            return compare(left, right)
        return compare(*_alike(left, right))

    return run


def _alike(left: Scalar, right: Scalar) -> tuple[Scalar, Scalar]:
    """Two values of different types as two of one type that compare as the values do."""
    if isinstance(left, bytes):
        other, one = _alike(right, left)
        return one, other
    if isinstance(right, bytes):
        number = read_number(right)
        if number is None:
            # The string is greater than every number, though not than NaN.
            return (NAN, NAN) if left != left else (0, 1)  # noqa: PLR0124
        right = number
    if isinstance(left, int) and isinstance(right, int):
        return left, right
    return float(left), float(right)


equal = comparison(operator.eq)
below = comparison(operator.lt)


def _arithmetic(
    exact: Callable[[int, int], int | float], rounded: Callable[[float, float], float]
) -> Callable[[Scalar, Scalar], int | float]:
    """Make an operator out of what it does to integers and what it does to floats."""

    def operate(left: Scalar, right: Scalar) -> int | float:
        one, other = number_of(left), number_of(right)
        if isinstance(one, int) and isinstance(other, int):
            result = exact(one, other)
            if isinstance(result, float) or SMALLEST <= result <= BIGGEST:
                return result
        return rounded(float(one), float(other))

    return operate


def _quotient(left: int, right: int) -> int | float:
    if right == 0:
        return NAN
    whole = abs(left) // abs(right)
    return whole if (left < 0) == (right < 0) else -whole


def _rest(left: int, right: int) -> int | float:
    if right == 0:
        return NAN
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def _float_quotient(left: float, right: float) -> float:
    return left / right if right else NAN


def _float_rest(left: float, right: float) -> float:
    return NAN if math.isinf(left) or not right else math.fmod(left, right)


add = _arithmetic(lambda a, b: a + b, lambda a, b: a + b)
subtract = _arithmetic(lambda a, b: a - b, lambda a, b: a - b)
multiply = _arithmetic(lambda a, b: a * b, lambda a, b: a * b)
divide = _arithmetic(_quotient, _float_quotient)
remainder = _arithmetic(_rest, _float_rest)


def negate(value: Scalar) -> int | float:
    """The value's number with the other sign; zero as an integer has none."""
    number = number_of(value)
    if isinstance(number, int):
        return -number if SMALLEST <= -number <= BIGGEST else -float(number)
    return -number
