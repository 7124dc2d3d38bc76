"""Properties of a message besides its body: headers, lifetime, due time, group."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, Self

from ampsq.base.errors import DefinitionError
from ampsq.base.limits import limits
from ampsq.base.suggestions import unknown_argument
from ampsq.base.values import Interval, shown
from ampsq.protocol.calls.publish import DeliveryOptions
from ampsq.protocol.encoding import encode_headers
from ampsq.protocol.limits import LONGEST_GROUP

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

__all__ = ["BARE", "Envelope", "encode_group", "refuse_publish_arguments"]


class Envelope(NamedTuple):
    """The same for one message or for all of a batch.

    Attributes:
        headers: as they are recorded; empty without any.
        options: how long it lives, when it is due, and its group; None where nothing was said.
    """

    headers: bytes = b""
    options: DeliveryOptions | None = None

    @classmethod
    def of(
        cls,
        headers: Mapping[str, str] | None,
        expiration: timedelta | float | str | None,
        delay: timedelta | float | str | None,
        at: datetime | None,
        group: str | None = None,
    ) -> Self:
        """Check what a publisher says.

        Raises:
            DefinitionError: an argument is wrong, headers are beyond their limits, or both `delay` and `at` are given.
        """
        encoded = encode_headers(headers)
        if headers:
            limits().check_headers(headers, encoded)
        name = b"" if group is None else encode_group(group)
        if expiration is None and delay is None and at is None:
            return cls(encoded, DeliveryOptions(group=name) if name else None)
        if delay is not None and at is not None:
            raise DefinitionError(f"delay={shown(delay)} and at={shown(at)}: allowed is one of the two")
        life = None if expiration is None else Interval.of_argument("expiration", expiration)
        if life is not None and life < 1:
            raise DefinitionError(f"expiration={shown(expiration)}: allowed is 1ms or longer, or None for no limit")
        wait = None if delay is None else Interval.of_argument("delay", delay)
        return cls(encoded, DeliveryOptions(life, wait, None if at is None else _milliseconds(at), name))


BARE: Final = Envelope()
"""Nothing said: no headers, the queue's own expiration, due at once, the group that the queue says."""

#: What others' publishers take -> where it is said here.
_ELSEWHERE: Final = {
    "priority": "a queue says where a message's priority is: Queue(name='work', priority='/priority')",
    "key": "a topic says what a message's key is: Topic(name='orders', key='/id')",
    "ttl": "did you mean 'expiration'?",
    "message_type": "a topic says it: Topic(name='orders', message_type='msgpack')",
    "properties": "did you mean 'headers'?",
    "message_group": "did you mean 'group'?",
    "group_id": "did you mean 'group'?",
    "sequence": "a publisher with a name has it: client.publisher('till-4').publish(..., sequence=7)",
}
#: What clients take and publishers with a name do not.
_OF_CLIENTS: Final = dict.fromkeys(
    ("deduplication_id", "within"),
    "a publisher with a name records each of its messages once, but may send it later than any window lasts; by ID: "
    "client.publish(..., deduplication_id='order-1')",
)
_NOT_OF_DELTAS: Final = ("delay", "at", "group")


def refuse_publish_arguments(method: str, unknown: Mapping[str, object], *others: str) -> NoReturn:
    """Refuse arguments that publishing does not have, and say where what they mean is said.

    Args:
        method: that was called.
        unknown: what it does not have.
        others: what it has beside what all have.

    Raises:
        TypeError: always.
    """
    taken = ("headers", "expiration", *(_NOT_OF_DELTAS if "delta" not in method else ()), *others)
    elsewhere = _ELSEWHERE if "within" in others or "delta" in method else _ELSEWHERE | _OF_CLIENTS
    raise unknown_argument(method, unknown, taken, elsewhere)


def encode_group(group: object) -> bytes:
    """Encode the name of a group.

    Raises:
        DefinitionError: it is no text in UTF-8 without NUL, or too long.
    """
    if not isinstance(group, str):
        raise DefinitionError(f"group={shown(group)}: allowed is a text, or None for what the queue's group_by says")
    try:
        name = group.encode()
    except UnicodeEncodeError:
        name = b"\0"
    # A NUL ends a name inside the server.
    if b"\0" in name:
        raise DefinitionError(
            f"group={shown(group)}: allowed is a text in UTF-8 without NUL, of at most {LONGEST_GROUP} bytes"
        )
    if len(name) > LONGEST_GROUP:
        raise DefinitionError(f"group={shown(group)}: it has {len(name)} bytes; allowed are at most {LONGEST_GROUP}")
    return name


def _milliseconds(at: object) -> int:
    if not isinstance(at, datetime) or at.tzinfo is None:
        raise DefinitionError(
            f"at={shown(at)}: allowed is a datetime with a time zone, as in datetime(2026, 5, 1, 9, tzinfo=UTC)"
        )
    return max(round(at.timestamp() * 1000), 0)
