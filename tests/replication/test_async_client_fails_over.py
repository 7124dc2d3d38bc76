"""The asyncio client with several instances goes on as the synchronous one does."""

from __future__ import annotations

import asyncio

import pytest
from observing import eventually

from ampsq import AsyncClient, MemoryBookmarkStore, MemoryPublishStore
from ampsq.base.errors import NotPersisted, StaleLease

pytestmark = pytest.mark.slow

OPTIONS = {"heartbeat": "1s", "retry_timeout": "15s"}


async def until(condition):
    """Wait until a condition holds, as the event loop goes on; the scene has a deadline."""
    await asyncio.to_thread(eventually, condition, 20)


async def arrive(homes, client, short):
    await until(lambda: client.instance == homes.name(short))


async def take(messages, number):
    """The data of so many messages, and of those that come at once behind them."""
    found = [(await messages.get(30)).data for _ in range(number)]
    while (message := await messages.get(0.1)) is not None:
        found.append(message.data)
    return found


def test_all_that_an_asyncio_client_does_goes_on_at_the_other_instance(homes):
    async def scene():
        async with (
            AsyncClient([homes.address("a"), homes.address("b")], **OPTIONS) as client,
            client.publisher("till", store=MemoryPublishStore(), persisted="fsync") as till,
        ):
            await till.publish_many("orders", [1, 2, 3, 4])
            await till.publish("positions", {"id": 1, "qty": 1})
            await till.flush("30s")
            live = await client.subscribe_topic("orders", bookmark="now")
            wish = {"sub_id": "audit", "bookmark_store": MemoryBookmarkStore(), "auto_ack": False}
            durable = await client.subscribe_topic("orders", bookmark="most_recent", **wish)
            changes = await client.sow_and_subscribe("positions")
            rows = await client.aggregate("positions", ["SUM(/qty) AS /sum"])
            work = await client.subscribe("work", max_backlog=10, publisher=till)
            leased = [await work.get(30) for _ in range(4)]
            await leased[0].ack(wait=True)
            first = await durable.get(30)
            await first.ack(wait=True)
            assert (await changes.get(30)).command == "sow"
            assert await rows.get(30) == {"sum": 1}
            # Somebody waits all the while.
            waiting = asyncio.create_task(take(live, 2))
            await asyncio.sleep(0.1)  # the call waits at the server
            homes.kill("a")
            await arrive(homes, client, "b")
            homes.admins["b"].admin.downgrade_replication("a")
            await till.publish("orders", 5)
            receipt = await till.publish("orders", 6)
            await till.publish("positions", {"id": 1, "qty": 7})
            await till.flush("30s")
            assert (await receipt.bookmark()).origin.startswith(f"{homes.name('b')}.")

            assert await waiting == [5, 6]
            assert await take(durable, 5) == [2, 3, 4, 5, 6]
            change = await changes.get(30)
            assert (change.command, change.data["qty"]) == ("publish", 7)
            assert await rows.get(30) == {"sum": 8}
            assert await take(work, 2) == [5, 6]
            with pytest.raises(StaleLease):
                await leased[1].ack(wait=True)
            assert [record.data["qty"] for record in await client.sow("positions")] == [7]
            assert homes.bodies("b") == [1, 2, 3, 4, 5, 6]

    asyncio.run(asyncio.wait_for(scene(), 60))


def test_what_was_acknowledged_at_one_instance_is_not_handed_out_at_the_one_that_takes_it_over(homes):
    async def scene():
        async with AsyncClient([homes.address("a"), homes.address("b")], **OPTIONS) as client:
            work = await client.subscribe("work", max_backlog=10)
            await client.publish_many("orders", [1, 2])
            first, second = await work.get(30), await work.get(30)
            await until(lambda: homes.bodies("b") == [1, 2])
            homes.kill("a")
            await arrive(homes, client, "b")
            await first.ack()
            await asyncio.to_thread(homes.admins["b"].admin.enable_proxied_transfer, "work")

            # The coordinator there takes both over, and only what is open is handed out.
            again = await work.get(20)
            assert again.bookmark == second.bookmark
            await again.ack(wait=True)
            assert await work.get(0.3) is None
            await until(lambda: homes.admins["b"].admin.queue_stats("work").acknowledged == 2)

    asyncio.run(asyncio.wait_for(scene(), 60))


@pytest.mark.parametrize("verb", ["ack", "cancel", "extend"])
def test_a_message_of_a_lost_instance_is_refused_as_soon_as_the_client_has_gone_on(homes, verb):
    verbs = {
        "ack": lambda message: message.ack(wait=True),
        "cancel": lambda message: message.cancel(),
        "extend": lambda message: message.extend("1m"),
    }

    async def scene():
        options = OPTIONS | {"retry_timeout": "60s"}
        async with AsyncClient([homes.address("a"), homes.address("b")], **options) as client:
            await client.publish("orders", 1)
            work = await client.subscribe("work")
            message = await work.get(30)
            homes.kill("a")
            with pytest.raises(StaleLease, match=homes.name("a")):
                await verbs[verb](message)

    asyncio.run(asyncio.wait_for(scene(), 30))


def test_an_asyncio_client_stays_where_the_link_was_downgraded_and_says_why(homes):
    async def scene():
        async with (
            AsyncClient([homes.address("a"), homes.address("b")], **OPTIONS) as client,
            client.publisher("till", store=MemoryPublishStore()) as till,
        ):
            homes.admins["a"].admin.downgrade_replication("b")
            await until(lambda: any("downgraded" in why for why in client._connection._failover._barriers.values()))
            homes.kill("a")
            await till.publish("orders", b"1")
            await until(lambda: client._connection.parts.route.stays)
            with pytest.raises(NotPersisted, match=r"not going on elsewhere.*was downgraded at .*failover='warn'"):
                await till.flush("200ms")
            assert client.instance == homes.name("a")
            homes.restart("a")
            await till.flush("30s")

    asyncio.run(asyncio.wait_for(scene(), 60))
