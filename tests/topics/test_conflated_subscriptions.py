"""Conflated subscriptions to topics: the latest of each key, in intervals or when the consumer is behind."""

from __future__ import annotations

import asyncio
import random
import time

import pytest
from observing import eventually
from scene import data_of, pick_up, rest_of

from ampsq import AsyncClient, Topic
from ampsq.base.errors import DefinitionError


def trade(symbol, number):
    return {"symbol": symbol, "i": number}


def test_in_an_interval_only_the_latest_of_each_key_comes(either):
    # Given a subscription that is conflated by symbol
    either.apply(Topic(name="trades"))
    with either.subscribe_topic("trades", conflation="3s", conflation_key=["/symbol"]) as messages:
        started = time.monotonic()
        either.publish_many("trades", [trade("IBM", 1), trade("A", 2), trade("IBM", 3), {"i": 4}, trade("A", 5)])
        # Then what has no key comes at once
        assert data_of(pick_up(messages, 1)) == [{"i": 4}]
        assert time.monotonic() - started < 3
        assert messages.get(0) is None
        # And when the interval is over the latest of each key, by their places
        either.publish("trades", trade("IBM", 6))
        assert data_of(pick_up(messages, 2)) == [trade("A", 5), trade("IBM", 6)]
        assert time.monotonic() - started >= 3
        # And nothing more until something changes
        assert messages.get("600ms") is None
        either.publish("trades", trade("A", 7))
        assert data_of(pick_up(messages, 1)) == [trade("A", 7)]


def test_auto_gives_each_key_once_to_who_is_behind_and_everything_to_who_is_not(either):
    either.apply(Topic(name="trades"))
    with either.subscribe_topic("trades", conflation="auto", conflation_key="/symbol") as messages:
        # Given a consumer that keeps up, then it gets every message
        for i in range(5):
            either.publish("trades", trade("IBM", i))
            assert messages.get("30s").data == trade("IBM", i)
        # When it is 300 messages behind
        either.publish_many("trades", [trade(f"S{i % 3}", i) for i in range(300)])
        # Then the latest of each key comes
        assert data_of(pick_up(messages, 1)) == [trade("S0", 297)]
        # And what changes while the others wait for it takes their place
        either.publish("trades", trade("S1", 300))
        time.sleep(0.06)  # longer than the interval
        assert data_of(pick_up(messages, 2)) == [trade("S2", 299), trade("S1", 300)]
        assert not rest_of(messages)


def test_a_range_ends_with_the_latest_of_each_key_without_waiting(client):
    client.apply(Topic(name="trades"))
    client.publish_many("trades", [trade("IBM", 1), trade("A", 2), trade("IBM", 3)])
    with client.subscribe_topic(
        "trades", bookmark="[epoch:now]", conflation="1h", conflation_key="/symbol"
    ) as messages:
        assert data_of(messages) == [trade("A", 2), trade("IBM", 3)]
        assert messages.completed


def test_a_filter_judges_before_conflation(client):
    client.apply(Topic(name="trades"))
    client.publish_many("trades", [trade("IBM", 1), trade("IBM", 30)])
    asked = {"bookmark": "[epoch:now]", "conflation": "auto", "conflation_key": "/symbol"}
    with client.subscribe_topic("trades", filter="/i < 10", **asked) as messages:
        assert data_of(messages) == [trade("IBM", 1)]


def test_keys_of_different_topics_are_different(client):
    client.apply(Topic(name="a"), Topic(name="b"))
    client.publish("a", trade("IBM", 1))
    client.publish("b", trade("IBM", 2))
    client.publish("a", trade("IBM", 3))
    with client.subscribe_topic(
        "^[ab]$", bookmark="[epoch:now]", conflation="auto", conflation_key="/symbol"
    ) as messages:
        assert data_of(messages) == [trade("IBM", 2), trade("IBM", 3)]


def test_the_key_of_the_topic_is_the_default_and_without_one_it_is_asked_for(client):
    client.apply(Topic(name="trades"))
    # Given a topic without a key, then conflation needs one
    with pytest.raises(DefinitionError, match="topic 'trades' has no key; allowed: conflation_key"):
        client.subscribe_topic("trades", conflation="auto")
    # Given one that has it
    client.apply(Topic(name="kept", key="/symbol"))
    client.publish_many("kept", [trade("IBM", 1), trade("A", 2), trade("IBM", 3)])
    client.sow_delete("kept", filter="/symbol = 'A'")
    with client.subscribe_topic("kept", bookmark="[epoch:now]", conflation="auto") as messages:
        assert data_of(messages) == [trade("A", 2), trade("IBM", 3)]


def test_what_does_not_go_with_conflation_is_refused(client):
    client.apply(Topic(name="trades"))
    for options in ({"sub_id": "audit"}, {"rate": 100}):
        with pytest.raises(DefinitionError, match=f"conflation with {next(iter(options))}"):
            client.subscribe_topic("trades", conflation="1s", conflation_key=["/symbol"], **options)
    with pytest.raises(DefinitionError, match="allowed is an interval"):
        client.subscribe_topic("trades", conflation="sometimes")
    with client.subscribe_topic("trades", conflation="none") as messages:
        client.publish_many("trades", [trade("IBM", 1), trade("IBM", 2)])
        assert len(pick_up(messages, 2)) == 2


@pytest.mark.parametrize("conflation", ["auto", "20ms"])
def test_a_slow_consumer_of_a_busy_topic_ends_with_the_last_of_every_key(client, conflation):
    # Given a publisher of 6,000 messages over 20 keys, and a consumer that is slow in a random way
    draw = random.Random(7)  # noqa: S311
    client.apply(Topic(name="trades"))
    last: dict = {}
    seen: dict = {}
    order: list = []
    with client.subscribe_topic("trades", conflation=conflation, conflation_key="/symbol") as messages:
        for batch in range(60):
            many = [trade(f"S{draw.randrange(20)}", 100 * batch + i) for i in range(100)]
            client.publish_many("trades", many)
            last.update((one["symbol"], one["i"]) for one in many)
            for _ in range(draw.randrange(5)):
                if (message := messages.get(0)) is not None:
                    order.append(message.data)
                    # Then no key goes back in time
                    assert seen.get(message.data["symbol"], -1) < message.data["i"]
                    seen[message.data["symbol"]] = message.data["i"]
        while (message := messages.get("200ms")) is not None:
            order.append(message.data)
            assert seen.get(message.data["symbol"], -1) < message.data["i"]
            seen[message.data["symbol"]] = message.data["i"]
    # And at the end it has the latest of each, of far fewer messages
    assert seen == last
    assert 20 <= len(order) < 1500


def test_a_handler_gets_what_is_conflated(client):
    client.apply(Topic(name="trades"))
    seen = []
    with client.subscribe_topic("trades", conflation="100ms", conflation_key="/symbol", on_message=seen.append):
        client.publish_many("trades", [trade("IBM", 1), trade("IBM", 2)])
        eventually(lambda: seen, within=60.0)
    assert data_of(seen) == [trade("IBM", 2)]


def test_the_asyncio_client_conflates_the_same(server, instance):
    async def scenario():
        async with AsyncClient(server.url, instance=instance) as client:
            await client.apply(Topic(name="trades"))
            async with client.subscribe_topic("trades", conflation="200ms", conflation_key="/symbol") as messages:
                await client.publish_many("trades", [trade("IBM", 1), trade("A", 2), trade("IBM", 3), {"i": 4}])
                got = [(await messages.get("30s")).data for _ in range(3)]
                assert got == [{"i": 4}, trade("A", 2), trade("IBM", 3)]
                assert await messages.get("300ms") is None
            options = {"bookmark": "[epoch:now]", "conflation": "auto", "conflation_key": "/symbol"}
            async with client.subscribe_topic("trades", **options) as messages:
                assert [message.data async for message in messages] == [trade("A", 2), trade("IBM", 3), {"i": 4}]

    asyncio.run(scenario())
