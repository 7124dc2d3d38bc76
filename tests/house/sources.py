"""Sources as syntax trees: each file is parsed once for all tests of a process."""

from __future__ import annotations

import ast
from functools import cache

__all__ = ["statements", "tree_of"]

#: Where a statement has others.
_PARTS = ("body", "orelse", "finalbody", "handlers", "cases")


@cache
def tree_of(path):
    """Return the tree of a file; who walks it changes nothing in it."""
    return ast.parse(path.read_text())


def statements(tree):
    """Yield a tree and every statement in it, at whatever depth; expressions, which have none, are not looked at."""
    todo = [tree]
    while todo:
        node = todo.pop()
        yield node
        for part in _PARTS:
            todo += getattr(node, part, ())
