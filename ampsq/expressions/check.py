"""From what was written to the tree: is it allowed there, and what follows already from its constants."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from ampsq.base.errors import ExpressionError
from ampsq.expressions.automaton import Automaton, Literal, PatternError, compile_pattern
from ampsq.expressions.budget import OutOfSteps
from ampsq.expressions.document import Document
from ampsq.expressions.evaluate import Evaluation, compile_tree
from ampsq.expressions.functions import AGGREGATES, FUNCTIONS
from ampsq.expressions.literals import place_in_string, raw_pattern_advice
from ampsq.expressions.syntax_errors import nearest_function

if TYPE_CHECKING:
    from ampsq.expressions.grammar import SyntaxNode
    from ampsq.expressions.use import Use
    from ampsq.expressions.values import Value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampsq.expressions.grammar import SyntaxNode
    from ampsq.expressions.values import Value

__all__ = ["Tree", "checked"]

Tree: TypeAlias = tuple[Any, ...]

_KEPT: Final = {
    "filter": "in filters, since what a filter said is kept",
    "priority": "in priorities, since a priority is kept in an index",
    "barrier": "in barriers, since what a barrier said is kept",
    "projection": "in projections, since views are kept",
    "group": "in groups, since the group of a message is kept",
    "weight": "in weights, since the weight of a group is kept",
}
#: What these say of a message is asked once for all if it is a constant, so that none is meant.
_ASKED_OF_MESSAGES: Final = ("filter", "barrier", "group")
#: Constants that say themselves that they are meant.
_MEANT: Final = ("TRUE_VALUE", "FALSE_VALUE")
_COMPARISONS: Final = ("=", "!=", "<", "<=", ">", ">=")
_DOUBLES: Final = 2**53
_LONGEST_FOLDED: Final = 1_024
_CONSTANTS: Final = ("null", "n", "i", "d", "s", "x")


class _Arity(NamedTuple):
    least: int
    most: int | None


_SPECIAL: Final = {"IF": _Arity(3, 3), "REGEXP_REPLACE": _Arity(3, 3)}


def checked(node: SyntaxNode, text: str, use: Use, *, fold: bool = True) -> Tree:
    """Make the tree of what was written.

    Args:
        node: what was written.
        text: the whole expression, for errors.
        use: what it is for.
        fold: whether constants are evaluated already; not so where evaluators are compared.

    Raises:
        ExpressionError: it says something that is not allowed there, or calls a function wrongly.
    """
    checker = _Checker(text, use, fold=fold)
    tree = checker.tree(node)
    checker.check_constant(node)
    return tree


class _Checker:
    def __init__(self, text: str, use: Use, *, fold: bool) -> None:
        self._text = text
        self._use = use
        self._fold = fold
        self._in_aggregate = False

    def _refuse(self, reason: str, node: SyntaxNode) -> ExpressionError:
        return ExpressionError(reason, self._text, node.column)

    def tree(self, node: SyntaxNode) -> Tree:
        match node.operator:
            case "constant":
                return _constant(node.value)
            case "field":
                return self._field(node)
            case "like":
                return self._folded(self._like(node))
            case "call":
                return self._folded(self._call(node))
            case _:
                self._check_null(node)
                return self._folded((node.operator, *map(self.tree, node.operands)))

    def check_constant(self, node: SyntaxNode) -> None:
        """Refuse what is asked of messages and speaks of none of them, unless it is meant."""
        if self._use in _ASKED_OF_MESSAGES and not _is_meant(node) and not _asks_of_message(node):
            raise self._refuse(
                "it says the same of every message, since no field is in it; a field begins with a slash, as in "
                "/price; for all or no messages write TRUE_VALUE() or FALSE_VALUE()",
                node,
            )

    def _check_null(self, node: SyntaxNode) -> None:
        """Refuse a comparison with the literal NULL; queries take the whole language, as evaluators are tested."""
        if node.operator not in (*_COMPARISONS, "in") or self._use == "query":
            return
        nulls = [_is_null(operand) for operand in node.operands]
        if all(nulls[1:]) or (nulls[0] and node.operator != "in"):
            fields = (operand.source for operand in node.operands if operand.operator == "field")
            test = "IS NOT NULL" if node.operator == "!=" else "IS NULL"
            raise self._refuse(f"a comparison with NULL is never true; write {next(fields, '/a')} {test}", node)

    def _folded(self, tree: Tree) -> Tree:
        return _folded(tree) if self._fold else tree

    def _field(self, node: SyntaxNode) -> Tree:
        topic, path = node.value
        if topic is None:
            return ("f", *path)
        if self._use != "projection":
            raise self._refuse(
                "fields of a named topic are for views over several topics; write /a, not [topic]./a", node
            )
        return ("t", topic, *path)

    def _like(self, node: SyntaxNode) -> Tree:
        operand, pattern = node.operands
        value, compiled = self.tree(operand), self._compiled(pattern)
        if isinstance(compiled, Automaton):
            return ("like", value, compiled.tree, _shown_pattern(pattern.value))
        if compiled.at_start:
            return ("begins", value, _constant(compiled.text))
        if compiled.at_end:
            return ("ends", value, _constant(compiled.text))
        if _is_utf8(compiled.text):
            return ("has", value, compiled.text.decode())
        # `has` takes UTF-8 only; two alternatives are no plain text.
        escaped = b"".join(b"\\x%02x" % byte for byte in compiled.text)
        alternatives = compile_pattern(escaped + b"|" + escaped)
        return ("like", value, _automaton(alternatives).tree, _shown_pattern(pattern.value))

    def _compiled(self, pattern: SyntaxNode, *, replace: bool = False) -> Automaton | Literal:
        lost = raw_pattern_advice(pattern.source)
        if lost:
            raise ExpressionError(lost[1], self._text, pattern.column + lost[0])
        try:
            return compile_pattern(pattern.value, replace=replace)
        except PatternError as reason:
            column = pattern.column + place_in_string(pattern.source, reason.position)
            raise ExpressionError(f"in the pattern: {reason}", self._text, column) from None

    def _call(self, node: SyntaxNode) -> Tree:
        name = node.value
        if name in AGGREGATES:
            return self._aggregate(node)
        known = _SPECIAL.get(name) or FUNCTIONS.get(name)
        if known is None:
            raise self._refuse(nearest_function(name, aggregates=self._use == "projection"), node)
        self._check_arguments(node, known.least, known.most)
        if name in FUNCTIONS and not FUNCTIONS[name].deterministic and self._use != "query":
            raise self._refuse(
                f"{name} gives another value later and is not allowed {_KEPT[self._use]}; "
                "it is allowed in queries: sow, and acknowledging by filter",
                node,
            )
        if name == "IF":
            return ("if", *map(self.tree, node.operands))
        if name == "REGEXP_REPLACE":
            return self._regexp_replace(node)
        return ("call", name, *map(self.tree, node.operands))

    def _check_arguments(self, node: SyntaxNode, least: int, most: int | None) -> None:
        star = next((operand for operand in node.operands if operand.operator == "star"), None)
        if star is not None:
            raise self._refuse("* is for COUNT(*) in the projections of views", star)
        count = len(node.operands)
        if count < least or (most is not None and count > most):
            raise self._refuse(f"{node.value} takes {_amount(least, most)}, not {count}", node)

    def _regexp_replace(self, node: SyntaxNode) -> Tree:
        subject, pattern, replacement = node.operands
        if pattern.operator != "constant" or not isinstance(pattern.value, bytes):
            raise self._refuse("the pattern of REGEXP_REPLACE is a text in quotes", pattern)
        compiled = _automaton(self._compiled(pattern, replace=True))
        return ("call", node.value, self.tree(subject), compiled.tree, self.tree(replacement))

    def _aggregate(self, node: SyntaxNode) -> Tree:
        name = node.value
        if self._use != "projection":
            raise self._refuse(f"{name} is an aggregate, allowed in the projections of views only", node)
        if self._in_aggregate:
            raise self._refuse(f"{name} is inside another aggregate; aggregates are not nested", node)
        if name == "COUNT" and [operand.operator for operand in node.operands] == ["star"]:
            return ("agg", "COUNT", ("n", 1))
        self._check_arguments(node, 1, 1)
        self._in_aggregate = True
        operand = self.tree(node.operands[0])
        self._in_aggregate = False
        return ("agg", name, operand)


def _is_null(node: SyntaxNode) -> bool:
    return node.operator == "constant" and node.value is None


def _is_meant(node: SyntaxNode) -> bool:
    """Return whether a constant is meant as one: TRUE_VALUE(), FALSE_VALUE(), and SQL's 1 = 1 and 1 = 0."""
    if node.operator == "=":
        return all(type(operand.value) is int for operand in node.operands)
    return node.operator == "call" and node.value in _MEANT


def _asks_of_message(node: SyntaxNode) -> bool:
    """Return whether it contains a field or a function that tells something of the message."""
    match node.operator:
        case "field":
            return True
        case "call" if node.value in FUNCTIONS and not FUNCTIONS[node.value].constant:
            return True
        case _:
            return any(map(_asks_of_message, node.operands))


def _amount(least: int, most: int | None) -> str:
    if most is None:
        return f"{least} argument{'s' * (least != 1)} or more"
    if most == 0:
        return "no arguments"
    return f"{least} argument{'s' * (least != 1)}" if least == most else f"{least} to {most} arguments"


def _automaton(compiled: Automaton | Literal) -> Automaton:
    """Return the automaton compiled from a pattern that is never taken for plain text."""
    if isinstance(compiled, Automaton):
        return compiled
    raise TypeError(compiled)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _constant(value: Value) -> Tree:
    """The node of a scalar or NULL."""
    match value:
        case None:
            return ("null",)
        case int():
            return ("n", value) if abs(value) < _DOUBLES else ("i", str(value))
        case float():
            return ("d", value)
        case bytes():
            return ("s", value.decode()) if _is_utf8(value) else ("x", value.hex())
        case _:
            raise TypeError(value)


def _folded(tree: Tree) -> Tree:
    """The tree's value in its place, where it follows from constants and can be written."""
    if not all(operand[0] in _CONSTANTS for operand in _operands(tree)) or not _follows(tree):
        return tree
    try:
        value = compile_tree(tree)(Evaluation(Document(None)))
    except OutOfSteps:
        return tree
    if isinstance(value, float) and not math.isfinite(value):
        return tree
    if isinstance(value, bytes) and len(value) > _LONGEST_FOLDED:
        return tree
    return _constant(value)


def _shown_pattern(pattern: bytes) -> str:
    """A pattern as its tree keeps it, for those who read filters: bytes that are no UTF-8 are escaped."""
    return pattern.decode(errors="backslashreplace")


def _operands(tree: Tree) -> Iterable[Tree]:
    match tree:
        case ("has" | "like", operand, *_):
            return (operand,)
        case ("call", "REGEXP_REPLACE", subject, _, replacement):
            return (subject, replacement)
        case ("call", _, *arguments):
            return arguments
        case _:
            return tree[1:]


def _follows(tree: Tree) -> bool:
    """Return whether an operator's value follows from its operands alone."""
    if tree[0] == "agg":
        return False
    return tree[0] != "call" or tree[1] not in FUNCTIONS or FUNCTIONS[tree[1]].constant
