"""Proxied transfer: owning messages in the place of instances not heard of, while an operator lets it."""

from __future__ import annotations

import logging

from ampsq.protocol.calls import ownership as ownership_calls
from ampsq.replication.report import linked_instances

__all__ = ["assume_lost"]

_log = logging.getLogger("ampsq.replication")


async def assume_lost(instance: str, queue: str, limit: int) -> int:
    """Own what somebody is free for of owners from which no link comes here, where that is enabled; a bounded step.

    Args:
        instance: this one.
        queue: the queue.
        limit: of so many messages the owners are looked at.

    Returns:
        How many messages this instance owns now.
    """
    if not (await ownership_calls.has_proxied_transfer(instance, queue)):
        return 0
    counted: ownership_calls.OwnerCounts = await ownership_calls.count_owners(queue, limit)
    linked = await linked_instances(instance)
    # An owner is a name, or a name and an incarnation.
    lost = [owner for owner in counted.owners if not {owner, owner.rpartition(".")[0]} & linked]
    if not lost:
        return 0
    number = (await ownership_calls.assume_ownership(queue, limit, lost)).number
    if number:
        _log.warning(
            "queue %s of %s: %d messages of %s, which is out of reach, are delivered here: proxied transfer is enabled",
            *(queue, instance, number, ", ".join(lost)),
        )
    return number
