"""Messages that a subscription has read: they stay, in order, when work before handing out fails."""

from __future__ import annotations

import asyncio

import pytest

from ampsq import AsyncClient, Client, Topic
from ampsq.base.errors import Unavailable
from ampsq.protocol.request import Pause
from ampsq.topics.version_vector import VersionVector

NUMBER = 30


@pytest.fixture
def addresses(valkey, instance):
    """Two instances, so that clients note where topics begin."""
    names = [instance, f"{instance}-other"]
    for name in names:
        with Client(valkey.url, instance=name) as client:
            client.apply(Topic(name="orders-1", key="/id"))
    return [f"{valkey.url}#{name}" for name in names]


@pytest.fixture
def fail(monkeypatch):
    """Have the looking at topics that came fail, or last, so often: ``fail(times, seconds)``."""
    look, left = VersionVector.chart, {}

    async def chart(self, *arguments):
        if left.get("times", 0) > 0:
            left["times"] -= 1
            left["met"] += 1
            if left["seconds"]:
                await Pause(left["seconds"])
            raise Unavailable("the server does not answer")
        await look(self, *arguments)

    monkeypatch.setattr(VersionVector, "chart", chart)

    def begin(times, seconds=0.0):
        left.update(times=times, seconds=seconds, met=0)
        return left

    return begin


def publish(client, *topics):
    """Messages in turn to topics, which are new."""
    client.apply(*(Topic(name=topic, key="/id") for topic in topics))
    for number in range(NUMBER):
        client.publish(topics[number % len(topics)], {"id": number})


@pytest.mark.parametrize("options", [{}, {"conflation": "1ms"}], ids=["plain", "conflated"])
def test_what_was_read_comes_in_order_when_looking_at_a_new_topic_fails(addresses, fail, options):
    with Client(addresses) as client, client.subscribe_topic("^orders", bookmark="epoch", **options) as messages:
        # Given topics that come, with messages, and a server that does not answer for a while
        assert messages.get("1500ms") is None
        publish(client, "orders-2", "orders-3")
        told = fail(times=3)
        # When they are asked for again and again
        seen, failures = [], 0
        while len(seen) < NUMBER and failures < 10:
            try:
                message = messages.get("5s")
            except Unavailable:
                failures += 1
                continue
            assert message is not None, seen
            seen.append(message.data["id"])
        # Then each failure was told, and all of them come, in their order
        assert (failures, told["met"]) == (3, 3)
        assert seen == list(range(NUMBER))


def test_a_range_is_not_completed_before_what_was_read_of_it_is_handed_out(addresses, fail):
    with Client(addresses) as client:
        publish(client, "orders-2", "orders-3")
        with client.subscribe_topic("^orders", bookmark="[epoch:now]") as messages:
            messages._managed.core._version_vector._stretches.clear()
            fail(times=1)
            with pytest.raises(Unavailable):
                messages.get("5s")
            assert not messages.completed
            assert [message.data["id"] for message in messages] == list(range(NUMBER))
            assert messages.completed


def test_a_cancelled_get_loses_nothing_that_was_read(addresses, fail):
    async def main():
        async with AsyncClient(addresses) as client:
            messages = await client.subscribe_topic("^orders", bookmark="epoch")
            async with messages:
                assert await messages.get("1500ms") is None
                with Client(addresses) as other:
                    publish(other, "orders-2", "orders-3")
                told, seen = fail(times=3, seconds=30.0), []
                for number in range(1, 4):
                    # When it has read, and looks at the new topic, it is cancelled.
                    with pytest.raises(TimeoutError):
                        async with asyncio.timeout(2.0):
                            seen.append((await messages.get()).data["id"])
                    assert told["met"] == number
                while len(seen) < NUMBER:
                    message = await messages.get("5s")
                    assert message is not None, seen
                    seen.append(message.data["id"])
                assert seen == list(range(NUMBER))

    asyncio.run(main())
