"""Program of the README, with asyncio: deliver, filter, query, aggregate."""

import asyncio

import ampsq


async def main() -> None:
    """Publish orders, acknowledge one, and look at the others."""
    async with ampsq.AsyncClient() as client:
        await client.apply(
            ampsq.Queue(name="work", underlying_topic="orders", lease_period="30s", max_per_subscription_backlog=10)
        )
        orders = [
            {"id": 1, "price": 12.5, "qty": 100},
            {"id": 2, "price": 20, "qty": 3},
            {"id": 3, "price": 5, "qty": 2},
        ]
        await client.publish_many("orders", orders)
        async with client.subscribe("work", max_backlog=10, filter="/price > 10") as messages:
            message = await messages.get(timeout="5s")
            if message is not None:
                print(message.data, message.delivery)
                await message.ack(wait=True)
            await messages.replace(filter="/id = 3")
            message = await messages.get(timeout="5s")
            if message is not None:
                print(message.data, message.delivery)
        # It was not acknowledged, so it is available again.
        print([message.data["id"] for message in await client.sow("work", order_by="/price DESC", top_n=5)])
        async with client.aggregate("work", ["SUM(/price * /qty) AS /value"]) as rows:
            print(await rows.get(timeout="5s"))


asyncio.run(main())
