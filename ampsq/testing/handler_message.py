"""A message for the unit test of a handler: no server has it, and it notes what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ampsq.base.bookmarks import Bookmark, ref_of
from ampsq.base.errors import AlreadyAcked, DefinitionError
from ampsq.base.message_types import JSON, MessageType
from ampsq.base.values import Interval, parse_name
from ampsq.protocol.encoding import group_pair
from ampsq.publishing.envelope import encode_group
from ampsq.queues.message import MessageView, delivered_bookmark
from ampsq.queues.returns import checked_reason, report_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

__all__ = ["HandlerMessage", "message"]

_ID: Final = "1700000000000-0"


class HandlerMessage(MessageView):
    """A message as a handler sees it, which nobody delivered; made by `ampsq.testing.message`.

    Attributes:
        outcome: what became of it: ``acknowledged``, ``cancelled`` or ``expired``; "" while it is open.
        delay: of a cancel how long it is to stay away, ms; None: as its queue says.
        reason: why, as the handler said; None for nothing.
        extended: the periods, ms, for which the handler asked to hold it longer.
        reports: how far the handler said that it is, each as (done, text).
    """

    __slots__ = ("_headers", "delay", "extended", "outcome", "reason", "reports")

    def __init__(self, parts: list[bytes], body: bytes, headers: Mapping[str, str]) -> None:
        self._parts, self._body, self._headers = parts, body, dict(headers)
        self.settled, self.outcome = False, ""
        self.delay: int | None = None
        self.reason: str | None = None
        self.extended: list[int] = []
        self.reports: list[tuple[float, str]] = []

    @property
    def origin(self) -> str:
        """The instance that delivered it: ``test``."""
        return "test"

    @property
    def bookmark(self) -> Bookmark:
        """Public identity of the message."""
        return delivered_bookmark(self._parts, self.origin)

    @property
    def headers(self) -> dict[str, str]:
        """The headers that it was published with; empty when there were none."""
        return dict(self._headers)

    def ack(self, *, wait: bool = False) -> None:  # noqa: ARG002  (as `Message.ack`)
        """Note that it was processed; see `Message.ack`.

        Raises:
            AlreadyAcked: it was settled before.
        """
        self._settle("acknowledged", None)

    def cancel(self, delay: timedelta | float | str | None = None, *, reason: str | None = None) -> None:
        """Note that it was handed back; see `Message.cancel`.

        Raises:
            AlreadyAcked: it was settled before. DefinitionError: the reason is no line, or too long.
        """
        self._settle("cancelled", reason)
        self.delay = None if delay is None else int(Interval.parse(delay))

    def expire(self, *, reason: str | None = None) -> None:
        """Note that it was removed unprocessed; see `Message.expire`.

        Raises:
            AlreadyAcked: it was settled before. DefinitionError: the reason is no line, or too long.
        """
        self._settle("expired", reason)

    def extend(self, period: timedelta | float | str) -> None:
        """Note that it is to be held for `period` from now on; see `Message.extend`.

        Raises:
            AlreadyAcked: it was settled before.
        """
        self._check_open()
        self.extended.append(int(Interval.parse(period)))

    def report(self, done: float, text: str = "") -> None:
        """Note how far its processing is; see `Message.report`.

        Raises:
            AlreadyAcked: it was settled before.
            DefinitionError: `done` is no number from 0 to 1, or the text is no line, or too long.
        """
        report_text(done, text)
        self._check_open()
        self.reports.append((done, text))

    def _check_open(self) -> None:
        if self.settled:
            raise AlreadyAcked(queue=self.queue, bookmark=str(self.bookmark))

    def _settle(self, outcome: str, reason: str | None) -> None:
        self._check_open()
        self.reason = checked_reason(reason) or None
        self.settled, self.outcome = True, outcome


def message(
    data: object,
    *,
    queue: str = "work",
    topic: str | None = None,
    headers: Mapping[str, str] | None = None,
    delivery: int = 1,
    message_type: str = "json",
    group: str | None = None,
    group_begins: bool = False,
) -> HandlerMessage:
    """Make a message for a handler's unit test: the handler is called with it, and it notes what became of it.

    Args:
        data: what was published, or bytes, as of `Client.publish`.
        queue: the queue that it came from.
        topic: the topic that it was published to; default the queue's name.
        headers: those that it was published with.
        delivery: 1 the first time, 2 when it came back once; 0: it is a barrier.
        message_type: of the body.
        group: its group, of a queue with groups.
        group_begins: whether the group comes to the subscription now, of a queue with `group_affinity`.

    Raises:
        DefinitionError: a name is no name, a group none, the data is not of the type, or a group begins and none is
            given.
    """
    kind = MessageType.parse(message_type)
    place = ref_of(parse_name(topic if topic is not None else queue), _ID)
    word = b"b" if kind.name == JSON.name else kind.name.encode()
    parts = [parse_name(queue).encode(), b"test", b"%d" % delivery, b"0", word, place.encode()]
    if group_begins and not group:
        raise DefinitionError("group_begins=True: the message is in no group; allowed: with group, as in group='alice'")
    if group is not None and encode_group(group):
        parts.append(group_pair(group, begins=group_begins))
    return HandlerMessage(parts, kind.encode(data), headers or {})
