"""Session of a client: all that it knows and does apart from its subscriptions, as flows for both kinds of client."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import socket
from typing import TYPE_CHECKING, Final, Unpack

from ampsq.base.errors import (
    AmpsqError,
    DefinitionError,
    SlotKeyTaken,
    UnknownQueue,
)
from ampsq.base.values import check_text, list_of, parse_name
from ampsq.catalog.suggestions import with_suggestions
from ampsq.protocol.calls import actions as action_calls
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.calls import definitions as define_calls
from ampsq.protocol.context import InstanceContext
from ampsq.protocol.limits import BATCH
from ampsq.protocol.reads import instance as instance_reads
from ampsq.protocol.reads import partitions as partition_reads
from ampsq.protocol.reads.instances import list_instance
from ampsq.protocol.reads.origin import next_incarnation
from ampsq.protocol.reads.server import Server, examine
from ampsq.publishing.plain import PlainPublisher, TopicTypes
from ampsq.queues.returns import checked_reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime, timedelta

    from ampsq.base.bookmarks import Bookmark
    from ampsq.base.partitions import Partition
    from ampsq.catalog.apply import Outcome, Planned
    from ampsq.catalog.partitioned import Intent
    from ampsq.definitions.address_setting import AddressSetting
    from ampsq.definitions.queue import Definition, Queue, View
    from ampsq.protocol.calls.queue_stats import QueueStats
    from ampsq.protocol.reads.readers import ReaderState
    from ampsq.publishing.settlements import SettlementKeeper
    from ampsq.queues.dead_letters import DeadLetter
    from ampsq.queues.query import Query, QueryResult
    from ampsq.queues.redrive import Redriven, RedriveWishes
    from ampsq.records.follow import RecordSubscriptionCore
    from ampsq.topics.retention import Trimmed
    from ampsq.topics.topic_state import TopicState
    from ampsq.views.upkeep import Follower

__all__ = ["Session"]

#: Scripts count with 53 bits.
_LAST_SEQUENCE: Final = 2**53 - 2 * BATCH


class Session:
    """A client's identity, how it publishes without a name, and what it knows of the server.

    Args:
        instance: the instance's name.
        former: of the same client, at another instance.
        instances: the names of all instances where the client may work.
        partition: which partition the instance is, for a client that opens them all.
    """

    def __init__(
        self,
        instance: str,
        former: Session | None = None,
        instances: Sequence[str] = (),
        partition: Partition | None = None,
    ) -> None:
        self.instance = parse_name(instance)
        made = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self.client: str = former.client if former is not None else made
        self.origin: str = ""
        self.server: Server | None = None
        #: An ID that the server has confirmed, so that a server that lost it is noticed.
        self.confirmed_id = ""
        #: Whether its coming was told to actions, so that its leaving is to be seen.
        self.has_listeners = False
        self.instances = tuple(instances) or (self.instance,)
        self._partition, self._partition_text = partition, ""
        # Names that are used at one instance are not used anew at another one.
        requests = former._requests if former is not None else itertools.count(1)  # noqa: SLF001  (our own)
        self._requests: itertools.count[int] = requests
        self._catalog = catalog_calls.KnownCatalog()
        self.types = TopicTypes(self.instance)
        self.plain = PlainPublisher(self)

    @property
    def partition(self) -> int | None:
        """The number of the partition that the instance is, for a client that opens them all; else None."""
        return self._partition.number if self._partition is not None else None

    def request(self) -> str:
        """A name for one request that may be repeated."""
        return f"{self.client}/{next(self._requests)}"

    async def connect(self) -> None:
        """Check the server and make the instance ready.

        Raises:
            ServerUnsuitable: the server is too old or would lose messages. FormatMismatch: the instance was written by
                an incompatible version. SlotKeyTaken: somebody made a key that must not be there. Unavailable: there is
                no server.
        """
        self.server = await examine(self.instance)
        if self._partition is not None:
            if self._partition.is_register:
                # An instance is never opened there.
                await partition_reads.claim_partitions(self.instance, self._partition.total)
                return
            await partition_reads.claim_partition(self._partition)
        # One that is there is only looked at: a server with a full disk still allows that.
        state = await instance_reads.instance_state(self.instance)
        if state.partitions:
            raise DefinitionError(
                f"instance {self.instance!r} has {state.partitions} partitions, which hold what it has; allowed: "
                f"partitions={state.partitions} beside the address, or ?partitions={state.partitions} in it"
            )
        if not state.has_format:
            await catalog_calls.open_instance(self.instance, next_incarnation())
            state = await instance_reads.instance_state(self.instance)
        elif await instance_reads.is_slot_key_taken(self.instance):
            raise SlotKeyTaken(key=instance_reads.slot_key(self.instance))
        self.origin, self.has_listeners = state.origin, state.has_listeners
        self._partition_text = state.partition
        await list_instance(self.instance)
        if self.has_listeners:
            await action_calls.emit_event("connect", self.client)

    async def announce_disconnect(self) -> None:
        """Tell the actions that ask for it that this client goes, as far as there is still somebody to tell."""
        with contextlib.suppress(AmpsqError):
            await action_calls.emit_event("disconnect", self.client)

    # -- definitions

    async def apply(self, definitions: Iterable[Definition]) -> list[tuple[Definition, Outcome]]:
        """Define topics, queues, views and actions; see `Client.apply`."""
        from ampsq.catalog.apply import apply
        from ampsq.operations.rebuild import move_queues

        wanted = list(definitions)
        self._check_alone()
        server = await self._server()
        await move_queues(self, wanted, server, self._catalog)
        return await apply(wanted, server, self._catalog)

    async def remove(self, definitions: Iterable[Definition]) -> None:
        """Remove definitions; see `Admin.remove`."""
        from ampsq.catalog.remove import remove

        self._check_alone()
        await remove(list(definitions))

    def _check_alone(self) -> None:
        """Refuse to define something in one partition, which would differ from the others."""
        if self._partition_text:
            name, number, count, _ = self._partition_text.split(" ")
            raise DefinitionError(
                f"instance {self.instance!r} is partition {number} of the {count} of {name!r}, which all have the same "
                f"definitions; allowed: instance={name!r} with partitions={count}"
            )

    async def make_so(self, intent: Intent) -> list[tuple[Definition, Outcome]]:
        """Make a version of the definitions of all partitions so in this one."""
        from ampsq.catalog.partitioned import make_so
        from ampsq.operations.rebuild import move_queues

        server = await self._server()
        await define_calls.note_definitions(intent.version)
        await move_queues(self, intent.definitions, server, self._catalog)
        return await make_so(intent, self.instance, server, self._catalog)

    async def plan(self, definitions: Iterable[Definition], removing: Iterable[Definition]) -> list[Planned]:
        """Say what `apply` would do; see `Admin.plan`."""
        from ampsq.catalog.apply import plan
        from ampsq.catalog.remove import check_removal

        wanted, removed = list(definitions), list_of("removing", removing, "[Queue(name='work')]")
        planned = await plan(wanted, (await self._server()))
        if removed:
            await check_removal(wanted, removed)
        return planned

    async def _server(self) -> Server | None:
        """The server as it was at connect, or looked at again where a coordinator may have noted more of it."""
        if self.server is not None and self.server.appends and not self.server.appendfsync:
            self.server = await examine(self.instance)
        return self.server

    @with_suggestions("queue")
    async def pause(self, queue: str, *, paused: bool) -> bool:
        """Have a queue deliver, or not; see `Admin.pause_queue`."""
        from ampsq.definitions.queue import Queue

        check_text("queue", queue)
        catalog = await catalog_calls.catalog()
        if queue not in catalog.queues:
            raise UnknownQueue(queue=queue)
        defined = Queue.from_json(catalog.queues[queue])
        wanted = type(defined)(**{**defined.elements(), "name": queue, "paused": paused})
        outcomes = await self.apply([wanted])
        return any(outcome != "unchanged" for _, outcome in outcomes)

    # -- settling and looking

    @with_suggestions("queue")
    async def ack(
        self,
        queue: str,
        bookmarks: Iterable[Bookmark | str] | str | None,
        option: str,
        filter: str | None = None,  # noqa: A002  (AMPS's word)
        *,
        reason: str | None = None,
        dry_run: bool = False,
        keeper: SettlementKeeper | None = None,
    ) -> int:
        """Settle messages by bookmark or filter; see `Client.ack`. `keeper` keeps those until they are answered."""
        from ampsq.queues.acknowledge_by_bookmark import settle_named
        from ampsq.queues.browse import ack_matching

        why = checked_reason(reason)
        check_text("queue", queue)
        if isinstance(bookmarks, str):
            bookmarks = [bookmarks]
        if (bookmarks is None) == (filter is None):
            raise DefinitionError("ack needs bookmarks or a filter, one of them")
        if keeper is not None and (filter is not None or option == "cancel"):
            raise DefinitionError(
                "publisher: allowed with bookmarks and option='ack' or 'expire'; a filter that is asked again may mean "
                "other messages, and a cancel another lease"
            )
        if filter is not None:
            return await ack_matching(self.context, queue, filter, option, reason=why, dry_run=dry_run)
        if dry_run:
            raise DefinitionError("dry_run=True counts what a filter matches; allowed with filter")
        settlements = keeper.settlements if keeper is not None else None
        return await settle_named(self.origin, queue, _listed(bookmarks or ()), option, why, settlements)

    @property
    def context(self) -> InstanceContext:
        """Location of messages, for walks and queries."""
        return InstanceContext(self.instance, self.origin)

    @with_suggestions("queue", "view")
    async def sow(
        self, name: str, query: Query, keys: Iterable[object] | None, bookmark: Bookmark | str | datetime | None
    ) -> QueryResult:
        """Query a topic's records, a queue or a view; see `Client.sow`."""
        from ampsq.records.sow import sow

        return await sow(self.context, name, query, keys, bookmark)

    def follow_records(
        self,
        topic: str,
        query: Query,
        *,
        oof: bool,
        conflation: timedelta | float | str | None,
        bookmark: Bookmark | str | datetime | None,
    ) -> RecordSubscriptionCore:
        """A query of a topic's records and of what changes them, not begun yet; see `Client.sow_and_subscribe`."""
        from ampsq.records.follow import RecordSubscriptionCore

        return RecordSubscriptionCore(
            self.context,
            topic,
            query,
            oof=oof,
            name=self.request(),
            conflation=conflation,
            bookmark=bookmark,
            may_move=len(self.instances) > 1,
        )

    @with_suggestions("queue")
    async def dead_letters(
        self,
        queue: str,
        filter: str | None,  # noqa: A002  (AMPS's word)
        *,
        source: str | None,
        reason: str | None,
        top_n: int | None,
        bookmarks: Iterable[Bookmark | str] | str | None,
    ) -> list[DeadLetter]:
        """Look at dead letters; see `Admin.dead_letters`."""
        from ampsq.queues.dead_letters import dead_letter_filter, dead_letters_by_bookmark, read_dead_letters

        if bookmarks is not None:
            if (filter, source, reason, top_n) != (None, None, None, None):
                raise DefinitionError("bookmarks say which letters; filter, source, reason and top_n go without them")
            return await dead_letters_by_bookmark(self.context, queue, _listed(bookmarks))
        return await read_dead_letters(self.context, queue, dead_letter_filter(filter, source, reason), top_n)

    @with_suggestions("queue")
    async def redrive(
        self, queue: str, *, bookmarks: Iterable[Bookmark | str] | str | None, **wishes: Unpack[RedriveWishes]
    ) -> Redriven:
        """Put dead letters back; see `Admin.redrive`."""
        from ampsq.queues.redrive import RedriveRequest, redrive

        named = None if bookmarks is None else _listed(bookmarks)
        return await redrive(self.context, RedriveRequest(queue, self.request(), bookmarks=named, **wishes))

    @with_suggestions("queue", "topic")
    async def aggregate(
        self,
        name: str,
        projection: Sequence[str],
        grouping: Sequence[str],
        filter: str | None,  # noqa: A002
    ) -> Follower:
        """Begin to follow an aggregate; see `Client.aggregate`."""
        from ampsq.views.upkeep import aggregated, follow

        return await follow(self.context, aggregated(name, projection, grouping, filter))

    @with_suggestions("queue")
    async def queue_stats(self, queue: str) -> QueueStats:
        """Read a queue's figures."""
        from ampsq.protocol.calls import queue_stats as stats_calls
        from ampsq.protocol.calls.queue_stats import QueueStats

        figures = await stats_calls.stats(queue)
        return QueueStats(queue, figures)

    async def views(self) -> dict[str, View]:
        """Read the definitions of all views."""
        from ampsq.definitions.queue import View

        catalog = await catalog_calls.catalog()
        return {name: View.from_json(text) for name, text in sorted(catalog.views.items())}

    async def readers(self) -> list[ReaderState]:
        """See `Admin.readers`."""
        from ampsq.protocol.reads.readers import read_readers

        return await read_readers(self.instance)

    async def address_settings(self) -> dict[str, AddressSetting]:
        """Read all address settings."""
        from ampsq.catalog.definition_checks import settings_of

        catalog = await catalog_calls.catalog()
        return {setting.match: setting for setting in sorted(settings_of(catalog), key=lambda each: each.match)}

    async def queues(self) -> dict[str, Queue]:
        """Read the definitions of all queues."""
        from ampsq.definitions.queue import Queue

        catalog = await catalog_calls.catalog()
        return {name: Queue.from_json(text) for name, text in sorted(catalog.queues.items())}

    async def topics(self) -> dict[str, TopicState]:
        """Read all topics; see `Admin.topics`."""
        from ampsq.topics.topic_state import read_topics

        return await read_topics(self.instance, self.origin)

    async def trim(self, topic: str, age: timedelta | float | str | None, *, dry_run: bool) -> Trimmed:
        """Remove what a topic's retention gives up; see `Admin.trim`."""
        from ampsq.topics.retention import trim

        return await trim(self.instance, topic, age, dry_run=dry_run)


def _listed(bookmarks: Iterable[Bookmark | str] | str) -> list[Bookmark | str]:
    return [bookmarks] if isinstance(bookmarks, str) else list_of("bookmarks", bookmarks, "['orders~...~1-0']")
