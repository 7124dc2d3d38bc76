"""Entitlements: the topics and contents that a user may read and write."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ampsq.base.errors import DefinitionError
from ampsq.base.name_patterns import pattern_of
from ampsq.base.values import is_name, parse_name, shown
from ampsq.expressions import Document, parse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampsq.base.name_automaton import NamePattern
    from ampsq.expressions import Expression

__all__ = ["Entitlement", "Entitlements", "NotEntitled", "Right"]

Right: TypeAlias = Literal["read", "write"]

_RIGHTS: Final = ("read", "write")
_PATTERN_ALLOWED: Final = "a name, or a regular expression that matches the whole of a name, as in '^orders/.*$'"


class NotEntitled(Exception):
    """A user asks for what no entitlement gives; the text names what was asked for and nothing else."""


@dataclass(frozen=True, slots=True)
class Entitlement:
    """One thing that one user may do.

    Attributes:
        user: the user's name.
        name: a topic, a queue or a view; or a regular expression for the whole of such names.
        rights: ``read``, of a queue with settling what was read; ``write``; or both.
        read_filter: an expression: only messages that match it are given. Default: all are.
        write_filter: an expression over the message as JSON: only what matches it is taken. Default: everything is.
    """

    user: str
    name: str
    rights: tuple[Right, ...]
    read_filter: Expression | None = None
    write_filter: Expression | None = None
    _pattern: NamePattern | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, elements: dict[str, Any]) -> Entitlement:
        """Make it of what a file says.

        Raises:
            DefinitionError: an element is unknown, missing, or wrong.
        """
        left = dict(elements)
        user, name = parse_name(left.pop("user", None)), left.pop("name", None)
        given = left.pop("rights", None) or []
        rights = tuple([given] if isinstance(given, str) else given)
        if not rights or any(right not in _RIGHTS for right in rights):
            raise DefinitionError(f"rights: {shown(given)}; allowed: read, write, or [read, write]")
        if not isinstance(name, str) or not name:
            raise DefinitionError(f"name: {shown(name)}; allowed: {_PATTERN_ALLOWED}")
        pattern = None
        if not is_name(name):
            try:
                pattern = pattern_of(name, whole=True, allowed=_PATTERN_ALLOWED)
            except DefinitionError as error:
                raise DefinitionError(f"name: {error}") from None
        filters = {right: _filter(left.pop(f"{right}_filter", None), right, rights) for right in _RIGHTS}
        if left:
            raise DefinitionError(
                f"{shown(next(iter(left)))} is no element; allowed: user, name, rights, read_filter, write_filter"
            )
        return cls(user, name, rights, filters["read"], filters["write"], pattern)

    def covers(self, name: str) -> bool:
        """Return whether it is about this topic, queue or view."""
        return self.name == name if self._pattern is None else self._pattern.search(name)

    def filter_of(self, right: Right) -> Expression | None:
        """The filter of a right; None: there is none."""
        return self.read_filter if right == "read" else self.write_filter


def _filter(text: object, right: str, rights: Iterable[str]) -> Expression | None:
    if text is None:
        return None
    if right not in rights:
        raise DefinitionError(f"{right}_filter goes with the right {right}, which is not given; add it to rights")
    try:
        return parse(str(text), "filter")
    except DefinitionError as error:
        raise DefinitionError(f"{right}_filter: {error}") from error


class Entitlements:
    """All of them. Where several cover a name, what any of them allows is allowed.

    Args:
        given: in any order.
    """

    def __init__(self, given: Iterable[Entitlement]) -> None:
        self._of: dict[str, list[Entitlement]] = {}
        for each in given:
            self._of.setdefault(each.user, []).append(each)

    def filters(self, user: str, right: Right, name: str) -> list[Expression]:
        """The filters of which a message must match one; none: it need not match any.

        Raises:
            NotEntitled: the user has not this right there.
        """
        own = [each for each in self._of.get(user, ()) if right in each.rights and each.covers(name)]
        if not own:
            raise NotEntitled(f"{user} may not {right} {name!r}")
        found = [each.filter_of(right) for each in own]
        return [] if None in found else [each for each in found if each is not None]

    def may_write(self, user: str, name: str) -> bool:
        """Say whether a user may publish there, of whatever content."""
        return any("write" in each.rights and each.covers(name) for each in self._of.get(user, ()))

    def to_read(self, user: str, name: str, asked: str | None) -> str | None:
        """The filter to read with: what is asked for, and what the user is entitled to; None: everything.

        Raises:
            NotEntitled: the user may not read there. DefinitionError: what is asked for is no expression.
        """
        return _joined(self.filters(user, "read", name), asked)

    def to_write(self, user: str, name: str, asked: str | None) -> str | None:
        """The filter of the records that may be deleted of those that are asked for; None: all.

        Raises:
            NotEntitled: the user may not write there. DefinitionError: what is asked for is no expression.
        """
        return _joined(self.filters(user, "write", name), asked)

    def check_write(self, user: str, name: str, bodies: Iterable[bytes]) -> None:
        """See that a user may publish messages, given as JSON.

        Raises:
            NotEntitled: not there, or not one of these messages.
        """
        filters = self.filters(user, "write", name)
        for body in bodies if filters else ():
            if not any(each.matches(Document(body, topic=name)) for each in filters):
                raise NotEntitled(f"{user} may not write this message to {name!r}: it does not match what is allowed")


def _joined(filters: list[Expression], asked: str | None) -> str | None:
    """The filter for what is asked for and matches one of some filters; None: everything."""
    entitled = " OR ".join(f"({each.text})" for each in filters)
    if asked is None or not asked.strip():
        return entitled or None
    # Alone first: what stands on its own feet cannot change what stands behind the bracket.
    parse(asked, "query")
    return f"({asked}) AND ({entitled})" if entitled else asked
