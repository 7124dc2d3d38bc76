"""The leases that a stream's driver holds: taken a batch at a time, renewed, acknowledged when the batch is done."""

from __future__ import annotations

import logging
import sys
from itertools import groupby
from typing import TYPE_CHECKING, Final

from ampsq.base.bookmarks import Bookmark, parse_ref
from ampsq.base.errors import Rejected
from ampsq.client.client import Client
from ampsq.client.partitioned_client import PartitionedClient
from ampsq.queues.message import head_of
from ampsq.spark.queue_offsets import LeasedMessage, QueueOffset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.queues.subscription import Message
    from ampsq.spark.stores import SparkInstance

__all__ = ["QueueLeases"]

_log = logging.getLogger("ampsq")
#: Seconds that a look at the queue may wait for messages that filters and priorities are being applied to.
_LOOK: Final = 0.02
#: Bookmarks acknowledged at once.
_TOGETHER: Final = 500


class QueueLeases:
    """A subscription to a queue, and the batches that it holds.

    Args:
        address: the instance; of one with partitions any of them stands for all.
        queue: the queue.
        filter: what is wanted of it; None: everything.
        most: messages held at once, of all partitions together.
        retry_timeout: seconds for which calls are repeated while the server is away.
    """

    def __init__(
        self,
        address: SparkInstance,
        queue: str,
        filter: str | None,  # noqa: A002  (AMPS's word)
        most: int,
        retry_timeout: float,
    ) -> None:
        # Up to which batch all is acknowledged, and how many messages may still be taken.
        self._queue, self._done, self._left = queue, 0, sys.maxsize
        # Of a stream that ends with what is there: what the queue had not read when that was looked at last.
        self._unread = 0
        self._batches: dict[int, list[Message]] = {}
        if (whole := address.partition) is None:
            self._client = Client(address.url, instance=address.instance, retry_timeout=retry_timeout)
        else:
            self._client = Client(address.url, instance=whole.name, partitions=whole.total, retry_timeout=retry_timeout)
        # By their numbers; one that is an instance without partitions is the only one.
        self._clients = self._client.clients if isinstance(self._client, PartitionedClient) else [self._client]
        self._partitions = whole.total if whole is not None else None
        self._numbers = {each.instance: number for number, each in enumerate(self._clients)}
        # It renews all that it holds for as long as this process lives.
        self._subscription = self._client.subscribe(queue, max_backlog=most, filter=filter, renew=True)
        if self._subscription.max_backlog < most:
            _log.warning(
                "queue %r lets a subscription hold %d messages, so that a batch has no more; its "
                "max_per_subscription_backlog says so",
                queue,
                self._subscription.max_backlog,
            )

    def bound(self) -> None:
        """Take no more than what there is now, about: messages that come back count anew."""
        stats = self._client.admin.queue_stats(self._queue)
        self._left, self._unread = stats.waiting + stats.ready, stats.waiting

    def _is_being_read(self) -> bool:
        """Return whether the queue has read on in its logs since the last look; of streams that end with what is there.

        Filters and priorities are applied to so many messages a call: where these have none, those behind may.
        """
        former = self._unread
        if former:
            self._unread = self._client.admin.queue_stats(self._queue).waiting
        return self._unread < former

    def take(self, number: int, most: int) -> QueueOffset | None:
        """Take the messages of a batch, or say again which it has; None: there are none.

        Args:
            number: of the batch.
            most: messages.
        """
        if number not in self._batches:
            most = min(most, self._left)
            messages: list[Message] = []
            while len(messages) < most:
                message = self._subscription.get(0 if messages else _LOOK)
                if message is not None:
                    messages.append(message)
                elif messages or not self._is_being_read():
                    break
            if not messages:
                return None
            self._batches[number] = messages
            self._left -= len(messages)
        leased = [
            LeasedMessage(*parse_ref(head_of(each)[5].decode()), each.delivery, each.group, self._partition_of(each))
            for each in self._batches[number]
        ]
        # Each log has one run, whichever way the turns of partitions went; messages of a key stay in their order.
        leased.sort(key=lambda message: message.partition)
        return QueueOffset(number, self._queue, tuple(leased), self._partitions)

    def _partition_of(self, message: Message) -> int:
        return self._numbers[message.origin.rpartition(".")[0]] if self._partitions else 0

    def finish(self, offset: QueueOffset) -> None:
        """Acknowledge a batch that is done, and those before it."""
        if offset.batch <= self._done:
            return
        if offset.batch not in self._batches:
            self._acknowledge_by_bookmark(offset.messages)
        for number in [number for number in self._batches if number <= offset.batch]:
            late = len(self._subscription.late)
            for message in self._batches.pop(number):
                message.ack()
            self._subscription.flush()
            if lost := len(self._subscription.late) - late:
                _log.warning(
                    "batch %d: %d leases were lost before it was done; those messages come again", number, lost
                )
        self._done = offset.batch

    def _acknowledge_by_bookmark(self, messages: Sequence[LeasedMessage]) -> None:
        """Of a driver that died before this one: its leases went back, and nobody should do the work again."""
        for number, own in groupby(messages, key=lambda message: message.partition):
            client = self._clients[number]
            # IDs in this instance's logs, which are known under its origin, wherever the messages are from.
            bookmarks = [Bookmark.of(each.topic, client.origin, each.id) for each in own]
            for first in range(0, len(bookmarks), _TOGETHER):
                try:
                    client.ack(self._queue, bookmarks[first : first + _TOGETHER])
                except Rejected as refused:
                    # All others are done. These were before, or somebody has them who alone may.
                    _log.info("of a batch that was repeated: %s", refused)

    def close(self) -> None:
        """Give back what is not acknowledged."""
        self._subscription.close()
        self._client.close()
