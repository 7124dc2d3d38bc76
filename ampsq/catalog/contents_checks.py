"""Changes of definitions that are refused while there are messages: checked before anything is defined.

The scripts look again when they define it; but then others may have been defined already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampsq.base.errors import MessageTypeFixed, PartitionByFixed, QueueNotEmpty
from ampsq.catalog.definition_checks import naming_definition
from ampsq.definitions.queue import Queue, Topic
from ampsq.protocol.calls import queue_stats as stats_calls
from ampsq.protocol.reads.instance import instance_state
from ampsq.protocol.reads.streams import log_of, stream_exists

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampsq.definitions.definition import Definition
    from ampsq.protocol.calls.catalog import Catalog

__all__ = ["check_contents"]


async def check_contents(catalog: Catalog, definitions: Iterable[Definition]) -> None:
    """Refuse what cannot be changed while there are messages.

    Raises:
        MessageTypeFixed: another message type for a topic that has had messages.
        PartitionByFixed: another `partition_by`, or without one another `key`, for a topic that has had messages in
            this partition.
        QueueNotEmpty: another kind, owner or domain for a queue that has messages.
    """
    for definition in definitions:
        with naming_definition(definition):
            if isinstance(definition, Topic) and definition.name in catalog.topics:
                await _check_topic(catalog, definition)
            elif isinstance(definition, Queue) and definition.name in catalog.queues:
                known = Queue.from_json(catalog.queues[definition.name])
                moves = (known.owner, known.domain(catalog.group)) != (
                    definition.owner,
                    definition.domain(catalog.group),
                )
                if moves and not (await stats_calls.stats(definition.name)).is_empty:
                    raise QueueNotEmpty(queue=definition.name)


async def _check_topic(catalog: Catalog, topic: Topic) -> None:
    former = Topic.stored(topic.name, catalog.topics[topic.name])
    is_alike = former.type == topic.type
    if is_alike and (former.partition_by or former.key) == (topic.partition_by or topic.key):
        return
    if not await stream_exists(catalog.instance, log_of(topic.name)):
        return
    if not is_alike:
        raise MessageTypeFixed(topic=topic.name)
    if (await instance_state(catalog.instance)).partition:
        raise PartitionByFixed(topic=topic.name)
