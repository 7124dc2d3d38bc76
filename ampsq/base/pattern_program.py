"""Programs of patterns: what their instructions are, and how the tree of the standard library's parser becomes one."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import takewhile
from typing import Any

__all__ = [
    "ALLOWED",
    "ALL_BYTES",
    "FIRST_LOOKAROUND",
    "LINE_FEED",
    "OF_NAMES",
    "OF_TEXTS",
    "WORD_BYTES",
    "Assertion",
    "Compiler",
    "Dialect",
    "Lookaround",
    "PatternError",
    "Program",
    "parser",
]

parser: Any = importlib.import_module("re._parser")
"""The standard library's parser of regular expressions."""

ALLOWED = (
    r"allowed: literals, ., classes, \d \w \s \D \W \S, \b \B, ^ $ \A \Z \z, groups, |, * + ? {m,n}, "
    "and at the start (?imsxAU)"
)


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


@dataclass(frozen=True, slots=True)
class Dialect:
    """Limits of the patterns of one use.

    Attributes:
        states: the most instructions of a program.
        forks: the most of them that read nothing, which is what a step may have to walk through.
        looks: the most look-aheads and look-behinds.
        advice: what to do in place of what no automaton can do.
    """

    states: int
    forks: int
    looks: int
    advice: str

    def beyond(self, what: str) -> str:
        """Write why something is refused, and what to do in its place."""
        return f"{what} cannot be matched in one pass; {self.advice}"


OF_TEXTS = Dialect(2_000, 2_000, 0, "test that part with a LIKE of its own, joined by AND, OR or NOT")
"""Patterns of expressions, which look for something in bodies of any length."""
OF_NAMES = Dialect(50_000, 2_000, 20, "write out what it stands for, as in 'aa|bb'")
"""Patterns of names, which are short: a list of a thousand of them may be one."""


class Assertion(IntEnum):
    """A condition that an instruction may make of its place in the text, as programs number it."""

    START = -1
    END = -2
    END_OR_LAST_FEED = -3
    LINE_START = -4
    LINE_END = -5
    BOUNDARY = -6
    NOT_BOUNDARY = -7


FIRST_LOOKAROUND = -8
"""The first `Lookaround` of a program as its instructions number it; the others follow downwards."""


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
            if that `Assertion`, or `Lookaround`, holds here; a list: go on at each of these.
        looks: what `FIRST_LOOKAROUND` and the numbers below it stand for.
    """

    sets: list[int]
    code: list[int | list[int]]
    looks: list[Lookaround] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Lookaround:
    """A condition that what follows a place in the text, or is before it, matches a pattern, or does not.

    Attributes:
        program: the pattern.
        behind: how many bytes before the place it matches; None: it matches what follows.
        negated: it must not match.
    """

    program: Program
    behind: int | None
    negated: bool


@dataclass(slots=True)
class _Size:
    """Counts what was added, in the programs of looks too, and refuses what is too much."""

    dialect: Dialect
    states: int = 0
    forks: int = 0
    looks: int = 0

    def add(self, *, states: int = 0, forks: int = 0, looks: int = 0) -> None:
        self.states, self.forks, self.looks = self.states + states, self.forks + forks, self.looks + looks
        most = self.dialect
        if self.looks > most.looks:
            raise PatternError(f"the pattern has more than {most.looks} look-aheads and look-behinds", 0)
        if self.states > most.states or self.forks > most.forks:
            many = most.forks if self.forks > most.forks else most.states
            raise PatternError(f"the pattern needs more than {many:,} states; make its repeats {{m,n}} smaller", 0)


class Compiler:
    """Turns the parser's tree into a program.

    Args:
        dialect: what it may have.
        size: what there is in the programs around this one.
    """

    def __init__(self, dialect: Dialect, size: _Size | None = None) -> None:
        self._size = size or _Size(dialect)
        self._code: list[int | list[int]] = []
        self._sets: dict[int, int] = {}
        self._looks: list[Lookaround] = []

    def add(self, instruction: int | list[int]) -> int:
        """Append an instruction and return its number."""
        self._size.add(states=1, forks=isinstance(instruction, list) or instruction < 0)
        self._code.append(instruction)
        return len(self._code) - 1

    def program(self) -> Program:
        """Return the compiled program, with jumps to jumps shortened."""
        for instruction in self._code:
            if isinstance(instruction, list):
                instruction[:] = dict.fromkeys(map(self._landing, instruction))
        return Program(list(self._sets), self._code, self._looks)

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
                case "ASSERT" | "ASSERT_NOT" as name:
                    direction, inner = argument
                    self._look(inner, flags, behind=direction < 0, negated=name == "ASSERT_NOT")
                case name:
                    raise PatternError(f"{self._size.dialect.beyond(name.lower())}; {ALLOWED}", 0)

    def _read(self, members: int) -> None:
        self.add(self._sets.setdefault(members, len(self._sets)))

    def _look(self, items: Any, flags: int, *, behind: bool, negated: bool) -> None:
        self._size.add(looks=1)
        least, most = items.getwidth()
        if behind and least != most:
            raise PatternError("a look-behind takes a pattern of one length, as in (?<=ab)", 0)
        within = Compiler(self._size.dialect, self._size)
        within.sequence(items, flags)
        self.add(FIRST_LOOKAROUND - len(self._looks))
        self._looks.append(Lookaround(within.program(), most if behind else None, negated))

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
        endless = most == parser.MAXREPEAT
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
                raise PatternError(f"{unknown.lower()} is not supported in a class; {ALLOWED}", 0)
    members = _cased(members, flags)
    return ALL_BYTES ^ members if negated else members


def _cased(members: int, flags: int) -> int:
    """With the flag `i`, both cases of every ASCII letter."""
    if not flags & re.IGNORECASE:
        return members
    return members | (members & _UPPER) << 32 | (members & _LOWER) >> 32
