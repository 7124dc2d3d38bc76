"""Applying definitions: all are checked against each other and what is defined, then one after the other is made so."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from ampsq import calls, define_calls
from ampsq.action_checks import check_action, topics_of
from ampsq.action_sources import asks_for_happenings, orders, records
from ampsq.address_setting import AddressSetting, settled_for
from ampsq.elements import NO_RING
from ampsq.errors import AmpsqError, CatalogChanged, DefinitionError, ServerUnsuitable
from ampsq.expressions import parse
from ampsq.models import Action, Definition, Queue, Topic, View, refused_changes
from ampsq.recovery import starts_of
from ampsq.schema import COMPILED, POLICY
from ampsq.unknown import taught
from ampsq.values import is_name, parse_name, pattern_of, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ampsq.calls import Catalog
    from ampsq.expressions import Use
    from ampsq.flow import Call, Flow
    from ampsq.server import Server

__all__ = [
    "RACES",
    "Outcome",
    "Planned",
    "add_topic",
    "apply",
    "moved_queues",
    "plan",
    "redefine",
    "settings_of",
]

#: What applying a definition came to.
Outcome = Literal["new", "changed", "unchanged"]
#: Catalog changes between reading and writing; more than this is not chance.
RACES: Final = 50
#: Stands before the definition of a setting while queues are still to be compiled by it.
_PENDING: Final = ">"
#: The order in which kinds are applied: each knows those before it.
_ORDER: Final[dict[type[Definition], int]] = {Topic: 0, AddressSetting: 1, Queue: 2, View: 3, Action: 4}


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


_MODELS: Final = ("default", "queue", "latest", "earliest")


def _policy(queue: Queue) -> list[int]:
    """What few queues have; empty where all is as by default."""
    numbers = {
        "life": int(queue.expiration or 0),
        "model": _MODELS.index(queue.expiration_model),
        "redelivery": int(queue.redelivery_delay),
        "multiplier": round(1000 * queue.redelivery_delay_multiplier),
        "longest": int(queue.max_redelivery_delay),
        "jitter": round(1000 * queue.redelivery_collision_avoidance_factor),
    }
    return [] if numbers == dict(POLICY) else [numbers[name] for name in POLICY]


def _ring(queue: Queue) -> int | None:
    return None if queue.ring_size == NO_RING else queue.ring_size


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
                    with _about(definition):
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
    """What differs from what is defined."""
    text = _known(catalog, definition).get(definition.name)
    if text is None:
        return {}
    if isinstance(definition, Topic):
        return definition.changes_from(Topic.stored(definition.name, text))
    return definition.changes_from(type(definition).from_json(text.removeprefix(_PENDING)))


def _check(catalog: Catalog, definitions: list[Definition], server: Server | None) -> None:
    """Refuse all of the definitions when one of them cannot be, also because of another one of them."""
    planned = replace(
        catalog,
        topics=catalog.topics | _stored(definitions, Topic),
        queues=catalog.queues | _stored(definitions, Queue),
        views=catalog.views | _stored(definitions, View),
        settings=catalog.settings | _stored(definitions, AddressSetting),
    )
    queues = {name: Queue.from_json(text) for name, text in planned.queues.items()}
    for definition in definitions:
        with _about(definition):
            _check_one(catalog, planned, queues, definition, server)
    settings = settings_of(planned)
    for queue in queues.values():
        with _about(queue):
            settled = settled_for(queue, settings)
            if queue in definitions:
                _check_longest_delay(queue, settled)
    for definition in definitions:
        if isinstance(definition, Action):
            with _about(definition):
                check_action(planned, definition)


@contextlib.contextmanager
def _about(definition: Definition) -> Iterator[None]:
    """Let an error say which definition is refused."""
    try:
        yield
    except AmpsqError as error:
        error.definition = error.definition or definition
        raise


def _check_one(
    catalog: Catalog, planned: Catalog, queues: dict[str, Queue], definition: Definition, server: Server | None
) -> None:
    outcome = _outcome(catalog, definition)
    if isinstance(definition, Topic):
        _check_topic(queues, definition)
    if isinstance(definition, Queue) and outcome != "unchanged":
        _check_queue(catalog, definition, server)
        _check_names(planned, definition)
    if isinstance(definition, View):
        _check_view(queues, definition)
        _check_view_of_views(planned, definition)
    if isinstance(definition, Topic | View):
        _check_retention(planned, queues, definition)


def _check_longest_delay(queue: Queue, settled: Queue) -> None:
    """The longest delay of what is not delayed says nothing; the delay may be that of an address setting."""
    if "max_redelivery_delay" in queue.elements() and not settled.redelivery_delay:
        raise DefinitionError(
            f"Queue {queue.name!r}: max_redelivery_delay: {shown(queue.max_redelivery_delay)} is of no effect without "
            "redelivery_delay, which is 0s; allowed: with redelivery_delay, here or in an address setting"
        )


def _stored(definitions: list[Definition], kind: type[Definition]) -> dict[str, str]:
    return {item.name: item.to_json() for item in definitions if isinstance(item, kind)}


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
    elif isinstance(definition, AddressSetting):
        yield from _define_setting(catalog, definition, text)


def _define_topic(catalog: Catalog, topic: str, text: str) -> Call[None]:
    queues = [name for name, stored in catalog.queues.items() if Queue.from_json(stored).feeds_from(topic)]
    return define_calls.define_topic(catalog.version, topic, text, queues)


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
    places = yield from _places(catalog, queue, topics)
    alone = "" if queue.is_pattern else queue.underlying_topic
    settled = settled_for(queue, settings_of(catalog))
    recorded = records(queue, map(Action.from_json, catalog.actions.values()))
    compiled = define_calls.CompiledQueue(
        _compiled(settled), alone, _policy(settled), _trees(queue), _ring(settled), recorded
    )
    yield define_calls.define_queue(catalog.version, queue.name, text, compiled, target, places, subscriptions)


def _places(catalog: Catalog, queue: Queue, topics: set[str]) -> Flow[list[str]]:
    """The topics of a queue, each with the cursor where it begins, if it is new and that is not the first entry."""
    point = queue.recovery_point
    if queue.name in catalog.queues or point == "epoch":
        return sorted(topics)
    if point in ("now", "creation"):
        return [f"{topic} now" for topic in sorted(topics)]
    starts = yield from starts_of(queue, sorted(topics))
    return [f"{topic} {cursor}" for topic, cursor in starts]


def moved_queues(definitions: Iterable[Definition]) -> Flow[list[tuple[Queue, list[str]]]]:
    """Those of the definitions that change the recovery point of a queue, each with the topics that feed it."""
    catalog, out = (yield calls.catalog()), []
    for queue in definitions:
        if not isinstance(queue, Queue) or queue.name not in catalog.queues:
            continue
        points = {queue.recovery_point, Queue.from_json(catalog.queues[queue.name]).recovery_point}
        if len(points) > 1 and points != {"now", "creation"}:
            out.append((queue, sorted(topic for topic in catalog.topics if queue.feeds_from(topic))))
    return out


def redefine(name: str) -> Flow[None]:
    """Define a queue again as the catalog has it, after its compiled definition was lost."""
    for _ in range(RACES):
        catalog = yield calls.catalog()
        try:
            yield from _define_queue(catalog, Queue.from_json(catalog.queues[name]), catalog.queues[name])
        except CatalogChanged:
            continue
        return
    raise CatalogChanged(reason=f"the catalog changed {RACES} times while {name!r} was defined again")


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
    for topic in topics_of(action):
        if topic not in catalog.topics and topic not in catalog.queues:
            yield _define_topic(catalog, topic, "{}")
            raise CatalogChanged(reason="a topic of the action was added")
    known = catalog.actions.get(action.name)
    former = Action.from_json(known) if known else None
    after = replace(catalog, actions=catalog.actions | {action.name: text})
    heard = asks_for_happenings(map(Action.from_json, after.actions.values()))
    yield define_calls.define_action(catalog.version, action.name, text, orders(action, former, after), heard=heard)


def settings_of(catalog: Catalog) -> list[AddressSetting]:
    """All address settings of a catalog, those that are being applied too."""
    return [AddressSetting.from_json(text.removeprefix(_PENDING)) for text in catalog.settings.values()]


def _define_setting(catalog: Catalog, setting: AddressSetting, text: str) -> Flow[None]:
    """Add or change a setting, and compile the queues that it changes anew, one a call.

    Until all are, the catalog says so: whoever compiles one of them meanwhile goes by the new setting, and who applies
    the setting again after this one died finishes its work.
    """
    pending = _PENDING + text
    changed = list(_changed_by(catalog, setting, all_that_match=catalog.settings.get(setting.match) == pending))
    if not changed:
        yield define_calls.define_setting(catalog.version, setting.match, text)
        return
    if catalog.settings.get(setting.match) != pending:
        yield define_calls.define_setting(catalog.version, setting.match, pending)
        raise CatalogChanged(reason="the setting was added")
    for queue in changed:
        yield from _define_queue(catalog, queue, catalog.queues[queue.name])
        catalog = replace(catalog, version=catalog.version + 1)
    yield define_calls.define_setting(catalog.version, setting.match, text)


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


def _define_view(catalog: Catalog, view: View, text: str) -> Flow[None]:
    for topic in (view.name, *(() if view.is_pattern else view.underlying_topic)):
        if topic not in catalog.topics and topic not in catalog.queues:
            yield _define_topic(catalog, topic, "{}")
            raise CatalogChanged(reason="a topic of the view was added")
    yield define_calls.define_view(catalog.version, view.name, text)


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
    if isinstance(definition, AddressSetting):
        return catalog.settings
    raise DefinitionError(f"{definition!r}: allowed are Topic, AddressSetting, Queue, View and Action")


def _matches(pattern: str, name: str) -> bool:
    return pattern == name if is_name(pattern) else pattern_of(pattern).search(name) is not None
