"""What administrators ask of an instance, awaited; the part of a client that moves no messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ampsq.base.message_types import JSON
from ampsq.catalog.read_definitions import read_definitions
from ampsq.catalog.remove import remove
from ampsq.operations.actions import actions, drop_failed, failed_events, retry_action
from ampsq.operations.check.queue import check, rebuild_queue
from ampsq.protocol.calls import replication as replication_calls
from ampsq.publishing.publishers import publishers
from ampsq.publishing.sync_state import sync_states
from ampsq.queues.explain import explain
from ampsq.queues.history import history
from ampsq.replication.destinations import read_destinations, remove_destination
from ampsq.replication.downgrade import downgrade, upgrade
from ampsq.replication.incarnations import end_connections, new_incarnation
from ampsq.replication.recovery import recover_without, resume_recovered
from ampsq.replication.report import read_replication

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import timedelta

    from ampsq.base.bookmarks import Bookmark
    from ampsq.catalog.apply import Outcome, Planned
    from ampsq.client.session import Session
    from ampsq.definitions.address_setting import AddressSetting
    from ampsq.definitions.destination import Destination
    from ampsq.definitions.queue import Definition, Queue, View
    from ampsq.operations.actions import ActionState, FailedEvent
    from ampsq.operations.check.queue import CheckReport
    from ampsq.operations.rebuild import Rebuilt
    from ampsq.protocol.calls.queue_stats import QueueStats
    from ampsq.protocol.reads.readers import ReaderState
    from ampsq.publishing.publishers import PublisherState
    from ampsq.publishing.sync_state import SyncState
    from ampsq.queues.dead_letters import DeadLetter
    from ampsq.queues.explain import Explanation
    from ampsq.queues.history import History
    from ampsq.queues.redrive import Redriven, RedriveProgress
    from ampsq.replication.recovery import Recovery
    from ampsq.replication.report import ReplicationReport
    from ampsq.topics.retention import Trimmed
    from ampsq.transport.runner import AsyncStore

__all__ = ["AsyncAdministration"]


class AsyncAdministration:
    """The same as `Administration`, awaited; a part of `AsyncClient`."""

    _session: Session

    if TYPE_CHECKING:

        @property
        def _store(self) -> AsyncStore: ...

    @property
    def instance(self) -> str:
        """The instance's name."""
        return self._session.instance

    @property
    def origin(self) -> str:
        """Where messages published here come from: the instance's name and its incarnation."""
        return self._session.origin

    async def apply(self, *definitions: Definition) -> list[tuple[Definition, Outcome]]:
        """Define topics, queues, views and actions; see `Client.apply`."""
        return await self._store.run(self._session.apply(definitions))

    async def plan(self, *definitions: Definition, removing: Iterable[Definition] = ()) -> list[Planned]:
        """Say what `apply` would do, and do nothing; see `Client.plan`."""
        return await self._store.run(self._session.plan(definitions, removing))

    async def definitions(self) -> list[Definition]:
        """Read everything that is defined; see `Client.definitions`."""
        return await self._store.run(read_definitions())

    async def remove(self, *definitions: Definition) -> None:
        """Remove definitions by kind and name; see `Client.remove`."""
        await self._store.run(remove(list(definitions)))

    async def pause_queue(self, queue: str) -> bool:
        """Deliver no more of a queue on this instance; see `Client.pause_queue`."""
        return await self._store.run(self._session.pause(queue, paused=True))

    async def resume_queue(self, queue: str) -> bool:
        """Deliver again; see `Client.resume_queue`."""
        return await self._store.run(self._session.pause(queue, paused=False))

    async def message_type(self, topic: str) -> str:
        """The message type of a topic or a queue; see `Client.message_type`."""
        return (await self._store.run(self._session.types.read(topic)) or JSON).name

    async def publishers(self) -> list[PublisherState]:
        """Read all publishers that have a name; see `Client.publishers`."""
        return await self._store.run(publishers(self.instance))

    async def replication(self) -> ReplicationReport:
        """Read how replication stands; see `Client.replication`."""
        return await self._store.run(read_replication(self.instance))

    async def enable_proxied_transfer(self, queue: str) -> None:
        """Let this instance act for owners that it does not hear of; see `Client.enable_proxied_transfer`."""
        await self._store.call(replication_calls.set_proxied_transfer(queue, enabled=True))

    async def disable_proxied_transfer(self, queue: str) -> None:
        """End what `enable_proxied_transfer` began; see `Client.disable_proxied_transfer`."""
        await self._store.call(replication_calls.set_proxied_transfer(queue, enabled=False))

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
        """Look at dead letters; see `Client.dead_letters`."""
        return await self._store.run(
            self._session.dead_letters(queue, filter, source=source, reason=reason, top_n=top_n, bookmarks=bookmarks)
        )

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
        """Put dead letters back; see `Client.redrive`. `edit` and `progress` are plain functions."""
        return await self._store.run(
            self._session.redrive(
                queue,
                filter=filter,
                bookmarks=bookmarks,
                source=source,
                reason=reason,
                to=to,
                dry_run=dry_run,
                rate=rate,
                progress=progress,
                edit=edit,
            )
        )

    async def explain(self, queue: str, bookmark: Bookmark | str | None = None) -> Explanation:
        """Say why a message is where it is; see `Client.explain`."""
        return await self._store.run(explain(self._session, queue, bookmark))

    async def history(self, bookmark: Bookmark | str) -> History:
        """Tell a message's life as a timeline; see `Client.history`."""
        return await self._store.run(history(self._session, bookmark))

    async def check(self, *queues: str, repair: bool = False) -> list[CheckReport]:
        """Compare queues' live state with what logs and journals say; see `Client.check`."""
        return await self._store.run(check(self._session, queues, repair=repair))

    async def rebuild(self, queue: str) -> Rebuilt:
        """Rebuild a queue's state from logs and journal; see `Client.rebuild`."""
        return await self._store.run(rebuild_queue(self._session, queue))

    async def queue_stats(self, queue: str) -> QueueStats:
        """Read a queue's figures."""
        return await self._store.run(self._session.queue_stats(queue))

    async def queues(self) -> dict[str, Queue]:
        """Read the definitions of all queues, by name."""
        return await self._store.run(self._session.queues())

    async def readers(self) -> list[ReaderState]:
        """See `Client.readers`."""
        return await self._store.run(self._session.readers())

    async def address_settings(self) -> dict[str, AddressSetting]:
        """Read all address settings, by what they match."""
        return await self._store.run(self._session.address_settings())

    async def destinations(self) -> dict[str, Destination]:
        """Read the definitions of all destinations, by name."""
        return await self._store.run(read_destinations())

    async def remove_destination(self, name: str) -> bool:
        """Forget a destination; see `Client.remove_destination`."""
        return await self._store.run(remove_destination(name))

    async def sync_states(self) -> dict[str, SyncState]:
        """How each destination of `sync_type` ``sync`` stands: whether it is waited for, and how far behind it is."""
        return await self._store.run(sync_states(self.instance))

    async def downgrade_replication(self, destination: str) -> bool:
        """Wait for a sync destination no more, until it is upgraded: what it holds back is acknowledged at once.

        From then on it may lack what publishers were told is persisted: clients must not fail over to it.

        Returns:
            Whether that changed something.

        Raises:
            DefinitionError: there is no such destination, or it is configured as async.
        """
        return await self._store.run(downgrade(destination))

    async def upgrade_replication(self, destination: str) -> bool:
        """Wait for a sync destination again that was downgraded.

        Returns:
            Whether that changed something.

        Raises:
            DefinitionError: there is no such destination, or it is configured as async.
        """
        return await self._store.run(upgrade(destination))

    async def begin_incarnation(self) -> str:
        """Begin a new incarnation of this instance; see `Client.begin_incarnation`."""
        origin = await self._store.run(new_incarnation())
        self._session.origin = origin
        self._store.route.logged_on(origin)
        await self._store.run(end_connections())
        await self._store.run(resume_recovered(self.instance))
        return origin

    async def recover_without(self, destination: str) -> Recovery | None:
        """Let a new incarnation recover without a destination; see `Client.recover_without`."""
        return await self._store.run(recover_without(self.instance, destination))

    async def views(self) -> dict[str, View]:
        """Read the definitions of all views, by name."""
        return await self._store.run(self._session.views())

    async def actions(self) -> dict[str, ActionState]:
        """Read all actions and how far they have come; see `Client.actions`."""
        return await self._store.run(actions(self.instance))

    async def failed_events(self, action: str) -> list[FailedEvent]:
        """Read the events of an action that failed; see `Client.failed_events`."""
        return await self._store.run(failed_events(self.instance, action))

    async def retry_action(self, action: str, events: Iterable[int] | int | None = None) -> int:
        """Let failed events be tried at once; see `Client.retry_action`."""
        return await self._store.run(retry_action(self.instance, action, events))

    async def drop_failed(self, action: str, events: Iterable[int] | int | None = None) -> int:
        """Forget failed events; see `Client.drop_failed`."""
        return await self._store.run(drop_failed(self.instance, action, events))

    async def topics(self) -> dict[str, dict[str, Any]]:
        """Read all topics by name; see `Client.topics`."""
        return await self._store.run(self._session.topics())

    async def trim(self, topic: str, *, age: timedelta | float | str | None = None, dry_run: bool = False) -> Trimmed:
        """Remove now what a topic's retention gives up and nobody needs; see `Client.trim`."""
        return await self._store.run(self._session.trim(topic, age, dry_run=dry_run))
