"""Removing definitions: checked together before anything is removed, then one after the other, what depends first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import AmpsqError, CatalogChanged, DefinitionError, QueueInUse
from ampsq.catalog.action_sources import follows_client_events, records_deliveries
from ampsq.catalog.apply import RACES, apply
from ampsq.catalog.checks import check_action
from ampsq.catalog.definition_checks import check_conflated, check_kinds, definitions_as_stored, naming_definition
from ampsq.catalog.read_definitions import OF_MESSAGES
from ampsq.definitions.action import Action
from ampsq.definitions.action_parts import On
from ampsq.definitions.address_setting import AddressSetting
from ampsq.definitions.destination import Destination
from ampsq.definitions.instance import Instance
from ampsq.definitions.queue import Definition, Queue, Topic, View
from ampsq.definitions.topic import ConflatedTopic
from ampsq.definitions.transport import Transport
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.calls import definitions as define_calls
from ampsq.protocol.calls import queue_stats as stats_calls
from ampsq.protocol.reads.instance import instance_state

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.protocol.request import Call

__all__ = ["check_removal", "remove"]

#: What depends on others goes before them. Queues of all kinds are of one.
_ORDER: Final[tuple[type[Definition], ...]] = (
    Destination, Action, ConflatedTopic, View, Queue, AddressSetting, Topic, Transport, Instance,
)  # fmt: skip


async def check_removal(definitions: list[Definition], removed: list[Definition]) -> None:
    """Refuse to remove what others need, or what is in use.

    Args:
        definitions: what is to be defined before that.
        removed: what is to be removed.

    Raises:
        DefinitionError: an action or a view needs a queue or a view that is to be removed.
        QueueInUse: a queue has subscriptions, leases, delayed or scheduled messages.
    """
    catalog = await catalog_calls.catalog()
    for queue in removed:
        if isinstance(queue, Queue) and queue.name in catalog.queues:
            with naming_definition(queue):
                _check_unused(queue.name, (await stats_calls.stats(queue.name)))
    queues = [each for each in removed if isinstance(each, Queue)]
    left = replace(
        catalog,
        queues=_without(catalog.queues, definitions, removed, Queue),
        views=_without(catalog.views, definitions, removed, View),
        actions=_without(catalog.actions, definitions, removed, Action),
    )
    bare = {topic.name: "{}" for topic in removed if isinstance(topic, Topic)}
    conflated = _without(catalog.conflated, definitions, removed, ConflatedTopic)
    topics = catalog.topics | definitions_as_stored(definitions, Topic) | bare
    check_conflated(replace(left, topics=topics, conflated=conflated), definitions)
    for text in left.actions.values():
        action = Action.from_json(text)
        try:
            check_action(left, action)
        except AmpsqError as reason:
            told = f"{action.titled} needs what is to be removed: {reason}; allowed: remove both, or change the action"
            raise DefinitionError(told) from None
    for text in left.views.values():
        view = View.from_json(text)
        for queue in queues:
            if view.underlying_topic == (queue.name,):
                told = f"{view.titled} is over {queue.name!r}, which is to be removed; allowed: remove both"
                raise DefinitionError(told)


def _check_unused(name: str, figures: stats_calls.QueueCounts) -> None:
    uses = {
        "subscriptions": figures.subscriptions,
        "leased": figures.leased,
        "delayed": figures.delayed + figures.scheduled,
    }
    if any(uses.values()):
        raise QueueInUse(queue=name, **{use: number for use, number in uses.items() if number})


def _without(
    known: Mapping[str, str], definitions: list[Definition], removed: list[Definition], kind: type[Definition]
) -> dict[str, str]:
    gone = {each.name for each in removed if isinstance(each, kind)}
    return {
        name: text for name, text in {**known, **definitions_as_stored(definitions, kind)}.items() if name not in gone
    }


async def _nothing() -> None:
    """Check nothing."""


async def remove(removed: list[Definition], *, check_version: Callable[[], Awaitable[None]] = _nothing) -> None:
    """Remove definitions; what is not there is no fault. See `Admin.remove`; `check_version` as of `apply`."""
    check_kinds(removed)
    await check_removal([], removed)
    for definition in sorted(removed, key=_place):
        with naming_definition(definition):
            for _ in range(RACES):
                try:
                    catalog = await catalog_calls.catalog()
                    await check_version()
                    await _remove(catalog, definition, check_version)
                except CatalogChanged:
                    continue
                break
            else:
                raise CatalogChanged(reason=f"the catalog changed {RACES} times while {definition!r} was removed")


def _place(definition: Definition) -> int:
    return next(number for number, kind in enumerate(_ORDER) if isinstance(definition, kind))


async def _remove(catalog: Catalog, definition: Definition, check_version: Callable[[], Awaitable[None]]) -> None:
    name = definition.name
    if isinstance(definition, Queue):
        await define_calls.remove_queue(catalog.version, name)
    elif isinstance(definition, View):
        await define_calls.remove_view(catalog.version, name)
    elif isinstance(definition, ConflatedTopic):
        await define_calls.remove_conflated(catalog.version, name)
    elif isinstance(definition, Action):
        await _remove_action(catalog, name)
    elif isinstance(definition, Destination):
        await define_calls.remove_destination(name)
    elif isinstance(definition, Transport):
        await define_calls.remove_transport(catalog.version, name)
    elif isinstance(definition, AddressSetting) and name in catalog.settings:
        # Its queues are compiled as if it said nothing; then it does.
        await apply([AddressSetting(match=name)], None, check_version=check_version)
        version = (await catalog_calls.catalog()).version
        await check_version()
        await define_calls.remove_setting(version, name)
    elif isinstance(definition, Instance):
        await apply([Instance(name=name)], None, check_version=check_version)
    elif isinstance(definition, Topic) and name in catalog.topics:
        await apply([await _bare(catalog, name)], None, check_version=check_version)


async def _bare(catalog: Catalog, name: str) -> Topic:
    """Return what is left of a topic: what is needed to read its messages, and to find the partition of the next."""
    known = Topic.stored(name, catalog.topics[name])
    kept = {element: value for element, value in known.elements().items() if element in OF_MESSAGES}
    if known.key and "partition_by" not in kept and (await instance_state(catalog.instance)).partition:
        # Until now its key has chosen them.
        kept["partition_by"] = list(known.key)
    return Topic(**{**kept, "name": name})


def _remove_action(catalog: Catalog, name: str) -> Call[bool]:
    left = [Action.from_json(text) for other, text in catalog.actions.items() if other != name]
    followed = []
    if name in catalog.actions:
        former = Action.from_json(catalog.actions[name])
        triggers = [trigger for trigger in former.on if isinstance(trigger, On.deliver)]
        queues = {queue: Queue.from_json(text) for queue, text in catalog.queues.items()}
        followed = [queue for queue in queues if any(trigger.follows(queue) for trigger in triggers)]
        followed = [queue for queue in followed if not records_deliveries(queues[queue], left)]
    return define_calls.remove_action(catalog.version, name, followed, has_listeners=follows_client_events(left))
