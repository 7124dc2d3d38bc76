"""Metrics, health and the web console, served over HTTP; needs the extra ``console``; see docs/console.md."""

from ampsq.console.access import Access
from ampsq.console.server import Console, parse_where

__all__ = ["Access", "Console", "parse_where"]
