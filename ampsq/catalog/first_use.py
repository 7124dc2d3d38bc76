"""What is made when a name is first used: topics, and queues where an address setting wants it."""

from __future__ import annotations

from ampsq.base.values import is_name, parse_name
from ampsq.catalog.apply import add_topic, apply
from ampsq.catalog.definition_checks import settings_of
from ampsq.definitions.address_setting import makes_queues
from ampsq.definitions.queue import Queue
from ampsq.protocol.calls import queues as calls

__all__ = ["add_published", "make_queue"]


async def make_queue(name: str) -> bool:
    """Make the queue of a name that is used, over the topic of that name; False where no address setting says so."""
    catalog = await calls.catalog()
    if name in catalog.queues:
        # Somebody else was quicker.
        return True
    if name in catalog.views or not is_name(name) or not makes_queues(settings_of(catalog), name):
        return False
    await apply([Queue(name=name)], None)
    return True


async def add_published(topic: str) -> None:
    """Add a topic that is first published to, and the queue of that name where an address setting makes it."""
    if not (await make_queue(parse_name(topic))):
        await add_topic(topic)
