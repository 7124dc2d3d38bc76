# Long: one table: each error with its code, its meaning and what mends it.

"""Every error that ampsq raises, and how a script's answer becomes one.

    AmpsqError
    ├─ DefinitionError          a definition or argument is wrong, and was not sent
    │   ├─ ExpressionError      an expression cannot be read or is not allowed there; carries the column
    │   └─ TopicNotDefined      nobody defined the topic, and the instance takes messages for defined ones alone
    ├─ EmbeddedServerError      the embedded server cannot be started or reached
    ├─ Unavailable              the server cannot be reached, or did not answer in time
    │   ├─ ConnectionRefused    nobody listens at the address
    │   ├─ NameNotResolved      the name of the host is not known
    │   ├─ AuthenticationFailed the server wants another name or password
    │   ├─ TlsFailed            no encrypted connection could be agreed on
    │   ├─ NotAPrimary          the server is a replica, or has become one
    │   ├─ StillLoading         the server still loads its data
    │   ├─ StillUpgrading       `ampsq upgrade` is at work at the instance
    │   ├─ NoAnswer             the connection stands and nothing comes: a hung server, a broken network
    │   ├─ PrimaryUnknown       neither Sentinel nor cluster names a server for this instance
    │   └─ OtherIncarnation     the server lost this instance, or holds another one of its name
    ├─ NotPermitted             the server does not allow this to the user that the address names
    │   └─ NobodyDefines        a topic or queue is not defined, this user may not define it, and no coordinator did
    ├─ ServerUnsuitable         the server lacks something that ampsq needs
    │   └─ FlushingUnknown      it is not known how the server flushes, so that nothing can be promised of its disk
    ├─ ReleaseReplaced          the files of ampsq are another release's than this process
    ├─ LinkRefused              the other side of a link is another one than configured, or defines what does not fit
    ├─ DestinationAhead         the destination of a link has what its source never recorded
    ├─ ServerFull               the server is out of memory and refused a publish
    ├─ SlowClient               a subscription to topics was further behind than the limits allow, and is ended
    ├─ BookmarkNotFound         the log does not have everything any more from where a subscription was to begin
    ├─ Closed                   the client or subscription was closed before the call
    ├─ PublishStoreError        what a publish store holds cannot be written, read, or is used by another process
    │   └─ PublishStoreFull     it holds as much as it may, and the server did not persist any of it in time
    ├─ NotPersisted             messages are not persisted in time; they stay in the publish store
    ├─ Rejected                 a script said no; the state is unchanged
    │   ├─ UnknownQueue  UnknownTopic  UnknownSubscription  UnknownMessage  UnknownDestination
    │   ├─ StaleLease           the lease ended, or the message is held under a newer token
    │   ├─ AlreadyAcked         the message was settled before
    │   ├─ NotLeaseHolder       `leasing: strict`, and somebody else holds the lease
    │   ├─ MissingKey           the topic has a key, and the message does not
    │   ├─ TooManyDeduplicationIds  a topic knows as many IDs as it may
    │   ├─ UnreadBody           the topic has a key, and the message is more than the server reads
    │   ├─ TooMuchToRead        the topic has a key, and a call has more messages than are read at once: make several
    │   ├─ DeltaNotJson         a change of a record whose messages are not JSON
    │   ├─ NoRecords            the topic has no key, so that it keeps no records
    │   ├─ RecordsBehind        the topic's records have not come to the end of its log; let them, and retry
    │   ├─ GroupedQueue         a subscription to a queue with groups has a filter
    │   ├─ TooManyFilters       the queue's subscriptions have as many distinct filters as are allowed
    │   ├─ NameInUse            another client took the publisher's name, or the `sub_id` of a durable subscription
    │   ├─ UnknownSession       the server lost the start of a durable subscription; the client starts it again
    │   ├─ SequenceGap          a publisher's message came before its lower numbers
    │   ├─ OwnedElsewhere       another instance owns the message: acknowledge it there, or wait for its transfer
    │   ├─ NotProxied           proxied transfer of the queue is not enabled at this instance
    │   ├─ Gap                  a link's call leaves out messages that are not here yet: open the link again
    │   ├─ IncarnationOver      one end of a link began a new incarnation since: open the link again
    │   ├─ OtherFilter          a link brings an instance's messages under another filter than before
    │   ├─ RowsDiffer           a job that is run again brings other rows, or the same in another order
    │   ├─ OtherProtocol        a job's epoch was begun under the other commit protocol
    │   ├─ EpochPast            a later epoch of the job was recorded; nothing of this one is
    │   ├─ StageLost            rows that a job had put aside are gone
    │   ├─ BinaryMessages       a filter on a queue whose messages are binary
    │   ├─ QueueInUse           a queue that is to be removed has subscriptions, leases or delayed messages
    │   ├─ QueueNotEmpty        another owner, or kind, for a queue that has messages
    │   ├─ MessageTypeFixed     another message type for a topic that has had messages
    │   ├─ PartitionByFixed     another partition_by for a topic that has had messages in partitions
    │   ├─ Rebuilding           somebody else rebuilds the queue, or took this rebuild over
    │   ├─ CatalogChanged       definitions changed meanwhile; read them again and retry
    │   ├─ StaleDefinitions     somebody else defined something in all partitions meanwhile; read it and retry
    │   ├─ SlotKeyTaken         a key has the bare name that scripts declare as the instance's slot
    │   └─ FormatMismatch       the keys were written by an incompatible version
    └─ ScriptBug                our fault; carries the Lua file and line

A script refuses with a stable first word and JSON detail, ``AMPSQ_STALE_LEASE {...}``; each code is one
class here (a test proves it). English texts are for people and may change; classes and codes do not.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, ClassVar, Final, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "AlreadyAcked",
    "AmpsqError",
    "AuthenticationFailed",
    "BinaryMessages",
    "BookmarkNotFound",
    "CatalogChanged",
    "Closed",
    "ConnectionRefused",
    "DefinitionError",
    "DeltaNotJson",
    "DestinationAhead",
    "EmbeddedServerError",
    "EpochPast",
    "ExpressionError",
    "FlushingUnknown",
    "FormatMismatch",
    "Gap",
    "GroupedQueue",
    "IncarnationOver",
    "LinkRefused",
    "MessageTypeFixed",
    "MissingKey",
    "NameInUse",
    "NameNotResolved",
    "NoAnswer",
    "NoRecords",
    "NobodyDefines",
    "NotAPrimary",
    "NotLeaseHolder",
    "NotPermitted",
    "NotPersisted",
    "NotProxied",
    "OtherFilter",
    "OtherIncarnation",
    "OtherProtocol",
    "OwnedElsewhere",
    "PartitionByFixed",
    "PrimaryUnknown",
    "PublishStoreError",
    "PublishStoreFull",
    "QueueInUse",
    "QueueNotEmpty",
    "Rebuilding",
    "RecordsBehind",
    "Rejected",
    "ReleaseReplaced",
    "RowsDiffer",
    "ScriptBug",
    "SequenceGap",
    "ServerFull",
    "ServerUnsuitable",
    "SlotKeyTaken",
    "SlowClient",
    "StageLost",
    "StaleDefinitions",
    "StaleLease",
    "StillLoading",
    "StillUpgrading",
    "TlsFailed",
    "TooManyDeduplicationIds",
    "TooManyFilters",
    "TooMuchToRead",
    "TopicNotDefined",
    "Unavailable",
    "UnknownDestination",
    "UnknownMessage",
    "UnknownQueue",
    "UnknownSession",
    "UnknownSubscription",
    "UnknownTopic",
    "UnreadBody",
    "rejection",
]


#: Characters of an expression that an error text shows before the place of the fault.
_SHOWN_BEFORE: Final = 60


def _restored(kind: type[AmpsqError], args: tuple[object, ...]) -> AmpsqError:
    """Make an error as it was, without its constructor, which may take something else than the text."""
    made = kind.__new__(kind)
    made.args = args
    return made


class AmpsqError(Exception):
    """The root: catch it to catch everything that ampsq raises on purpose. It can be pickled and copied.

    Attributes:
        definition: the one of those that were to be applied that is refused; None of other errors.
        published: of `publish_many`, for the first messages what it would have returned: each one's bookmark, or its
            sequence where a publish store took it; None where a message is not recorded, and one behind it is. Empty
            where nothing is known to be recorded, and of other calls.
    """

    definition: object = None
    published: Sequence[str | int | None] = ()

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (type(self), self.args), self.__dict__


class DefinitionError(AmpsqError, ValueError):
    """A definition or argument is wrong: the text names the element, its value and what is allowed."""


class ExpressionError(DefinitionError):
    """An expression cannot be read, or says what is not allowed where it is; the text points at the place.

    Attributes:
        text: the expression.
        column: the place of the fault in it, in characters from 1.
    """

    def __init__(self, reason: str, text: str, column: int) -> None:
        self.reason = _writable(reason)
        self.text = text
        self.column = column
        super().__init__(f"column {column}: {self.reason}\n{_pointed_at(_writable(text), column)}")


def _writable(text: str) -> str:
    """Return a text whose halves of characters (surrogates), which UTF-8 cannot say, are written as escapes."""
    return text.encode(errors="backslashreplace").decode()


def _pointed_at(text: str, column: int) -> str:
    """The line of a text that has the column, cut where it is long, and a caret below that place."""
    place = column - 1
    start = max(text.rfind("\n", 0, place) + 1, place - _SHOWN_BEFORE)
    line = text[start:].split("\n", 1)[0][: 2 * _SHOWN_BEFORE].replace("\t", " ")
    return f"  {line}\n  {' ' * (place - start)}^"


class TopicNotDefined(DefinitionError):
    """A first publish to a topic that nobody defined, at an instance that takes defined ones alone: nothing was sent.

    Args:
        topic: its name.
        nearest: defined names that are like it, the likeliest first.
    """

    def __init__(self, topic: str, nearest: Sequence[str] = ()) -> None:
        self.topic, self.nearest = topic, tuple(nearest)
        meant = f"; did you mean {' or '.join(map(repr, self.nearest))}?" if self.nearest else "."
        super().__init__(
            f"{topic!r} is not defined, and this instance takes messages for defined topics alone "
            f"(Instance(topics='defined')){meant} "
            f"To define it: client.apply(Topic(name={topic!r})), or `ampsq apply FILE`"
        )


class EmbeddedServerError(AmpsqError):
    """The embedded server cannot be started or reached; the text quotes the server's own last words."""


class Unavailable(AmpsqError, ConnectionError):
    """The server cannot be reached or did not answer in time.

    A call that was already sent may still take effect. Calls that carry a token or a publisher sequence are
    harmless to repeat; a publish without a publisher name is not.

    Attributes:
        may_have_run: False: the call certainly had no effect. True: nobody knows.
        is_lasting: asking again does not help until somebody changes something, so a client does not wait.
    """

    may_have_run = True
    is_lasting: ClassVar[bool] = False


class ConnectionRefused(Unavailable):
    """Nobody listens at the address."""


class NameNotResolved(Unavailable):
    """The name of the host is not known."""


class AuthenticationFailed(Unavailable):
    """The server wants another user name or password, or does not want the one that it got."""

    is_lasting = True


class TlsFailed(Unavailable):
    """No encrypted connection could be agreed on: the server does not speak TLS, or its certificate is not trusted."""

    is_lasting = True


class NotAPrimary(Unavailable):
    """The server is a replica, or has become one: writing there would be refused, or lost."""


class StillLoading(Unavailable):
    """The server still loads its data into memory."""


class StillUpgrading(Unavailable):
    """`ampsq upgrade` turns the instance into another format, and nobody can use it meanwhile.

    Calls wait for its end, as long as they wait for a server. Where it was interrupted, `ampsq upgrade` goes on.
    """


class NoAnswer(Unavailable):
    """The connection stands, or seems to, and nothing comes: a hung server, or a broken network."""


class PrimaryUnknown(Unavailable):
    """Neither Sentinel nor cluster names a server that serves this instance now."""


class OtherIncarnation(Unavailable):
    """The server does not hold what this client worked on: it was emptied, restored, or is another one.

    What the client knows, its leases and bookmarks among it, means nothing there. A new client begins anew.
    """

    is_lasting = True


class NotPermitted(AmpsqError):
    """The server does not allow this to the user that the address names: its access rules refuse a command or a key."""


class NobodyDefines(NotPermitted):
    """A topic or queue is not there, this user may not define it, and no coordinator made it.

    Args:
        name: of the topic or queue.
    """

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name!r} is not defined, and this user may not define it. A coordinator makes topics and queues when "
            "they are first used, and none did within 3 s: start one (ampsq coordinator), or define it as an "
            "administrator (ampsq apply)"
        )


class ServerUnsuitable(AmpsqError):
    """The server lacks what ampsq needs, or is configured so that messages would be lost."""


class FlushingUnknown(ServerUnsuitable):
    """The way the server flushes is not known: this user may not ask it, and no coordinator has noted it yet.

    Args:
        purpose: what depends on it.
    """

    def __init__(self, purpose: str) -> None:
        super().__init__(
            f"{purpose}: how the server flushes is not known: this user may not ask it (CONFIG GET), and no "
            "coordinator of the instance has noted it since the server began. Start one (ampsq coordinator) under the "
            "rules that `ampsq acl coordinator` prints, or grant this user +config|get"
        )


class ReleaseReplaced(AmpsqError):
    """A script's files are not those any more with which this process began: another release was installed meanwhile.

    The call that needs its text was not sent. Start the process again.
    """


class LinkRefused(AmpsqError):
    """The other side of a link is not the one configured, or its definitions do not fit; a line for each difference.

    Attributes:
        is_final: nothing but another definition of the destination ends it.
    """

    is_final = False


class DestinationAhead(AmpsqError):
    """The destination of a link has what its source never recorded: the source lost its last entries."""


class ServerFull(AmpsqError):
    """The server is out of memory and refused a publish; acknowledging still works and makes room.

    Of a `publish_many` earlier batches may be recorded: `published` says which.
    """


class BookmarkNotFound(AmpsqError):
    """The log does not have everything any more that a bookmark asks for: a subscription or a query of the past."""


class Closed(AmpsqError):
    """The client or subscription was closed before this call."""


class PublishStoreError(AmpsqError):
    """A publish store cannot be written or read, or another process publishes from it under this name.

    Attributes:
        may_pass: whether the same may succeed later, as on a disk that is full, or a file that others use.
    """

    may_pass = False


class PublishStoreFull(PublishStoreError):
    """The publish store holds as much as it may, and the server did not persist any of it in time.

    The message was not taken: nothing of it is stored or sent. Of a `publish_many`, `published` has what was taken.
    """


class NotPersisted(AmpsqError):
    """Messages or acknowledgements are not persisted in time. They stay in the publish store and are sent again.

    Attributes:
        first: the least sequence that is missing; None when only acknowledgements are.
        last: the highest one.
        acknowledgements: how many settlements of queue messages are unanswered.
        why: what they wait for, which the text says too; empty where that is not known.
    """

    def __init__(self, text: str, first: int | None, last: int | None, acknowledgements: int, why: str = "") -> None:
        self.first, self.last, self.acknowledgements, self.why = first, last, acknowledgements, why
        super().__init__(text)


#: Details that a text which tells of the name has said already.
_NAMES = frozenset({"name", "queue", "topic"})


class Rejected(AmpsqError):
    """A script said no and changed nothing.

    Attributes:
        code: the stable first word of the refusal.
        detail: what the script knew: names, values, limits.
    """

    code: ClassVar[str] = ""
    #: What is known of the name, for people; empty: nobody looked.
    explanation = ""

    def __init__(self, **detail: object) -> None:
        self.detail: dict[str, object] = detail
        super().__init__(self._text())

    def with_explanation(self, text: str) -> Self:
        """The same error, telling more of the name."""
        other = type(self)(**self.detail)
        rest = sorted((name, value) for name, value in self.detail.items() if name not in _NAMES)
        facts = _listed(rest)
        other.explanation = f"{text} ({facts})" if facts else text
        other.args = (other.explanation,)
        other.definition = self.definition
        return other

    def renumber(self, message: int) -> None:
        """Name the refused message by another number, where its call was a part of a larger one."""
        self.detail["message"] = message
        self.args = (self._text(),)

    def _text(self) -> str:
        meaning = (self.__doc__ or "").strip().split("\n", 1)[0]
        facts = _listed(sorted(self.detail.items()))
        return f"{meaning} ({facts})" if facts else meaning


def _listed(facts: Iterable[tuple[str, object]]) -> str:
    """Write what a script knew as people do: ``queue 'work', subscriptions 2``."""
    return ", ".join(f"{name.replace('_', ' ')} {value!r}" for name, value in facts)


class UnknownQueue(Rejected):
    """No queue has this name; define it with `client.apply(Queue(name=...))` or `ampsq apply`."""

    code = "AMPSQ_UNKNOWN_QUEUE"

    def _text(self) -> str:
        if self.detail.keys() != {"queue"}:
            return super()._text()
        return f"{self.detail['queue']!r} is no queue; client.apply(Queue(name=...)) or `ampsq apply FILE` defines one"


class UnknownTopic(Rejected):
    """No topic or queue of this name has been seen on this instance yet."""

    code = "AMPSQ_UNKNOWN_TOPIC"

    def _text(self) -> str:
        if len(self.detail) != 1:
            return super()._text()
        (name,) = self.detail.values()
        return f"{name!r} is no topic: nothing of this name was defined or published to on this instance yet"


class UnknownSubscription(Rejected):
    """The subscription has ended: it was closed, or its connection was gone for too long."""

    code = "AMPSQ_UNKNOWN_SUBSCRIPTION"


class UnknownDestination(Rejected):
    """This instance has no destination of that name with `sync_type: sync`."""

    code = "AMPSQ_UNKNOWN_DESTINATION"


class UnknownMessage(Rejected):
    """The queue has no such message: its topic does not feed the queue, or the log does not hold it."""

    code = "AMPSQ_UNKNOWN_MESSAGE"

    def _text(self) -> str:
        # Where the message is instead, when somebody looked.
        facts = self.detail
        if "absent" in facts:
            others = f" (refused {facts['refused']}, settled {facts['settled']})" if "refused" in facts else ""
            return f"message {facts['bookmark']} of {facts['queue']!r} is not here: {facts['absent']}{others}"
        if "told" not in facts:
            return super()._text()
        return f"no letter {facts['bookmark']} is available in {facts['queue']!r}. {facts['told']}"


class StaleLease(Rejected):
    """The lease ended before this call; the message is queued again or held under a newer token."""

    code = "AMPSQ_STALE_LEASE"


class AlreadyAcked(Rejected):
    """The message was settled before this call: acknowledged, expired or removed."""

    code = "AMPSQ_ALREADY_ACKED"


class Rebuilding(Rejected):
    """Somebody else is rebuilding this queue, or took over a rebuild that had shown no sign of life for a while."""

    code = "AMPSQ_REBUILDING"


class NotLeaseHolder(Rejected):
    """The queue's `leasing` is strict and another subscription holds the lease."""

    code = "AMPSQ_NOT_LEASE_HOLDER"


class NameInUse(Rejected):
    """Another client logged on under this publisher's name; only one may. Give each its own name, or stop one.

    Or another durable subscription began under the same `sub_id`; then `detail` has ``subscription``.
    """

    code = "AMPSQ_NAME_IN_USE"

    def _text(self) -> str:
        if "subscription" not in self.detail:
            return super()._text()
        by = f" by {self.detail['by']}" if "by" in self.detail else ""
        return (
            f"another durable subscription began under sub_id {self.detail['subscription']!r}{by}, and ended this one. "
            "One at a time may use it: give each its own sub_id, or stop one"
        )


class UnknownSession(Rejected):
    """The server lost the start of this durable subscription; the client starts it again and records its place."""

    code = "AMPSQ_UNKNOWN_SESSION"


class SequenceGap(Rejected):
    """A publisher's message came before its lower numbers; the client sends those first, then this one again."""

    code = "AMPSQ_SEQUENCE_GAP"


class RowsDiffer(Rejected):
    """A repeated partition has other rows or another order: use sortWithinPartitions, or commitProtocol 'staged'.

    What was recorded of it stays, and nothing more was: where a later attempt brings the rows as they were, it goes on.
    """

    code = "AMPSQ_ROWS_DIFFER"


class OtherProtocol(Rejected):
    """This epoch of the job was begun under the other `commitProtocol`; finish it under that one, then change."""

    code = "AMPSQ_OTHER_PROTOCOL"


class EpochPast(Rejected):
    """A later epoch of this publisher is recorded: give a later run a higher epoch, another job its own publisher.

    So nothing of this epoch was recorded now: it was in its time, or it came out of turn. A stream that begins with a
    new checkpoint counts from 0 again, and needs another `publisher`.
    """

    code = "AMPSQ_EPOCH_PAST"


class StageLost(Rejected):
    """Rows that a job had put aside are gone: `stagingTtl` passed, or the server lost them. Run the job again."""

    code = "AMPSQ_STAGE_LOST"


class MissingKey(Rejected):
    """The topic has a key, and this message does not have exactly one value for it; nothing of its batch was recorded.

    `detail`: ``key``, the identifier, and ``message``, which one of the whole call, from 0. Of a `publish_many`,
    `published` has what is recorded of other batches.
    """

    code = "AMPSQ_MISSING_KEY"


class UnreadBody(Rejected):
    """The topic has a key, and this body is more than the server reads to find it; nothing of its batch was recorded.

    It is larger than the topic's `expression_limit`, or reading it would take too many steps (docs/expressions.md).

    `detail`: ``bytes`` of the body, or of the record that a change of one would become, ``beyond``, ``limit`` or
    ``steps``, and ``message``, which one of the whole call, from 0; `published` as of `MissingKey`.
    """

    code = "AMPSQ_UNREAD_BODY"


class TooManyDeduplicationIds(Rejected):
    """The topic knows as many deduplication IDs as it may at a time; publish with a shorter `within`, or wait.

    Nothing of the batch was recorded. An ID is forgotten when its window is over.

    `detail`: ``topic``; ``ids``, how many it knows; ``most``, how many it may; ``frees_in``, ms until the next window
    is over; `published` as of `MissingKey`.
    """

    code = "AMPSQ_TOO_MANY_DEDUPLICATION_IDS"


class TooMuchToRead(Rejected):
    """This call has too much to read, since the topic has a key; send its messages in several calls, in their order.

    Nothing of it was recorded. Clients, the gateway and jobs send it again in parts by themselves. A call of one
    message is never refused for this.

    `detail`: ``topic``, and ``read``, how many of such messages one call may have.
    """

    code = "AMPSQ_TOO_MUCH_TO_READ"


class DeltaNotJson(Rejected):
    """Only records of JSON are merged, and the topic's message type is another: publish the whole message instead."""

    code = "AMPSQ_DELTA_NOT_JSON"


class NoRecords(Rejected):
    """The topic keeps no records, since it has no key; define it with `Topic(name=..., key="/id")`."""

    code = "AMPSQ_NO_RECORDS"


class RecordsBehind(Rejected):
    """The topic's records have not come to the end of its log yet; let them catch up and retry."""

    code = "AMPSQ_RECORDS_BEHIND"


class TooManyFilters(Rejected):
    """The queue's subscriptions have as many distinct filters as are allowed; each costs an index. Share filters."""

    code = "AMPSQ_TOO_MANY_FILTERS"


class GroupedQueue(Rejected):
    """A subscription to a queue with groups takes no filter, by which later messages would overtake; leave it out.

    `Queue.filter` says what enters the queue.
    """

    code = "AMPSQ_GROUPED_QUEUE"


class OwnedElsewhere(Rejected):
    """Another instance owns the message, so that only its subscriptions may settle it. Settle it there."""

    code = "AMPSQ_OWNED_ELSEWHERE"


class NotProxied(Rejected):
    """Proxied transfer of the queue is not enabled at this instance, so it does not act for owners out of reach."""

    code = "AMPSQ_NOT_PROXIED"


class Gap(Rejected):
    """A link's call came late: it leaves out messages that the destination does not have. Open the link again."""

    code = "AMPSQ_GAP"


class IncarnationOver(Rejected):
    """One end of a link began a new incarnation after the link was opened. Open the link again."""

    code = "AMPSQ_INCARNATION_OVER"


class OtherFilter(Rejected):
    """A link brings an instance's messages under another filter than before, so that some would be missing."""

    code = "AMPSQ_OTHER_FILTER"


class BinaryMessages(Rejected):
    """The queue's messages are binary, which no filter reads. Leave the filter out, or give the topic another type."""

    code = "AMPSQ_BINARY_MESSAGES"


class QueueInUse(Rejected):
    """The queue cannot be removed: it has subscriptions, leases, delayed or scheduled messages, or is being rebuilt.

    End its subscriptions, and settle what is delayed (`ampsq ack QUEUE --filter ... --expire`), or wait.
    """

    code = "AMPSQ_QUEUE_IN_USE"


class QueueNotEmpty(Rejected):
    """The queue has messages, whose owner and groups cannot change. Drain it, or define another queue.

    Also those that it has not read yet, or that are scheduled.
    """

    code = "AMPSQ_QUEUE_NOT_EMPTY"


class MessageTypeFixed(Rejected):
    """The topic has had messages, which keep the type they were published with. Define a topic of another name."""

    code = "AMPSQ_MESSAGE_TYPE_FIXED"


class PartitionByFixed(Rejected):
    """The topic's messages stay in the partitions that its `partition_by` or `key` chose. Define one of another name.

    By another one, messages of one key would be in two partitions, in no order.
    """

    code = "AMPSQ_PARTITION_BY_FIXED"


class CatalogChanged(Rejected):
    """Topics, queues or subscriptions by pattern changed since they were read; read them again and retry."""

    code = "AMPSQ_CATALOG_CHANGED"


class StaleDefinitions(Rejected):
    """Somebody else defined something in all partitions of the instance meanwhile; read it again and retry."""

    code = "AMPSQ_STALE_DEFINITIONS"


class FormatMismatch(Rejected):
    """The keys of this instance were written in another format than that of this version of ampsq.

    One of the release before is turned into this one by `ampsq upgrade`; docs/upgrading.md says more.
    """

    code = "AMPSQ_FORMAT_MISMATCH"

    @property
    def is_upgrading(self) -> bool:
        """Return whether an upgrade of the instance has begun and has not ended."""
        return ">" in str(self.detail.get("found"))

    @property
    def is_upgradable(self) -> bool:
        """Return whether `ampsq upgrade` of this release turns the instance into what this release reads."""
        found, expected = str(self.detail.get("found")), str(self.detail.get("expected"))
        return found.isdecimal() and expected.isdecimal() and int(found) + 1 == int(expected)

    def _text(self) -> str:
        found, expected = self.detail.get("found"), str(self.detail.get("expected"))
        if found is False:
            return "The server has no keys of this instance: nobody opened it yet, or the server was emptied"
        if self.is_upgrading:
            step = str(found).replace(">", " to ")
            return (
                f"The instance is being upgraded, from format {step}, and this ampsq reads {expected}: wait for its "
                "end; if it was interrupted, `ampsq upgrade` of the release that began it goes on"
            )
        stored = f"The instance is stored in format {found}, and this ampsq reads {expected}"
        if not str(found).isdecimal() or not expected.isdecimal():
            return stored
        if int(str(found)) > int(expected):
            return f"{stored}: a later release wrote it; install that one, here and wherever this instance is used"
        if self.is_upgradable:
            return f"{stored}: `ampsq upgrade` turns it into that, once; make a backup first (docs/upgrading.md)"
        return f"{stored}: it is too old for one step; upgrade it with each release in between (docs/upgrading.md)"


class SlotKeyTaken(Rejected):
    """Somebody else's key has the name that scripts declare as the slot of the instance, ``{instance}``.

    While that slot of a cluster is moved, such a key would let a script run where half of the others are not any more.
    """

    code = "AMPSQ_SLOT_KEY_TAKEN"

    def _text(self) -> str:
        return (
            f"The server has a key named {self.detail.get('key')!r}, and no key may have that name: scripts say by it "
            "in which slot of a cluster they run. Another program made the key: rename or remove it"
        )


class ScriptBug(AmpsqError):
    """A script failed where it must not: our fault. The text names the Lua file and line; please report it."""


class SlowClient(AmpsqError):
    """A subscription to topics was disconnected, since it was too slow for the limits of its transport.

    Attributes:
        reason: the limit that it was beyond, an element of `Transport`.
        used: what was used of it, bytes or ms: by the subscription, or by its pool, of which it used most.
        limit: how much was allowed.
    """

    def __init__(self, name: str, reason: str, used: int, limit: int) -> None:
        self.reason, self.used, self.limit = reason, used, limit
        unit = "ms" if reason == "client_message_age_limit" else "bytes"
        super().__init__(
            f"the subscription to {name!r} was too slow and was disconnected: {reason}: {used} {unit} of {limit} "
            "allowed; take messages faster, conflate them, or use a transport with higher limits, and subscribe again"
        )


_BY_CODE: dict[str, type[Rejected]] = {cls.code: cls for cls in Rejected.__subclasses__()}


def rejection(text: str) -> Rejected | None:
    """Decode a script's refusal, ``AMPSQ_<CODE> {json}``.

    Args:
        text: the error text as the server sent it.

    Returns:
        The exception of that code with its detail, or None when the text is no refusal of ours.
    """
    code, _, detail = text.partition(" ")
    cls = _BY_CODE.get(code)
    if cls is None:
        return None
    facts, _ = json.JSONDecoder().raw_decode(detail) if detail.startswith("{") else ({}, 0)
    return cls(**facts)
