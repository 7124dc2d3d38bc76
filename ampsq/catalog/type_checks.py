"""Message types across definitions: a queue has that of its topics, and nothing reads binary bodies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampsq.base.errors import DefinitionError
from ampsq.base.message_types import JSON
from ampsq.definitions.action import Action
from ampsq.definitions.action_parts import Do, On
from ampsq.definitions.queue import Queue, Topic, View

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ampsq.base.message_types import MessageType
    from ampsq.definitions.action_parts import Trigger
    from ampsq.definitions.queue import Definition
    from ampsq.protocol.calls.catalog import Catalog

__all__ = ["check_new_topic", "check_types", "topic_of"]


def topic_of(queue: Queue, name: str) -> str:
    """The definition of a topic that is made because a queue is over it, as the catalog keeps it."""
    if queue.type == JSON:
        return "{}"
    return Topic(name=name, message_type=queue.message_type, field_separator=queue.field_separator).to_json()


def check_new_topic(catalog: Catalog, topic: str) -> None:
    """Refuse a topic that is first published to, and is JSON by that, where a queue of another type takes it.

    Raises:
        DefinitionError: naming both.
    """
    for text in catalog.queues.values():
        # Nearly all are JSON, and most definitions need not be read to see it.
        if "message_type" in text and Queue.from_json(text).feeds_from(topic):
            raise _unlike(f"Topic {topic!r}", topic, JSON, Queue.from_json(text))


def check_types(planned: Catalog, queues: Mapping[str, Queue], definitions: Iterable[Definition]) -> None:
    """Refuse definitions whose message types do not go with what is defined, or is to be with them.

    Raises:
        DefinitionError: naming both that do not go together.
    """
    for definition in definitions:
        if isinstance(definition, Topic):
            _check_topic(planned, queues, definition)
        elif isinstance(definition, Queue):
            for topic in _read_by(definition, planned):
                found = planned.message_type(topic)
                if definition.type != found:
                    raise _unlike(definition.titled, topic, found, definition)
        elif isinstance(definition, View):
            _check_view(planned, definition)
        elif isinstance(definition, Action):
            _check_action(planned, definition)


def _read_by(queue: Queue, planned: Catalog) -> Iterator[str]:
    """The topics that feed a queue; those of a queue over one topic are found without a look at all others."""
    if not queue.is_pattern:
        return (topic for topic in (queue.underlying_topic,) if topic in planned.topics)
    return (topic for topic in planned.topics if queue.feeds_from(topic))


def _check_topic(planned: Catalog, queues: Mapping[str, Queue], topic: Topic) -> None:
    for queue in queues.values():
        if queue.type != topic.type and queue.feeds_from(topic.name):
            raise _unlike(f"Topic {topic.name!r}", topic.name, topic.type, queue)
    if topic.name in planned.views and topic.type != JSON:
        raise DefinitionError(
            f"Topic {topic.name!r}: message_type: {topic.message_type!r}, and the rows of the view of that name are "
            "json; allowed: 'json'"
        )


def _unlike(title: str, topic: str, found: MessageType, queue: Queue) -> DefinitionError:
    return DefinitionError(
        f"{title}: message_type: the topic {topic!r} is {found}, and the queue {queue.name!r} over it is "
        f"{queue.type}; allowed: the same for both: define Topic(name={topic!r}, message_type={queue.message_type!r}) "
        f"before its first message, or the queue with message_type={found.name!r}"
    )


def _check_view(planned: Catalog, view: View) -> None:
    found = planned.message_type(view.name)
    if found != JSON:
        raise DefinitionError(
            f"View {view.name!r}: name: the topic of that name is {found}, and rows are json; allowed: another name"
        )
    for name in _binary(planned, {*planned.topics, *planned.queues}):
        if view.feeds_from(name):
            raise DefinitionError(
                f"View {view.name!r}: underlying_topic: {name!r} is binary, and a view reads bodies; allowed: "
                "topics and queues of another message_type"
            )


def _check_action(planned: Catalog, action: Action) -> None:
    for trigger in action.on:
        _check_dead_letters(planned, action, trigger)
        reads = isinstance(trigger, On.timeout) or (isinstance(trigger, On.publish) and trigger.filter is not None)
        if not reads:
            continue
        for name in _binary(planned, planned.topics):
            if trigger.follows(name):
                raise DefinitionError(
                    f"Action {action.name!r}: on: {trigger.word}: filter: the topic {name!r} is binary, which no "
                    "filter reads; allowed: no filter, or topics of another message_type"
                )


def _check_dead_letters(planned: Catalog, action: Action, trigger: Trigger) -> None:
    """Check that expired messages are published to a JSON topic, unless the step has data of its own."""
    for step in action.do if isinstance(trigger, On.expire) else ():
        if not isinstance(step, Do.publish) or step.data is not None:
            continue
        found = planned.message_type(step.topic)
        if found != JSON:
            raise DefinitionError(
                f"Action {action.name!r}: do: publish: topic: {step.topic!r} is {found}, and dead letters are "
                "json; allowed: a topic of message_type 'json', or a data of your own, as '{{AMPS_DATA}}'"
            )


def _binary(planned: Catalog, names: Iterable[str]) -> Iterator[str]:
    return (name for name in names if planned.message_type(name).name == "binary")
