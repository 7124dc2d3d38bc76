"""Expressions: parsed, checked and folded once, evaluated in Python and, as their trees, in the server's scripts."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from ampsq.base.errors import ExpressionError
from ampsq.expressions.evaluate import Run, compile_tree, evaluate, priority_of
from ampsq.expressions.values import truth

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.expressions.check import Tree
    from ampsq.expressions.document import Document
    from ampsq.expressions.grammar import SyntaxNode
    from ampsq.expressions.use import Use
    from ampsq.expressions.values import Value

__all__ = ["Aggregate", "Expression", "Projection", "parse", "parse_projection"]


_ID_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression that was parsed; it can be pickled.

    Attributes:
        text: as it was given.
        tree: what it means, as `docs/decisions/0003-expressions.md` describes it.
        json: the tree as compact JSON, which is what scripts get.
        id: 16 hexadecimal digits; the same for all texts that mean the same tree.
    """

    text: str
    tree: Tree = field(compare=False)
    json: str
    id: str
    _run: Run = field(compare=False, repr=False)

    @classmethod
    def of_tree(cls, text: str, tree: Tree) -> Self:
        """Make the expression of a tree that `parse` made before."""
        written = json.dumps(tree, separators=(",", ":"))
        digest = hashlib.sha1(written.encode(), usedforsecurity=False).hexdigest()
        return cls(text, tree, written, digest[:_ID_DIGITS], compile_tree(tree))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).of_tree, (self.text, self.tree)

    @property
    def aggregates(self) -> tuple[Aggregate, ...]:
        """The aggregates in it, each once; whoever keeps a view computes them."""
        nodes = {json.dumps(node): node for node in _aggregate_nodes(self.tree)}
        return tuple(Aggregate(node[1], Expression.of_tree(self.text, node[2])) for node in nodes.values())

    def value(self, document: Document, aggregates: Sequence[Value] = ()) -> Value:
        """Evaluate.

        Args:
            document: what it is evaluated on.
            aggregates: the values of `Expression.aggregates`, in their order; a projection with such needs them.

        Returns:
            None for NULL, an integer, a float, a string's bytes, or the list that a field found; None also for a
            body that is no JSON, and beyond the limits of an evaluation.
        """
        return evaluate(self._run, document, aggregates)

    def matches(self, document: Document) -> bool:
        """Return whether its value is true."""
        return truth(self.value(document)) is True

    def priority(self, document: Document) -> int | None:
        """Return its value as a priority, from 0 to 2**64-1; None is the lowest, below 0."""
        return priority_of(self.value(document))


class Aggregate(NamedTuple):
    """One aggregate of a projection.

    Attributes:
        function: its name, such as ``SUM``.
        operand: what it is over; NULLs do not count.
    """

    function: str
    operand: Expression


class Projection(NamedTuple):
    """A field of a view.

    Attributes:
        expression: where it comes from.
        path: the names that lead to it in the view's messages.
    """

    expression: Expression
    path: tuple[str, ...]


@lru_cache(maxsize=1024)
def parse(text: str, use: Use) -> Expression:
    """Parse an expression.

    Args:
        text: as `docs/expressions.md` describes it.
        use: what it is for. Filters, priorities and barriers take what is deterministic only, since their answers
            are kept; queries take all but aggregates; for projections see `parse_projection`.

    Raises:
        ExpressionError: it cannot be read, or says what is not allowed there.
    """
    from ampsq.expressions.grammar import parse_nodes  # noqa: PLC0415 - lark is slow to import

    return _expression(parse_nodes(text), text, use)


@lru_cache(maxsize=1024)
def parse_projection(text: str) -> Projection:
    """Parse a field of a view, ``expression AS /path``; a field alone keeps its path.

    Raises:
        ExpressionError: it cannot be read, has no path, or the path has a topic or subscripts.
    """
    from ampsq.expressions.grammar import parse_nodes  # noqa: PLC0415 - lark is slow to import

    node, destination = parse_nodes(text, projection=True)
    expression = _expression(node, text, "projection")
    if destination is None:
        if node.operator != "field":
            raise ExpressionError("a projection needs a name: write AS /path after it", text, len(text) + 1)
        return Projection(expression, _path(node, text, topic_allowed=True))
    return Projection(expression, _path(destination, text, topic_allowed=False))


def _expression(node: SyntaxNode, text: str, use: Use) -> Expression:
    from ampsq.expressions.check import checked  # noqa: PLC0415 - so are automata

    return Expression.of_tree(text, checked(node, text, use))


def _path(node: SyntaxNode, text: str, *, topic_allowed: bool) -> tuple[str, ...]:
    topic, path = node.value
    if topic is not None and not topic_allowed:
        raise ExpressionError("what follows AS is a path without a topic, as in /total", text, node.column)
    if not all(isinstance(step, str) for step in path):
        raise ExpressionError("the path of a projection has no subscripts; write AS /path", text, node.column)
    return tuple(path)


def _aggregate_nodes(tree: Any) -> list[Any]:
    if not isinstance(tree, tuple | list) or not tree:
        return []
    if tree[0] == "agg":
        return [tree]
    return [node for part in tree for node in _aggregate_nodes(part)]
