"""Checks of a destination against topics, queues and views, and of the names of instances."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampsq.base.errors import DefinitionError
from ampsq.catalog.sent_streams import sent_queue
from ampsq.definitions.destination import MOST_SYNC, Destination
from ampsq.definitions.instance import ITSELF, Instance
from ampsq.definitions.queue import GroupLocalQueue, LocalQueue, Queue, View

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ampsq.definitions.definition import Definition
    from ampsq.protocol.calls.catalog import Catalog

__all__ = ["check_replication"]


def check_replication(catalog: Catalog, planned: Catalog, queues: Mapping[str, Queue], definition: Definition) -> None:
    """Refuse what cannot be replicated so.

    Args:
        catalog: everything that is defined.
        planned: everything that is to be.
        queues: the queues of it.
        definition: one of those that are to be.

    Raises:
        DefinitionError: it cannot be.
    """
    if isinstance(definition, Instance):
        _check_instance(catalog, queues, definition)
    elif isinstance(definition, Destination):
        _check_names(catalog.instance, definition)
        _check_number(planned, definition)
        _check_named(planned, queues, definition, definition)
        _check_own_order(queues.values(), [definition], definition)
    elif isinstance(definition, LocalQueue | View):
        for name, text in catalog.destinations.items():
            # One that is applied with it is itself refused.
            if planned.destinations[name] == text:
                _check_named(planned, queues, Destination.from_json(text), definition)
    elif isinstance(definition, Queue):
        _check_own_order([definition], map(Destination.from_json, planned.destinations.values()), definition)


def _check_own_order(queues: Iterable[Queue], destinations: Iterable[Destination], about: Definition) -> None:
    """Refuse a queue with groups or a rate that others share: each would deliver a part of a group, or at that rate."""
    alone = [queue for queue in queues if queue.is_grouped or queue.rate]
    for destination in destinations if alone else ():
        for queue in alone:
            if sent_queue(destination, queue) is None:
                continue
            if queue.is_grouped:
                raise DefinitionError(
                    f"{about.titled}: {queue.titled} has groups, and {destination.titled} is sent it: each instance "
                    "would deliver a part of a group, in an order of its own; allowed: a LocalQueue with group_by, of "
                    "which each instance has its own copies, or topics of the destination that do not name the queue"
                )
            raise DefinitionError(
                f"{about.titled}: {queue.titled} has a rate, and {destination.titled} is sent it: each instance would "
                "deliver at that rate, and all together faster; allowed: a LocalQueue with rate, of which each "
                "instance has its own copies, or topics of the destination that do not name the queue"
            )


def _check_instance(catalog: Catalog, queues: Mapping[str, Queue], instance: Instance) -> None:
    if instance.name not in (ITSELF, catalog.instance):
        raise DefinitionError(
            f"{instance.titled}: name: this is the instance {catalog.instance!r}; allowed: its name, or no name, or "
            f"apply it to {instance.name!r}: --instance {instance.name}"
        )
    if (instance.group or catalog.instance) == catalog.group:
        return
    for name, text in catalog.queues.items():
        queue = queues[name]
        was_shared = isinstance(Queue.from_json(text), GroupLocalQueue)
        if was_shared and isinstance(queue, GroupLocalQueue) and queue.group_local_queue_domain is None:
            raise DefinitionError(
                f"{instance.titled}: group: {catalog.group!r} is the domain of {queue.titled}, which would be another "
                f"queue; allowed: that queue with group_local_queue_domain={catalog.group!r} first, or no other group"
            )


def _check_names(own: str, destination: Destination) -> None:
    """Refuse one that leads to an instance of this one's name: itself, or another, whose messages would look like its.

    A link finds out which of them it is; neither may be.
    """
    for address in destination.addresses:
        if address.instance == own:
            raise DefinitionError(
                f"{destination.titled}: addresses: {address} names this instance, {own!r}; allowed: behind # the name "
                "of another instance; of two that are called the same, one has to get another name first"
            )
        if address.instance is None and destination.name == own:
            raise DefinitionError(
                f"{destination.titled}: addresses: {address} has no instance's name, so that the destination's counts, "
                "which is this instance's; allowed: behind # the name of another instance"
            )
    if destination.name == own and not destination.addresses and destination.group is None:
        raise DefinitionError(
            f"{destination.titled}: name: this instance is called so, and without addresses it would be waited for; "
            "allowed: the name of another instance, or a group"
        )


def _check_number(planned: Catalog, destination: Destination) -> None:
    number = sum(Destination.from_json(text).sync_type == "sync" for text in planned.destinations.values())
    if destination.sync_type == "sync" and number > MOST_SYNC:
        raise DefinitionError(
            f"{destination.titled}: sync_type: 'sync' would make {number} of them; allowed: at most {MOST_SYNC} sync "
            "destinations of an instance, and any number of 'async'"
        )


def _check_named(planned: Catalog, queues: Mapping[str, Queue], destination: Destination, about: Definition) -> None:
    """Check that whatever is named in full can be sent; a regular expression passes over the rest."""
    for topic in destination.topics:
        queue, reason = queues.get(topic.name), ""
        if isinstance(queue, LocalQueue):
            reason = (
                "a local queue, of which each instance delivers its own copies; allowed: a Queue, or a topic alone: of "
                f"this one {queue.underlying_topic!r}, where the queue has another name"
            )
        elif topic.name in planned.views:
            view = View.from_json(planned.views[topic.name])
            reason = (
                "a view, which every instance makes for itself; allowed: what it is made of, "
                f"{', '.join(map(repr, view.underlying_topic))}, and the same view there"
            )
        if reason and about == destination:
            raise DefinitionError(f"{about.titled}: topics: {topic.name!r} is {reason}")
        if reason and about.name == topic.name:
            raise DefinitionError(f"{about.titled}: name: {destination.titled} sends it, and it is {reason}")
