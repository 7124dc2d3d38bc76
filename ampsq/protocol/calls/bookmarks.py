"""The stored place of a durable subscription, beside the logs: names and values of one hash.

See `ampsq.protocol.calls.readers.note_place`, which writes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from ampsq.base.log_positions import StoredPosition, id_text, parse_id
from ampsq.protocol.calls.readers import note_place
from ampsq.protocol.replies import names, texts
from ampsq.protocol.request import command
from ampsq.protocol.schema import FIELDS, key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ampsq.base.log_positions import Id, RunEnd, RunKey
    from ampsq.protocol.replies import RawHash
    from ampsq.protocol.request import Call

__all__ = ["PositionChange", "change_position", "read_position", "replace_position"]

_FLOOR: Final = "floor"
_AT: Final = "at "
_BEYOND: Final = "beyond "
_OF: Final = "of "
_HAD: Final = "had "
#: Names that one call writes down or removes, so that none takes long.
_TOGETHER: Final = 1_000


class PositionChange(Protocol):
    """The news of a subscription's place; see `ampsq.topics.bookmark_store.BookmarkUpdate`."""

    @property
    def topics(self) -> Mapping[str, Id]:
        """Topic -> the last ID of the place."""

    @property
    def beyond(self) -> Sequence[tuple[str, str]]:
        """Topic and ID of what was handled behind the place."""

    @property
    def reached(self) -> Sequence[tuple[str, str]]:
        """The messages of `beyond` that the place has come to."""

    @property
    def passed(self) -> Mapping[tuple[str, str], Id]:
        """Topic and origin -> the last ID there that is before the place."""

    @property
    def had(self) -> Mapping[RunKey, RunEnd]:
        """Runs of named publishers' numbers."""

    @property
    def gone(self) -> Sequence[RunKey]:
        """The runs that are there no more."""


def read_position(instance: str, subscription: str) -> Call[StoredPosition | None]:
    """Read a durable subscription's place; None where none was written down."""
    return command(["HGETALL", key(instance, "bookmarks", subscription)], _position)


def _position(reply: RawHash) -> StoredPosition | None:
    found = texts(reply)
    if _FLOOR not in found:
        return None
    topics = {what[len(_AT) :]: parse_id(text) for what, text in found.items() if what.startswith(_AT)}
    beyond = frozenset(_two(what) for what in found if what.startswith(_BEYOND))
    passed = {_two(what): parse_id(text) for what, text in found.items() if what.startswith(_OF)}
    had = {_run(what): _run_end(text) for what, text in found.items() if what.startswith(_HAD)}
    return StoredPosition(parse_id(found[_FLOOR]), topics, beyond, passed, had)


async def replace_position(instance: str, subscription: str, session: int, kept: StoredPosition) -> None:
    """Write a subscription's place in the stead of all that was written down."""
    fields = [
        (_FLOOR, id_text(kept.floor)),
        *_fields(kept.topics, kept.passed, kept.had),
        *((f"{_BEYOND}{topic} {text}", "") for topic, text in kept.beyond),
    ]
    await _note(subscription, session, fields, ())
    # Only now, so that at no moment nothing is kept.
    stale = set(await _names(instance, subscription)).difference(dict(fields), [FIELDS["session"]])
    await _note(subscription, session, (), sorted(stale))


async def change_position(subscription: str, session: int, change: PositionChange) -> None:
    """Write what is new of a subscription's place."""
    fields = _fields(change.topics, change.passed, change.had)
    fields += [(f"{_BEYOND}{topic} {text}", "") for topic, text in change.beyond]
    # What is reached is removed last: what is written twice does no harm.
    reached = [f"{_BEYOND}{topic} {text}" for topic, text in change.reached]
    await _note(subscription, session, fields, reached + [_run_field(run) for run in change.gone])


def _names(instance: str, subscription: str) -> Call[list[str]]:
    return command(["HKEYS", key(instance, "bookmarks", subscription)], names)


def _fields(
    topics: Mapping[str, Id], passed: Mapping[tuple[str, str], Id], had: Mapping[RunKey, RunEnd]
) -> list[tuple[str, str]]:
    fields = [(_AT + topic, id_text(last)) for topic, last in topics.items()]
    fields += [(f"{_OF}{topic} {origin}", id_text(last)) for (topic, origin), last in passed.items()]
    return fields + [(_run_field(run), f"{last} {recorded}") for run, (last, recorded) in had.items()]


async def _note(subscription: str, session: int, kept: Sequence[tuple[str, str]], reached: Sequence[str]) -> None:
    """Write names and values, then remove names; in calls that are all short, and mostly one."""
    while kept or reached:
        some, gone = kept[:_TOGETHER], reached[: max(_TOGETHER - len(kept), 0)]
        await note_place(subscription, session, some, gone)
        kept, reached = kept[len(some) :], reached[len(gone) :]


def _two(text: str) -> tuple[str, str]:
    _, topic, stream_id = text.split(" ")
    return topic, stream_id


def _run_field(run: RunKey) -> str:
    topic, publisher, origin, first = run
    # Only the publisher's name may have spaces.
    return f"{_HAD}{topic} {origin} {first} {publisher}"


def _run(text: str) -> RunKey:
    _, topic, origin, first, publisher = text.split(" ", 4)
    return topic, publisher, origin, int(first)


def _run_end(text: str) -> RunEnd:
    last, _, recorded = text.partition(" ")
    return int(last), int(recorded)
