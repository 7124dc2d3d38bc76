"""The client of all partitions of an instance, for asyncio: a client of each, and what joins them.

This is `ampsq.client.partitioned_client`, awaited.
"""

# Made from client/partitioned_client.py by tests/house/test_twins.py --write.

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING, Any, Never, Self

from ampsq.base.addresses import join_addresses
from ampsq.base.errors import (
    AmpsqError,
    Closed,
    DefinitionError,
    NotPermitted,
    Rejected,
    StaleDefinitions,
    UnknownQueue,
)
from ampsq.base.partitions import Partition, asked_partitions, check_key_function, partitions_of
from ampsq.base.suggestions import misplaced
from ampsq.base.values import check_text, shown
from ampsq.catalog.apply import RACES
from ampsq.catalog.partitioned import Intent, check_definable, is_definable, merged_outcomes
from ampsq.client.async_admin import AsyncAdmin
from ampsq.client.async_client import AsyncClient
from ampsq.client.async_partitioned_subscription import AsyncPartitionedSubscription
from ampsq.client.partition_rules import (
    by_partition,
    divided,
    merged_redriven,
    not_merged,
    oldest_first,
    only_for_one,
    refuse_the_rest,
)
from ampsq.protocol.calls.queue_stats import QueueStats
from ampsq.protocol.encoding import check_batches
from ampsq.publishing.deduplication import DeduplicationWindow
from ampsq.publishing.envelope import refuse_publish_arguments
from ampsq.publishing.partitioned_batches import PartitionChoice, PartitionedBatches
from ampsq.queues.async_subscription import Subscribing
from ampsq.queues.handlers import check_handler
from ampsq.topics.subscription_spec import refuse_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
    from datetime import datetime, timedelta

    from ampsq.base.bookmarks import Bookmark
    from ampsq.catalog.apply import Outcome, Planned
    from ampsq.client.async_publisher import AsyncPublisher
    from ampsq.definitions.address_setting import AddressSetting
    from ampsq.definitions.queue import Definition, Queue
    from ampsq.operations.check.queue import CheckReport
    from ampsq.protocol.reads.server import Server
    from ampsq.queues.async_subscription import AsyncMessage, AsyncSubscription
    from ampsq.queues.dead_letters import DeadLetter
    from ampsq.queues.explain import Explanation
    from ampsq.queues.history import History
    from ampsq.queues.redrive import Redriven, RedriveProgress
    from ampsq.transport.connection_state import ConnectionEvent

    _Awaited = Coroutine[Any, Any, list[tuple[Definition, Outcome]]]
    _Define = Callable[[Sequence[Definition], Sequence[Definition]], _Awaited]

__all__ = ["AsyncPartitionedAdmin", "AsyncPartitionedClient"]

_log = logging.getLogger("ampsq")


class AsyncPartitionedClient(AsyncClient):
    """A client of all partitions of an instance; `AsyncClient` makes it where partitions are asked for.

    Args:
        url: as of `AsyncClient`.
        instance: the name of the instance.
        partitions: how many it has, where the address does not say it.
        options: as of `AsyncClient`, those of the client of each partition.
    """

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        *,
        instance: str | None = None,
        partitions: int | None = None,
        **options: Any,
    ) -> None:
        self._url, total = asked_partitions(url, partitions)
        if self._url is not None and "#" in join_addresses(self._url):
            raise DefinitionError(
                "an instance with partitions has no other one to go on at yet; allowed: addresses without #, and its "
                "name as instance="
            )
        self._name = instance or os.environ.get("AMPSQ_INSTANCE") or "ampsq"
        self._all, self._options = partitions_of(self._name, total or 0), options
        self._choice = PartitionChoice(len(self._all))
        self._subscriptions: list[AsyncPartitionedSubscription] = []
        self._clients: list[AsyncClient] = []
        self._merged_admin = AsyncPartitionedAdmin(self, self._all, self._define)

    async def connect(self) -> Self:
        """Open the clients of all partitions; ``async with`` does it."""
        if not self._clients:
            await self._open()
        return self

    async def _open(self) -> None:
        """Open the clients of all partitions, and finish what was half defined."""
        register = await self._open_at(Partition.register(self._name, len(self._all)))
        try:
            for each in self._all:
                self._clients.append(await self._open_at(each))
            # Who may not define leaves it to who may.
            with contextlib.suppress(NotPermitted):
                await self._finish_definitions()
        except BaseException:
            await self.close()
            raise
        finally:
            await register.close()

    async def _open_at(self, partition: Partition) -> AsyncClient:
        return await AsyncClient._at(partition, self._url, self._options)  # noqa: SLF001  (our own)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._name} in {len(self._all)} partitions>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Never:
            if name == "_connection":
                only_for_one(name)
            raise misplaced(self, name, "admin", AsyncAdmin)

    @property
    def clients(self) -> list[AsyncClient]:
        """The clients of the partitions, for those calls that are merged.

        Raises:
            Closed: it is not open.
        """
        if len(self._clients) < len(self._all):
            raise Closed("this client is not open")
        return self._clients

    def add_connection_state_listener(self, listener: Callable[[ConnectionEvent], object]) -> None:
        """As `AsyncClient.add_connection_state_listener`; it hears of each partition's connection, perhaps at once."""
        for each in self.clients:
            each.add_connection_state_listener(listener)

    def remove_connection_state_listener(self, listener: Callable[[ConnectionEvent], object]) -> None:
        """As `AsyncClient.remove_connection_state_listener`."""
        for each in self.clients:
            each.remove_connection_state_listener(listener)

    @property
    def url(self) -> str:
        """The server's address, or the addresses, with commas between."""
        return self.clients[0].url

    @property
    def server(self) -> Server:
        """The server of the first partition as it was at connect."""
        return self.clients[0].server

    @property
    def instance(self) -> str:
        """The instance's name."""
        return self._name

    @property
    def partitions(self) -> tuple[str, ...]:
        """The names of its partitions, each of which is an instance of its own."""
        return tuple(each.instance for each in self._all)

    @property
    def origin(self) -> str:
        """Refuse to name one origin: messages have that of their partition."""
        raise not_merged("origin")

    @property
    def admin(self) -> AsyncPartitionedAdmin:
        """The administrative calls, as far as they are merged; see `AsyncAdmin`."""
        return self._merged_admin

    # -- definitions

    async def apply(self, *definitions: Definition) -> list[tuple[Definition, Outcome]]:
        """Define topics, queues and dead-letter actions in all partitions, or change them; see `AsyncClient.apply`.

        A client that dies meanwhile leaves it half done; the next one that opens the instance, or defines something in
        it, finishes it.
        """
        return await self._define(definitions, ())

    async def _define(
        self, definitions: Sequence[Definition], removed: Sequence[Definition]
    ) -> list[tuple[Definition, Outcome]]:
        """Define and remove in all partitions, one version behind the other."""
        check_definable([*definitions, *removed])
        first = self.clients[0]
        for _ in range(RACES):
            intent = await self._finish_definitions()
            # What one partition refuses is refused before any has it.
            plans = [await each.admin.plan(*definitions, removing=removed) for each in self.clients]
            outcomes = merged_outcomes(plans)
            if not removed and all(outcome == "unchanged" for _, outcome in outcomes):
                return outcomes
            try:
                intent = await first._store.run(intent.begin(definitions, removed))  # noqa: SLF001  (our own)
            except StaleDefinitions:
                continue
            await self._carry_out(intent)
            return outcomes
        raise StaleDefinitions(reason=f"others defined something {RACES} times meanwhile")

    async def _finish_definitions(self) -> Intent:
        """Make the last version so in all partitions; gives it."""
        first = self.clients[0]
        intent = await first._store.run(Intent.read(first.instance))  # noqa: SLF001  (our own)
        if intent.is_done:
            return intent
        try:
            await self._carry_out(intent)
        except (Rejected, DefinitionError) as refusal:
            # What is defined next stands in its place, in all partitions.
            _log.warning("%r: version %d of what is defined is not in all: %s", self, intent.version, refusal)
        return await first._store.run(Intent.read(first.instance))  # noqa: SLF001  (our own)

    async def _carry_out(self, intent: Intent) -> None:
        first = self.clients[0]
        # Where a partition has a later version, somebody else has finished this one before.
        with contextlib.suppress(StaleDefinitions):
            for each in self.clients:
                await each._store.run(each._session.make_so(intent))  # noqa: SLF001  (our own)
            await first._store.run(intent.end())  # noqa: SLF001  (our own)

    # -- publishing

    async def publish(
        self,
        topic: str,
        data: Any,
        *,
        headers: Mapping[str, str] | None = None,
        expiration: timedelta | float | str | None = None,
        delay: timedelta | float | str | None = None,
        at: datetime | None = None,
        group: str | None = None,
        deduplication_id: str | None = None,
        within: timedelta | float | str | None = None,
        key: str | None = None,
        **unknown: Never,
    ) -> Bookmark:
        """Record one message in the partition of its key, group or deduplication ID, or in turn.

        See `AsyncClient.publish`.
        """
        if unknown:
            refuse_publish_arguments("publish", unknown, "deduplication_id", "within", "key")
        client = self.clients[self._choice.of(key, group, deduplication_id)]
        return await client.publish(
            topic,
            data,
            headers=headers,
            expiration=expiration,
            delay=delay,
            at=at,
            group=group,
            deduplication_id=deduplication_id,
            within=within,
        )

    async def publish_many(
        self,
        topic: str,
        messages: Iterable[Any],
        *,
        batch: int = 100,
        headers: Mapping[str, str] | None = None,
        expiration: timedelta | float | str | None = None,
        delay: timedelta | float | str | None = None,
        at: datetime | None = None,
        group: str | None = None,
        deduplication_id: Callable[[Any], str | None] | None = None,
        within: timedelta | float | str | None = None,
        key: Callable[[Any], str] | None = None,
        **unknown: Never,
    ) -> Sequence[Bookmark]:
        """Record many messages; see `AsyncClient.publish_many`.

        With a key, a group or deduplication IDs, messages are gathered for each partition: up to `batch` of them, or
        for 50 ms of waiting for more. Without, whole batches go to the partitions in turn.
        """
        if unknown:
            refuse_publish_arguments("publish_many", unknown, "deduplication_id", "within", "key")
        check_key_function(key)
        DeduplicationWindow.of_many(deduplication_id, within)
        check_batches(messages, batch)
        batches = PartitionedBatches(self._choice, batch, key=key, name=group, id_of=deduplication_id)
        with batches.telling():
            for each in batches.cut(messages):
                with batches.sending(each):
                    recorded = await self.clients[each.partition].publish_many(
                        topic,
                        each.messages,
                        batch=batch,
                        headers=headers,
                        expiration=expiration,
                        delay=delay,
                        at=at,
                        group=group,
                        deduplication_id=deduplication_id,
                        within=within,
                    )
                    batches.note(each, recorded)
        return batches.recorded

    # -- queues

    def subscribe(
        self,
        name: str,
        *,
        max_backlog: int = 1,
        filter: str | None = None,  # noqa: A002  (AMPS's word)
        renew: bool = False,
        on_message: Callable[[AsyncMessage], object] | None = None,
        publisher: AsyncPublisher | None = None,
        **unknown: Never,
    ) -> Subscribing[AsyncSubscription]:
        """Subscribe to a queue of all partitions; see `AsyncClient.subscribe`.

        `max_backlog` is divided: each partition has its share, in whole messages, so it is at least the number of
        partitions, of which a subscription reads 64 at most. They are served in turn. Fairness, groups, filters and
        priorities are those of each partition.
        """
        if unknown:
            refuse_arguments("subscribe", name, unknown)
        if publisher is not None:
            raise not_merged("subscribe(publisher=...)")
        check_handler(on_message, awaits=True)
        shares = divided(max_backlog, len(self._all))
        return Subscribing(self._subscribe(name, shares, filter, on_message, renew=renew), shown(name))

    async def _subscribe(
        self,
        name: str,
        shares: list[int],
        text: str | None,
        on_message: Callable[[AsyncMessage], object] | None,
        *,
        renew: bool,
    ) -> AsyncSubscription:
        parts: list[AsyncSubscription] = []
        try:
            for client, share in zip(self.clients, shares, strict=True):
                parts.append(await client.subscribe(name, max_backlog=share, filter=text, renew=renew))
        except BaseException:
            for part in parts:
                with contextlib.suppress(AmpsqError):
                    await part.close()
            raise
        made = AsyncPartitionedSubscription(parts, self._subscriptions.remove)
        self._subscriptions.append(made)
        if on_message is not None:
            made.run(on_message)
        return made

    async def ack(
        self,
        queue: str,
        bookmarks: Iterable[Bookmark | str] | str | None = None,
        option: str = "ack",
        *,
        filter: str | None = None,  # noqa: A002  (AMPS's word)
        reason: str | None = None,
        dry_run: bool = False,
        publisher: AsyncPublisher | None = None,
    ) -> int:
        """Settle messages of a queue of all partitions, by bookmark or filter; see `AsyncClient.ack`.

        Partitions do it one after the other: where one refuses, those before have done it.
        """
        if publisher is not None:
            raise not_merged("ack(publisher=...)")
        if bookmarks is None or filter is not None:
            settled = [
                await each.ack(queue, bookmarks, option, filter=filter, reason=reason, dry_run=dry_run)
                for each in self.clients
            ]
            return sum(settled)
        settled = [
            await self.clients[number].ack(queue, some, option, reason=reason, dry_run=dry_run)
            for number, some in by_partition(self._all, bookmarks)
        ]
        return sum(settled)

    async def close(self) -> None:
        """Close the subscriptions, giving back what is unstarted, and the connections; see `AsyncClient.close`."""
        failures: list[AmpsqError] = []
        clients, self._clients = self._clients, []
        closing: list[AsyncPartitionedSubscription | AsyncClient] = [*self._subscriptions, *clients]
        for each in closing:
            try:
                await each.close()
            except AmpsqError as error:
                failures.append(error)
        if failures:
            raise failures[0]


class AsyncPartitionedAdmin(AsyncAdmin):
    """The administrative calls of a client of all partitions, as far as they are merged.

    Args:
        client: whose they are.
        partitions: all of the instance.
        define: defines and removes in all of them.
    """

    def __init__(self, client: AsyncPartitionedClient, partitions: Sequence[Partition], define: _Define) -> None:
        self._client, self._all, self._define = client, partitions, define

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._client!r}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Never:
            only_for_one(name)

    @property
    def _first(self) -> AsyncAdmin:
        """Those of the first partition, for what all have alike."""
        return self._client.clients[0].admin

    async def plan(self, *definitions: Definition, removing: Iterable[Definition] = ()) -> list[Planned]:
        """Say what `AsyncClient.apply` would do in the first partition; what any would refuse is refused."""
        removed = list(removing)
        check_definable([*definitions, *removed])
        plans = [await each.admin.plan(*definitions, removing=removed) for each in self._client.clients]
        return plans[0]

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
        outcomes = await self._client.apply(type(defined)(**{**defined.elements(), "name": queue, "paused": paused}))
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

    async def queue_stats(self, queue: str) -> QueueStats:
        """Read a queue's figures: the sums over all partitions, each of its own moment."""
        parts = [await each.admin.queue_stats(queue) for each in self._client.clients]
        return QueueStats.merged(parts)

    async def check(self, *queues: str, repair: bool = False) -> list[CheckReport]:
        """Check queues of each partition, one after the other; see `AsyncAdmin.check`. A report for each of them."""
        reports: list[CheckReport] = []
        for each in self._client.clients:
            reports += await each.admin.check(*queues, repair=repair)
        return reports

    async def explain(self, queue: str, bookmark: Bookmark | str | None = None) -> Explanation:
        """Say why a message is where it is; see `AsyncAdmin.explain`. A bookmark says which partition has it."""
        if bookmark is None:
            raise not_merged("explain without a bookmark")
        return await self._having(bookmark).explain(queue, bookmark)

    async def history(self, bookmark: Bookmark | str) -> History:
        """Tell a message's life as a timeline; see `AsyncAdmin.history`."""
        return await self._having(bookmark).history(bookmark)

    def _having(self, bookmark: Bookmark | str) -> AsyncAdmin:
        """Return those of the partition that has a message."""
        ((number, _),) = by_partition(self._all, [bookmark])
        return self._client.clients[number].admin

    async def release_group(self, queue: str, group: str) -> bool:
        """Let a group go on, in whichever partition it is; see `AsyncAdmin.release_group`."""
        released = [await each.admin.release_group(queue, group) for each in self._client.clients]
        return any(released)

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
        """Put dead letters of all partitions back, of one after the other; see `AsyncAdmin.redrive`."""
        if progress is not None:
            raise not_merged("redrive(progress=...)")
        chosen: list[tuple[int, list[Bookmark | str] | None]] = [(each.number, None) for each in self._all]
        if bookmarks is not None:
            chosen = [*by_partition(self._all, bookmarks)]
        parts: list[Redriven] = []
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
                    edit=edit,
                )
            ]
        return merged_redriven(parts)


refuse_the_rest(AsyncPartitionedClient, AsyncClient)
refuse_the_rest(AsyncPartitionedAdmin, AsyncAdmin, prefix="admin.")
