"""Errors that end a `publish_many` half-way: what they tell of the recorded part."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from ampsq import AsyncClient, Client, MemoryPublishStore, Topic
from ampsq.base.errors import DefinitionError, MissingKey, NotPersisted, PublishStoreFull, ServerFull, Unavailable

SIZE = 10


class Broken(Exception):
    """An error that a program of somebody's raises."""


@pytest.fixture(params=["threads", "asyncio"])
def publish_many(request):
    """Publish many in batches of ten, by either client: ``publish_many(url, instance, messages, **options)``."""

    def by_thread(url, instance, messages, publisher=None, **options):
        with Client(url, instance=instance, **options) as client:
            by = client.publisher(publisher) if publisher else client
            return by.publish_many("orders", messages, batch=SIZE)

    def by_task(url, instance, messages, publisher=None, **options):
        async def main():
            async with AsyncClient(url, instance=instance, **options) as client:
                by = await client.publisher(publisher) if publisher else client
                return await by.publish_many("orders", messages, batch=SIZE)

        return asyncio.run(main())

    return by_thread if request.param == "threads" else by_task


def recorded(client):
    """Bookmark -> data of all that the topic has."""
    with client.subscribe_topic("orders", bookmark="epoch") as messages:
        return {message.bookmark: message.data for message in iter(lambda: messages.get("300ms"), None)}


def filling(server, after):
    """Numbers; the server's memory is full once so many were taken."""
    for number in range(10 * SIZE):
        if number == after:
            with contextlib.closing(server.client()) as redis:
                redis.config_set("maxmemory", "1mb")
        yield number


def end(server):
    server.process.kill()
    server.process.wait(30)


@pytest.fixture(params=["valkey", "redis"])
def full_server(request, start_server):
    server = start_server(request.param)
    yield server
    with contextlib.closing(server.client()) as redis:
        redis.config_set("maxmemory", "0")


@pytest.mark.parametrize("options", [{}, {"publisher": "till"}])
def test_a_server_that_fills_up_tells_which_messages_are_recorded(full_server, instance, publish_many, options):
    # Given a server that is full from the 61st message on; when they are published
    with pytest.raises(ServerFull) as raised:
        publish_many(full_server.url, instance, filling(full_server, after=6 * SIZE), **options)
    with contextlib.closing(full_server.client()) as redis:
        redis.config_set("maxmemory", "0")
    # Then the error has the bookmarks of those that are recorded, which are the first ones
    with Client(full_server.url, instance=instance) as client:
        found = recorded(client)
    published = raised.value.published
    assert SIZE <= len(published) <= 6 * SIZE
    assert [found[bookmark] for bookmark in published] == list(range(len(published)))
    assert len(found) == len(published)
    assert f"the first {len(published)} messages of this publish_many are recorded" in str(raised.value)


def test_a_server_that_is_full_from_the_beginning_has_nothing_recorded(full_server, instance, publish_many):
    with Client(full_server.url, instance=instance) as client:
        client.apply(Topic(name="orders"))
        with pytest.raises(ServerFull) as raised:
            publish_many(full_server.url, instance, filling(full_server, after=0))
        assert list(raised.value.published) == []
        assert "recorded" not in str(raised.value)


def test_one_message_without_its_key_is_named_by_its_number_and_what_was_on_its_way_is_told(
    valkey, client, instance, publish_many
):
    # Given a topic with a key, and a message without one, the 34th of the call
    client.apply(Topic(name="orders", key="/id"))
    messages = [{"id": number} if number != 33 else {"no": 33} for number in range(10 * SIZE)]
    with pytest.raises(MissingKey) as raised:
        publish_many(valkey.url, instance, messages)
    # Then it is named as such, its batch is not recorded, and of all others is told whether they are
    error = raised.value
    assert error.detail["message"] == 33
    assert "message 33" in str(error)
    found = recorded(client)
    numbers = [None if bookmark is None else found[bookmark]["id"] for bookmark in error.published]
    assert numbers[:40] == [*range(30), *[None] * SIZE]
    # Two calls were on their way behind it, and no more were sent.
    assert numbers[40:] == list(range(40, 60))
    assert len(found) == len(numbers) - SIZE
    assert "the first 30 messages of this publish_many are recorded; 20 behind those that were refused" in str(error)


def test_with_a_publisher_nothing_is_recorded_behind_a_refused_batch(valkey, client, instance, publish_many):
    client.apply(Topic(name="orders", key="/id"))
    messages = [{"id": number} if number != 33 else {"no": 33} for number in range(10 * SIZE)]
    with pytest.raises(MissingKey) as raised:
        publish_many(valkey.url, instance, messages, publisher="till")
    assert raised.value.detail["message"] == 33
    assert list(raised.value.published) == list(recorded(client))
    assert len(raised.value.published) == 30


def test_a_message_that_cannot_be_encoded_leaves_those_of_the_batches_before_it(valkey, client, instance, publish_many):
    with pytest.raises(DefinitionError, match="the first 40 messages of this publish_many are recorded") as raised:
        publish_many(valkey.url, instance, [*range(45), object()])
    found = recorded(client)
    assert [found[bookmark] for bookmark in raised.value.published] == list(range(40))


def test_what_the_messages_raise_is_raised_when_all_before_is_recorded(valkey, client, instance, publish_many):
    def messages():
        yield from range(45)
        raise Broken

    with pytest.raises(Broken):
        publish_many(valkey.url, instance, messages())
    assert list(recorded(client).values()) == list(range(40))


def test_a_server_that_goes_away_leaves_the_rest_in_doubt(start_server, instance, publish_many):
    server = start_server()

    def messages():
        for number in range(20 * SIZE):
            if number == 6 * SIZE:
                end(server)
            yield number

    with pytest.raises(Unavailable, match="messages of this publish_many are recorded") as raised:
        publish_many(server.url, instance, messages(), retry_timeout="200ms")
    assert raised.value.may_have_run
    assert SIZE <= len(raised.value.published) <= 6 * SIZE


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_a_publish_store_that_is_full_tells_what_it_has_taken(start_server, instance, kind):
    # Given a store of fifty messages and a server that goes away
    server = start_server()
    options = {"instance": instance, "retry_timeout": "200ms"}
    store = MemoryPublishStore(messages=5 * SIZE, timeout="100ms")

    def by_thread():
        with Client(server.url, **options) as client, client.publisher("till", store=store) as till:
            client.apply(Topic(name="orders"))
            assert [each.sequence for each in till.publish_many("orders", [0])] == [1]
            till.flush()
            end(server)
            with pytest.raises(PublishStoreFull) as raised:
                till.publish_many("orders", range(10 * SIZE), batch=SIZE)
            seen.append(raised.value)

    async def by_task():
        async with AsyncClient(server.url, **options) as client, client.publisher("till", store=store) as till:
            await client.apply(Topic(name="orders"))
            assert [each.sequence for each in await till.publish_many("orders", [0])] == [1]
            await till.flush()
            end(server)
            with pytest.raises(PublishStoreFull) as raised:
                await till.publish_many("orders", range(10 * SIZE), batch=SIZE)
            seen.append(raised.value)

    seen = []
    # When more are published than it holds; what is left is lost with the client
    with pytest.raises(NotPersisted, match="lost with this process"):
        asyncio.run(by_task()) if kind == "asyncio" else by_thread()
    # Then the error has the numbers of those that it took
    assert list(seen[0].published) == list(range(2, 2 + 5 * SIZE))
    assert "the first 50 messages of this publish_many are taken" in str(seen[0])
