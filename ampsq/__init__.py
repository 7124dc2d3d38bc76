"""The message queues of AMPS on plain Redis or Valkey.

Names are imported when they are first used, so that ``import ampsq`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ampsq.base.bookmarks import Bookmark
    from ampsq.base.errors import AmpsqError
    from ampsq.base.log_positions import StoredPosition
    from ampsq.base.message_types import MessageType
    from ampsq.base.values import Interval
    from ampsq.client.admin import Admin
    from ampsq.client.async_admin import AsyncAdmin
    from ampsq.client.async_client import AsyncClient
    from ampsq.client.async_publisher import AsyncPublisher
    from ampsq.client.client import Client
    from ampsq.client.publisher import Publisher
    from ampsq.definitions.address_setting import AddressSetting
    from ampsq.definitions.definition import Fault
    from ampsq.definitions.destination import Destination, ReplicatedTopic
    from ampsq.definitions.instance import Instance
    from ampsq.definitions.queue import Action, Definition, Do, GroupLocalQueue, If, LocalQueue, On, Queue, Topic, View
    from ampsq.definitions.topic import ConflatedTopic
    from ampsq.definitions.transport import Transport
    from ampsq.protocol.reads.server import Server
    from ampsq.publishing.file_store import FilePublishStore
    from ampsq.publishing.guarantee_options import FailedWrite
    from ampsq.publishing.memory_store import MemoryPublishStore, StoreEntry
    from ampsq.publishing.persistence_level import PersistedAck
    from ampsq.publishing.receipts import AsyncDeletionReceipt, AsyncReceipt, DeletionReceipt, Receipt
    from ampsq.queues.async_subscription import AsyncSubscription, Subscribing
    from ampsq.queues.message import AsyncMessage, Message
    from ampsq.queues.query import SowMessage
    from ampsq.queues.subscription import Subscription
    from ampsq.records.change import RecordChange
    from ampsq.records.subscription import AsyncRecordSubscription, RecordSubscription
    from ampsq.topics.bookmark_store import MemoryBookmarkStore, RedisBookmarkStore, SqliteBookmarkStore
    from ampsq.topics.message import AsyncTopicMessage, TopicMessage
    from ampsq.topics.subscription import AsyncTopicSubscription, TopicSubscription
    from ampsq.transport.connection_state import ConnectionEvent, ConnectionState
    from ampsq.views.subscription import AsyncRowSubscription, RowSubscription
    from ampsq.worker import Reject, Worker

__all__ = [
    "Action",
    "AddressSetting",
    "Admin",
    "AmpsqError",
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
    "Bookmark",
    "Client",
    "ConflatedTopic",
    "ConnectionEvent",
    "ConnectionState",
    "Definition",
    "DeletionReceipt",
    "Destination",
    "Do",
    "FailedWrite",
    "Fault",
    "FilePublishStore",
    "GroupLocalQueue",
    "If",
    "Instance",
    "Interval",
    "LocalQueue",
    "MemoryBookmarkStore",
    "MemoryPublishStore",
    "Message",
    "MessageType",
    "On",
    "PersistedAck",
    "Publisher",
    "Queue",
    "Receipt",
    "RecordChange",
    "RecordSubscription",
    "RedisBookmarkStore",
    "Reject",
    "ReplicatedTopic",
    "RowSubscription",
    "Server",
    "SowMessage",
    "SqliteBookmarkStore",
    "StoreEntry",
    "StoredPosition",
    "Subscribing",
    "Subscription",
    "Topic",
    "TopicMessage",
    "TopicSubscription",
    "Transport",
    "View",
    "Worker",
]

__version__ = "0.1.0"

#: Name -> module. The names that checkers and `*` see are written from this table: tests/house/test_exports.py --write
_HOMES = {
    "Action": "definitions.queue",
    "AddressSetting": "definitions.address_setting",
    "Admin": "client.admin",
    "AmpsqError": "base.errors",
    "AsyncAdmin": "client.async_admin",
    "AsyncClient": "client.async_client",
    "AsyncDeletionReceipt": "publishing.receipts",
    "AsyncMessage": "queues.message",
    "AsyncPublisher": "client.async_publisher",
    "AsyncReceipt": "publishing.receipts",
    "AsyncRecordSubscription": "records.subscription",
    "AsyncRowSubscription": "views.subscription",
    "AsyncSubscription": "queues.async_subscription",
    "AsyncTopicMessage": "topics.message",
    "AsyncTopicSubscription": "topics.subscription",
    "Bookmark": "base.bookmarks",
    "Client": "client.client",
    "ConflatedTopic": "definitions.topic",
    "ConnectionEvent": "transport.connection_state",
    "ConnectionState": "transport.connection_state",
    "Definition": "definitions.queue",
    "DeletionReceipt": "publishing.receipts",
    "Destination": "definitions.destination",
    "Do": "definitions.queue",
    "FailedWrite": "publishing.guarantee_options",
    "Fault": "definitions.definition",
    "FilePublishStore": "publishing.file_store",
    "GroupLocalQueue": "definitions.queue",
    "If": "definitions.queue",
    "Instance": "definitions.instance",
    "Interval": "base.values",
    "LocalQueue": "definitions.queue",
    "MemoryBookmarkStore": "topics.bookmark_store",
    "MemoryPublishStore": "publishing.memory_store",
    "Message": "queues.message",
    "MessageType": "base.message_types",
    "On": "definitions.queue",
    "PersistedAck": "publishing.persistence_level",
    "Publisher": "client.publisher",
    "Queue": "definitions.queue",
    "Receipt": "publishing.receipts",
    "RecordChange": "records.change",
    "RecordSubscription": "records.subscription",
    "RedisBookmarkStore": "topics.bookmark_store",
    "Reject": "worker",
    "ReplicatedTopic": "definitions.destination",
    "RowSubscription": "views.subscription",
    "Server": "protocol.reads.server",
    "SowMessage": "queues.query",
    "SqliteBookmarkStore": "topics.bookmark_store",
    "StoreEntry": "publishing.memory_store",
    "StoredPosition": "base.log_positions",
    "Subscribing": "queues.async_subscription",
    "Subscription": "queues.subscription",
    "Topic": "definitions.queue",
    "TopicMessage": "topics.message",
    "TopicSubscription": "topics.subscription",
    "Transport": "definitions.transport",
    "View": "definitions.queue",
    "Worker": "worker",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'ampsq' has no attribute {name!r}")
    return getattr(import_module(f"ampsq.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
