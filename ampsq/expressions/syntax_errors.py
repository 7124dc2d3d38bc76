"""Advice for an expression that cannot be read: what was found, and what may stand there."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Final, NamedTuple

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
_NEAREST: Final = 3
#: Characters on each side of a fault that are looked at.
_NEAR: Final = 200
_NAME: Final = r"(?P<name>/[A-Za-z0-9_@:./-]*)"
_WORD = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_FOUND = re.compile(r"[^\W\d]\w*|[0-9.]+|/[A-Za-z0-9_@:.-]+|[<>=!&|]{1,2}|.", re.DOTALL)
_METHOD = re.compile(r"/[A-Za-z0-9_@:./-]*\.(\w+)$", re.ASCII)
_CAST = re.compile(r"\bCAST\s*\([^()]*$", re.IGNORECASE)
_COMMENT = re.compile(r"(?:--\s*|(?:^|\s)--\s[^'\"]*)$")
_UNIT = re.compile(rf"{_NAME} +$")
_MORE_WORDS = re.compile(rf"(?!(?i:{'|'.join(KEYWORDS)})\b)[^\W\d]\w*(?: (?!(?i:{'|'.join(KEYWORDS)})\b)[^\W\d]\w*)*")
_IN = re.compile(r"\bIN\s*$", re.IGNORECASE)
_TESTED = re.compile(r"""('[^']*'|"[^"]*"|[^\s()]+)\s+(NOT\s+)?IN\s*$""", re.IGNORECASE)

_IF: Final = "write IF(condition, then, else)"
_CONTAINS: Final = "write INSTR(/x, 'a') > 0 or /x LIKE 'a'"
_BEGINS: Final = "write /x BEGINS WITH 'a'"
_ENDS: Final = "write /x ENDS WITH 'a'"
_LIKE: Final = "write /x LIKE 'a', where 'a' is a regular expression, found anywhere in the text"
_IN_ANY_CASE: Final = "write /x LIKE '(?i)a'"
_NOW: Final = "write UNIX_TIMESTAMP(), seconds since 1970"
_ONLY_CONDITION: Final = "an expression is only the condition, as after WHERE in SQL: leave {word} out"
_NULL: Final = "write /x IS NULL"
_POWER: Final = "there is no power; write /x * /x"
_NO_COMMENTS: Final = "there are no comments; leave out {found} and what follows it"
_NUMBERS: Final = "Texts that spell numbers count as numbers, others do not"

#: Words of other languages where something may follow a value.
_WORDS_AFTER: Final[dict[str, str]] = {
    **dict.fromkeys(("CONTAINS", "HAS", "INCLUDES"), f"there is no {{word}}; {_CONTAINS}"),
    **dict.fromkeys(("STARTS", "STARTSWITH", "STARTS_WITH"), f"there is no {{word}}; {_BEGINS}"),
    **dict.fromkeys(("ENDSWITH", "ENDS_WITH"), f"there is no {{word}}; {_ENDS}"),
    **dict.fromkeys(("REGEXP", "RLIKE", "REGEX", "MATCHES", "SIMILAR", "GLOB"), f"there is no {{word}}; {_LIKE}"),
    "ILIKE": f"there is no {{word}}; {_IN_ANY_CASE}",
    "IF": f"{{word}} is a function; {_IF}",
    **dict.fromkeys(("CASE", "WHEN", "THEN", "ELSE"), f"there is no {{word}}; {_IF}"),
    **dict.fromkeys(("SELECT", "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT"), _ONLY_CONDITION),
    **dict.fromkeys(("EQ", "EQUALS"), "there is no {word}; write ="),
    **dict.fromkeys(("NE", "NEQ"), "there is no {word}; write !="),
    **dict.fromkeys(("GT", "GTE", "GE", "LT", "LTE"), "there is no {word}; write <, <=, > or >="),
    "EXISTS": "there is no {word}; write /x IS NOT NULL",
    "NOTNULL": "there is no {word}; write /x IS NOT NULL",
    "ISNULL": f"there is no {{word}}; {_NULL}",
    "XOR": "there is no {word}; write (/x AND NOT /y) OR (/y AND NOT /x)",
    "DIV": "there is no {word}; write /x / /y, which truncates integers",
    "ESCAPE": "there is no {word}; LIKE takes a regular expression, in which a backslash escapes: r'\\.'",
}
#: Words of other languages where a value is expected; no field is likely to be called so.
_WORDS_FOR_VALUES: Final[dict[str, str]] = {
    "TRUE": "{word} is no value; write 1, or only the field, as in /active; TRUE_VALUE() is true for every message",
    "FALSE": "{word} is no value; write 0, or NOT and the field, as in NOT /active; FALSE_VALUE() is never true",
    "NAN": "{word} is no value; write /x IS NAN, or NAN_VALUE()",
    **dict.fromkeys(("NONE", "NIL", "UNDEFINED"), f"there is no {{word}}; {_NULL}"),
    **dict.fromkeys(("SELECT", "WHERE"), _ONLY_CONDITION),
    "IF": f"{{word}} is a function; {_IF}",
    "CASE": f"there is no {{word}}; {_IF}",
    **dict.fromkeys(("CURRENT_TIMESTAMP", "SYSDATE"), f"there is no {{word}}; {_NOW}"),
}
#: Words of other languages after IS.
_WORDS_AFTER_IS: Final[dict[str, str]] = {
    **dict.fromkeys(
        ("NONE", "NIL", "EMPTY", "MISSING", "UNDEFINED"), "there is no {word}; write IS NULL or IS NOT NULL"
    ),
    "TRUE": "{word} is no value; write only the field, as in /active",
    "FALSE": "{word} is no value; write NOT and the field, as in NOT /active",
    "IN": "write /x IN (1, 2), without IS",
    "LIKE": "write /x LIKE 'a', without IS",
    "BETWEEN": "write /x BETWEEN 1 AND 2, without IS",
}
#: Functions of other languages; also methods, which there are none of.
_FUNCTIONS: Final[dict[str, str]] = {
    **dict.fromkeys(("CONTAINS", "INCLUDES", "STRPOS", "POSITION", "CHARINDEX", "FIND", "INDEXOF"), _CONTAINS),
    **dict.fromkeys(("STARTS_WITH", "STARTSWITH", "BEGINS_WITH", "BEGINSWITH"), _BEGINS),
    **dict.fromkeys(("ENDS_WITH", "ENDSWITH"), _ENDS),
    **dict.fromkeys(("REGEXP_LIKE", "REGEXP_MATCHES", "REGEXP", "MATCH", "MATCHES", "SEARCH"), _LIKE),
    "ILIKE": _IN_ANY_CASE,
    **dict.fromkeys(("NOW", "GETDATE", "SYSDATE", "CURRENT_TIMESTAMP", "TIME", "TODAY"), _NOW),
    **dict.fromkeys(("POW", "POWER"), "write /x * /x"),
    **dict.fromkeys(("IFNULL", "ISNULL", "NVL"), "write COALESCE(/x, 0), or /x IS NULL"),
    **dict.fromkeys(("IIF", "CASE", "DECODE", "IFF"), _IF),
    **dict.fromkeys(("LEN", "CHAR_LENGTH", "SIZE"), "write LENGTH(/x) for a text, ARRAY_COUNT(/x) for a list"),
    **dict.fromkeys(("MID", "SUBSTRING", "LEFT", "RIGHT"), "write SUBSTR(/x, 1, 3)"),
    **dict.fromkeys(("CAST", "INT", "FLOAT", "STR", "TO_NUMBER"), f"leave it out: {_NUMBERS[0].lower()}{_NUMBERS[1:]}"),
    **dict.fromkeys(("DATE", "TO_DATE", "TO_TIMESTAMP"), "write STRPTIME('%F', /x), seconds since 1970"),
    **dict.fromkeys(("DATE_FORMAT", "TO_CHAR"), "write STRFTIME('%F', /x)"),
    "CEIL": "write CEILING(/x)",
    **dict.fromkeys(("TRIM", "STRIP"), r"write REGEXP_REPLACE(/x, r'^\s+|\s+$', '')"),
    "EXISTS": "write /x IS NOT NULL",
    **dict.fromkeys(("ANY", "ALL", "SOME"), "write /x = 1, which is true if any element of a list is 1"),
}
#: Signs that look like what is meant; curly quotes and others that programs put in.
_LOOK_ALIKES: Final[dict[str, str]] = {
    **dict.fromkeys("‘’‚“”„«»", "{sign} is no quote here; write straight quotes: 'IBM' or \"IBM\""),  # noqa: RUF001
    **dict.fromkeys("`´", "{sign} is no quote here; a text is in straight quotes, and a field begins with a slash"),  # noqa: RUF001
    "≥": "there is no {sign}; write >=",
    "≤": "there is no {sign}; write <=",
    "≠": "there is no {sign}; write !=",
    **dict.fromkeys("×∗", "there is no {sign}; write *"),  # noqa: RUF001
    "÷": "there is no {sign}; write / with a space behind it",
    **dict.fromkeys("–—−", "this is a dash; write -"),  # noqa: RUF001
    "\xa0": "this is a no-break space; write an ordinary one",
}


class _Rule(NamedTuple):
    """Advice on what to write instead of signs of other languages."""

    at: re.Pattern[str]
    advice: str
    before: str = ""
    #: One of these must be expected there; if it is empty, all is well.
    expected: frozenset[str] = frozenset()


def _rule(at: str, advice: str, before: str = "", expected: str = "") -> _Rule:
    return _Rule(re.compile(at), advice, before, frozenset(expected.split()))


_RULES: Final = (
    _rule(";", "leave ; out: an expression ends by itself"),
    _rule(r"(?<!\S)/\*", _NO_COMMENTS),
    _rule(r"/\*|\[[*:]?\]", "there is no {found}; arrays are entered by themselves, as in /legs/qty"),
    _rule(r"(?<=[\w\]])\[['\"]", "there is no {found}; names follow slashes, as in /order/qty"),
    _rule("#", _NO_COMMENTS, expected="$END"),
    _rule("//", "there is no //; / of integers truncates, as in /a / 2", expected="PERCENT"),
    _rule("//", "one slash begins a field, as in /price"),
    _rule(r"\*", _POWER, before="*"),
    _rule(r"\^", _POWER, expected="PERCENT"),
    _rule("!~", "there is no !~; write NOT LIKE"),
    _rule("~", "there is no =~; write LIKE", before="="),
    _rule("~", "there is no ~; write LIKE"),
    _rule("=", "there is no ===; write =", before="=="),
    _rule("=", "there is no !==; write !=", before="!="),
    _rule(r"\?\?", "there is no ??; write COALESCE(/x, 0)"),
    _rule(r"\?", f"there is no ?; {_IF}", expected="PERCENT AND"),
    _rule("&&?", "there is no {found}; write AND"),
    _rule(r"\|\|", "there is no ||; write OR, or CONCAT(/x, /y) to join texts"),
    _rule(r"\|", "there is no |; write OR"),
    _rule("!(?!=)", "there is no !; write NOT"),
    _rule("'", r"a quote in a text is \', not two, or the text is in the other quotes", before="'"),
    _rule('"', r"a quote in a text is \", not two, or the text is in the other quotes", before='"'),
    _rule(r"\{", "IN takes round brackets, as in IN (1, 2)", expected="LPAR"),
)


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
    return _either(words) if words else "the end"


def _advice(text: str, place: int, names: set[str]) -> str | None:
    """Return what to write instead, where the mistake is a common one."""
    start = max(0, place - _NEAR)
    near = text[start : place + _NEAR]
    for advise in (_on_comment, _on_name, _on_word, _on_list, _on_sign):
        advice = advise(near, place - start, names)
        if advice:
            return advice
    return _on_slash_or_quote(text, place, names)


def _on_comment(text: str, place: int, _: set[str]) -> str | None:
    return _NO_COMMENTS.format(found="--") if _COMMENT.search(text, 0, place) else None


def _on_name(text: str, place: int, names: set[str]) -> str | None:
    """On names with signs that only square brackets allow, and on methods."""
    before, sign = text[:place], text[place]
    if sign in _LOOK_ALIKES:
        return _LOOK_ALIKES[sign].format(sign=sign)
    method = _METHOD.search(before)
    if sign == "(" and method:
        instead = _FUNCTIONS.get(method[1].upper(), "write a function, as in UPPER(/x)")
        return f"there are no methods such as .{_short(method[1])}(); {instead}"
    name = re.search(rf"{_NAME}?$", before)
    beginning = (name and name["name"]) or ""
    more = re.match(
        r"/?[^\x00-\x7f][^\s()\[\]'\",<>=]*" if sign == "/" or beginning else r"[^\x00-\x7f]\w+", text[place:]
    )
    if beginning and sign in "$#":
        more = re.match(r"[$#]\w[^\s()\[\]'\",<>=]*", text[place:])
    if more and (beginning or "INTEGER" in names):
        whole = f"{beginning}{more[0]}"
        whole = whole if whole.startswith("/") else f"/{whole}"
        return f"a name with other signs than A-Z a-z 0-9 _ @ : . - is written [{_short(whole)}]"
    other = re.match(r"[$@.:{]+([A-Za-z_][\w.]*)", text[place:])
    if other and "INTEGER" in names:
        return f"a field begins with a slash: write {_path(other[1])}"
    return "a field begins with a slash, as in /price" if sign == "$" and "INTEGER" in names else None


def _on_word(text: str, place: int, names: set[str]) -> str | None:
    match = _WORD.match(text, place)
    if not match:
        return None
    word, before, value_expected = match[0], text[:place], "INTEGER" in names
    name = word.upper()
    if name == "AS":
        return _on_as(before, names)
    known = _WORDS_FOR_VALUES if value_expected else _WORDS_AFTER_IS if "NAN" in names else _WORDS_AFTER
    stuck = None if value_expected or name in KEYWORDS else _on_stuck_word(word, before)
    if stuck or name in known:
        return stuck or known[name].format(word=word)
    if value_expected and name not in KEYWORDS:
        return _on_missing_slash(text, match)
    return f"a field begins with a slash: write {_path(word)}" if names == {"FIELD"} else _on_spaces(text, place, names)


def _on_spaces(text: str, place: int, names: set[str]) -> str | None:
    """On names with spaces, which only square brackets allow."""
    unit, more = _UNIT.search(text[:place]), _MORE_WORDS.match(text, place)
    if not unit or not more or "PERCENT" not in names:
        return None
    whole = _short(f"{unit['name']} {more[0]}")
    return f"found {more[0].split()[0]!r}; a name with spaces is written [{whole}]; else expected {_listed(names)}"


def _on_stuck_word(word: str, before: str) -> str | None:
    """On a word without a space behind a text or a number."""
    if before.endswith(("'", '"')):
        return f"the text ends before {_short(word)!r}; write \\' for a quote in it, or double quotes: \"O'Neil\""
    if before.endswith(tuple("0123456789.")):
        return "numbers are written as 1000, 0.5 or 1e3; dates are texts in quotes"
    return None


def _on_as(before: str, names: set[str]) -> str:
    if _CAST.search(before):
        return f"there is no CAST. {_NUMBERS}"
    if "RPAR" in names:
        return "a bracket is not closed; write ) before AS"
    return "AS belongs to the projections of views"


def _on_missing_slash(text: str, match: re.Match[str]) -> str:
    word = _short(match[0])
    if text[match.end() : match.end() + 1] in ("'", '"'):
        return f"no {word} stands before a text, only r for raw ones: r'...'"
    name = match[0].upper()
    if name in FUNCTIONS or name in AGGREGATES or name == "REGEXP_REPLACE":
        return f"{word} is a function; write its arguments in brackets after it, as in {word}(...)"
    return f"{word} is no value; a field begins with a slash, as in {_path(match[0])}, and a text is in quotes"


def _path(name: str) -> str:
    """The field that somebody means who wrote its names as other languages do."""
    path = f"/{_short(name.strip('.').replace('.', '/'))}"
    return path if path.isascii() else f"[{path}]"


def _on_list(text: str, place: int, names: set[str]) -> str | None:
    """On what stands behind IN without round brackets."""
    before, rest = text[:place], text[place:]
    if not _IN.search(before) or names != {"LPAR"}:
        return None
    field, tested = re.match(r"/[A-Za-z0-9_@:./-]+", rest), _TESTED.search(before)
    if field and tested:
        negation = "NOT " if tested[2] else ""
        equality = f"{negation}{_short(field[0])} = {_short(tested[1])}"
        return f"write {equality}: = is true if any element of a list is equal; IN takes values in round brackets"
    return "IN takes round brackets, as in IN ('a', 'b')" if rest[0] in "[{" else None


def _on_sign(text: str, place: int, names: set[str]) -> str | None:
    """On operators of other languages."""
    for rule in _RULES:
        found = rule.at.match(text, place)
        if found and text[:place].endswith(rule.before) and (not rule.expected or rule.expected & names):
            return rule.advice.format(found=found[0])
    sign = text[place]
    if sign in "<>=!" and "COMPARISON" not in names and "AND" in names:
        return "comparisons cannot be chained; join them by AND"
    if sign in "<>" and text[:place].endswith("="):
        return f"there is no ={sign}; write {sign}="
    return None


def _on_slash_or_quote(text: str, place: int, names: set[str]) -> str | None:
    sign, value_expected = text[place], "INTEGER" in names
    if sign in "'\"":
        return None if _is_closed(text, place) else "the text in quotes is not closed"
    if sign == "/" and (value_expected or "PERCENT" in names):
        where = "a slash begins a field, as in /price" if value_expected else "this reads as a field"
        return f"{where}; to divide, put white space after the slash"
    if sign == "[":
        return "a bracket begins a field with other signs, as in [/unit price], or follows a field, as in /legs[0]"
    return None


def _is_closed(text: str, place: int) -> bool:
    quote = text[place]
    return re.match(rf"{quote}(?:[^{quote}\\]|\\.)*{quote}", text[place:], re.DOTALL) is not None


def nearest_function(name: str, *, aggregates: bool) -> str:
    """Say which function somebody who wrote an unknown name may have meant."""
    instead, name = _FUNCTIONS.get(name), _short(name)
    if instead:
        return f"there is no function {name}; {instead}"
    known = [*FUNCTIONS, "IF", "REGEXP_REPLACE", *(AGGREGATES if aggregates else ())]
    close = difflib.get_close_matches(name, known, n=_NEAREST)
    if close:
        return f"there is no function {name}; did you mean {_either(close)}?"
    return f"there is no function {name}; there are ABS, COALESCE, CONCAT, IF and others, see docs/expressions.md"


def _either(words: list[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
