"""IDs under which messages are published, so that the same one is recorded once within a window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from ampsq.base.errors import DefinitionError
from ampsq.base.values import Interval, shown
from ampsq.protocol.encoding import are_messages
from ampsq.protocol.limits import DEDUPLICATION_ID_BYTES

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Iterable, Iterator
    from datetime import timedelta

__all__ = ["DeduplicationWindow"]

#: For how long an ID is known where nobody says.
_PERIOD: Final = "5m"
_ALLOWED: Final = f"allowed is a text of 1 to {DEDUPLICATION_ID_BYTES} bytes, as in 'invoice-17'"


@dataclass(frozen=True, slots=True)
class DeduplicationWindow:
    """The ID of a message, and for how long it is known once the message is recorded.

    Attributes:
        period: ms.
        id: of one message; "" where each has its own.
        id_of: gives the ID of each of many messages, or None for none.
    """

    period: int
    id: str = ""
    id_of: Callable[[Any], str | None] | None = None

    @classmethod
    def of(cls, deduplication_id: object, within: timedelta | float | str | None) -> Self | None:
        """Check what is said of one message; None where nothing is.

        Raises:
            DefinitionError: the ID is none, the window is none, or there is a window without an ID.
        """
        if deduplication_id is None:
            return cls._without_id(within)
        return cls(_period(within), _checked(deduplication_id))

    @classmethod
    def of_many(cls, deduplication_id: object, within: timedelta | float | str | None) -> Self | None:
        """The same of many messages, of which a function gives the ID of each."""
        if deduplication_id is None:
            return cls._without_id(within)
        if not callable(deduplication_id):
            raise DefinitionError(
                f"deduplication_id={shown(deduplication_id)}: allowed is a function that gives the ID of each message, "
                "as in lambda message: message['id']"
            )
        return cls(_period(within), id_of=deduplication_id)

    @classmethod
    def _without_id(cls, within: object) -> None:
        if within is not None:
            raise DefinitionError(f"within={shown(within)}: allowed only with a deduplication_id, which it is for")

    def noting(self, messages: Iterable[Any], ids: deque[str]) -> Iterable[Any]:
        """Give the messages as they are, and add the ID of each, "" for none, to `ids`."""
        # What is no list of messages is refused by whoever encodes them.
        if self.id_of is None or not are_messages(messages):
            return messages
        return self._noting(messages, ids, self.id_of)

    @staticmethod
    def _noting(messages: Iterable[Any], ids: deque[str], id_of: Callable[[Any], str | None]) -> Iterator[Any]:
        for message in messages:
            found = id_of(message)
            ids.append("" if found is None else _checked(found))
            yield message


def _period(within: timedelta | float | str | None) -> int:
    period = Interval.of_argument("within", _PERIOD if within is None else within)
    if period < 1:
        raise DefinitionError(f"within={shown(within)}: allowed is 1ms or longer")
    return int(period)


def _checked(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise DefinitionError(f"deduplication_id={shown(value)}: {_ALLOWED}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise DefinitionError(f"deduplication_id={shown(value)}: {_ALLOWED}") from error
    if size > DEDUPLICATION_ID_BYTES:
        raise DefinitionError(f"deduplication_id={shown(value)}: {_ALLOWED}")
    return value
