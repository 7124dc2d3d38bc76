"""What to tell somebody whose expression cannot be read: what was found, and what may stand there."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Final

from ampsq.expressions.functions import AGGREGATES, FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["KEYWORDS", "explain", "nearest_function"]

KEYWORDS: Final = (
    "AND", "AS", "BEGINS", "BETWEEN", "ENDS", "IN", "IS", "LIKE", "MOD", "NAN", "NOT", "NULL", "OR", "WITH",
)  # fmt: skip
"""Words that no function may be called."""

#: What the terminals of the grammar are to a user, in the order in which they are told.
_EXPECTED: Final = (
    ({"INTEGER", "FLOAT"}, "a value (a field as /price, a number, a text in quotes, a function, a bracket)"),
    ({"FIELD"}, "a field as /price"),
    ({"STRING"}, "a text in quotes"),
    ({"FUNCTION"}, "a function"),
    ({"WITH"}, "WITH"),
    ({"PERCENT"}, "an operator"),
    ({"COMPARISON"}, "a comparison"),
    ({"BETWEEN", "IN"}, "BETWEEN, IN, LIKE, BEGINS or ENDS"),
    ({"AND"}, "AND"),
    ({"OR"}, "OR"),
    ({"AS"}, "AS"),
    ({"NAN"}, "NULL or NAN"),
    ({"COMMA"}, "a comma"),
    ({"LPAR"}, "an opening bracket"),
    ({"RPAR"}, "a closing bracket"),
    ({"$END"}, "the end"),
)
#: What is part of something above and not told beside it.
_COVERS: Final = {
    "INTEGER": {"STRING", "FIELD", "FUNCTION", "LPAR"},
    "COMPARISON": {"BETWEEN", "IN"},
    "STRING": {"LPAR"},
}

_LONGEST_SHOWN: Final = 60
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FOUND = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9.]+|/[A-Za-z0-9_@:.-]+|[<>=!&|]{1,2}|.", re.DOTALL)
_INSTEAD: Final = {"&": "AND", "|": "OR", "!": "NOT"}
_CONSTANTS: Final = {"TRUE": "TRUE_VALUE()", "FALSE": "FALSE_VALUE()", "NAN": "NAN_VALUE()"}


def explain(text: str, place: int, expected: Collection[str]) -> str:
    """Say what is wrong at a place of a text.

    Args:
        text: the expression.
        place: where the parser stopped, from 0.
        expected: the terminals that it could have read there, and `$END`.
    """
    names = {name.lstrip("_") for name in expected} | ({"$END"} if "$END" in expected else set())
    allowed = _listed(names)
    rest = text[place:]
    if not rest:
        return f"the expression ends too early; expected {allowed}"
    advice = _advice(text, place, names)
    if advice:
        return advice
    found = _FOUND.match(rest)
    return f"found {_short(found[0] if found else rest[0])!r}; expected {allowed}"


def _short(word: str) -> str:
    return word if len(word) <= _LONGEST_SHOWN else f"{word[:_LONGEST_SHOWN]}..."


def _listed(names: set[str]) -> str:
    covered = set().union(*(parts for name, parts in _COVERS.items() if name in names))
    words = [text for terminals, text in _EXPECTED if terminals <= names and not terminals <= covered]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}" if words else "the end"


def _advice(text: str, place: int, names: set[str]) -> str | None:
    """What to write instead, where the mistake is a common one."""
    sign, value_expected = text[place], "INTEGER" in names
    word = _WORD.match(text, place)
    advice = None
    if word:
        advice = _advice_on_word(_short(word[0]), value_expected=value_expected)
    elif sign in "'\"":
        advice = None if _is_closed(text, place) else "the text in quotes is not closed"
    elif sign in _INSTEAD and text[place : place + 2] != "!=":
        advice = f"there is no {sign}; write {_INSTEAD[sign]}"
    elif sign == "/" and (value_expected or "PERCENT" in names):
        where = "a slash begins a field, as in /price" if value_expected else "this reads as a field"
        advice = f"{where}; to divide, put white space after the slash"
    elif sign == "[":
        advice = "a bracket begins a field with other signs, as in [/unit price], or follows a field, as in /legs[0]"
    elif sign in "<>=!" and "COMPARISON" not in names and "AND" in names:
        advice = "comparisons cannot be chained; join them by AND"
    elif sign in "<>" and text[:place].endswith("="):
        advice = f"there is no ={sign}; write {sign}="
    return advice


def _advice_on_word(word: str, *, value_expected: bool) -> str | None:
    name = word.upper()
    if name == "AS":
        return "AS belongs to the projections of views"
    if not value_expected or (name in KEYWORDS and name not in _CONSTANTS):
        return None
    if name in _CONSTANTS:
        return f"{word} is no value; write {_CONSTANTS[name]}"
    if name in FUNCTIONS or name in AGGREGATES or name in ("IF", "REGEXP_REPLACE"):
        return f"{word} is a function; write its arguments in brackets after it, as in {word}(...)"
    return f"{word} is no value; a field begins with a slash, as in /{word}, and a text is in quotes"


def _is_closed(text: str, place: int) -> bool:
    quote = text[place]
    return re.match(rf"{quote}(?:[^{quote}\\]|\\.)*{quote}", text[place:], re.DOTALL) is not None


def nearest_function(name: str, *, aggregates: bool) -> str:
    """Say which function somebody who wrote an unknown name may have meant."""
    name = _short(name)
    known = [*FUNCTIONS, "IF", "REGEXP_REPLACE", *(AGGREGATES if aggregates else ())]
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"there is no function {name}; did you mean {close[0]}?"
    return f"there is no function {name}; there are {', '.join(sorted(known))}"
