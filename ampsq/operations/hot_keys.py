"""Keys and partitions that get most of the newest messages, counted in the logs of topics."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.base.errors import UnknownTopic
from ampsq.base.log_positions import parse_id
from ampsq.catalog.suggestions import explain_missing_name
from ampsq.protocol.calls import queue_stats as stats_calls
from ampsq.protocol.calls.catalog import catalog
from ampsq.protocol.calls.queue_stats import QueueStats
from ampsq.protocol.entries import body_of, group_in, is_message, read_entry
from ampsq.protocol.reads.streams import last_entries, log_of
from ampsq.publishing.topic_key import read_topic_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ampsq.base.log_positions import Id
    from ampsq.publishing.topic_key import TopicKey
    from ampsq.transport.store import Store

__all__ = ["CountedKey", "HotKeys", "Source", "count_newest"]

#: Messages that one call reads.
_PAGE: Final = 500


class Source(NamedTuple):
    """An instance whose logs are read: a partition of one, or one that has none.

    Attributes:
        instance: its name.
        store: runs flows there.
    """

    instance: str
    store: Store


class CountedKey(NamedTuple):
    """A key as it was counted.

    Attributes:
        topic: of the messages.
        key: the value of the topic's `partition_by`, else of the topic's `key`, else the group of the message; None: it
            has none of these.
        partition: the number of the partition that has them; 0 without partitions.
    """

    topic: str
    key: str | None
    partition: int


@dataclass(frozen=True, slots=True)
class HotKeys:
    """The newest messages of topics, counted by key and by partition.

    Attributes:
        messages: how many were read.
        since: when the first one of them was recorded, ms; 0: there is none.
        keys: how many of them each key has.
        partitions: how many of them each partition has, of all partitions.
        topics: topic -> the identifiers of its `partition_by`, else of its `key`; none where it has neither.
    """

    messages: int
    since: int
    keys: Counter[CountedKey]
    partitions: Sequence[int]
    topics: Mapping[str, Sequence[str]]


class _Log(NamedTuple):
    source: Source
    partition: int
    topic: str
    key: TopicKey

    def newest(self) -> Iterator[tuple[Id, _Log, list[bytes]]]:
        """Read the messages of the log, the last one first, a page when it is needed."""
        before = ""
        while True:
            page = self.source.store.call(last_entries(self.source.instance, log_of(self.topic), _PAGE, before=before))
            for stream_id, flat in page:
                if is_message(flat):
                    yield parse_id(stream_id), self, flat
            if len(page) < _PAGE:
                return
            before = page[-1][0].decode()

    def counted(self, flat: list[bytes]) -> CountedKey:
        """Return the key of an entry."""
        text: bytes | None = None
        body = body_of(flat)
        if body is not None:
            text = self.key.text(None, body) if self.key.paths else group_in(read_entry(flat)[0]) or None
        key = None if text is None else text.decode(errors="backslashreplace")
        return CountedKey(self.topic, key, self.partition)


def count_newest(sources: Sequence[Source], name: str, newest: int) -> HotKeys:
    """Count the newest messages of a topic, or of the topics of a queue, by their keys.

    Args:
        sources: all partitions, in their order; or the one instance.
        name: of a queue, else of a topic.
        newest: messages that are counted at most, of all partitions together, by the time at which they were recorded.

    Raises:
        UnknownTopic: there is no such queue or topic.
    """
    topics = _topics_of(sources, name)
    logs = [
        _Log(source, number, topic, topics[topic]) for number, source in enumerate(sources) for topic in sorted(topics)
    ]
    keys, partitions, since = Counter[CountedKey](), [0] * len(sources), 0
    merged = heapq.merge(*(log.newest() for log in logs), key=lambda each: each[0], reverse=True)
    for stream_id, log, flat in islice(merged, newest):
        keys[log.counted(flat)] += 1
        partitions[log.partition] += 1
        since = stream_id[0]
    said = {topic: [_shown(path) for path in key.paths] for topic, key in topics.items()}
    return HotKeys(sum(partitions), since, keys, partitions, said)


def _shown(path: Sequence[str | int]) -> str:
    return "".join(f"/{step}" for step in path)


def _topics_of(sources: Sequence[Source], name: str) -> dict[str, TopicKey]:
    """Find the topics that a name stands for, with what their definitions say of keys."""
    topics: dict[str, TopicKey] = {}
    is_known = False
    for source in sources:
        # One that is made by publishing to it is in the partitions that were published to.
        found = source.store.run(_find_topics(source.instance, name))
        is_known = is_known or found is not None
        topics |= found or {}
    if not is_known:
        raise UnknownTopic(topic=name).with_explanation(
            explain_missing_name(sources[0].store.call(catalog()), name, "queue", "topic")
        )
    return topics


async def _find_topics(instance: str, name: str) -> dict[str, TopicKey] | None:
    known = await catalog()
    if name in known.queues:
        names = list(QueueStats(name, await stats_calls.stats(name)).topics)
    elif name in known.topics:
        names = [name]
    else:
        return None
    found = {}
    for topic in names:
        key = await read_topic_key(instance, topic)
        if key is not None:
            found[topic] = key
    return found
