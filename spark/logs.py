"""The logs that a reader reads: which topics its options mean, on which instances, and how far each goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import DefinitionError, Unavailable, UnknownTopic
from ampsq.base.name_patterns import pattern_of
from ampsq.base.suggestions import nearest
from ampsq.catalog.suggestions import explain_missing_name
from ampsq.definitions.queue import Queue
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.calls import readers as reader_calls
from ampsq.protocol.reads.instance import catalog_version
from ampsq.protocol.reads.instances import read_instances
from ampsq.protocol.reads.origin import read_origin
from ampsq.spark.stores import store_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ampsq.base.log_positions import Id
    from ampsq.base.message_types import MessageType
    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.protocol.calls.readers import Lag
    from ampsq.spark.read_options import ReadOptions
    from ampsq.spark.stores import SparkInstance
    from ampsq.transport.store import Store

__all__ = ["InstanceLog", "InstanceOrigin", "Logs"]

#: Logs that one call looks at.
_TOGETHER: Final = 100


@dataclass(frozen=True, slots=True)
class InstanceOrigin:
    """An instance as it was found."""

    address: SparkInstance
    origin: str


@dataclass(frozen=True, slots=True)
class InstanceLog:
    """A topic's log on one instance.

    Attributes:
        address: where it is.
        origin: of the instance, and of what was published there.
        topic: the topic.
        type: its message type.
    """

    address: SparkInstance
    origin: str
    topic: str
    type: MessageType

    def __str__(self) -> str:
        return f"topic {self.topic!r} of instance {self.address.instance!r}"


class Logs:
    """The logs that a reader's options mean; looked up whenever it asks, since topics may come."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        # Instance -> version of its catalog, and its logs then.
        self._known: dict[str, tuple[int, list[InstanceLog]]] = {}

    def store(self, address: SparkInstance) -> Store:
        """The connection to an instance."""
        return store_of(address, self._options.seconds)

    def instances(self) -> list[InstanceOrigin]:
        """The instances.

        Raises:
            DefinitionError: there is no such one. Unavailable: its server cannot be reached.
        """
        return [InstanceOrigin(address, self._origin(address)) for address in self._options.addresses]

    def _origin(self, address: SparkInstance) -> str:
        store = self.store(address)
        origin = store.call(read_origin(address.instance))
        if not origin:
            try:
                names = store.run(read_instances())
            except Unavailable as error:
                raise DefinitionError(f"instance: {address}: there is none of this name; {error}") from error
            what = nearest(address.instance, names, "instance") if names else "there is none on this server yet"
            raise DefinitionError(f"instance: {address}: {what}")
        return origin

    def find(self) -> list[InstanceLog]:
        """The logs that there are now.

        Raises:
            UnknownTopic: a name is neither a topic's nor a queue's, on any of the instances.
            DefinitionError: a filter, and a topic whose messages no filter reads.
        """
        found: list[InstanceLog] = []
        unknown: list[UnknownTopic] = []
        for instance in self.instances():
            try:
                found += self._of(instance)
            except UnknownTopic as error:
                unknown.append(error)
        if unknown and not found:
            raise unknown[0]
        return found

    def _of(self, instance: InstanceOrigin) -> list[InstanceLog]:
        store, name = self.store(instance.address), instance.address.instance
        version = store.call(catalog_version(name))
        if name not in self._known or self._known[name][0] != version:
            catalog = store.call(catalog_calls.catalog())
            logs = [
                InstanceLog(instance.address, instance.origin, topic, catalog.message_type(topic))
                for topic in _topics(self._options, catalog)
            ]
            self._check_filter(logs)
            self._known[name] = (catalog.version, logs)
        return self._known[name][1]

    def _check_filter(self, logs: Sequence[InstanceLog]) -> None:
        binary = [log for log in logs if log.type.name == "binary"]
        if self._options.filter and binary:
            raise DefinitionError(
                f"filter={self._options.filter!r}: {binary[0]} is of message_type binary, which no filter reads; "
                "allowed: no filter, or topics of another message_type"
            )

    def lags(self, places: Mapping[InstanceLog, Id]) -> dict[InstanceLog, Lag]:
        """Return the part of each log that lies behind an ID."""
        found: dict[InstanceLog, Lag] = {}
        for address in {log.address for log in places}:
            logs = [log for log in places if log.address == address]
            for first in range(0, len(logs), _TOGETHER):
                some = logs[first : first + _TOGETHER]
                lags = self.store(address).call(reader_calls.lag([(log.topic, places[log]) for log in some]))
                found.update(zip(some, lags, strict=True))
        return found


def _topics(options: ReadOptions, catalog: Catalog) -> list[str]:
    """The topics that are meant, sorted, each once."""
    if options.topic_pattern:
        pattern = pattern_of(options.topic_pattern)
        return sorted(topic for topic in catalog.topics if pattern.search(topic))
    found: set[str] = set()
    for name in options.names:
        if name in catalog.queues:
            queue = Queue.from_json(catalog.queues[name])
            found.update(topic for topic in catalog.topics if queue.feeds_from(topic))
        elif name in catalog.topics:
            found.add(name)
        else:
            raise UnknownTopic(name=name).with_explanation(explain_missing_name(catalog, name, "topic", "queue"))
    return sorted(found)
