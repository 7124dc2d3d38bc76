"""Making a topic, or the queue of an address setting, when somebody first uses its name.

Publishers and workers may not define (`ampsq.operations.roles`): what they use first they ask for, a coordinator makes
it, and they wait until it is there.
"""
# What makes and checks definitions is imported where it is used: those who publish to what is there do without.

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import NobodyDefines
from ampsq.base.suggestions import misspelt
from ampsq.base.values import is_name, parse_name
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.calls import definitions as define_calls
from ampsq.protocol.request import Pause

if TYPE_CHECKING:
    from ampsq.protocol.calls.catalog import Catalog

_log = logging.getLogger("ampsq")
__all__ = ["add_published", "add_recorded", "make_queue"]

#: Seconds between looks for what was asked for: three in all, so that coordinator and publisher may start together.
_LOOKS: Final = (0.05, 0.05, 0.1, 0.1, 0.2, *(0.25,) * 10)


def _is_made(catalog: Catalog, name: str) -> bool:
    """Return whether an address setting makes a queue of this name."""
    from ampsq.catalog.definition_checks import settings_of
    from ampsq.definitions.address_setting import makes_queues

    return name not in catalog.views and is_name(name) and makes_queues(settings_of(catalog), name)


async def make_queue(name: str) -> bool:
    """Make the queue of a name that is used, over the topic of that name; False where no address setting says so."""
    from ampsq.catalog.apply import apply
    from ampsq.definitions.queue import Queue

    catalog = await catalog_calls.catalog()
    if name in catalog.queues:
        # Somebody else was quicker.
        return True
    if not _is_made(catalog, name):
        return False
    if not (await _wanted(name, is_topic=False)):
        await apply([Queue(name=name)], None)
    return True


async def add_published(topic: str) -> None:
    """Add a topic that is first published to, and the queue of that name where an address setting makes it.

    A name that is a letter or two from another one may be misspelt, which a warning says.

    Raises:
        TopicNotDefined: the instance takes defined topics alone. DefinitionError: the name is another thing's.
        NobodyDefines: this user may not define it, and no coordinator did.
    """
    await _add(topic, is_recorded=False)


async def add_recorded(topic: str) -> None:
    """Add a topic whose messages are there already, or at the source of a link.

    So it is where the instance takes defined topics alone, too: to refuse it would not undo the messages.
    """
    await _add(topic, is_recorded=True)


async def _add(topic: str, *, is_recorded: bool) -> None:
    from ampsq.catalog.apply import add_topic, check_addable

    catalog = await catalog_calls.catalog()
    if topic in catalog.queues:
        return
    if _is_made(catalog, parse_name(topic)):
        await make_queue(topic)
        return
    check_addable(catalog, topic, is_recorded=is_recorded)
    if topic in catalog.topics:
        return
    if not (await _wanted(topic, is_topic=not is_recorded)):
        await add_topic(topic, is_recorded=is_recorded)
    meant = misspelt(topic, [*catalog.topics, *catalog.queues])
    if meant is not None:
        _log.warning("topic %r is new, and was made; did you mean %r, which was there?", topic, meant)


async def _wanted(name: str, *, is_topic: bool) -> bool:
    """Ask for a name and wait until it is there, or must not be a topic; False where this user may define it."""
    from ampsq.catalog.apply import check_addable

    if not (await define_calls.want_name(name)):
        return False
    for pause in _LOOKS:
        await Pause(pause)
        catalog = await catalog_calls.catalog()
        if name in catalog.queues or (name in catalog.topics and not _is_made(catalog, name)):
            return True
        if is_topic:
            check_addable(catalog, name)
    raise NobodyDefines(name)
