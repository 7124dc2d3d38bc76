"""Regular expressions over names, matched in one pass: no pattern and no name can make a process hang.

A pattern is a `Program`, stepped through sets of its instructions; what a set leads to is kept, so that mostly a letter
of a name costs one look. Looks (`(?!HKG)`) are answered for each place of a name before.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ampsq.base.pattern import parse_pattern
from ampsq.base.pattern_program import OF_NAMES, Lookaround, PatternError, Program
from ampsq.base.subsets import EDGE, KINDS, OTHER, WORD, Subsets, kind_after, kind_before

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["NamePattern", "PatternError"]

_LONGEST_NAME: Final = 255
_NAME_BYTES: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-"
_NOT_ASCII: Final = re.compile(r"[^\0-\x7f]")
_MOST_STATES: Final = 2_000
_EVERY_LOOK: Final = -1
#: The symbol behind the last byte.
_END: Final = -1


class NamePattern:
    """A regular expression over names, which is searched for anywhere in them.

    Args:
        text: as AMPS has it; looks are allowed, back references are not.
        whole: it has to match the whole of a name.

    Attributes:
        pattern: its text.

    Raises:
        PatternError: it cannot be used.
    """

    def __init__(self, text: str, *, whole: bool = False) -> None:
        self.pattern = text
        self._automaton = _Automaton(parse_pattern(_signs(text), OF_NAMES, whole=whole), loop=True)

    def search(self, name: str) -> bool:
        """Say whether it matches a name."""
        return self._automaton.matches(_signs(name))

    def may_match(self) -> bool:
        """Say whether there are names that it matches. Looks are taken to hold, so that it is no promise with these."""
        return self._automaton.may_match()


def _signs(text: str) -> bytes:
    """A text with one byte for each of its signs: those that are in no name are one."""
    return _NOT_ASCII.sub("\xff", text).encode("latin-1")


class _State:
    """A set of instructions behind a byte of some kind, and what it leads to.

    Attributes:
        seeds: the instructions.
        before: the kind of byte.
        following: for a symbol, its kind and the looks that hold before it: whether a match ends there, and the state
            behind the symbol; None: no match can follow.
    """

    __slots__ = ("before", "following", "seeds")

    def __init__(self, seeds: int, before: int) -> None:
        self.seeds, self.before = seeds, before
        self.following: dict[tuple[int, int, int], tuple[bool, _State | None]] = {}


class _Automaton:
    """A program, made deterministic state by state as names need them.

    Args:
        program: of a pattern, or of a look.
        loop: a match may begin anywhere.
    """

    def __init__(self, program: Program, *, loop: bool) -> None:
        self._sets = Subsets(program, loop=loop)
        self._looks = [(_Automaton(look.program, loop=False), look) for look in program.looks]
        self._states: dict[tuple[int, int], _State] = {}

    def matches(self, text: bytes) -> bool:
        """Say whether anything matches."""
        return any(True for _ in self._ends(text, 0, self.looks_in(text)))

    def _ends(self, text: bytes, start: int, looks: list[int]) -> Iterator[int]:
        """Each place where a match that begins at `start` ends, or with `loop` one that begins behind it, ascending."""
        state: _State | None = self._state(1, kind_before(text, start))
        for place in range(start, len(text) + 1):
            if state is None:
                return
            symbol = text[place] if place < len(text) else _END
            key = symbol, kind_after(text, place), looks[place]
            found, state = state.following.get(key) or self._step(state, key)
            if found:
                yield place

    def _state(self, seeds: int, before: int) -> _State:
        if len(self._states) > _MOST_STATES:
            self._states.clear()
        return self._states.setdefault((seeds, before), _State(seeds, before))

    def _step(self, state: _State, key: tuple[int, int, int]) -> tuple[bool, _State | None]:
        symbol, after, looks = key
        active = self._sets.closure(state.seeds, state.before, after, looks)
        seeds = 0 if symbol == _END else (active & self._sets.readers(symbol)) << 1 | self._sets.loop
        following = self._state(seeds, KINDS[symbol]) if seeds else None
        step = state.following[key] = bool(active & self._sets.end), following
        return step

    def looks_in(self, text: bytes) -> list[int]:
        """For each place of a text, its end too, the set of looks that hold there."""
        held = [0] * (len(text) + 1)
        for number, (automaton, look) in enumerate(self._looks):
            within = automaton.looks_in(text)
            for place in range(len(text) + 1):
                held[place] |= automaton.holds(look, text, place, within) << number
        return held

    def holds(self, look: Lookaround, text: bytes, place: int, looks: list[int]) -> bool:
        """Say whether this automaton's look holds at a place; `looks` are those within it."""
        if look.behind is None:
            found = any(True for _ in self._ends(text, place, looks))
        else:
            found = place >= look.behind and place in self._ends(text, place - look.behind, looks)
        return found is not look.negated

    def may_match(self) -> bool:
        """Say whether any name matches: by what all names of one length, of two, and so on lead to together."""
        sets, readers = self._sets, {OTHER: 0, WORD: 0}
        for byte in _NAME_BYTES:
            readers[KINDS[byte]] |= sets.readers(byte)
        known = new = {EDGE: 1, OTHER: 0, WORD: 0}
        for _ in range(_LONGEST_NAME + 1):
            reached = dict.fromkeys(known, 0)
            for before, seeds in new.items():
                for after in known if seeds else ():
                    active = sets.closure(seeds, before, after, _EVERY_LOOK)
                    # The empty text is no name.
                    if active & sets.end and (before != EDGE or after != EDGE):
                        return True
                    if after in readers:
                        reached[after] |= (active & readers[after]) << 1 | sets.loop
            new = {kind: seeds & ~known[kind] for kind, seeds in reached.items()}
            known = {kind: seeds | known[kind] for kind, seeds in reached.items()}
        return False
