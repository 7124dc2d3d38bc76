"""Sentences that suggest what a name may have meant."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


__all__ = ["as_sentence", "explain_missing_instance"]


def explain_missing_instance(name: str, others: Sequence[str], unknown: str = "") -> str:
    """Say that a server does not have an instance, who may be meant, and which it has; or why that is unknown."""
    if unknown:
        return f"no instance {name!r}; which there are is not known: {unknown}"
    close = difflib.get_close_matches(name, others, n=1)
    there = f"there {'is' if len(others) == 1 else 'are'} {', '.join(map(repr, others))}" if others else "there is none"
    return f"no instance {name!r}; {f'did you mean {close[0]!r}? ' if close else ''}{there}"


def as_sentence(text: str) -> str:
    """The text as a whole sentence, behind which another one may stand."""
    return text if text.endswith("?") else f"{text}."
