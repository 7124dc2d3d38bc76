"""Conditions that last: which message of each key matches, since when, and for whom the time is over."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.catalog.action_sources import keys_of
from ampsq.catalog.followed_streams import track_name
from ampsq.coordinator.actions.sources import place_of, read_entries
from ampsq.definitions.action_parts import On
from ampsq.definitions.queue import Topic
from ampsq.expressions import Document, parse
from ampsq.expressions.values import read_number, text_of
from ampsq.protocol.calls import actions as action_calls
from ampsq.protocol.calls.records import is_end
from ampsq.protocol.entries import body_in, ended_record_in
from ampsq.protocol.reads.streams import log_of
from ampsq.queues.dead_letters import embedded
from ampsq.records.query import key_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ampsq.coordinator.actions.sources import SourceEntry
    from ampsq.definitions.action import Action
    from ampsq.expressions import Expression
    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.transport.store import Store

__all__ = ["LastingConditions"]

_ENTRIES: Final = 100


class _Watched(NamedTuple):
    """A trigger, its filter and key; and where each part of that is in the key of the topic's records.

    `places` is None where the records are kept by another key, or not at all.
    """

    trigger: On.timeout
    filter: Expression | None
    keys: Sequence[Expression]
    places: Sequence[int] | None


class LastingConditions:
    """Keeps what an action's triggers on time-outs need to know.

    Args:
        store: where the instance is.
        action: the action; one without such triggers costs nothing.
        catalog: what is defined.
        origin: the instance's.
    """

    def __init__(self, store: Store, action: Action, catalog: Catalog, origin: str) -> None:
        self._store, self._action, self._origin, self._catalog = store, action.name, origin, catalog
        self._watched = [_watched(trigger, catalog) for trigger in action.on if isinstance(trigger, On.timeout)]

    def work(self) -> bool:
        """Read what is new in the topics, and make events of what is overdue; True when there is more."""
        more = False
        for watched in self._watched:
            more = self._read(watched) or more
        if self._watched:
            # What came after the time that is over may have ended the condition: everything is read before.
            while not more and self._store.call(action_calls.overdue(self._action)):
                pass
        return more

    def _read(self, watched: _Watched) -> bool:
        topic = watched.trigger.topic
        place = place_of(self._store, self._action, track_name(topic))
        entries = read_entries(self._store, log_of(topic), place.cursor, _ENTRIES)
        if not entries:
            return False
        changes = [change for entry in entries for change in self._changes(watched, entry)]
        tracked = action_calls.track(
            self._action, track_name(topic), place.cursor, entries[-1][0], place.read + len(entries),
            int(watched.trigger.duration), changes,
        )  # fmt: skip
        self._store.call(tracked)
        return len(entries) == _ENTRIES

    def _changes(self, watched: _Watched, entry: SourceEntry) -> Iterator[tuple[bytes, str, str, bytes]]:
        stream_id, fields, source = entry
        topic = watched.trigger.topic
        document = Document(
            body_in(fields), fields=fields, topic=topic, stream_id=stream_id, origin=self._origin,
            source=source, instance=self._store.instance, message_type=self._catalog.message_type(topic),
        )  # fmt: skip
        if is_end(fields):
            for values in _keys_that_end(watched, ended_record_in(fields)):
                yield _member(topic, values), "", "", b""
            return
        if not document.is_json:
            return
        member = _member(topic, [expression.value(document) for expression in watched.keys])
        if watched.filter is None or watched.filter.matches(document):
            body = body_in(fields)
            since = stream_id.partition("-")[0]
            yield member, since, stream_id, embedded(fields) if body is None else body
        else:
            yield member, "", "", b""


def _watched(trigger: On.timeout, catalog: Catalog) -> _Watched:
    keys = [parse(text, "filter") for text in keys_of(trigger, catalog.views, catalog.queues)]
    filter = parse(trigger.filter, "filter") if trigger.filter is not None else None  # noqa: A001  (AMPS's word)
    text = catalog.topics.get(trigger.topic)
    kept = [] if text is None else [parse(each, "filter").tree for each in Topic.stored(trigger.topic, text).key]
    mine = [expression.tree for expression in keys]
    is_same = len(kept) == len(mine) and all(tree in kept for tree in mine)
    return _Watched(trigger, filter, keys, [kept.index(tree) for tree in mine] if is_same else None)


def _keys_that_end(watched: _Watched, record: bytes) -> Iterator[Sequence[object]]:
    """The keys that messages of a record may have had, by its text, in which 7 and "7" are the same."""
    if watched.places is None:
        return
    parts = key_parts(record, len(watched.places))
    yield from itertools.product(*(_values_of(parts[place]) for place in watched.places))


def _values_of(text: bytes) -> list[object]:
    found: list[object] = [text, *(each for each in (True, False) if text_of(each) == text)]
    number = read_number(text)
    if number is not None and text_of(number) == text:
        found += [number, float(number)] if isinstance(number, int) else [number]
    return found


def _member(topic: str, values: Sequence[object]) -> bytes:
    name = json.dumps(list(values), separators=(",", ":"), ensure_ascii=False, default=_text)
    return f"{topic} {name}".encode("utf-8", "surrogateescape")


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")
