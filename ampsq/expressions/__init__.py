"""Expressions over messages: filters, priorities, barriers, queries and views; see `docs/expressions.md`."""

from __future__ import annotations

from ampsq.expressions.document import Document
from ampsq.expressions.expression import Aggregate, Expression, Projection, parse, parse_projection
from ampsq.expressions.use import Use

__all__ = ["Aggregate", "Document", "Expression", "Projection", "Use", "parse", "parse_projection"]
