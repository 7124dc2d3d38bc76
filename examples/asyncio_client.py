"""The ten lines of the README with asyncio."""

import asyncio

import ampsq


async def main() -> None:
    """Publish an order, and acknowledge it."""
    async with ampsq.AsyncClient() as client:
        await client.apply(ampsq.Queue(name="work", underlying_topic="orders", lease_period="30s"))
        await client.publish("orders", {"id": 1, "price": 12.5, "qty": 100})
        async with client.subscribe("work") as messages:
            message = await messages.get(timeout="5s")
            if message is not None:
                print(message.data, message.delivery)
                await message.ack()


asyncio.run(main())
