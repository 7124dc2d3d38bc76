"""The message queues of AMPS on plain Redis or Valkey.

Names are imported when they are first used, so that ``import ampsq`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ampsq.address_setting import AddressSetting
    from ampsq.aio import AsyncClient
    from ampsq.async_subscription import AsyncSubscription
    from ampsq.bookmark_store import MemoryBookmarkStore, RedisBookmarkStore, SqliteBookmarkStore
    from ampsq.client import Client
    from ampsq.conflated_topic import ConflatedTopic
    from ampsq.connection_state import ConnectionEvent, ConnectionState
    from ampsq.delivery import AsyncMessage, Message
    from ampsq.destination import Destination, ReplicatedTopic
    from ampsq.errors import AmpsqError
    from ampsq.guarantee import FailedWrite
    from ampsq.instance import Instance
    from ampsq.models import Action, Do, GroupLocalQueue, If, LocalQueue, On, Queue, Topic, View
    from ampsq.persisted import PersistedAck
    from ampsq.publish_store import FilePublishStore, MemoryPublishStore
    from ampsq.record_following import RecordChange
    from ampsq.record_subscription import AsyncRecordSubscription, RecordSubscription
    from ampsq.sync_subscription import Subscription
    from ampsq.topic_message import AsyncTopicMessage, TopicMessage
    from ampsq.topic_subscription import AsyncTopicSubscription, TopicSubscription
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
    "AddressSetting": "address_setting",
    "ConflatedTopic": "conflated_topic",
    "AmpsqError": "errors",
    "AsyncClient": "aio",
    "AsyncMessage": "delivery",
    "AsyncRecordSubscription": "record_subscription",
    "AsyncSubscription": "async_subscription",
    "AsyncTopicMessage": "topic_message",
    "AsyncTopicSubscription": "topic_subscription",
    "Bookmark": "values",
    "Client": "client",
    "ConnectionEvent": "connection_state",
    "ConnectionState": "connection_state",
    "Destination": "destination",
    "Do": "models",
    "FailedWrite": "guarantee",
    "FilePublishStore": "publish_store",
    "GroupLocalQueue": "models",
    "If": "models",
    "Instance": "instance",
    "Interval": "values",
    "LocalQueue": "models",
    "MemoryPublishStore": "publish_store",
    "MemoryBookmarkStore": "bookmark_store",
    "Message": "delivery",
    "On": "models",
    "PersistedAck": "persisted",
    "Queue": "models",
    "RecordChange": "record_following",
    "RecordSubscription": "record_subscription",
    "RedisBookmarkStore": "bookmark_store",
    "Reject": "worker",
    "ReplicatedTopic": "destination",
    "SqliteBookmarkStore": "bookmark_store",
    "Subscription": "sync_subscription",
    "Topic": "models",
    "TopicMessage": "topic_message",
    "TopicSubscription": "topic_subscription",
    "Transport": "transport",
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
