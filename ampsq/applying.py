"""Applying definitions: all are checked against each other and what is defined, then one after the other is made so."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from ampsq import calls
from ampsq.errors import CatalogChanged, DefinitionError, ServerUnsuitable, UnknownQueue
from ampsq.expressions import parse
from ampsq.models import Action, Definition, Queue, Topic, View, refused_changes
from ampsq.schema import COMPILED
from ampsq.unknown import taught
from ampsq.values import is_name, parse_name, pattern_of

if TYPE_CHECKING:
    from ampsq.calls import Catalog
    from ampsq.expressions import Use
    from ampsq.flow import Call, Flow
    from ampsq.server import Server

__all__ = ["RACES", "Outcome", "Planned", "add_topic", "apply", "plan"]

#: What applying a definition came to.
Outcome = Literal["new", "changed", "unchanged"]
#: Catalog changes between reading and writing; more than this is not chance.
RACES: Final = 50
#: The order in which kinds are applied: each knows those before it.
_ORDER: Final[dict[type[Definition], int]] = {Topic: 0, Queue: 1, View: 2, Action: 3}


def _compiled(queue: Queue) -> list[int]:
    numbers = {
        # At-most-once has nothing to take back: its leases only fill the backlog.
        "lease": 0 if queue.semantics == "at-most-once" else int(queue.lease_period or 0),
        "backlog": queue.max_backlog or 0,
        "deliveries": queue.max_deliveries,
        "cancels": queue.max_cancels,
        "ratio": int(queue.fairness_model == "proportional"),
        "turn": int(queue.fairness_model == "round-robin"),
        "once": int(queue.semantics == "at-most-once"),
        "strict": int(queue.leasing == "strict"),
        "room": queue.max_per_subscription_backlog,
        "depth": queue.target_queue_depth or 0,
    }
    return [numbers[name] for name in COMPILED]


def _trees(queue: Queue) -> list[str]:
    """Of filter, priority and barrier expression, as the scripts take them."""
    uses: list[tuple[str | None, Use]] = [
        (queue.filter, "filter"), (queue.priority, "priority"), (queue.barrier_expression, "barrier"),
    ]  # fmt: skip
    return [parse(text, use).json if text is not None else "" for text, use in uses]


@taught("queue")
def apply(definitions: list[Definition], server: Server | None) -> Flow[list[tuple[Definition, Outcome]]]:
    """Define topics, queues, views and actions, in that order; what is already so is left alone.

    Args:
        definitions: what is to be so.
        server: what is known of the server, for at-most-once queues.

    Raises:
        DefinitionError: a change is refused while the queue exists, or the definitions do not fit together.
        ServerUnsuitable: the server could bring back what an at-most-once queue delivered.
    """
    catalog = yield calls.catalog()
    _check(catalog, definitions, server)
    outcomes: list[tuple[Definition, Outcome]] = []
    for definition in sorted(definitions, key=lambda item: _ORDER[type(item)]):
        outcome: Outcome | None = None
        for _ in range(RACES):
            catalog = yield calls.catalog()
            # The first look counts: later ones see what this call itself has begun.
            outcome = outcome or _outcome(catalog, definition)
            try:
                if outcome != "unchanged":
                    yield from _define(catalog, definition)
            except CatalogChanged:
                continue
            outcomes.append((definition, outcome))
            break
        else:
            raise CatalogChanged(reason=f"the catalog changed {RACES} times while {definition!r} was applied")
    return outcomes


class Planned(NamedTuple):
    """What applying a definition would come to.

    Attributes:
        definition: as it is to be.
        outcome: ``new``, ``changed`` or ``unchanged``.
        changes: what would change of what is defined: element -> its value before and after, as JSON values.
    """

    definition: Definition
    outcome: Outcome
    changes: dict[str, tuple[Any, Any]]


@taught("queue")
def plan(definitions: list[Definition], server: Server | None) -> Flow[list[Planned]]:
    """Say what `apply` would do, in its order, and refuse what it would refuse; nothing is done."""
    catalog = yield calls.catalog()
    _check(catalog, definitions, server)
    in_order = sorted(definitions, key=lambda item: _ORDER[type(item)])
    return [Planned(each, _outcome(catalog, each), _changes(catalog, each)) for each in in_order]


def _changes(catalog: Catalog, definition: Definition) -> dict[str, tuple[Any, Any]]:
    """What differs from what is defined; of a topic nothing, since it has a name alone."""
    text = None if isinstance(definition, Topic) else _known(catalog, definition).get(definition.name)
    return definition.changes_from(type(definition).from_json(text)) if text is not None else {}


def _check(catalog: Catalog, definitions: list[Definition], server: Server | None) -> None:
    """Refuse all of the definitions when one of them cannot be, also because of another one of them."""
    planned = replace(
        catalog,
        topics=catalog.topics | _stored(definitions, Topic),
        queues=catalog.queues | _stored(definitions, Queue),
        views=catalog.views | _stored(definitions, View),
    )
    queues = {name: Queue.from_json(text) for name, text in planned.queues.items()}
    for definition in definitions:
        outcome = _outcome(catalog, definition)
        if isinstance(definition, Topic):
            _check_topic(queues, definition)
        if isinstance(definition, Queue) and outcome != "unchanged":
            _check_queue(catalog, definition, server)
            _check_names(planned, definition)
        if isinstance(definition, View):
            _check_view(queues, definition)
            _check_view_of_views(planned, definition)
    for definition in definitions:
        if isinstance(definition, Action):
            _check_action(catalog, queues, definition)


def _stored(definitions: list[Definition], kind: type[Definition]) -> dict[str, str]:
    return {item.name: item.to_json() for item in definitions if isinstance(item, kind)}


def _check_action(catalog: Catalog, queues: dict[str, Queue], action: Action) -> None:
    queue = queues.get(action.queue)
    if queue is None:
        raise UnknownQueue(queue=action.queue, action=action.name)
    known = catalog.actions.get(action.name)
    if known is not None and Action.from_json(known).queue != action.queue:
        raise DefinitionError(
            f"Action {action.name!r}: queue: {Action.from_json(known).queue!r} cannot become "
            f"{action.queue!r}, whose journal it has not followed; allowed: an action of another name"
        )
    _check_loop(action, queue)


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


def _check_queue(catalog: Catalog, queue: Queue, server: Server | None) -> None:
    known = catalog.queues.get(queue.name)
    refused = refused_changes(Queue.from_json(known), queue) if known else []
    if refused:
        raise DefinitionError("\n".join(refused))
    _check_at_most_once(queue, server)


def _define(catalog: Catalog, definition: Definition) -> Flow[None]:
    text = definition.to_json()
    if isinstance(definition, Topic):
        yield _define_topic(catalog, definition.name, text)
    elif isinstance(definition, Queue):
        yield from _define_queue(catalog, definition, text)
    elif isinstance(definition, Action):
        yield from _define_action(catalog, definition, text)
    elif isinstance(definition, View):
        yield from _define_view(catalog, definition, text)


def _define_topic(catalog: Catalog, topic: str, text: str) -> Call[None]:
    queues = [name for name, stored in catalog.queues.items() if Queue.from_json(stored).feeds_from(topic)]
    return calls.define_topic(catalog.version, topic, text, queues)


def _define_queue(catalog: Catalog, queue: Queue, text: str) -> Flow[None]:
    target = queue.default_publish_target
    topics = {topic for topic in (*catalog.topics, target) if queue.feeds_from(topic)}
    subscriptions = [
        subscription
        for subscription, pattern in catalog.patterns.items()
        if queue.name not in catalog.queues and _matches(pattern, queue.name)
    ]
    if target not in catalog.topics:
        yield _define_topic(catalog, target, "{}")
        raise CatalogChanged(reason="the queue's publish target was added")
    alone = "" if queue.is_pattern else queue.underlying_topic
    yield calls.define_queue(
        catalog.version, queue.name, text, _compiled(queue), alone, target, _trees(queue), sorted(topics), subscriptions
    )


def _check_at_most_once(queue: Queue, server: Server | None) -> None:
    if queue.semantics != "at-most-once" or queue.allow_redelivery_after_crash:
        return
    if server is None or not server.never_forgets:
        raise ServerUnsuitable(
            f"Queue {queue.name!r}: semantics: 'at-most-once' needs a server that never brings back a delivered "
            "message: appendonly yes and appendfsync always. Configure it so (the embedded one: `ampsq up "
            "--appendfsync always`, Client(appendfsync='always')), or say allow_redelivery_after_crash: true"
        )


def _check_names(catalog: Catalog, queue: Queue) -> None:
    """A queue's name stands for its publish target, so it cannot be a topic of its own as well."""
    target = queue.default_publish_target
    if queue.name != target and queue.name in catalog.topics:
        raise DefinitionError(
            f"Queue {queue.name!r}: name: {queue.name!r} is a topic, and would stand for {target!r} as well; "
            "allowed: a name that no topic has, or the topic itself as underlying_topic"
        )
    for stored in catalog.queues.values():
        other = Queue.from_json(stored)
        if other.name == target and other.default_publish_target != other.name:
            raise DefinitionError(
                f"Queue {queue.name!r}: default_publish_target: {target!r} is a queue over "
                f"{other.underlying_topic!r}; allowed: a topic"
            )
        if other.name == queue.underlying_topic and other.underlying_topic != other.name:
            raise DefinitionError(
                f"Queue {queue.name!r}: underlying_topic: {queue.underlying_topic!r} is a queue over "
                f"{other.underlying_topic!r}; allowed: a topic, as {other.underlying_topic!r}"
            )


def _define_action(catalog: Catalog, action: Action, text: str) -> Flow[None]:
    if action.topic not in catalog.topics and action.topic not in catalog.queues:
        yield _define_topic(catalog, action.topic, "{}")
        raise CatalogChanged(reason="the action's topic was added")
    yield calls.define_action(catalog.version, action.name, action.queue, text)


def _define_view(catalog: Catalog, view: View, text: str) -> Flow[None]:
    for topic in (view.name, *(() if view.is_pattern else view.underlying_topic)):
        if topic not in catalog.topics and topic not in catalog.queues:
            yield _define_topic(catalog, topic, "{}")
            raise CatalogChanged(reason="a topic of the view was added")
    yield calls.define_view(catalog.version, view.name, text)


def add_topic(topic: str) -> Flow[None]:
    """Add a topic that is first published to, with the queues whose pattern it matches."""
    parse_name(topic)
    for _ in range(RACES):
        catalog = yield calls.catalog()
        if topic in catalog.topics or topic in catalog.queues:
            return
        try:
            yield _define_topic(catalog, topic, "{}")
        except CatalogChanged:
            continue
        return
    raise CatalogChanged(reason=f"the catalog changed {RACES} times while topic {topic!r} was added")


def _check_topic(queues: dict[str, Queue], topic: Topic) -> None:
    """A name that stands for another topic cannot be a topic of its own as well."""
    queue = queues.get(topic.name)
    if queue is not None and queue.default_publish_target != topic.name:
        raise DefinitionError(
            f"Topic {topic.name!r}: name: {topic.name!r} is a queue, whose messages go to "
            f"{queue.default_publish_target!r}; allowed: a name that no such queue has"
        )


def _check_loop(action: Action, queue: Queue) -> None:
    """A dead letter must not come back into the queue that gave it up."""
    if queue.feeds_from(action.topic) or action.topic == queue.name:
        raise DefinitionError(
            f"Action {action.name!r}: topic: {action.topic!r} feeds the queue {action.queue!r} itself, "
            "so that a dead letter would come back; allowed: a topic that does not"
        )


def _outcome(catalog: Catalog, definition: Definition) -> Outcome:
    """What applying a definition comes to. A topic that was only used until now is no news either."""
    text = _known(catalog, definition).get(definition.name)
    if text is None:
        return "new"
    return "unchanged" if text == definition.to_json() else "changed"


def _known(catalog: Catalog, definition: Definition) -> dict[str, str]:
    """What is defined of the same kind."""
    if isinstance(definition, Topic):
        return catalog.topics
    if isinstance(definition, Queue):
        return catalog.queues
    if isinstance(definition, Action):
        return catalog.actions
    if isinstance(definition, View):
        return catalog.views
    raise DefinitionError(f"{definition!r}: allowed are Topic, Queue, View and Action")


def _matches(pattern: str, name: str) -> bool:
    return pattern == name if is_name(pattern) else pattern_of(pattern).search(name) is not None
