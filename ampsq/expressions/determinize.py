"""Programs of patterns made deterministic, by stepping them through sets of their instructions beforehand.

Every table is made by the same stepping that is used where there is none, so that both mean the same.
"""

from __future__ import annotations

from typing import Any

from ampsq.base.pattern_program import ALL_BYTES, LINE_FEED, WORD_BYTES, Assertion, Program
from ampsq.base.subsets import EDGE, KINDS, LAST_LINE, LINE, OTHER, UNKNOWN, WORD, Subsets

__all__ = ["BASE", "END", "FIRST_DIGIT", "LAST_FEED", "deterministic"]

LAST_FEED, END = 256, 257
"""The symbols that are no bytes: a line feed that is the last byte, and the end of the text."""
FIRST_DIGIT, BASE = 35, 57
"""Form of cells: the character of the digit 0, and the number of digits; none needs escaping in JSON."""

_MAX_STATES = (BASE * BASE - 2) // 2
_MAX_WORK = 100_000
_MAX_MERGING = 200_000


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
        befores = (EDGE, OTHER, WORD, LINE) if self._replace else (EDGE,)
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
        core = self._sets.closure(seeds, before, UNKNOWN) & self._kept
        if not core:
            return 0
        if core & self._sets.end and not self._replace:
            return 1
        state = core, before if core & self._sets.asserting else OTHER
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
                after = LAST_LINE if symbol == LAST_FEED else EDGE if symbol == END else KINDS[byte]
                active = sets.closure(core, before, after)
            found = int(active & sets.end > 0)
            if symbol == END or (found and not self._replace):
                row.append(found)
                continue
            seeds = (active & sets.readers(byte)) << 1 | sets.loop
            row.append(self._cell(seeds, KINDS[byte]) | found)
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
