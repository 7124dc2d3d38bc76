"""Applying definitions: all are checked against each other and what is defined, then one after the other is made so."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.base.errors import CatalogChanged, DefinitionError, TopicNotDefined
from ampsq.base.name_patterns import matches_name
from ampsq.base.suggestions import nearest_names
from ampsq.base.values import parse_name
from ampsq.catalog.action_sources import follow_orders, follows_client_events, records_deliveries
from ampsq.catalog.checks import topics_of
from ampsq.catalog.compiled_queue import compiled_queue
from ampsq.catalog.contents_checks import check_contents
from ampsq.catalog.definition_checks import (
    KINDS,
    PENDING,
    Outcome,
    check_kinds,
    check_together,
    defined_like,
    naming_definition,
    outcome_of,
    settings_of,
)
from ampsq.catalog.suggestions import with_suggestions
from ampsq.catalog.type_checks import check_new_topic, topic_of
from ampsq.definitions.action import Action
from ampsq.definitions.address_setting import AddressSetting, settled_for
from ampsq.definitions.destination import Destination
from ampsq.definitions.instance import Instance
from ampsq.definitions.queue import Definition, Queue, Topic, View
from ampsq.definitions.topic import ConflatedTopic
from ampsq.definitions.transport import Transport
from ampsq.expressions import parse
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.calls import definitions as define_calls
from ampsq.protocol.calls.catalog import KnownCatalog
from ampsq.protocol.reads.recovery_points import starts_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.protocol.reads.server import Server
    from ampsq.protocol.request import Call

__all__ = [
    "RACES",
    "Outcome",
    "Planned",
    "add_topic",
    "apply",
    "check_addable",
    "moved_queues",
    "plan",
    "redefine",
]

#: Catalog changes between reading and writing; more than this is not chance.
RACES: Final = 50


async def _nothing() -> None:
    """Check nothing."""


@with_suggestions("queue")
async def apply(
    definitions: list[Definition],
    server: Server | None,
    known: KnownCatalog | None = None,
    *,
    check_version: Callable[[], Awaitable[None]] = _nothing,
) -> list[tuple[Definition, Outcome]]:
    """Define instance, topics, queues, views, actions and the rest, by kind; what is already so is left alone.

    Args:
        definitions: what is to be so.
        server: what is known of the server, for at-most-once queues.
        known: what is known of the catalog from before, and what is known of it afterwards.
        check_version: refuses to go on where the definitions are older than those that a partition has; awaited behind
            each reading of the catalog, whose version then guards what is defined by it.

    Raises:
        DefinitionError: a change is refused while the queue exists, or the definitions do not fit together.
        ServerUnsuitable: the server could bring back what an at-most-once queue delivered.
    """
    check_kinds(definitions)
    known = KnownCatalog() if known is None else known
    catalog = await known.read()
    await check_version()
    check_together(catalog, definitions, server)
    await check_contents(catalog, definitions)
    outcomes: list[tuple[Definition, Outcome]] = []
    for definition in sorted(definitions, key=_place):
        # The first look counts: later ones see what this call itself has begun.
        outcome = outcome_of(catalog, definition)
        for _ in range(RACES):
            try:
                if outcome != "unchanged":
                    with naming_definition(definition):
                        changed = await _define(catalog, definition)
                        if changed is not None:
                            catalog = known.last = changed
                        else:
                            catalog = await known.read()
                            await check_version()
            except CatalogChanged:
                catalog = await known.read()
                await check_version()
                continue
            outcomes.append((definition, outcome))
            break
        else:
            raise CatalogChanged(reason=f"the catalog changed {RACES} times while {definition!r} was applied")
    return outcomes


async def _with_topic(catalog: Catalog, topic: str, text: str) -> Catalog:
    """Define a topic: the catalog behind it, which saves reading it again.

    Where somebody else changes it from here on, its version is another one, and what goes by this one is refused.
    """
    version = await _define_topic(catalog, topic, text)
    return replace(catalog, version=version, topics=catalog.topics | {topic: text})


class Planned(NamedTuple):
    """The effect that applying a definition would have.

    Attributes:
        definition: as it is to be.
        outcome: ``new``, ``changed`` or ``unchanged``.
        changes: what would change of what is defined: element -> its value before and after, as JSON values.
    """

    definition: Definition
    outcome: Outcome
    changes: dict[str, tuple[object, object]]


@with_suggestions("queue")
async def plan(definitions: list[Definition], server: Server | None) -> list[Planned]:
    """Say what `apply` would do, in its order, and refuse what it would refuse; nothing is done."""
    check_kinds(definitions)
    return await plan_on((await catalog_calls.catalog()), definitions, server)


async def plan_on(catalog: Catalog, definitions: list[Definition], server: Server | None) -> list[Planned]:
    """Say the same of an instance that has this catalog."""
    check_together(catalog, definitions, server)
    await check_contents(catalog, definitions)
    in_order = sorted(definitions, key=_place)
    return [Planned(each, outcome_of(catalog, each), _changes(catalog, each)) for each in in_order]


def _place(definition: Definition) -> int:
    """Return the position of a definition's kind; queues of all kinds share one."""
    return KINDS.index(Queue if isinstance(definition, Queue) else type(definition))


def _changes(catalog: Catalog, definition: Definition) -> dict[str, tuple[object, object]]:
    """Return the differences from what is defined."""
    text = defined_like(catalog, definition).get(definition.name)
    if text is None:
        return {}
    if isinstance(definition, Topic):
        return definition.changes_from(Topic.stored(definition.name, text))
    return definition.changes_from(type(definition).from_json(text.removeprefix(PENDING)))


async def _define(catalog: Catalog, definition: Definition) -> Catalog | None:
    """Define one thing: the catalog behind it; None: it is to be read again."""
    text = definition.to_json()
    if isinstance(definition, Topic):
        return await _with_topic(catalog, definition.name, text)
    if isinstance(definition, Queue):
        return await _define_queue(catalog, definition, text)
    await _define_other(catalog, definition, text)
    return None


async def _define_other(catalog: Catalog, definition: Definition, text: str) -> None:
    if isinstance(definition, Action):
        await _define_action(catalog, definition, text)
    elif isinstance(definition, View):
        await _define_view(catalog, definition, text)
    elif isinstance(definition, ConflatedTopic):
        await _define_conflated(catalog, definition, text)
    elif isinstance(definition, AddressSetting):
        await _define_setting(catalog, definition, text)
    elif isinstance(definition, Transport):
        await define_calls.define_transport(catalog.version, definition.name, text, definition.limits)
    elif isinstance(definition, Destination):
        is_sync = definition.sync_type == "sync"
        await define_calls.define_destination(catalog.version, definition.name, text, is_sync=is_sync)
    elif isinstance(definition, Instance):
        await define_calls.define_instance(
            catalog.version,
            definition.group or "",
            definition.label or "",
            definition.expression_limit,
            defined_only=definition.topics == "defined",
        )


def _define_topic(catalog: Catalog, topic: str, text: str) -> Call[int]:
    if text == "{}":
        check_new_topic(catalog, topic)
    queues = [name for name, stored in catalog.queues.items() if Queue.from_json(stored).feeds_from(topic)]
    stored = Topic.stored(topic, text)
    paths = "\n".join(f"{parse(path, 'filter').json}\t{path}" for path in stored.key)
    life = int(stored.expiration or 0)
    return define_calls.define_topic(
        catalog.version, topic, text, queues, life=life, paths=paths, type=stored.type.word
    )


async def _define_queue(catalog: Catalog, queue: Queue, text: str) -> Catalog:
    """Define a queue, and the topic that it is published to if that is new: the catalog behind it."""
    target = queue.default_publish_target
    known = catalog.topics | {target: ""}
    if queue.is_pattern:
        topics = {topic for topic in known if queue.feeds_from(topic)}
    else:
        topics = {topic for topic in (queue.underlying_topic,) if topic in known}
    subscriptions = [
        subscription
        for subscription, pattern in catalog.patterns.items()
        if queue.name not in catalog.queues and _matches(pattern, queue.name)
    ]
    if target not in catalog.topics:
        catalog = await _with_topic(catalog, target, topic_of(queue, target))
    places = await _places(catalog, queue, topics)
    settled = settled_for(queue, settings_of(catalog))
    recorded = records_deliveries(queue, map(Action.from_json, catalog.actions.values()))
    compiled = compiled_queue(queue, settled, catalog.group, recorded=recorded)
    version = await define_calls.define_queue(
        catalog.version, queue.name, text, compiled, target, places, subscriptions
    )
    return replace(catalog, version=version, queues=catalog.queues | {queue.name: text})


async def _places(catalog: Catalog, queue: Queue, topics: set[str]) -> list[str]:
    """The topics of a queue, each with the cursor where it begins, if it is new and that is not the first entry."""
    point = queue.recovery_point
    if queue.name in catalog.queues or point == "epoch":
        return sorted(topics)
    if point in ("now", "creation"):
        return [f"{topic} now" for topic in sorted(topics)]
    starts = await starts_of(queue, sorted(topics))
    return [f"{topic} {cursor}" for topic, cursor in starts]


async def moved_queues(definitions: Iterable[Definition], known: KnownCatalog) -> list[tuple[Queue, list[str]]]:
    """Return the definitions that change the recovery point of a queue, each with the topics that feed it."""
    catalog, out = (await known.read()), []
    for queue in definitions:
        if not isinstance(queue, Queue) or queue.name not in catalog.queues:
            continue
        points = {queue.recovery_point, Queue.from_json(catalog.queues[queue.name]).recovery_point}
        if len(points) > 1 and points != {"now", "creation"}:
            out.append((queue, sorted(topic for topic in catalog.topics if queue.feeds_from(topic))))
    return out


async def redefine(name: str) -> None:
    """Define a queue again as the catalog has it, after its compiled definition was lost."""
    for _ in range(RACES):
        catalog = await catalog_calls.catalog()
        try:
            await _define_queue(catalog, Queue.from_json(catalog.queues[name]), catalog.queues[name])
        except CatalogChanged:
            continue
        return
    raise CatalogChanged(reason=f"the catalog changed {RACES} times while {name!r} was defined again")


async def _define_action(catalog: Catalog, action: Action, text: str) -> None:
    for topic in topics_of(action):
        if topic not in catalog.topics and topic not in catalog.queues:
            await _define_topic(catalog, topic, "{}")
            raise CatalogChanged(reason="a topic of the action was added")
    known = catalog.actions.get(action.name)
    former = Action.from_json(known) if known else None
    after = replace(catalog, actions=catalog.actions | {action.name: text})
    has_listeners = follows_client_events(map(Action.from_json, after.actions.values()))
    await define_calls.define_action(
        catalog.version, action.name, text, follow_orders(action, former, after), has_listeners=has_listeners
    )


async def _define_setting(catalog: Catalog, setting: AddressSetting, text: str) -> None:
    """Add or change a setting, and compile the queues that it changes anew, one a call.

    Until all are, the catalog says so: whoever compiles one of them meanwhile goes by the new setting, and who applies
    the setting again after this one died finishes its work.
    """
    pending = PENDING + text
    changed = list(_changed_by(catalog, setting, all_that_match=catalog.settings.get(setting.match) == pending))
    if not changed:
        await define_calls.define_setting(catalog.version, setting.match, text)
        return
    if catalog.settings.get(setting.match) != pending:
        await define_calls.define_setting(catalog.version, setting.match, pending)
        raise CatalogChanged(reason="the setting was added")
    for queue in changed:
        catalog = await _define_queue(catalog, queue, catalog.queues[queue.name])
    await define_calls.define_setting(catalog.version, setting.match, text)


def _changed_by(catalog: Catalog, setting: AddressSetting, *, all_that_match: bool) -> Iterator[Queue]:
    """The queues of which a setting makes something else than they are."""
    before = settings_of(catalog)
    after = [*(each for each in before if each.match != setting.match), setting]
    for text in catalog.queues.values():
        queue = Queue.from_json(text)
        if not setting.matches(queue.default_publish_target):
            continue
        if all_that_match or settled_for(queue, before) != settled_for(queue, after):
            yield queue


async def _define_view(catalog: Catalog, view: View, text: str) -> None:
    for topic in (view.name, *(() if view.is_pattern else view.underlying_topic)):
        if topic not in catalog.topics and topic not in catalog.queues:
            await _define_topic(catalog, topic, "{}")
            raise CatalogChanged(reason="a topic of the view was added")
    await define_calls.define_view(catalog.version, view.name, text)


async def _define_conflated(catalog: Catalog, conflated: ConflatedTopic, text: str) -> None:
    if conflated.underlying_topic not in catalog.topics:
        await _define_topic(catalog, conflated.underlying_topic, "{}")
        raise CatalogChanged(reason="the topic under a conflated topic was added")
    await define_calls.define_conflated(catalog.version, conflated.name, text)


def check_addable(catalog: Catalog, topic: str, *, is_recorded: bool = False) -> None:
    """Refuse a topic that cannot be made by publishing to it.

    Args:
        catalog: everything that is defined.
        topic: its name.
        is_recorded: its messages are there already, or at the source of a link: whether somebody defined it is no
            question any more.

    Raises:
        TopicNotDefined: the instance takes defined ones alone. DefinitionError: the name is another thing's.
    """
    if topic in catalog.conflated:
        under = ConflatedTopic.from_json(catalog.conflated[topic]).underlying_topic
        raise DefinitionError(f"{topic!r} is a conflated topic; allowed: the topic under it, {under!r}")
    defined = catalog.topics.keys() | catalog.queues.keys()
    # What a view publishes to is defined with it.
    if catalog.defined_only and not is_recorded and topic not in defined | catalog.views.keys():
        raise TopicNotDefined(topic, nearest_names(topic, defined - catalog.views.keys()))
    check_new_topic(catalog, topic)


async def add_topic(topic: str, *, is_recorded: bool = False) -> None:
    """Add a topic that is first published to, with the queues whose pattern it matches.

    Nobody can forbid it in between: what is added goes by the version of the catalog that was read.

    Args:
        topic: its name.
        is_recorded: as of `check_addable`.

    Raises:
        As `check_addable` does.
    """
    parse_name(topic)
    for _ in range(RACES):
        catalog = await catalog_calls.catalog()
        if topic in catalog.topics or topic in catalog.queues:
            return
        check_addable(catalog, topic, is_recorded=is_recorded)
        try:
            await _define_topic(catalog, topic, "{}")
        except CatalogChanged:
            continue
        return
    raise CatalogChanged(reason=f"the catalog changed {RACES} times while topic {topic!r} was added")


def _matches(pattern: str, name: str) -> bool:
    return matches_name(pattern, name)
