"""One event of an action while it is worked on: its variables, and what texts become with them."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Self, TypedDict

from ampsq.definitions.action_parts import VARIABLE
from ampsq.protocol.entries import group_in
from ampsq.queues.dead_letters import embedded, embedded_text
from ampsq.queues.returns import CameBack, last_reason, read_returns

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "CONDITIONS",
    "ActionEvent",
    "EventFacts",
    "JournalFacts",
    "always",
    "dead_letter_body",
    "iso_time",
    "rendered",
]

#: The step of an event whose conditions are still to be looked at.
CONDITIONS: Final = -1


class JournalFacts(TypedDict):
    """The journal's facts about a message that a queue gave up."""

    reason: str
    consumer_reason: str
    attempts: str
    history: str


class EventFacts(TypedDict):
    """An event as `ActionEvent.to_json` keeps it; see its attributes."""

    source: str
    number: int
    step: int
    variables: dict[str, str]
    headers: str
    letter: str | None


@dataclass(slots=True)
class ActionEvent:
    """One event.

    Attributes:
        source: the source that it is of.
        number: its sequence there.
        variables: their values, byte by byte.
        headers: what its message was published with; JSON, or empty.
        letter: what is published where a step says nothing else; None: ``AMPS_DATA``.
        step: the step that is to be made next; those before it are done.
    """

    source: str
    number: int
    variables: dict[str, bytes]
    headers: bytes = b""
    letter: bytes | None = None
    step: int = CONDITIONS

    def text(self, template: str) -> bytes:
        """A text of the action with this event's variables in it."""
        return rendered(template, self.variables)

    def body(self, data: str | None) -> bytes:
        """Return the body that a step publishes."""
        if data is not None:
            return self.text(data)
        return self.letter if self.letter is not None else self.variables.get("AMPS_DATA", b"")

    def to_json(self, **known: object) -> bytes:
        """Return the event as it is kept among those that failed, with what else is known of it."""
        facts = {
            "source": self.source,
            "number": self.number,
            "step": self.step,
            "variables": {name: _text(value) for name, value in self.variables.items()},
            "headers": _text(self.headers),
            "letter": None if self.letter is None else _text(self.letter),
            **known,
        }
        return json.dumps(facts, separators=(",", ":")).encode()

    @classmethod
    def from_facts(cls, facts: EventFacts) -> Self:
        """Make the event from what `to_json` kept."""
        return cls(
            facts["source"],
            facts["number"],
            {name: _bytes(value) for name, value in facts["variables"].items()},
            _bytes(facts["headers"]),
            None if facts["letter"] is None else _bytes(facts["letter"]),
            facts["step"],
        )


def rendered(template: str, variables: dict[str, bytes]) -> bytes:
    """Put variables into a text. What is no variable's name becomes nothing; ``AMPS_BYTE_0A`` is that byte."""
    return VARIABLE.sub(lambda found: _value(found[1].decode(), variables), template.encode())


def _value(name: str, variables: dict[str, bytes]) -> bytes:
    if name in variables:
        return variables[name]
    prefix, _, digits = name.rpartition("_")
    if prefix == "AMPS_BYTE" and len(digits) == 2:  # noqa: PLR2004
        try:
            return bytes.fromhex(digits)
        except ValueError:
            return b""
    return b""


def always(instance: str) -> dict[str, bytes]:
    """The variables that every event has."""
    now = time.time()
    at = datetime.fromtimestamp(now, UTC)
    return {
        "AMPS_INSTANCE_NAME": instance.encode(),
        "AMPS_DATETIME": at.strftime("%Y%m%dT%H%M%S.%fZ").encode(),
        "AMPS_UNIX_TIMESTAMP": b"%d" % int(now),
    }


def iso_time(milliseconds: int | str) -> str:
    """A time as people and programs read it: ISO-8601, UTC."""
    at = datetime.fromtimestamp(int(milliseconds) / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def _bytes(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")


def dead_letter_body(
    queue: str, topic: str, bookmark: bytes, facts: JournalFacts, fields: Mapping[bytes, bytes]
) -> bytes:
    """Write a dead letter: a JSON object whose last member is the original.

    Args:
        queue: the queue that gave it up.
        topic: where it was published.
        bookmark: of the original.
        facts: reason, consumer_reason, attempts and history, as the journal has them.
        fields: the original's log entry; empty: it is gone.
    """
    deliveries, _, cancels = str(facts["attempts"]).partition(":")
    returns = read_returns(facts["history"])
    said: dict[str, object] = {
        "queue": queue,
        "topic": topic,
        "bookmark": bookmark.decode(),
        "reason": facts["reason"],
        "deliveries": int(deliveries),
        "cancels": int(cancels or 0),
        "history": [_returned(each) for each in returns],
    }
    if consumer_reason := facts["consumer_reason"] or last_reason(returns):
        said["consumer_reason"] = consumer_reason
    if group := group_in(fields):
        said["group"] = embedded_text(group)
    if not fields:
        said["lost"] = True
    return json.dumps(said, separators=(",", ":"))[:-1].encode() + b',"message":' + embedded(fields) + b"}"


def _returned(each: CameBack) -> dict[str, str]:
    """Return when a message came back, why, and from whom."""
    # What follows the slash is the number of the client's request.
    who = each.client.rpartition("/")[0] or each.client
    found = {"came_back": iso_time(each.at), "cause": each.cause, "subscription": each.subscription, "client": who}
    return {**found, "consumer_reason": each.consumer_reason} if each.consumer_reason else found
