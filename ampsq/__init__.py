"""The message queues of AMPS on plain Redis or Valkey.

Names are imported when they are first used, so that ``import ampsq`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ampsq.aio import AsyncClient
    from ampsq.client import Client
    from ampsq.connections.connection_state import ConnectionEvent, ConnectionState
    from ampsq.definitions.address_setting import AddressSetting
    from ampsq.definitions.conflated_topic import ConflatedTopic
    from ampsq.definitions.destination import Destination, ReplicatedTopic
    from ampsq.definitions.instance import Instance
    from ampsq.errors import AmpsqError
    from ampsq.models import Action, Do, GroupLocalQueue, If, LocalQueue, On, Queue, Topic, View
    from ampsq.publishing.file_publish_store import FilePublishStore
    from ampsq.publishing.guarantee import FailedWrite
    from ampsq.publishing.persisted import PersistedAck
    from ampsq.publishing.publish_store import MemoryPublishStore
    from ampsq.records.record_following import RecordChange
    from ampsq.records.record_subscription import AsyncRecordSubscription, RecordSubscription
    from ampsq.subscriptions.async_subscription import AsyncSubscription
    from ampsq.subscriptions.delivery import AsyncMessage, Message
    from ampsq.subscriptions.sync_subscription import Subscription
    from ampsq.topics.bookmark_store import MemoryBookmarkStore, RedisBookmarkStore, SqliteBookmarkStore
    from ampsq.topics.topic_message import AsyncTopicMessage, TopicMessage
    from ampsq.topics.topic_subscription import AsyncTopicSubscription, TopicSubscription
    from ampsq.values import Bookmark, Interval
    from ampsq.worker import Reject, Worker

__all__ = [
    "Action",
    "AddressSetting",
    "AmpsqError",
    "AsyncClient",
    "AsyncMessage",
    "AsyncRecordSubscription",
    "AsyncSubscription",
    "AsyncTopicMessage",
    "AsyncTopicSubscription",
    "Bookmark",
    "Client",
    "ConflatedTopic",
    "ConnectionEvent",
    "ConnectionState",
    "Destination",
    "Do",
    "FailedWrite",
    "FilePublishStore",
    "GroupLocalQueue",
    "If",
    "Instance",
    "Interval",
    "LocalQueue",
    "MemoryBookmarkStore",
    "MemoryPublishStore",
    "Message",
    "On",
    "PersistedAck",
    "Queue",
    "RecordChange",
    "RecordSubscription",
    "RedisBookmarkStore",
    "Reject",
    "ReplicatedTopic",
    "SqliteBookmarkStore",
    "Subscription",
    "Topic",
    "TopicMessage",
    "TopicSubscription",
    "Transport",
    "View",
    "Worker",
]

__version__ = "0.1.0"

_HOMES = {
    "Action": "models",
    "AddressSetting": "definitions.address_setting",
    "ConflatedTopic": "definitions.conflated_topic",
    "AmpsqError": "errors",
    "AsyncClient": "aio",
    "AsyncMessage": "subscriptions.delivery",
    "AsyncRecordSubscription": "records.record_subscription",
    "AsyncSubscription": "subscriptions.async_subscription",
    "AsyncTopicMessage": "topics.topic_message",
    "AsyncTopicSubscription": "topics.topic_subscription",
    "Bookmark": "values",
    "Client": "client",
    "ConnectionEvent": "connections.connection_state",
    "ConnectionState": "connections.connection_state",
    "Destination": "definitions.destination",
    "Do": "models",
    "FailedWrite": "publishing.guarantee",
    "FilePublishStore": "publishing.file_publish_store",
    "GroupLocalQueue": "models",
    "If": "models",
    "Instance": "definitions.instance",
    "Interval": "values",
    "LocalQueue": "models",
    "MemoryPublishStore": "publishing.publish_store",
    "MemoryBookmarkStore": "topics.bookmark_store",
    "Message": "subscriptions.delivery",
    "On": "models",
    "PersistedAck": "publishing.persisted",
    "Queue": "models",
    "RecordChange": "records.record_following",
    "RecordSubscription": "records.record_subscription",
    "RedisBookmarkStore": "topics.bookmark_store",
    "Reject": "worker",
    "ReplicatedTopic": "definitions.destination",
    "SqliteBookmarkStore": "topics.bookmark_store",
    "Subscription": "subscriptions.sync_subscription",
    "Topic": "models",
    "TopicMessage": "topics.topic_message",
    "TopicSubscription": "topics.topic_subscription",
    "Transport": "definitions.transport",
    "View": "models",
    "Worker": "worker",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'ampsq' has no attribute {name!r}")
    return getattr(import_module(f"ampsq.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
