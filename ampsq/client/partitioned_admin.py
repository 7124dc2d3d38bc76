"""The administrative calls of the client of all partitions, for threads: those of each partition, merged.

`ampsq.client.async_partitioned_admin` is made from this file.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Never, Protocol

from ampsq.base.errors import DefinitionError, UnknownQueue
from ampsq.base.values import check_text
from ampsq.catalog.partitioned import check_definable, is_definable
from ampsq.client.admin import Admin
from ampsq.client.partition_merging import (
    RedriveSum,
    events_of_each,
    merged_actions,
    merged_events,
    merged_plans,
    merged_rebuilt,
    merged_redriven,
    merged_topics,
    merged_trimmed,
    oldest_first,
    oldest_next,
)
from ampsq.client.partition_rules import by_partition, only_for_one, refuse_the_rest
from ampsq.operations.groups import QueueGroups
from ampsq.operations.latencies import QueueLatencies
from ampsq.protocol.calls.queue_stats import QueueStats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import timedelta

    from ampsq.base.bookmarks import Bookmark
    from ampsq.base.partitions import Partition
    from ampsq.catalog.apply import Outcome, Planned
    from ampsq.client.client import Client
    from ampsq.definitions.address_setting import AddressSetting
    from ampsq.definitions.destination import Destination
    from ampsq.definitions.queue import Definition, Queue, View
    from ampsq.operations.actions import ActionState, FailedEvent
    from ampsq.operations.check.queue import CheckReport
    from ampsq.operations.rebuild import Rebuilt
    from ampsq.protocol.reads.readers import ReaderState
    from ampsq.publishing.publishers import PublisherState
    from ampsq.publishing.sync_state import SyncState
    from ampsq.queues.dead_letters import DeadLetter
    from ampsq.queues.explain import Explanation
    from ampsq.queues.history import History
    from ampsq.queues.redrive import Redriven, RedriveProgress
    from ampsq.topics.retention import Trimmed
    from ampsq.topics.topic_state import TopicState

    _Define = Callable[[Sequence[Definition], Sequence[Definition]], list[tuple[Definition, Outcome]]]

__all__ = ["PartitionedAdmin"]


class _Partitions(Protocol):
    """A client of all partitions, as far as its administrative calls need it."""

    @property
    def clients(self) -> list[Client]: ...


class PartitionedAdmin(Admin):
    """The administrative calls of a client of all partitions, as far as they are merged.

    Args:
        client: whose they are.
        partitions: all of the instance.
        define: defines and removes in all of them.
    """

    def __init__(self, client: _Partitions, partitions: Sequence[Partition], define: _Define) -> None:
        self._client, self._all, self._define = client, partitions, define

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._client!r}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Never:
            only_for_one(name)

    @property
    def _first(self) -> Admin:
        """Calls of the first partition, for what all have alike."""
        return self._client.clients[0].admin

    def plan(self, *definitions: Definition, removing: Iterable[Definition] = ()) -> list[Planned]:
        """Say what `Client.apply` would do; what any partition would refuse is refused. See `Admin.plan`.

        What is unchanged in some partitions and not in others is as in the first one of those others.
        """
        removed = list(removing)
        check_definable([*definitions, *removed])
        plans = [each.admin.plan(*definitions, removing=removed) for each in self._client.clients]
        return merged_plans(plans)

    def definitions(self) -> list[Definition]:
        """Read everything that is defined in all partitions; see `Admin.definitions`."""
        found = self._first.definitions()
        return [each for each in found if is_definable(each)]

    def remove(self, *definitions: Definition) -> None:
        """Remove definitions in all partitions; see `Admin.remove`."""
        self._define((), definitions)

    def pause_queue(self, queue: str) -> bool:
        """Deliver no more of a queue, in any partition; see `Admin.pause_queue`."""
        return self._set_paused(queue, paused=True)

    def resume_queue(self, queue: str) -> bool:
        """Deliver again what `pause_queue` ended."""
        return self._set_paused(queue, paused=False)

    def _set_paused(self, queue: str, *, paused: bool) -> bool:
        check_text("queue", queue)
        queues = self._first.queues()
        if queue not in queues:
            raise UnknownQueue(queue=queue)
        defined = queues[queue]
        outcomes = self._define([type(defined)(**{**defined.elements(), "name": queue, "paused": paused})], ())
        return any(outcome != "unchanged" for _, outcome in outcomes)

    def message_type(self, topic: str) -> str:
        """Read the message type of a topic or a queue; see `Admin.message_type`."""
        return self._first.message_type(topic)

    def queues(self) -> dict[str, Queue]:
        """Read the definitions of all queues, by name."""
        return self._first.queues()

    def address_settings(self) -> dict[str, AddressSetting]:
        """Read all address settings, by what they match."""
        return self._first.address_settings()

    def views(self) -> dict[str, View]:
        """Read the definitions of all views, by name; an instance with partitions has none yet."""
        return self._first.views()

    def destinations(self) -> dict[str, Destination]:
        """Read the definitions of all destinations, by name; an instance with partitions has none yet."""
        return self._first.destinations()

    def sync_states(self) -> dict[str, SyncState]:
        """Read how each sync destination stands, by name; an instance with partitions has none yet."""
        return self._first.sync_states()

    def queue_stats(self, queue: str) -> QueueStats:
        """Read a queue's figures: the sums over all partitions, each of its own moment.

        Of `subscriptions` it is the number in the partition that has most: one to all is in each.
        """
        parts = [each.admin.queue_stats(queue) for each in self._client.clients]
        return QueueStats.merged(parts)

    def queue_latencies(self, queue: str, over: str = "15m") -> QueueLatencies:
        """Read how long messages of a queue take, of all partitions; see `Admin.queue_latencies`."""
        parts = [each.admin.queue_latencies(queue, over) for each in self._client.clients]
        return QueueLatencies.merged(parts)

    def topics(self) -> dict[str, TopicState]:
        """Read all topics: sums over the partitions, the first and the last message of all; see `Admin.topics`."""
        parts = [each.admin.topics() for each in self._client.clients]
        return merged_topics(parts)

    def publishers(self) -> list[PublisherState]:
        """Read all publishers with a name, by name, one for each partition where it has published."""
        found: list[PublisherState] = []
        for each in self._client.clients:
            found += each.admin.publishers()
        return sorted(found, key=lambda state: state.name)

    def check(self, *queues: str, repair: bool = False) -> list[CheckReport]:
        """Check queues of each partition, one after the other; see `Admin.check`. A report for each of them."""
        reports: list[CheckReport] = []
        for number, each in enumerate(self._client.clients):
            found = each.admin.check(*queues, repair=repair)
            reports += [replace(report, partition=number) for report in found]
        return reports

    def rebuild(self, queue: str) -> Rebuilt:
        """Rebuild a queue's state in all partitions, one after the other; see `Admin.rebuild`. Gives the sums."""
        parts = [each.admin.rebuild(queue) for each in self._client.clients]
        return merged_rebuilt(parts)

    def explain(self, queue: str, bookmark: Bookmark | str | None = None) -> Explanation:
        """Say why a message is where it is; see `Admin.explain`. A bookmark says which partition has it.

        Without one it is the oldest of the messages that are the next ones of their partitions.
        """
        if bookmark is not None:
            return self._having(bookmark).explain(queue, bookmark)
        parts = [each.admin.explain(queue) for each in self._client.clients]
        return oldest_next(parts)

    def history(self, bookmark: Bookmark | str) -> History:
        """Tell a message's life as a timeline; see `Admin.history`."""
        return self._having(bookmark).history(bookmark)

    def _having(self, bookmark: Bookmark | str) -> Admin:
        """Return those of the partition that has a message."""
        ((number, _),) = by_partition(self._all, [bookmark])
        return self._client.clients[number].admin

    def groups(self, queue: str, *, limit: int = 20) -> QueueGroups:
        """Read the groups of a queue of all partitions; one that is in several counts once; see `Admin.groups`."""
        parts = [each.admin.groups(queue, limit=limit) for each in self._client.clients]
        return QueueGroups.merged(parts, limit)

    def trim(self, topic: str, *, age: timedelta | float | str | None = None, dry_run: bool = False) -> Trimmed:
        """Remove now what a topic's retention gives up, in all partitions, one after the other; see `Admin.trim`.

        What it tells of the first message that is kept is of the oldest one in any partition.
        """
        parts: list[Trimmed] = []
        missing: list[DefinitionError] = []
        for each in self._client.clients:
            try:
                parts += [each.admin.trim(topic, age=age, dry_run=dry_run)]
            except DefinitionError as error:
                # One that is made by publishing to it is in the partitions that were published to.
                missing.append(error)
        if not parts:
            raise missing[0]
        return merged_trimmed(parts)

    def readers(self) -> list[ReaderState]:
        """Read the subscriptions to topics that report, a row for each partition; see `Admin.readers`."""
        found: list[ReaderState] = []
        for each in self._client.clients:
            found += each.admin.readers()
        return found

    def actions(self) -> dict[str, ActionState]:
        """Read all actions, with the sums of all partitions, each of which has a place of its own."""
        parts = [each.admin.actions() for each in self._client.clients]
        return merged_actions(parts)

    def failed_events(self, action: str) -> list[FailedEvent]:
        """Read the failed events of an action in all partitions, the first one first; see `Admin.failed_events`.

        Their numbers are others than those at their partitions.
        """
        parts = [each.admin.failed_events(action) for each in self._client.clients]
        return merged_events(parts)

    def retry_action(self, action: str, events: Iterable[int] | int | None = None) -> int:
        """Let coordinators try failed events at once; see `Admin.retry_action`."""
        number = 0
        for each, own in zip(self._client.clients, events_of_each(len(self._all), events), strict=True):
            number += each.admin.retry_action(action, own)
        return number

    def drop_failed(self, action: str, events: Iterable[int] | int | None = None) -> int:
        """Forget failed events; see `Admin.drop_failed`."""
        number = 0
        for each, own in zip(self._client.clients, events_of_each(len(self._all), events), strict=True):
            number += each.admin.drop_failed(action, own)
        return number

    def release_group(self, queue: str, group: str) -> bool:
        """Let a group go on, in whichever partition it is; see `Admin.release_group`."""
        released = [each.admin.release_group(queue, group) for each in self._client.clients]
        return any(released)

    def pause_group(self, queue: str, group: str) -> bool:
        """Deliver nothing more of a group, in any partition; see `Admin.pause_group`."""
        paused = [each.admin.pause_group(queue, group) for each in self._client.clients]
        return any(paused)

    def resume_group(self, queue: str, group: str) -> bool:
        """Deliver again what `pause_group` ended, in every partition; see `Admin.resume_group`."""
        resumed = [each.admin.resume_group(queue, group) for each in self._client.clients]
        return any(resumed)

    def drop_group(self, queue: str, group: str, *, reason: str | None = None, dry_run: bool = False) -> int:
        """Let all messages of a group that wait leave all partitions; see `Admin.drop_group`."""
        number = 0
        for each in self._client.clients:
            number += each.admin.drop_group(queue, group, reason=reason, dry_run=dry_run)
        return number

    def dead_letters(
        self,
        queue: str,
        filter: str | None = None,  # noqa: A002  (AMPS's word)
        *,
        source: str | None = None,
        reason: str | None = None,
        top_n: int | None = None,
        bookmarks: Iterable[Bookmark | str] | str | None = None,
    ) -> list[DeadLetter]:
        """Look at dead letters of all partitions, the oldest first; see `Admin.dead_letters`."""
        letters: list[DeadLetter] = []
        if bookmarks is not None:
            for number, some in by_partition(self._all, bookmarks):
                letters += self._client.clients[number].admin.dead_letters(
                    queue, filter, source=source, reason=reason, top_n=top_n, bookmarks=some
                )
            return letters
        for each in self._client.clients:
            letters += each.admin.dead_letters(queue, filter, source=source, reason=reason, top_n=top_n)
        return oldest_first(letters)[:top_n]

    def redrive(
        self,
        queue: str,
        filter: str | None = None,  # noqa: A002  (AMPS's word)
        bookmarks: Iterable[Bookmark | str] | str | None = None,
        *,
        source: str | None = None,
        reason: str | None = None,
        to: str | None = None,
        dry_run: bool = False,
        rate: float | str | None = None,
        progress: Callable[[RedriveProgress], object] | None = None,
        edit: Callable[[DeadLetter], Any] | None = None,
    ) -> Redriven:
        """Put dead letters of all partitions back, of one after the other; see `Admin.redrive`.

        `progress` gets the sums of all partitions so far; its `total` grows with each partition.
        """
        chosen: list[tuple[int, list[Bookmark | str] | None]] = [(each.number, None) for each in self._all]
        if bookmarks is not None:
            chosen = [*by_partition(self._all, bookmarks)]
        parts: list[Redriven] = []
        watched = RedriveSum(progress)
        for number, some in chosen:
            parts += [
                self._client.clients[number].admin.redrive(
                    queue,
                    filter,
                    some,
                    source=source,
                    reason=reason,
                    to=to,
                    dry_run=dry_run,
                    rate=rate,
                    progress=watched.of_next() if progress is not None else None,
                    edit=edit,
                )
            ]
        return merged_redriven(parts)


refuse_the_rest(PartitionedAdmin, Admin, prefix="admin.")
