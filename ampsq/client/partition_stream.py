"""Batches for several partitions, for threads: a few are on their way at once, those of a key in their order.

`ampsq.client.async_partition_stream` is made from this file.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from ampsq.base.errors import AmpsqError, RecordsBehind, Unavailable, UnknownTopic
from ampsq.publishing.partitioned_batches import RUN_BYTES
from ampsq.publishing.publishing_batches import bookmarks_of
from ampsq.transport.shared_pipelines import SharedPipelines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.client.client import Client
    from ampsq.protocol.calls.publish import Published
    from ampsq.protocol.request import Call
    from ampsq.publishing.envelope import Envelope
    from ampsq.publishing.partitioned_batches import PartitionedBatch, PartitionedBatches

__all__ = ["PartitionStream"]

#: Batches that are sent before the first one's answer is read, as one instance has them; and at most, where there are
#: several servers and batches are small: so many as have so many bytes for each of a few others, so that several work
#: at once though batches in a row go to one.
_AHEAD: Final = 2
_MOST_AHEAD: Final = 32
_BYTES_AHEAD: Final = RUN_BYTES
_OTHERS: Final = 3


class _Sent(NamedTuple):
    """A batch that is on its way, the client of its partition, and the call that it is."""

    batch: PartitionedBatch
    client: Client
    call: Call[Published]


class PartitionStream:
    """The batches of one `publish_many` on their way to partitions that have its topic already.

    Each batch is one call. Where messages may have keys, one of a partition is on its way at a time; where they have
    none, and so no order, several are.

    Args:
        clients: of the partitions.
        batches: where it is noted what became of each.
        topic: the topic.
        envelope: of all messages.
    """

    def __init__(
        self,
        clients: Sequence[Client],
        batches: PartitionedBatches,
        topic: str,
        envelope: Envelope,
    ) -> None:
        self._clients, self._batches = clients, batches
        self._topic, self._envelope = topic, envelope
        self._pipelines, self._sent = SharedPipelines(), deque[_Sent]()
        # Bytes of what is sent and not answered.
        self._bytes = 0

    def send(self, batch: PartitionedBatch) -> None:
        """Send a batch; waits for the answers of earlier ones where several are on their way, or one of its partition.

        Raises:
            AmpsqError: an earlier one was not recorded, or this one cannot be sent.
        """
        if batch.is_ordered and any(each.batch.partition == batch.partition for each in self._sent):
            self._settle(batch.partition)
        client = self._clients[batch.partition]
        call = client._session.plain.batch(self._topic, batch.bodies, batch.size, self._envelope)  # noqa: SLF001  (our own)
        sent = _Sent(batch, client, call)
        try:
            is_sent = self._pipelines.post(client._store, call)  # noqa: SLF001  (our own)
        except Unavailable as error:
            if error.may_have_run:
                raise
            is_sent = False
        if is_sent:
            self._sent.append(sent)
            self._bytes += batch.size
            most = _BYTES_AHEAD * min(self._pipelines.servers - 1, _OTHERS)
            while len(self._sent) > (_MOST_AHEAD if self._bytes <= most else _AHEAD):
                self._collect()
            return
        # By itself, in its turn, and as patiently as single calls are.
        self.settle()
        publishing = client._session.plain.publish_first(self._topic, call)  # noqa: SLF001  (our own)
        self._note(sent, client._store.run(publishing))  # noqa: SLF001  (our own)

    def settle(self) -> None:
        """Wait until all is answered, and give the connections back.

        Raises:
            AmpsqError: something was not recorded.
        """
        while self._sent:
            self._collect()
        self._pipelines.close()

    def _settle(self, partition: int) -> None:
        """Wait until what is on its way to a partition is answered, and all before that."""
        while any(each.batch.partition == partition for each in self._sent):
            self._collect()

    def _collect(self) -> None:
        """Read the answer to the earliest batch."""
        sent = self._sent.popleft()
        self._bytes -= sent.batch.size
        try:
            published: Published = self._pipelines.collect()  # type: ignore[assignment]  # the reply to that call
        except (RecordsBehind, UnknownTopic) as refusal:
            # The topic was removed since this client published to it, or its records follow.
            publishing = sent.client._session.plain.publish_again(self._topic, sent.call, refusal)  # noqa: SLF001  (our own)
            published = sent.client._store.run(publishing)  # noqa: SLF001  (our own)
        self._note(sent, published)

    def _note(self, sent: _Sent, published: Published) -> None:
        client, plain = sent.client, sent.client._session.plain  # noqa: SLF001  (our own)
        self._batches.note(sent.batch, bookmarks_of(published, client.origin))
        plain.note_published(published)
        if plain.client.types.has_large:
            client._store.run(plain.client.types.warn_of_unread())  # noqa: SLF001  (our own)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, failure: BaseException | None, __: object) -> None:
        """End: after a failure what is still on its way is noted; who is interrupted reads nothing more."""
        if isinstance(failure, Exception):
            while self._sent:
                with contextlib.suppress(AmpsqError):
                    self._collect()
        self._pipelines.close()
