"""The functions of expressions: how many arguments each takes, whether it is deterministic, what it does."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from ampsq.base.bookmarks import recorded_by
from ampsq.expressions.budget import COMPARED, HIT, PIECE, OutOfSteps, spend_search
from ampsq.expressions.dates import strftime, strptime
from ampsq.expressions.document import decode
from ampsq.expressions.values import (
    BIGGEST,
    NAN,
    SMALLEST,
    Scalar,
    Value,
    add,
    below,
    first,
    number_of,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ampsq.expressions.document import Document

__all__ = ["AGGREGATES", "FUNCTIONS", "LONGEST", "Function"]

AGGREGATES: Final = ("AVG", "COUNT", "COUNT_DISTINCT", "MAX", "MIN", "STDDEV_POP", "STDDEV_SAMP", "SUM")
"""Functions that only a view's projection may call; whoever keeps the view computes them."""

LONGEST: Final = 65_536
"""Most bytes of a string that an expression builds."""

_RADIUS: Final = 6_371_000.0
_FAR: Final = 2**64

_Spend: TypeAlias = "Callable[[int], None]"


class Running(Protocol):
    """The evaluation that calls a function."""

    document: Document

    def spend(self, steps: int, /) -> None:
        """Count steps; raises `OutOfSteps` when there are too few."""


Call: TypeAlias = "Callable[[Sequence[Value], Running], Value]"


@dataclass(frozen=True, slots=True)
class Function:
    """One function.

    Attributes:
        least: how many arguments it takes at least.
        most: how many at most; None for any number.
        call: evaluates it, given the values of its arguments.
        deterministic: false where the same message gives another value later.
        constant: whether its value follows from its arguments alone.
    """

    least: int
    most: int | None
    call: Call
    deterministic: bool = True
    constant: bool = True


def _built(text: bytes) -> bytes:
    """A string that an expression built.

    Raises:
        OutOfSteps: it is too long.
    """
    _check_length(len(text))
    return text


def _check_length(length: int) -> None:
    """Refuse a length that no built string may have, before it is built.

    Raises:
        OutOfSteps: it is too long.
    """
    if length > LONGEST:
        raise OutOfSteps


def _whole(value: Scalar) -> int | None:
    """A value as a whole number, its fraction cut off; None for NaN."""
    number = number_of(value)
    if isinstance(number, int):
        return number
    if number != number:  # noqa: PLR0124
        return None
    return int(max(-_FAR, min(_FAR, number)))


_READERS: dict[str, Callable[[Scalar], Any]] = {
    "t": text_of,
    "l": text_of,
    "c": text_of,
    "f": text_of,
    "n": number_of,
    "w": _whole,
}
_COSTS: dict[str, Callable[[Any], int]] = {
    "t": lambda text: len(text) // PIECE,
    "c": lambda text: len(text) * 3,
    "f": lambda text: len(text) * 8,
}


def _free(_: Any) -> int:
    return 0


def _typed(kinds: str, run: Callable[..., Value], *, least: int | None = None, spends: bool = False) -> Function:
    """Make a function whose arguments are scalars: (t)exts, (n)umbers or (w)hole numbers.

    Args:
        kinds: a letter for each argument; also texts that cost otherwise: (l) nothing, (c) by the byte, (f) as formats.
        run: what it does.
        least: how many arguments it takes at least.
        spends: whether it counts steps itself; it gets the way to do so first.
    """
    readers = [(_READERS[kind], _COSTS.get(kind, _free)) for kind in kinds]

    def call(arguments: Sequence[Value], at: Running) -> Value:
        read, cost = [], 0
        # Fewer arguments than readers: the last may be optional.
        for (reader, cost_of), argument in zip(readers, arguments, strict=False):
            scalar = first(argument)
            value = None if scalar is None else reader(scalar)
            if value is None:
                return None
            read.append(value)
            cost += cost_of(value)
        at.spend(cost)
        result = run(at.spend, *read) if spends else run(*read)
        return _built(result) if isinstance(result, bytes) else result

    return Function(len(kinds) if least is None else least, len(kinds), call)


def _concat(arguments: Sequence[Value], at: Running) -> Value:
    texts = [text_of(scalar) for scalar in map(first, arguments) if scalar is not None]
    size = sum(map(len, texts))
    _check_length(size)
    at.spend(size // PIECE)
    return b"".join(texts) if texts else None


def _coalesce(arguments: Sequence[Value], _: Running) -> Value:
    return next((scalar for scalar in map(first, arguments) if scalar is not None), None)


def _lower(text: bytes) -> bytes:
    return text.lower()


def _substr(spend: _Spend, text: bytes, start: int, length: int = _FAR) -> bytes:
    begin = start - 1 if start >= 0 else len(text) + start
    part = text[max(begin, 0) : max(begin + length, 0)]
    spend(len(part) // PIECE)
    return part


def _instr(spend: _Spend, text: bytes, part: bytes) -> int:
    spend_search(text, part, spend)
    return text.find(part) + 1


def _instr_i(spend: _Spend, text: bytes, part: bytes) -> int:
    return _instr(spend, text.lower(), part.lower())


def _replace(spend: _Spend, text: bytes, old: bytes, new: bytes) -> bytes:
    if not old:
        return text
    spend_search(text, old, spend)
    count = text.count(old)
    spend(count * HIT)
    _check_length(len(text) + count * (len(new) - len(old)))
    return text.replace(old, new)


def _elements(value: Value) -> list[Scalar]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _array_to_string(arguments: Sequence[Value], at: Running) -> Value:
    elements, separator = _elements(arguments[0]), first(arguments[1])
    if not elements or separator is None:
        return None
    texts, between = [text_of(element) for element in elements], text_of(separator)
    size = sum(map(len, texts)) + (len(texts) - 1) * len(between)
    _check_length(size)
    at.spend(size // PIECE)
    return between.join(texts)


def _over_elements(run: Callable[[list[Scalar]], Value], *, of_null: int | None = None) -> Function:
    def call(arguments: Sequence[Value], _: Running) -> Value:
        elements = _elements(arguments[0])
        return run(elements) if elements else of_null

    return Function(1, 1, call)


def _sum(elements: list[Scalar]) -> int | float:
    total: int | float = 0
    for element in elements:
        total = add(total, element)
    return total


def _least(elements: Sequence[Scalar]) -> Scalar:
    best = elements[0]
    for element in elements[1:]:
        best = element if below(element, best) else best
    return best


def _greatest(elements: Sequence[Scalar]) -> Scalar:
    best = elements[0]
    for element in elements[1:]:
        best = element if below(best, element) else best
    return best


def _best(choose: Callable[[Sequence[Scalar]], Scalar]) -> Function:
    def call(arguments: Sequence[Value], at: Running) -> Value:
        scalars = [scalar for scalar in map(first, arguments) if scalar is not None]
        if len(scalars) < len(arguments):
            return None
        at.spend(sum(len(scalar) for scalar in scalars if isinstance(scalar, bytes)) // COMPARED)
        return choose(scalars)

    return Function(1, None, call)


def _absolute(number: float) -> int | float:
    return abs(number)


def _rounded(cut: Callable[[float], int]) -> Function:
    def run(number: float) -> int | float:
        if isinstance(number, int) or not math.isfinite(number):
            return number
        whole = cut(number)
        return whole if SMALLEST <= whole <= BIGGEST else float(whole)

    return _typed("n", run)


def _half_away(number: float) -> int:
    whole = math.trunc(number)
    if abs(number - whole) < 0.5:  # noqa: PLR2004
        return whole
    return whole + (1 if number > 0 else -1)


def _geo_distance(*degrees: float) -> float:
    lat1, lon1, lat2, lon2 = map(float, degrees)
    try:
        one, other = lat1 * math.pi / 180, lat2 * math.pi / 180
        down = math.sin((lat2 - lat1) * math.pi / 180 / 2)
        along = math.sin((lon2 - lon1) * math.pi / 180 / 2)
        root = math.sqrt(down * down + math.cos(one) * math.cos(other) * along * along)
    except ValueError:
        # The sine of what is infinite, or the root of what is negative far from the poles.
        return NAN
    return NAN if math.isnan(root) else 2 * _RADIUS * math.asin(min(1.0, root))


def _char_value(code: int) -> bytes | None:
    return bytes([code]) if 0 <= code <= 255 else None  # noqa: PLR2004


def _known(run: Callable[[Document], Value], *, deterministic: bool = True) -> Function:
    """Make a function without arguments that tells something of the message."""
    return Function(0, 0, lambda _, at: run(at.document), deterministic, constant=False)


def _correlation_id(document: Document) -> Value:
    is_json, headers = decode(document.fields.get(b"h", b""))
    if document.body is None or not is_json or not isinstance(headers, dict):
        return None
    value = headers.get("correlation_id")
    return value.encode("utf-8", "surrogateescape") or None if isinstance(value, str) else None


def _client_name(document: Document) -> Value:
    return None if document.body is None else document.fields.get(b"p") or None


def _bookmark(document: Document) -> Value:
    stream_id = document.stream_id
    source = document.source or f"{recorded_by(document.origin, stream_id)}~{stream_id}"
    return f"{document.topic}~{source}".encode("utf-8", "surrogateescape")


_PLAIN = {
    "CONCAT": Function(1, None, _concat),
    "UPPER": _typed("t", lambda text: text.upper()),
    "LOWER": _typed("t", _lower),
    "LENGTH": _typed("l", len),
    "REVERSE": _typed("t", lambda text: text[::-1]),
    "SUBSTR": _typed("lww", _substr, least=2, spends=True),
    "INSTR": _typed("tt", _instr, spends=True),
    "INSTR_I": _typed("tt", _instr_i, spends=True),
    "STREQUAL_I": _typed("tt", lambda one, other: int(one.lower() == other.lower())),
    "REPLACE": _typed("ttt", _replace, spends=True),
    "ARRAY_TO_STRING": Function(2, 2, _array_to_string),
    "ARRAY_COUNT": _over_elements(len, of_null=0),
    "ARRAY_SUM": _over_elements(_sum),
    "ARRAY_MIN": _over_elements(_least),
    "ARRAY_MAX": _over_elements(_greatest),
    "ARRAY_AVG": _over_elements(lambda elements: float(_sum(elements)) / len(elements)),
    "ABS": _typed("n", _absolute),
    "FLOOR": _rounded(math.floor),
    "CEILING": _rounded(math.ceil),
    "ROUND": _rounded(_half_away),
    "GREATEST": _best(_greatest),
    "LEAST": _best(_least),
    "CRC32": _typed("c", zlib.crc32),
    "GEO_DISTANCE": _typed("nnnn", _geo_distance),
    "STRFTIME": _typed("fn", strftime),
    "STRPTIME": _typed("ft", strptime),
    "COALESCE": Function(1, None, _coalesce),
    "TRUE_VALUE": Function(0, 0, lambda *_: 1),
    "FALSE_VALUE": Function(0, 0, lambda *_: 0),
    "NAN_VALUE": Function(0, 0, lambda *_: NAN),
    "CHAR_VALUE": _typed("w", _char_value),
}

_OF_THE_MESSAGE = {
    "UNIX_TIMESTAMP": _known(lambda document: document.seconds, deterministic=False),
    "MESSAGE_SIZE": _known(lambda document: None if document.body is None else len(document.body)),
    "TOPIC_NAME": _known(lambda document: document.topic.encode("utf-8", "surrogateescape") or None),
    "BOOKMARK": _known(_bookmark),
    "CORRELATION_ID": _known(_correlation_id),
    "CLIENT_NAME": _known(_client_name),
    "LAST_UPDATED": _known(lambda document: int(document.stream_id.split("-")[0]) // 1000),
    "AMPS_INSTANCE_NAME": _known(lambda document: document.instance.encode("utf-8", "surrogateescape") or None),
    "LEASE_COUNT": _known(lambda document: document.deliveries, deterministic=False),
}

#: All but `IF`, which evaluates one branch only, `REGEXP_REPLACE`, which has an automaton, and the aggregates.
FUNCTIONS: Final[Mapping[str, Function]] = MappingProxyType({**_PLAIN, **_OF_THE_MESSAGE})
