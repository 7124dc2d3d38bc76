r"""Regular expressions as AMPS writes them, read into small programs.

The standard library's own parser reads the syntax; what differs between PCRE and Python is put right before it
(`\Z`, `\z`, leading flags), and what no automaton can do is refused there, with its place.
"""

from __future__ import annotations

import importlib
import re
import warnings
from dataclasses import dataclass
from enum import IntEnum
from itertools import takewhile
from typing import Any

__all__ = ["ALL_BYTES", "LINE_FEED", "WORD_BYTES", "Assertion", "PatternError", "Program", "parse_pattern"]

_parser: Any = importlib.import_module("re._parser")

_MAX_SIZE = 2_000
_MAX_DEPTH = 100
_ALLOWED = (
    r"allowed: literals, ., classes, \d \w \s \D \W \S, \b \B, ^ $ \A \Z \z, groups, |, * + ? {m,n}, "
    "and at the start (?imsxAU)"
)

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
_NO_AUTOMATON = "cannot be matched in one pass; test that part with a LIKE of its own, joined by AND, OR or NOT"

ALL_BYTES = (1 << 256) - 1
"""The set of every byte; a set is a whole number, bit n for byte n."""
LINE_FEED = 1 << 10
"""The set of the line feed alone."""


def _set_of(members: bytes) -> int:
    return sum(1 << byte for byte in set(members))


_UPPER = _set_of(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_LOWER = _UPPER << 32
_DIGITS = _set_of(b"0123456789")
_SPACES = _set_of(b" \t\n\r\f\v")

WORD_BYTES = _UPPER | _LOWER | _DIGITS | _set_of(b"_")
r"""The set that `\w` means."""

_CATEGORIES = {
    "CATEGORY_DIGIT": _DIGITS,
    "CATEGORY_NOT_DIGIT": ALL_BYTES ^ _DIGITS,
    "CATEGORY_SPACE": _SPACES,
    "CATEGORY_NOT_SPACE": ALL_BYTES ^ _SPACES,
    "CATEGORY_WORD": WORD_BYTES,
    "CATEGORY_NOT_WORD": ALL_BYTES ^ WORD_BYTES,
}


class PatternError(ValueError):
    """A regular expression cannot be used; the text says why and what is allowed.

    Attributes:
        position: the offset in the pattern, from 0.
    """

    def __init__(self, reason: str, position: int) -> None:
        self.position = position
        super().__init__(f"{reason} (at byte {position + 1} of the pattern)")


class Assertion(IntEnum):
    """A condition that an instruction may make of its place in the text, as programs number it."""

    START = -1
    END = -2
    END_OR_LAST_FEED = -3
    LINE_START = -4
    LINE_END = -5
    BOUNDARY = -6
    NOT_BOUNDARY = -7


_AT = {
    "AT_BEGINNING": (Assertion.START, Assertion.LINE_START),
    "AT_BEGINNING_STRING": (Assertion.START, Assertion.START),
    "AT_END": (Assertion.END_OR_LAST_FEED, Assertion.LINE_END),
    "AT_END_STRING": (Assertion.END, Assertion.END),
    "AT_BOUNDARY": (Assertion.BOUNDARY, Assertion.BOUNDARY),
    "AT_NON_BOUNDARY": (Assertion.NOT_BOUNDARY, Assertion.NOT_BOUNDARY),
}
"""Each of the parser's places, without and with the flag `m`."""


@dataclass(frozen=True, slots=True)
class Program:
    """A pattern as instructions, which begin at 0; whoever gets behind the last has matched.

    Attributes:
        sets: the sets of bytes that the instructions speak of.
        code: a number from 0: read a byte of that set, go on with the next instruction; a negative number: go on
            if that `Assertion` holds here; a list: go on at each of these.
    """

    sets: list[int]
    code: list[int | list[int]]


def parse_pattern(pattern: bytes) -> Program:
    """Read a regular expression.

    Raises:
        PatternError: it is none, is refused, or needs more than 2,000 instructions.
    """
    body, flags, anchored = _leading_flags(pattern)
    text, origins = _rewrite(pattern, body, verbose=bool(flags & re.VERBOSE))
    compiler = _Compiler()
    try:
        with warnings.catch_warnings():
            # Such as `[[]`, of which Python says that it may mean something else some day.
            warnings.simplefilter("ignore")
            syntax = _parser.parse(text, flags)
        if anchored:
            compiler.add(Assertion.START)
        compiler.sequence(syntax, syntax.state.flags)
    except re.error as reason:
        raise PatternError(_advice(reason.msg), origins[min(reason.pos or 0, len(text))]) from None
    except (OverflowError, RecursionError) as reason:
        raise PatternError(f"{reason}; {_ALLOWED}", body) from None
    return compiler.program()


def _advice(message: str) -> str:
    if message.startswith("global flags"):
        return "flags stand at the start of the pattern, or in front of a group's text as in (?i:...)"
    if message == "multiple repeat":
        return "a repeat of a repeat needs a group, as in (?:a{2})*"
    return f"{message}; {_ALLOWED}"


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


def _rewrite(pattern: bytes, body: int, *, verbose: bool) -> tuple[bytes, list[int]]:
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
            piece = _escape(piece, position)
        elif kind == "class" and (posix := _POSIX.search(piece)):
            name = posix[0].decode("latin-1")
            raise PatternError(
                f"the POSIX class {name} is not supported; write ranges, as in [A-Za-z] for [[:alpha:]]",
                position + posix.start(),
            )
        elif kind == "refused":
            raise PatternError(f"{_REFUSED[piece]} {_NO_AUTOMATON}", position)
        elif kind == "possessive":
            raise PatternError("possessive repeats (*+ ++ ?+ {m,n}+) give nothing back and are not supported", position)
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


def _escape(piece: bytes, position: int) -> bytes:
    if re.fullmatch(rb"\\[1-9gk]", piece):
        raise PatternError(f"the back reference {piece.decode()} {_NO_AUTOMATON}", position)
    # Python's \Z is what PCRE calls \z; PCRE's \Z is a $ that `m` does not change.
    return {rb"\z": rb"\Z", rb"\Z": b"(?-m:$)"}.get(piece, piece)


def _verbose_within(flags: bytes, *, verbose: bool) -> bool:
    on, _, off = flags.partition(b"-")
    return b"x" in on or (verbose and b"x" not in off)


class _Compiler:
    """Turns the parser's tree into a program."""

    def __init__(self) -> None:
        self._code: list[int | list[int]] = []
        self._sets: dict[int, int] = {}

    def add(self, instruction: int | list[int]) -> int:
        """Append an instruction and return its number."""
        if len(self._code) >= _MAX_SIZE:
            raise PatternError(f"the pattern needs more than {_MAX_SIZE:,} states; make its repeats {{m,n}} smaller", 0)
        self._code.append(instruction)
        return len(self._code) - 1

    def program(self) -> Program:
        """Return the compiled program, with jumps to jumps shortened."""
        for instruction in self._code:
            if isinstance(instruction, list):
                instruction[:] = dict.fromkeys(map(self._landing, instruction))
        return Program(list(self._sets), self._code)

    def _landing(self, place: int) -> int:
        while place < len(self._code):
            instruction = self._code[place]
            if not isinstance(instruction, list) or len(instruction) > 1 or instruction[0] <= place:
                break
            place = instruction[0]
        return place

    def sequence(self, items: Any, flags: int) -> None:
        """Compile what follows one another."""
        for operator, argument in items:
            match str(operator):
                case "AT" if str(argument) in _AT:
                    self.add(_AT[str(argument)][bool(flags & re.MULTILINE)])
                case "SUBPATTERN":
                    _, added, removed, inner = argument
                    self.sequence(inner, (flags | added) & ~removed)
                case "BRANCH":
                    self._branch([list(branch) for branch in argument[1]], flags)
                case "MAX_REPEAT" | "MIN_REPEAT":
                    self._repeat(argument, flags)
                case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN" as name:
                    self._read(_members(name, argument, flags))
                case name:
                    raise PatternError(f"{name.lower()} {_NO_AUTOMATON}; {_ALLOWED}", 0)

    def _read(self, members: int) -> None:
        self.add(self._sets.setdefault(members, len(self._sets)))

    def _branch(self, branches: list[list[Any]], flags: int) -> None:
        """Compile alternatives, those that begin with the same letter as one, so that word lists become tries."""
        groups: dict[tuple[str, Any], list[list[Any]]] = {}
        for number, branch in enumerate(branches):
            literal = bool(branch) and str(branch[0][0]) == "LITERAL"
            groups.setdefault(("LITERAL", branch[0][1]) if literal else ("", number), []).append(branch)
        fork: list[int] = []
        self.add(fork)
        ends: list[list[int]] = []
        for group in groups.values():
            if fork:
                ends.append([])
                self.add(ends[-1])
            fork.append(len(self._code))
            places = zip(*group, strict=False)
            shared = len(list(takewhile(lambda items: all(item == items[0] for item in items), places)))
            self.sequence(group[0][:shared], flags)
            if len(group) > 1:
                self._branch([branch[shared:] for branch in group], flags)
        for end in ends:
            end.append(len(self._code))

    def _repeat(self, argument: Any, flags: int) -> None:
        least, most, item = argument
        endless = most == _parser.MAXREPEAT
        if item.getwidth()[1] == 0:
            # What reads nothing holds as often as it is asked: once is enough, and no loop can grow without end.
            least, most, endless = min(least, 1), min(most, 1), False
        start = 0
        for _ in range(least):
            start = len(self._code)
            self.sequence(item, flags)
        if endless and least:
            self.add([start, len(self._code) + 1])
            return
        forks: list[list[int]] = []
        for _ in range(1 if endless else most - least):
            forks.append([len(self._code) + 1])
            self.add(forks[-1])
            self.sequence(item, flags)
        if endless:
            forks.append(list(forks[0]))
            self.add(forks[-1])
        for fork in forks:
            fork.append(len(self._code))


def _members(name: str, argument: Any, flags: int) -> int:
    """The set of bytes that one place of the pattern takes."""
    match name:
        case "ANY":
            return ALL_BYTES if flags & re.DOTALL else ALL_BYTES ^ LINE_FEED
        case "LITERAL":
            return _cased(1 << argument, flags)
        case "NOT_LITERAL":
            return ALL_BYTES ^ _cased(1 << argument, flags)
    members, negated = 0, False
    for operator, value in argument:
        match str(operator):
            case "NEGATE":
                negated = True
            case "LITERAL":
                members |= 1 << value
            case "RANGE":
                members |= (1 << (value[1] + 1)) - (1 << value[0])
            case "CATEGORY" if str(value) in _CATEGORIES:
                members |= _CATEGORIES[str(value)]
            case unknown:
                raise PatternError(f"{unknown.lower()} is not supported in a class; {_ALLOWED}", 0)
    members = _cased(members, flags)
    return ALL_BYTES ^ members if negated else members


def _cased(members: int, flags: int) -> int:
    """With the flag `i`, both cases of every ASCII letter."""
    if not flags & re.IGNORECASE:
        return members
    return members | (members & _UPPER) << 32 | (members & _LOWER) >> 32
