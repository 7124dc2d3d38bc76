"""Evaluating a tree in Python: closures, made once, that do what `lua/expressions/lib/expression.lua` does."""

from __future__ import annotations

import json
import operator
from typing import TYPE_CHECKING, Any, TypeAlias

from ampsq.expressions import values as scalars
from ampsq.expressions.budget import COMPARED, PAIR, OutOfSteps, spend_search
from ampsq.expressions.document import Document, read
from ampsq.expressions.functions import FUNCTIONS, LONGEST
from ampsq.expressions.values import BIGGEST, Scalar, Value, below, comparison, equal, first, number_of, text_of, truth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ampsq.expressions.automaton import Automaton

__all__ = ["Evaluation", "Run", "compile_tree", "evaluate", "priority_of"]


class Evaluation:
    """One evaluation of an expression: what it reads, and how many steps it has left.

    Attributes:
        document: what identifiers and functions read.
        content: the decoded body.
        aggregates: the values of the expression's aggregates, in their order.
        left: how many steps are left; below 0 where there were too few.
    """

    __slots__ = ("aggregates", "content", "document", "left")

    def __init__(self, document: Document, aggregates: Sequence[Value] = ()) -> None:
        self.document = document
        self.content = document.content
        self.aggregates = aggregates
        self.left = document.steps

    def spend(self, steps: int) -> None:
        """Count steps.

        Raises:
            OutOfSteps: the evaluation had fewer left.
        """
        self.left -= steps
        if self.left < 0:
            raise OutOfSteps


Run: TypeAlias = "Callable[[Evaluation], Value]"
_Pair: TypeAlias = "Callable[[Scalar, Scalar], bool]"


def evaluate(run: Run, document: Document, aggregates: Sequence[Value] = ()) -> Value:
    """The value of a compiled tree; NULL for a body that is no JSON or is not read, and beyond the limits."""
    if not document.is_json:
        return None
    try:
        return run(Evaluation(document, aggregates))
    except OutOfSteps:
        return None


def priority_of(value: Value) -> int | None:
    """Read a value as an unsigned 64-bit number; None, the lowest of all, for what is no number."""
    scalar = first(value)
    if scalar is None:
        return None
    number = number_of(scalar)
    if number != number:  # noqa: PLR0124
        return None
    return int(max(0, min(BIGGEST, number)))


def compile_tree(tree: Any) -> Run:
    """Make a closure of a tree, as `docs/decisions/0003-expressions.md` describes it."""
    return _compile(tree, [])


def _compile(node: Any, aggregates: list[str]) -> Run:
    kind = node[0]
    if kind in _CONSTANTS:
        return _constant(_CONSTANTS[kind](node))
    special = _SPECIAL.get(kind)
    if special:
        return special(node, aggregates)
    operands = [_compile(operand, aggregates) for operand in node[1:]]
    if kind in _COMPARISONS:
        return _comparison(_COMPARISONS[kind], *operands, whole=kind not in ("=", "!="))
    if kind in _ARITHMETIC:
        return _arithmetic(_ARITHMETIC[kind], *operands)
    return _OPERATORS[kind](*operands)


def _constant(value: Value) -> Run:
    return lambda _: value


_CONSTANTS: dict[str, Callable[[Any], Value]] = {
    "null": lambda _: None,
    "n": lambda node: int(node[1]),
    "i": lambda node: int(node[1]),
    "d": lambda node: float(node[1]),
    "s": lambda node: node[1].encode(),
    "x": lambda node: bytes.fromhex(node[1]),
}


def _field(node: Any, _: list[str]) -> Run:
    path = tuple(node[1:])
    if any(not isinstance(step, str) for step in path):
        return lambda at: read(at.content, path, at.spend)
    names: tuple[str, ...] = path

    def run(at: Evaluation) -> Value:
        found = at.content
        for name in names:
            if type(found) is not dict:
                return read(at.content, path, at.spend) if type(found) is list else None
            found = found.get(name)
        if type(found) is str:
            return found.encode("utf-8", "surrogateescape") or None
        return read(found, (), at.spend)

    return run


def _topic_field(node: Any, _: list[str]) -> Run:
    topic, path = node[1], tuple(node[2:])
    return lambda at: read(at.document.topics.get(topic), path, at.spend)


def _pairs(left: Value, right: Value, test: _Pair, at: Evaluation, *, whole: bool = False) -> bool | None:
    """Return whether the test holds for any pair of elements; None where either side is NULL.

    `whole` says that the test reads whole texts.
    """
    if left is None or right is None:
        return None
    cost = min(_longest(left), _longest(right)) // COMPARED if whole else 0
    if not isinstance(left, list) and not isinstance(right, list):
        at.spend(cost)
        return test(left, right)
    others = right if isinstance(right, list) else [right]
    for one in left if isinstance(left, list) else [left]:
        for other in others:
            at.spend(PAIR + cost)
            if test(one, other):
                return True
    return False


def _longest(value: Value) -> int:
    """The bytes of the longest text."""
    elements = value if isinstance(value, list) else [value]
    return max(len(element) if isinstance(element, bytes) else 0 for element in elements)


def _number(known: bool | None) -> int | None:  # noqa: FBT001 - what is turned into a number
    return None if known is None else int(known)


def _comparison(test: _Pair, left: Run, right: Run, *, whole: bool) -> Run:
    def run(at: Evaluation) -> Value:
        one, other = left(at), right(at)
        if one is None or other is None:
            return None
        if whole or isinstance(one, list) or isinstance(other, list):
            return _number(_pairs(one, other, test, at, whole=whole))
        return 1 if test(one, other) else 0

    return run


_COMPARISONS: dict[str, _Pair] = {
    "=": equal,
    "!=": comparison(operator.ne),
    "<": below,
    "<=": comparison(operator.le),
    ">": comparison(operator.gt),
    ">=": comparison(operator.ge),
}


def _any_of(known: Iterable[bool | None]) -> int | None:
    """SQL's OR; it stops at the first that is true."""
    result: int | None = 0
    for each in known:
        if each:
            return 1
        if each is None:
            result = None
    return result


def _all_of(known: Iterable[bool | None]) -> int | None:
    """SQL's AND; it stops at the first that is false."""
    result: int | None = 1
    for each in known:
        if each is None:
            result = None
        elif not each:
            return 0
    return result


def _or(*operands: Run) -> Run:
    return lambda at: _any_of(truth(operand(at)) for operand in operands)


def _and(*operands: Run) -> Run:
    return lambda at: _all_of(truth(operand(at)) for operand in operands)


def _not(operand: Run) -> Run:
    def run(at: Evaluation) -> Value:
        known = truth(operand(at))
        return None if known is None else int(not known)

    return run


def _between(operand: Run, low: Run, high: Run) -> Run:
    at_least, at_most = _COMPARISONS[">="], _COMPARISONS["<="]

    def run(at: Evaluation) -> Value:
        value, least, most = operand(at), low(at), high(at)
        if value is None:
            return None

        def inside(element: Scalar) -> bool | None:
            within = _all_of(
                _pairs(element if single else [element], bound, test, at, whole=True)
                for bound, test in ((least, at_least), (most, at_most))
            )
            return None if within is None else bool(within)

        single = not isinstance(value, list)
        return _any_of(map(inside, value if isinstance(value, list) else [value]))

    return run


def _any_choice(test: _Pair, *, whole: bool = False) -> Callable[..., Run]:
    """Make an operator that looks for its first operand among the others."""

    def make(operand: Run, *choices: Run) -> Run:
        def run(at: Evaluation) -> Value:
            value = operand(at)
            return _any_of(_pairs(value, choice(at), test, at, whole=whole) for choice in choices)

        return run

    return make


def _arithmetic(operate: Callable[[Scalar, Scalar], int | float], left: Run, right: Run) -> Run:
    def run(at: Evaluation) -> Value:
        one, other = first(left(at)), first(right(at))
        return None if one is None or other is None else operate(one, other)

    return run


_ARITHMETIC: dict[str, Callable[[Scalar, Scalar], int | float]] = {
    "+": scalars.add,
    "-": scalars.subtract,
    "*": scalars.multiply,
    "/": scalars.divide,
    "%": scalars.remainder,
}


def _negative(operand: Run) -> Run:
    def run(at: Evaluation) -> Value:
        value = first(operand(at))
        return None if value is None else scalars.negate(value)

    return run


def _if(condition: Run, then: Run, otherwise: Run) -> Run:
    return lambda at: then(at) if truth(condition(at)) else otherwise(at)


def _is_nan(value: Value) -> int:
    return int(isinstance(value, float) and value != value)  # noqa: PLR0124


_OPERATORS: dict[str, Callable[..., Run]] = {
    "and": _and,
    "or": _or,
    "not": _not,
    "between": _between,
    "in": _any_choice(equal),
    "begins": _any_choice(lambda value, start: text_of(value).startswith(text_of(start)), whole=True),
    "ends": _any_choice(lambda value, end: text_of(value).endswith(text_of(end)), whole=True),
    "isnull": lambda operand: lambda at: int(operand(at) is None),
    "isnan": lambda operand: lambda at: _is_nan(operand(at)),
    "neg": _negative,
    "if": _if,
}


def _has(node: Any, aggregates: list[str]) -> Run:
    operand, part = _compile(node[1], aggregates), node[2].encode()

    def run(at: Evaluation) -> Value:
        def test(value: Scalar, _: Scalar) -> bool:
            text = text_of(value)
            spend_search(text, part, at.spend)
            return part in text

        return _number(_pairs(operand(at), part, test, at))

    return run


def _automaton(tree: Any) -> Automaton:
    from ampsq.expressions.automaton import Automaton  # noqa: PLC0415 - most expressions have none

    return Automaton.from_tree(tree)


def _like(node: Any, aggregates: list[str]) -> Run:
    operand, automaton = _compile(node[1], aggregates), _automaton(node[2])

    def run(at: Evaluation) -> Value:
        value = operand(at)
        if value is None:
            return None
        elements = value if isinstance(value, list) else [value]
        return int(any(automaton.search(text_of(element), at) for element in elements))

    return run


def _call(node: Any, aggregates: list[str]) -> Run:
    name = node[1]
    if name == "REGEXP_REPLACE":
        return _regexp_replace(node, aggregates)
    call = FUNCTIONS[name].call
    arguments = [_compile(argument, aggregates) for argument in node[2:]]
    return lambda at: call([argument(at) for argument in arguments], at)


def _regexp_replace(node: Any, aggregates: list[str]) -> Run:
    operand, automaton, replacement = _compile(node[2], aggregates), _automaton(node[3]), _compile(node[4], aggregates)

    def run(at: Evaluation) -> Value:
        value, new = first(operand(at)), first(replacement(at))
        if value is None or new is None:
            return None
        result = automaton.replace(text_of(value), text_of(new), at, LONGEST)
        if result is None:
            raise OutOfSteps
        return result

    return run


def _aggregate(node: Any, aggregates: list[str]) -> Run:
    written = json.dumps(node)
    if written not in aggregates:
        aggregates.append(written)
    place = aggregates.index(written)
    return lambda at: at.aggregates[place]


_SPECIAL: dict[str, Callable[[Any, list[str]], Run]] = {
    "f": _field,
    "t": _topic_field,
    "has": _has,
    "like": _like,
    "call": _call,
    "agg": _aggregate,
}
