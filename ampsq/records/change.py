"""Changes that a subscription to records gives: a record that came, changed, or went out of focus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ampsq.base.message_types import JSON
from ampsq.protocol.encoding import decode_body
from ampsq.queues.query import SowMessage

if TYPE_CHECKING:
    from ampsq.base.message_types import MessageType

__all__ = ["RecordChange", "as_change"]


Command: TypeAlias = Literal["sow", "publish", "oof"]
Reason: TypeAlias = Literal["", "deleted", "expired", "match"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RecordChange(SowMessage):
    """A record given by a `RecordSubscription`, or the news that one left its view.

    Attributes:
        command: ``sow``: a record as the query found it; ``publish``: one that came or changed; ``oof``: out of focus:
            one that was given is not in view any more.
        reason: why it is out of focus: ``deleted``, ``expired``, or ``match``: it does not match the filter any more.
            "" of others.
        raw: of ``oof`` by ``match`` the message that does not match; of the other two empty.
        bookmark: of the message, or of the entry of the log that told the end.
    """

    command: Command = "sow"
    reason: Reason = ""

    @property
    def data(self) -> Any:
        """The body decoded by its message type, or the bytes as they are if they are not of it; None without a body."""
        return decode_body(self.raw, self._type) if self.raw or self.command != "oof" else None

    def __repr__(self) -> str:
        what = f"{self.command} {self.reason}".strip()
        return f"<RecordChange {what} {self.key!r}: {self.bookmark}>"


def as_change(message: SowMessage, command: Command, reason: Reason = "", type: MessageType = JSON) -> RecordChange:  # noqa: A002
    """Make it of a message; `type` is that of the topic."""
    facts = message.raw, message.topic, message.bookmark, message.headers, message.deliveries, message.key
    return RecordChange(*facts, type, command, reason)
