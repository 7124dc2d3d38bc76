"""What a client knows and does apart from its subscriptions, as flows: `Client` and `AsyncClient` share all of it."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import secrets
import socket
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

from ampsq import calls
from ampsq.delivery import Bookmarks, encode, encode_headers
from ampsq.errors import (
    CatalogChanged,
    DefinitionError,
    Rejected,
    ServerFull,
    ServerUnsuitable,
    UnknownQueue,
    UnknownTopic,
    rejection,
)
from ampsq.flow import command
from ampsq.models import Action, Queue, Topic, refused_changes
from ampsq.schema import BATCH, BYTES, COMPILED, INSTANCES, key
from ampsq.server import Server, examine
from ampsq.values import Bookmark, is_name, parse_name, parse_ref, pattern_of, ref_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ampsq.calls import Catalog, Published, Verb
    from ampsq.flow import Call, Flow
    from ampsq.models import Definition

__all__ = ["Outcome", "QueueStats", "Session"]

_log = logging.getLogger("ampsq")
#: What applying a definition came to.
Outcome = Literal["new", "changed", "unchanged"]
#: Catalog changes between reading and writing; more than this is not chance.
_RACES: Final = 50
#: Scripts count with 53 bits.
_LAST_SEQUENCE: Final = 2**53 - 2 * BATCH
_BASE36: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_VERBS: Final[Mapping[str, Verb]] = {"ack": "acknowledged", "cancel": "cancelled", "expire": "expired"}


def _incarnation() -> str:
    """A name for a new life of an instance: rises with time, so that an emptied server is seen to be another."""
    number, text = time.time_ns() // 1_000_000, ""
    while number:
        number, digit = divmod(number, 36)
        text = _BASE36[digit] + text
    return text + secrets.choice(_BASE36)


class QueueStats:
    """A queue's figures at one moment.

    Attributes:
        depth: messages that are not settled: `waiting`, `ready`, `delayed` and, at least once, `leased` together.
        waiting: recorded and not yet read by the queue; an upper bound after others removed log entries.
        ready: came back and wait.
        delayed: come back later.
        leased: delivered and unacknowledged.
        delivered, acknowledged, expired, returned, missing: events since the queue was defined.
        subscriptions: how many it has.
        topics: topic -> messages that it has there unread.
    """

    __slots__ = (
        "acknowledged", "delayed", "delivered", "depth", "expired", "leased", "missing", "name", "ready",
        "returned", "subscriptions", "topics", "waiting",
    )  # fmt: skip

    def __init__(self, name: str, figures: calls.Figures) -> None:
        def count(field: str) -> int:
            return int(figures.fields.get(field, "0"))

        self.name = name
        self.topics = {topic: max(unread, 0) for topic, (unread, _, _) in figures.topics.items()}
        self.waiting = max(sum(self.topics.values()) - figures.ahead, 0)
        self.ready, self.leased, self.delayed = figures.ready, figures.leased, count("delayed")
        compiled = dict(zip(COMPILED, figures.fields["compiled"].split(), strict=False))
        # At-most-once removes a message when it delivers it; what is unacknowledged only fills a backlog.
        held = 0 if compiled["once"] == "1" else self.leased
        self.depth = self.waiting + self.ready + self.delayed + held
        self.delivered = count("token")
        self.acknowledged, self.expired = count("acknowledged"), count("expired")
        self.returned, self.missing = count("returned"), count("missing")
        self.subscriptions = figures.subscriptions

    def __repr__(self) -> str:
        figures = ", ".join(f"{name}={value!r}" for name, value in self.as_dict().items())
        return f"QueueStats({figures})"

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return {name: getattr(self, name) for name in sorted(self.__slots__)}


def _compiled(queue: Queue) -> list[int]:
    numbers = {
        # At-most-once has nothing to take back: its leases only fill the backlog.
        "lease": 0 if queue.semantics == "at-most-once" else int(queue.lease_period or 0),
        "backlog": queue.max_backlog or 0,
        "deliveries": queue.max_deliveries,
        "cancels": queue.max_cancels,
        "ratio": int(queue.fairness_model == "proportional"),
        "turn": int(queue.fairness_model == "round-robin"),
        "once": int(queue.semantics == "at-most-once"),
        "strict": int(queue.leasing == "strict"),
        "room": queue.max_per_subscription_backlog,
    }
    return [numbers[name] for name in COMPILED]


class Session:
    """A client's identity, its publisher's sequence, and what it knows of the server.

    Args:
        instance: the instance's name.
        publisher: makes publishing repeatable: its messages are numbered, and recorded once each. One process at a
            time may use a publisher's name.
    """

    def __init__(self, instance: str, publisher: str | None) -> None:
        self.instance = parse_name(instance)
        self.publisher = parse_name(publisher) if publisher is not None else ""
        self.client = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self.origin = ""
        self.server: Server | None = None
        self._requests = itertools.count(1)
        self._next_sequence = 1

    def request(self) -> str:
        """A name for one request that may be repeated."""
        return f"{self.client}/{next(self._requests)}"

    def connect(self) -> Flow[None]:
        """Check the server and make the instance ready.

        Raises:
            ServerUnsuitable: the server is too old or would lose messages. FormatMismatch: the instance was written by
                an incompatible version. Unavailable: there is no server.
        """
        self.server = yield from examine()
        for note in self.server.notes:
            _log.warning("%s %s: %s", self.server.kind, self.server.version, note)
        opened = yield calls.open_instance(self.instance, _incarnation())
        self.origin = opened.origin
        if not (yield command(["SISMEMBER", INSTANCES, self.instance], int)):
            # A full server refuses it: then a coordinator must be told the instance's name, and nothing else is lost.
            with contextlib.suppress(ServerFull):
                yield command(["SADD", INSTANCES, self.instance], int)
        if self.publisher:
            publishers = key(self.instance, "publishers")
            last = yield command(["HGET", publishers, self.publisher], lambda reply: reply)
            self._next_sequence = int(last.split(b" ")[0]) + 1 if last else 1

    # -- definitions

    def apply(self, definitions: Iterable[Definition]) -> Flow[list[tuple[Definition, Outcome]]]:
        """Define topics, queues and actions, in that order; what is already so is left alone.

        Raises:
            DefinitionError: a change is refused while the queue exists, or the definitions do not fit together.
        """
        order: dict[type[Definition], int] = {Topic: 0, Queue: 1, Action: 2}
        definitions = list(definitions)
        catalog = yield calls.catalog()
        self._check(catalog, definitions)
        outcomes: list[tuple[Definition, Outcome]] = []
        for definition in sorted(definitions, key=lambda item: order.get(type(item), 3)):
            outcome: Outcome | None = None
            for _ in range(_RACES):
                catalog = yield calls.catalog()
                # The first look counts: later ones see what this call itself has begun.
                outcome = outcome or _outcome(catalog, definition)
                try:
                    if outcome != "unchanged":
                        yield from self._define(catalog, definition)
                except CatalogChanged:
                    continue
                outcomes.append((definition, outcome))
                break
            else:
                raise CatalogChanged(reason=f"the catalog changed {_RACES} times while {definition!r} was applied")
        return outcomes

    def _check(self, catalog: Catalog, definitions: list[Definition]) -> None:
        """Refuse all of the definitions when one of them cannot be, also because of another one of them."""
        topics = {item.name: item.to_json() for item in definitions if isinstance(item, Topic)}
        stored = {item.name: item.to_json() for item in definitions if isinstance(item, Queue)}
        planned = replace(catalog, topics=catalog.topics | topics, queues=catalog.queues | stored)
        queues = {name: Queue.from_json(text) for name, text in planned.queues.items()}
        for definition in definitions:
            outcome = _outcome(catalog, definition)
            if isinstance(definition, Topic):
                _check_topic(queues, definition)
            if isinstance(definition, Queue) and outcome != "unchanged":
                self._check_queue(catalog, definition)
                self._check_names(planned, definition)
        for definition in definitions:
            if isinstance(definition, Action):
                queue = queues.get(definition.queue)
                if queue is None:
                    raise UnknownQueue(queue=definition.queue, action=definition.name)
                known = catalog.actions.get(definition.name)
                if known is not None and Action.from_json(known).queue != definition.queue:
                    raise DefinitionError(
                        f"Action {definition.name!r}: queue: {Action.from_json(known).queue!r} cannot become "
                        f"{definition.queue!r}, whose journal it has not followed; allowed: an action of another name"
                    )
                _check_loop(definition, queue)

    def _check_queue(self, catalog: Catalog, queue: Queue) -> None:
        known = catalog.queues.get(queue.name)
        refused = refused_changes(Queue.from_json(known), queue) if known else []
        if refused:
            raise DefinitionError("\n".join(refused))
        self._check_at_most_once(queue)

    def _define(self, catalog: Catalog, definition: Definition) -> Flow[None]:
        text = definition.to_json()
        if isinstance(definition, Topic):
            yield self._define_topic(catalog, definition.name, text)
        elif isinstance(definition, Queue):
            yield from self._define_queue(catalog, definition, text)
        elif isinstance(definition, Action):
            yield from self._define_action(catalog, definition, text)

    def _define_topic(self, catalog: Catalog, topic: str, text: str) -> Call[None]:
        queues = [name for name, stored in catalog.queues.items() if Queue.from_json(stored).feeds_from(topic)]
        return calls.define_topic(catalog.version, topic, text, queues)

    def _define_queue(self, catalog: Catalog, queue: Queue, text: str) -> Flow[None]:
        target = queue.default_publish_target
        topics = {topic for topic in (*catalog.topics, target) if queue.feeds_from(topic)}
        subscriptions = [
            subscription
            for subscription, pattern in catalog.patterns.items()
            if queue.name not in catalog.queues and _matches(pattern, queue.name)
        ]
        if target not in catalog.topics:
            yield self._define_topic(catalog, target, "{}")
            raise CatalogChanged(reason="the queue's publish target was added")
        alone = "" if queue.is_pattern else queue.underlying_topic
        yield calls.define_queue(
            catalog.version, queue.name, text, _compiled(queue), alone, target, sorted(topics), subscriptions
        )

    def _check_at_most_once(self, queue: Queue) -> None:
        if queue.semantics != "at-most-once" or queue.allow_redelivery_after_crash:
            return
        if self.server is None or not self.server.never_forgets:
            raise ServerUnsuitable(
                f"Queue {queue.name!r}: semantics: 'at-most-once' needs a server that never brings back a delivered "
                "message: appendonly yes and appendfsync always. Configure it so (the embedded one: `ampsq up "
                "--appendfsync always`, Client(appendfsync='always')), or say allow_redelivery_after_crash: true"
            )

    @staticmethod
    def _check_names(catalog: Catalog, queue: Queue) -> None:
        """A queue's name stands for its publish target, so it cannot be a topic of its own as well."""
        target = queue.default_publish_target
        if queue.name != target and queue.name in catalog.topics:
            raise DefinitionError(
                f"Queue {queue.name!r}: name: {queue.name!r} is a topic, and would stand for {target!r} as well; "
                "allowed: a name that no topic has, or the topic itself as underlying_topic"
            )
        for stored in catalog.queues.values():
            other = Queue.from_json(stored)
            if other.name == target and other.default_publish_target != other.name:
                raise DefinitionError(
                    f"Queue {queue.name!r}: default_publish_target: {target!r} is a queue over "
                    f"{other.underlying_topic!r}; allowed: a topic"
                )
            if other.name == queue.underlying_topic and other.underlying_topic != other.name:
                raise DefinitionError(
                    f"Queue {queue.name!r}: underlying_topic: {queue.underlying_topic!r} is a queue over "
                    f"{other.underlying_topic!r}; allowed: a topic, as {other.underlying_topic!r}"
                )

    def _define_action(self, catalog: Catalog, action: Action, text: str) -> Flow[None]:
        if action.topic not in catalog.topics and action.topic not in catalog.queues:
            yield self._define_topic(catalog, action.topic, "{}")
            raise CatalogChanged(reason="the action's topic was added")
        yield calls.define_action(catalog.version, action.name, action.queue, text)

    def add_topic(self, topic: str) -> Flow[None]:
        """Add a topic that is first published to, with the queues whose pattern it matches."""
        parse_name(topic)
        for _ in range(_RACES):
            catalog = yield calls.catalog()
            if topic in catalog.topics or topic in catalog.queues:
                return
            try:
                yield self._define_topic(catalog, topic, "{}")
            except CatalogChanged:
                continue
            return
        raise CatalogChanged(reason=f"the catalog changed {_RACES} times while topic {topic!r} was added")

    # -- publishing

    def publish(self, topic: str, data: Any, headers: Mapping[str, str] | None, sequence: int | None) -> Flow[Bookmark]:
        """Record one message; see `Client.publish`."""
        call = self._publish_call(topic, [encode(data)], [encode_headers(headers)] if headers else [], sequence)
        published = yield from self._published(topic, call)
        if published.number:
            return Bookmark.of(published.topic, self.origin, published.first_id)
        recorded = published.duplicates[0] or (published.topic, "")
        return Bookmark.of(recorded[0], self.origin, recorded[1])

    def publish_first(self, topic: str, call: Call[Published]) -> Flow[Published]:
        """Run the first call of a batch, so that the topic exists for the others."""
        return (yield from self._published(topic, call))

    def _published(self, topic: str, call: Call[Published]) -> Flow[Published]:
        published: Published
        try:
            published = yield call
        except UnknownTopic:
            yield from self.add_topic(topic)
            published = yield call
        return published

    def _publish_call(
        self, topic: str, bodies: Sequence[bytes], headers: Sequence[bytes], sequence: int | None
    ) -> Call[Published]:
        first = self._next_sequence if sequence is None else sequence
        if sequence is not None and not self.publisher:
            raise DefinitionError("sequence needs a publisher: Client(publisher=NAME)")
        if not isinstance(first, int) or isinstance(first, bool) or not 1 <= first <= _LAST_SEQUENCE:
            raise DefinitionError(f"sequence={first!r}: allowed is a whole number from 1 to {_LAST_SEQUENCE}")
        self._next_sequence = max(self._next_sequence, first + len(bodies))
        return calls.publish(topic, bodies, headers, self.publisher, first)

    def batches(
        self, topic: str, messages: Iterable[Any], size: int, headers: Mapping[str, str] | None
    ) -> Iterator[Call[Published]]:
        """Cut messages into calls of at most `size` messages and about a megabyte."""
        if not 1 <= size <= BATCH:
            raise DefinitionError(f"batch={size!r}: allowed is 1 to {BATCH}")
        text = encode_headers(headers)
        bodies: list[bytes] = []
        total = 0
        for data in messages:
            body = data if type(data) is bytes else encode(data)
            bodies.append(body)
            total += len(body)
            if len(bodies) >= size or total >= BYTES:
                yield self._publish_call(topic, bodies, [text] * len(bodies) if text else [], None)
                bodies, total = [], 0
        if bodies:
            yield self._publish_call(topic, bodies, [text] * len(bodies) if text else [], None)

    @staticmethod
    def note(bookmarks: Bookmarks, published: Published) -> None:
        """Add what became of one call."""
        for duplicate in published.duplicates:
            bookmarks.add(*(duplicate or (published.topic, "")))
        if published.number:
            bookmarks.add_run(published.topic, published.first_id, published.number)

    # -- settling and looking

    def ack(self, queue: str, bookmarks: Iterable[Bookmark | str], option: str) -> Flow[int]:
        """Settle messages by bookmark; see `Client.ack`."""
        if option not in _VERBS:
            raise DefinitionError(f"option={option!r}: allowed are 'ack', 'cancel' and 'expire'")
        refs = []
        for text in bookmarks:
            bookmark = Bookmark.parse(text)
            if bookmark.origin != self.origin:
                raise DefinitionError(f"bookmark {str(text)!r} is of origin {bookmark.origin}, not of {self.origin}")
            refs.append(ref_of(bookmark.topic, bookmark.id).encode())
        failures: list[Rejected] = []
        for first in range(0, len(refs), BATCH):
            some = refs[first : first + BATCH]
            refused = yield calls.settle(_VERBS[option], queue.encode(), some, [b""] * len(some))
            failures += [self._refusal(queue, ref, code) for ref, code in refused]
        if failures:
            raise _several(failures, len(refs) - len(failures))
        return len(refs)

    def _refusal(self, queue: str, ref: bytes, code: str) -> Rejected:
        topic, stream_id = parse_ref(ref.decode())
        error = type(rejection(code) or Rejected())
        return error(queue=queue, bookmark=str(Bookmark.of(topic, self.origin, stream_id)))

    def queue_stats(self, queue: str) -> Flow[QueueStats]:
        """Read a queue's figures."""
        figures = yield calls.stats(queue)
        return QueueStats(queue, figures)

    def queues(self) -> Flow[dict[str, Queue]]:
        """Read the definitions of all queues."""
        catalog = yield calls.catalog()
        return {name: Queue.from_json(text) for name, text in sorted(catalog.queues.items())}

    def topics(self) -> Flow[dict[str, dict[str, Any]]]:
        """Read all topics: how many entries, the last ID, the queues that they feed."""
        catalog = yield calls.catalog()
        out: dict[str, dict[str, Any]] = {}
        for topic in sorted(catalog.topics):
            log = key(self.instance, "log", topic)
            length = yield command(["XLEN", log], int)
            last = yield command(["XREVRANGE", log, "+", "-", "COUNT", 1], lambda reply: reply)
            queues = [name for name, text in catalog.queues.items() if Queue.from_json(text).feeds_from(topic)]
            out[topic] = {
                "messages": length,
                "last": str(Bookmark.of(topic, self.origin, last[0][0].decode())) if last else None,
                "queues": sorted(queues),
            }
        return out


def _check_topic(queues: dict[str, Queue], topic: Topic) -> None:
    """A name that stands for another topic cannot be a topic of its own as well."""
    queue = queues.get(topic.name)
    if queue is not None and queue.default_publish_target != topic.name:
        raise DefinitionError(
            f"Topic {topic.name!r}: name: {topic.name!r} is a queue, whose messages go to "
            f"{queue.default_publish_target!r}; allowed: a name that no such queue has"
        )


def _check_loop(action: Action, queue: Queue) -> None:
    """A dead letter must not come back into the queue that gave it up."""
    if queue.feeds_from(action.topic) or action.topic == queue.name:
        raise DefinitionError(
            f"Action {action.name!r}: topic: {action.topic!r} feeds the queue {action.queue!r} itself, "
            "so that a dead letter would come back; allowed: a topic that does not"
        )


def _outcome(catalog: Catalog, definition: Definition) -> Outcome:
    """What applying a definition comes to. A topic that was only used until now is no news either."""
    if isinstance(definition, Topic):
        known = catalog.topics
    elif isinstance(definition, Queue):
        known = catalog.queues
    elif isinstance(definition, Action):
        known = catalog.actions
    else:
        raise DefinitionError(f"{definition!r}: allowed are Topic, Queue and Action")
    text = known.get(definition.name)
    if text is None:
        return "new"
    return "unchanged" if text == definition.to_json() else "changed"


def _matches(pattern: str, name: str) -> bool:
    return pattern == name if is_name(pattern) else pattern_of(pattern).search(name) is not None


def _several(failures: list[Rejected], done: int) -> Rejected:
    """The first refusal, telling how many more there were and how many messages were settled."""
    first = failures[0]
    if len(failures) == 1 and not done:
        return first
    return type(first)(**first.detail, refused=len(failures), settled=done)
