"""An instance for a test, whose time is the test's."""

from __future__ import annotations

import secrets
import threading
import time
from typing import TYPE_CHECKING, Final, Self

from ampsq.app import AppWorkers, apply_definitions
from ampsq.base.bookmarks import parse_ref
from ampsq.base.errors import UnknownQueue
from ampsq.base.name_patterns import matches_name
from ampsq.base.values import Interval, shown
from ampsq.client.async_client import AsyncClient
from ampsq.client.client import Client
from ampsq.definitions.queue import Queue
from ampsq.expressions import parse
from ampsq.expressions.values import first, text_of
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.encoding import decode_body
from ampsq.protocol.entries import body_in, group_in, read_entry
from ampsq.protocol.reads.journals import read_journal
from ampsq.protocol.reads.streams import find_entry, log_of
from ampsq.testing.clock import Clock
from ampsq.testing.duties import HeldDuties
from ampsq.testing.relay import Relay
from ampsq.testing.servers import backend_of
from ampsq.topics.message import document_of
from ampsq.transport.shared_keepalive import SharedKeepalive
from ampsq.transport.store import Store

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from ampsq.app import App
    from ampsq.protocol.calls.queue_stats import QueueStats

__all__ = ["HeldInstance"]

_PAGE: Final = 500
#: Seconds between two looks at whether handlers have something to do.
_LOOKS: Final = 0.01


def _is_meant(queue: str, named: str) -> bool:
    return matches_name(named, queue)


def _is_busy(stats: QueueStats) -> bool:
    return bool(stats.waiting or stats.ready or stats.leased)


class HeldInstance:
    """An instance whose clock stands until the test moves it; `ampsq.testing.Instance`.

    Every script and every duty is given this clock: leases lapse, delays and schedules come due, messages expire and
    actions run when `advance` says so, and at no other time. Clients, of this process and of others, use it by its
    `url`; the program under test is given that, or the test sets `AMPSQ_URL` to it.

    Three duties are not done: links to other instances, whose lag and losses are a matter of two machines; rebuilds
    that somebody began and did not end, which wait for a sign of life by the machine's time; and noting how the server
    flushes, which clients ask it for themselves.

    In memory it has all message types, but no persistence, no links to other instances, no server functions and no
    users, its `retention_size` counts the bytes of messages alone, and every script runs under one lock. What clients
    do by their own clock stays with the machine's: how long `get` waits, when a batch of acknowledgements is sent, and
    when a worker renews a lease, so that `advance` beyond a lease period ends the lease of a handler that runs, and
    how long a handler takes. From publishing to delivery counts by the instance's clock, as a client of this process
    knows it since `advance`, and another one since its last sign of life.

    Args:
        server: ``memory`` (default), ``embedded``, or the address of one server, where it has a name of its own and
            is removed when it is closed.

    Attributes:
        name: the instance's name.
        url: the address for clients, with the name.

    Raises:
        DefinitionError: `server` is none of these. ServerUnsuitable: the package that it needs is not installed.
    """

    def __init__(self, server: str = "memory") -> None:
        self.name = f"test-{secrets.token_hex(4)}"
        backend = backend_of(server, self.name)
        self._clock = Clock(Clock().milliseconds)
        self._relay = Relay(backend, self._clock)
        self.url = f"{self._relay.url}#{self.name}"
        self._moving = threading.RLock()
        self._store = Store(self._relay.url, self.name, retry_timeout=5.0)
        try:
            # Opens the instance, as the first client of any does.
            self._client = Client(self.url)
        except BaseException:
            self._store.close()
            self._relay.close()
            raise
        self._duties = HeldDuties(self._store, self._clock)

    def __repr__(self) -> str:
        return f"<Instance {self.name} at {self.now.isoformat()}>"

    @property
    def now(self) -> datetime:
        """The time of the instance, UTC."""
        return self._clock.now

    @property
    def client(self) -> Client:
        """A client of it, which is closed with it."""
        return self._client

    def async_client(self) -> AsyncClient:
        """Make a client for asyncio, to be used with ``async with``."""
        return AsyncClient(self.url)

    def advance(self, period: timedelta | float | str) -> None:
        """Move the time on, and do in order all that a coordinator would do until then.

        Args:
            period: how far, as in ``"30s"``; 0 does what is to be done now.

        Raises:
            DefinitionError: it is no period.
        """
        milliseconds = int(Interval.parse(period))
        with self._moving:
            # What clients of this process have measured belongs to the time before; behind it they learn the new one.
            SharedKeepalive.show_now(self._relay.url)
            self._duties.advance_to(self._clock.milliseconds + milliseconds)
            SharedKeepalive.show_now(self._relay.url)

    def handle(self, app: App, timeout: timedelta | float | str = "30s") -> None:
        """Run an app's handlers until none of their queues has a message that may be delivered now.

        What failed and is delayed comes with `advance`. The app's definitions are applied, as its worker does it.

        Args:
            app: the app.
            timeout: how long that may take, by the machine's time.

        Raises:
            TimeoutError: messages are still there, with their queues; a handler may hang.
            AmpsqError: a queue is unknown, or a definition is refused. DefinitionError: as of `App.run`.
        """
        until = time.monotonic() + Interval.parse(timeout) / 1000
        apply_definitions(self._client, app)
        with self._moving:
            self._duties.work()
        # What the threads need is imported here: pytest's imports cannot take place in several threads at once.
        # It matches no name, which cannot be told of a pattern that looks ahead: one without would be refused.
        with self._client.subscribe("(?!)"):
            workers = AppWorkers(app, self._client, "5s")
        failures: list[BaseException] = []

        def run() -> None:
            try:
                workers.run()
            except BaseException as error:  # noqa: BLE001  (raised again below)
                failures.append(error)

        thread = threading.Thread(target=run, name="ampsq-testing-app", daemon=True)
        thread.start()
        try:
            left = self._wait_for(workers, thread, until)
        finally:
            workers.stop()
            thread.join()
        if failures:
            raise failures[0]
        with self._moving:
            self._duties.work()
        if left:
            raise TimeoutError(f"after {shown(timeout)} messages are still in {', '.join(left)}; does a handler hang?")

    def _wait_for(self, workers: AppWorkers, thread: threading.Thread, until: float) -> list[str]:
        """Wait until the workers have nothing to do, or one takes no more; gives the queues that are not done."""
        names = [each.queue for each in workers.workers]
        left = names
        while left and thread.is_alive() and time.monotonic() < until:
            if all(each.halted for each in workers.workers):
                return []
            time.sleep(_LOOKS)
            queues = [name for name in self._client.admin.queues() if any(_is_meant(name, each) for each in names)]
            left = [name for name in queues if _is_busy(self._client.admin.queue_stats(name))]
        return left

    def settled(self, queue: str, *, group: str | None = None) -> list[tuple[str, object]]:
        """List what a queue has settled, in that order: how, and the message's data.

        How is ``acknowledged``, ``expired``, ``missing`` or another word of the queue's journal (docs/message-life.md).

        Args:
            queue: the queue.
            group: of this group alone; None: all messages.

        Raises:
            UnknownQueue: there is no such queue.
        """
        store, found, after = self._store, list[tuple[str, object]](), "0"
        definition = self._check(queue)
        while page := store.call(read_journal(self.name, queue, after, _PAGE)):
            for entry in page:
                places = [parse_ref(ref.decode()) for ref in entry.refs]
                meant = [each for each in places if group is None or self._group(definition, *each) == group]
                found += [(entry.how, self._data(*each)) for each in meant]
            after = page[-1].id
        return found

    def _check(self, queue: str) -> Queue:
        with self._moving:
            self._duties.work()
        queues = self._store.call(catalog_calls.catalog()).queues
        if queue not in queues:
            raise UnknownQueue(queue=queue)
        return Queue.from_json(queues[queue])

    def _group(self, queue: Queue, topic: str, stream_id: str) -> str | None:
        """Return the group of a message in a queue; None where it is in none, or its entry is gone."""
        entry = self._store.call(find_entry(self.name, log_of(topic), stream_id))
        if entry is None:
            return None
        name = group_in(read_entry(entry[1])[0])
        if not name and queue.group_by is not None:
            document = document_of((topic, *entry), self._client.origin, self.name, queue.type)
            value = first(parse(queue.group_by, "group").value(document))
            name = b"" if value is None else text_of(value)
        return name.decode(errors="replace") or None

    def _data(self, topic: str, stream_id: str) -> object:
        found = self._store.call(find_entry(self.name, log_of(topic), stream_id))
        if found is None:
            return None
        fields, _ = read_entry(found[1])
        body = body_in(fields)
        if body is None:
            return {name.decode(): value.decode(errors="replace") for name, value in fields.items()}
        return decode_body(body, self._store.call(catalog_calls.catalog()).message_type(topic))

    def dead_letters(self, queue: str, *, group: str | None = None) -> list[tuple[str, object]]:
        """List the dead letters that wait in a queue of such, in that order: why, and the message's data.

        Why is ``max_deliveries``, ``max_cancels``, ``forced_expire`` or ``time_limit``, or several with commas between.

        Args:
            queue: the queue of letters.
            group: of messages alone that were of this group in the queue that gave them up; None: all.

        Raises:
            UnknownQueue: there is no such queue.
        """
        self._check(queue)
        letters = self._client.admin.dead_letters(queue)
        if group is not None:
            queues = self._store.call(catalog_calls.catalog()).queues
            letters = [
                each for each in letters
                if each.queue in queues
                and self._group(Queue.from_json(queues[each.queue]), each.topic, each.original.id) == group
            ]  # fmt: skip
        return [(",".join(letter.reasons), letter.data) for letter in letters]

    def close(self) -> None:
        """End it: what it has is gone."""
        self._client.close()
        self._store.close()
        self._relay.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
