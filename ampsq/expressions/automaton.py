r"""Regular expressions that never go back: compiled to automata, stepped byte by byte here and in Lua.

`compile_pattern` makes a deterministic automaton, or, where that would grow too large, keeps the program of the
pattern, which is stepped through sets of instructions. An automaton is its tree, which is JSON:

    [width, classes, starts, cells]     deterministic
    [0, sets, code, loop]               sets of instructions

**Deterministic** (`width` 1 or 2). A symbol is a byte, 256 for a line feed that is the last byte, or 257 for the
end. `classes` is a flat list of class, last symbol, class, last symbol ...: symbols of one class lead to the same
place; where 257 has no class, nothing matches at the end. `cells` is a row for each state from 1 on, and in it a
cell for each class: one or two characters, digits to the base 57 from `#` on. A cell is twice the next state (0: no
match can follow) plus 1 if a match has been found. In a search the cell 1 ends it; in an automaton for `longest`
that match ended before the symbol. `starts` are cells to begin with: one, or one for each kind of what comes before:
nothing, another byte, a byte of a word, a line feed. **Steps**: in a search one for each byte that was looked at; in
`longest` four, and at least four for each place where it is asked and a byte follows.

**Sets of instructions.** `sets` are flat lists of first and last bytes, `code` is `Program.code` with its lists,
`loop` is 1 if a match may begin anywhere. **Steps**: ten at first, and at each byte that is read three for each
instruction that is active there: those behind the ones that read the byte before, the first one (at the start;
with `loop` anywhere), and what they lead to without reading; the end of the code does not count. The end of the text
costs nothing, and a search ends, without cost, where the end of the code is active.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ampsq.base.pattern import parse_pattern
from ampsq.base.pattern_program import Assertion, PatternError, Program
from ampsq.base.subsets import Steps, Subsets, kind_before
from ampsq.expressions.determinize import BASE, END, FIRST_DIGIT, LAST_FEED, deterministic

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Automaton", "Literal", "PatternError", "Steps", "compile_pattern"]

_CHUNK = 1_024


@dataclass(frozen=True, slots=True)
class Literal:
    """A pattern that is plain text.

    Attributes:
        text: what is looked for.
        at_start: it must be at the very start.
        at_end: it must be at the very end.
    """

    text: bytes
    at_start: bool
    at_end: bool


class Automaton:
    """A compiled pattern.

    Attributes:
        tree: what is sent to the server; see the module's text.
    """

    def __init__(self, tree: list[Any]) -> None:
        self.tree = tree
        self._form: _Table | Subsets = _Table(*tree) if tree[0] else Subsets.of_tree(*tree[1:])

    @classmethod
    def from_tree(cls, tree: list[Any]) -> Automaton:
        """The automaton of a tree that `compile_pattern` made."""
        return cls(tree)

    def search(self, text: bytes, steps: Steps) -> bool:
        """Say whether the pattern matches somewhere in a text."""
        return self._form.search(text, steps)

    def longest(self, text: bytes, start: int, steps: Steps) -> int | None:
        """The end of the longest match that begins at `start`; for patterns compiled with ``replace=True``."""
        end = None
        for end in self._form.ends(text, start, steps):  # noqa: B007 - the last is wanted
            pass
        return end

    def replace(self, text: bytes, replacement: bytes, steps: Steps, limit: int) -> bytes | None:
        """Put the replacement in place of every leftmost longest match; empty matches change nothing.

        Returns:
            The new text, or None when it would be longer than the limit.
        """
        parts, size, kept, start = [], len(text), 0, 0
        while start < len(text):
            end = self.longest(text, start, steps)
            if end is None or end == start:
                start += 1
                continue
            parts += [text[kept:start], replacement]
            size += len(replacement) - (end - start)
            kept = start = end
        return b"".join([*parts, text[kept:]]) if size <= limit else None


def compile_pattern(pattern: bytes, *, max_table: int = 2048, replace: bool = False) -> Automaton | Literal:
    """Compile a regular expression.

    Args:
        pattern: as AMPS has it.
        max_table: the most cells of a deterministic automaton; the other kind is used beyond.
        replace: compile for `Automaton.longest` and `Automaton.replace`, else for `Automaton.search`.

    Returns:
        An automaton; for a search of plain text, which needs none, that text.

    Raises:
        PatternError: the pattern is wrong, or uses what no automaton can do.
    """
    program = parse_pattern(pattern)
    if not replace and (literal := _literal(program)):
        return literal
    tree = deterministic(program, max_table, replace=replace)
    if tree is None:
        code = [list(item) if isinstance(item, list) else int(item) for item in program.code]
        tree = [0, [_ranges(members) for members in program.sets], code, int(not replace)]
    return Automaton(tree)


def _literal(program: Program) -> Literal | None:
    """Return the text that a program looks for if that is plain, bound to one side at most; else None."""
    code = list(program.code)
    at_start = code[:1] == [Assertion.START]
    at_end = code[-1:] == [Assertion.END]
    inner = code[at_start : len(code) - at_end]
    text = bytearray()
    for item in inner:
        if isinstance(item, list) or item < 0 or program.sets[item].bit_count() != 1:
            return None
        text.append(program.sets[item].bit_length() - 1)
    return None if at_start and at_end else Literal(bytes(text), at_start, at_end)


def _ranges(members: int) -> list[int]:
    """A set as first and last bytes."""
    flat: list[int] = []
    for byte in range(256):
        if members >> byte & 1:
            if flat and flat[-1] == byte - 1:
                flat[-1] = byte
            else:
                flat += [byte, byte]
    return flat


class _Table:
    """A deterministic automaton."""

    def __init__(self, width: int, runs: list[int], starts: list[int], cells: str) -> None:
        classes: list[int] = []
        for number, last in zip(runs[::2], runs[1::2], strict=True):
            classes += [number] * (last + 1 - len(classes))
        count = max(classes) + 1
        digits = [ord(letter) - FIRST_DIGIT for letter in cells]
        values = digits if width == 1 else [a * BASE + b for a, b in zip(digits[::2], digits[1::2], strict=True)]
        self._starts = starts
        self._rows = [[0] * count, *(values[at : at + count] for at in range(0, len(values), count))]
        self._classes = classes
        self._translation = bytes(classes[:256])
        self._end = classes[END] if len(classes) > END else None

    def search(self, text: bytes, steps: Steps) -> bool:
        """Say whether anything matches."""
        cell, rows = self._starts[0], self._rows
        if cell <= 1:
            return cell == 1
        row, whole = rows[cell >> 1], len(text) - text.endswith(b"\n")
        for first in range(0, whole, _CHUNK):
            chunk = text[first : min(first + _CHUNK, whole)].translate(self._translation)
            for count, symbol in enumerate(chunk, 1):
                cell = row[symbol]
                if cell <= 1:
                    steps.spend(count)
                    return cell == 1
                row = rows[cell >> 1]
            steps.spend(len(chunk))
        if whole < len(text):
            steps.spend(1)
            cell = row[self._classes[LAST_FEED]]
            if cell <= 1:
                return cell == 1
            row = rows[cell >> 1]
        return self._end is not None and row[self._end] == 1

    def ends(self, text: bytes, start: int, steps: Steps) -> Iterator[int]:
        """Each place where a match ends, ascending."""
        state = self._starts[kind_before(text, start) if len(self._starts) > 1 else 0] >> 1
        last_feed = len(text) - 1 if text.endswith(b"\n") else None
        for position in range(start, len(text)):
            # Before anything is known: a place where nothing can begin costs steps too.
            steps.spend(4)
            if state:
                symbol = LAST_FEED if position == last_feed else text[position]
                cell = self._rows[state][self._classes[symbol]]
                if cell & 1:
                    yield position
                state = cell >> 1
            if not state:
                return
        if self._end is not None and self._rows[state][self._end] & 1:
            yield len(text)
