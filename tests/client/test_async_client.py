"""The main scenarios again, told once and run with both clients: what one does, the other does."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from concurrent.futures import ThreadPoolExecutor

import pytest
from observing import eventually

from ampsq import Action, AsyncClient, Client, Do, On, Queue
from ampsq.base.errors import AlreadyAcked, Closed, DefinitionError, StaleLease, UnknownQueue
from ampsq.client.admin import Admin
from ampsq.client.async_admin import AsyncAdmin
from ampsq.coordinator.actions import Actions
from ampsq.protocol.schema import key
from ampsq.transport.store import Store


class Awaited:
    """A synchronous object as an asynchronous one: its methods are awaited."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        value = getattr(self.inner, name)
        if isinstance(value, Admin):
            return Awaited(value)
        if not callable(value):
            return value

        async def call(*arguments, **options):
            result = await asyncio.to_thread(value, *arguments, **options)
            return (
                Awaited(result)
                if type(result).__name__ in {"Subscription", "Message", "Publisher", "Receipt"}
                else result
            )

        return call

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.inner.close()


@pytest.fixture(params=["Client", "AsyncClient"])
def play(request, valkey, instance):
    """Run a scenario, a coroutine function of a client, with each client."""

    async def run(scenario, **options):
        if request.param == "Client":
            opened = Awaited(Client(valkey.url, instance=instance, **options))
        else:
            opened = AsyncClient(valkey.url, instance=instance, **options)
        async with opened as client:
            await scenario(client)

    return lambda scenario, **options: asyncio.run(run(scenario, **options))


async def pick_up(subscription, number):
    messages = [await subscription.get(30) for _ in range(number)]
    assert None not in messages
    return messages


def work(**elements):
    return Queue(name="work", **{"max_per_subscription_backlog": 500, **elements})


def test_publish_and_consume(play):
    async def scenario(client):
        await client.apply(work(underlying_topic="orders"))
        bookmark = await client.publish("orders", {"id": 1}, headers={"a": "b"})
        many = await client.publish_many("work", (n for n in range(250)), batch=100)
        assert len(many) == 250
        async with await client.subscribe("work", max_backlog=300) as messages:
            assert messages.max_backlog == 300
            first, *others = await pick_up(messages, 251)
            assert (first.bookmark, first.data, first.headers, first.topic) == (
                bookmark,
                {"id": 1},
                {"a": "b"},
                "orders",
            )
            assert [(message.data, message.bookmark) for message in others] == list(enumerate(many))
            for message in (first, *others):
                await message.ack()
            await messages.flush()
        stats = await client.admin.queue_stats("work")
        assert (stats.acknowledged, stats.depth) == (251, 0)
        assert list(await client.admin.queues()) == ["work"]
        assert (await client.admin.topics())["orders"].messages == 251

    play(scenario)


def test_cancel_expire_extend_and_their_refusals(play):
    async def scenario(client):
        await client.apply(work(max_cancels=3))
        await client.publish_many("work", range(3))
        async with await client.subscribe("work", max_backlog=3) as messages:
            cancelled, expired, acked = await pick_up(messages, 3)
            await cancelled.cancel()
            await expired.expire()
            await acked.extend("1h")
            await acked.ack(wait=True)
            for message, error in ((cancelled, StaleLease), (expired, AlreadyAcked), (acked, AlreadyAcked)):
                with pytest.raises(error):
                    await message.ack(wait=True)
            again = await messages.get(5)
            assert (again.data, again.delivery) == (0, 2)
            await again.cancel(delay="100ms")
            again = await messages.get(30)
            assert (again.data, again.delivery) == (0, 3)
            assert await client.ack("work", [again.bookmark]) == 1
            assert await messages.get(0) is None

    play(scenario)


def test_a_lapse_makes_an_acknowledgement_late(play):
    async def scenario(client):
        await client.apply(work(lease_period="1s"))
        await client.publish("work", 1)
        async with await client.subscribe("work") as messages:
            message = await messages.get(30)
            again = await messages.get(30)
            assert (again.data, again.delivery) == (1, 2)
            await message.ack()
            await messages.flush()
            assert [type(error) for error in messages.late] == [StaleLease]

    play(scenario)


def test_closing_gives_back_what_is_unstarted(play):
    async def scenario(client):
        await client.apply(work())
        await client.publish_many("work", range(10))
        messages = await client.subscribe("work", max_backlog=10)
        await messages.get(30)
        await messages.close()
        with pytest.raises(Closed):
            await messages.get(0)
        async with await client.subscribe("work", max_backlog=10) as others:
            got = await pick_up(others, 10)
            assert [(message.data, message.delivery) for message in got] == [(0, 2)] + [(n, 1) for n in range(1, 10)]

    play(scenario)


def test_patterns_and_refusals(play):
    async def scenario(client):
        with pytest.raises(UnknownQueue):
            await client.subscribe("nothing")
        with pytest.raises(DefinitionError):
            await client.publish("work", float("nan"))
        async with await client.subscribe("^w", max_backlog=10) as messages:
            await client.apply(work())
            await client.publish("work", 1)
            assert (await messages.get(30)).data == 1

    play(scenario)


def test_a_publisher_s_duplicates_are_answered(play):
    async def scenario(client):
        await client.apply(work())
        async with await client.publisher("till-1") as till:
            one = await (await till.publish("work", 1)).bookmark()
            await till.publish_many("work", [2, 3])
            assert await (await till.publish("work", "again", sequence=1)).bookmark() == one
        assert (await client.admin.queue_stats("work")).depth == 3

    play(scenario)


def run(server, instance, scenario):
    async def main():
        async with AsyncClient(server.url, instance=instance) as client:
            await client.apply(work())
            await scenario(client)

    asyncio.run(main())


def test_async_iteration_and_tasks_that_publish_meanwhile(server, instance):
    async def scenario(client):
        async def publish():
            for number in range(100):
                await client.publish("work", number)

        publishing = asyncio.create_task(publish())
        seen = []
        async with await client.subscribe("work", max_backlog=50) as messages:
            async for message in messages:
                seen.append(message.data)
                await message.ack()
                if len(seen) == 100:
                    break
        await publishing
        assert seen == list(range(100))
        assert (await client.admin.queue_stats("work")).acknowledged == 100

    run(server, instance, scenario)


def test_async_on_message_settles_and_survives_failures(valkey, instance):
    async def scenario(client):
        seen, done = [], asyncio.Event()

        async def handle(message):
            seen.append((message.data, message.delivery))
            if message.data == 0 and message.delivery == 1:
                raise ValueError("no")
            await message.ack(wait=True)
            if message.data == 1:
                raise ValueError("too late to cancel")
            if len(seen) == 4:
                done.set()

        async with await client.subscribe("work", on_message=handle):
            for number in range(3):
                await client.publish("work", number)
            async with asyncio.timeout(5):
                await done.wait()
        assert seen == [(0, 1), (0, 2), (1, 1), (2, 1)]

    run(valkey, instance, scenario)


def test_cancelling_a_get_loses_no_message(valkey, instance):
    async def scenario(client):
        # Given a consumer whose waiting is cancelled again and again while messages come
        seen = []
        async with await client.subscribe("work", max_backlog=3) as messages:

            async def publish():
                for number in range(150):
                    await client.publish("work", number)
                    await asyncio.sleep(0.002)  # the pace

            publishing = asyncio.create_task(publish())
            number = 0
            while len(seen) < 150:
                number += 1
                try:
                    async with asyncio.timeout(0.001 * (number % 7)):
                        message = await messages.get()
                except TimeoutError:
                    continue
                seen.append((message.data, message.delivery))
                await message.ack()
            await publishing
        # Then each message came once, as its first delivery
        assert sorted(seen) == [(number, 1) for number in range(150)]

    run(valkey, instance, scenario)


@pytest.mark.parametrize("is_asked_again", [False, True])
def test_an_acknowledgement_that_nobody_waits_for_any_more_is_sent_with_the_next_batch(
    valkey, instance, is_asked_again
):
    async def scenario(client):
        # Given messages whose acknowledgements are waited for, and that waiting cancelled at different moments
        await client.publish_many("work", range(20))
        async with await client.subscribe("work", max_backlog=20) as messages:
            for turns in range(20):
                message = await messages.get("5s")
                waiting = asyncio.create_task(message.ack(wait=True))
                for _ in range(1 + turns % 5):
                    await asyncio.sleep(0)
                waiting.cancel()
                await asyncio.wait([waiting])
                if is_asked_again:
                    # It may have been done before, which is no failure of the second one's batch
                    with contextlib.suppress(AlreadyAcked):
                        await message.ack(wait=True)
            # Then all are acknowledged while the consumer asks for nothing, and none of them late
            with Client(valkey.url, instance=instance) as observer:
                await asyncio.to_thread(eventually, lambda: not observer.admin.queue_stats("work").leased)
            stats = await client.admin.queue_stats("work")
            assert (stats.acknowledged, stats.depth) == (20, 0)
            assert messages.late == []

    run(valkey, instance, scenario)


def test_an_iteration_ends_when_another_task_closes(valkey, instance):
    async def scenario(client):
        messages = await client.subscribe("work")

        async def consume():
            return [message.data async for message in messages]

        consuming = asyncio.create_task(consume())
        # Given one that waits for a message
        await asyncio.to_thread(eventually, messages._managed.lock.locked)
        await messages.close()
        async with asyncio.timeout(3):
            assert await consuming == []

    run(valkey, instance, scenario)


def test_an_aggregate_is_awaited_or_entered_as_a_subscription_is(valkey, instance):
    async def scenario(client):
        await client.publish("work", {"v": 2})
        rows = await client.aggregate("work", ["SUM(/v) AS /sum"])
        assert await rows.get("30s") == {"sum": 2}
        assert repr(rows) == "<AsyncRowSubscription to 'work': SUM(/v) AS /sum>"
        await rows.close()
        making = client.aggregate("work", ["COUNT(*) AS /n"])
        assert "the aggregate of 'work': await it, or enter it with `async with`" in repr(making)
        async with making as rows:
            assert await rows.get("30s") == {"n": 1}
        with pytest.raises(Closed):
            await rows.get("1s")
        async with client.subscribe("work", filter="/v > 1") as messages:
            assert repr(messages) == f"<AsyncSubscription {messages.id} to 'work', max_backlog 1, filter '/v > 1'>"

    run(valkey, instance, scenario)


def test_a_client_that_is_not_connected_says_so(valkey):
    async def main():
        client = AsyncClient(valkey.url)
        with pytest.raises(Closed, match="async with"):
            await client.publish("work", 1)
        await client.close()

    asyncio.run(main())


@pytest.mark.parametrize(("one", "other"), [(Client, AsyncClient), (Admin, AsyncAdmin)])
def test_both_clients_have_the_same_names(one, other):
    def names(cls):
        return {name for name, _ in inspect.getmembers(cls) if not name.startswith("_")}

    assert names(one) == names(other) - {"connect"}
    for name in names(one):
        if callable(getattr(one, name)):
            assert inspect.signature(getattr(one, name)).parameters.keys() == (
                inspect.signature(getattr(other, name)).parameters.keys()
            ), name


def test_failed_events_of_an_action_are_seen_retried_and_dropped(play, valkey, instance):
    def rounds():
        store = Store(valkey.url, instance)
        while not Actions().run_once(store):
            pass
        store.close()

    async def scenario(client):
        await client.apply(Queue(name="work"), Action(name="a", on=On.delete(topic="work"), do=Do.publish(topic="x")))
        with valkey.client() as redis:
            redis.set(key(instance, "log", "x"), "planted")
            await client.ack("work", [await client.publish("work", number) for number in range(2)])
            await asyncio.to_thread(rounds)
            assert [event.number for event in await client.admin.failed_events("a")] == [1, 2]
            assert (await client.admin.actions())["a"].failed == 2
            assert await client.admin.drop_failed("a", 1) == 1
            redis.delete(key(instance, "log", "x"))
            assert await client.admin.retry_action("a") == 1
            await asyncio.to_thread(rounds)
            assert redis.xlen(key(instance, "log", "x")) == 1
        state = (await client.admin.actions())["a"]
        assert (state.done, state.failed) == (1, 0)
        with pytest.raises(DefinitionError, match="did you mean 'a'"):
            await client.admin.failed_events("aa")

    play(scenario)


def test_a_client_of_another_event_loop_is_refused_with_what_is_allowed(valkey, instance):
    client = AsyncClient(valkey.url, instance=instance)

    async def use():
        with pytest.raises(
            Closed, match=r"^this client was opened in another event loop, .*; allowed: a client for each"
        ):
            await client.publish("orders", {})

    with asyncio.Runner() as first:
        first.run(client.__aenter__())
        first.run(client.publish("orders", {}))
        with ThreadPoolExecutor(1) as other:
            other.submit(asyncio.run, use()).result()
        first.run(client.publish("orders", {}))
        first.run(client.close())
