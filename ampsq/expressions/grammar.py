r"""The grammar of expressions and its parser: a text becomes nodes, or an error that says what to write instead.

This module alone knows lark, and is imported when the first expression is parsed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

from lark import Lark, Token, Transformer_NonRecursive, UnexpectedCharacters, UnexpectedToken
from lark.exceptions import VisitError

from ampsq.base.errors import ExpressionError
from ampsq.expressions.literals import read_path, read_string, split_topic
from ampsq.expressions.syntax_errors import KEYWORDS, explain
from ampsq.expressions.values import BIGGEST

__all__ = ["SyntaxNode", "parse_nodes"]

_MOST_BYTES: Final = 8_192
_MOST_NODES: Final = 500
_DEEPEST: Final = 50
_SUBSCRIPT_DIGITS: Final = 9

_RULES: Final = r"""
?condition: conjunction | condition OR conjunction -> logic
?conjunction: negation | conjunction AND negation -> logic
?negation: comparison | NOT negation -> negated
?comparison: sum
    | sum COMPARISON sum -> operation
    | sum predicate -> tested
    | sum NOT predicate -> tested
    | sum IS NULL -> tested
    | sum IS NAN -> tested
    | sum IS NOT NULL -> tested
    | sum IS NOT NAN -> tested
predicate: BETWEEN sum AND sum
    | IN "(" _values ")"
    | LIKE string
    | BEGINS WITH _choices
    | ENDS WITH _choices
_choices: _single | "(" _values ")"
_values: condition ("," condition)*
?sum: product | sum (PLUS | MINUS) product -> operation
?product: signed | product (STAR | DIVIDE | PERCENT | MOD) signed -> operation
?signed: atom | MINUS signed -> negative | PLUS signed -> positive
?atom: _single | INTEGER -> integer | FLOAT -> real | NULL -> null | "(" condition ")"
_single: string | identifier | call
string: STRING
identifier: FIELD
call: FUNCTION "(" ")" | FUNCTION "(" _values ")" | FUNCTION "(" STAR ")"
projection: condition | condition AS FIELD
%ignore /[ \t\r\n]+/
"""
_TERMINALS: Final = {
    "FIELD": (r"(?:\[[^\]\/][^\]]*\]\.)?(?:\/[A-Za-z0-9_@:.-]+|\[\/[^\]]*\])(?:\/[A-Za-z0-9_@:.-]+|\[[0-9]+\])*"),
    "STRING.2": r"""[rR](?:'[^']*'|"[^"]*")|'(?:[^'\\]|\\(?:.|\n))*'|"(?:[^"\\]|\\(?:.|\n))*\"""",
    "FUNCTION": rf"(?!(?i:{'|'.join(KEYWORDS)})(?![A-Za-z0-9_]))[A-Za-z_][A-Za-z0-9_]*(?=[ \t\r\n]*\()",
    "FLOAT.2": r"[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+",
    "INTEGER": r"[0-9]+",
    "COMPARISON": r"==|=|!=|<>|<=|>=|<|>",
    "PLUS": r"\+",
    "MINUS": r"-",
    "STAR": r"\*",
    "PERCENT": r"%",
    "DIVIDE": r"\/(?=[ \t\r\n])",
    **{f"{word}.3": rf"(?i:{word})(?![A-Za-z0-9_])" for word in KEYWORDS},
}
_GRAMMAR: Final = _RULES + "".join(f"{name}: /{pattern}/\n" for name, pattern in _TERMINALS.items())

_OPERATORS: Final = {"==": "=", "<>": "!=", "MOD": "%"}


@dataclass(frozen=True, slots=True)
class SyntaxNode:
    """A piece of an expression as it was written.

    Attributes:
        operator: that of the tree, or "constant", "field", "call", "like", "star".
        column: where it is in the text, from 1: an operator's own place.
        operands: the nodes that it works on.
        value: a constant's value, a field's path, a function's name in capitals.
        source: how a string or a field is written.
    """

    operator: str
    column: int
    operands: tuple[SyntaxNode, ...] = ()
    value: Any = None
    source: str = ""
    size: int = 1
    depth: int = 1


_Predicate: TypeAlias = "tuple[str, Token, list[SyntaxNode]]"


class _Builder(Transformer_NonRecursive[Token, Any]):
    """Makes nodes of lark's tree; how deep that is nested does not matter."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def _node(self, operator: str, token: Token, operands: list[SyntaxNode], value: Any = None) -> SyntaxNode:
        column = (token.start_pos or 0) + 1
        size = 1 + sum(operand.size for operand in operands)
        depth = 1 + max((operand.depth for operand in operands), default=0)
        if size > _MOST_NODES:
            raise ExpressionError(f"more than {_MOST_NODES} values and operators", self._text, column)
        if depth > _DEEPEST:
            raise ExpressionError(f"nested more than {_DEEPEST} levels deep", self._text, column)
        return SyntaxNode(operator, column, tuple(operands), value, str(token), size, depth)

    def logic(self, children: list[Any]) -> SyntaxNode:
        left, token, right = children
        operator = token.type.lower()
        operands = [
            part for side in (left, right) for part in (side.operands if side.operator == operator else (side,))
        ]
        return self._node(operator, token, operands)

    def negated(self, children: list[Any]) -> SyntaxNode:
        return self._node("not", children[0], children[1:])

    def operation(self, children: list[Any]) -> SyntaxNode:
        left, token, right = children
        written = token.upper()
        return self._node(_OPERATORS.get(written, written), token, [left, right])

    def predicate(self, children: list[Any]) -> _Predicate:
        word = children[0]
        return word.type.lower(), word, [child for child in children if isinstance(child, SyntaxNode)]

    def tested(self, children: list[Any]) -> SyntaxNode:
        operand, *words = children
        if isinstance(words[-1], Token):
            operator, word, others = f"is{words[-1].type.lower()}", words[0], []
        else:
            operator, word, others = words.pop()
        node = self._node(operator, word, [operand, *others])
        negations = [token for token in words if token.type == "NOT"]
        return self._node("not", negations[0], [node]) if negations else node

    def negative(self, children: list[Any]) -> SyntaxNode:
        return self._node("neg", children[0], children[1:])

    def positive(self, children: list[Any]) -> SyntaxNode:
        return children[1]  # type: ignore[no-any-return]

    def integer(self, children: list[Token]) -> SyntaxNode:
        token = children[0]
        digits = token.lstrip("0") or "0"
        if len(digits) > len(str(BIGGEST)) or int(digits) > BIGGEST:
            reason = f"integers go to {BIGGEST}; write {digits[:3]}...e{len(digits) - 3} or .0 after it for a float"
            raise ExpressionError(reason, self._text, (token.start_pos or 0) + 1)
        return self._node("constant", token, [], int(digits))

    def real(self, children: list[Token]) -> SyntaxNode:
        token = children[0]
        value = float(token)
        if math.isinf(value):
            raise ExpressionError("floats go to 1.7976931348623157e308", self._text, (token.start_pos or 0) + 1)
        return self._node("constant", token, [], value)

    def null(self, children: list[Token]) -> SyntaxNode:
        return self._node("constant", children[0], [])

    def string(self, children: list[Token]) -> SyntaxNode:
        return self._node("constant", children[0], [], read_string(children[0]))

    def identifier(self, children: list[Token]) -> SyntaxNode:
        return self._node("field", children[0], [], self._path(children[0]))

    def call(self, children: list[Any]) -> SyntaxNode:
        token, *arguments = children
        operands = [self._node("star", a, []) if isinstance(a, Token) else a for a in arguments]
        return self._node("call", token, operands, token.upper())

    def projection(self, children: list[Any]) -> tuple[SyntaxNode, SyntaxNode | None]:
        source, *destination = children
        return source, self.identifier(destination[1:]) if destination else None

    def _path(self, token: Token) -> tuple[str | None, tuple[str | int, ...]]:
        topic, source = split_topic(token)
        path = read_path(source)
        column = (token.start_pos or 0) + 1
        if "" in path:
            raise ExpressionError("a name in a field is empty", self._text, column)
        if any(isinstance(step, int) and step >= 10**_SUBSCRIPT_DIGITS for step in path):
            raise ExpressionError(f"subscripts have at most {_SUBSCRIPT_DIGITS} digits", self._text, column)
        if any("\ud800" <= sign <= "\udfff" for sign in token):
            raise ExpressionError("names of fields are UTF-8", self._text, column)
        return topic, path


@lru_cache(maxsize=1)
def _parser() -> Lark:
    return Lark(
        _GRAMMAR, parser="lalr", lexer="contextual", start=["condition", "projection"], maybe_placeholders=False
    )


def parse_nodes(text: str, *, projection: bool = False) -> Any:
    """Read a text.

    Args:
        text: the expression.
        projection: whether ``AS /path`` may follow it.

    Returns:
        Its node; of a projection the node and the path's node, or None without one.

    Raises:
        ExpressionError: it is no expression, or is too large.
    """
    _check_text(text)
    start = "projection" if projection else "condition"
    try:
        tree = _parser().parse(text, start=start)
    except UnexpectedToken as reason:
        place = len(text) if reason.token.type == "$END" else reason.token.start_pos or 0
    except UnexpectedCharacters as reason:
        place = reason.pos_in_stream
    else:
        return _built(_Builder(text), tree)
    raise ExpressionError(explain(text, place, _expected(text[:place], start)), text, place + 1)


def _expected(beginning: str, start: str) -> set[str]:
    """The terminals that may follow a beginning; what the parser tells after a fault lacks some."""
    state = _parser().parse_interactive(beginning, start=start)
    state.exhaust_lexer()
    accepted: set[str] = state.accepts()  # type: ignore[no-untyped-call]
    return accepted


def _built(builder: _Builder, tree: Any) -> Any:
    try:
        return builder.transform(tree)
    except VisitError as reason:
        if isinstance(reason.orig_exc, ExpressionError):
            raise reason.orig_exc from None
        raise


def _check_text(text: str) -> None:
    """Refuse what is too long, or is no text at all."""
    try:
        size = len(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError as reason:
        raise ExpressionError("half a surrogate pair is no character", text, reason.start + 1) from None
    if size > _MOST_BYTES:
        raise ExpressionError(f"{size} bytes long; at most {_MOST_BYTES} are allowed", text, 1)
