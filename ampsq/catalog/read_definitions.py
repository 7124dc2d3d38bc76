"""Everything that is defined at an instance, as definitions; and what of it others leave out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ampsq.catalog.definition_checks import instance_defined, settings_of
from ampsq.definitions.action import Action
from ampsq.definitions.destination import Destination
from ampsq.definitions.instance import Instance
from ampsq.definitions.queue import Definition, Queue, Topic, View
from ampsq.definitions.topic import ConflatedTopic
from ampsq.definitions.transport import Transport
from ampsq.protocol.calls import catalog as catalog_calls

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampsq.protocol.calls.catalog import Catalog

__all__ = ["OF_MESSAGES", "definitions_left_out", "definitions_of", "read_definitions"]

OF_MESSAGES: Final = {"name", "message_type", "field_separator", "partition_by"}
"""Elements of a topic that its messages need."""
#: What the catalog has of a topic that was only used.
_USED: Final = "{}"


def definitions_of(catalog: Catalog) -> list[Definition]:
    """All definitions, in the order in which they are applied; not topics that were only used."""
    topics = [Topic.stored(name, text) for name, text in sorted(catalog.topics.items()) if text != _USED]
    return [
        instance_defined(catalog),
        *(Transport.from_json(text) for _, text in sorted(catalog.transports.items())),
        *topics,
        *sorted(settings_of(catalog), key=lambda setting: setting.match),
        *(Queue.from_json(text) for _, text in sorted(catalog.queues.items())),
        *(View.from_json(text) for _, text in sorted(catalog.views.items())),
        *(ConflatedTopic.from_json(text) for _, text in sorted(catalog.conflated.items())),
        *(Action.from_json(text) for _, text in sorted(catalog.actions.items())),
        *(Destination.from_json(text) for _, text in sorted(catalog.destinations.items())),
    ]


async def read_definitions() -> list[Definition]:
    """Read all definitions; see `Admin.definitions`."""
    catalog = await catalog_calls.catalog()
    return definitions_of(catalog)


def definitions_left_out(defined: Iterable[Definition], definitions: Iterable[Definition]) -> list[Definition]:
    """Return definitions that exist and have no counterpart among other definitions, so that they would be removed.

    Topics that say no more than what their messages need have nothing to remove: their messages stay. An instance has
    its group, its label and its limit, if the others do not speak of it.
    """
    wanted = list(definitions)
    names = {(_space(each), each.name) for each in wanted}
    speaks = any(isinstance(each, Instance) for each in wanted)
    return [each for each in defined if (_space(each), each.name) not in names and _has_something(each, speaks=speaks)]


def _space(definition: Definition) -> type[Definition]:
    """Return the kind that has a space of names of its own; queues of all kinds share one."""
    return Queue if isinstance(definition, Queue) else type(definition)


def _has_something(definition: Definition, *, speaks: bool) -> bool:
    if isinstance(definition, Instance):
        return bool(definition.elements().keys() - {"name"}) and not speaks
    return not isinstance(definition, Topic) or bool(definition.elements().keys() - OF_MESSAGES)
