"""Conflated topics: a name under which of what changes a record only the latest of each interval is handed out."""

from __future__ import annotations

import asyncio
import time

import pytest
from scene import data_of, pick_up

from ampsq import AsyncClient, ConflatedTopic, Queue, Topic, View
from ampsq.base.errors import DefinitionError, UnknownQueue

SLOW = ConflatedTopic(name="slow", underlying_topic="trades", interval="400ms", filter="/i > 0")


def trade(symbol, number):
    return {"symbol": symbol, "i": number}


def test_its_subscribers_get_the_latest_of_each_key_in_an_interval_and_what_its_filter_lets_through(either):
    either.apply(Topic(name="trades", key="/symbol"), SLOW)
    with either.subscribe_topic("slow", filter="/symbol != 'C'") as messages:
        started = time.monotonic()
        either.publish_many("trades", [trade("A", 1), trade("B", 2), trade("A", 3), trade("A", 0), trade("C", 4)])
        assert data_of(pick_up(messages, 2)) == [trade("B", 2), trade("A", 3)]
        assert time.monotonic() - started >= 0.4
        assert messages.get("600ms") is None


def test_a_query_of_it_is_one_of_the_records_of_its_topic(either):
    either.apply(Topic(name="trades", key="/symbol"), SLOW)
    either.publish_many("trades", [trade("A", 1), trade("B", 2), trade("A", 3), trade("C", 0)])
    assert data_of(either.sow("slow")) == [trade("B", 2), trade("A", 3)]
    assert data_of(either.sow("slow", "/i > 2")) == [trade("A", 3)]


def test_its_own_key_stands_in_for_that_of_the_topic(client):
    client.apply(ConflatedTopic(name="slow", underlying_topic="trades", interval="100ms", key=["/symbol", "/day"]))
    with client.subscribe_topic("slow") as messages:
        client.publish_many("trades", [{"symbol": "A", "day": day, "i": i} for i, day in enumerate([1, 2, 1])])
        assert [message.data["i"] for message in pick_up(messages, 2)] == [1, 2]


@pytest.mark.parametrize(
    ("definitions", "text"),
    [
        ([Topic(name="trades"), SLOW], "key: missing, and the topic 'trades' has none"),
        ([Topic(name="trades", message_type="binary"), SLOW.model_copy(update={"key": ["/id"]})], "is binary"),
        ([Topic(name="trades", key="/id"), Topic(name="slow"), SLOW], "name: a topic has the same name"),
        ([Topic(name="trades", key="/id"), Queue(name="slow"), SLOW], "name: a queue has the same name"),
        (
            [Queue(name="trades", underlying_topic="o"), SLOW.model_copy(update={"key": ["/id"]})],
            "underlying_topic: 'trades' is a queue",
        ),
        (
            [
                Topic(name="trades", key="/id"),
                View(name="slow", underlying_topic="o", projection=["COUNT(*) AS /n"]),
                SLOW,
            ],
            "has the same name",
        ),
    ],
)
def test_what_it_cannot_be_is_refused_and_nothing_is_defined(client, definitions, text):
    with pytest.raises(DefinitionError, match=text):
        client.apply(*definitions)
    assert len(client.admin.definitions()) == 1


@pytest.mark.parametrize(
    ("elements", "text"),
    [
        ({"underlying_topic": None}, "underlying_topic: missing"),
        ({"underlying_topic": "slow"}, "its own name"),
        ({"interval": "0s"}, "gathers nothing"),
        ({"intervall": "1s"}, "did you mean 'interval'"),
    ],
)
def test_wrong_elements_are_refused(elements, text):
    with pytest.raises(DefinitionError, match=text):
        ConflatedTopic(**{"name": "slow", "underlying_topic": "trades", **elements})


def test_it_has_no_log_and_nothing_is_published_to_it(client):
    client.apply(Topic(name="trades", key="/symbol"), SLOW)
    with pytest.raises(DefinitionError, match="'slow' is a conflated topic; allowed: the topic under it, 'trades'"):
        client.publish("slow", 1)
    with pytest.raises(DefinitionError, match="'slow' is a conflated topic, which has no log"):
        client.subscribe_topic("slow", bookmark="now").get(1)


def test_it_is_changed_and_removed_and_its_topic_keeps_its_key_while_it_is_there(client):
    trades = Topic(name="trades", key="/symbol")
    client.apply(trades, SLOW)
    assert [outcome for _, outcome in client.apply(trades, SLOW)] == ["unchanged", "unchanged"]
    assert [outcome for _, outcome in client.apply(SLOW.model_copy(update={"interval": "1s"}))] == ["changed"]
    for refused in (lambda: client.apply(Topic(name="trades")), lambda: client.admin.remove(trades)):
        with pytest.raises(DefinitionError, match="key: missing"):
            refused()
    client.admin.remove(SLOW)
    with pytest.raises(UnknownQueue):
        client.sow("slow")


def test_the_same_awaited(valkey, instance):
    async def run():
        async with AsyncClient(valkey.url, instance=instance) as client:
            await client.apply(Topic(name="trades", key="/symbol"), SLOW)
            async with client.subscribe_topic("slow", filter="/i < 9") as messages:
                await client.publish_many("trades", [trade("A", 1), trade("A", 2), trade("B", 9)])
                return (await messages.get("9s")).data, [message.data for message in await client.sow("slow", "/i < 9")]

    assert asyncio.run(run()) == (trade("A", 2), [trade("A", 2)])
