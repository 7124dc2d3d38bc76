"""The uses of an expression, which decide what it may read and give."""

from __future__ import annotations

from typing import Literal, TypeAlias

__all__ = ["Use"]

Use: TypeAlias = Literal["filter", "priority", "barrier", "query", "projection", "group", "weight"]
