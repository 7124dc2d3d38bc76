"""Limits on the size of a message: settings of the process, from its environment, checked before anything is sent.

They are for mistakes and for what comes from strangers; whoever writes to the server past ampsq is not bound by them.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Final, Self

from ampsq.base.errors import DefinitionError
from ampsq.base.values import parse_count, parse_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["DEEPEST", "Limits", "limits"]

DEEPEST: Final = 900
"""Readers and writers of JSON, Python's and the server's, end at about a thousand."""

_TEXT: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_BRACKET: Final = re.compile(rb"[\[\]{}]")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one message; each has a variable of the environment, ``AMPSQ_MAX_<NAME>``.

    Attributes:
        body_size: bytes of a body. Default 64MB, as ``AMPSQ_MAX_BODY_SIZE=1MB``.
        json_depth: objects and lists within each other, of data that are written as JSON; at most 900. Default 500.
        headers: how many. Default 100.
        headers_size: bytes of all names and values of the headers, as they are recorded. Default 64kb.
    """

    body_size: int = 64 * 2**20
    json_depth: int = 500
    headers: int = 100
    headers_size: int = 64 * 2**10

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self:
        """Read them from variables.

        Raises:
            DefinitionError: one is no number, or too large; the text names it.
        """
        found = {}
        for each in fields(cls):
            name = f"AMPSQ_MAX_{each.name.upper()}"
            if text := environment.get(name):
                try:
                    found[each.name] = (parse_size if "size" in each.name else parse_count)(text)
                except DefinitionError as error:
                    raise DefinitionError(f"{name}: {error}") from error
        if found.get("json_depth", 0) > DEEPEST:
            raise DefinitionError(f"AMPSQ_MAX_JSON_DEPTH: {found['json_depth']} is too deep; allowed: 0 to {DEEPEST}")
        return cls(**found)

    def check_bodies(self, bodies: Sequence[bytes]) -> None:
        """Raise `DefinitionError` for a body that is too large."""
        largest = max(map(len, bodies), default=0)
        if largest > self.body_size:
            raise DefinitionError(
                f"a body of {largest:,} bytes; allowed: up to {self.body_size:,} (AMPSQ_MAX_BODY_SIZE). Cut it, or "
                "keep it elsewhere and publish where it is"
            )

    def check_depth(self, body: bytes) -> None:
        """Raise `DefinitionError` for a JSON text that is nested too deep. One that is no JSON may pass."""
        # Few bodies have so many brackets, and those without are told at a glance.
        if len(body) <= self.json_depth or body.count(b"[") + body.count(b"{") <= self.json_depth:
            return
        depth = 0
        for bracket in _BRACKET.findall(_TEXT.sub(b"", body)):
            depth += 1 if bracket in b"[{" else -1
            if depth > self.json_depth:
                raise DefinitionError(
                    f"JSON nested more than {self.json_depth} deep (AMPSQ_MAX_JSON_DEPTH); allowed: less, or bytes, "
                    "which are not looked into"
                )

    def check_headers(self, headers: Mapping[str, str], encoded: bytes) -> None:
        """Raise `DefinitionError` for too many headers, and for too large ones.

        Args:
            headers: the headers.
            encoded: as they are recorded.
        """
        if len(headers) > self.headers:
            raise DefinitionError(f"{len(headers):,} headers; allowed: up to {self.headers:,} (AMPSQ_MAX_HEADERS)")
        if len(encoded) > self.headers_size:
            raise DefinitionError(
                f"headers of {len(encoded):,} bytes; allowed: up to {self.headers_size:,} (AMPSQ_MAX_HEADERS_SIZE)"
            )


@cache
def limits() -> Limits:
    """Return the limits of this process; the environment is read once.

    Raises:
        DefinitionError: as of `Limits.of`.
    """
    return Limits.of(os.environ)
