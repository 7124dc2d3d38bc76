"""From where and up to where is read: as options say it, and as the offsets of streams do.

An offset is JSON: for each instance its origin, of each topic the ID of the last message that is before it, and where
the batch that ended there was cut, so that a batch that is run again has the same partitions, whatever the options say
then.

    {"ampsq": {"origin": "ampsq.t6w1xk", "topics": {"orders": "1763640000000-0"}, "cuts": {"orders": ["176363-4"]}}}

Written by hand, ``{"ampsq": {"orders": "1763640000000-0"}}`` will do.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeAlias

from ampsq.base.errors import DefinitionError
from ampsq.base.log_positions import EPOCH, NOW, BookmarkEnd, Id, id_text, parse_bookmark_spec, parse_id
from ampsq.base.values import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["InstanceOffset", "Offsets", "ReadPlace", "offsets_as_json", "offsets_of", "parse_place"]

_ALLOWED: Final = (
    "earliest (or epoch), latest (or now), a bookmark, or the JSON of a stream's offset, as in "
    '{"ampsq": {"orders": "1763640000000-0"}}'
)
_TIMES: Final = "a time with its zone, as in 2026-05-01T09:00:00Z, or milliseconds since 1970"
_WORDS: Final = {"earliest": EPOCH, "latest": NOW}
_ID: Final = re.compile(r"\d{1,20}-\d{1,20}")


@dataclass(frozen=True, slots=True)
class InstanceOffset:
    """The position of a stream in an instance's topics.

    Attributes:
        origin: the instance's; "" if somebody wrote the offset who did not say.
        topics: topic -> the last ID that is before the offset.
        cuts: topic -> the last ID of each part but the last of the batch that ended here.
        begins: topic -> behind which ID that batch began, where that is not where the one before ended: something
            was lost.
    """

    origin: str = ""
    topics: Mapping[str, Id] = field(default_factory=dict)
    cuts: Mapping[str, tuple[Id, ...]] = field(default_factory=dict)
    begins: Mapping[str, Id] = field(default_factory=dict)


#: Instance -> where a stream is there.
Offsets: TypeAlias = "dict[str, InstanceOffset]"
ReadPlace: TypeAlias = "BookmarkEnd | Offsets"


def parse_place(which: str, bookmark: str, timestamp: str) -> ReadPlace:
    """Read where to begin or to end: a timestamp, if there is one, or else a bookmark.

    Args:
        which: ``starting`` or ``ending``, for texts.
        bookmark: as the option has it.
        timestamp: as the option has it.

    Raises:
        DefinitionError: it is none.
    """
    if timestamp:
        return BookmarkEnd("time", milliseconds=_time(timestamp))
    text = bookmark.strip()
    if text.startswith("{"):
        try:
            found = json.loads(text)
        except ValueError as error:
            raise DefinitionError(f"{shown(text)} is no JSON: {error}; allowed: {_ALLOWED}") from None
        return offsets_of(found)
    try:
        ends = parse_bookmark_spec(_WORDS.get(text.lower(), text)).starts
    except DefinitionError:
        ends = ()
    if len(ends) != 1 or not (ends[0].kind in (EPOCH, NOW) or ends[0].bookmark is not None):
        raise DefinitionError(f"{shown(text)} is no place; allowed: {_ALLOWED}; for a time, {which}Timestamp")
    return ends[0]


def _time(text: str) -> int:
    if text.isdecimal():
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise DefinitionError(f"{shown(text)} is no time; allowed: {_TIMES}") from None
    if found.tzinfo is None:
        raise DefinitionError(f"{shown(text)} has no time zone; allowed: {_TIMES}")
    return max(round(found.timestamp() * 1000), 0)


def offsets_as_json(offsets: Offsets) -> dict[str, object]:
    """An offset as Spark keeps it."""
    return {
        name: {
            "origin": each.origin,
            "topics": {topic: id_text(each.topics[topic]) for topic in sorted(each.topics)},
            "cuts": {topic: [id_text(cut) for cut in each.cuts[topic]] for topic in sorted(each.cuts)},
            **({"begins": {topic: id_text(place) for topic, place in each.begins.items()}} if each.begins else {}),
        }
        for name, each in sorted(offsets.items())
    }


def offsets_of(value: object) -> Offsets:
    """Read an offset.

    Raises:
        DefinitionError: it is none.
    """
    if not isinstance(value, dict) or not value or not all(isinstance(each, dict) for each in value.values()):
        raise DefinitionError(f"{shown(value)}: an instance's topics are missing; allowed: {_ALLOWED}")
    return {name: _of_instance(each) for name, each in value.items()}


def _of_instance(value: dict[str, object]) -> InstanceOffset:
    topics, cuts, begins = value.get("topics"), value.get("cuts", {}), value.get("begins", {})
    if not isinstance(topics, dict):
        return InstanceOffset(topics=_ids(value))
    if not isinstance(cuts, dict) or not isinstance(begins, dict):
        raise DefinitionError(f"{shown(str(value))}: cuts and begins are not topics with IDs; allowed: {_ALLOWED}")
    ids_of_cuts = {topic: tuple(map(_id, each)) for topic, each in cuts.items()}
    return InstanceOffset(str(value.get("origin", "")), _ids(topics), ids_of_cuts, _ids(begins))


def _ids(value: Mapping[str, object]) -> dict[str, Id]:
    return {topic: _id(each) for topic, each in value.items()}


def _id(value: object) -> Id:
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise DefinitionError(f"{shown(value)} is no ID of an entry; allowed: one as in '1763640000000-0'")
    return parse_id(value)
