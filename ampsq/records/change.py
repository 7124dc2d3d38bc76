"""What a subscription to records gives: a record that came, changed, or went out of focus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ampsq.base.message_types import JSON
from ampsq.queues.query import SowMessage

if TYPE_CHECKING:
    from ampsq.base.message_types import MessageType

__all__ = ["RecordChange"]


Command: TypeAlias = Literal["sow", "publish", "oof"]
Reason: TypeAlias = Literal["", "deleted", "expired", "match"]


class RecordChange(SowMessage):
    """What a `RecordSubscription` gives: a record, or that one left its view.

    Attributes:
        command: ``sow``: a record as the query found it; ``publish``: one that came or changed; ``oof``: out of focus:
            one that was given is not in view any more.
        reason: why it is out of focus: ``deleted``, ``expired``, or ``match``: it does not match the filter any more.
            "" of others.
        raw: of ``oof`` by ``match`` the message that does not match; of the other two empty.
        bookmark: of the message, or of the entry of the log that told the end.
    """

    __slots__ = ("command", "reason")

    def __init__(
        self,
        message: SowMessage,
        command: Command,
        reason: Reason = "",
        *,
        type: MessageType = JSON,  # noqa: A002
    ) -> None:
        super().__init__(
            message.raw,
            message.topic,
            message.bookmark,
            message.headers,
            message.deliveries,
            key=message.key,
            type=type,
        )
        self.command = command
        self.reason = reason

    @property
    def data(self) -> Any:
        """The body decoded by its message type, or the bytes as they are if they are not of it; None without a body."""
        return super().data if self.raw or self.command != "oof" else None

    def __repr__(self) -> str:
        what = f"{self.command} {self.reason}".strip()
        return f"<RecordChange {what} {self.key!r}: {self.bookmark}>"
