"""Many entries of a log at once, field by field: a column has a value for each entry."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from ampsq.protocol.entries import read_entry, source_in
from ampsq.protocol.schema import FIELDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.protocol.entries import RawEntry

__all__ = ["EntryColumns", "own_columns", "read_columns"]

#: Values, None where an entry has none.
Column: TypeAlias = "Sequence[bytes | None]"
_BODY, _HEADERS, _KEY, _PUBLISHER, _SEQUENCE, _SOURCE, _ADDRESSED = (
    FIELDS[name].encode() for name in ("body", "headers", "routing_key", "publisher", "sequence", "source", "addressed")
)
_READ: Final = (_BODY, _HEADERS, _KEY, _PUBLISHER, _SEQUENCE)


@dataclass(frozen=True, slots=True)
class EntryColumns:
    """The values of entries, a column each; a column that is None has no value at all.

    Attributes:
        bodies: those of messages that were published by ampsq.
        headers: JSON.
        keys: routing keys.
        publishers: their names.
        sequences: the numbers that publishers gave.
        sources: where copies were published first, ``<origin>~<id>``.
        foreign: place of an entry that somebody wrote without ampsq -> its fields.
    """

    bodies: Column
    headers: Column | None
    keys: Column | None
    publishers: Column | None
    sequences: Column | None
    sources: Column | None
    foreign: dict[int, dict[bytes, bytes]] = field(default_factory=dict)


def own_columns(entries: Sequence[RawEntry]) -> EntryColumns | None:
    """Read entries where all are messages of ours with the same fields, for everybody; None elsewhere."""
    flats = [entry[1] for entry in entries]
    if len(set(map(len, flats))) != 1:
        return None
    columns = list(zip(*flats, strict=True))
    named: dict[bytes, Column] = {}
    for place in range(0, len(columns), 2):
        names = set(columns[place])
        if len(names) != 1:
            return None
        named[names.pop()] = columns[place + 1]
    is_ours = next(iter(named)) == _BODY and _ADDRESSED not in named
    if not is_ours or not (_SOURCE not in named or all(map(source_in, flats))):
        return None
    headers, keys, publishers, sequences = (named.get(name) for name in _READ[1:])
    return EntryColumns(named[_BODY], headers, keys, publishers, sequences, named.get(_SOURCE))


def read_columns(entries: Sequence[RawEntry]) -> EntryColumns:
    """Read entries of any kind."""
    found: dict[bytes, list[bytes | None]] = {name: [None] * len(entries) for name in _READ}
    sources: list[bytes | None] = [source_in(flat).encode() or None for _, flat in entries]
    foreign: dict[int, dict[bytes, bytes]] = {}
    for number, (_, flat) in enumerate(entries):
        if flat[0] != _BODY:
            foreign[number] = read_entry(flat)[0]
            continue
        for name, value in zip(flat[::2], flat[1::2], strict=True):
            if name in found:
                found[name][number] = value
    bodies, headers, keys, publishers, sequences = (found[name] for name in _READ)
    return EntryColumns(bodies, headers, keys, publishers, sequences, sources, foreign)
