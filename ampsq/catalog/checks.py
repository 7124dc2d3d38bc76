"""Checks of an action against the topics, queues and views that there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampsq.base.errors import DefinitionError, UnknownQueue
from ampsq.base.values import is_name
from ampsq.catalog.action_sources import keys_of
from ampsq.catalog.suggestions import explain_missing_name
from ampsq.definitions.action_parts import Do, On
from ampsq.definitions.queue import Queue, Topic

if TYPE_CHECKING:
    from ampsq.definitions.action import Action
    from ampsq.definitions.action_parts import Trigger
    from ampsq.protocol.calls.catalog import Catalog

__all__ = ["check_action", "topics_of"]


def topics_of(action: Action) -> list[str]:
    """The topics that must be there for an action: those that it publishes to or follows."""
    followed = [t.topic for t in action.on if isinstance(t, On.publish | On.timeout) and not t.is_pattern]
    return [*action.topics, *followed]


def check_action(catalog: Catalog, action: Action) -> None:
    """Refuse what an action cannot follow or do.

    Args:
        catalog: everything that is defined, or is to be with it.
        action: the action.

    Raises:
        UnknownQueue: it is about a queue that is not there.
        DefinitionError: it is about the wrong kind of thing, or would set itself off without end.
    """
    queues = {name: Queue.from_json(text) for name, text in catalog.queues.items()}
    for trigger in action.on:
        if isinstance(trigger, On.expire | On.delete | On.deliver) and not trigger.is_pattern:
            _known_queue(catalog, trigger.topic, action)
        try:
            _check_followed(catalog, queues, trigger)
        except DefinitionError as reason:
            raise DefinitionError(f"Action {action.name!r}: {reason}") from None
        _check_loop(queues, action, trigger)
    for number, step in enumerate(action.do):
        if isinstance(step, Do.delete) and is_name(step.topic):
            _known_state(catalog, action, f"do[{number}]: delete", step.topic, "a queue")
        if isinstance(step, Do.query) and is_name(step.topic) and step.topic not in catalog.views:
            _known_state(catalog, action, f"do[{number}]: query", step.topic, "a queue, a view")


def _known_state(catalog: Catalog, action: Action, where: str, name: str, others: str) -> None:
    """Refuse a topic that has neither a queue's messages nor records."""
    if name in catalog.queues or name not in catalog.topics:
        _known_queue(catalog, name, action)
    elif not Topic.stored(name, catalog.topics[name]).key:
        raise DefinitionError(
            f"Action {action.name!r}: {where}: topic: {name!r} is a topic without a key, which keeps no records; "
            f"allowed: {others}, or a topic with a key"
        )


def _known_queue(catalog: Catalog, name: str, action: Action) -> None:
    if name not in catalog.queues:
        # What is defined together with the action counts, too, and there may be no instance yet that could be asked.
        explanation = explain_missing_name(catalog, name, "queue")
        raise UnknownQueue(queue=name, action=action.name).with_explanation(explanation)


def _check_followed(catalog: Catalog, queues: dict[str, Queue], trigger: Trigger) -> None:
    if isinstance(trigger, On.timeout):
        keys_of(trigger, catalog.views, catalog.queues)
    if not isinstance(trigger, On.publish) or trigger.is_pattern or trigger.topic not in queues:
        return
    queue = queues[trigger.topic]
    if queue.underlying_topic != queue.name:
        raise DefinitionError(
            f"on: publish: topic: {trigger.topic!r} is a queue over {queue.underlying_topic!r}: to follow its messages "
            f"would lease them, and nobody would acknowledge them; allowed: the underlying topic, as "
            f"{queue.default_publish_target!r}, or on deliver or delete of the queue"
        )


def _check_loop(queues: dict[str, Queue], action: Action, trigger: Trigger) -> None:
    """Refuse an action whose published messages would set it off again."""
    for topic in action.topics:
        if isinstance(trigger, On.publish):
            target = queues[topic].default_publish_target if topic in queues else topic
            if trigger.follows(target) and trigger.filter is None and not action.if_:
                raise DefinitionError(
                    f"Action {action.name!r}: do: publish: topic: {topic!r} is followed by the action itself, so "
                    "that each message would make another one; allowed: another topic, a filter, or an if that ends it"
                )
        elif isinstance(trigger, On.expire | On.delete | On.deliver):
            for queue in queues.values():
                if trigger.follows(queue.name) and (queue.feeds_from(topic) or topic == queue.name):
                    raise DefinitionError(
                        f"Action {action.name!r}: topic: {topic!r} feeds the queue {queue.name!r} itself, "
                        "so that a dead letter would come back; allowed: a topic that does not"
                    )
