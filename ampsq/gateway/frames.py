"""The frames of WebSockets: what subscribers say, which these models check, and what they are told."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, TypeAdapter, ValidationError, WithJsonSchema

from ampsq.base.errors import AmpsqError, DefinitionError
from ampsq.base.values import Interval, shown
from ampsq.protocol.limits import REASON_LENGTH
from ampsq.queues.returns import checked_reason

__all__ = [
    "SENT",
    "Ack",
    "Cancel",
    "Expire",
    "Extend",
    "Handled",
    "Order",
    "Position",
    "read_handled",
    "read_order",
]

_Period: TypeAlias = Annotated[
    Any,
    PlainValidator(Interval.parse),
    WithJsonSchema({"type": ["string", "number"], "description": "an interval, as 30s, or seconds"}),
]
_Reason: TypeAlias = Annotated[
    Any,
    PlainValidator(checked_reason),
    WithJsonSchema({"type": "string", "maxLength": REASON_LENGTH, "description": "why, in one line"}),
]


class _Frame(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Body(_Frame):
    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["data"]}, {"required": ["base64"]}]})

    data: Any = Field(None, description="the body, where JSON can say it")
    base64: str = Field("", json_schema_extra={"contentEncoding": "base64"}, description="else its bytes")


# -- what subscribers say


class Ack(_Frame):
    """A message was processed."""

    do: Literal["ack"]
    id: int


class Cancel(_Frame):
    """A message goes back to its queue: at once, after a delay, or as the queue says."""

    do: Literal["cancel"]
    id: int
    delay: _Period | None = None
    reason: _Reason | None = None


class Expire(_Frame):
    """A message is removed unprocessed."""

    do: Literal["expire"]
    id: int
    reason: _Reason | None = None


class Extend(_Frame):
    """A message is held for a period from now on."""

    do: Literal["extend"]
    id: int
    period: _Period


class Handled(_Frame):
    """A message of a durable subscription was handled, perhaps with all that were pushed before it."""

    do: Literal["ack"]
    id: int
    up_to: bool = False


Order: TypeAlias = Ack | Cancel | Expire | Extend
_ORDERS: Final = TypeAdapter[Order](Annotated[Order, Field(discriminator="do")])


def read_order(given: Any) -> Order:
    """Read an order of a queue's subscriber.

    Raises:
        DefinitionError: it is no order.
    """
    try:
        return _ORDERS.validate_python(given)
    except ValidationError as error:
        raise _refusal(
            error,
            f'{shown(given)}: allowed is {{"do": "ack", "id": 1}}, or "cancel" with "delay", "expire", both perhaps '
            'with "reason", and "extend" with "period"',
        ) from None


def read_handled(given: Any) -> Handled:
    """Read an order of a durable subscription's subscriber.

    Raises:
        DefinitionError: it is no such order.
    """
    try:
        return Handled.model_validate(given)
    except ValidationError as error:
        raise _refusal(
            error,
            f'{shown(given)}: allowed is {{"do": "ack", "id": 1}}, or with "up_to": true for all up to this one',
        ) from None


def _refusal(error: ValidationError, allowed: str) -> AmpsqError:
    """Return the error of a value's own check, where the order is one; else one that names the allowed orders."""
    said = [(fault.get("ctx") or {}).get("error") for fault in error.errors(include_url=False)]
    return next((each for each in said if isinstance(each, AmpsqError)), DefinitionError(allowed))


# -- what they are told


class Subscribed(_Frame):
    """The subscription has begun; at most so many messages are unacknowledged."""

    type: Literal["subscribed"]
    max_backlog: int


class Leased(_Body):
    """A message of a queue, leased; a barrier has no lease, and its id is nothing that could be settled."""

    type: Literal["message", "barrier"]
    id: int
    queue: str
    topic: str
    bookmark: str
    delivery: int
    headers: dict[str, str]
    group: str = Field("", description="its group, where it is in one")
    group_begins: bool = Field(False, description="its group was bound to another subscription before, or to none")


class Delivered(_Body):
    """A message of a topic."""

    type: Literal["message"]
    topic: str
    bookmark: str | None
    headers: dict[str, str]
    key: str = ""
    reason: str = ""


class ToHandle(Delivered):
    """A message of a durable subscription, to be told as handled by its id."""

    id: int


class Position(_Frame):
    """The position of a subscription to a topic of all partitions: another one that begins there misses nothing."""

    type: Literal["position"]
    position: str


class Record(_Body):
    """A record as the query found it, or as it has become."""

    type: Literal["sow", "publish"]
    topic: str
    bookmark: str | None
    headers: dict[str, str]
    key: str = ""


class OutOfFocus(_Frame):
    """A record that left the view; what it was is told to those whose rights have no filter."""

    type: Literal["oof"]
    topic: str
    bookmark: str | None
    key: str = ""
    reason: str = ""
    headers: dict[str, str] = Field(default_factory=dict)
    data: Any = None
    base64: str = Field("", json_schema_extra={"contentEncoding": "base64"})


class Settled(_Frame):
    """The order of this id is done."""

    type: Literal["settled"]
    do: Literal["ack", "cancel", "expire", "extend"]
    id: int


class Completed(_Frame):
    """The range that was asked for has ended."""

    type: Literal["completed"]
    topic: str = ""


class Refused(_Frame):
    """An order that is wrong, with the id that it named; or, without an id, why the subscription ends."""

    type: Literal["error"]
    error: str
    text: str
    id: int | None = None


SENT: Final[dict[str, tuple[type[BaseModel], ...]]] = {
    "queue": (Subscribed, Leased, Settled, Refused),
    "topic": (Delivered, Position, Completed, Refused),
    "durable": (Subscribed, ToHandle, Settled, Completed, Refused),
    "records": (Record, OutOfFocus, Refused),
}
"""Frames that are sent over each channel."""
