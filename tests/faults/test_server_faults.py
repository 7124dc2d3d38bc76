"""A server that dies and comes back, forgets its scripts, is full, or is emptied, under clients at work."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest
from draining import define
from evidence import check_never_held_twice
from observing import eventually

from ampsq import Client, Worker
from ampsq.base.errors import AmpsqError, FormatMismatch, ServerFull, StaleLease

pytestmark = pytest.mark.slow


class Traffic:
    """A publisher and a consumer in threads, each with a client of its own, and what they saw."""

    def __init__(self, url, instance, *, pause=0.002, backlog=20):
        self._arguments = {"url": url, "instance": instance}
        self._pause, self._backlog = pause, backlog
        self._stopping, self._consuming = threading.Event(), threading.Event()
        self.published, self.handed_out, self.confirmed = [], [], {}
        self.failures = []
        self._threads = [threading.Thread(target=self._run, args=(role,)) for role in (self._publish, self._consume)]
        for thread in self._threads:
            thread.start()

    def _run(self, role):
        try:
            role()
        except BaseException as error:  # noqa: BLE001 - told by the test
            self.failures.append(error)

    def _publish(self):
        with Client(**self._arguments) as client, client.publisher("till-1") as till:
            number = 0
            while not self._stopping.is_set():
                if number % 20 == 10:
                    self.published += [
                        each.bookmark() for each in till.publish_many("orders", range(number, number + 10), batch=3)
                    ]
                    number += 10
                else:
                    self.published.append(till.publish("orders", number).bookmark())
                    number += 1
                self._stopping.wait(self._pause)

    def _consume(self):
        with Client(**self._arguments) as client, client.subscribe("work", max_backlog=self._backlog) as messages:
            while not self._consuming.is_set():
                message = messages.get(0.1)
                if message is None:
                    continue
                self.handed_out.append((message.bookmark, message.delivery, time.monotonic()))
                message.ack(wait=True)
                self.confirmed[message.bookmark] = time.monotonic()

    def finish(self, client):
        """Stop publishing, let everything be consumed, and check that it was handed out rightly."""
        self._stopping.set()
        self._threads[0].join(20)
        assert not self.failures, self.failures
        eventually(lambda: client.admin.queue_stats("work").depth == 0 or self.failures, within=40.0)
        self._consuming.set()
        for thread in self._threads:
            thread.join(20)
        assert not self.failures, self.failures
        # No message came again after its acknowledgement was confirmed, none under the same count twice
        assert all(at < self.confirmed.get(bookmark, at + 1) for bookmark, _, at in self.handed_out)
        assert len({(bookmark, delivery) for bookmark, delivery, _ in self.handed_out}) == len(self.handed_out)

    def end(self):
        self._stopping.set()
        self._consuming.set()
        for thread in self._threads:
            thread.join(20)


@pytest.fixture
def start_traffic(instance):
    with contextlib.ExitStack() as stack:

        def start(url, **options):
            traffic = Traffic(url, instance, **options)
            stack.callback(traffic.end)
            return traffic

        yield start


@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_a_server_that_is_killed_and_comes_back_loses_and_doubles_nothing(  # noqa: PLR0917 - fixtures and parameters
    kind, start_server, connect, coordinate, evidence_of, start_traffic, instance
):
    # Given an append-only server, a coordinator, a publisher, a consumer and a worker. With `everysec` a server whose
    # disk is busy answers before it has written (up to 2 s), and a kill then takes answered calls back.
    durable = {"appendonly": True, "options": ["--appendfsync", "always"]}
    server = start_server(kind, **durable)
    client = connect(server.url)
    define(client)
    coordinate(server.url)
    traffic = start_traffic(server.url)
    holds = []

    def handle(message):
        began = time.monotonic()
        time.sleep(0.003)  # the handler's work
        holds.append((message.bookmark, began, time.monotonic()))

    worker = Worker(handle, "work", url=server.url, instance=instance, concurrency=2, max_backlog=10)
    working = threading.Thread(target=worker.run)
    working.start()
    try:
        # When the server is killed twice in the middle and started again on its data
        for goal in (150, 300):
            eventually(lambda goal=goal: len(traffic.published) > goal and len(traffic.confirmed) > 30, within=25.0)
            server.process.kill()
            server.process.wait()
            time.sleep(0.3)  # everybody notices, and tries again in vain
            server = start_server(kind, **durable, data_dir=server.directory)
        eventually(lambda: len(traffic.published) > 500 or traffic.failures, within=40.0)
        # Then publisher, consumer and worker go on by themselves
        traffic.finish(client)
    finally:
        worker.stop()
        working.join(20)
    assert not working.is_alive()
    # And everything that was published is there once and was settled once, and was never in two hands
    evidence_of(client).check("orders", "work", range(len(traffic.published)))
    holds += [(bookmark, at, traffic.confirmed[bookmark]) for bookmark, _, at in traffic.handed_out]
    check_never_held_twice(holds)
    assert worker.processed > 30


def test_scripts_that_are_forgotten_are_sent_again(valkey, connect, coordinate, evidence_of, start_traffic):
    # Given traffic in small and in large batches
    client = connect(valkey.url)
    define(client)
    coordinate(valkey.url)
    traffic = start_traffic(valkey.url, backlog=200, pause=0.001)
    # When the server forgets its scripts again and again
    with contextlib.closing(valkey.client()) as redis:
        started = time.monotonic()
        while time.monotonic() < started + 1.5 or len(traffic.published) <= 200:
            assert time.monotonic() < started + 60, "the traffic does not get on"
            redis.script_flush()
            time.sleep(0.002)  # the pace
    # Then nobody notices, and a publisher's messages stand in their order
    traffic.finish(client)
    evidence = evidence_of(client)
    assert list(evidence.published("orders").values()) == list(range(len(traffic.published)))
    assert len(traffic.published) > 200
    evidence.check("orders", "work", range(len(traffic.published)))


@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_a_full_server_refuses_publishes_and_drains(kind, start_server, connect, coordinate, evidence_of):
    # Given a server whose memory is filled by publishes, until one is refused
    server = start_server(kind, options=["--maxmemory", "8mb"])
    client = connect(server.url)
    define(client, lease_period="1s", max_cancels=2)
    coordinate(server.url)
    number = 0
    with pytest.raises(ServerFull, match="out of memory"):  # noqa: PT012 - one of them is refused
        for number in range(10_000):
            client.publish("orders", {"number": number, "pad": "x" * 3000})
    with contextlib.closing(server.client()) as redis:
        redis.config_set("maxmemory", "1mb")
    with pytest.raises(ServerFull):
        client.publish_many("orders", [1, 2, 3])
    assert client.admin.queue_stats("work").depth == number
    # When somebody comes now and consumes: acknowledging, cancelling, at once and later, expiring, letting lapse
    other = connect(server.url)
    deliveries = 0
    with other.subscribe("work", max_backlog=50) as messages:
        while other.admin.queue_stats("work").depth:
            message = messages.get(0.1)
            if message is None:
                continue
            deliveries += 1
            place = message.data["number"] % 10
            if place == 0 and message.delivery == 1:
                continue
            # On a machine that is busy, more lapse than are to: they come again
            with contextlib.suppress(StaleLease):
                if place == 1:
                    message.cancel()
                elif place == 2:
                    message.cancel(delay="50ms")
                elif place == 3:
                    message.expire()
                else:
                    message.ack()
            messages.flush()
    # Then everything is settled once
    evidence = evidence_of(client)
    settled = evidence.settled("work")
    assert len({bookmark for _, bookmark in settled}) == len(settled) == number
    assert sum(how == "expired" for how, _ in settled) == sum(n % 10 in {1, 2, 3} for n in range(number))
    assert deliveries >= number
    # And with room again, publishing goes on
    with contextlib.closing(server.client()) as redis:
        redis.config_set("maxmemory", "0")
    client.publish("orders", "room again")
    assert client.admin.queue_stats("work").depth == 1


@pytest.mark.default_user(reason="counts on one connection for all that its client does")
def test_a_server_that_is_emptied_says_so(start_server, connect):
    # Given a client with a subscription
    server = start_server("valkey")
    client = connect(server.url)
    define(client)
    messages = client.subscribe("work")
    # When the server is emptied
    with contextlib.closing(server.client()) as redis:
        redis.flushall()
    # Then every call says what happened, and closing does too or is silent
    for call in (
        lambda: client.publish("orders", 1),
        lambda: messages.get(0.5),
        lambda: client.admin.queue_stats("work"),
    ):
        with pytest.raises(FormatMismatch, match="the server was emptied"):
            call()
    with contextlib.suppress(AmpsqError):
        messages.close()
    # And a new client starts anew, as another origin
    fresh = connect(server.url)
    assert fresh.origin != client.origin
    define(fresh)
    fresh.publish("orders", 1)
    assert fresh.admin.queue_stats("work").depth == 1


def test_a_server_that_is_away_for_longer_than_a_client_waits_is_told(start_server, connect):
    # Given a client with little patience, and a server that is gone
    server = start_server("valkey", appendonly=True, options=["--appendfsync", "always"])
    client = connect(server.url)
    define(client)
    client.publish_many("orders", range(3))
    messages = client.subscribe("work", max_backlog=3)
    first = messages.get(30)
    client._store.retry_timeout = 0.2
    server.process.kill()
    server.process.wait()
    # When it is asked, then it says so in time, again and again
    first.ack()
    for call in (messages.flush, lambda: client.publish("orders", 3), lambda: first.ack(wait=True)):
        started = time.monotonic()
        with pytest.raises(ConnectionError):
            call()
        assert time.monotonic() - started < 20
    messages._managed.core.inbox.buffer.clear()
    with pytest.raises(ConnectionError):
        messages.get(0.1)
    # And when the server is back, everything goes on, the acknowledgement that had failed included
    start_server("valkey", appendonly=True, options=["--appendfsync", "always"], data_dir=server.directory)
    client._store.retry_timeout = 5.0
    eventually(lambda: client.admin.queue_stats("work").acknowledged == 1, within=25.0)
    messages.close()
    with client.subscribe("work", max_backlog=5) as others:
        assert sorted(others.get(30).data for _ in range(2)) == [1, 2]
    assert messages.late == []
