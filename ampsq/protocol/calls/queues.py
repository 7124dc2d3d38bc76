"""The typed calls, one a script: arguments in, a `Call` out whose reply is read into plain values."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeAlias

from ampsq.base.message_types import EXPRESSION_LIMIT, MessageType
from ampsq.protocol import schema
from ampsq.protocol.entries import read_entry
from ampsq.protocol.request import Call, command, script_call
from ampsq.protocol.scripts import script

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from redis.typing import EncodableT

__all__ = [
    "BrowsePage",
    "Browsed",
    "Catalog",
    "MessagesByQueue",
    "OpenReply",
    "Parts",
    "QueueCounts",
    "Rank",
    "RedriveReply",
    "ReplaceReply",
    "SubscribeReply",
    "SubscribeRequest",
    "SweepReply",
    "TakeReply",
    "TopicCounts",
    "Verb",
    "Walk",
    "WatchReply",
    "begin_walk",
    "browse",
    "catalog",
    "explain",
    "find_available",
    "heartbeat",
    "hold_view",
    "note_flushing",
    "note_left_out",
    "open_instance",
    "redrive",
    "replace",
    "resize",
    "resume",
    "scan_foreign_entries",
    "settle",
    "show_life",
    "stats",
    "subscribe",
    "sweep",
    "take",
    "unsubscribe",
    "wait_for_push",
    "watch_availability",
]

Verb = Literal["acknowledged", "cancelled", "expired", "extended", "given_back"]
#: Score and member in the order of delivery.
Rank: TypeAlias = "tuple[float, bytes]"
#: The parts of a delivered message's head: queue, token, delivery, deadline, kind, ref, other fields if any.
Parts: TypeAlias = list[bytes]
#: Delivered messages by queue.
MessagesByQueue: TypeAlias = dict[bytes, list[Parts]]


@dataclass(frozen=True, slots=True)
class OpenReply:
    """An instance ready for use: its origin (name and incarnation) and the server's time, ms."""

    origin: str
    now: int


@dataclass(frozen=True, slots=True)
class Catalog:
    """Everything that is defined: names to definitions (JSON), subscriptions to their patterns.

    Attributes:
        settings: the match of each address setting -> its definition, behind ``>`` while queues are compiled by it.
        instance: the instance's name.
        group: its group; where it was not given one, its name.
        label: what people call it; empty where nobody said so.
        expression_limit: bytes of the largest body that expressions read, of topics that do not say it.
        defined_only: a first publish makes no topic.
    """

    version: int
    topics: dict[str, str]
    queues: dict[str, str]
    actions: dict[str, str]
    patterns: dict[str, str]
    views: dict[str, str]
    settings: dict[str, str]
    transports: dict[str, str]
    destinations: dict[str, str]
    conflated: dict[str, str]
    instance: str
    group: str
    label: str = ""
    expression_limit: int = EXPRESSION_LIMIT
    defined_only: bool = False

    def message_type(self, name: str) -> MessageType:
        """The message type of a topic or a queue, with its limit of bodies; JSON of what is not defined."""
        if name in self.topics or name not in self.queues:
            return MessageType.of_definition(self.topics.get(name), self.expression_limit)
        under = json.loads(self.queues[name]).get("underlying_topic", name)
        limit = MessageType.of_definition(self.topics.get(under), self.expression_limit).expression_limit
        return MessageType.of_definition(self.queues[name], limit)


@dataclass(frozen=True, slots=True)
class TakeReply:
    """What was picked up, heads and bodies in turn, and the acknowledgements refused: ref, code.

    `unfinished`: nothing yet, but messages are still being judged by filters or priorities; ask again at once.
    """

    elements: list[bytes]
    refused: list[tuple[bytes, str]]
    unfinished: bool


class TopicCounts(NamedTuple):
    """The place up to which a queue has read a topic.

    Attributes:
        unread: entries behind the last one that it read.
        read_to: the last ID that it read.
        last: the last ID of the topic.
    """

    unread: int
    read_to: str
    last: str


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """One queue's figures.

    Attributes:
        fields: counters and settings as they are stored, for this room.
        leased, ready, ahead, sorted, held, remote: messages, by where they are.
        subscriptions: how many it has.
        topics: how far it has read each of its topics.
    """

    fields: dict[str, str]
    leased: int
    ready: int
    subscriptions: int
    ahead: int
    sorted: int
    held: int
    remote: int
    topics: dict[str, TopicCounts]

    @property
    def delayed(self) -> int:
        """Messages that came back and are delivered later."""
        return int(self.fields.get(schema.FIELDS["delayed"], "0"))

    @property
    def scheduled(self) -> int:
        """Messages that were published for later."""
        return int(self.fields.get(schema.FIELDS["scheduled"], "0"))

    @property
    def is_empty(self) -> bool:
        """True where it has no message, and is not being rebuilt; as lua/definitions/lib/queue_emptiness.lua has it."""
        waiting = (self.leased, self.ready, self.sorted, self.held, self.remote, self.delayed, self.scheduled)
        is_rebuilt = self.fields.get(schema.FIELDS["paused"]) not in (None, "0", "")
        unread = (each.unread > 0 and each.read_to != each.last for each in self.topics.values())
        return not (any(waiting) or is_rebuilt or any(unread))


class SubscribeReply(NamedTuple):
    """A subscription that was registered.

    Attributes:
        name: its name.
        max_backlog: the effective one.
    """

    name: str
    max_backlog: int


class RedriveReply(NamedTuple):
    """The outcome of putting dead letters back.

    Attributes:
        number: how many were.
        refused: ref and code of those that were not.
    """

    number: int
    refused: list[tuple[bytes, str]]


class SweepReply(NamedTuple):
    """The work that a sweep has left.

    Attributes:
        more: more is due already.
        pause: seconds until the next entry is; None: there is none.
    """

    more: bool
    pause: float | None


class WatchReply(NamedTuple):
    """A queue that is watched.

    Attributes:
        last: the ID of the last thing that it told.
        since: since when, ms, it tells without a gap.
    """

    last: str
    since: str


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """What a subscription asks for.

    Attributes:
        asked: unacknowledged messages at most.
        filter: the name of a filter and its tree; None: everything.
        pattern: of queues, "" for one literal queue.
        queues: those that it has now.
        version: of the catalog that the pattern was matched against; None without a pattern.
    """

    asked: int
    filter: tuple[str, str] | None
    pattern: str
    queues: Sequence[str]
    version: int | None

    @property
    def arguments(self) -> list[EncodableT]:
        """`asked`, `filter`, `tree`, `pattern` of the scripts' heads."""
        return [self.asked, *(self.filter or (schema.VALUES["none"], "")), self.pattern]


@dataclass(frozen=True, slots=True)
class ReplaceReply:
    """What became of a subscription that was replaced.

    Attributes:
        max_backlog: the effective one.
        unfinished: part of its inbox is left, so that the call must be made again.
        tokens: queue -> the last token that was delivered under a former wish.
    """

    max_backlog: int
    unfinished: bool
    tokens: dict[bytes, int]


@dataclass(frozen=True, slots=True)
class Walk:
    """Where a walk over a queue's messages begins and ends.

    Attributes:
        end: the last ID of all that was recorded when it began.
        room: unread messages that belong to the active part; None: all.
        sorted: whether the queue judges its messages.
        type: the queue's message type.
        cursors: topic -> last ID read.
    """

    end: str
    room: int | None
    sorted: bool
    type: MessageType
    cursors: dict[str, str]


@dataclass(frozen=True, slots=True)
class Browsed:
    """A message that was looked at, not delivered.

    Attributes:
        ref: its place in the queue.
        fields: its own, of its log entry.
        deliveries: how often it was delivered and came back.
        holder: the subscription that holds it; empty when it is available.
        rank: its place in the order of delivery.
        source: where it was published first, as `ampsq.protocol.entries.source_in` says it.
    """

    ref: bytes
    fields: dict[bytes, bytes]
    deliveries: int
    holder: bytes
    rank: Rank
    source: str

    @classmethod
    def of(
        cls, ref: bytes, flat: Sequence[bytes], deliveries: int = 0, holder: bytes = b"", rank: Rank = (0.0, b"")
    ) -> Self:
        """Make it of its log entry, names and values in turn."""
        fields, source = read_entry(flat)
        return cls(ref, fields, deliveries, holder, rank, source)


@dataclass(frozen=True, slots=True)
class BrowsePage:
    """One step of a walk: where the next begins (None: nowhere), available messages looked at, and those that match."""

    next: str | None
    available: int
    messages: list[Browsed]


def _pairs(flat: Sequence[bytes]) -> dict[str, str]:
    return {flat[i].decode(): flat[i + 1].decode() for i in range(0, len(flat), 2)}


def _refusals(flat: Sequence[bytes]) -> list[tuple[bytes, str]]:
    return [(flat[i], flat[i + 1].decode()) for i in range(0, len(flat), 2)]


def open_instance(name: str, incarnation: str) -> Call[OpenReply]:
    """Make an instance ready for use; `incarnation` names it if it is new."""
    return script_call(
        "open",
        ["", name, incarnation],
        lambda reply: OpenReply(reply[0].decode(), int(reply[2])),
        repeatable=True,
    )


def catalog() -> Call[Catalog]:
    """Read everything that is defined."""
    return script_call("read_catalog", [], _read_catalog, repeatable=True)


def _read_catalog(reply: tuple[int, *tuple[list[bytes], ...], bytes, bytes, bytes, int, int]) -> Catalog:
    kinds = "topics", "queues", "actions", "patterns", "views", "settings", "transports", "destinations", "conflated"
    parts = dict(zip(kinds, map(_pairs, reply[1:-5]), strict=True))
    name, group, label = (text.decode() for text in reply[-5:-2])
    return Catalog(
        int(reply[0]),
        **parts,
        instance=name,
        group=group,
        label=label,
        expression_limit=int(reply[-2]),
        defined_only=bool(reply[-1]),
    )


def redrive(
    queue: str, topic: str, target: str, by: str, letters: Iterable[tuple[bytes, bytes, bytes]]
) -> Call[RedriveReply]:
    """Put letters of a queue back: ref of the letter, body and headers of the message, each; at most 500.

    Gives how many were, and ref and code of those that were not. `topic` gets the messages, for `target` alone. A
    second run puts nothing back again: what the first one did is refused then.
    """
    arguments: list[EncodableT] = ["", queue, topic, target, by, *(text for letter in letters for text in letter)]
    return script_call(
        "redrive", arguments, lambda reply: RedriveReply(int(reply[0]), _refusals(reply[1:])), repeatable=True
    )


def subscribe(client: str, request: SubscribeRequest, session_timeout: int) -> Call[SubscribeReply]:
    """Register a subscription. `client` is unlike in every other request."""
    version = "" if request.version is None else request.version
    arguments = ["", version, client, *request.arguments, session_timeout, *request.queues]
    return script_call(
        "subscribe", arguments, lambda reply: SubscribeReply(reply[0].decode(), int(reply[1])), repeatable=True
    )


def replace(subscription: str, number: int, request: SubscribeRequest) -> Call[ReplaceReply]:
    """Change what a subscription asks for; `number` rises with each wish, so that a late call changes nothing."""
    version = "" if request.version is None else request.version
    arguments = ["", version, subscription, number, *request.arguments, *request.queues]

    def read(reply: list[Any]) -> ReplaceReply:
        tokens = {reply[i]: int(reply[i + 1]) for i in range(2, len(reply), 2)}
        return ReplaceReply(int(reply[0]), bool(reply[1]), tokens)

    return script_call("replace_subscription", arguments, read, repeatable=True)


def take(subscription: str, wanted: int, acks: MessagesByQueue) -> Call[TakeReply]:
    """Pick up messages, carrying acknowledgements. A lost reply's messages come again by `push_again`."""
    arguments: list[EncodableT] = ["", subscription, wanted]
    for queue, some in acks.items():
        arguments += [queue, len(some), *[parts[5] for parts in some], *[parts[1] for parts in some]]
    return Call(
        script("take"),
        arguments,
        lambda reply: TakeReply(reply[0], _refusals(reply[1]), bool(reply[2])),
        repeatable=True,
    )


def settle(
    verb: Verb,
    queue: bytes,
    refs: Sequence[bytes],
    tokens: Sequence[bytes],
    *,
    period: int | None = None,
    by: str = "",
    reason: str = "",
) -> Call[list[tuple[bytes, str]]]:
    """Settle messages of one queue; gives ref and code of those refused.

    `period`, ms: of a cancel the delay, None: as the queue's redelivery says; of an extension its length.
    `reason`: why, as `ampsq.queues.returns` checks it; "" for nothing.
    """
    default = -1 if verb == "cancelled" else 0
    why = [reason] if reason else []
    given = default if period is None else int(period)
    return Call(
        script("settle"),
        ["", verb, given, by, queue, len(refs), *refs, *tokens, *why],
        _refusals,
        repeatable=all(tokens),
    )


def unsubscribe(subscription: str, held: MessagesByQueue) -> Call[bool]:
    """End a subscription; True while part of its inbox is left and the call must be made again."""
    arguments: list[EncodableT] = ["", subscription]
    for queue, some in held.items():
        arguments += [queue, len(some), *[parts[5] for parts in some], *[parts[1] for parts in some]]
    return script_call("unsubscribe", arguments, bool, repeatable=True)


def resize(subscription: str, asked: int) -> Call[int]:
    """Change the backlog that a subscription asks for; gives the effective one."""
    return script_call("resize_backlog", ["", subscription, asked], int, repeatable=True)


def heartbeat(session_timeout: int, subscriptions: Sequence[str]) -> Call[list[str]]:
    """Show that subscriptions live; gives those that do not exist any more."""
    return script_call(
        "heartbeat",
        ["", session_timeout, *subscriptions],
        lambda reply: [name.decode() for name in reply],
        repeatable=True,
    )


def show_life(instance: str, sign: str) -> Call[int]:
    """Show that a coordinator is at work, by another sign than the last one."""
    return command(["HSET", schema.key(instance, "instance"), schema.FIELDS["attended"], sign], int)


def sweep(now: int | str = "") -> Call[SweepReply]:
    """Do what is due; gives whether more is due already, and the seconds until the next entry, if any.

    Args:
        now: milliseconds; default the server's time.
    """
    return script_call(
        "sweep",
        [now],
        lambda reply: SweepReply(bool(reply[0]), None if reply[1] < 0 else reply[1] / 1000),
        repeatable=True,
    )


def scan_foreign_entries(topics: Mapping[str, str]) -> Call[dict[str, str]]:
    """Find what others wrote into logs; topic -> last ID seen, gives topic -> last ID."""
    arguments: list[EncodableT] = [text for pair in topics.items() for text in pair]
    return script_call(
        "scan_foreign_entries",
        ["", *arguments],
        lambda reply: {topic: last.decode() for topic, last in zip(topics, reply, strict=True)},
        repeatable=True,
    )


def resume(subscription: str, queue: bytes, cursor: str, tokens: Sequence[bytes]) -> Call[str]:
    """Push again what is leased and not among `tokens`; gives the next cursor, "0" at the end."""
    return script_call(
        "push_again",
        ["", subscription, queue, cursor, *tokens],
        lambda reply: str(reply.decode()),
        repeatable=True,
    )


def _read_figures(reply: list[Any]) -> QueueCounts:
    fields, leased, ready, subscriptions, ahead, placed, held, remote, *rest = reply
    topics = {
        rest[i].decode(): TopicCounts(int(rest[i + 1]), rest[i + 2].decode(), rest[i + 3].decode())
        for i in range(0, len(rest), 4)
    }
    return QueueCounts(_pairs(fields), leased, ready, subscriptions, ahead, placed, held, remote, topics)


def stats(queue: str) -> Call[QueueCounts]:
    """Read one queue's figures."""
    return script_call("read_stats", [queue], _read_figures, repeatable=True)


def begin_walk(queue: str) -> Call[Walk]:
    """Begin a walk over a queue's messages."""

    def read(reply: list[Any]) -> Walk:
        end, room, placed, word, *cursors = reply
        active = None if room < 0 else int(room)
        return Walk(end.decode(), active, bool(placed), MessageType.parse(word.decode()), _pairs(cursors))

    return script_call("begin_browse", [queue], read, repeatable=True)


def _browsed(flat: Sequence[Any]) -> list[Browsed]:
    return [
        Browsed.of(flat[i], flat[i + 1], int(flat[i + 2]), flat[i + 3], (float(flat[i + 4]), flat[i + 5]))
        for i in range(0, len(flat), 6)
    ]


def browse(queue: str, source: str, after: str, until: str, tree: str) -> Call[BrowsePage]:
    """Look through a part of one source: ready, sorted, held, leases, or "log <topic>" up to an ID; nothing changes.

    Args:
        queue: the queue.
        source: where to look.
        after: the `next` of the step before, "" at first; of a log, an ID.
        until: the last ID of a log to look at.
        tree: of the filter that messages must match, "" for all.
    """
    return script_call(
        "browse",
        ["", queue, source, after, until, tree],
        lambda reply: BrowsePage(reply[0].decode() or None, int(reply[1]), _browsed(reply[2:])),
        repeatable=True,
    )


def find_available(queue: str, refs: Sequence[bytes]) -> Call[list[Browsed | None]]:
    """Which of at most 500 messages are available now; None in the place of one that is not.

    The answer may be about the first ones only, at least one, where they are large: ask again for the rest.
    """

    def read(reply: list[Any]) -> list[Browsed | None]:
        found = {item.ref: item for item in _browsed(reply[1:])}
        return [found.get(ref) for ref in refs[: int(reply[0])]]

    return script_call("read_available", ["", queue, *refs], read, repeatable=True)


def explain(queue: str, ref: str) -> Call[list[tuple[str, str]]]:
    """Look where one message is and what keeps it there, ref "" for the head; gives names and values."""

    def read(reply: list[bytes]) -> list[tuple[str, str]]:
        texts = [text.decode(errors="surrogateescape") for text in reply]
        return list(zip(texts[::2], texts[1::2], strict=True))

    return script_call("explain", ["", queue, ref], read, repeatable=True)


def watch_availability(queue: str, period: int) -> Call[WatchReply]:
    """Let a queue tell for `period` ms which messages' availability may have changed."""
    return script_call(
        "watch_queue",
        ["", queue, period],
        lambda reply: WatchReply(reply[0].decode(), reply[1].decode()),
        repeatable=True,
    )


def hold_view(view: str, owner: str, period: int) -> Call[bool]:
    """Be the one that keeps a view up to date, for `period` ms; False while somebody else is."""
    return script_call("keep_duty", ["", view, owner, period], bool, repeatable=True)


def note_left_out(instance: str, view: str, count: int) -> Call[int]:
    """Write down how many messages a view leaves out, since their bodies are more than expressions read."""
    return command(["HSET", schema.key(instance, "view", view), "left_out", count], int)


def note_flushing(run: str, appendfsync: str, on_rewrite: str) -> Call[bool]:
    """Note how the server flushes, of the run that it is in; False where that was noted."""
    return script_call("note_flushing", [run, appendfsync, on_rewrite], bool, repeatable=True)


def wait_for_push(instance: str, subscription: str, messages: int, seconds: float) -> Call[list[bytes]]:
    """Wait for what is pushed to a subscription; heads and bodies in turn, empty when the time is over."""
    inbox = schema.key(instance, "inbox", subscription)
    return command(
        ["BLMPOP", f"{seconds:.3f}", 1, inbox, "LEFT", "COUNT", 2 * messages],
        lambda reply: reply[1] if reply else [],
        blocks=seconds,
    )
