"""Files for asyncio that are made from those for threads: both have the same calls, and one text says them.

python tests/house/test_twins.py --write
"""

# Long: one table: what differs in each file that is made.

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2] / "ampsq"


class Twin(NamedTuple):
    """A file, the one made from it, and what differs there.

    `words` are names and phrases that change. `awaits` are calls that are awaited. `texts` are lines that say another
    thing, for where asyncio waits in a way of its own. `without` names methods and classes that are not needed there.
    """

    source: str
    made: str
    words: dict[str, str]
    awaits: tuple[str, ...]
    texts: dict[str, str]
    without: tuple[str, ...] = ()


#: What every subscription has: a lock, a pipeline that is closed behind whoever is cancelled, and users who wait.
_OF_SUBSCRIPTIONS: dict[str, str] = {
    "import threading\n": "",
    "threading.Lock()": "asyncio.Lock()",
    "self._lock.acquire(timeout=": "await acquire(self._lock, timeout=",
    "time.sleep(": "await asyncio.sleep(",
    "-> Callable[[], None]:": "-> Callable[[], Awaitable[None]]:",
    "def __iter__": "def __aiter__",
    "Callable, Iterator\n": "AsyncIterator, Awaitable, Callable\n",
    "    def __enter__(self) -> Self:\n": "    async def __aenter__(self) -> Self:\n",
    "    def __exit__(": "    def __aexit__(",
}
#: Those that read with a pipeline of their own are closed under their lock.
_WITH_PIPELINE = {
    "from ampsq.transport.pipeline import Pipeline\n    from ampsq.transport.store import Store\n": (
        "from ampsq.transport.async_pipeline import Pipeline\n    from ampsq.transport.async_store import Store\n"
    ),
    "        finally:\n            self._end(self)\n": (
        "        except asyncio.CancelledError:\n"
        "            self.pipeline.close_behind(self._lock)\n"
        "            raise\n"
        "        finally:\n"
        "            # Also when it was cancelled.\n"
        "            self._end(self)\n"
    ),
}
_WORDS_OF_SUBSCRIPTIONS = {
    "Iterator": "AsyncIterator",
    "Pipeline": "AsyncPipeline",
    "Store": "AsyncStore",
    "Threads may share it": "Tasks may share it",
    "iterate over one, or call": "iterate over one with ``async for``, or await",
    "iterate over it, or call": "iterate over it with ``async for``, or await",
}
_AWAITED_OF_SUBSCRIPTIONS = (
    *(
        "self._store.run(",
        "store.run(",
        "self.pipeline.close(",
        "pipeline.close(",
        "self._managed.close(",
        "self.close(",
    ),
    *("self._managed.get(", "self._next(", "self._fetch(", "self._read(", "self.get("),
)


TWINS = [
    Twin(
        "client/admin.py",
        "client/async_admin.py",
        {"Admin": "AsyncAdmin", "Store": "AsyncStore", "a client": "an asyncio client"},
        ("self._store.run(", "self._store.call("),
        {"ampsq.transport.store": "ampsq.transport.async_store"},
    ),
    Twin(
        "client/partitioned_client.py",
        "client/async_partitioned_client.py",
        {
            "Admin": "AsyncAdmin",
            "Client": "AsyncClient",
            "Message": "AsyncMessage",
            "PartitionRouter": "AsyncPartitionRouter",
            "PartitionStream": "AsyncPartitionStream",
            "PartitionedAdmin": "AsyncPartitionedAdmin",
            "PartitionedClient": "AsyncPartitionedClient",
            "ManagedRecordSubscription": "AsyncManagedRecordSubscription",
            "ManagedTopicSubscription": "AsyncManagedTopicSubscription",
            "PartitionedPublisher": "AsyncPartitionedPublisher",
            "PartitionedRecordSubscription": "AsyncPartitionedRecordSubscription",
            "PartitionedSubscription": "AsyncPartitionedSubscription",
            "PartitionedTopicSubscription": "AsyncPartitionedTopicSubscription",
            "ServerPools": "AsyncServerPools",
            "Publisher": "AsyncPublisher",
            "RecordSubscription": "AsyncRecordSubscription",
            "TopicMessage": "AsyncTopicMessage",
            "TopicSubscription": "AsyncTopicSubscription",
            "Subscription": "AsyncSubscription",
            "for threads: a client of each": "for asyncio: a client of each",
        },
        (
            *("self._open_at(", "self._open(", "Client._at(", "self._finish_definitions(", "self._carry_out("),
            *("first._store.run(", "each._store.run(", "each.admin.plan(", "self._define("),
            *("self._router.choose(", "self._router.batches(", "self._router.note_made("),
            *("self.clients[number].delta_publish(", "each.sow_delete(", "connection.find_records(", "managed.close("),
            *("client._connection.follow_topics(", "self._follow_topics(", "self._follow_known("),
            *(
                "self.clients[number].publish(",
                "self.clients[each.partition].publish_many(",
                "connection.subscribe(",
                "part.close(",
            ),
            *("each.close(", "register.close(", "self.close(", "self.clients[number].ack(", "each.ack("),
            *("self._connections.close(", "managed.rest(", "self._share_connections("),
        ),
        {
            "`ampsq.client.async_partitioned_client` is made from this file.": (
                "This is `ampsq.client.partitioned_client`, awaited."
            ),
            "ampsq.transport.server_pools": "ampsq.transport.async_server_pools",
            "ampsq.client.admin": "ampsq.client.async_admin",
            "from ampsq.base.suggestions import misplaced\n": (
                "from ampsq.base.suggestions import misplaced\nfrom ampsq.base.values import shown\n"
            ),
            "from ampsq.client.partition_router import PartitionRouter\n": "",
            "from ampsq.client.partition_stream import PartitionStream\n": "",
            "        with batches.telling(), stream:\n": (
                "        async with contextlib.AsyncExitStack() as stack:\n"
                "            stack.enter_context(batches.telling())\n"
                "            await stack.enter_async_context(stream)\n"
            ),
            "stream.settle(": "await stream.settle(",
            "stream.send(": "await stream.send(",
            "from ampsq.client.partitioned_admin import PartitionedAdmin\n": "",
            "from ampsq.client.partitioned_publisher import PartitionedPublisher, parts_of\n": "",
            "from ampsq.client.partitioned_record_subscription import PartitionedRecordSubscription\n": "",
            "from ampsq.client.partitioned_subscription import PartitionedSubscription\n": "",
            "from ampsq.client.partitioned_topic_subscription import PartitionedTopicSubscription\n": "",
            "from ampsq.client.client import Client\n": (
                "from ampsq.client.async_client import Client\n"
                "from ampsq.client.async_partition_router import PartitionRouter\n"
                "from ampsq.client.async_partition_stream import PartitionStream\n"
                "from ampsq.client.async_partitioned_admin import PartitionedAdmin\n"
                "from ampsq.client.async_partitioned_publisher import PartitionedPublisher, parts_of\n"
                "from ampsq.client.async_partitioned_record_subscription import PartitionedRecordSubscription\n"
                "from ampsq.client.async_partitioned_subscription import PartitionedSubscription\n"
                "from ampsq.client.async_partitioned_topic_subscription import PartitionedTopicSubscription\n"
            ),
            "ampsq.client.publisher": "ampsq.client.async_publisher",
            "    from ampsq.queues.query import SowMessage\n"
            "    from ampsq.queues.subscription import Message, Subscription\n": (
                "    from ampsq.queues.async_subscription import Message, Subscription\n"
                "    from ampsq.queues.query import SowMessage\n"
            ),
            "ampsq.records.subscription": "ampsq.records.async_subscription",
            "ampsq.topics.subscription import": "ampsq.topics.async_subscription import",
            "from ampsq.transport.instances import whole_instance\n"
            "from ampsq.transport.async_server_pools import ServerPools\n": (
                "from ampsq.transport.async_server_pools import ServerPools\n"
                "from ampsq.transport.instances import whole_instance\n"
            ),
            '    ) -> RecordSubscription:\n        """Query': (
                '    ) -> Subscribing[RecordSubscription]:\n        """Query'
            ),
            "        return self._follow_records(topic, query, places, oof=oof, conflation=conflation)\n": (
                "        making = self._follow_records(topic, query, places, oof=oof, conflation=conflation)\n"
                '        return Subscribing(making, f"the records of {shown(topic)}")\n'
            ),
            '    ) -> TopicSubscription:\n        """Subscribe': (
                '    ) -> Subscribing[TopicSubscription]:\n        """Subscribe'
            ),
            "        return self._begin_topics(spec, filter, on_message, is_bare=is_bare)\n": (
                "        making = self._begin_topics(spec, filter, on_message, is_bare=is_bare)\n"
                "        return Subscribing(making, shown(name))\n"
            ),
            "from ampsq.queues.handlers": (
                "from ampsq.queues.async_subscription import Subscribing\nfrom ampsq.queues.handlers"
            ),
            "        kind = self._whole_publisher_type\n"
            "        return kind(name, self._router, make, keeps=guarantee is not None)._open()"
            "  # noqa: SLF001  (our own)\n": (
                "        return self._whole_publisher_type(name, self._router, make, keeps=guarantee is not None)\n"
            ),
            "Open a publisher with a name in all partitions; see `Client.publisher`.": (
                "Make a publisher with a name in all partitions; see `Client.publisher`. Open it with ``async with``."
            ),
            "self._define)\n        await self._open()\n": (
                "self._define)\n\n"
                "    def connect(self) -> Self:\n"
                '        """Open the clients of all partitions; ``async with`` does it."""\n'
                "        if not self._clients:\n"
                "            await self._open()\n"
                "        return self\n"
            ),
            "Any, Never, TypeAlias": "Any, Never, Self, TypeAlias",
            "awaits=False": "awaits=True",
            '    ) -> Subscription:\n        """Subscribe': (
                '    ) -> Subscribing[Subscription]:\n        """Subscribe'
            ),
            "return self._subscribe(name, max_backlog, filter, on_message, publishers, renew=renew)": (
                "making = self._subscribe(name, max_backlog, filter, on_message, publishers, renew=renew)\n"
                "        return Subscribing(making, shown(name))"
            ),
        },
    ),
    Twin(
        "client/partition_stream.py",
        "client/async_partition_stream.py",
        {
            "Client": "AsyncClient",
            "PartitionStream": "AsyncPartitionStream",
            "SharedPipelines": "AsyncSharedPipelines",
            "for several partitions, for threads": "for several partitions, for asyncio",
        },
        (
            *("self.settle(", "self._settle(", "self._collect(", "self._note(", "client._store.run("),
            *("sent.client._store.run(", "self._pipelines.post(", "self._pipelines.collect(", "self._pipelines.close("),
        ),
        {
            "`ampsq.client.async_partition_stream` is made from this file.": (
                "This is `ampsq.client.partition_stream`, awaited."
            ),
            "ampsq.client.client": "ampsq.client.async_client",
            "from ampsq.transport.shared_pipelines import SharedPipelines\n": (
                "from ampsq.transport.async_shared_pipelines import SharedPipelines\n"
            ),
            "def __enter__": "async def __aenter__",
            "def __exit__": "async def __aexit__",
        },
    ),
    Twin(
        "transport/shared_pipelines.py",
        "transport/async_shared_pipelines.py",
        {
            "Connection": "AsyncConnection",
            "SharedPipelines": "AsyncSharedPipelines",
            "ServerPools": "AsyncServerPools",
            "Store": "AsyncStore",
            "in flight, for threads: on": "in flight, for asyncio: on",
        },
        (
            *("store.take_connection(", "store.call(", "connection.send(", "shared.connection.read("),
            *("self._call_again(", "self._failed(", "self._drop(", "connection.drop(", "connection.release("),
        ),
        {
            "`ampsq.transport.async_shared_pipelines` is made from this file.": (
                "This is `ampsq.transport.shared_pipelines`, awaited."
            ),
            "import time\n": "import asyncio\nimport time\n",
            "time.sleep(": "await asyncio.sleep(",
            "    from ampsq.transport.route import ServerAddress\n"
            "    from ampsq.transport.store import Connection, Store\n": (
                "    from ampsq.transport.async_store import Connection, Store\n"
                "    from ampsq.transport.route import ServerAddress\n"
            ),
        },
    ),
    Twin(
        "client/partition_router.py",
        "client/async_partition_router.py",
        {
            "Client": "AsyncClient",
            "PartitionRouter": "AsyncPartitionRouter",
            "for threads: by its key": "for asyncio: by its key",
        },
        ("self.topic_key(", "each._store.run("),
        {
            "`ampsq.client.async_partition_router` is made from this file.": (
                "This is `ampsq.client.partition_router`, awaited."
            ),
            "ampsq.client.client": "ampsq.client.async_client",
        },
    ),
    Twin(
        "client/partitioned_publisher.py",
        "client/async_partitioned_publisher.py",
        {
            "Client": "AsyncClient",
            "DeletionReceipt": "AsyncDeletionReceipt",
            "PartitionRouter": "AsyncPartitionRouter",
            "PartitionedPublisher": "AsyncPartitionedPublisher",
            "Publisher": "AsyncPublisher",
            "PartitionedDeletionReceipt": "AsyncPartitionedDeletionReceipt",
            "Receipt": "AsyncReceipt",
            "for threads: one of each": "for asyncio: one of each",
        },
        (
            *("self._make(", "self._open(", "self.close(", "self._router.choose(", "self._router.batches("),
            "self._router.note_made(",
            *("parts[number].publish(", "parts[each.partition].publish_many(", "each.flush(", "each.close("),
            *("parts[number].delta_publish(", "each.sow_delete("),
        ),
        {
            "`ampsq.client.async_partitioned_publisher` is made from this file.": (
                "This is `ampsq.client.partitioned_publisher`, awaited."
            ),
            "ampsq.client.partition_router": "ampsq.client.async_partition_router",
            "from ampsq.client.publisher import Publisher\n": "",
            "from ampsq.client.partition_rules": (
                "from ampsq.client.async_publisher import Publisher\nfrom ampsq.client.partition_rules"
            ),
            "    PartitionedOutcomes,\n    Receipt,\n": "    Receipt,\n    PartitionedOutcomes,\n",
            "float | str | None = None) -> None:\n": (
                "float | str | None = None) -> None:  # noqa: ASYNC109  (as for threads)\n"
            ),
            "    def is_of(self, router": (
                "    async def __aenter__(self) -> Self:\n        return await self._open()\n\n"
                "    def is_of(self, router"
            ),
        },
    ),
    Twin(
        "client/partitioned_topic_subscription.py",
        "client/async_partitioned_topic_subscription.py",
        {
            "Client": "AsyncClient",
            "Iterator": "AsyncIterator",
            "ManagedTopicSubscription": "AsyncManagedTopicSubscription",
            "PartitionedTopicSubscription": "AsyncPartitionedTopicSubscription",
            "Threads may share it": "Tasks may share it",
            "TopicMessage": "AsyncTopicMessage",
            "TopicSubscription": "AsyncTopicSubscription",
            "for threads: one of each": "for asyncio: one of each",
            "iterate over it, or call": "iterate over it with ``async for``, or await",
            "in a thread": "in a task",
            "Whose message a thread": "Whose message a task",
        },
        (
            *("self._next(", "self._feeds.get(", "self._feeds.close(", "managed.call(", "each.flush(", "each.close("),
            "time.sleep(",
        ),
        {
            "`ampsq.client.async_partitioned_topic_subscription` is made from this file.": (
                "This is `ampsq.client.partitioned_topic_subscription`, awaited."
            ),
            "import logging\nimport threading\nimport time\n": "import asyncio\nimport logging\nimport time\n",
            "time.sleep(": "asyncio.sleep(",
            "threading.current_thread()": "asyncio.current_task()",
            "None) -> TopicMessage | None:": "None) -> TopicMessage | None:  # noqa: ASYNC109",
            "def __iter__": "def __aiter__",
            "for managed, handed in": "async for managed, handed in",
            "from ampsq.client.partition_rules import not_merged, only_for_one\n"
            "from ampsq.client.tracked_feeds import feeds_of\n": (
                "from ampsq.client.async_tracked_feeds import feeds_of\n"
                "from ampsq.client.partition_rules import not_merged, only_for_one\n"
            ),
            "ampsq.topics.subscription import": "ampsq.topics.async_subscription import",
            "        self._last: weakref": (
                "        self._task: asyncio.Task[None] | None = None\n        self._last: weakref"
            ),
            'threading.Thread(target=self._run, args=(on_message,), name="ampsq-partitions", daemon=True).start()': (
                'self._task = asyncio.create_task(self._run(on_message), name="ampsq-partitions")'
            ),
            "import Callable, Iterator, Sequence": "import AsyncIterator, Callable, Sequence",
        },
    ),
    Twin(
        "client/partitioned_record_subscription.py",
        "client/async_partitioned_record_subscription.py",
        {
            "Client": "AsyncClient",
            "Iterator": "AsyncIterator",
            "ManagedRecordSubscription": "AsyncManagedRecordSubscription",
            "PartitionedRecordSubscription": "AsyncPartitionedRecordSubscription",
            "RecordSubscription": "AsyncRecordSubscription",
            "for threads: one of each": "for asyncio: one of each",
        },
        ("self._next(", "self._feeds.get(", "self._feeds.close(", "each.close("),
        {
            "`ampsq.client.async_partitioned_record_subscription` is made from this file.": (
                "This is `ampsq.client.partitioned_record_subscription`, awaited."
            ),
            "None) -> RecordChange | None:": "None) -> RecordChange | None:  # noqa: ASYNC109",
            "def __iter__": "def __aiter__",
            "from ampsq.client.partition_rules import only_for_one\n"
            "from ampsq.client.tracked_feeds import feeds_of\n": (
                "from ampsq.client.async_tracked_feeds import feeds_of\n"
                "from ampsq.client.partition_rules import only_for_one\n"
            ),
            "ampsq.records.subscription import": "ampsq.records.async_subscription import",
            "import Callable, Iterator, Sequence": "import AsyncIterator, Callable, Sequence",
        },
    ),
    Twin(
        "client/partitioned_admin.py",
        "client/async_partitioned_admin.py",
        {
            "Admin": "AsyncAdmin",
            "Client": "AsyncClient",
            "PartitionedAdmin": "AsyncPartitionedAdmin",
            "for threads: those of each": "for asyncio: those of each",
        },
        (
            *("each.admin.plan(", "self._define(", "self._first.definitions(", "self._first.queues("),
            *("self._first.message_type(", "self._first.address_settings(", "each.admin.queue_stats("),
            *("self._first.views(", "self._first.destinations(", "self._first.sync_states("),
            *("each.admin.queue_latencies(", "each.admin.topics(", "each.admin.publishers("),
            "each.admin.rebuild(",
            *("each.admin.explain(", "each.admin.readers(", "each.admin.actions(", "each.admin.failed_events("),
            *("each.admin.retry_action(", "each.admin.drop_failed("),
            *("each.admin.check(", "self._set_paused(", "self._having(bookmark).explain("),
            *("self._having(bookmark).history(", "each.admin.release_group(", "each.admin.dead_letters("),
            *("each.admin.pause_group(", "each.admin.resume_group(", "each.admin.drop_group("),
            *("each.admin.groups(", "each.admin.trim("),
            *("self._client.clients[number].admin.dead_letters(", "self._client.clients[number].admin.redrive("),
        ),
        {
            "`ampsq.client.async_partitioned_admin` is made from this file.": (
                "This is `ampsq.client.partitioned_admin`, awaited."
            ),
            "ampsq.client.admin": "ampsq.client.async_admin",
            "ampsq.client.client": "ampsq.client.async_client",
            "Sequence[Definition]], list[tuple[Definition, Outcome]]]\n": "Sequence[Definition]], _Defined]\n",
            "    _Define = ": ("    _Defined = Coroutine[Any, Any, list[tuple[Definition, Outcome]]]\n    _Define = "),
            "import Callable, Iterable,": "import Callable, Coroutine, Iterable,",
        },
    ),
    Twin(
        "transport/server_pools.py",
        "transport/async_server_pools.py",
        {
            "redis.ConnectionPool": "redis.asyncio.ConnectionPool",
            "redis.Connection": "redis.asyncio.Connection",
            "ServerPool": "AsyncServerPool",
            "ServerPools": "AsyncServerPools",
            "that stores of threads share": "that stores of asyncio share",
        },
        ("connection.can_read(", "self.release(connection)"),
        {
            "`ampsq.transport.async_server_pools` is made from this file.": (
                "This is `ampsq.transport.server_pools`, awaited."
            ),
            "connection = self.get_connection()\n": (
                "connection = await self.get_connection()  # type: ignore[no-untyped-call]  # redis-py's own\n"
            ),
            # One event loop uses it, in one process.
            "import os\nimport select\nimport socket\n": "",
            "def _poller_of(connection: RawConnection) -> select.poll | None:\n"
            "    link: object = connection._sock  # noqa: SLF001  (redis-py has no other name for it)\n"
            "    if type(link) is not socket.socket:\n"
            "        # What comes by TLS need not be a reply.\n"
            "        return None\n"
            "    poller = select.poll()\n"
            "    poller.register(link, select.POLLIN)\n"
            "    return poller\n"
            "\n"
            "\n": "",
            # What has come, the event loop knows.
            "        poller: tells whether anything has come; None: redis-py does. Its look is a read that fails, "
            "which takes 7 us.\n": "",
            "    poller: select.poll | None\n": "",
            ", _poller_of(connection))": ")",
            "                # One that never reached the server is not known yet.\n"
            "                poller = self.known[connection].poller if connection.is_connected else None\n"
            "                is_silent = poller is not None and not poller.poll(0)\n"
            "                is_ready = connection.is_connected and (is_silent or not await connection.can_read())\n": (
                "                is_ready = connection.is_connected and not await connection.can_read()\n"
            ),
            "        if self.pid != os.getpid():\n            return None\n": "",
            "        with self._lock:\n            if not self._available_connections:\n                return None\n"
            "            connection: RawConnection = self._available_connections.pop()\n"
            "            self._in_use_connections.add(connection)\n            return connection\n": (
                "        if not self._available_connections:\n            return None\n"
                "        connection: RawConnection = self._available_connections.pop()\n"
                "        self._in_use_connections.add(connection)\n        return connection\n"
            ),
            "        with self._lock:\n"
            "            if self.pid != os.getpid() or connection not in self._in_use_connections:\n"
            "                return False\n            self._in_use_connections.remove(connection)\n"
            "            self._available_connections.append(connection)\n            return True\n": (
                "        if connection not in self._in_use_connections:\n            return False\n"
                "        self._in_use_connections.remove(connection)\n"
                "        self._available_connections.append(connection)\n        return True\n"
            ),
            "import threading\n": "import asyncio\nimport threading\n",
            "import redis\n": (
                "import redis.asyncio\nfrom redis.asyncio.retry import Retry\nfrom redis.backoff import NoBackoff\n"
            ),
            "from ampsq.transport.attempts": (
                "from ampsq.base.cancellation import run_to_end\nfrom ampsq.transport.attempts"
            ),
            "from redis.connection import Connection": "from redis.asyncio.connection import AbstractConnection",
            "pool.disconnect()": "await run_to_end(pool.disconnect())",
            "        made: ServerPool = cls.from_url(": (
                "        # How long a reply may take is said where it is read: a blocked one takes longer.\n"
                '        options |= {"socket_timeout": None, "retry": Retry(NoBackoff(), 0)}\n'
                "        made: ServerPool = cls.from_url("
            ),
            "            connection.on_connect()\n": (
                "            async with asyncio.timeout(self._heartbeat):\n"
                "                await connection.on_connect()\n"
            ),
            "connection.disconnect()": "await connection.disconnect(nowait=True)",
        },
    ),
    Twin(
        "transport/store.py",
        "transport/async_store.py",
        {
            "Connection": "AsyncConnection",
            "ConnectionPool": "AsyncConnectionPool",
            "Iterator": "AsyncIterator",
            "Pipeline": "AsyncPipeline",
            "Store": "AsyncStore",
            "ServerPool": "AsyncServerPool",
            "ServerPools": "AsyncServerPools",
            "Stores for threads": "Stores for asyncio",
            "waits for them in this thread; safe to share between threads": "waits for them; one event loop a store",
        },
        (
            *("self.call(", "self.run(", "self._step(", "self._call_aside(", "self._answer(", "other.call("),
            *("other.close(", "step.pipeline.post(", "step.pipeline.post_all(", "step.pipeline.collect("),
            *("pipeline.post(call)", "pipeline.collect()", "connection.send(", "connection.read(", "connection.drop("),
            "connection.release(",
            *("self._connections.take(", "self._connections.close(", "self.pool("),
            *("self._greet(", "pool.release(connection)", "self._pools.close("),
            *("connection.send_packed_command(", "connection.read_response("),
            *("self._read_functions(", "self._read_asked(", "self.send(", "self.read("),
            *("self.drop()", "self.pool.take_back(", "pool.lend("),
        ),
        {
            "`ampsq.transport.async_store` is made from this file and differs": (
                "This differs from `ampsq.transport.store`"
            ),
            "        self._is_lent = False\n": (
                "        self._is_lent = False\n"
                "        # The one that its connections belong to, from its first call on.\n"
                "        self._loop: asyncio.AbstractEventLoop | None = None\n"
            ),
            '        """Drive a flow to its end."""\n': (
                '        """Drive a flow to its end; raises `Closed` in another event loop than before, whose '
                'connections it has."""\n'
                "        if self._loop is not (loop := asyncio.get_running_loop()):\n"
                "            self._belong_to(loop, flow)\n"
            ),
            "    def _step(self, step: Step)": (
                "    def _belong_to(self, loop: asyncio.AbstractEventLoop, flow: Flow[object]) -> None:\n"
                "        if self._loop is not None:\n"
                "            flow.close()\n"
                "            raise Closed(\n"
                '                "this client was opened in another event loop, as that of an earlier asyncio.run(); '
                'allowed: a client "\n'
                '                "for each event loop, as in `async with AsyncClient(...) as client`"\n'
                "            )\n"
                "        self._loop = loop\n\n"
                "    def _step(self, step: Step)"
            ),
            'the next call makes another one."""\n': 'the next call makes another one."""\n        self._loop = None\n',
            "        if not self._is_lent:\n": (
                "        # Connections of a loop that is closed end with it.\n"
                "        if not self._is_lent and self._loop in (None, asyncio.get_running_loop()):\n"
            ),
            "import contextlib\nimport copy\n": "import asyncio\nimport contextlib\nimport copy\n",
            "import redis\n": ("import redis\nimport redis.asyncio\n"),
            "from ampsq.transport.server_pools import ServerPools\n": "",
            "    from ampsq.transport.server_pools import ServerPool\n": "",
            "    from ampsq.transport.known_functions": (
                "    from ampsq.transport.async_server_pools import ServerPool\n"
                "    from ampsq.transport.known_functions"
            ),
            "from ampsq.base.errors": "from ampsq.base.cancellation import run_to_end\nfrom ampsq.base.errors",
            "from ampsq.transport.pipeline import PinnedPipeline, Pipeline\n": "",
            "from ampsq.transport.attempts": (
                "from ampsq.transport.async_pipeline import AsyncPipeline\n"
                "from ampsq.transport.async_server_pools import ServerPools\nfrom ampsq.transport.attempts"
            ),
            "Callable, Iterable, Iterator, Sequence": "AsyncIterator, Callable, Iterable, Sequence",
            "time.sleep(": "await asyncio.sleep(",
            "self._revive()": "await asyncio.to_thread(self._revive)",
            # The runner is asyncio's, and so is what its flows hand to it.
            "step.pipeline.post(step.call)\n": (
                "step.pipeline.post(step.call)  # type: ignore[misc]  # it is asyncio's\n"
            ),
            "step.pipeline.post_all((step.call, step.behind))\n": (
                "step.pipeline.post_all((step.call, step.behind))  # type: ignore[misc]  # it is asyncio's\n"
            ),
            "step.pipeline.collect()\n": "step.pipeline.collect()  # type: ignore[misc]  # see above\n",
            "from redis.connection import Connection": "from redis.asyncio.connection import AbstractConnection",
            "with self.pipeline()": "async with self.pipeline()",
            "server = self.route.find() if current is None else current": (
                "if current is None and not self.route.is_direct:\n"
                "                # Sentinels and cluster nodes are asked in a thread: who asks them waits.\n"
                "                current = await asyncio.to_thread(self.route.find)\n"
                "            server = self.route.find() if current is None else current"
            ),
            "former.disconnect(inuse_connections=False)": (
                "await run_to_end(former.disconnect(inuse_connections=False))"
            ),
            "            self._check(server, connection)\n": (
                "            async with asyncio.timeout(self.route.heartbeat):\n"
                "                await self._check(server, connection)\n"
            ),
            "connection.disconnect()": "await connection.disconnect(nowait=True)",
            "        self.raw.send_packed_command(": (
                "        async with asyncio.timeout(self.owner.route.heartbeat):\n"
                "            await self.raw.send_packed_command("
            ),
            "        seconds = self.owner.route.heartbeat + blocks\n": "",
            "            if blocks and not self.raw.can_read(timeout=seconds):\n"
            '                raise redis.TimeoutError(f"no answer within {seconds:g} s")\n': "",
            "        link = self.raw._sock  # noqa: SLF001\n        if link is not None:\n": (
                "        writer = self.raw._writer  # noqa: SLF001\n        if writer is not None:\n"
            ),
            "                # Not as one with TLS has it, which would be changed under who reads it.\n"
            "                socket.socket.shutdown(link, socket.SHUT_RDWR)\n": (
                '                writer.get_extra_info("socket").shutdown(socket.SHUT_RDWR)\n'
            ),
            "            return self.raw.read_response()\n": (
                "            async with asyncio.timeout(self.owner.route.heartbeat + blocks):\n"
                "                return await self.raw.read_response()\n"
            ),
            "            reply: object = self.raw.read_response()\n": (
                "            async with asyncio.timeout(self.owner.route.heartbeat):\n"
                "                reply: object = await self.raw.read_response()\n"
            ),
            "self.raw.disconnect()": "await self.raw.disconnect(nowait=True)",
        },
        ("redis", "pinned", "ask", "is_readable"),
    ),
    Twin(
        "topics/subscription.py",
        "topics/async_subscription.py",
        {
            **_WORDS_OF_SUBSCRIPTIONS,
            "Client.subscribe_topic": "AsyncClient.subscribe_topic",
            "ManagedTopicSubscription": "AsyncManagedTopicSubscription",
            "TopicMessage": "AsyncTopicMessage",
            "TopicSubscription": "AsyncTopicSubscription",
            "in a thread": "in a task",
            "threads never get": "tasks never get",
        },
        (
            *_AWAITED_OF_SUBSCRIPTIONS,
            *("self._attend(", "self._attend_aside(", "self._step(", "self._save(", "self.flush(", "self.call("),
            *("self._managed.acknowledge(", "self._managed.flush(", "self._reading.run("),
        ),
        {
            **_OF_SUBSCRIPTIONS,
            **_WITH_PIPELINE,
            "a `TopicSubscription`": "an `TopicSubscription`",
            "None) -> TopicMessage | None:": "None) -> TopicMessage | None:  # noqa: ASYNC109",
            "the next message.\n\n": "the next message. Cancelling it loses no message.\n\n",
            "import logging\n": "import asyncio\nimport logging\n",
            "import MOVING, STEP, ": "import MOVING, STEP, acquire, ",
            "from ampsq.topics.message": "from ampsq.queues.handlers import call_handler\nfrom ampsq.topics.message",
            "threading.current_thread()": "asyncio.current_task()",
            "threading.Thread | None": "asyncio.Task[object] | None",
            "with self._lock": "async with self._lock",
            "with self._saving:": "async with self._saving:",
            "for handed in": "async for handed in",
            "        self._is_moving = False\n\n    def __repr__": (
                "        self._is_moving = False\n"
                "        self._task: asyncio.Task[None] | None = None\n\n    def __repr__"
            ),
            "threading.Thread(target=self._run, args=(on_message,)": (
                "self._task = asyncio.create_task(self._run(on_message)"
            ),
            ", daemon=True).start()": ")",
            "            on_message(message)\n": "            await call_handler(on_message, message)\n",
            "            return lambda: None\n": "            return partial(asyncio.sleep, 0)\n",
        },
        without=("refuse_in_child",),
    ),
    Twin(
        "client/publisher.py",
        "client/async_publisher.py",
        {
            "Client": "AsyncClient",
            "DeletionReceipt": "AsyncDeletionReceipt",
            "Publisher": "AsyncPublisher",
            "Receipt": "AsyncReceipt",
            "Store": "AsyncStore",
            "ManagedSubscription": "AsyncManagedSubscription",
            "Threads that": "Tasks that",
        },
        (
            *("store.run(", "parts.store.run(", "core.parts.store.run("),
            *("self._publish(", "subscription.flush()", "self.close()"),
        ),
        {
            "with a name: it numbers messages, keeps": "with a name, awaited: it numbers messages, keeps",
            "leave it with ``with``, or close it. Threads may share it.": (
                "enter it with ``async with``, or await and close it."
            ),
            "import threading\n": "import asyncio\nfrom functools import partial\n",
            "ampsq.queues.subscription": "ampsq.queues.async_subscription",
            "ampsq.transport.store": "ampsq.transport.async_store",
            "import Callable, Iterable": "import Callable, Generator, Iterable",
            "from ampsq.base.partitions": "from ampsq.base.cancellation import run_to_end\nfrom ampsq.base.partitions",
            "threading.RLock()": "asyncio.Lock()",
            "with self._lock": "async with self._lock",
            "for answer in": "async for answer in",
            # A store may wait, for room or for a disk: then a thread does so.
            "guaranteed.publish(topic, [body], envelope, sequence, delta=delta)": (
                "await self._take(partial(guaranteed.publish, topic, [body], envelope, sequence, delta=delta))"
            ),
            "guaranteed.publish(topic, bodies, envelope)": (
                "await self._take(partial(guaranteed.publish, topic, bodies, envelope))"
            ),
            'guaranteed.take(1, "sow_delete", each)': (
                'await self._take(partial(guaranteed.take, 1, "sow_delete", each))'
            ),
            "    def publish_many(\n": (
                "    async def _take(self, take: Callable[[], int]) -> int:\n"
                '        """Let the store take something in the order of the calls, without holding up the loop."""\n'
                "        async with self._lock:\n"
                "            if self._core.guaranteed is None or self._core.guaranteed.may_wait:\n"
                "                return await asyncio.to_thread(take)\n"
                "            return take()\n\n"
                "    def publish_many(\n"
            ),
            "float | str | None = None) -> None:\n": (
                "float | str | None = None) -> None:  # noqa: ASYNC109  (as for threads)\n"
            ),
            "core.guaranteed.flush(seconds)": "await asyncio.to_thread(core.guaranteed.flush, seconds)",
            "self._core.close()": "await run_to_end(asyncio.to_thread(self._core.close))",
            "    def __enter__(self) -> Self:\n": (
                "    def __await__(self) -> Generator[Any, Any, Self]:\n"
                "        return self.__aenter__().__await__()\n\n"
                "    def __aenter__(self) -> Self:\n"
                "        try:\n"
                "            # Opened by a thread that nobody can cancel, it is there to be closed.\n"
                "            await run_to_end(asyncio.to_thread(self._core.open))\n"
                "        except asyncio.CancelledError:\n"
                "            await self.close()\n"
                "            raise\n"
            ),
            "def __exit__": "def __aexit__",
        },
    ),
    Twin(
        "transport/pipeline.py",
        "transport/async_pipeline.py",
        {
            "CallRunner": "AsyncCallRunner",
            "LentConnection": "AsyncLentConnection",
            "Pipeline": "AsyncPipeline",
            "Pipelines for threads": "Pipelines for asyncio",
        },
        (
            *("self._post_refused(", "self._send_again(", "self._has_run_ahead(", "self._run(", "self._failed("),
            *("self._abandon(", "self.close(", "self.post(", "self._store.call(", "self._store.take_connection("),
            *("self._connection.send(", "self._connection.read(", "connection.read(", "connection.drop("),
            *("connection.release(", "connection.send("),
        ),
        {
            "`ampsq.transport.async_pipeline` is made from this file.": (
                "This is `ampsq.transport.pipeline` but for how it waits."
            ),
            "from collections import deque\n": "import asyncio\nfrom collections import deque\n",
            "from ampsq.protocol.reads.server import load_script\n": "",
            '__all__ = ["PinnedPipeline", "Pipeline"]': '__all__ = ["AsyncPipeline"]',
            "LentConnection | None = None\n": (
                "LentConnection | None = None\n"
                "        # Kept, or nobody would: an event loop forgets tasks.\n"
                "        self._closing: asyncio.Task[None] | None = None\n"
            ),
            "    def __enter__": (
                "    def close_behind(self, lock: asyncio.Lock) -> None:\n"
                '        """Close it, for who was cancelled, once the task that uses it has given the lock back."""\n'
                "        self._closing = asyncio.create_task(self._close_under(lock))\n\n"
                "    async def _close_under(self, lock: asyncio.Lock) -> None:\n"
                "        async with lock:\n"
                "            await self.close()\n\n"
                "    async def __aenter__"
            ),
            "def __exit__": "def __aexit__",
        },
        ("PinnedPipeline",),
    ),
    Twin(
        "records/subscription.py",
        "records/async_subscription.py",
        {
            **_WORDS_OF_SUBSCRIPTIONS,
            "Client.sow_and_subscribe": "AsyncClient.sow_and_subscribe",
            "ManagedRecordSubscription": "AsyncManagedRecordSubscription",
            "RecordSubscription": "AsyncRecordSubscription",
        },
        (*_AWAITED_OF_SUBSCRIPTIONS, "self._reading.run("),
        {
            **_OF_SUBSCRIPTIONS,
            **_WITH_PIPELINE,
            "import contextlib\n": "import asyncio\nimport contextlib\n",
            "import MOVING, STEP, ": "import MOVING, STEP, acquire, ",
            "with self._lock": "async with self._lock",
            "None) -> RecordChange | None:": "None) -> RecordChange | None:  # noqa: ASYNC109",
        },
    ),
    Twin(
        "views/subscription.py",
        "views/async_subscription.py",
        {
            **_WORDS_OF_SUBSCRIPTIONS,
            "Client.aggregate": "AsyncClient.aggregate",
            "ManagedRowSubscription": "AsyncManagedRowSubscription",
            "RowSubscription": "AsyncRowSubscription",
        },
        _AWAITED_OF_SUBSCRIPTIONS,
        {
            **_OF_SUBSCRIPTIONS,
            "ampsq.transport.store": "ampsq.transport.async_store",
            "import threading\n": "import asyncio\n",
            "import MOVING, STEP, ": "import MOVING, STEP, acquire, ",
            "with self._lock": "async with self._lock",
            "None) -> dict[str, Any] | None:": "None) -> dict[str, Any] | None:  # noqa: ASYNC109",
            "    def close(": "    async def close(",
        },
    ),
]


#: What makes a method a coroutine.
_AWAITS = re.compile(r"(?m)\bawait |^ +async (for|with) ")


def made(twin: Twin, text: str) -> str:
    """Return the text for asyncio; a method that awaits is an `async def`."""
    for call in twin.awaits:
        text = re.sub(rf"(?<![\w.]){re.escape(call)}", f"await {call}", text)
    for line, other in twin.texts.items():
        assert line in text, f"{twin.source} has no {line!r} any more"
        text = text.replace(line, other)
    for word, other in twin.words.items():
        text = re.sub(rf"(?<![\w.]){re.escape(word)}\b", other, text)
    for name in twin.without:
        text = re.sub(rf"(?ms)^class {name}\b.*?(?=^class |^@|\Z)", "", text)
    parts = re.split(r"(?m)^(?=    @|(?<!    @property\n)(?<!    @staticmethod\n)    (?:async )?def |@|class )", text)
    kept = [part for part in parts if not any(re.search(rf"(?m)^    def {name}\(", part) for name in twin.without)]
    text = "".join(re.sub(r"(?m)^    def ", "    async def ", each) if _AWAITS.search(each) else each for each in kept)
    head, quotes, rest = text.partition('"""\n\n')
    return f"{head}{quotes}# Made from {twin.source} by tests/house/test_twins.py --write.\n\n{rest.rstrip()}\n"


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.made)
def test_the_file_for_asyncio_is_what_the_one_for_threads_makes(twin):
    assert (ROOT / twin.made).read_text() == made(twin, (ROOT / twin.source).read_text())


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    for each in TWINS:
        (ROOT / each.made).write_text(made(each, (ROOT / each.source).read_text()))
