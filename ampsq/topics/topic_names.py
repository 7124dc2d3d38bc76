"""The topics that a subscription's name stands for: one, those of a queue, or all that a regular expression matches."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import DefinitionError, UnknownTopic
from ampsq.base.name_patterns import pattern_of
from ampsq.base.suggestions import as_sentence
from ampsq.base.values import is_name
from ampsq.catalog.suggestions import closest_name, explain_no_topic
from ampsq.definitions.stored import read_stored_queue

if TYPE_CHECKING:
    from ampsq.definitions.topic import ConflatedTopic
    from ampsq.protocol.calls.catalog import Catalog

__all__ = ["ConflatedName", "topics_of"]

_log = logging.getLogger("ampsq")
#: What to do about a topic that is to come.
_HOW: Final = (
    "For a topic that is to come: client.apply(Topic(name=...)), or the first message published to it, makes it; a "
    "regular expression, as in '^name$', waits for it"
)


class ConflatedName(DefinitionError):
    """A name is a conflated topic's, which has no log: its underlying topic is read, conflated.

    Attributes:
        topic: its definition.
    """

    def __init__(self, topic: ConflatedTopic) -> None:
        super().__init__(
            f"{topic.name!r} is a conflated topic, which has no log: subscribe_topic({topic.name!r}) takes no bookmark "
            f"and no options; the topic under it, {topic.underlying_topic!r}, does"
        )
        self.topic = topic


def topics_of(name: str, catalog: Catalog, *, reads_queues: bool, begins: bool, may_come: bool) -> list[str]:
    """Find the topics that a name stands for now; none where they are waited for.

    Args:
        name: a topic, a queue, or a regular expression of topics.
        catalog: what is defined now.
        reads_queues: whether a queue's name stands for its topics; False refuses it.
        begins: nothing was found for the name before.
        may_come: a topic that nothing is like is waited for.

    Raises:
        UnknownTopic: there is neither a topic nor a queue of this name, or only a queue and `reads_queues` is False.
        ConflatedName: it is a conflated topic's.
    """
    if not is_name(name):
        return _matching(name, catalog, begins=begins)
    if name in catalog.topics:
        return [name]
    if name in catalog.queues and not reads_queues:
        raise UnknownTopic(name=name).with_explanation(explain_no_topic(catalog, name))
    if name in catalog.queues:
        queue = read_stored_queue(catalog.queues[name])
        return [topic for topic in catalog.topics if queue.feeds_from(topic)]
    if name in catalog.conflated:
        # Most who read topics do without the models, which take long to import.
        from ampsq.definitions.topic import ConflatedTopic  # noqa: PLC0415

        raise ConflatedName(ConflatedTopic.from_json(catalog.conflated[name]))
    if begins:
        if not may_come or closest_name(catalog, name, "topic", "queue") is not None:
            text = explain_no_topic(catalog, name)
            raise UnknownTopic(name=name).with_explanation(f"{as_sentence(text)} {_HOW}")
        _log.warning("there is no topic %r yet; waiting for it", name)
    return []


def _matching(name: str, catalog: Catalog, *, begins: bool) -> list[str]:
    """The topics of a regular expression; logs, when it begins, that it is in names of queues alone."""
    pattern = pattern_of(name)
    topics = [topic for topic in catalog.topics if pattern.search(topic)]
    if begins and not topics:
        queue = next((queue for queue in sorted(catalog.queues) if pattern.search(queue)), None)
        if queue is not None:
            text = "no topic matches %r yet, and queues do, as %r: subscribe(%r) takes their messages"
            _log.warning(text, name, queue, name)
    return topics
