"""Streams that a trigger of an action reads, by its word, so that no model of a definition is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampsq.protocol.calls.catalog import Catalog

__all__ = ["AnyTrigger", "FollowedStream", "SourceKind", "followed_streams", "track_name"]

SourceKind: TypeAlias = Literal["journal", "log", "deliveries", "happenings", "overdue", "clock"]


class AnyTrigger(Protocol):
    """A trigger, as its model or as it is stored."""

    @property
    def word(self) -> str:
        """Word by which files call it."""

    @property
    def id(self) -> str:
        """Kind of the trigger and what it is about."""

    @property
    def about(self) -> str | None:
        """The topic or queue, or the regular expression of such."""

    @property
    def is_pattern(self) -> bool:
        """Return whether it is about a regular expression of names."""

    def follows(self, name: str) -> bool:
        """Say whether it is about the topic or queue of this name."""


class FollowedStream(NamedTuple):
    """One stream that a trigger follows; the attributes are those of `ActionSource`."""

    name: str
    kind: SourceKind
    of: str


def followed_streams(trigger: AnyTrigger, catalog: Catalog) -> Iterator[FollowedStream]:
    """Give the streams that a trigger follows now; a ``timeout`` follows none by itself."""
    if trigger.word == "timeout":
        return
    if trigger.word == "schedule":
        yield FollowedStream(trigger.id, "clock", "")
    elif trigger.word in ("expire", "delete"):
        yield FollowedStream(trigger.id, "journal", trigger.about or "")
    elif trigger.word in ("deliver", "publish"):
        kind: SourceKind = "deliveries" if trigger.word == "deliver" else "log"
        names = catalog.queues if kind == "deliveries" else catalog.topics
        behind = f" {trigger.about}" if trigger.is_pattern else ""
        for name in sorted(names):
            if trigger.follows(name):
                yield FollowedStream(f"{trigger.word} {name}{behind}", kind, name)
    else:
        yield FollowedStream(trigger.id, "happenings", "")


def track_name(topic: str) -> str:
    """Under which name an action keeps its place in the log of a topic whose messages it times."""
    return f"track {topic}"
