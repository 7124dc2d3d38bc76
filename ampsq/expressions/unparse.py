"""From a tree back to a text: what a subscription filters by is kept as its tree only."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["PATTERN", "show"]

#: Stands for a regular expression: only its automaton is kept, and that has no text any more.
PATTERN: Final = "<pattern>"

#: How tightly an operator binds, loosest first, as the grammar has it.
_OR, _AND, _NOT, _COMPARED, _SUM, _PRODUCT, _SIGNED, _ATOM = range(8)
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_@:.-]+")
_SPECIAL_IN_PATTERNS = re.compile(r"[\\.^$*+?{}\[\]|()]")
_NAMED: Final = {"\n": r"\n", "\t": r"\t", "\r": r"\r", "\\": r"\\", "'": r"\'"}


class _Piece(NamedTuple):
    """A part of the text, and how tightly it binds."""

    text: str
    level: int

    def within(self, level: int) -> str:
        """Return its text as an operand of an operator that binds so tightly."""
        return self.text if self.level >= level else f"({self.text})"


def show(tree: Sequence[Any]) -> str:
    """Write a tree as an expression that means it: parsed again, it gives the same tree.

    The regular expression of a REGEXP_REPLACE is shown as ``<pattern>``, and then the text cannot be parsed.

    Args:
        tree: of `ampsq.expressions.Expression`, or the lists that JSON made of it.
    """
    return _show(tree).text


def _show(tree: Sequence[Any]) -> _Piece:
    operator, *operands = tree
    return _WRITERS[operator](operator, operands)


def _listed(trees: Sequence[Any]) -> str:
    return ", ".join(show(tree) for tree in trees)


def _number(_: str, operands: Sequence[Any]) -> _Piece:
    text = str(operands[0]) if not isinstance(operands[0], float) else repr(operands[0])
    return _Piece(text, _SIGNED if text.startswith("-") else _ATOM)


def _quoted(text: str) -> str:
    """A string as it is written: control characters as escapes, all else as it is."""
    if "\\" in text and "'" not in text and text.isprintable():
        return f"r'{text}'"
    return "'" + "".join(_NAMED.get(sign) or (sign if sign.isprintable() else _escaped(sign)) for sign in text) + "'"


def _escaped(sign: str) -> str:
    return "".join(rf"\x{byte:02x}" for byte in sign.encode())


def _bytes(_: str, operands: Sequence[Any]) -> _Piece:
    return _Piece("'" + "".join(rf"\x{byte:02x}" for byte in bytes.fromhex(operands[0])) + "'", _ATOM)


def _field(_: str, path: Sequence[Any]) -> _Piece:
    # What the short form has no signs for stands in square brackets, and only the first names can.
    odd = [place for place, step in enumerate(path) if isinstance(step, str) and not _PLAIN_NAME.fullmatch(step)]
    first = odd[-1] + 1 if odd else 0
    bracketed = "[" + "".join(f"/{name}" for name in path[:first]) + "]" if odd else ""
    rest = (f"/{step}" if isinstance(step, str) else f"[{step}]" for step in path[first:])
    return _Piece(bracketed + "".join(rest), _ATOM)


def _topic_field(_: str, operands: Sequence[Any]) -> _Piece:
    return _Piece(f"[{operands[0]}].{_field('f', operands[1:]).text}", _ATOM)


def _logic(level: int) -> Callable[[str, Sequence[Any]], _Piece]:
    def write(operator: str, operands: Sequence[Any]) -> _Piece:
        return _Piece(f" {operator.upper()} ".join(_show(operand).within(level + 1) for operand in operands), level)

    return write


def _not(_: str, operands: Sequence[Any]) -> _Piece:
    operator, *inner = operands[0]
    if operator in _TESTS:
        return _test(operator, inner, "NOT ")
    return _Piece(f"NOT {_show(operands[0]).within(_NOT)}", _NOT)


def _binary(level: int, right: int) -> Callable[[str, Sequence[Any]], _Piece]:
    """An operator between two operands; the left one may be another of its own level."""
    left = min(level, right)

    def write(operator: str, operands: Sequence[Any]) -> _Piece:
        one, other = _show(operands[0]).within(left), _show(operands[1]).within(right)
        return _Piece(f"{one} {operator} {other}", level)

    return write


def _comparison(operator: str, operands: Sequence[Any]) -> _Piece:
    one, other = (_show(operand).within(_SUM) for operand in operands)
    return _Piece(f"{one} {operator} {other}", _COMPARED)


def _negative(_: str, operands: Sequence[Any]) -> _Piece:
    return _Piece(f"-{_show(operands[0]).within(_SIGNED)}", _SIGNED)


def _pattern(text: str) -> str:
    return _quoted(_SPECIAL_IN_PATTERNS.sub(r"\\\g<0>", text))


def _between(operands: Sequence[Any]) -> str:
    low, high = (_show(bound).within(_SUM) for bound in operands)
    return f"BETWEEN {low} AND {high}"


def _one_or_several(words: str) -> Callable[[Sequence[Any]], str]:
    def write(operands: Sequence[Any]) -> str:
        if len(operands) == 1 and operands[0][0] in ("s", "x"):
            return f"{words} {show(operands[0])}"
        return f"{words} ({_listed(operands)})"

    return write


#: What stands behind an operand, and may have NOT before it.
_TESTS: Final[Mapping[str, Callable[[Sequence[Any]], str]]] = MappingProxyType(
    {
        "between": _between,
        "in": lambda operands: f"IN ({_listed(operands)})",
        "begins": _one_or_several("BEGINS WITH"),
        "ends": _one_or_several("ENDS WITH"),
        "has": lambda operands: f"LIKE {_pattern(operands[0])}",
        "like": lambda operands: f"LIKE {_quoted(operands[1])}",
        "isnull": lambda _: "NULL",
        "isnan": lambda _: "NAN",
    }
)


def _test(operator: str, operands: Sequence[Any], negation: str = "") -> _Piece:
    tested, test = _show(operands[0]).within(_SUM), _TESTS[operator](operands[1:])
    word = f"IS {negation}" if operator in ("isnull", "isnan") else negation
    return _Piece(f"{tested} {word}{test}", _COMPARED)


def _call(_: str, operands: Sequence[Any]) -> _Piece:
    name, *arguments = operands
    if name == "REGEXP_REPLACE":
        return _Piece(f"{name}({show(arguments[0])}, {PATTERN}, {show(arguments[2])})", _ATOM)
    return _Piece(f"{name}({_listed(arguments)})", _ATOM)


def _aggregate(_: str, operands: Sequence[Any]) -> _Piece:
    function, operand = operands
    counts_all = function == "COUNT" and tuple(operand) == ("n", 1)
    return _Piece(f"{function}({'*' if counts_all else show(operand)})", _ATOM)


_WRITERS: Final[Mapping[str, Callable[[str, Sequence[Any]], _Piece]]] = MappingProxyType(
    {
        "null": lambda *_: _Piece("NULL", _ATOM),
        **dict.fromkeys(("n", "i", "d"), _number),
        "s": lambda _, operands: _Piece(_quoted(operands[0]), _ATOM),
        "x": _bytes,
        "f": _field,
        "t": _topic_field,
        "or": _logic(_OR),
        "and": _logic(_AND),
        "not": _not,
        **dict.fromkeys(("=", "!=", "<", "<=", ">", ">="), _comparison),
        **dict.fromkeys(("+", "-"), _binary(_SUM, _PRODUCT)),
        **dict.fromkeys(("*", "/", "%"), _binary(_PRODUCT, _SIGNED)),
        "neg": _negative,
        "if": lambda _, operands: _Piece(f"IF({_listed(operands)})", _ATOM),
        **dict.fromkeys(_TESTS, _test),
        "call": _call,
        "agg": _aggregate,
    }
)
