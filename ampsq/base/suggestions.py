"""Sentences that suggest what a name may have meant."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


__all__ = [
    "as_sentence",
    "explain_missing_instance",
    "misplaced",
    "misspelt",
    "nearest",
    "nearest_names",
    "unknown_argument",
]

#: Letters by which a name may differ from another one; of a short one, one less; and the shortest that may be misspelt.
_LETTERS, _SHORT, _SHORTEST = 2, 6, 4
#: Names that are suggested at once.
_NEAREST = 3
#: Instances of a server that are listed; one with partitions alone has up to a thousand.
_LISTED = 20
_DIGITS = str.maketrans("", "", "0123456789")


def explain_missing_instance(name: str, others: Sequence[str], unknown: str = "") -> str:
    """Say that a server does not have an instance, who may be meant, and which it has; or why that is unknown."""
    if unknown:
        return f"no instance {name!r}; which there are is not known: {unknown}"
    close = difflib.get_close_matches(name, others, n=1)
    listed = ", ".join(map(repr, others[:_LISTED]))
    more = f" and {len(others) - _LISTED:,} more" if len(others) > _LISTED else ""
    there = f"there {'is' if len(others) == 1 else 'are'} {listed}{more}" if others else "there is none"
    return f"no instance {name!r}; {f'did you mean {close[0]!r}? ' if close else ''}{there}"


def as_sentence(text: str) -> str:
    """The text as a whole sentence, behind which another one may stand."""
    return text if text.endswith("?") else f"{text}."


def misplaced(owner: object, name: str, part: str, kind: type) -> AttributeError:
    """Return the error of an attribute that an object lacks; it says so where a part of the object has it.

    Args:
        owner: the object.
        name: the attribute.
        part: the attribute by which the object has the part.
        kind: the type of the part.
    """
    text = f"{type(owner).__name__!r} object has no attribute {name!r}"
    if not name.startswith("_") and hasattr(kind, name):
        text += f"; its {part} has it: .{part}.{name}"
    return AttributeError(text, name=name, obj=owner)


def unknown_argument(
    method: str, unknown: Mapping[str, object], taken: Iterable[str], elsewhere: Mapping[str, str]
) -> TypeError:
    """Return the error of arguments that a call does not have; it says where the first one is said, or what is allowed.

    Args:
        method: that was called.
        unknown: what it does not have.
        taken: what it has.
        elsewhere: by argument, where it is said instead.
    """
    name = next(iter(unknown))
    meant = elsewhere.get(name) or f"allowed: {', '.join(taken)}"
    return TypeError(f"{method}() has no argument {name!r}; {meant}")


def misspelt(name: str, known: Iterable[str]) -> str | None:
    """Return the known name of which another one is a misspelling by a letter or two; None where there is none.

    Names that differ in digits alone, as ``orders-1`` and ``orders-2``, are both meant.
    """
    if len(name) < _SHORTEST:
        return None
    letters = Counter(name)
    most = _LETTERS if len(name) >= _SHORT else _LETTERS - 1
    for other in known:
        others = Counter(other)
        # Cheap, and rules out nearly all: each changed letter takes away one and adds one.
        if (letters - others).total() > most or (others - letters).total() > most:
            continue
        if name.translate(_DIGITS) != other.translate(_DIGITS) and _distance(name, other) <= most:
            return other
    return None


def nearest(wrong: str, names: Iterable[str], what: str = "element") -> str:
    """Say what somebody who wrote an unknown name meant, or else which names there are."""
    known = list(names)
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", wrong).lower()
    if snake in known:
        return f"no such {what}; it is written {snake!r} here"
    # `lease` is the beginning of lease_period rather than something like leasing.
    begun = [name for name in known if name.startswith(f"{snake}_")]
    close = begun if len(begun) == 1 else difflib.get_close_matches(snake, known, n=1)
    if close:
        return f"no such {what}; did you mean {close[0]!r}?"
    return f"no such {what}; allowed: {', '.join(known)}"


def nearest_names(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names that another one may stand for, at most three: its misspellings, else those like it."""
    names = sorted(known)
    meant = [each for each in names if misspelt(name, (each,))]
    return meant[:_NEAREST] or difflib.get_close_matches(name, names, n=_NEAREST)


def _distance(one: str, other: str) -> int:
    """Count the letters to add, leave out, replace or swap with the next one, until two texts are the same."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        above, row = row, [i]
        for j, wanted in enumerate(other, 1):
            cost = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (letter != wanted))
            if before and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before = above
    return row[-1]
