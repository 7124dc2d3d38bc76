"""Programs of patterns, stepped through sets of their instructions, and made deterministic by doing so beforehand.

Every table is made by the same stepping that is used where there is none, so that both mean the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ampsq.expressions.pattern import ALL_BYTES, LINE_FEED, WORD_BYTES, Assertion, Program

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["BASE", "END", "FIRST_DIGIT", "LAST_FEED", "Steps", "Subsets", "deterministic", "kind_before"]

_EDGE, _OTHER, _WORD, _LINE, _LAST_LINE, _UNKNOWN = range(6)
"""Kinds of neighbour of a place in the text: its start or end, a byte of this kind, a line feed that ends the text."""
_KINDS = bytes(_WORD if WORD_BYTES >> byte & 1 else _LINE if byte == ord("\n") else _OTHER for byte in range(256))

LAST_FEED, END = 256, 257
"""The symbols that are no bytes: a line feed that is the last byte, and the end of the text."""
FIRST_DIGIT, BASE = 35, 57
"""Form of cells: the character of the digit 0, and the number of digits; none needs escaping in JSON."""

_MAX_STATES = (BASE * BASE - 2) // 2
_MAX_WORK = 100_000
_MAX_MERGING = 200_000


class Steps(Protocol):
    """The steps that an evaluation has left."""

    def spend(self, count: int, /) -> None:
        """Take steps away; raises when there are too few."""


def _kind_after(text: bytes, position: int) -> int:
    if position == len(text):
        return _EDGE
    kind = _KINDS[text[position]]
    return _LAST_LINE if kind == _LINE and position == len(text) - 1 else kind


def kind_before(text: bytes, position: int) -> int:
    """The kind of what is before a place: 0 nothing, 1 another byte, 2 a byte of a word, 3 a line feed."""
    return _KINDS[text[position - 1]] if position else _EDGE


def _holds(assertion: int, before: int, after: int) -> bool:
    """Say whether an assertion holds between what is on either side; nothing about an unknown side holds."""
    if assertion == Assertion.START or after == _UNKNOWN:
        return assertion == Assertion.START and before == _EDGE
    match assertion:
        case Assertion.END:
            holds = after == _EDGE
        case Assertion.END_OR_LAST_FEED:
            holds = after in (_EDGE, _LAST_LINE)
        case Assertion.LINE_START:
            # As in PCRE, no line begins behind a line feed that ends the text.
            holds = before == _EDGE or (before == _LINE and after != _EDGE)
        case Assertion.LINE_END:
            holds = after in (_EDGE, _LINE, _LAST_LINE)
        case _:
            holds = ((before == _WORD) != (after == _WORD)) == (assertion == Assertion.BOUNDARY)
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

    def closure(self, seeds: int, before: int, after: int) -> int:
        """Return these instructions and all that they lead to without reading."""
        whole, ahead = seeds, seeds & self._leading
        self.work += 1
        while ahead:
            self.work += 1
            lowest = ahead & -ahead
            ahead ^= lowest
            place = lowest.bit_length() - 1
            if lowest & self.asserting and not _holds(self._assertions[place], before, after):
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
            active = self.closure(seeds, before, _kind_after(text, position))
            if active & self.end:
                yield position
            active &= ~self.end
            if not active or position == len(text):
                return
            steps.spend(3 * active.bit_count())
            seeds = (active & self.readers(text[position])) << 1 | self.loop
            before = _KINDS[text[position]]

    def search(self, text: bytes, steps: Steps) -> bool:
        """Say whether anything matches."""
        return next(self.ends(text, 0, steps), None) is not None


def deterministic(program: Program, max_table: int, *, replace: bool) -> list[Any] | None:
    """The tree of a program's deterministic automaton, or None where it would have too many cells or take too long."""
    return _Builder(program, replace=replace).tree(max_table)


class _Builder:
    """Finds the states: sets of instructions and, where these ask for it, the kind of the byte that was read last.

    What an assertion asks of the byte that follows is answered when that byte is read.
    """

    def __init__(self, program: Program, *, replace: bool) -> None:
        self._sets = Subsets(program, loop=not replace)
        self._replace = replace
        self._present = {item for item in program.code if not isinstance(item, list) and item < 0}
        self._states: list[tuple[int, int]] = []
        self._numbers: dict[tuple[int, int], int] = {}
        self._symbols, self._columns = self._classes(program.sets)
        # What neither reads nor asks has done its part when its set is closed.
        self._kept = self._sets.asserting | self._sets.end
        for symbol in self._columns:
            self._kept |= self._sets.readers(symbol) if symbol < LAST_FEED else 0

    def _classes(self, sets: list[int]) -> tuple[list[int], list[int]]:
        """The column of each symbol, and for each column a symbol that stands for it; the last is the end."""
        asking = self._present - {Assertion.START, Assertion.END}
        blocks = [ALL_BYTES]
        for members in [*sets, LINE_FEED, WORD_BYTES] if asking else sets:
            blocks = [part for block in blocks for part in (block & members, block & ~members) if part]
        columns = [(block & -block).bit_length() - 1 for block in blocks]
        number_of = {byte: number for number, block in enumerate(blocks) for byte in range(256) if block >> byte & 1}
        symbols = [number_of[byte] for byte in range(256)]
        if Assertion.END_OR_LAST_FEED in self._present:
            symbols.append(len(columns))
            columns.append(LAST_FEED)
        else:
            symbols.append(symbols[ord("\n")])
        return [*symbols, len(columns)], [*columns, END]

    def tree(self, max_table: int) -> list[Any] | None:
        befores = (_EDGE, _OTHER, _WORD, _LINE) if self._replace else (_EDGE,)
        starts = [self._cell(1, before) for before in befores]
        rows: list[list[int]] = [[0] * len(self._columns)]
        while len(rows) <= len(self._states):
            rows.append(self._row(*self._states[len(rows) - 1]))
            count = len(self._states)
            if count > _MAX_STATES or count * len(self._columns) > max_table or self._sets.work > _MAX_WORK:
                return None
        return _tree(*_minimal(starts, rows), self._symbols)

    def _cell(self, seeds: int, before: int) -> int:
        """The cell that leads to these instructions, behind a byte of that kind."""
        core = self._sets.closure(seeds, before, _UNKNOWN) & self._kept
        if not core:
            return 0
        if core & self._sets.end and not self._replace:
            return 1
        state = core, before if core & self._sets.asserting else _OTHER
        if state not in self._numbers:
            self._states.append(state)
            self._numbers[state] = len(self._states)
        return 2 * self._numbers[state]

    def _row(self, core: int, before: int) -> list[int]:
        sets, row = self._sets, []
        for symbol in self._columns:
            byte = ord("\n") if symbol == LAST_FEED else symbol
            active = core
            if core & sets.asserting:
                after = _LAST_LINE if symbol == LAST_FEED else _EDGE if symbol == END else _KINDS[byte]
                active = sets.closure(core, before, after)
            found = int(active & sets.end > 0)
            if symbol == END or (found and not self._replace):
                row.append(found)
                continue
            seeds = (active & sets.readers(byte)) << 1 | sets.loop
            row.append(self._cell(seeds, _KINDS[byte]) | found)
        return row


def _minimal(starts: list[int], rows: list[list[int]]) -> tuple[list[int], list[list[int]]]:
    """Make one of states that no text tells apart; row 0 is where no match can follow."""
    group, count = [0] * len(rows), 1
    for _ in range(_MAX_MERGING // (len(rows) * len(rows[0])) + 1):
        numbers: dict[tuple[int, ...], int] = {}
        group = [
            numbers.setdefault((at, *(2 * group[cell >> 1] | cell & 1 for cell in row)), len(numbers))
            for at, row in zip(group, rows, strict=True)
        ]
        if len(numbers) == count:
            break
        count = len(numbers)
    else:
        return starts, rows
    merged: dict[int, list[int]] = {}
    for at, row in zip(group, rows, strict=True):
        merged.setdefault(at, [2 * group[cell >> 1] | cell & 1 for cell in row])
    return [2 * group[cell >> 1] | cell & 1 for cell in starts], list(merged.values())


def _tree(starts: list[int], rows: list[list[int]], symbols: list[int]) -> list[Any]:
    """Write an automaton down, symbols that lead to the same places as one class."""
    by_column: dict[tuple[int, ...], int] = {}
    columns = list(zip(*rows, strict=True))
    if not any(columns[symbols[END]]):
        symbols = symbols[:END]
    runs: list[int] = []
    for symbol, column in enumerate(symbols):
        number = by_column.setdefault(columns[column], len(by_column))
        if runs and runs[-2] == number:
            runs[-1] = symbol
        else:
            runs += [number, symbol]
    cells = list(zip(*by_column, strict=True))[1:]
    width = 1 if max([*starts, *(cell for row in cells for cell in row)]) < BASE else 2
    digits = [digit for row in cells for cell in row for digit in divmod(cell, BASE)[2 - width :]]
    text = "".join(chr(FIRST_DIGIT + digit) for digit in digits)
    if len(set(starts)) == 1:
        starts = starts[:1]
    return [width, runs, starts, text]
