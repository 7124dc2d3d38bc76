r"""Regular expressions as AMPS writes them, read into small programs.

The standard library's own parser reads the syntax; what differs between PCRE and Python is put right before it
(`\Z`, `\z`, leading flags), and what no automaton can do is refused there, with its place. Patterns of names may
look around (`(?!HKG)`), which those of expressions may not: names are short.
"""

from __future__ import annotations

import re
import warnings

from ampsq.base.pattern_program import ALLOWED, OF_TEXTS, Assertion, Compiler, Dialect, PatternError, Program, parser

__all__ = ["parse_pattern"]

_MAX_DEPTH = 100
_FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE, "A": 0, "U": 0}
_LEADING = re.compile(rb"(?:\(\?[A-Za-z]+\))*")
_TOKEN = re.compile(
    rb"(?P<class>\[\^?\]?(?:\\.|[^\]\\])*\]?)"
    rb"|(?P<escape>\\(?:[0-3][0-7]{2}|.))"
    rb"|(?P<comment>\(\?#[^)]*\)?)"
    rb"|(?P<refused>\(\?(?:[=!>(]|<[=!]|P=))"
    rb"|(?P<open>\((?:\?(?P<flags>[A-Za-z]*(?:-[A-Za-z]*)?):)?)"
    rb"|(?P<close>\))"
    rb"|(?P<possessive>(?:[*+?]|\{(?=[\d,])\d*(?:,\d*)?\})\+)"
    rb"|(?P<remark>#[^\n]*)"
    rb"|.",
    re.DOTALL,
)
_POSIX = re.compile(rb"\[([:.=])[^\]\\]*\1\]")
_REFUSED = {
    b"(?=": "look-ahead (?=...)",
    b"(?!": "look-ahead (?!...)",
    b"(?<=": "look-behind (?<=...)",
    b"(?<!": "look-behind (?<!...)",
    b"(?(": "a condition (?(...)...)",
    b"(?>": "an atomic group (?>...)",
    b"(?P=": "the back reference (?P=...)",
}
_LOOKS = {b"(?=", b"(?!", b"(?<=", b"(?<!"}


def parse_pattern(pattern: bytes, dialect: Dialect = OF_TEXTS, *, whole: bool = False) -> Program:
    """Read a regular expression.

    Args:
        pattern: as AMPS has it.
        dialect: what it may have.
        whole: it has to match the whole of a text.

    Raises:
        PatternError: it is none, is refused, or needs more instructions than it may.
    """
    body, flags, anchored = _leading_flags(pattern)
    text, origins = _rewrite(pattern, body, dialect, verbose=bool(flags & re.VERBOSE))
    compiler = Compiler(dialect)
    try:
        with warnings.catch_warnings():
            # Such as `[[]`, of which Python says that it may mean something else some day.
            warnings.simplefilter("ignore")
            syntax = parser.parse(text, flags)
        if anchored or whole:
            compiler.add(Assertion.START)
        compiler.sequence(syntax, syntax.state.flags)
        if whole:
            compiler.add(Assertion.END)
    except re.error as reason:
        raise PatternError(_advice(reason.msg), origins[min(reason.pos or 0, len(text))]) from None
    except (OverflowError, RecursionError) as reason:
        raise PatternError(f"{reason}; {ALLOWED}", body) from None
    return compiler.program()


def _advice(message: str) -> str:
    if message.startswith("global flags"):
        return "flags stand at the start of the pattern, or in front of a group's text as in (?i:...)"
    if message == "multiple repeat":
        return "a repeat of a repeat needs a group, as in (?:a{2})*"
    return f"{message}; {ALLOWED}"


def _leading_flags(pattern: bytes) -> tuple[int, int, bool]:
    """The length of the flags at the start, their bits, and whether `A` is one of them."""
    match = _LEADING.match(pattern)
    end = match.end() if match else 0
    flags = 0
    for position in range(end):
        letter = chr(pattern[position])
        if letter.isalpha() and letter not in _FLAGS:
            raise PatternError(f"unknown flag {letter!r}; allowed at the start: (?imsxAU)", position)
        flags |= _FLAGS.get(letter, 0)
    return end, flags, b"A" in pattern[:end]


def _rewrite(pattern: bytes, body: int, dialect: Dialect, *, verbose: bool) -> tuple[bytes, list[int]]:
    """Put what PCRE writes differently into Python's words, and refuse what no automaton can do.

    Returns:
        The text behind the leading flags as Python has it, and for each offset in it (its end too) the offset in
        the pattern.
    """
    text, origins = bytearray(), []
    enclosing: list[bool] = []
    position = body
    while token := _TOKEN.match(pattern, position):
        kind, piece = token.lastgroup, token[0]
        if kind == "remark" and not verbose:
            piece = piece[:1]
        elif kind == "escape":
            piece = _escape(piece, position, dialect)
        elif kind == "refused" and dialect.looks and piece in _LOOKS:
            enclosing.append(verbose)
        elif kind in ("class", "refused", "possessive"):
            _refuse(kind, piece, position, dialect)
        elif token["open"]:
            enclosing.append(verbose)
            verbose = _verbose_within(token["flags"] or b"", verbose=verbose)
        elif kind == "close" and enclosing:
            verbose = enclosing.pop()
        if len(enclosing) > _MAX_DEPTH:
            raise PatternError(f"groups are nested deeper than {_MAX_DEPTH}", position)
        origins += [position] * len(piece)
        text += piece
        position = position + 1 if kind == "remark" and not verbose else token.end()
    return bytes(text), [*origins, len(pattern)]


def _refuse(kind: str, piece: bytes, position: int, dialect: Dialect) -> None:
    """Refuse what no automaton can do, and a class that means something else to PCRE."""
    if kind == "refused":
        raise PatternError(dialect.beyond(_REFUSED[piece]), position)
    if kind == "possessive":
        raise PatternError("possessive repeats (*+ ++ ?+ {m,n}+) give nothing back and are not supported", position)
    if posix := _POSIX.search(piece):
        name = posix[0].decode("latin-1")
        raise PatternError(
            f"the POSIX class {name} is not supported; write ranges, as in [A-Za-z] for [[:alpha:]]",
            position + posix.start(),
        )


def _escape(piece: bytes, position: int, dialect: Dialect) -> bytes:
    if re.fullmatch(rb"\\[1-9gk]", piece):
        raise PatternError(dialect.beyond(f"the back reference {piece.decode()}"), position)
    # Python's \Z is what PCRE calls \z; PCRE's \Z is a $ that `m` does not change.
    return {rb"\z": rb"\Z", rb"\Z": b"(?-m:$)"}.get(piece, piece)


def _verbose_within(flags: bytes, *, verbose: bool) -> bool:
    on, _, off = flags.partition(b"-")
    return b"x" in on or (verbose and b"x" not in off)
