"""The worker: what a handler returns or raises settles its message; stopping is graceful, and in time."""

# Long: one kind of worker after the other runs through all of it, started and stopped by the same words.

from __future__ import annotations

import asyncio
import contextlib
import threading
import time

import pytest
from cases import first_ones
from observing import eventually
from scene import define_work as define
from scene import pick_up

from ampsq import AsyncWorker, Queue, Reject, Worker
from ampsq.base.errors import DefinitionError, UnknownQueue

#: A coroutine function in a `Worker` and in an `AsyncWorker`.
AWAITED = ["coroutine", "asyncio"]
KINDS = ["one thread", "three threads", *AWAITED]


class Running:
    """A worker in a thread."""

    def __init__(self, worker):
        self.worker, self.failure = worker, None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        try:
            if isinstance(self.worker, AsyncWorker):
                # Not asyncio.run, which waits for threads that a handler left.
                with contextlib.closing(asyncio.new_event_loop()) as loop:
                    loop.run_until_complete(self.worker.run())
            else:
                self.worker.run()
        except BaseException as error:  # noqa: BLE001 - told by `stop`
            self.failure = error

    def stop(self, within=60.0):
        """Seconds that it took."""
        started = time.monotonic()
        self.worker.stop()
        self.thread.join(within)
        assert not self.thread.is_alive()
        if self.failure is not None:
            raise self.failure
        return time.monotonic() - started


@pytest.fixture
def start(valkey, client):
    """Start a worker with a handler, in one of `KINDS`; all are stopped with the test."""
    with contextlib.ExitStack() as stack:

        def start(handler, kind="one thread", **options):
            if kind in AWAITED:
                plain = handler

                async def handler(message):
                    return await asyncio.to_thread(plain, message)

            given = {"concurrency": 1 if kind == "one thread" else 3, **options}
            make = AsyncWorker if kind == "asyncio" else Worker
            running = Running(make(handler, "work", url=valkey.url, instance=client.instance, **given))
            stack.callback(running.stop)
            return running

        yield start


def test_a_worker_with_a_filter_gets_what_matches(client, start):
    define(client)
    client.publish_many("work", [{"n": n} for n in range(10)])
    seen = []
    running = start(lambda message: seen.append(message.data["n"]), filter="/n % 3 = 0")
    eventually(lambda: len(seen) == 4)
    running.stop()
    assert seen == [0, 3, 6, 9]
    assert client.admin.queue_stats("work").depth == 6


@pytest.mark.parametrize("kind", KINDS)
def test_return_acknowledges_an_exception_cancels_and_reject_expires(client, journal, start, kind):
    # Given a handler that does each
    define(client, max_cancels=3)
    good, bad, never = client.publish_many("work", ["good", "bad", "never"])

    def handle(message):
        if message.data == "bad":
            raise ValueError(message.data)
        if message.data == "never":
            raise Reject(message.data)

    # When the worker has handled everything
    running = start(handle, kind)
    eventually(lambda: client.admin.queue_stats("work").depth == 0)
    running.stop()
    # Then each message was settled by what its handler did
    assert sorted(journal.entries("work")) == sorted(
        [("acknowledged", "", good), ("expired", "max_cancels", bad), ("expired", "forced_expire", never)]
    )
    worker = running.worker
    assert (worker.processed, worker.failed, worker.rejected) == (1, 3, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_many_messages_are_handled_once_each(client, start, kind):
    define(client)
    client.publish_many("work", range(500))
    seen, lock = [], threading.Lock()

    def handle(message):
        with lock:
            seen.append(message.data)

    running = start(handle, kind, max_backlog=50)
    eventually(lambda: len(seen) == 500)
    running.stop()
    assert sorted(seen) == list(range(500))
    assert client.admin.queue_stats("work").acknowledged == 500


@pytest.mark.parametrize("kind", ["three threads", *AWAITED])
def test_so_many_handlers_run_at_once_and_no_more(client, start, kind):
    define(client)
    client.publish_many("work", range(9))
    barrier, running_now, most, lock = threading.Barrier(3), [0], [0], threading.Lock()

    def handle(_):
        with lock:
            running_now[0] += 1
            most[0] = max(most[0], running_now[0])
        barrier.wait(30)
        with lock:
            running_now[0] -= 1

    running = start(handle, kind, max_backlog=9)
    eventually(lambda: client.admin.queue_stats("work").depth == 0)
    running.stop()
    assert most == [3]


def test_a_failed_message_stays_away_for_the_delay(client, start):
    define(client, max_cancels=2)
    client.publish("work", 1)
    times = []

    def handle(_):
        times.append(time.monotonic())
        raise ValueError("no")

    running = start(handle, cancel_delay="400ms")
    eventually(lambda: client.admin.queue_stats("work").depth == 0)
    running.stop()
    assert times[1] - times[0] >= 0.4


@first_ones(
    ("kind", "busy"), [("three threads", False), ("asyncio", True), ("coroutine", True), ("one thread", True)], 2
)
def test_a_handler_may_outlive_its_lease(client, start, start_coordinator, kind, busy):
    # Given a lease of two seconds, a coordinator that takes back what lapses, and a worker that was idle for a while
    define(client, lease_period="2s")
    start_coordinator()
    deliveries = []

    def handle(message):
        deliveries.append(message.delivery)
        until = time.monotonic() + 4.3
        while time.monotonic() < until:
            if not busy:
                time.sleep(0.05)  # idle work

    running = start(handle, kind)
    eventually(lambda: client.admin.queue_stats("work").subscriptions == 1)
    time.sleep(0.3)  # it has looked for work in vain, and sleeps on the server
    # When a handler takes more than twice as long
    client.publish("work", 1)
    eventually(lambda: client.admin.queue_stats("work").acknowledged == 1)
    running.stop()
    # Then its message was delivered once
    assert deliveries == [1]


def test_a_worker_without_a_coordinator_finds_what_comes_back_later(client, start):
    # Given a message that is delayed, and nobody who looks after the queue but the worker
    define(client)
    client.publish("work", 1)
    with client.subscribe("work") as messages:
        pick_up(messages, 1)[0].cancel(delay="300ms")
    seen = []
    running = start(lambda message: seen.append(message.delivery))
    # Then the worker handles it about a second later
    eventually(lambda: seen == [2])
    running.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_stopping_lets_handlers_end_and_gives_the_rest_back_at_once(client, start, kind):
    # Given handlers that run, and more messages picked up
    define(client)
    client.publish_many("work", range(20))
    started, go_on = threading.Semaphore(0), threading.Event()

    def handle(_):
        started.release()
        go_on.wait(100)

    running = start(handle, kind, max_backlog=10)
    number = running.worker.concurrency
    for _ in range(number):
        assert started.acquire(timeout=30)
    # When it is told to stop
    running.worker.stop()
    # Then others get everything unstarted while the handlers still run, as its first delivery
    with client.subscribe("work", max_backlog=100) as messages:
        got = pick_up(messages, 20 - number)
        assert [message.delivery for message in got] == [1] * (20 - number)
        assert running.thread.is_alive()
        # And the handlers' messages are acknowledged once they ended
        go_on.set()
        running.stop()
        assert messages.get(0) is None
    assert client.admin.queue_stats("work").acknowledged == number


@pytest.mark.parametrize("kind", KINDS)
def test_a_handler_that_does_not_end_is_left_at_the_deadline(client, start, kind):
    # Given a handler that does not end
    define(client)
    client.publish("work", 1)
    started, go_on = threading.Event(), threading.Event()

    def handle(_):
        started.set()
        go_on.wait(100)

    try:
        running = start(handle, kind, stop_timeout="300ms")
        assert started.wait(30)
        # When the worker is stopped, then it stops at the deadline, and the message comes again
        assert 0.3 <= running.stop() < 30
        with client.subscribe("work") as messages:
            assert pick_up(messages, 1)[0].delivery == 2
    finally:
        go_on.set()


@pytest.mark.parametrize("kind", KINDS)
def test_a_barrier_comes_to_each_worker_once_and_nothing_is_started_beside_it(client, journal, start, kind):
    # Given two workers, and handlers that note when they begin and end
    define(client, barrier_expression="/end = 1")
    lock, notes = threading.Lock(), {"first": [], "second": []}

    def handler(name):
        def handle(message):
            with lock:
                notes[name].append(("begin", message.is_barrier, message.data["n"]))
            # Long enough that what was started beside it would be seen.
            time.sleep(0.1 if message.is_barrier else 0.01)
            with lock:
                notes[name].append(("end", message.is_barrier, message.data["n"]))

        return handle

    workers = [start(handler(name), kind) for name in notes]
    eventually(lambda: client.admin.queue_stats("work").subscriptions == 2)
    # When messages come before and behind a barrier
    bookmarks = client.publish_many("work", [{"n": n, "end": n % 20 == 10} for n in range(40)])
    eventually(lambda: sum(running.worker.processed for running in workers) == 42)
    for running in workers:
        running.stop()
    # Then both get both barriers, alone, and each handles what was before them before
    for noted in notes.values():
        barriers = [at for at, (_, is_barrier, _) in enumerate(noted) if is_barrier]
        assert [noted[at] for at in barriers] == [(what, True, n) for n in (10, 30) for what in ("begin", "end")]
        assert [end - begin for begin, end in zip(barriers[::2], barriers[1::2], strict=True)] == [1, 1]
        turns = [(n > 10) + (n > 30) for _, is_barrier, n in noted if not is_barrier]
        assert turns == sorted(turns)
    # And everything else is handled and acknowledged once
    handled = [n for noted in notes.values() for what, is_barrier, n in noted if what == "end" and not is_barrier]
    assert sorted(handled) == [n for n in range(40) if n not in {10, 30}]
    assert [bookmark for how, _, bookmark in journal.entries("work") if how == "barrier"] == [
        bookmarks[10], bookmarks[30]
    ]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", [ValueError, Reject])
def test_a_barrier_whose_handler_raises_does_not_come_again(client, journal, start, kind, error):
    define(client, barrier_expression="/end = 1")
    seen = []

    def handle(message):
        seen.append((message.delivery, message.data["n"]))
        if message.is_barrier:
            raise error("not today")

    running = start(handle, kind)
    eventually(lambda: client.admin.queue_stats("work").subscriptions == 1)
    bookmarks = client.publish_many("work", [{"n": 1, "end": 1}, {"n": 2}])
    eventually(lambda: client.admin.queue_stats("work").acknowledged == 1)
    running.stop()
    assert seen == [(0, 1), (1, 2)]
    assert journal.entries("work") == [("barrier", "", bookmarks[0]), ("acknowledged", "", bookmarks[1])]


def test_a_worker_stops_in_time_while_it_handles_a_barrier(client, start):
    define(client, barrier_expression="/end = 1")
    started, go_on = threading.Event(), threading.Event()

    def handle(_):
        started.set()
        go_on.wait(100)

    try:
        running = start(handle, "three threads", stop_timeout="300ms")
        eventually(lambda: client.admin.queue_stats("work").subscriptions == 1)
        client.publish_many("work", [{"end": 1}, {"n": 2}])
        assert started.wait(30)
        assert 0.3 <= running.stop() < 30
        with client.subscribe("work") as messages:
            assert pick_up(messages, 1)[0].data == {"n": 2}
    finally:
        go_on.set()


def test_an_idle_worker_stops_at_once(client, start):
    define(client)
    running = start(print)
    eventually(lambda: client.admin.queue_stats("work").subscriptions == 1)
    assert running.stop() < 15
    assert client.admin.queue_stats("work").subscriptions == 0


async def nothing(_):
    pass


@pytest.mark.parametrize("handler", [lambda _: None, nothing])
def test_a_worker_may_use_a_client_of_the_user_s_and_leaves_it_open(client, handler):
    define(client)
    client.publish("work", 1)
    running = Running(Worker(handler, "work", client=client))
    eventually(lambda: client.admin.queue_stats("work").acknowledged == 1)
    running.stop()
    client.publish("work", 2)


def test_what_cannot_work_is_refused(client, valkey):
    with pytest.raises(DefinitionError, match="concurrency"):
        Worker(print, "work", concurrency=0)
    with pytest.raises(DefinitionError, match="handler"):
        Worker("print", "work")
    with pytest.raises(UnknownQueue):
        Worker(print, "nothing", url=valkey.url, instance=client.instance).run()


# --- queues that leave handlers idle


def advice(caplog):
    return [each.getMessage() for each in caplog.records if "whatever its concurrency" in each.getMessage()]


@pytest.mark.parametrize("queue", ["work", "^wo"])
def test_a_worker_that_a_queue_gives_less_than_it_can_handle_says_once_what_to_write(valkey, client, caplog, queue):
    # Given a queue with AMPS's default, by which a subscription holds one message
    client.apply(Queue(name="work"))
    client.publish_many("work", range(5))
    running = Running(Worker(lambda _: None, queue, url=valkey.url, instance=client.instance, concurrency=4))
    eventually(lambda: running.worker.processed == 5)
    running.stop()
    # Then a worker of four handlers tells that, and the definition that it tells is one that mends it
    (told,) = advice(caplog)
    who = "the queue 'work'" if queue == "work" else "a queue that '^wo' matches"
    assert told.startswith(f"{who} lets a subscription hold 1 message (max_per_subscription_backlog)")
    assert "handles 1 at a time, whatever its concurrency of 4" in told
    assert told.endswith("in a file max_per_subscription_backlog: 8")
    caplog.clear()
    client.apply(Queue(name="work", max_per_subscription_backlog=8))
    running = Running(Worker(lambda _: None, queue, url=valkey.url, instance=client.instance, concurrency=4))
    eventually(lambda: client.admin.queue_stats("work").subscriptions == 1)
    running.stop()
    assert advice(caplog) == []


def test_a_worker_of_one_handler_and_a_queue_of_one_message_fit(client, start, caplog):
    client.apply(Queue(name="work"))
    client.publish("work", 1)
    running = start(lambda _: None)
    eventually(lambda: running.worker.processed == 1)
    running.stop()
    assert advice(caplog) == []


def test_a_worker_that_asks_for_less_than_it_can_handle_says_so(client, start, caplog):
    define(client)
    running = start(lambda _: None, "three threads", max_backlog=2)
    eventually(lambda: advice(caplog))
    running.stop()
    (told,) = advice(caplog)
    assert told.startswith("max_backlog=2 lets a worker hold 2 messages, so this worker handles 2 at a time, whatever")
    assert told.endswith("concurrency of 3: leave it out, or write 6")


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_of_a_group_is_handled_in_one_lane_and_what_failed_comes_again_before_the_rest(client, start, kind):
    define(client, group_by="/g", group_batch=5)
    client.publish_many("work", [{"g": group, "n": n} for n in range(40) for group in "ab"])
    seen, running_now, lock, failures = {"a": [], "b": []}, {"a": 0, "b": 0}, threading.Lock(), {("a", 7), ("b", 23)}

    def handle(message):
        group, number = message.data["g"], message.data["n"]
        with lock:
            running_now[group] += 1
            assert running_now[group] == 1
            seen[group].append(number)
        try:
            time.sleep(0.001)  # so that handlers of one group would meet
            if (group, number) in failures:
                failures.discard((group, number))
                raise ValueError
        finally:
            with lock:
                running_now[group] -= 1

    running = start(handle, kind, max_backlog=30)
    eventually(lambda: client.admin.queue_stats("work").depth == 0)
    running.stop()
    assert seen == {"a": [*range(8), *range(7, 40)], "b": [*range(24), *range(23, 40)]}
    assert running.worker.failed == 2


@pytest.mark.parametrize("kind", ["three threads", *AWAITED])
def test_what_waits_in_a_lane_when_a_worker_stops_goes_back_uncounted(client, start, kind):
    define(client, group_by="/g", group_batch=5)
    client.publish_many("work", [{"g": "a", "n": n} for n in range(5)])
    began, may_end = threading.Event(), threading.Event()

    def handle(_):
        began.set()
        may_end.wait(20)

    running = start(handle, kind, max_backlog=30)
    assert began.wait(20)
    eventually(lambda: client.admin.queue_stats("work").leased == 5)
    stopping = threading.Thread(target=running.stop)
    stopping.start()
    eventually(lambda: client.admin.queue_stats("work").leased == 1)
    may_end.set()
    stopping.join(20)
    with client.subscribe("work", max_backlog=9) as messages:
        assert [(each.data["n"], each.delivery) for each in pick_up(messages, 4)] == [(n, 1) for n in range(1, 5)]
