"""Values that Python has and JSON has not: published as pydantic writes them: models, dataclasses, times, UUIDs."""

from __future__ import annotations

import dataclasses
import enum
import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import msgpack
import pydantic
import pytest

from ampsq import MessageType, Queue, Topic
from ampsq.base.errors import DefinitionError

ID = UUID("12345678-1234-5678-1234-567812345678")
NOON = datetime(2026, 11, 24, 12, 0, tzinfo=UTC)
JSON, MSGPACK, NVFIX = (MessageType.parse(name) for name in ("json", "msgpack", "nvfix"))


class Side(enum.Enum):
    BUY = "buy"


class Level(enum.IntEnum):
    HIGH = 3


class Line(pydantic.BaseModel):
    part: UUID
    price: Decimal


class Order(pydantic.BaseModel):
    id: int = pydantic.Field(alias="orderId")
    lines: list[Line]
    tags: set[str] = set()


@dataclasses.dataclass
class Trade:
    symbol: str
    at: datetime
    side: Side
    line: Line


@pydantic.dataclasses.dataclass
class Checked:
    at: date


LINE = Line(part=ID, price=Decimal("12.50"))
TRADE = Trade("IBM", NOON, Side.BUY, LINE)
LINE_AS_JSON = {"part": str(ID), "price": "12.50"}


@pytest.mark.parametrize(
    ("data", "meant"),
    [
        (NOON, "2026-11-24T12:00:00Z"),
        (datetime(2026, 11, 24, 12, 0), "2026-11-24T12:00:00"),  # noqa: DTZ001 - without a zone
        (date(2026, 11, 24), "2026-11-24"),
        (time(12, 30), "12:30:00"),
        (timedelta(minutes=1.5), "PT1M30S"),
        (ID, str(ID)),
        (Decimal("0.10"), "0.10"),
        (Side.BUY, "buy"),
        (Level.HIGH, 3),
        (LINE, LINE_AS_JSON),
        (Order(orderId=7, lines=[LINE], tags={"a"}), {"orderId": 7, "lines": [LINE_AS_JSON], "tags": ["a"]}),
        (TRADE, {"symbol": "IBM", "at": "2026-11-24T12:00:00Z", "side": "buy", "line": LINE_AS_JSON}),
        (Checked(date(2026, 1, 2)), {"at": "2026-01-02"}),
        ({"orders": [LINE, 1], "at": NOON}, {"orders": [LINE_AS_JSON, 1], "at": "2026-11-24T12:00:00Z"}),
    ],
)
def test_json_has_them_as_pydantic_writes_them(data, meant):
    assert json.loads(JSON.encode(data)) == meant


def test_messagepack_keeps_bytes_and_times_with_a_zone_and_writes_the_rest_as_json_does():
    class Image(pydantic.BaseModel):
        pixels: bytes
        taken: datetime
        price: Decimal
        tags: set[str]

    image = Image(pixels=b"\xff\x00", taken=NOON, price=Decimal("1.5"), tags={"a"})

    for data in (image, {"nested": [image]}):
        read = msgpack.unpackb(MSGPACK.encode(data), timestamp=3)
        found = read if data is image else read["nested"][0]
        assert found == {"pixels": b"\xff\x00", "taken": NOON, "price": "1.5", "tags": ["a"]}
    written = {"symbol": "IBM", "at": NOON, "side": "buy", "line": LINE_AS_JSON}
    assert msgpack.unpackb(MSGPACK.encode(TRADE), timestamp=3) == written


def test_fields_have_them_as_text():
    @dataclasses.dataclass
    class Fill:
        symbol: str
        at: datetime
        id: UUID
        price: Decimal
        side: Side

    body = NVFIX.encode(Fill("IBM", NOON, ID, Decimal("1.50"), Side.BUY))

    assert NVFIX.decode(body) == {
        "symbol": "IBM",
        "at": "2026-11-24T12:00:00Z",
        "id": str(ID),
        "price": "1.50",
        "side": "buy",
    }


@pytest.mark.parametrize("data", [object(), {1, 2}, Side, Line, {"a": Trade}, complex(1, 2), b"a".__iter__()])
@pytest.mark.parametrize("message_type", [JSON, NVFIX])
def test_what_is_none_of_them_is_refused(data, message_type):
    with pytest.raises(DefinitionError, match=r"allowed: (texts, )?bytes"):
        message_type.encode(data)


def test_not_a_number_within_a_model_is_refused_as_elsewhere():
    class Price(pydantic.BaseModel):
        value: float

    with pytest.raises(DefinitionError, match="cannot be published"):
        JSON.encode(Price(value=float("nan")))


def test_a_model_is_one_message_and_not_the_list_of_its_fields(client):
    with pytest.raises(DefinitionError, match="one: publish"):
        client.publish_many("orders", LINE)


def test_a_published_model_is_read_by_filters_and_delivered(client):
    # Given a queue whose filter reads a Decimal and an enum
    client.apply(
        Topic(name="trades"),
        Queue(name="work", underlying_topic="trades", filter="/line/price > 12", max_per_subscription_backlog=9),
    )
    # When models are published, one by one and many at once
    client.publish("trades", TRADE)
    client.publish_many(
        "trades", [dataclasses.replace(TRADE, line=Line(part=ID, price=Decimal(price))) for price in (1, 13)]
    )
    # Then the filter has compared the numbers that they spell
    with client.subscribe("work", max_backlog=9) as messages:
        assert [messages.get(timeout="10s").data["line"]["price"] for _ in range(2)] == ["12.50", "13"]
        assert messages.get(0) is None
