"""Message types of topics and queues: what is published, chosen by filters and read again."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

import ampsq
from ampsq import Action, Queue, Topic
from ampsq.base.errors import BinaryMessages, DefinitionError, DeltaNotJson, MessageTypeFixed, MissingKey
from ampsq.definitions.queue import View
from ampsq.files.config import load

ORDER = {"symbol": "IBM", "price": 120.5, "qty": 200, "legs": [{"qty": 50}, {"qty": 2**60 + 1}]}
FIX = {"35": "D", "55": "IBM", "44": 120.5, "38": 200, "448": ["A", "B"]}
READ = {"35": "D", "55": "IBM", "44": "120.5", "38": "200", "448": ["A", "B"]}
NAMED = {"symbol": "IBM", "price": 120.5, "qty": 200}
#: Type, what is published, what is read, and fields: symbol, price.
TYPES = [
    ("json", ORDER, ORDER, "/symbol", "/price"),
    ("msgpack", ORDER, ORDER, "/symbol", "/price"),
    ("fix", FIX, READ, "/55", "/44"),
    ("nvfix", NAMED, {"symbol": "IBM", "price": "120.5", "qty": "200"}, "/symbol", "/price"),
]
ROOM = {"underlying_topic": "orders", "max_per_subscription_backlog": 10}


def define(client, message_type, *queues, **elements):
    client.apply(Topic(name="orders", message_type=message_type, **elements))
    client.apply(*(Queue(message_type=message_type, **{**ROOM, **elements, **each}) for each in queues))


@pytest.mark.parametrize(("message_type", "data", "read", "symbol", "price"), TYPES)
def test_what_is_published_is_encoded_chosen_and_decoded_by_its_type(client, message_type, data, read, symbol, price):  # noqa: PLR0917
    define(
        client, message_type,
        {"name": "plain"}, {"name": "dear", "filter": f"{price} > 100"}, {"name": "urgent", "priority": price},
        {"name": "day", "barrier_expression": f"{symbol} = 'END'"},
    )  # fmt: skip
    cheap, end = ({**data, symbol[1:]: name, price[1:]: 9} for name in ("MS", "END"))

    client.publish("orders", cheap)
    client.publish_many("orders", [data, end])

    with client.subscribe("plain", max_backlog=10, filter=f"{symbol} = 'IBM'") as messages:
        message = messages.get(timeout=30)
        assert (message.data, message.message_type, messages.get(timeout=0)) == (read, message_type, None)
        # Replaced, it is judged by the client as by the server.
        messages.replace(filter=f"{symbol} = 'MS'")
        assert messages.get(timeout=30).data[symbol[1:]] == "MS"
    with client.subscribe("dear", max_backlog=10) as messages:
        assert [messages.get(timeout=30).data, messages.get(timeout=0)] == [read, None]
    with client.subscribe("urgent", max_backlog=10) as messages:
        assert messages.get(timeout=30).data == read
    with client.subscribe("day", max_backlog=10) as messages:
        first = [messages.get(timeout=30) for _ in range(2)]
        assert not any(message.is_barrier for message in first)
        for message in first:
            message.ack(wait=True)
        assert messages.get(timeout=30).is_barrier
    found = client.sow("plain", f"{price} > 100", order_by=f"{price} DESC", top_n=5)
    assert [(message.data, message.message_type) for message in found] == [(read, message_type)]
    assert client.ack("plain", filter=f"{symbol} = 'IBM'") == 1


@pytest.mark.parametrize(("message_type", "data", "read", "symbol", "price"), TYPES)
def test_views_and_aggregates_read_every_type(client, message_type, data, read, symbol, price):  # noqa: PLR0917
    define(client, message_type, {"name": "work"})
    client.publish_many("orders", [data, data])

    for name in ("work", "orders"):
        with client.aggregate(name, [f"SUM({price}) AS /total", f"MAX({symbol}) AS /last"]) as rows:
            assert rows.get(timeout=30) == {"total": 241.0, "last": "IBM"}, (name, read)


def test_a_large_body_and_one_of_a_redelivery_keep_their_type(client):
    define(client, "msgpack", {"name": "work"})
    with client.subscribe("work", max_backlog=1) as messages:
        assert messages.get(timeout=0.2) is None
        client.publish("orders", {"text": "x" * 300_000})
        message = messages.get(timeout=30)
        assert (len(message.data["text"]), message.message_type) == (300_000, "msgpack")
        message.cancel()
        assert messages.get(timeout=30).data == message.data


def test_another_separator_is_of_topic_and_queue(client):
    define(client, "fix", {"name": "work", "filter": "/55 = 'IBM'"}, field_separator="|")
    client.publish("orders", b"35=D|55=IBM|448=A|448=B")
    with client.subscribe("work") as messages:
        assert messages.get(timeout=30).data == {"35": "D", "55": "IBM", "448": ["A", "B"]}
    with pytest.raises(
        DefinitionError, match=r"'orders' is fix separated by '\|', and the queue 'other' over it is fix"
    ):
        client.apply(Queue(name="other", message_type="fix", **ROOM))


def test_bytes_go_as_they_are_and_what_is_not_of_its_type_stays_bytes(client):
    define(client, "msgpack", {"name": "work", "filter": "TRUE_VALUE()"}, {"name": "all"})
    client.publish("orders", b"\xc1 no MessagePack")
    client.publish("orders", {"at": datetime(2026, 5, 1, tzinfo=UTC)})
    with client.subscribe("all", max_backlog=10) as messages:
        assert messages.get(timeout=30).data == b"\xc1 no MessagePack"
        assert messages.get(timeout=30).data == {"at": datetime(2026, 5, 1, tzinfo=UTC)}
    with client.subscribe("work") as messages:
        assert isinstance(messages.get(timeout=30).data, dict)


def test_binary_takes_bytes_and_no_filter(client):
    define(client, "binary", {"name": "work"})
    client.publish("orders", b"\x00\xff")
    with pytest.raises(DefinitionError, match=r"text\.encode\(\)"):
        client.publish("orders", "text")
    with client.subscribe("work") as messages:
        assert messages.get(timeout=30).data == b"\x00\xff"
        with pytest.raises(BinaryMessages):
            messages.replace(filter="/a = 1")
    for refused in (
        lambda: client.subscribe("work", filter="/a = 1"),
        lambda: client.sow("work", "/a = 1"),
        lambda: client.ack("work", filter="/a = 1"),
    ):
        with pytest.raises(BinaryMessages, match="no filter reads"):
            refused()
    for element in ("filter", "priority", "barrier_expression"):
        with pytest.raises(DefinitionError, match=f"{element}: reads the body, and message_type 'binary'"):
            Queue(name="q", message_type="binary", **{element: "/a = 1"})
    with pytest.raises(DefinitionError, match="'work' is binary, and a view reads bodies"):
        client.apply(View(name="rows", underlying_topic="work", projection=["COUNT(*) AS /n"]))


@pytest.mark.parametrize(
    ("message_type", "data", "reason"),
    [
        ("fix", "55=IBM", "a mapping with fields"),
        ("fix", {"symbol": "IBM"}, "is no tag of fix"),
        ("fix", {"55": None}, "cannot be a value of fix"),
        ("fix", {"55": "I\x01B"}, "without the separator"),
        ("nvfix", {"a=b": 1}, "is no name of a field"),
        ("nvfix", {}, "a mapping with fields"),
        ("nvfix", {"a": float("nan")}, "finite"),
        ("msgpack", {"a": object()}, "what MessagePack can say"),
        ("json", {"a": object()}, "what JSON can say"),
    ],
)
def test_data_that_a_type_cannot_say_are_refused(client, message_type, data, reason):
    define(client, message_type)
    with pytest.raises(DefinitionError, match=reason):
        client.publish("orders", data)
    assert client.admin.topics()["orders"].messages == 0


def test_a_queue_has_the_type_of_its_topics(client):
    client.apply(Topic(name="orders", message_type="msgpack"))
    with pytest.raises(DefinitionError, match="the topic 'orders' is msgpack, and the queue 'work' over it is json"):
        client.apply(Queue(name="work", **ROOM))
    with pytest.raises(DefinitionError, match="the topic 'fresh' is fix, and the queue 'work'"):
        client.apply(
            Topic(name="fresh", message_type="fix"),
            Queue(name="work", underlying_topic="^fr", default_publish_target="fresh", message_type="msgpack"),
        )


def test_a_topic_that_is_made_for_a_queue_has_its_type(client):
    client.apply(Queue(name="work", message_type="msgpack"))
    client.publish("work", {"a": 1})
    with client.subscribe("work") as messages:
        assert messages.get(timeout=30).message_type == "msgpack"


def test_a_topic_of_first_use_is_json_and_not_taken_by_a_queue_of_another_type(client):
    client.apply(Queue(name="work", underlying_topic="^o", default_publish_target="orders", message_type="nvfix"))
    client.publish("first", {"a": 1})
    with pytest.raises(DefinitionError, match=r"define Topic\(name='others', message_type='nvfix'\) before its first"):
        client.publish("others", {"a": 1})
    assert "others" not in client.admin.topics()


def test_the_type_is_fixed_by_the_first_message(client):
    client.apply(Topic(name="orders"))
    assert client.admin.message_type("orders") == client.admin.message_type("nothing") == "json"
    client.apply(Topic(name="orders", message_type="fix"))
    assert client.admin.message_type("orders") == "fix"
    client.publish("orders", {"55": "IBM"})
    with pytest.raises(MessageTypeFixed, match="keep the type"):
        client.apply(Topic(name="orders", message_type="msgpack"))
    client.apply(Topic(name="orders", message_type="fix", retention_count=5))


@pytest.mark.usefixtures("coordinator")
def test_a_dead_letter_has_a_message_of_another_type_to_the_byte(client):
    define(client, "msgpack", {"name": "work"})
    client.apply(Queue(name="dead"), Action.dead_letter("work", "dead"))
    client.publish("orders", ORDER)
    with client.subscribe("work") as messages:
        message = messages.get(timeout=30)
        message.expire()
        with client.subscribe("dead") as letters:
            assert letters.get(timeout=30).data["message"].keys() == {"base64"}
        assert [letter.raw for letter in client.admin.dead_letters("dead")] == [message.raw]
        assert client.admin.redrive("dead") == 1
        assert messages.get(timeout=30).data == ORDER
    with pytest.raises(DefinitionError, match="dead letters are json"):
        client.apply(Action.dead_letter("work", "orders2"), Topic(name="orders2", message_type="msgpack"))


def test_the_asynchronous_client_does_the_same(client):
    async def main():
        async with ampsq.AsyncClient(client.url, instance=client.instance) as other:
            await other.apply(Topic(name="orders", message_type="fix"), Queue(name="work", message_type="fix", **ROOM))
            await other.publish("orders", {"55": "IBM"})
            await other.publish_many("orders", [{"55": "MS"}])
            async with await other.subscribe("work", filter="/55 = 'MS'") as messages:
                return (await messages.get(timeout=30)).data

    assert asyncio.run(main()) == {"55": "MS"}


@pytest.mark.usefixtures("coordinator")
def test_an_action_reads_a_message_by_its_type(client):
    define(client, "msgpack", {"name": "work"})
    client.apply(
        Queue(name="copies"),
        Action(
            name="copy",
            on={"publish": {"topic": "orders", "filter": "/qty > 100"}},
            **{"if": {"condition": "/symbol = 'IBM'"}},
            do=[{"extract": {"value": ["SYMBOL=/symbol"]}}, {"publish": {"topic": "copies", "data": '"{{SYMBOL}}"'}}],
        ),
    )
    client.publish_many("orders", [{**ORDER, "qty": 5}, {**ORDER, "symbol": "MS"}, ORDER])
    with client.subscribe("copies") as messages:
        assert messages.get(timeout=30).data == "IBM"


def test_the_page_on_message_types_is_right(client, capsys):
    page = (Path(__file__).parents[2] / "docs" / "message-types.md").read_text()
    (text,) = re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)
    (program,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    client.apply(*load(text))

    exec(program, {"client": client})  # noqa: S102 - our own page

    assert capsys.readouterr().out == "['A', 'B']\n"


@pytest.mark.parametrize(("message_type", "data", "read", "symbol", "price"), TYPES)
def test_records_are_kept_queried_followed_and_deleted_by_their_type(client, message_type, data, read, symbol, price):  # noqa: PLR0917
    client.apply(Topic(name="state", message_type=message_type, key=symbol))
    cheap = {**data, symbol[1:]: "MS", price[1:]: 9}
    before = client.publish("state", {**data, price[1:]: 101})
    client.publish_many("state", [cheap, data])

    (found,) = client.sow("state", f"{price} > 100", order_by=f"{price} DESC")
    assert (found.key, found.data, found.message_type) == ("IBM", read, message_type)
    assert [each.key for each in client.sow("state", order_by=f"{price} + 0")] == ["MS", "IBM"]
    (past,) = client.sow("state", f"{price} > 100", bookmark=before)
    assert past.data == {**read, price[1:]: type(read[price[1:]])(101)}
    with client.sow_and_subscribe("state", f"{price} > 100", oof=True) as changes:
        client.publish("state", {**cheap, price[1:]: 200})
        client.publish("state", {**data, price[1:]: 5})
        told = [changes.get("30s") for _ in range(3)]
        assert [(each.command, each.reason, each.key) for each in told] == [
            ("sow", "", "IBM"), ("publish", "", "MS"), ("oof", "match", "IBM"),
        ]  # fmt: skip
        assert told[0].data == read
        assert {each.message_type for each in told} == {message_type}
        assert client.sow_delete("state", data=cheap) == 1
        assert (gone := changes.get("30s")).reason == "deleted"
        assert (gone.key, gone.data) == ("MS", None)
    assert client.sow_delete("state", filter=f"{price} < 6") == 1
    assert client.sow("state") == []


@pytest.mark.parametrize("message_type", ["msgpack", "nvfix"])
def test_a_change_of_a_record_that_is_not_json_is_refused(client, message_type):
    client.apply(
        Topic(name="state", message_type=message_type, key="/id"), Topic(name="plain", message_type=message_type)
    )
    client.publish("state", {"id": 1, "v": 1})

    with pytest.raises(DeltaNotJson, match="publish the whole message"):
        client.delta_publish("state", {"id": 1, "v": 2})
    with pytest.raises(MissingKey):
        client.publish("state", b"\x00")

    assert [each.data["v"] for each in client.sow("state")] == [1 if message_type == "msgpack" else "1"]
    assert client.delta_publish("plain", {"id": 1}).topic == "plain"


def test_a_binary_topic_has_no_key(client):
    with pytest.raises(DefinitionError, match="key: reads the body") as refusal:
        client.apply(Topic(name="pictures", message_type="binary", key="/id"))

    assert "allowed: leave it out, or another message_type" in str(refusal.value)
