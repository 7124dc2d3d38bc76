"""The synchronous client: publish to topics, define queues, subscribe to them."""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Literal, Self

from ampsq.delivery import Bookmarks, Message
from ampsq.errors import AmpsqError, Closed
from ampsq.explain import explain
from ampsq.presence import Presence
from ampsq.row_subscription import RowSubscription
from ampsq.session import Session
from ampsq.store import Store, redacted
from ampsq.subscription import SubscriptionCore
from ampsq.values import Interval

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import timedelta
    from types import EllipsisType

    from ampsq.applying import Outcome, Planned
    from ampsq.calls import Verb
    from ampsq.embedded import EmbeddedServer
    from ampsq.explain import Explanation
    from ampsq.models import Definition, Queue, View
    from ampsq.query import SowMessage
    from ampsq.server import Server
    from ampsq.session import QueueStats
    from ampsq.values import Bookmark

__all__ = ["Address", "Client", "Subscription"]

_log = logging.getLogger("ampsq")
AppendFsync = Literal["everysec", "always"]
#: Seconds of one wait inside an endless one: so often a closed subscription is noticed.
_STEP = 1.0
#: Seconds for which closing tries to reach a server that is away: what it holds comes back by itself.
_CLOSE_PATIENCE = 1.0
#: Messages that one `publish_many` call records by default.
_BATCH = 100


class Address:
    """Where the server is: the address given, else ``AMPSQ_URL``, else the embedded one, which is started."""

    def __init__(self, url: str | None, data_dir: str | os.PathLike[str], appendfsync: AppendFsync) -> None:
        self._data_dir, self._appendfsync = data_dir, appendfsync
        self._embedded: EmbeddedServer | None = None
        self._changing = threading.Lock()
        found = url or os.environ.get("AMPSQ_URL")
        if found:
            self.url = found
        else:
            self._acquire()

    def _acquire(self) -> None:
        from ampsq.embedded import acquire  # noqa: PLC0415  (needs the extra `embedded`)

        former, self._embedded = self._embedded, acquire(self._data_dir, appendfsync=self._appendfsync)
        self.url = self._embedded.url
        if former is not None:
            former.release()

    def revive(self) -> None:
        """Bring the embedded server back, where it is one: it keeps its address and its data."""
        with self._changing:
            if self._embedded is not None:
                try:
                    self._acquire()
                except AmpsqError as error:
                    _log.warning("the embedded server does not come back: %s", error)

    def release(self) -> None:
        """Stop using the embedded server."""
        with self._changing:
            embedded, self._embedded = self._embedded, None
            if embedded is not None:
                embedded.release()


class Client:
    """A connection to one instance. Threads may share it.

    Args:
        url: ``redis://``, ``rediss://`` or ``unix://``; default ``AMPSQ_URL``, else the embedded server in
            `data_dir`, started with a coordinator beside it, which lives as long as somebody uses it.
        instance: the instance's name; default ``AMPSQ_INSTANCE``, else ``ampsq``.
        publisher: makes publishing repeatable: messages are numbered under this name and recorded once each, so a
            lost reply is answered by asking again. One process at a time may use a name.
        ack_timeout: how long an acknowledgement may wait for its batch.
        patience: how long a call that may be repeated is repeated while the server cannot be reached.
        data_dir: the embedded server's folder.
        appendfsync: of the embedded server: ``always`` never loses what was answered, and at-most-once needs it;
            ``everysec`` (default) is several times faster.

    Raises:
        Unavailable: there is no server. ServerUnsuitable: it is too old, or would lose messages.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        instance: str | None = None,
        publisher: str | None = None,
        ack_timeout: timedelta | float | str = "250ms",
        patience: timedelta | float | str = "15s",
        data_dir: str | os.PathLike[str] = ".ampsq",
        appendfsync: AppendFsync = "everysec",
    ) -> None:
        self._session = Session(instance or os.environ.get("AMPSQ_INSTANCE") or "ampsq", publisher)
        self._patience = Interval.parse(patience) / 1000
        self._address = Address(url, data_dir, appendfsync)
        found = self._address.url
        self._store = Store(found, self._session.instance, patience=self._patience, revive=self._address.revive)
        self._presence = Presence(
            found, self._session.instance, self._session.client, Interval.parse(ack_timeout) / 1000
        )
        self._subscriptions: list[Subscription] = []
        # A publisher's numbers must reach the server in their order.
        self._publishing = threading.RLock()
        self._closed = False
        try:
            self._store.run(self._session.connect())
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<Client of {self.instance} at {redacted(self.url)}>"

    @property
    def instance(self) -> str:
        """The instance's name."""
        return self._session.instance

    @property
    def origin(self) -> str:
        """Where messages published here come from: the instance's name and its incarnation."""
        return self._session.origin

    @property
    def url(self) -> str:
        """The server's address."""
        return self._store.url

    @property
    def server(self) -> Server:
        """The server as it was at connect: version, durability, notes on what is badly configured."""
        if self._session.server is None:
            raise Closed("the client never connected")
        return self._session.server

    def apply(self, *definitions: Definition) -> list[tuple[Definition, Outcome]]:
        """Define topics, queues, views and actions, or change them; what is already so is left alone.

        A definition is whole: an element left out goes back to its default. `plan` says what would change.

        Returns:
            Each definition, in the order of work, with ``new``, ``changed`` or ``unchanged``.

        Raises:
            DefinitionError: a change is refused while the queue exists (`ampsq.models.CHANGES` says which are).
            ServerUnsuitable: an at-most-once queue on a server that could bring a delivered message back.
        """
        return self._store.run(self._session.apply(definitions))

    def plan(self, *definitions: Definition) -> list[Planned]:
        """Say what `apply` would do with these definitions, and do nothing.

        Returns:
            For each, in the order of work: `definition`, `outcome` and `changes` (element -> value before and after).

        Raises:
            As `apply` does.
        """
        return self._store.run(self._session.plan(definitions))

    def publish(
        self, topic: str, data: Any, *, headers: Mapping[str, str] | None = None, sequence: int | None = None
    ) -> Bookmark:
        """Record one message.

        Args:
            topic: a topic, or a queue, whose `default_publish_target` gets it. A new topic is made.
            data: bytes go as they are, everything else is JSON.
            headers: names and values, texts.
            sequence: with a `publisher`: the message's number; default the next one. A number that is recorded
                already records nothing and answers the first record's bookmark (with an empty ID where that record
                is too far back to be found).

        Raises:
            Unavailable: no answer. Without a `publisher` the message may or may not be recorded.
            ServerFull: the server's memory is full; nothing was recorded.
        """
        with self._publishing:
            return self._store.run(self._session.publish(topic, data, headers, sequence))

    def publish_many(
        self,
        topic: str,
        messages: Iterable[Any],
        *,
        batch: int = _BATCH,
        headers: Mapping[str, str] | None = None,
    ) -> Sequence[Bookmark]:
        """Record many messages, `batch` (1 to 500) a call, the next one prepared while the last is recorded.

        Returns:
            Their bookmarks, in order, made when they are looked at.
        """
        bookmarks = Bookmarks(self.origin)
        with self._publishing:
            calls = self._session.batches(topic, messages, batch, headers)
            for call in calls:
                self._session.note(bookmarks, self._store.run(self._session.publish_first(topic, call)))
                break
            for published in self._store.stream(calls):
                self._session.note(bookmarks, published)
        return bookmarks

    def subscribe(
        self,
        name: str,
        *,
        max_backlog: int = 1,
        filter: str | None = None,  # noqa: A002  (AMPS's word, and the element's)
        renew: bool = False,
        on_message: Callable[[Message], object] | None = None,
    ) -> Subscription:
        """Subscribe to a queue, or to all queues that a regular expression matches, later ones included.

        Args:
            name: the queue or the regular expression.
            max_backlog: unacknowledged messages at most, over all its queues together; the effective one is also
                limited by the queues' `max_per_subscription_backlog`. 0 gets barriers only.
            filter: only messages that this expression matches (docs/expressions.md); default all. Other messages,
                however many, cost nothing on the way to the next one. A body that is not JSON matches no filter.
            renew: extend the leases of this subscription as long as this process lives; default False: a lease
                lapses unless the message is settled or extended.
            on_message: called with each message in a thread of the subscription's own; it settles the message. One
                that raises is logged, and its message cancelled. Without it, iterate or call `get`.

        Raises:
            UnknownQueue: no queue has this name. ExpressionError: the filter is wrong.
            TooManyFilters: the queue's subscriptions have 32 distinct filters already.
        """
        if self._closed:
            raise Closed("this client was closed")
        request = self._session.request()
        core = SubscriptionCore(self.instance, name, max_backlog, request, text=filter, renewed=renew)
        self._presence.start()
        self._store.run(core.register())
        self._presence.add(core)
        subscription = Subscription(core, self._store, self._session.origin, self._end)
        self._subscriptions.append(subscription)
        if on_message is not None:
            subscription.run(on_message)
        return subscription

    def ack(
        self,
        queue: str,
        bookmarks: Iterable[Bookmark | str] | str | None = None,
        option: str = "ack",
        *,
        filter: str | None = None,  # noqa: A002  (AMPS's word)
        dry_run: bool = False,
    ) -> int:
        """Settle messages of a queue, delivered or not: by bookmark, or all that match a filter.

        Args:
            queue: the queue.
            bookmarks: of the messages, or of one; or
            filter: an expression: all available and leased messages that match it (AMPS's ``sow_delete`` with a
                filter). Of a queue with `target_queue_depth` only the active part; what comes meanwhile is left alone,
                and so is what is delayed.
            option: ``ack``, ``cancel`` (leased ones only) or ``expire``.
            dry_run: with a filter: only count.

        Returns:
            How many were settled. By bookmark: all of them. By filter: one that somebody else settled meanwhile, or
            that `leasing` ``strict`` protects, is no error and does not count.

        Raises:
            Rejected: of the first bookmark refused; `detail` tells how many were, and how many were settled.
            DefinitionError: neither bookmarks nor a filter, or both. ExpressionError: the filter is wrong.
        """
        return self._store.run(self._session.ack(queue, bookmarks, option, filter, dry_run=dry_run))

    def sow(
        self,
        name: str,
        filter: str | None = None,  # noqa: A002  (AMPS's word)
        *,
        order_by: str | Sequence[str] = (),
        top_n: int | None = None,
        skip_n: int | None = None,
    ) -> list[SowMessage]:
        """Query a queue or a view, without taking anything: AMPS's ``sow``.

        Of a queue, the messages that are available now are looked at, in bounded steps up to the end that stood when
        the query began: each at most once; one that is leased or settled before its step is not seen, and neither is
        one that comes back behind it. Of a view, its rows.

        Args:
            name: a queue or a view.
            filter: an expression; default everything.
            order_by: an expression or several, each with ``ASC`` (default) or ``DESC``; default the order of delivery.
            top_n: at most so many.
            skip_n: without so many at the beginning; needs `top_n` and `order_by`.

        Raises:
            UnknownQueue: there is neither a queue nor a view of this name. DefinitionError: an argument is wrong.
        """
        return self._store.run(self._session.sow(name, filter, order_by, top_n, skip_n))

    def aggregate(
        self,
        name: str,
        projection: Sequence[str],
        grouping: Sequence[str] = (),
        filter: str | None = None,  # noqa: A002  (AMPS's word)
    ) -> RowSubscription:
        """Subscribe to an aggregate of a queue's available messages, or of topics: rows that change as those do.

        Leased messages are not counted, those that return are again; nothing is leased. The client itself keeps the
        rows up to date; for many readers define a `View` instead, which a coordinator keeps. A group whose last
        message is gone gives one more row, as it is of no messages: ``COUNT`` 0, ``SUM`` None.

        Args:
            name: a queue, a topic, or a regular expression of topics.
            projection: what a row has, as in ``SUM(/price * /qty) AS /value``.
            grouping: identifiers, as in ``/symbol``; default one row for all.
            filter: an expression; default everything.
        """
        follower = self._store.run(self._session.aggregate(name, projection, grouping, filter))
        return RowSubscription(follower, self._store)

    def explain(self, queue: str, bookmark: Bookmark | str | None = None) -> Explanation:
        """Say why a message is where it is; by default the head of the queue, which is to be delivered next."""
        return self._store.run(explain(self._session, queue, bookmark))

    def queue_stats(self, queue: str) -> QueueStats:
        """Read a queue's figures."""
        return self._store.run(self._session.queue_stats(queue))

    def queues(self) -> dict[str, Queue]:
        """Read the definitions of all queues, by name."""
        return self._store.run(self._session.queues())

    def views(self) -> dict[str, View]:
        """Read the definitions of all views, by name."""
        return self._store.run(self._session.views())

    def topics(self) -> dict[str, dict[str, Any]]:
        """Read all topics by name: ``messages``, ``last`` (bookmark) and ``queues``."""
        return self._store.run(self._session.topics())

    def _end(self, subscription: Subscription, core: SubscriptionCore) -> None:
        self._presence.remove(core)
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    def close(self) -> None:
        """Close the subscriptions, giving back what is unstarted, and the connections. Safe to call again."""
        if self._closed:
            return
        self._closed = True
        self._store.patience = min(self._store.patience, _CLOSE_PATIENCE)
        try:
            for subscription in list(self._subscriptions):
                subscription.close()
        finally:
            self._presence.stop()
            self._store.close()
            self._address.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Subscription:
    """Messages pushed to one consumer: iterate over it, or call `get`. Made by `Client.subscribe`."""

    def __init__(
        self,
        core: SubscriptionCore,
        store: Store,
        origin: str,
        end: Callable[[Subscription, SubscriptionCore], None],
    ) -> None:
        self._core, self._store, self._origin, self._end = core, store, origin, end
        self._channel = store.channel()
        self._lock = threading.RLock()
        # Who waits for the lock to change the subscription holds this, so that readers, who take the lock again and
        # again, let it in: the lock itself is not fair.
        self._turnstile = threading.Lock()
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"<Subscription {self._core}>"

    @property
    def id(self) -> str:
        """Its name on the instance."""
        return self._core.id

    @property
    def max_backlog(self) -> int:
        """The effective backlog: the least of what was asked and of the queues' limits."""
        return self._core.max_backlog

    @property
    def late(self) -> list[Exception]:
        """Acknowledgements of batches that came too late, at most the last thousand."""
        return list(self._core.late)

    def get(self, timeout: timedelta | float | str | None = None) -> Message | None:
        """Wait for the next message.

        Args:
            timeout: how long; default until there is one or the subscription is closed.

        Returns:
            The message; None when the time is over.

        Raises:
            Closed: the subscription is closed.
        """
        until = None if timeout is None else time.monotonic() + Interval.parse(timeout) / 1000
        buffer = self._core.buffer
        while True:
            with self._turnstile:
                pass
            with self._lock:
                if buffer:
                    return Message(*buffer.popleft(), self._origin, self)
                if self._core.closed:
                    raise Closed("this subscription was closed")
                wait = _STEP if until is None else min(until - time.monotonic(), _STEP)
                self._store.run(self._core.fetch(self._channel, max(wait, 0.0)))
                if not buffer and until is not None and time.monotonic() >= until:
                    return None

    def __iter__(self) -> Iterator[Message]:
        core, origin, buffer = self._core, self._origin, self._core.buffer
        while not core.closed:
            try:
                # Taking from a deque is atomic: threads that share the iterator never get the same message.
                parts, body = buffer.popleft()
            except IndexError:
                with self._turnstile:
                    pass
                with self._lock:
                    if not buffer and not core.closed:
                        self._store.run(core.fetch(self._channel, _STEP))
                continue
            yield Message(parts, body, origin, self)

    def run(self, on_message: Callable[[Message], object]) -> None:
        """Call a function with each message, in a thread, until the subscription is closed."""
        self._thread = threading.Thread(target=self._run, args=(on_message,), name=f"ampsq-{self.id}", daemon=True)
        self._thread.start()

    def _run(self, on_message: Callable[[Message], object]) -> None:
        for message in self:
            try:
                on_message(message)
            except Exception:  # noqa: BLE001  (whatever a handler raises is an answer)
                _log.exception("handler of %r failed; its message is cancelled", message)
                try:
                    message.cancel()
                except AmpsqError as error:
                    _log.warning("%r could not be cancelled: %s", message, error)

    def acknowledge(self, message: Message, *, wait: bool) -> None:
        """See `Message.ack`."""
        if self._core.closed and not wait:
            raise Closed("this subscription was closed, and its unacknowledged messages went back to their queues")
        if wait:
            self._store.run(self._core.settle(message, "acknowledged", 0))
        elif self._core.acknowledge(message) and not self._core.buffer:
            self._store.run(self._core.flush())

    def settle(self, message: Message, verb: Verb, period: int) -> None:
        """See `Message.cancel`, `Message.expire` and `Message.extend`."""
        self._store.run(self._core.settle(message, verb, period))

    def flush(self) -> None:
        """Send the acknowledgements collected so far, and wait until they are done."""
        self._store.run(self._core.flush())

    def replace(
        self,
        *,
        name: str | None = None,
        max_backlog: int | None = None,
        filter: str | EllipsisType | None = ...,  # noqa: A002  (AMPS's word)
    ) -> None:
        """Ask for something else from now on, at once: other queues, another backlog, another filter, or all of them.

        Leases stay, also of messages that do not match any more and beyond the new backlog: then nothing is delivered
        until enough of them are settled. What was delivered and not yet handed out goes back to its queue, uncounted,
        so nothing is handed out from here on that the new wish does not want (AMPS, *Replacing Queue Subscriptions*).

        Args:
            name: a queue or a regular expression of queues; default as before.
            max_backlog: unacknowledged messages at most; default as before.
            filter: an expression, or None for everything; default as before.

        Raises:
            UnknownQueue, ExpressionError, TooManyFilters: as of `Client.subscribe`; then all is as before.
            Closed: the subscription is closed.
        """
        core = self._core
        with self._turnstile, self._lock:
            if core.closed:
                raise Closed("this subscription was closed")
            self._store.run(core.replace(self._channel, *core.wish_with(name, max_backlog, filter)))

    def give_back(self) -> None:
        """Ask for no more messages, and return those not handed out, uncounted."""
        with self._turnstile, self._lock:
            self._store.run(self._core.give_back(self._channel))

    def close(self) -> None:
        """End the subscription: acknowledgements are sent, messages not handed out go back uncounted."""
        if self._core.closed:
            return
        self._core.closed = True
        with self._turnstile, self._lock:
            self._store.run(self._core.close(self._channel))
            self._channel.close()
        self._end(self, self._core)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
