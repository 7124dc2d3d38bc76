"""Batches for several partitions, for threads: a few are on their way at once, those of a partition in their order.

`ampsq.client.async_partition_stream` is made from this file.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Final, Self

from ampsq.base.errors import AmpsqError, RecordsBehind, Unavailable, UnknownTopic
from ampsq.publishing.publishing_batches import PublishingBatches
from ampsq.transport.calls_in_flight import REFUSALS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.client.client import Client
    from ampsq.protocol.calls.publish import Published
    from ampsq.protocol.request import Call
    from ampsq.publishing.envelope import Envelope
    from ampsq.publishing.partitioned_batches import PartitionedBatch, PartitionedBatches
    from ampsq.publishing.plain import PlainPublisher
    from ampsq.transport.pipeline import Pipeline
    from ampsq.transport.store import Store

__all__ = ["PartitionStream"]

#: Batches that are sent before the first one's answer is read, as one instance has them.
_AHEAD: Final = 2


class _Sent:
    """A batch that is on its way: what it is noted in, who published it, and where its answer comes."""

    def __init__(self, batch: PartitionedBatch, client: Client) -> None:
        self.batch, self.noted = batch, PublishingBatches(client.origin)
        self.plain: PlainPublisher = client._session.plain  # noqa: SLF001  (our own)
        self.store: Store = client._store  # noqa: SLF001  (our own)
        self.pipeline: Pipeline = self.store.pipeline()
        self.calls: deque[Call[Published]] = deque()


class PartitionStream:
    """The batches of one `publish_many` on their way to partitions that have its topic already.

    Args:
        clients: of the partitions.
        batches: where it is noted what became of each.
        topic: the topic.
        size: messages of a call at most.
        envelope: of all messages.
    """

    def __init__(
        self, clients: Sequence[Client], batches: PartitionedBatches, topic: str, size: int, envelope: Envelope
    ) -> None:
        self._clients, self._batches = clients, batches
        self._topic, self._size, self._envelope = topic, size, envelope
        self._sent: deque[_Sent] = deque()

    def send(self, batch: PartitionedBatch) -> None:
        """Send a batch; waits for the answers of earlier ones where several are on their way, or one of its partition.

        Raises:
            AmpsqError: an earlier one was not recorded, or this one cannot be sent.
        """
        self.settle(batch.partition)
        client = self._clients[batch.partition]
        sent = _Sent(batch, client)
        self._sent.append(sent)
        with self._batches.sending(batch), sent.noted.telling():
            for call in sent.plain.batches(self._topic, batch.bodies, self._size, self._envelope, sent.noted):
                if call.is_sent_ahead and self._post(sent, call):
                    continue
                # By itself, in its turn, and as patiently as single calls are.
                self._answer_all(sent)
                published = sent.store.run(sent.plain.publish_first(self._topic, call))
                sent.plain.note(sent.noted, published)
        while len(self._sent) > _AHEAD:
            self._collect()

    @staticmethod
    def _post(sent: _Sent, call: Call[Published]) -> bool:
        """Send a call ahead; False: its server cannot be reached at once, and nothing was sent."""
        try:
            sent.pipeline.post(call)
        except Unavailable as error:
            if error.may_have_run:
                raise
            return False
        sent.calls.append(call)
        return True

    def settle(self, partition: int | None = None) -> None:
        """Wait until all is answered, or what is on its way to a partition, and all before that.

        Raises:
            AmpsqError: something was not recorded.
        """
        while self._sent and (partition is None or any(each.batch.partition == partition for each in self._sent)):
            self._collect()

    def _collect(self) -> None:
        """Read the answer to the earliest batch."""
        sent = self._sent.popleft()
        try:
            with self._batches.sending(sent.batch), sent.noted.telling():
                self._answer_all(sent)
        finally:
            sent.pipeline.close()
        self._batches.note(sent.batch, sent.noted.bookmarks)
        sent.store.run(sent.plain.client.types.warn_of_unread())

    def _answer_all(self, sent: _Sent) -> None:
        while sent.pipeline.open_calls:
            call = sent.calls.popleft()
            try:
                answer = sent.pipeline.collect()
            except (RecordsBehind, UnknownTopic) as refusal:
                sent.pipeline.forget_refused()
                if sent.pipeline.open_calls:
                    # Those behind it may be recorded.
                    sent.plain.note(sent.noted, refusal)
                    continue
                # The topic was removed since this client published to it, or its records follow.
                published = sent.store.run(sent.plain.publish_again(self._topic, call, refusal))
                sent.plain.note(sent.noted, published)
            except REFUSALS as refusal:
                sent.pipeline.forget_refused()
                sent.plain.note(sent.noted, refusal)
            else:
                sent.plain.note(sent.noted, answer)  # type: ignore[arg-type]  # the reply to one of these calls

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, failure: BaseException | None, __: object) -> None:
        """End: after a failure what is still on its way is noted; who is interrupted reads nothing more."""
        while self._sent:
            if isinstance(failure, Exception):
                with contextlib.suppress(AmpsqError):
                    self._collect()
            else:
                self._sent.popleft().pipeline.close()
