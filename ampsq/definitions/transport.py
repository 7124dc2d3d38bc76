"""The definition of a transport: what limits the clients have that use it; `*` is the instance itself."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BeforeValidator, PlainSerializer, PlainValidator

from ampsq.base.errors import DefinitionError
from ampsq.base.values import Interval, parse_count, parse_size, parse_transport, shown
from ampsq.definitions.definition import Definition

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = ["Transport"]

_LEAST_SIZE: Final = 65_536
_LEAST_AGE: Final = Interval(1_000)
_MOST_PERCENT: Final = 100


def _size(value: object) -> int:
    size = parse_size(value)
    if size < _LEAST_SIZE:
        raise DefinitionError(f"{shown(value)} is too small; allowed: 64KB or more, as in '1GB'")
    return size


def _path(value: object) -> str:
    if not isinstance(value, str) or not PurePath(value).is_absolute():
        raise DefinitionError(f"{shown(value)} is no folder; allowed: an absolute path, as in '/var/tmp'")
    return value


def _percent(value: object) -> int:
    allowed = "1% to 100%"
    percent = parse_count(value.strip().removesuffix("%") if isinstance(value, str) else value, allowed)
    if not 1 <= percent <= _MOST_PERCENT:
        raise DefinitionError(f"{shown(value)} is no share; allowed: {allowed}")
    return percent


def _age(value: object) -> Interval:
    age = Interval.parse(value)
    if age < _LEAST_AGE:
        raise DefinitionError(
            f"{shown(value)} is too short: it is looked about once a second; allowed: {_LEAST_AGE.text} or longer"
        )
    return age


Size = Annotated[int, BeforeValidator(_size)]
Path = Annotated[str, BeforeValidator(_path)]
Share = Annotated[int, BeforeValidator(_percent)]
TransportName = Annotated[str, BeforeValidator(parse_transport)]

if TYPE_CHECKING:

    class Age:
        """An age as a type checker knows it: read as an interval, but written in any form of one."""

        def __get__(self, instance: object, owner: type) -> Interval | None: ...
        def __set__(self, instance: object, value: Interval | timedelta | float | str | None) -> None: ...

else:
    Age = Annotated[
        Interval,
        PlainValidator(_age),
        PlainSerializer(lambda age: None if age is None else age.text, when_used="json"),
    ]

# For a type checker, what is not given fits every type.
_NOT_GIVEN: Any = None


class Transport(Definition):
    """Limits of the topic subscriptions of clients that name this transport; see docs/slow-clients.md.

    Attributes:
        name: 1 to 255 of ``A-Z a-z 0-9 _ . / -``; or ``*``, the instance, whose values count for every transport that
            does not give them, and for clients that name none.
        message_memory_limit: bytes of the logs, about, that subscriptions may be behind, all together, 64KB or more;
            beyond it the one that uses most is offlined: its messages go to a file of its client. A transport that
            gives it has a pool of its own. Default: no limit.
        message_disk_limit: bytes of such files, all together, 64KB or more; beyond it the subscription that uses most
            is disconnected. A transport that gives it has a pool of its own. Default: no limit.
        message_disk_path: where clients make the files; default their temporary directory.
        client_max_capacity: percent of a limit that one subscription may use: of the memory limit before it is
            offlined, of the disk limit after. Default: 100.
        client_message_age_limit: how long a subscription may not take a message, 1s or longer; then it is
            disconnected. Default: no limit.
    """

    name: TransportName
    message_memory_limit: Size | None = None
    message_disk_limit: Size | None = None
    message_disk_path: Path | None = None
    client_max_capacity: Share | None = None
    client_message_age_limit: Age = _NOT_GIVEN

    @property
    def limits(self) -> str:
        """As the scripts take them: memory, disk, percent, age in ms; ``-`` for what is not given."""
        values = (
            self.message_memory_limit, self.message_disk_limit, self.client_max_capacity, self.client_message_age_limit,
        )  # fmt: skip
        return " ".join("-" if value is None else str(int(value)) for value in values)
