"""The definition of a conflated topic: a topic under another name, of whose changes only the latest are handed out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ampsq.definitions.definition import Definition, Fault, Name
from ampsq.definitions.elements import (  # noqa: TC001  (pydantic reads them)
    Delay,
    Filter,
    Identifiers,
)
from ampsq.values import Interval, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["ConflatedTopic"]

# For a type checker, what is not given fits every type.
_NOT_GIVEN: Any = None
_NOTHING: Any = ()
_SECOND: Any = Interval(1_000)


class ConflatedTopic(Definition):
    """A name for a topic under which its subscribers get, of what changes one record, only the latest of each interval.

    It records nothing: `subscribe` of it is one of the underlying topic with `conflation` and `conflation_key`, and
    `sow` of it a query there (docs/slow-clients.md). It takes no bookmark, and nothing is published to it.

    Attributes:
        name: what subscribers subscribe to; the name of no topic, queue or view.
        underlying_topic: the topic. Required.
        interval: for how long changes of a key are gathered, from the first one that was not handed out; 1ms or longer.
            Default: 1s.
        key: identifiers that make messages versions of one record. Default: the `key` of the topic, which needs one.
        filter: an expression over the body; only messages that match it. Default: all.
    """

    underlying_topic: Name = _NOT_GIVEN
    interval: Delay = _SECOND
    key: Identifiers = _NOTHING
    filter: Filter | None = None

    def filter_with(self, text: str | None) -> str | None:
        """Its filter and that of a subscription or a query."""
        if text is None or self.filter is None:
            return text or self.filter
        return f"({self.filter}) AND ({text})"

    @property
    def options(self) -> dict[str, Any]:
        """What a subscription to the topic is asked for."""
        return {"conflation": self.interval.text, **({"conflation_key": list(self.key)} if self.key else {})}

    @classmethod
    def _conflicts(cls, given: Mapping[str, Any]) -> Iterator[Fault]:
        if "underlying_topic" not in given:
            yield Fault("underlying_topic", "missing; allowed: the name of a topic")
        elif given["underlying_topic"] == given.get("name"):
            yield Fault("underlying_topic", f"{shown(given['name'])} is its own name; allowed: the name of a topic")
        if str(given.get("interval", "")).strip() in ("0", "0s", "0ms"):
            yield Fault("interval", f"{shown(given['interval'])} gathers nothing; allowed: 1ms or longer")
