"""Definitions against the catalog: which ones are new or changed, and whether all fit together."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from ampsq.base.errors import AmpsqError, DefinitionError, FlushingUnknown, ServerUnsuitable
from ampsq.base.message_types import EXPRESSION_LIMIT
from ampsq.base.values import shown
from ampsq.catalog.checks import check_action
from ampsq.catalog.destination_checks import check_replication
from ampsq.catalog.queue_changes import refused_changes
from ampsq.catalog.type_checks import check_types
from ampsq.definitions.action import Action
from ampsq.definitions.address_setting import AddressSetting, settled_for
from ampsq.definitions.destination import Destination
from ampsq.definitions.instance import Instance
from ampsq.definitions.queue import Definition, GroupLocalQueue, LocalQueue, Queue, Topic, View
from ampsq.definitions.topic import ConflatedTopic
from ampsq.definitions.transport import Transport
from ampsq.protocol.calls.catalog import Catalog

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ampsq.protocol.reads.server import Server

__all__ = [
    "KINDS",
    "PENDING",
    "Outcome",
    "check_among_themselves",
    "check_kinds",
    "check_together",
    "defined_like",
    "definitions_as_stored",
    "instance_defined",
    "naming_definition",
    "outcome_of",
    "settings_of",
]

#: What applying a definition came to.
Outcome = Literal["new", "changed", "unchanged"]
#: Stands before the definition of a setting while queues are still to be compiled by it.
PENDING: Final = ">"
#: Every kind of definition, in the order in which they are applied: each knows those before it.
KINDS: Final[tuple[type[Definition], ...]] = (
    Instance, Transport, Topic, AddressSetting, Queue, LocalQueue, GroupLocalQueue, View, ConflatedTopic, Action,
    Destination,
)  # fmt: skip
#: Where the catalog has them.
_PARTS: Final[Mapping[type[Definition], str]] = {
    Transport: "transports",
    Topic: "topics",
    AddressSetting: "settings",
    Queue: "queues",
    View: "views",
    ConflatedTopic: "conflated",
    Action: "actions",
    Destination: "destinations",
}


def check_together(catalog: Catalog, definitions: list[Definition], server: Server | None) -> None:
    """Refuse all of the definitions when one of them cannot be, also because of another one of them.

    Raises:
        DefinitionError: one cannot be, or cannot be changed so. ServerUnsuitable: an at-most-once queue needs another
            server.
    """
    planned = replace(
        catalog,
        topics=catalog.topics | definitions_as_stored(definitions, Topic),
        queues=catalog.queues | definitions_as_stored(definitions, Queue),
        views=catalog.views | definitions_as_stored(definitions, View),
        conflated=catalog.conflated | definitions_as_stored(definitions, ConflatedTopic),
        settings=catalog.settings | definitions_as_stored(definitions, AddressSetting),
        destinations=catalog.destinations | definitions_as_stored(definitions, Destination),
    )
    queues = {name: Queue.from_json(text) for name, text in planned.queues.items()}
    for definition in definitions:
        with naming_definition(definition):
            _check_one(catalog, planned, queues, definition, server)
            check_types(planned, queues, [definition])
            check_replication(catalog, planned, queues, definition)
    check_conflated(planned, definitions)
    settings, told = settings_of(planned), dict.fromkeys(each.name for each in definitions if isinstance(each, Queue))
    # What was defined goes together with the settings that were: only another setting asks for a look at all queues.
    sets = any(isinstance(each, AddressSetting) for each in definitions)
    for queue in queues.values() if sets else (queues[name] for name in told):
        with naming_definition(queue):
            settled = settled_for(queue, settings)
            if queue.name in told:
                _check_longest_delay(queue, settled)
    for definition in definitions:
        if isinstance(definition, Action):
            with naming_definition(definition):
                check_action(planned, definition)


def check_among_themselves(definitions: list[Definition]) -> None:
    """Refuse definitions of which two cannot stand beside each other, whatever an instance has besides.

    Raises:
        DefinitionError: one gives a name a second meaning, or asks for what another one rules out.
    """
    queues = {each.name: each for each in definitions if isinstance(each, Queue)}
    planned = Catalog(
        version=0,
        topics=definitions_as_stored(definitions, Topic),
        queues=definitions_as_stored(definitions, Queue),
        views=definitions_as_stored(definitions, View),
        actions={},
        patterns={},
        settings={},
        transports={},
        destinations={},
        conflated={},
        instance="",
        group="",
    )
    for definition in definitions:
        with naming_definition(definition):
            _check_names_beside(planned, queues, definition)
            if isinstance(definition, Topic | View):
                _check_retention(planned, queues, definition)


def check_conflated(planned: Catalog, definitions: list[Definition]) -> None:
    """Refuse conflated topics that would be something else as well, or are of nothing that has a key.

    Args:
        planned: everything that is defined, or is to be.
        definitions: of which one is told about.

    Raises:
        DefinitionError: one is.
    """
    for name, text in planned.conflated.items():
        made = ConflatedTopic.from_json(text)
        with naming_definition(next((each for each in definitions if each.name == name), made)):
            for what, names in (("topic", planned.topics), ("queue", planned.queues), ("view", planned.views)):
                if name in names:
                    raise DefinitionError(f"{made.titled}: name: a {what} has the same name; allowed: another name")
            under = made.underlying_topic
            if under in planned.queues and Queue.from_json(planned.queues[under]).underlying_topic != under:
                raise DefinitionError(f"{made.titled}: underlying_topic: {under!r} is a queue; allowed: a topic")
            topic = Topic.stored(under, planned.topics.get(under, "{}"))
            if not made.key and not topic.key:
                raise DefinitionError(
                    f"{made.titled}: key: missing, and the topic {under!r} has none; allowed: the identifiers that "
                    "make messages versions of one record, as in ['/id']"
                )
            if topic.message_type == "binary":
                raise DefinitionError(f"{made.titled}: underlying_topic: {under!r} is binary, which has no key")


@contextlib.contextmanager
def naming_definition(definition: Definition) -> Iterator[None]:
    """Let an error say which definition is refused."""
    try:
        yield
    except AmpsqError as error:
        error.definition = error.definition or definition
        raise


def outcome_of(catalog: Catalog, definition: Definition) -> Outcome:
    """Return the outcome of applying a definition. A topic that was only used until now counts as unchanged."""
    text = defined_like(catalog, definition).get(definition.name)
    if text is None:
        return "new"
    return "unchanged" if text == definition.to_json() else "changed"


def defined_like(catalog: Catalog, definition: Definition) -> dict[str, str]:
    """Return the definitions of the same kind, by name.

    Raises:
        DefinitionError: it is no definition.
    """
    if isinstance(definition, Instance):
        return {definition.name: _instance_of(catalog, definition).to_json()}
    for kind, part in _PARTS.items():
        if isinstance(definition, kind):
            found: dict[str, str] = getattr(catalog, part)
            return found
    raise _no_definition(definition)


def check_kinds(definitions: Iterable[object]) -> None:
    """Refuse what is no definition, before anything is done with the others.

    Raises:
        DefinitionError: one of them is none.
    """
    for each in definitions:
        if not isinstance(each, KINDS):
            raise _no_definition(each)


def _no_definition(given: object) -> DefinitionError:
    kinds = ", ".join(kind.__name__ for kind in KINDS)
    return DefinitionError(f"{shown(given)} is not a definition; allowed: {kinds}, as in Queue(name='work')")


def _instance_of(catalog: Catalog, definition: Instance) -> Instance:
    """Return the instance's present state as a definition of it."""
    defined = instance_defined(catalog)
    # Its own name is no other group than none.
    group = definition.group if (definition.group or catalog.instance) == catalog.group else defined.group
    limit = definition.expression_limit
    if (limit or EXPRESSION_LIMIT) != catalog.expression_limit:
        limit = defined.expression_limit
    return Instance(
        name=definition.name, group=group, label=defined.label, expression_limit=limit, topics=defined.topics
    )


def instance_defined(catalog: Catalog) -> Instance:
    """Return the definition of the instance, without elements that have their default value."""
    return Instance(
        name=catalog.instance,
        group=None if catalog.group == catalog.instance else catalog.group,
        label=catalog.label or None,
        expression_limit=None if catalog.expression_limit == EXPRESSION_LIMIT else catalog.expression_limit,
        topics="defined" if catalog.defined_only else "any",
    )


def settings_of(catalog: Catalog) -> list[AddressSetting]:
    """All address settings of a catalog, those that are being applied too."""
    return [AddressSetting.from_json(text.removeprefix(PENDING)) for text in catalog.settings.values()]


def _check_one(
    catalog: Catalog, planned: Catalog, queues: dict[str, Queue], definition: Definition, server: Server | None
) -> None:
    is_changed = outcome_of(catalog, definition) != "unchanged"
    if isinstance(definition, Queue) and is_changed:
        _check_queue(catalog, definition, server)
    if not isinstance(definition, Queue) or is_changed:
        _check_names_beside(planned, queues, definition)
    if isinstance(definition, Topic | View):
        _check_retention(planned, queues, definition)
    if isinstance(definition, Queue | View) and definition.name in planned.topics:
        _check_records(planned, Topic.stored(definition.name, planned.topics[definition.name]))


def _check_names_beside(planned: Catalog, queues: dict[str, Queue], definition: Definition) -> None:
    """A name stands for one thing, whatever else is defined."""
    if isinstance(definition, Topic):
        _check_topic(queues, definition)
        _check_records(planned, definition)
    if isinstance(definition, Queue):
        _check_names(planned, queues, definition)
    if isinstance(definition, View):
        _check_view(queues, definition)
        _check_view_of_views(planned, definition)


def _check_longest_delay(queue: Queue, settled: Queue) -> None:
    """The longest delay of what is not delayed says nothing; the delay may be that of an address setting."""
    if "max_redelivery_delay" in queue.elements() and not settled.redelivery_delay:
        raise DefinitionError(
            f"{queue.titled}: max_redelivery_delay: {shown(queue.max_redelivery_delay)} is of no effect without "
            "redelivery_delay, which is 0s; allowed: with redelivery_delay, here or in an address setting"
        )


def definitions_as_stored(definitions: list[Definition], kind: type[Definition]) -> dict[str, str]:
    """Return the definitions of one kind in the form in which the catalog stores them."""
    return {item.name: item.to_json() for item in definitions if isinstance(item, kind)}


def _check_topic(queues: dict[str, Queue], topic: Topic) -> None:
    """A name that stands for another topic cannot be a topic of its own as well."""
    queue = queues.get(topic.name)
    if queue is not None and queue.default_publish_target != topic.name:
        raise DefinitionError(
            f"Topic {topic.name!r}: name: {topic.name!r} is a queue, whose messages go to "
            f"{queue.default_publish_target!r}; allowed: a name that no such queue has"
        )


def _check_queue(catalog: Catalog, queue: Queue, server: Server | None) -> None:
    known = catalog.queues.get(queue.name)
    refused = refused_changes(Queue.from_json(known), queue) if known else []
    if refused:
        raise DefinitionError("\n".join(refused))
    _check_at_most_once(queue, server)


def _check_at_most_once(queue: Queue, server: Server | None) -> None:
    if queue.semantics != "at-most-once" or queue.allow_redelivery_after_crash:
        return
    if server is not None and server.appends and not server.appendfsync:
        raise FlushingUnknown(f"{queue.titled}: semantics: 'at-most-once'")
    if server is None or not server.never_forgets:
        raise ServerUnsuitable(
            f"{queue.titled}: semantics: 'at-most-once' needs a server that never brings back a delivered "
            "message: appendonly yes and appendfsync always. Configure it so (the embedded one: `ampsq up "
            "--appendfsync always`, Client(appendfsync='always')), or say allow_redelivery_after_crash: true"
        )


def _check_names(planned: Catalog, queues: dict[str, Queue], queue: Queue) -> None:
    """A queue's name stands for its publish target, so it cannot be a topic of its own as well."""
    target = queue.default_publish_target
    if queue.name != target and queue.name in planned.topics:
        raise DefinitionError(
            f"{queue.titled}: name: {queue.name!r} is a topic, and would stand for {target!r} as well; "
            "allowed: a name that no topic has, or the topic itself as underlying_topic"
        )
    other = queues.get(target)
    if other is not None and other.default_publish_target != other.name:
        raise DefinitionError(
            f"{queue.titled}: default_publish_target: {target!r} is a queue over "
            f"{other.underlying_topic!r}; allowed: a topic"
        )
    other = queues.get(queue.underlying_topic)
    if other is not None and other.underlying_topic != other.name:
        raise DefinitionError(
            f"{queue.titled}: underlying_topic: {queue.underlying_topic!r} is a queue over "
            f"{other.underlying_topic!r}; allowed: a topic, as {other.underlying_topic!r}"
        )


def _check_view(queues: dict[str, Queue], view: View) -> None:
    """A view's rows go to the topic of its name; and a queue among several topics cannot be told from them."""
    queue = queues.get(view.name)
    if queue is not None and queue.default_publish_target != view.name:
        raise DefinitionError(
            f"View {view.name!r}: name: {view.name!r} is a queue over {queue.underlying_topic!r}; allowed: a name that "
            "no such queue has"
        )
    over = [topic for topic in view.underlying_topic if _is_queue_alone(queues, topic)]
    if over and len(view.underlying_topic) > 1:
        raise DefinitionError(
            f"View {view.name!r}: underlying_topic: {over[0]!r} is a queue; allowed: one queue alone, or topics"
        )


def _check_view_of_views(planned: Catalog, view: View) -> None:
    for name in planned.views:
        if name != view.name and view.feeds_from(name):
            raise DefinitionError(
                f"View {view.name!r}: underlying_topic: {name!r} is a view, whose topic has every version of its rows; "
                "allowed: a queue, or topics that are no views"
            )


def _is_queue_alone(queues: dict[str, Queue], name: str) -> bool:
    return name in queues and queues[name].underlying_topic != name


def _check_records(planned: Catalog, topic: Topic) -> None:
    """A query by name finds one thing: the messages of a queue, the rows of a view, or the records of a topic."""
    kind = "queue" if topic.name in planned.queues else "view" if topic.name in planned.views else ""
    if topic.key and kind:
        raise DefinitionError(
            f"Topic {topic.name!r}: key: a {kind} has the same name, so that nobody could say which one to query; "
            f"allowed: another name for the {kind}, or no key"
        )


def _check_retention(planned: Catalog, queues: dict[str, Queue], definition: Topic | View) -> None:
    """A view over topics is made of all their messages, again whenever a coordinator begins to keep it."""
    views = [definition] if isinstance(definition, View) else map(View.from_json, planned.views.values())
    topics = [definition.name] if isinstance(definition, Topic) else list(planned.topics)
    for view in views:
        is_over_queue = len(view.underlying_topic) == 1 and view.underlying_topic[0] in queues
        for name in topics if not is_over_queue else ():
            if view.feeds_from(name) and Topic.stored(name, planned.topics[name]).has_retention:
                raise DefinitionError(
                    f"{type(definition).__name__} {definition.name!r}: the view {view.name!r} is made of all "
                    f"messages of the topic {name!r}, and retention would remove some; allowed: the topic without "
                    "retention_age, retention_size and retention_count, or the view over a queue"
                )
