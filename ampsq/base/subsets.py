"""Programs of patterns, stepped through sets of their instructions, byte by byte and never back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ampsq.base.pattern_program import FIRST_LOOKAROUND, WORD_BYTES, Assertion, Program

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "EDGE",
    "KINDS",
    "LAST_LINE",
    "LINE",
    "OTHER",
    "UNKNOWN",
    "WORD",
    "Steps",
    "Subsets",
    "kind_after",
    "kind_before",
]

EDGE, OTHER, WORD, LINE, LAST_LINE, UNKNOWN = range(6)
"""Kinds of neighbour of a place in the text: its start or end, a byte of this kind, a line feed that ends the text."""
KINDS = bytes(WORD if WORD_BYTES >> byte & 1 else LINE if byte == ord("\n") else OTHER for byte in range(256))


class Steps(Protocol):
    """The steps that an evaluation has left."""

    def spend(self, count: int, /) -> None:
        """Take steps away; raises when there are too few."""


def kind_after(text: bytes, position: int) -> int:
    """The kind of the byte that follows a place; a line feed that ends the text is a kind of its own."""
    if position == len(text):
        return EDGE
    kind = KINDS[text[position]]
    return LAST_LINE if kind == LINE and position == len(text) - 1 else kind


def kind_before(text: bytes, position: int) -> int:
    """The kind of the byte in front of a place: 0 none, 1 another byte, 2 a byte of a word, 3 a line feed."""
    return KINDS[text[position - 1]] if position else EDGE


def _holds(assertion: int, before: int, after: int, looks: int) -> bool:
    """Say whether an assertion holds between what is on either side; nothing about an unknown side holds."""
    if assertion <= FIRST_LOOKAROUND:
        return bool(looks >> FIRST_LOOKAROUND - assertion & 1)
    if assertion == Assertion.START or after == UNKNOWN:
        return assertion == Assertion.START and before == EDGE
    match assertion:
        case Assertion.END:
            holds = after == EDGE
        case Assertion.END_OR_LAST_FEED:
            holds = after in (EDGE, LAST_LINE)
        case Assertion.LINE_START:
            # As in PCRE, no line begins behind a line feed that ends the text.
            holds = before == EDGE or (before == LINE and after != EDGE)
        case Assertion.LINE_END:
            holds = after in (EDGE, LINE, LAST_LINE)
        case _:
            holds = ((before == WORD) != (after == WORD)) == (assertion == Assertion.BOUNDARY)
    return holds


def _mask(places: Iterable[int]) -> int:
    return sum(1 << place for place in set(places))


class Subsets:
    """A program, stepped through sets of instructions; a set is a whole number, bit n for instruction n."""

    def __init__(self, program: Program, *, loop: bool) -> None:
        self.loop, self.end = int(loop), 1 << len(program.code)
        self.work = 0
        self._sets = program.sets
        self._targets: dict[int, int] = {}
        self._assertions: dict[int, int] = {}
        self._reading: dict[int, int] = {}
        for place, item in enumerate(program.code):
            if isinstance(item, list):
                self._targets[place] = _mask(item)
            elif item < 0:
                self._assertions[place], self._targets[place] = item, 1 << place + 1
            else:
                self._reading[item] = self._reading.get(item, 0) | 1 << place
        self.asserting = _mask(self._assertions)
        self._leading = _mask(self._targets)
        self._readers: dict[int, int] = {}

    @classmethod
    def of_tree(cls, sets: list[list[int]], code: list[int | list[int]], loop: int) -> Subsets:
        """The same from a tree."""
        members = [
            sum((2 << last) - (1 << first) for first, last in zip(flat[::2], flat[1::2], strict=True)) for flat in sets
        ]
        return cls(Program(members, code), loop=bool(loop))

    def readers(self, byte: int) -> int:
        """The instructions that read this byte."""
        if byte not in self._readers:
            taking = [number for number, members in enumerate(self._sets) if members >> byte & 1]
            self._readers[byte] = sum(self._reading.get(number, 0) for number in taking)
        return self._readers[byte]

    def closure(self, seeds: int, before: int, after: int, looks: int = 0) -> int:
        """Return these instructions and all that they lead to without reading.

        Args:
            seeds: the instructions.
            before: the kind of the byte in front of the place in the text.
            after: the kind of the byte that follows it.
            looks: the set of looks that hold there.
        """
        whole, ahead = seeds, seeds & self._leading
        self.work += 1
        while ahead:
            self.work += 1
            lowest = ahead & -ahead
            ahead ^= lowest
            place = lowest.bit_length() - 1
            if lowest & self.asserting and not _holds(self._assertions[place], before, after, looks):
                continue
            new = self._targets[place] & ~whole
            whole |= new
            ahead |= new & self._leading
        return whole

    def ends(self, text: bytes, start: int, steps: Steps) -> Iterator[int]:
        """Each place where a match ends, ascending."""
        steps.spend(10)
        seeds, before = 1, kind_before(text, start)
        for position in range(start, len(text) + 1):
            active = self.closure(seeds, before, kind_after(text, position))
            if active & self.end:
                yield position
            active &= ~self.end
            if not active or position == len(text):
                return
            steps.spend(3 * active.bit_count())
            seeds = (active & self.readers(text[position])) << 1 | self.loop
            before = KINDS[text[position]]

    def search(self, text: bytes, steps: Steps) -> bool:
        """Say whether anything matches."""
        return next(self.ends(text, 0, steps), None) is not None
