"""Elements of a configuration of AMPS: the ones acted on, and as what; and the reasons why others are not.

An element is written with the one around it, as ``Queue/LeasePeriod``, and with more where that says too little.
docs/amps-xml.md has the same as tables, and a test holds the two against each other.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["ACTED_ON", "MODULES", "NOT_ACTED_ON", "QUEUE_TAGS", "names_in", "why_not"]

QUEUE_TAGS: Final = ("Queue", "QueueDefinition", "LocalQueue", "GroupLocalQueue")
"""The elements of `SOW` that are queues."""

_SYNONYMS: Final = {
    **dict.fromkeys(QUEUE_TAGS, "Queue"),
    **dict.fromkeys(("TopicDefinition", "TopicMetaData"), "Topic"),
    "ViewDefinition": "View",
    "TopicReplica": "ConflatedTopic",
}
"""Elements of other versions -> as they are called in the tables here."""

_LIMITS: Final = {
    "MessageMemoryLimit": "message_memory_limit",
    "MessageDiskLimit": "message_disk_limit",
    "MessageDiskPath": "message_disk_path",
    "ClientMaxCapacity": "client_max_capacity",
    "ClientMessageAgeLimit": "client_message_age_limit",
}

ACTED_ON: Final[dict[str, dict[str, str]]] = {
    "AMPSConfig": {"Name": "name", "Group": "group", **_LIMITS},
    "Transports/Transport": {"Name": "name", **_LIMITS},
    "MessageTypes/MessageType": {"Name": "message_type", "Module": "message_type", "FieldSeparator": "field_separator"},
    "TransactionLog/Topic": {"Name": "name", "Topic": "name", "MessageType": "message_type"},
    "SOW/Topic": {
        "Name": "name",
        "Topic": "name",
        "MessageType": "message_type",
        "Key": "key",
        "Expiration": "expiration",
    },
    "SOW/Queue": {
        "Name": "name",
        "Topic": "name",
        "MessageType": "message_type",
        "UnderlyingTopic": "underlying_topic",
        "DefaultPublishTarget": "default_publish_target",
        "Filter": "filter",
        "Semantics": "semantics",
        "LeasePeriod": "lease_period",
        "Expiration": "expiration",
        "ExpirationModel": "expiration_model",
        "MaxBacklog": "max_backlog",
        "MaxPerSubscriptionBacklog": "max_per_subscription_backlog",
        "MaxDeliveries": "max_deliveries",
        "MaxCancels": "max_cancels",
        "FairnessModel": "fairness_model",
        "Leasing": "leasing",
        "Priority": "priority",
        "BarrierExpression": "barrier_expression",
        "TargetQueueDepth": "target_queue_depth",
        "FileBackedMetadata": "file_backed_metadata",
        "RecoveryPoint": "recovery_point",
        "DeferredAckExpiration": "deferred_ack_expiration",
        "InitialOwner": "initial_owner",
        "GroupLocalQueueDomain": "group_local_queue_domain",
    },
    "SOW/View": {
        "Name": "name",
        "Topic": "name",
        "UnderlyingTopic": "underlying_topic",
        "Filter": "filter",
        "Projection": "projection",
        "Grouping": "grouping",
    },
    "SOW/ConflatedTopic": {
        "Name": "name",
        "Topic": "name",
        "UnderlyingTopic": "underlying_topic",
        "Interval": "interval",
        "Filter": "filter",
    },
    "Replication/Destination": {
        "Name": "name",
        "Group": "group",
        "SyncType": "sync_type",
        "Topic": "topics",
        "Transport": "addresses",
        "PassThrough": "pass_through",
        "AckConflationInterval": "ack_conflation_interval",
        "ReconnectTimeout": "reconnect_timeout",
    },
    "Destination/Topic": {
        "Name": "name",
        "MessageType": "message_type",
        "Filter": "filter",
        "ExcludeValidation": "exclude_validation",
    },
    "Destination/Transport": {"InetAddr": "addresses", "Type": "type", "ReconnectTimeout": "reconnect_timeout"},
}
"""Element around -> element -> the element of a definition that it becomes."""

_FILES: Final = "the server's append-only file persists everything; its folder and fsync are the server's"
_ACCESS: Final = "who may do what is the server's: give each its user and password (ACL SETUSER)"
_CONNECTIONS: Final = "clients connect to the server, whose configuration says where it listens"
_TLS: Final = "TLS is the server's: it has its certificates"
_LINK_TLS: Final = "TLS is said in the address, as in rediss://host:port?ssl_ca_certs=/path"
_LIBRARIES: Final = "nothing of AMPS's libraries is loaded"
_UNREAD_TYPES: Final = "bodies of that type are not read here"
_MEMORY: Final = "records are in the server's memory, which has nothing to set here"

NOT_ACTED_ON: Final[dict[str, str]] = {
    "AMPSConfig/Admin": "ampsq has its own commands: ampsq queues, topics, replication, ...",
    "AMPSConfig/Logging": "coordinators log to standard error; the server has its logfile",
    "AMPSConfig/Modules": "no modules are loaded",
    "AMPSConfig/Protocols": _CONNECTIONS,
    "AMPSConfig/Authentication": _ACCESS,
    "AMPSConfig/Entitlement": _ACCESS,
    "AMPSConfig/Tuning": "there is nothing to tune",
    "AMPSConfig/Extensions": "no modules are loaded",
    "AMPSConfig/ConfigValidation": "a file is always checked whole",
    "AMPSConfig/RegexTopicSupport": "regular expressions are always allowed where a topic may be one",
    "AMPSConfig/MiniDumpDirectory": "there are no minidumps",
    "AMPSConfig/MiniDumpFileMask": "there are no minidumps",
    "AMPSConfig/SOWStatsInterval": "ampsq topics --json has the figures when they are wanted",
    "AMPSConfig/SOWStatisticsInterval": "ampsq topics --json has the figures when they are wanted",
    "AMPSConfig/ProcessName": "there is no process of AMPS",
    "AMPSConfig/Description": "nothing shows it; an instance has a label, which a Name with spaces becomes",
    "AMPSConfig/Environment": "nothing shows it; an instance has a label, which a Name with spaces becomes",
    "AMPSConfig/SuggestedMinimumVersion": "no version of AMPS runs here",
    "AMPSConfig/RequiredMinimumVersion": "no version of AMPS runs here",
    "AMPSConfig/ConfigIncludeCommentDefault": "what is included is not written anywhere",
    "AMPSConfig/ConfigCycleDetectionThreshold": "a circle of files is seen without it",
    "AMPSConfig/UserDefinedFunctions": _LIBRARIES,
    "AMPSConfig/Externals": _LIBRARIES,
    "MessageTypes/MessageType/AMPSVersionCompliance": "there are no such topics of figures",
    "MessageTypes/MessageType/EarlyTerminationOptimization": "of fields of one name the last one counts",
    "MessageTypes/MessageType/HeaderSeparator": "a body has no header of its own",
    "MessageTypes/MessageType/MessageSeparator": "a message is one body",
    "MessageTypes/MessageType/MessageType": _UNREAD_TYPES,
    "MessageTypes/MessageType/ProtoPath": _UNREAD_TYPES,
    "MessageTypes/MessageType/ProtoFile": _UNREAD_TYPES,
    "MessageTypes/MessageType/Type": _UNREAD_TYPES,
    "MessageTypes/MessageType/Field": _UNREAD_TYPES,
    "MessageTypes/MessageType/Options": _UNREAD_TYPES,
    "Transports/Transport/Type": _CONNECTIONS,
    "Transports/Transport/InetAddr": _CONNECTIONS,
    "Transports/Transport/Protocol": _CONNECTIONS,
    "Transports/Transport/MessageType": "each topic has its type, and a client may use topics of any",
    "Transports/Transport/Authentication": _ACCESS,
    "Transports/Transport/Entitlement": _ACCESS,
    "Transports/Transport/InitialState": _CONNECTIONS,
    "Transports/Transport/FileName": _CONNECTIONS,
    "Transports/Transport/FileMask": _CONNECTIONS,
    "Transports/Transport/TransportFilter": "commands go to the server as they are",
    "Transports/Transport/PerMessageDeflate": "a gateway's WebSockets are not compressed",
    "Transports/Transport/HTTPHeader": "a gateway has its own headers",
    "Transports/Transport/Certificate": _TLS,
    "Transports/Transport/PrivateKey": _TLS,
    "Transports/Transport/Ciphers": _TLS,
    "Transports/Transport/SecureSocketProtocols": _TLS,
    "Transports/Transport/VerifyClient": _TLS,
    "Transports/Transport/CAFile": _TLS,
    "Transports/Transport/CAPath": _TLS,
    "TransactionLog/JournalDirectory": _FILES,
    "TransactionLog/JournalArchiveDirectory": _FILES,
    "TransactionLog/PreallocatedJournalFiles": _FILES,
    "TransactionLog/JournalSize": _FILES,
    "TransactionLog/MinJournalSize": _FILES,
    "TransactionLog/FlushInterval": "the server's appendfsync says how often it writes",
    "TransactionLog/O_DIRECT": _FILES,
    "TransactionLog/CompressedJournalCacheMemoryLimit": "what is recorded is in memory, not compressed",
    "TransactionLog/InactiveClientAckExpiration": "publishers are forgotten by `ampsq publishers`",
    "SOW/ConflatedTopic/MessageType": "it has that of the topic",
    "SOW/ConflatedTopic/FileName": "it records nothing",
    "SOW/Topic/FileName": _FILES,
    "SOW/Topic/RecordSize": _MEMORY,
    "SOW/Topic/InitialSize": _MEMORY,
    "SOW/Topic/IncrementSize": _MEMORY,
    "SOW/Topic/SlabSize": _MEMORY,
    "SOW/Topic/Index": "a query by key needs none, another one looks at all records",
    "SOW/Topic/HashIndex": "a query by key needs none, another one looks at all records",
    "SOW/Topic/Duration": "records are as durable as the server",
    "SOW/Topic/Durability": "records are as durable as the server",
    "SOW/Topic/RecoveryPoint": "records are kept by the server, and not made anew from a log",
    "SOW/Topic/InitialSlabCount": _MEMORY,
    "SOW/Topic/ExpectedKeyCountHint": _MEMORY,
    "SOW/Topic/KeyDomain": "a record's key is the values themselves",
    "SOW/Topic/KeyGenerator": "no modules are loaded: without a Key the topic keeps no records",
    "SOW/Topic/Pattern": "a topic has its own definition, so that the topic is left out",
    "SOW/Topic/History": "the log of a topic has its past: see retention_age",
    "SOW/Topic/Enrichment": "messages are recorded as they are published",
    "SOW/Topic/Preprocessing": "messages are recorded as they are published",
    "SOW/View/MessageType": "rows are JSON",
    "SOW/View/UnderlyingMessageType": "the underlying topic has its type",
    "SOW/View/FileName": _FILES,
    "View/UnderlyingTopic/Join": "nothing is joined, so that the view is left out",
    "Destination/Compression": "a link is a connection of the server's protocol, which has no compression",
    "Destination/Transport/Name": "a link needs none",
    "Destination/Transport/Authenticator": ("give the credentials in InetAddr, as in rediss://user:password@host:port"),
    "Destination/Transport/IpProtocolPrefer": "give an address of the protocol that you prefer",
    "Destination/Transport/Certificate": _LINK_TLS,
    "Destination/Transport/PrivateKey": _LINK_TLS,
    "Destination/Transport/CAFile": _LINK_TLS,
    "Destination/Transport/CAPath": _LINK_TLS,
    "Destination/Transport/Ciphers": _LINK_TLS,
    "Destination/Transport/SecureSocketProtocols": _LINK_TLS,
    "Options/Name": "it is for AMPS's log; an action is named by what sets it off, or by a Name of its own",
    "Options/Delta": "the message is published whole",
    "Options/UpdateOnly": "the message is published whole",
    "Options/Options": "there are none here",
    "Options/MessageType": "topics are known by their names alone, and have their types",
    "Options/MessageSource": "an action is set off wherever the message comes from",
}
"""Element -> why it is not acted on."""

MODULES: Final[dict[str, str]] = {
    "amps-action-on-admin": "no web server runs here",
    "amps-action-on-alert": "an action on `timeout` raises an `event`",
    "amps-action-on-connect-incoming-replication": "the other side tells of its link: `connect_replication`",
    "amps-action-on-disconnect-incoming-replication": "the other side tells of its link: `disconnect_replication`",
    "amps-action-on-logon-client": "`connect` tells of every client",
    "amps-action-on-message-affinity": "a queue gives each message to one consumer",
    "amps-action-on-minidump": "there are no minidumps",
    "amps-action-on-offline-start": "`ampsq readers` shows who is offlined",
    "amps-action-on-offline-stop": "`ampsq readers` shows who is offlined",
    "amps-action-on-oof-message": "`sow_and_subscribe` tells of what leaves",
    "amps-action-on-replication-resync-complete": "links have no such state",
    "amps-action-on-shutdown": "the server's end is not seen by coordinators",
    "amps-action-on-signal": "signals are the process's own",
    "amps-action-on-startup": "the server's start is not seen by coordinators",
    "amps-action-do-archive-journal": "the server's append-only file is its own matter",
    "amps-action-do-compact-sow": "records are in the server's memory",
    "amps-action-do-compress-files": "files are not touched; `execute` runs a program",
    "amps-action-do-compress-journal": "the server's append-only file is its own matter",
    "amps-action-do-disable-authentication": _ACCESS,
    "amps-action-do-disable-entitlement": _ACCESS,
    "amps-action-do-disable-proxied-transfer": "an operator does it: ampsq replication disable-proxied-transfer",
    "amps-action-do-disable-transport": _CONNECTIONS,
    "amps-action-do-enable-authentication": _ACCESS,
    "amps-action-do-enable-entitlement": _ACCESS,
    "amps-action-do-enable-proxied-transfer": "an operator does it: ampsq replication enable-proxied-transfer",
    "amps-action-do-enable-transport": _CONNECTIONS,
    "amps-action-do-minidump": "there are no minidumps",
    "amps-action-do-nothing": "an action does something",
    "amps-action-do-remove-files": "files are not touched; `execute` runs a program",
    "amps-action-do-remove-journal": "a topic's retention removes what nobody needs",
    "amps-action-do-reset-authentication": _ACCESS,
    "amps-action-do-reset-entitlement": _ACCESS,
    "amps-action-do-rotate-logs": "logs go to standard error",
    "amps-action-do-shutdown": "the server is stopped by who started it",
    "amps-action-do-truncate-statistics": "no statistics are stored",
    "amps-action-do-vacuum-statistics": "no statistics are stored",
}
"""Modules of AMPS's actions that there is nothing for, and why, or what to use. Actions with one are left out."""


def names_in(tag: str) -> dict[str, str]:
    """Return the elements that are acted on within an element, with the elements of a definition that they become."""
    tag = _SYNONYMS.get(tag, tag)
    found: dict[str, str] = {}
    for around, tags in ACTED_ON.items():
        if around.rpartition("/")[2] == tag:
            found |= tags
    return found


def why_not(path: str) -> str | None:
    """Return why an element is not acted on, by its path from the root or any part of that; None: it is unknown."""
    # In older files a section, too, around definitions.
    steps = re.sub(r"(SOW/)?TopicMetaData/(?=\w+Definition/)", "SOW/", path).split("/")
    steps = [_SYNONYMS.get(step, step) for step in steps]
    for first in range(len(steps) - 1):
        reason = NOT_ACTED_ON.get("/".join(steps[first:]))
        if reason is not None:
            return reason
    return None
