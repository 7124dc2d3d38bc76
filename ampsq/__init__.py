"""The message queues of AMPS on plain Redis or Valkey.

Names are imported when they are first used, so that ``import ampsq`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ampsq.app import App
    from ampsq.async_worker import AsyncWorker
    from ampsq.base.bookmarks import Bookmark
    from ampsq.base.errors import AmpsqError
    from ampsq.base.log_positions import StoredPosition
    from ampsq.base.message_types import MessageType
    from ampsq.base.values import Interval
    from ampsq.catalog.apply import Planned
    from ampsq.client.admin import Admin
    from ampsq.client.async_admin import AsyncAdmin
    from ampsq.client.async_client import AsyncClient
    from ampsq.client.async_publisher import AsyncPublisher
    from ampsq.client.client import Client
    from ampsq.client.handler_rules import HandlerTimeLimit, Hooks, Reject
    from ampsq.client.publisher import Publisher
    from ampsq.client.typed_handlers import InvalidMessage
    from ampsq.definitions.action import Action
    from ampsq.definitions.action_parts import Do, If, On
    from ampsq.definitions.address_setting import AddressSetting
    from ampsq.definitions.definition import Fault
    from ampsq.definitions.destination import Destination, ReplicatedTopic
    from ampsq.definitions.instance import Instance
    from ampsq.definitions.queue import Definition, GroupLocalQueue, LocalQueue, Queue, Topic, View
    from ampsq.definitions.topic import ConflatedTopic
    from ampsq.definitions.transport import Transport
    from ampsq.operations.actions import ActionState, FailedEvent
    from ampsq.operations.check.queue import CheckReport, StateDifference
    from ampsq.operations.groups import GroupState, QueueGroups
    from ampsq.operations.latencies import LatencyPercentiles, QueueLatencies
    from ampsq.operations.rebuild import Rebuilt
    from ampsq.protocol.calls.queue_stats import QueueStats
    from ampsq.protocol.reads.readers import ReaderState
    from ampsq.protocol.reads.server import Server
    from ampsq.publishing.file_store import FilePublishStore
    from ampsq.publishing.guarantee_options import FailedWrite
    from ampsq.publishing.memory_store import MemoryPublishStore, StoreEntry
    from ampsq.publishing.persistence_level import PersistedAck
    from ampsq.publishing.publishers import PublisherState
    from ampsq.publishing.receipts import AsyncDeletionReceipt, AsyncReceipt, DeletionReceipt, Receipt
    from ampsq.publishing.sync_state import SyncState
    from ampsq.queues.async_subscription import AsyncMessage, AsyncSubscription, Subscribing
    from ampsq.queues.dead_letters import DeadLetter
    from ampsq.queues.explain import Explanation
    from ampsq.queues.history import History, HistoryEvent, QueueState
    from ampsq.queues.query import SowMessage
    from ampsq.queues.redrive import Redriven, RedriveProgress
    from ampsq.queues.subscription import Message, Subscription
    from ampsq.records.async_subscription import AsyncRecordSubscription
    from ampsq.records.change import RecordChange
    from ampsq.records.subscription import RecordSubscription
    from ampsq.replication.recovery import Recovery
    from ampsq.replication.report import LinkStatus, QueueOwnership, ReplicationReport
    from ampsq.topics.async_subscription import AsyncTopicMessage, AsyncTopicSubscription
    from ampsq.topics.bookmark_store import MemoryBookmarkStore, RedisBookmarkStore, SqliteBookmarkStore
    from ampsq.topics.retention import Trimmed
    from ampsq.topics.subscription import TopicMessage, TopicSubscription
    from ampsq.topics.topic_state import TopicState
    from ampsq.transport.connection_state import ConnectionEvent, ConnectionState
    from ampsq.views.async_subscription import AsyncRowSubscription
    from ampsq.views.subscription import RowSubscription
    from ampsq.worker import Worker

__all__ = [
    "Action",
    "ActionState",
    "AddressSetting",
    "Admin",
    "AmpsqError",
    "App",
    "AsyncAdmin",
    "AsyncClient",
    "AsyncDeletionReceipt",
    "AsyncMessage",
    "AsyncPublisher",
    "AsyncReceipt",
    "AsyncRecordSubscription",
    "AsyncRowSubscription",
    "AsyncSubscription",
    "AsyncTopicMessage",
    "AsyncTopicSubscription",
    "AsyncWorker",
    "Bookmark",
    "CheckReport",
    "Client",
    "ConflatedTopic",
    "ConnectionEvent",
    "ConnectionState",
    "DeadLetter",
    "Definition",
    "DeletionReceipt",
    "Destination",
    "Do",
    "Explanation",
    "FailedEvent",
    "FailedWrite",
    "Fault",
    "FilePublishStore",
    "GroupLocalQueue",
    "GroupState",
    "HandlerTimeLimit",
    "History",
    "HistoryEvent",
    "Hooks",
    "If",
    "Instance",
    "Interval",
    "InvalidMessage",
    "LatencyPercentiles",
    "LinkStatus",
    "LocalQueue",
    "MemoryBookmarkStore",
    "MemoryPublishStore",
    "Message",
    "MessageType",
    "On",
    "PersistedAck",
    "Planned",
    "Publisher",
    "PublisherState",
    "Queue",
    "QueueGroups",
    "QueueLatencies",
    "QueueOwnership",
    "QueueState",
    "QueueStats",
    "ReaderState",
    "Rebuilt",
    "Receipt",
    "RecordChange",
    "RecordSubscription",
    "Recovery",
    "RedisBookmarkStore",
    "RedriveProgress",
    "Redriven",
    "Reject",
    "ReplicatedTopic",
    "ReplicationReport",
    "RowSubscription",
    "Server",
    "SowMessage",
    "SqliteBookmarkStore",
    "StateDifference",
    "StoreEntry",
    "StoredPosition",
    "Subscribing",
    "Subscription",
    "SyncState",
    "Topic",
    "TopicMessage",
    "TopicState",
    "TopicSubscription",
    "Transport",
    "Trimmed",
    "View",
    "Worker",
]

__version__ = "0.1.0"

#: Name -> module. The names that checkers and `*` see are written from this table: tests/house/test_exports.py --write
_HOMES = {
    "Action": "definitions.action",
    "ActionState": "operations.actions",
    "AddressSetting": "definitions.address_setting",
    "Admin": "client.admin",
    "AmpsqError": "base.errors",
    "App": "app",
    "AsyncAdmin": "client.async_admin",
    "AsyncClient": "client.async_client",
    "AsyncDeletionReceipt": "publishing.receipts",
    "AsyncMessage": "queues.async_subscription",
    "AsyncPublisher": "client.async_publisher",
    "AsyncReceipt": "publishing.receipts",
    "AsyncRecordSubscription": "records.async_subscription",
    "AsyncRowSubscription": "views.async_subscription",
    "AsyncSubscription": "queues.async_subscription",
    "AsyncTopicMessage": "topics.async_subscription",
    "AsyncTopicSubscription": "topics.async_subscription",
    "AsyncWorker": "async_worker",
    "Bookmark": "base.bookmarks",
    "CheckReport": "operations.check.queue",
    "Client": "client.client",
    "ConflatedTopic": "definitions.topic",
    "ConnectionEvent": "transport.connection_state",
    "ConnectionState": "transport.connection_state",
    "DeadLetter": "queues.dead_letters",
    "Definition": "definitions.queue",
    "DeletionReceipt": "publishing.receipts",
    "Destination": "definitions.destination",
    "Do": "definitions.action_parts",
    "Explanation": "queues.explain",
    "FailedEvent": "operations.actions",
    "FailedWrite": "publishing.guarantee_options",
    "Fault": "definitions.definition",
    "FilePublishStore": "publishing.file_store",
    "GroupLocalQueue": "definitions.queue",
    "GroupState": "operations.groups",
    "HandlerTimeLimit": "client.handler_rules",
    "History": "queues.history",
    "HistoryEvent": "queues.history",
    "Hooks": "client.handler_rules",
    "If": "definitions.action_parts",
    "Instance": "definitions.instance",
    "Interval": "base.values",
    "InvalidMessage": "client.typed_handlers",
    "LatencyPercentiles": "operations.latencies",
    "LinkStatus": "replication.report",
    "LocalQueue": "definitions.queue",
    "MemoryBookmarkStore": "topics.bookmark_store",
    "MemoryPublishStore": "publishing.memory_store",
    "Message": "queues.subscription",
    "MessageType": "base.message_types",
    "On": "definitions.action_parts",
    "PersistedAck": "publishing.persistence_level",
    "Planned": "catalog.apply",
    "Publisher": "client.publisher",
    "PublisherState": "publishing.publishers",
    "Queue": "definitions.queue",
    "QueueGroups": "operations.groups",
    "QueueLatencies": "operations.latencies",
    "QueueOwnership": "replication.report",
    "QueueState": "queues.history",
    "QueueStats": "protocol.calls.queue_stats",
    "ReaderState": "protocol.reads.readers",
    "Rebuilt": "operations.rebuild",
    "Receipt": "publishing.receipts",
    "RecordChange": "records.change",
    "RecordSubscription": "records.subscription",
    "Recovery": "replication.recovery",
    "RedisBookmarkStore": "topics.bookmark_store",
    "RedriveProgress": "queues.redrive",
    "Redriven": "queues.redrive",
    "Reject": "client.handler_rules",
    "ReplicatedTopic": "definitions.destination",
    "ReplicationReport": "replication.report",
    "RowSubscription": "views.subscription",
    "Server": "protocol.reads.server",
    "SowMessage": "queues.query",
    "SqliteBookmarkStore": "topics.bookmark_store",
    "StateDifference": "operations.check.queue",
    "StoreEntry": "publishing.memory_store",
    "StoredPosition": "base.log_positions",
    "Subscribing": "queues.async_subscription",
    "Subscription": "queues.subscription",
    "SyncState": "publishing.sync_state",
    "Topic": "definitions.queue",
    "TopicMessage": "topics.subscription",
    "TopicState": "topics.topic_state",
    "TopicSubscription": "topics.subscription",
    "Transport": "definitions.transport",
    "Trimmed": "topics.retention",
    "View": "definitions.queue",
    "Worker": "worker",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'ampsq' has no attribute {name!r}")
    return getattr(import_module(f"ampsq.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
