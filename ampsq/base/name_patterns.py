"""Names, or regular expressions over them: what definitions and subscribers say of topics, queues and groups."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import DefinitionError
from ampsq.base.values import NAME_ALLOWED, is_name, parse_name, shown

if TYPE_CHECKING:
    from ampsq.base.name_automaton import NamePattern

__all__ = ["check_may_match", "matches_name", "parse_topic_or_pattern", "pattern_of"]

_PATTERN_ALLOWED: Final = f"a name ({NAME_ALLOWED}) or a regular expression"
#: Signs by which what stands beside them may be missing in what matches, or that mean something else than themselves.
_MEANS_MORE: Final = re.compile(r"[|()\[\]{}?*\\]")
_IN_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_./^$+-]")


@lru_cache(maxsize=1024)
def matches_name(wanted: str, name: str) -> bool:
    """Say whether a name is the one that is wanted, or is matched by the regular expression that is."""
    # Comparing is cheap, and a name is never a pattern.
    return wanted == name or (not is_name(wanted) and pattern_of(wanted).search(name))


@lru_cache(maxsize=256)
def pattern_of(text: str, *, whole: bool = False, allowed: str = _PATTERN_ALLOWED) -> NamePattern:
    """Compile a regular expression over names; it is searched for anywhere in a name.

    Args:
        text: the regular expression.
        whole: it has to match the whole of a name.
        allowed: what is allowed in its place, for errors.

    Raises:
        DefinitionError: it does not compile, has what cannot be matched in one pass, or is empty.
    """
    # Most programs have names alone.
    from ampsq.base.name_automaton import NamePattern, PatternError  # noqa: PLC0415

    if not text:
        raise DefinitionError(f"'' names nothing; allowed: {allowed}")
    try:
        return NamePattern(text, whole=whole)
    except PatternError as reason:
        raise DefinitionError(f"{shown(text)} is not a regular expression ({reason}); allowed: {allowed}") from None


def check_may_match(value: str) -> None:
    """Refuse what subscribers ask for where no name can ever be it, nor match it: it would be waited for without end.

    Raises:
        DefinitionError: it is no name, and as a regular expression matches none.
    """
    if is_name(value) or pattern_of(value).may_match():
        return
    strange = None if _MEANS_MORE.search(value) else _IN_NO_NAME.search(value)
    reason = f", since {shown(strange[0])} is in no name" if strange else ""
    raise DefinitionError(
        f"{shown(value)} is not a name, and as a regular expression it matches none{reason}; allowed: "
        f"{_PATTERN_ALLOWED}, as in '^orders' for all that begin so"
    )


def parse_topic_or_pattern(value: object) -> str:
    """Return the value when it is a topic's name or a regular expression over names.

    Raises:
        DefinitionError: it is neither.
    """
    if isinstance(value, list | tuple | set | frozenset):
        several = "|".join(re.escape(each) for each in value if isinstance(each, str)) or "orders|returns"
        raise DefinitionError(
            f"{shown(value)} is not a text; allowed: one text; several names are a regular expression, as in "
            f"'^({several})$'"
        )
    if isinstance(value, str) and not is_name(value):
        return pattern_of(value).pattern
    return parse_name(value)
