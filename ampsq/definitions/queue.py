"""Queues of three kinds, each a frozen definition that is right or does not exist.

A definition is checked whole when it is made: a `DefinitionError` lists every fault with the element, its
value and what is allowed. In every element None means "not given", that is, the default.
"""

# Long: what each element of a queue means, its default and what it does not go with are one definition.
from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self

from ampsq.base.bookmarks import Bookmark, parse_ref, ref_of
from ampsq.base.errors import DefinitionError
from ampsq.base.message_types import SEPARATOR, MessageType, MessageTypeName
from ampsq.base.name_patterns import matches_name, pattern_of
from ampsq.base.values import Interval, Rate, is_name, shown
from ampsq.definitions.definition import Definition, Fault, Name
from ampsq.definitions.elements import (
    MIN_LEASE_PERIOD,
    NO_RING,
    Affinity,
    Barrier,
    Burst,
    Count,
    Delay,
    Factor,
    FieldSeparator,
    Filter,
    GroupBatch,
    GroupBy,
    GroupWeight,
    LeasePeriod,
    Life,
    Multiplier,
    PositiveCount,
    Priority,
    QueueDepth,
    RatePerTime,
    RecoveryPoint,
    RingSize,
    TopicOrPattern,
)
from ampsq.definitions.topic import Topic, type_conflicts
from ampsq.definitions.view import View

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = [
    "MIN_LEASE_PERIOD",
    "Bookmark",
    "Definition",
    "ExpirationModel",
    "FairnessModel",
    "Fault",
    "GroupChoice",
    "GroupLocalQueue",
    "Interval",
    "Leasing",
    "LocalQueue",
    "Queue",
    "Semantics",
    "Topic",
    "View",
    "parse_ref",
    "ref_of",
]

Semantics = Literal["at-least-once", "at-most-once"]
FairnessModel = Literal["fast", "round-robin", "proportional"]
Leasing = Literal["strict", "sublet"]
ExpirationModel = Literal["default", "queue", "latest", "earliest"]

OnGroupFailure = Literal["hold", "pass", "stop"]
GroupChoice = Literal["first", "round_robin", "fair"]

# For a type checker, a default that is worked out from other elements fits every type.
_NOT_GIVEN: Any = None
_NONE: Any = Interval(0)
_DAY: Any = Interval(86_400_000)

#: The `owner` of a queue whose messages belong to whom they were published at.
_ORIGIN: Final = "*"


class Queue(Definition):
    """A view over one or more topics, whose messages are each delivered to one subscription.

    Where several instances have it, and replicate it, each message is delivered by one of them: the one that it was
    published at, until that hands it to another (see docs/replication.md; `LocalQueue` and `GroupLocalQueue` differ in
    that alone).

    Attributes:
        name: what consumers subscribe to; the same grammar as a topic's name.
        underlying_topic: the topic that feeds the queue. A text with other characters than a name has is a
            regular expression, searched for anywhere in a topic's name, that feeds the queue from every
            topic it is found in. Unlike in AMPS, a dot alone does not make a regular expression. Default:
            the queue's name.
        default_publish_target: where a publish to the queue's own name goes. Default: the underlying topic;
            required when that is a regular expression, which must match it.
        message_type: what the bodies are: ``json`` (default), ``msgpack``, ``nvfix``, ``fix`` or ``binary``, the same
            as of every underlying topic; see docs/message-types.md. ``binary`` goes with no expression.
        field_separator: of nvfix and fix, as the topics have it. Default: SOH.
        filter: an expression over the body; only messages that match it enter the queue, which is decided once, when
            the queue reads them. Default: all messages enter.
        semantics: ``at-least-once`` (default) leases a message until it is acknowledged; ``at-most-once``
            removes it when it is sent.
        lease_period: how long a delivered message stays with its subscription, counted from its delivery;
            100ms or longer. Default: a lease never lapses. Of no effect at most once: nothing comes back.
        max_per_subscription_backlog: unacknowledged messages that one subscription may hold; 1 (default) or more.
        max_backlog: unacknowledged messages that all subscriptions may hold together, on each instance; 1
            or more. It does not bound how many messages wait. Default: no limit.
        max_deliveries: deliveries after which a message that comes back expires. Default: 0, no limit.
        max_cancels: cancels after which a message expires. Default: 0, no limit.
        fairness_model: which subscription gets the next message. ``proportional``: the one with the largest part of its
            backlog free; ``round-robin``: each in turn; ``fast``: the first one with room. Default: ``proportional``,
            but ``round-robin``, the only one allowed, for ``at-most-once``.
        leasing: who may acknowledge a leased message: everybody (``sublet``, default), or only the
            subscription that holds the lease (``strict``).
        priority: an expression over the body, as in ``/price * /qty``; the message with the largest value is delivered
            next, of equals the oldest. The value is read as an unsigned 64-bit number: a fraction is cut off, so for
            prices multiply, as in ``/price * 100``; a value below 0 counts as 0; NULL and a value that is no number
            come last. Default: the oldest is next. Goes with neither ``barrier_expression`` nor ``target_queue_depth``.
        barrier_expression: an expression over the body that marks barriers. When all messages before a barrier are
            settled, it is sent to all subscriptions whose filter matches it, also to those without room. Messages
            behind it wait until then. It needs no acknowledgement. Default: no barriers. Goes with neither ``priority``
            nor ``target_queue_depth``.
        group_by: an expression over the body whose value names the group of a message, as in ``/customer``. Messages of
            one group are delivered in their order, at most `group_concurrency` of them at a time, whoever takes them; a
            message without a value is in no group. A group that `publish` was given (``group=``) counts instead.
            Default: no groups. Goes with none of ``priority``, ``barrier_expression``, ``ring_size``,
            ``target_queue_depth``, and not with ``at-most-once``; see docs/groups.md.
        group_concurrency: messages of one group that may be leased at a time; 1 (default) or more. Without `group_by`
            it makes a queue whose groups publishers alone name (``group=``).
        group_batch: how many consecutive messages of a group may be delivered together, to one subscription, which
            handles them in their order; 1 (default) to 500. The group gives nothing more before all of them are
            settled. When one comes back, those behind it come back with it, and count as not delivered. Goes with a
            `group_concurrency` of 1, and not with ``pass``.
        group_choice: of which group the next message is. ``first`` (default): that of the oldest message whose group
            has room; the logs are read only as far as somebody needs. ``round_robin``: of the group whose last turn
            was longest ago, so that each gets as much as any other, however much of it waits. ``fair``: of the group
            with the smallest share of what is leased, that is leased messages divided by its weight, and among equals
            as by round_robin. By these two, everything is read before anything is delivered.
        group_weight: with ``fair``, an expression over the body whose value is the weight of a group, 1 to 1,000, as in
            ``/weight``: that of the first message that waits in it, when it begins to wait. Of anything else it is 1,
            which is the default.
        on_group_failure: what happens to the other messages of a group when one fails: it was cancelled, its lease
            lapsed, or its holder was gone. ``hold``: none of them is delivered before the failed one is settled.
            ``pass``: they are delivered while the failed one waits for its delay; then it comes back to its place.
            ``stop``: as ``hold``, and when the failed one is given up, by a limit or by its consumer, the group stands
            still until `ampsq groups QUEUE --release GROUP`. Default: ``hold`` at a `group_concurrency` of 1, else
            ``pass``.
        rate: how many messages are delivered in what time, as in ``10/s``, ``600/min``, ``1/h`` or ``100/10s``, by all
            subscriptions together; what is beyond it waits. Every delivery counts, also of a message that came back;
            what was given back and nobody began with does not. Goes with all elements; in a queue that instances
            share it is refused. Default: no limit. See docs/queues.md#rates.
        rate_burst: how many messages that were not delivered in time may come at once, so that in any time there are
            at most as many as this and `rate` allows in it. 1 to 1,000,000. Default: what `rate` is in 100 ms, at
            least 1.
        group_rate: the same of the messages of one group; each group has it for itself, and one that waits for its rate
            keeps back no other group.
        group_rate_burst: as `rate_burst`, of each group.
        group_affinity: for how long a group stays with the subscription that got a message of it: that long after its
            last delivery there, and as long as a message of it is leased; 1ms or longer. Its next messages wait for
            that subscription. While that is full, the group goes to another one that has nothing else to take, unless a
            message of it is leased; a lease that lapsed and a subscription that is gone end it.
            ``message.group_begins`` tells the handler that a group is new to its subscription. Refused where an
            instance has partitions. Default: any message of a group may go to any subscription.
        expiration: how long a message may be in the queue, counted from when it was published, or from when it was due
            if it was scheduled; 1ms or longer. A message that is not settled by then expires with the reason
            ``time_limit``, but never while it is leased. Default: no limit.
        expiration_model: which expiration counts for a message that was published with one of its own. ``default``: the
            message's, else the queue's; ``queue``: the queue's alone; ``latest`` and ``earliest``: the longer and the
            shorter of the two, and where only one is given, that one.
        redelivery_delay: how long a message that came back waits before it is delivered again: one that was cancelled
            without a delay of its own, whose lease lapsed, or whose holder was gone. Default: 0s, at once. (The four
            elements of redelivery have the names and the meaning of Artemis's address settings.)
        redelivery_delay_multiplier: the factor by which the delay grows from each delivery to the next; 1 (default) to
            1000.
        max_redelivery_delay: the longest such delay. Default: ten times `redelivery_delay`. Without a delay, here or in
            an address setting, it is refused.
        redelivery_collision_avoidance_factor: the part by which each delay is made longer or shorter at random, so that
            messages that failed together do not come back together; 0 (default) to 1, as in 0.15 for up to 15 %.
        ring_size: the most messages that wait in the queue. A message that enters a full ring evicts the oldest one.
            Leased and scheduled messages, and those beyond `target_queue_depth`, do not count. -1: no limit. Default:
            what the address settings say, else no limit. Goes with neither ``priority`` nor ``barrier_expression``.
        target_queue_depth: messages that the queue keeps active. Messages beyond it stay unread in the topics' logs,
            where they are not delivered, queried or settled by a filter. 1000 or more, best the messages of several
            seconds. Default: no limit. Goes with neither ``priority`` nor ``barrier_expression``.
        recovery_point: where a new queue begins to read its topics; a queue whose recovery point is changed begins
            again there. ``epoch`` (default): with the first message that the log holds; ``now`` and ``creation``:
            behind the last; a bookmark: behind that message; a time as in ``2026-11-20T18:30:00Z``: with messages that
            were published then or later. A topic that appears later begins with its first message.
        file_backed_metadata: ``enabled`` or ``disabled`` (default). It has no effect: the state of a queue is in the
            server already, which persists it in its append-only file.
        allow_redelivery_after_crash: an at-most-once queue is refused on a server that could bring back a
            delivered message after a crash (without an append-only file, or one not written at every
            command), unless this is true. Default: false.
        deferred_ack_expiration: how long this instance keeps a report of another instance on a message that has not
            arrived here yet, as that it was acknowledged. Default: 1d.
        record_deliveries: record each delivery, with its receiver, and each return, with its reason; about the last
            100,000 deliveries are kept. An action on ``deliver`` records them, too. Default: false, which costs
            nothing.
        paused: deliver nothing at this instance; leased messages stay leased. Messages still enter, expire and are
            settled by bookmark and filter. Default: false.
    """

    meant: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "topic": "no such element; did you mean 'underlying_topic'?",
            "dead_letter": "no such element; an action moves them: see Action.dead_letter('work', 'work-dead')",
            "dead_letter_queue": "no such element; an action moves them: see Action.dead_letter('work', 'work-dead')",
            "visibility_timeout": "no such element; did you mean 'lease_period'?",
            "message_group": "no such element; did you mean 'group_by'?",
            "max_retries": "no such element; did you mean 'max_deliveries'?",
        }
    )

    underlying_topic: TopicOrPattern = _NOT_GIVEN
    default_publish_target: Name = _NOT_GIVEN
    message_type: MessageTypeName = "json"
    field_separator: FieldSeparator | None = None
    filter: Filter | None = None
    semantics: Semantics = "at-least-once"
    lease_period: LeasePeriod = _NOT_GIVEN
    max_per_subscription_backlog: PositiveCount = 1
    max_backlog: PositiveCount | None = None
    max_deliveries: Count = 0
    max_cancels: Count = 0
    fairness_model: FairnessModel = _NOT_GIVEN
    leasing: Leasing = "sublet"
    priority: Priority | None = None
    barrier_expression: Barrier | None = None
    group_by: GroupBy | None = None
    group_concurrency: PositiveCount = _NOT_GIVEN
    group_batch: GroupBatch = _NOT_GIVEN
    group_choice: GroupChoice = _NOT_GIVEN
    group_weight: GroupWeight | None = None
    on_group_failure: OnGroupFailure = _NOT_GIVEN
    rate: RatePerTime = _NOT_GIVEN
    rate_burst: Burst = _NOT_GIVEN
    group_rate: RatePerTime = _NOT_GIVEN
    group_rate_burst: Burst = _NOT_GIVEN
    group_affinity: Affinity = _NOT_GIVEN
    expiration: Life = _NOT_GIVEN
    expiration_model: ExpirationModel = "default"
    redelivery_delay: Delay = _NONE
    redelivery_delay_multiplier: Multiplier = 1.0
    max_redelivery_delay: Delay = _NOT_GIVEN
    redelivery_collision_avoidance_factor: Factor = 0.0
    ring_size: RingSize | None = None
    target_queue_depth: QueueDepth | None = None
    recovery_point: RecoveryPoint = "epoch"
    file_backed_metadata: Literal["enabled", "disabled"] = "disabled"
    allow_redelivery_after_crash: bool = False
    deferred_ack_expiration: Delay = _DAY
    record_deliveries: bool = False
    paused: bool = False

    @property
    def owner(self) -> str:
        """First owner of its messages: ``*``, the origin; "", everybody's own copy; else an instance."""
        return _ORIGIN

    def domain(self, group: str) -> str:  # noqa: ARG002
        """Return the text that tells a group local queue of this group's instance from others of its name; else ""."""
        return ""

    @property
    def type(self) -> MessageType:
        """The message type with its separator."""
        return MessageType(self.message_type, self.field_separator or SEPARATOR)

    @property
    def is_pattern(self) -> bool:
        """Return whether `underlying_topic` is a regular expression."""
        return not is_name(self.underlying_topic)

    @property
    def is_grouped(self) -> bool:
        """Return whether its messages may be in groups."""
        return self.group_concurrency is not None

    def feeds_from(self, topic: str) -> bool:
        """Say whether what is published to a topic enters this queue."""
        return matches_name(self.underlying_topic, topic)

    def to_json(self) -> str:
        """As of every definition, with the kind of one that is no plain queue."""
        if type(self) is Queue:
            return super().to_json()
        return json.dumps({**self.elements(), _KIND: type(self).__name__}, sort_keys=True, separators=(",", ":"))

    def changes_from(self, old: Self) -> dict[str, tuple[Any, Any]]:
        """As of every definition, with the kind if that is another one."""
        kinds = type(old).__name__, type(self).__name__
        here, there = self.model_dump(mode="json"), old.model_dump(mode="json")
        elements = {name: (there.get(name), here.get(name)) for name in {**there, **here}}
        changes = {name: (before, after) for name, (before, after) in elements.items() if before != after}
        return changes if kinds[0] == kinds[1] else {_KIND: kinds, **changes}

    @classmethod
    def _stored(cls, elements: dict[str, Any]) -> Self:
        kind: Any = _KINDS[elements.pop(_KIND, Queue.__name__)]
        made: Self = kind(**elements)
        return made

    @classmethod
    def _derived(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        at_most_once = given.get("semantics") == "at-most-once"
        derived: dict[str, Any] = {"fairness_model": "round-robin" if at_most_once else "proportional"}
        name = given.get("name")
        if isinstance(name, str) and is_name(name):
            derived["underlying_topic"] = name
        underlying = given.get("underlying_topic", derived.get("underlying_topic"))
        if isinstance(underlying, str) and is_name(underlying):
            derived["default_publish_target"] = underlying
        concurrency = given.get("group_concurrency")
        if given.get("group_by") is not None:
            derived["group_concurrency"] = 1
        if given.get("group_by") is not None or concurrency is not None:
            derived["on_group_failure"] = "hold" if concurrency in (None, 1, "1") else "pass"
            derived["group_choice"] = "first"
            derived["group_batch"] = 1
        derived |= _bursts(given)
        delay = given.get("redelivery_delay", Interval(0))
        derived["max_redelivery_delay"] = Interval(10 * _interval_or_zero(delay))
        return derived

    @classmethod
    def _conflicts(cls, given: Mapping[str, Any]) -> Iterator[Fault]:
        fairness = given.get("fairness_model")
        if given.get("semantics") == "at-most-once" and fairness in ("fast", "proportional"):
            yield Fault(
                "fairness_model",
                f"{fairness!r} does not go with semantics 'at-most-once', which delivers to subscriptions "
                "in turn; allowed: 'round-robin'",
            )
        for (element, other), reason in _EXCLUSIVE.items():
            if element in given and given.get(other, NO_RING) != NO_RING:
                yield Fault(other, f"does not go with {element}, {reason}; allowed: one of the two")
        yield from type_conflicts(given)
        yield from _redelivery_conflicts(given)
        yield from _group_conflicts(given)
        yield from _rate_conflicts(given)
        underlying, target = given.get("underlying_topic"), given.get("default_publish_target")
        if isinstance(underlying, str) and (target is None or isinstance(target, str)):
            yield from _target_conflicts(underlying, target)


class LocalQueue(Queue):
    """A queue of this instance alone: each instance that has the topics delivers its own copy of every message.

    It is never replicated; the topics under it may be. Its elements are those of `Queue`.
    """

    @property
    def owner(self) -> str:
        """Everybody owns the copies that are there."""
        return ""


class GroupLocalQueue(Queue):
    """A queue that some instances share, those of one domain: each message is at first `initial_owner`'s.

    It is known by its name and its domain: queues of one name and different domains are different queues, whose
    messages are each delivered once in every domain, and no link replicates the one to the other. Its elements are
    those of `Queue` and:

    Attributes:
        initial_owner: the name of the instance that owns a message when it enters the queue, wherever it was published;
            the same on every instance of the domain. Required.
        group_local_queue_domain: the same on every instance that shares the queue. Default: the group of the instance.
    """

    initial_owner: Name = _NOT_GIVEN
    group_local_queue_domain: Name | None = None

    @property
    def owner(self) -> str:
        """The instance that every message is at first owned by."""
        return self.initial_owner

    def domain(self, group: str) -> str:
        """Return the text that tells it from other queues of its name, on an instance of this group."""
        return self.group_local_queue_domain or group

    @classmethod
    def _conflicts(cls, given: Mapping[str, Any]) -> Iterator[Fault]:
        yield from super()._conflicts(given)
        if "group_concurrency" in given:
            yield Fault(
                "group_by" if "group_by" in given else "group_concurrency",
                "a GroupLocalQueue is shared by instances, each of which would deliver a part of a group; allowed: in "
                "a LocalQueue, or a Queue that no destination is sent",
            )
        if "rate" in given:
            yield Fault(
                "rate",
                "a GroupLocalQueue is shared by instances, each of which would deliver at this rate; allowed: in a "
                "LocalQueue, or a Queue that no destination is sent",
            )
        if "initial_owner" not in given:
            yield Fault("initial_owner", "missing; allowed: the name of the instance that owns a message at first")


#: Under this name, which no element has, the catalog keeps which kind of queue a definition is.
_KIND: Final = "kind"
_KINDS: Final[Mapping[str, type[Queue]]] = {kind.__name__: kind for kind in (Queue, LocalQueue, GroupLocalQueue)}

_EXCLUSIVE = {
    ("priority", "barrier_expression"): "which leaves no order in which a message could be before or behind a barrier",
    (
        "priority",
        "target_queue_depth",
    ): "which is looked for among all messages that wait, so that none may be left out",
    ("barrier_expression", "target_queue_depth"): "which has to be judged for every message that waits",
    ("priority", "ring_size"): "which leaves no oldest message to give way to a new one",
    ("barrier_expression", "ring_size"): "whose barriers must not be evicted",
}
"""Pairs of elements that no queue has both of, and what is so about the first."""


_NOT_WITH_GROUPS: Final[Mapping[str, str]] = {
    "priority": "since messages of one group are delivered in the order in which they were recorded",
    "barrier_expression": "which would wait for every group, and every group for it",
    "ring_size": "which evicts messages that later ones of their group wait for",
    "target_queue_depth": "which one group that waits would fill, so that all others were hidden",
}


def _interval_or_zero(value: object) -> Interval:
    try:
        return Interval.parse(value)
    except DefinitionError:
        return Interval(0)


def _redelivery_conflicts(given: Mapping[str, Any]) -> Iterator[Fault]:
    delay, most = (_interval_or_zero(given.get(name, 0)) for name in ("redelivery_delay", "max_redelivery_delay"))
    if most < delay:
        yield Fault(
            "max_redelivery_delay",
            f"{most.text!r} is shorter than redelivery_delay, {delay.text!r}; allowed: as long or longer",
        )


def _group_conflicts(given: Mapping[str, Any]) -> Iterator[Fault]:
    """Refuse what would break the order of a group, or count for nothing."""
    if "group_concurrency" not in given:
        for element in (
            "on_group_failure",
            "group_choice",
            "group_weight",
            "group_rate",
            "group_batch",
            "group_affinity",
        ):
            if element in given:
                yield Fault(element, "the queue has no groups; allowed: with group_by, or group_concurrency")
        return
    if "group_weight" in given and given.get("group_choice", "first") in ("first", "round_robin"):
        yield Fault(
            "group_weight",
            f"counts for nothing with group_choice {given.get('group_choice', 'first')!r}, by which no shares are "
            "compared; allowed: with group_choice 'fair'",
        )
    yield from _batch_conflicts(given)
    element = "group_by" if "group_by" in given else "group_concurrency"
    for other, reason in _NOT_WITH_GROUPS.items():
        if given.get(other, NO_RING) != NO_RING:
            yield Fault(other, f"does not go with {element}, {reason}; allowed: one of the two")
    if given.get("semantics") == "at-most-once":
        yield Fault(
            "semantics",
            f"'at-most-once' does not go with {element}: a message is settled when it is sent, so that the next of its "
            "group would not wait for it; allowed: 'at-least-once'",
        )


def _batch_conflicts(given: Mapping[str, Any]) -> Iterator[Fault]:
    """Refuse batches where messages of a group may overtake each other."""
    batch = given.get("group_batch", 1)
    if batch in (1, "1"):
        return
    if given["group_concurrency"] not in (1, "1"):
        yield Fault(
            "group_batch",
            f"does not go with a group_concurrency of {given['group_concurrency']}: a batch is handled in its order by "
            "one subscription, and another one would be handled beside it; allowed: group_concurrency 1, or no batches",
        )
    if given.get("on_group_failure") == "pass":
        yield Fault(
            "group_batch",
            "does not go with on_group_failure 'pass', by which the messages behind a failed one go on, while those of "
            "a batch come back with it; allowed: 'hold' or 'stop'",
        )


def _bursts(given: Mapping[str, Any]) -> dict[str, int]:
    """Work out the bursts of rates that are given."""
    bursts = {}
    for element in ("rate", "group_rate"):
        try:
            bursts[f"{element}_burst"] = Rate.parse(given[element]).usual_burst
        except (KeyError, DefinitionError):
            continue
    return bursts


def _rate_conflicts(given: Mapping[str, Any]) -> Iterator[Fault]:
    for element in ("rate", "group_rate"):
        if f"{element}_burst" in given and element not in given:
            yield Fault(f"{element}_burst", f"there is no {element}; allowed: with {element}, as in {element}='10/s'")


def _target_conflicts(underlying: str, target: str | None) -> Iterator[Fault]:
    """Check that a publish to a queue's name would come back into the queue."""
    element = "default_publish_target"
    if is_name(underlying):
        if target is not None and is_name(target) and target != underlying:
            yield Fault(element, f"{target!r} does not feed the queue; allowed: its underlying_topic, {underlying!r}")
        return
    try:
        pattern = pattern_of(underlying)
    except DefinitionError:
        return
    if target is None:
        yield Fault(
            element,
            f"missing; underlying_topic {shown(underlying)} is a regular expression, since it has characters "
            "that no name has; allowed: the name of one topic that it matches",
        )
    elif is_name(target) and not pattern.search(target):
        yield Fault(
            element,
            f"{target!r} does not feed the queue; allowed: a topic that its underlying_topic, "
            f"{shown(underlying)}, matches",
        )
