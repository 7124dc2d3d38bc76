"""The administrative calls of the client of all partitions, for asyncio: those of each partition, merged.

This is `ampsq.client.partitioned_admin`, awaited.
"""

# Made from client/partitioned_admin.py by tests/house/test_twins.py --write.

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Never, Protocol

from ampsq.base.errors import DefinitionError, UnknownQueue
from ampsq.base.values import check_text
from ampsq.catalog.partitioned import check_definable, is_definable
from ampsq.client.async_admin import AsyncAdmin
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
    from collections.abc import Callable, Coroutine, Iterable, Sequence
    from datetime import timedelta

    from ampsq.base.bookmarks import Bookmark
    from ampsq.base.partitions import Partition
    from ampsq.catalog.apply import Outcome, Planned
    from ampsq.client.async_client import AsyncClient
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

    _Defined = Coroutine[Any, Any, list[tuple[Definition, Outcome]]]
    _Define = Callable[[Sequence[Definition], Sequence[Definition]], _Defined]

__all__ = ["AsyncPartitionedAdmin"]


class _Partitions(Protocol):
    """A client of all partitions, as far as its administrative calls need it."""

    @property
    def clients(self) -> list[AsyncClient]: ...


class AsyncPartitionedAdmin(AsyncAdmin):
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
    def _first(self) -> AsyncAdmin:
        """Calls of the first partition, for what all have alike."""
        return self._client.clients[0].admin

    async def plan(self, *definitions: Definition, removing: Iterable[Definition] = ()) -> list[Planned]:
        """Say what `AsyncClient.apply` would do; what any partition would refuse is refused. See `AsyncAdmin.plan`.

        What is unchanged in some partitions and not in others is as in the first one of those others.
        """
        removed = list(removing)
        check_definable([*definitions, *removed])
        plans = [await each.admin.plan(*definitions, removing=removed) for each in self._client.clients]
        return merged_plans(plans)

    async def definitions(self) -> list[Definition]:
        """Read everything that is defined in all partitions; see `AsyncAdmin.definitions`."""
        found = await self._first.definitions()
        return [each for each in found if is_definable(each)]

    async def remove(self, *definitions: Definition) -> None:
        """Remove definitions in all partitions; see `AsyncAdmin.remove`."""
        await self._define((), definitions)

    async def pause_queue(self, queue: str) -> bool:
        """Deliver no more of a queue, in any partition; see `AsyncAdmin.pause_queue`."""
        return await self._set_paused(queue, paused=True)

    async def resume_queue(self, queue: str) -> bool:
        """Deliver again what `pause_queue` ended."""
        return await self._set_paused(queue, paused=False)

    async def _set_paused(self, queue: str, *, paused: bool) -> bool:
        check_text("queue", queue)
        queues = await self._first.queues()
        if queue not in queues:
            raise UnknownQueue(queue=queue)
        defined = queues[queue]
        outcomes = await self._define([type(defined)(**{**defined.elements(), "name": queue, "paused": paused})], ())
        return any(outcome != "unchanged" for _, outcome in outcomes)

    async def message_type(self, topic: str) -> str:
        """Read the message type of a topic or a queue; see `AsyncAdmin.message_type`."""
        return await self._first.message_type(topic)

    async def queues(self) -> dict[str, Queue]:
        """Read the definitions of all queues, by name."""
        return await self._first.queues()

    async def address_settings(self) -> dict[str, AddressSetting]:
        """Read all address settings, by what they match."""
        return await self._first.address_settings()

    async def views(self) -> dict[str, View]:
        """Read the definitions of all views, by name; an instance with partitions has none yet."""
        return await self._first.views()

    async def destinations(self) -> dict[str, Destination]:
        """Read the definitions of all destinations, by name; an instance with partitions has none yet."""
        return await self._first.destinations()

    async def sync_states(self) -> dict[str, SyncState]:
        """Read how each sync destination stands, by name; an instance with partitions has none yet."""
        return await self._first.sync_states()

    async def queue_stats(self, queue: str) -> QueueStats:
        """Read a queue's figures: the sums over all partitions, each of its own moment.

        Of `subscriptions` it is the number in the partition that has most: one to all is in each.
        """
        parts = [await each.admin.queue_stats(queue) for each in self._client.clients]
        return QueueStats.merged(parts)

    async def queue_latencies(self, queue: str, over: str = "15m") -> QueueLatencies:
        """Read how long messages of a queue take, of all partitions; see `AsyncAdmin.queue_latencies`."""
        parts = [await each.admin.queue_latencies(queue, over) for each in self._client.clients]
        return QueueLatencies.merged(parts)

    async def topics(self) -> dict[str, TopicState]:
        """Read all topics: sums over the partitions, the first and the last message of all; see `AsyncAdmin.topics`."""
        parts = [await each.admin.topics() for each in self._client.clients]
        return merged_topics(parts)

    async def publishers(self) -> list[PublisherState]:
        """Read all publishers with a name, by name, one for each partition where it has published."""
        found: list[PublisherState] = []
        for each in self._client.clients:
            found += await each.admin.publishers()
        return sorted(found, key=lambda state: state.name)

    async def check(self, *queues: str, repair: bool = False) -> list[CheckReport]:
        """Check queues of each partition, one after the other; see `AsyncAdmin.check`. A report for each of them."""
        reports: list[CheckReport] = []
        for number, each in enumerate(self._client.clients):
            found = await each.admin.check(*queues, repair=repair)
            reports += [replace(report, partition=number) for report in found]
        return reports

    async def rebuild(self, queue: str) -> Rebuilt:
        """Rebuild a queue's state in all partitions, one after the other; see `AsyncAdmin.rebuild`. Gives the sums."""
        parts = [await each.admin.rebuild(queue) for each in self._client.clients]
        return merged_rebuilt(parts)

    async def explain(self, queue: str, bookmark: Bookmark | str | None = None) -> Explanation:
        """Say why a message is where it is; see `AsyncAdmin.explain`. A bookmark says which partition has it.

        Without one it is the oldest of the messages that are the next ones of their partitions.
        """
        if bookmark is not None:
            return await self._having(bookmark).explain(queue, bookmark)
        parts = [await each.admin.explain(queue) for each in self._client.clients]
        return oldest_next(parts)

    async def history(self, bookmark: Bookmark | str) -> History:
        """Tell a message's life as a timeline; see `AsyncAdmin.history`."""
        return await self._having(bookmark).history(bookmark)

    def _having(self, bookmark: Bookmark | str) -> AsyncAdmin:
        """Return those of the partition that has a message."""
        ((number, _),) = by_partition(self._all, [bookmark])
        return self._client.clients[number].admin

    async def groups(self, queue: str, *, limit: int = 20) -> QueueGroups:
        """Read the groups of a queue of all partitions; one that is in several counts once; see `AsyncAdmin.groups`."""
        parts = [await each.admin.groups(queue, limit=limit) for each in self._client.clients]
        return QueueGroups.merged(parts, limit)

    async def trim(self, topic: str, *, age: timedelta | float | str | None = None, dry_run: bool = False) -> Trimmed:
        """Remove now what a topic's retention gives up, in all partitions, one after the other; see `AsyncAdmin.trim`.

        What it tells of the first message that is kept is of the oldest one in any partition.
        """
        parts: list[Trimmed] = []
        missing: list[DefinitionError] = []
        for each in self._client.clients:
            try:
                parts += [await each.admin.trim(topic, age=age, dry_run=dry_run)]
            except DefinitionError as error:
                # One that is made by publishing to it is in the partitions that were published to.
                missing.append(error)
        if not parts:
            raise missing[0]
        return merged_trimmed(parts)

    async def readers(self) -> list[ReaderState]:
        """Read the subscriptions to topics that report, a row for each partition; see `AsyncAdmin.readers`."""
        found: list[ReaderState] = []
        for each in self._client.clients:
            found += await each.admin.readers()
        return found

    async def actions(self) -> dict[str, ActionState]:
        """Read all actions, with the sums of all partitions, each of which has a place of its own."""
        parts = [await each.admin.actions() for each in self._client.clients]
        return merged_actions(parts)

    async def failed_events(self, action: str) -> list[FailedEvent]:
        """Read the failed events of an action in all partitions, the first one first; see `AsyncAdmin.failed_events`.

        Their numbers are others than those at their partitions.
        """
        parts = [await each.admin.failed_events(action) for each in self._client.clients]
        return merged_events(parts)

    async def retry_action(self, action: str, events: Iterable[int] | int | None = None) -> int:
        """Let coordinators try failed events at once; see `AsyncAdmin.retry_action`."""
        number = 0
        for each, own in zip(self._client.clients, events_of_each(len(self._all), events), strict=True):
            number += await each.admin.retry_action(action, own)
        return number

    async def drop_failed(self, action: str, events: Iterable[int] | int | None = None) -> int:
        """Forget failed events; see `AsyncAdmin.drop_failed`."""
        number = 0
        for each, own in zip(self._client.clients, events_of_each(len(self._all), events), strict=True):
            number += await each.admin.drop_failed(action, own)
        return number

    async def release_group(self, queue: str, group: str) -> bool:
        """Let a group go on, in whichever partition it is; see `AsyncAdmin.release_group`."""
        released = [await each.admin.release_group(queue, group) for each in self._client.clients]
        return any(released)

    async def pause_group(self, queue: str, group: str) -> bool:
        """Deliver nothing more of a group, in any partition; see `AsyncAdmin.pause_group`."""
        paused = [await each.admin.pause_group(queue, group) for each in self._client.clients]
        return any(paused)

    async def resume_group(self, queue: str, group: str) -> bool:
        """Deliver again what `pause_group` ended, in every partition; see `AsyncAdmin.resume_group`."""
        resumed = [await each.admin.resume_group(queue, group) for each in self._client.clients]
        return any(resumed)

    async def drop_group(self, queue: str, group: str, *, reason: str | None = None, dry_run: bool = False) -> int:
        """Let all messages of a group that wait leave all partitions; see `AsyncAdmin.drop_group`."""
        number = 0
        for each in self._client.clients:
            number += await each.admin.drop_group(queue, group, reason=reason, dry_run=dry_run)
        return number

    async def dead_letters(
        self,
        queue: str,
        filter: str | None = None,  # noqa: A002  (AMPS's word)
        *,
        source: str | None = None,
        reason: str | None = None,
        top_n: int | None = None,
        bookmarks: Iterable[Bookmark | str] | str | None = None,
    ) -> list[DeadLetter]:
        """Look at dead letters of all partitions, the oldest first; see `AsyncAdmin.dead_letters`."""
        letters: list[DeadLetter] = []
        if bookmarks is not None:
            for number, some in by_partition(self._all, bookmarks):
                letters += await self._client.clients[number].admin.dead_letters(
                    queue, filter, source=source, reason=reason, top_n=top_n, bookmarks=some
                )
            return letters
        for each in self._client.clients:
            letters += await each.admin.dead_letters(queue, filter, source=source, reason=reason, top_n=top_n)
        return oldest_first(letters)[:top_n]

    async def redrive(
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
        """Put dead letters of all partitions back, of one after the other; see `AsyncAdmin.redrive`.

        `progress` gets the sums of all partitions so far; its `total` grows with each partition.
        """
        chosen: list[tuple[int, list[Bookmark | str] | None]] = [(each.number, None) for each in self._all]
        if bookmarks is not None:
            chosen = [*by_partition(self._all, bookmarks)]
        parts: list[Redriven] = []
        watched = RedriveSum(progress)
        for number, some in chosen:
            parts += [
                await self._client.clients[number].admin.redrive(
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


refuse_the_rest(AsyncPartitionedAdmin, AsyncAdmin, prefix="admin.")
