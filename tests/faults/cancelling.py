"""A campaign of cancelled tasks: calls of the asyncio client are cancelled wherever they wait, some of them twice.

python tests/faults/cancelling.py --number 10000 --seed 1

A seed chooses the calls, and for each at which of its waits it is cancelled, how much later and whether again. After
each call the idle connections answer what they are asked; now and then, left alone: only the subscriptions that are
open are known to the server, no lease is older than its period, every message that was told to be recorded is recorded
once and comes out, and what was confirmed to be acknowledged never again.
"""
# Long: one campaign: each scene cancels at every step and looks at the same facts.

# ruff: noqa: E402, S311, T201  (imports behind a path; chance is what is wanted; a command prints)

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import logging
import random
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, deque
from pathlib import Path

# As a program it finds what pytest finds for tests.
sys.path[:0] = [str(Path(__file__).parents[1])]

import redis

from ampsq import AsyncClient, Client, MemoryPublishStore, Queue
from ampsq.base.errors import AlreadyAcked, Closed, StaleLease
from ampsq.coordinator import Coordinator
from ampsq.protocol.schema import key
from ampsq.queues.message import head_of

__all__ = ["Campaign", "Failed", "coordinated"]

#: ms of a lease, and how much later than that the sweep may come.
_PERIOD, _LATE = 500, 5_000
#: Seconds in which all has to be over once nothing is cancelled any more, and cancellations between two such moments.
_HEALED, _BETWEEN = 20.0, 40
#: Seconds in which a call that is cancelled has to end.
_ENDS = 14.0
#: The user as whom the coordinator is connected.
_COORDINATOR = "cancelling-coordinator"
#: Frames of a thread that a failure shows.
_FRAMES = 8
#: Of a message that waited for somebody to ask for it until its lease was over, and was delivered to another one.
_TOO_LATE = StaleLease, AlreadyAcked
#: The calls, by how often each is chosen.
_CALLS = {
    "get": 30, "ack": 20, "publish": 10, "publish_many": 12, "subscribe": 12, "close": 10, "close_client": 6,
    "publisher": 0, "connect": 5, "follow": 5, "read": 15, "close_reader": 4, "ack_by_bookmark": 6,
}  # fmt: skip


class Failed(Exception):
    """Something is not as it must be; the text says what."""


def _frames(awaited):
    """Yield the frames in which a coroutine waits, outermost first."""
    while frame := getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None):
        yield f"  {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname}"
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
        if awaited is None and isinstance(counted := frame.f_locals.get("self"), _Counted):
            # It sends by itself to what it counts the waits of.
            awaited = counted._coroutine


def _whereabouts():
    """Describe where all tasks and all other threads are."""
    lines = []
    for task in asyncio.all_tasks():
        lines += [f"{task.get_name()}, cancelled {task.cancelling()} times:", *_frames(task.get_coro())]
    frames = sys._current_frames()
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread.ident in frames:
            stack = traceback.extract_stack(frames[thread.ident])[-_FRAMES:]
            lines += [f"{thread.name}:", *(f"  {each.filename}:{each.lineno} {each.name}" for each in stack)]
    return "\n".join(lines)


class _Counted:
    """A coroutine that tells each time it begins to wait."""

    def __init__(self, coroutine, tell):
        self._coroutine, self._tell = coroutine, tell

    def __await__(self):
        value = error = None
        while True:
            try:
                step = self._coroutine.send(value) if error is None else self._coroutine.throw(error)
            except StopIteration as end:
                return end.value
            self._tell()
            value = error = None
            try:
                value = yield step
            except BaseException as thrown:  # noqa: BLE001  (whatever it is, it is the coroutine's)
                error = thrown


class Interruption:
    """One cancellation: at a wait of a call, some steps of the event loop later, and perhaps once more."""

    def __init__(self, chance, longest):
        self._at = chance.randint(1, longest)
        self._later = chance.choice((0, 0, 0, 1, 2, 4, 0.0002, 0.001))
        self._again = chance.choice((None, None, 0, 1, 3, 0.0002))
        self._cancelled, self._task = False, None
        #: Waits of the call, and cancellations that it took.
        self.waits = self.number = 0

    def __str__(self):
        return f"at wait {self._at}, {self._later} later, again {self._again}: {self.waits} waits"

    def _tell(self):
        self.waits += 1
        if self.waits == self._at:
            self._after(self._later, self._cancel)

    def _after(self, later, do):
        loop = asyncio.get_running_loop()
        if isinstance(later, float):
            loop.call_later(later, do)
        elif later:
            loop.call_soon(self._after, later - 1, do)
        else:
            loop.call_soon(do)

    def _cancel(self):
        if not self._task.done() and self._task.cancel():
            self.number += 1
            if not self._cancelled and self._again is not None:
                self._after(self._again, self._cancel)
            self._cancelled = True

    async def run(self, coroutine):
        """Run a coroutine; its result in a list, an empty one where it was cancelled."""

        async def counted():
            return await _Counted(coroutine, self._tell)

        self._task = asyncio.create_task(counted())
        done, _ = await asyncio.wait([self._task], timeout=_ENDS)
        if not done:
            raise Failed(f"it has not ended {_ENDS:g} s later:\n{_whereabouts()}")
        if self._task.cancelled():
            if not self.number:
                raise Failed("it was cancelled by nobody")
            return []
        result = self._task.result()
        if self.number:
            raise Failed(f"it was cancelled and gave {result!r}")
        return [result]


class Campaign:
    """Calls of one process that are cancelled.

    Args:
        url: of a server; a coordinator cares for the instance.
        instance: a new one.
        seed: chooses the calls and when they are cancelled.
    """

    def __init__(self, url, instance, seed):
        self._url, self._instance, self._chance = url, instance, random.Random(seed)
        self._client, self._subscriptions, self._messages = None, [], deque()
        self._publisher = self._keeper = None
        #: Who reads the log, what was handed out of it so far, and where that ended.
        self._reader, self._read_bodies, self._place = None, [], "epoch"
        self._bodies, self._resting = 0, asyncio.Lock()
        #: Bodies that are recorded for sure, and those that may be.
        self._sure, self._maybe = set(), set()
        #: Body -> the delivery whose acknowledgement was confirmed.
        self._acked = {}
        #: Call -> how often it waited lately; how often it was cancelled, and how often it ended before.
        self._waits = {name: deque([2], maxlen=30) for name in _CALLS}
        self._cancelled, self._ended = Counter(), Counter()
        self._trace = deque(maxlen=30)

    async def run(self, number):
        """Cancel so many times; gives what was done, as a text."""
        with Client(self._url, instance=self._instance) as observer:
            observer.apply(
                Queue(name="work", underlying_topic="orders", lease_period=f"{_PERIOD}ms", max_backlog=1000,
                      max_per_subscription_backlog=50)
            )  # fmt: skip
            self._observer = observer
            self._connections = len(self._connections_open())
            try:
                await self._run(number)
            except Exception as error:
                text = str(error) if isinstance(error, Failed) else repr(error)
                raise Failed("\n".join(("last calls:", *self._trace, text))) from error
        done = ", ".join(
            f"{name} {self._cancelled[name]} of {self._cancelled[name] + self._ended[name]}" for name in _CALLS
        )
        return f"{sum(self._cancelled.values())} calls cancelled ({done}); {len(self._sure)} messages"

    async def _run(self, number):
        await self._connected()
        healed, standing_by = 0, asyncio.create_task(self._stand_by())
        while sum(self._cancelled.values()) < number:
            (name,) = self._chance.choices(list(_CALLS), list(_CALLS.values()))
            await getattr(self, f"_{name}")()
            if standing_by.done():
                raise Failed(f"who stood by: {standing_by.exception()!r}")
            async with self._resting:
                await self._connections_answer()
            if sum(self._cancelled.values()) >= healed + _BETWEEN:
                healed = sum(self._cancelled.values())
                async with self._resting:
                    await self._heal()
        standing_by.cancel()
        await asyncio.wait([standing_by])
        await self._heal()
        former, self._client = self._client, None
        await former.close()
        await self._all_gone()

    def _new(self):
        return AsyncClient(self._url, instance=self._instance, ack_timeout="20ms")

    async def _connected(self):
        """Connect a client whose publishing is plain, numbered, or kept until it is persisted."""
        self._client = await self._new().connect()
        self._publisher = self._keeper = None
        kind = self._chance.choice(("plain", "plain", "numbered", "kept"))
        while kind != "plain" and self._publisher is None:
            self._bodies += 1
            self._publisher = await self._publisher_of(f"p{self._bodies}", kind)
        if kind == "kept":
            self._keeper = self._publisher

    async def _publisher_of(self, name, kind):
        """Open a publisher, which may be cancelled: None then, and the name is free."""
        made = self._client.publisher(name, store=MemoryPublishStore() if kind == "kept" else None)
        found = await self._cancel("publisher", made.__aenter__())
        return found[0] if found else None

    @property
    def _by(self):
        return self._publisher or self._client

    async def _connect(self):
        client = self._new()
        await self._cancel("connect", client.connect())
        await client.close()

    async def _stand_by(self):
        """Publish beside the calls that are cancelled, on the same connections and through the same locks."""
        while True:
            async with self._resting:
                (body,) = self._made(1)
                self._maybe.add(body)
                await self._by.publish("orders", body)
                self._sure.add(body)
            await asyncio.sleep(0.01)  # the pace

    async def _cancel(self, name, coroutine):
        """Run a call and cancel it; what it gave, in a list, empty where it was cancelled."""
        waits = self._waits[name]
        interruption = Interruption(self._chance, max(self._chance.choice(waits), 1))
        try:
            given = await interruption.run(coroutine)
        finally:
            self._trace.append(f"{name} {interruption}")
        # Of a cancelled one nobody knows how often it would have waited.
        waits.append(interruption.waits + (not given))
        (self._ended if given else self._cancelled)[name] += 1
        return given

    # --- the calls

    def _made(self, number):
        self._bodies += number
        return list(range(self._bodies - number, self._bodies))

    async def _some(self):
        """A subscription that is open."""
        if not self._subscriptions:
            await self._open()
        return self._chance.choice(self._subscriptions)

    async def _open(self):
        backlog, renew = self._chance.choice((1, 3, 50)), self._chance.random() < 0.3
        self._subscriptions.append(
            await self._client.subscribe("work", max_backlog=backlog, renew=renew, publisher=self._keeper)
        )

    async def _publish(self):
        for body in self._made(1):
            self._maybe.add(body)
            if await self._cancel("publish", self._by.publish("orders", body)):
                self._sure.add(body)

    async def _publish_many(self):
        bodies = self._made(self._chance.choice((1, 30, 120)))
        self._maybe.update(bodies)
        for bookmarks in await self._cancel("publish_many", self._by.publish_many("orders", bodies, batch=20)):
            assert len(bookmarks) == len(bodies)
            self._sure.update(bodies)

    async def _get(self):
        subscription = await self._some()
        if self._chance.random() < 0.6:
            bodies = self._made(self._chance.choice((1, 2, 20)))
            await self._by.publish_many("orders", bodies)
            self._sure.update(bodies)
        for message in await self._cancel("get", subscription.get(self._chance.choice((0, 0.005, 5)))):
            self._take(message)

    def _take(self, message):
        if message is not None:
            # One that was delivered before may have waited for somebody to ask for it.
            if message.data in self._acked and int(head_of(message)[1]) > self._acked[message.data]:
                raise Failed(f"{message.data} was delivered after its acknowledgement was confirmed")
            self._messages.append(message)

    def _confirm(self, message):
        self._acked.setdefault(message.data, int(head_of(message)[1]))

    async def _ack(self):
        if not self._messages:
            subscription = await self._some()
            self._take(await subscription.get(0.05))
        if self._messages:
            message, wait = self._messages.popleft(), self._chance.random() < 0.5
            with contextlib.suppress(*_TOO_LATE):
                if await self._cancel("ack", message.ack(wait=wait)) and wait:
                    self._confirm(message)

    async def _ack_by_bookmark(self):
        if self._messages:
            message = self._messages.popleft()
            # Whoever holds it by now: later deliveries are none that must not be.
            with contextlib.suppress(*_TOO_LATE):
                acknowledging = self._client.ack("work", [message.bookmark], publisher=self._keeper)
                if not await self._cancel("ack_by_bookmark", acknowledging):
                    # Nobody else would give up a lease that is renewed.
                    self._messages.append(message)

    async def _subscribe(self):
        backlog, renew = self._chance.choice((1, 3, 50)), self._chance.random() < 0.3
        subscribing = self._client.subscribe("work", max_backlog=backlog, renew=renew, publisher=self._keeper)
        self._subscriptions += await self._cancel("subscribe", subscribing._making)
        while len(self._subscriptions) > 4:
            closed = self._subscriptions[0]
            self._forget(closed)
            await closed.close()

    async def _close(self):
        subscription = await self._some()
        self._forget(subscription)
        reader = asyncio.create_task(self._get_beside(subscription)) if self._chance.random() < 0.4 else None
        await asyncio.sleep(0)
        await self._cancel("close", subscription.close())
        if reader is not None:
            await asyncio.wait([reader], timeout=_ENDS)
            reader.result()
            # Who had its connection in use gives it back.
            await asyncio.sleep(0.002)
        if self._chance.random() < 0.5:
            await subscription.close()

    @staticmethod
    async def _get_beside(subscription):
        """Get a message in another task meanwhile; it comes again, since nobody acknowledges it."""
        with contextlib.suppress(Closed):
            await subscription.get(0.05)

    def _forget(self, *closed):
        self._subscriptions = [each for each in self._subscriptions if each not in closed]
        managed = [each._managed for each in closed]
        self._messages = deque(each for each in self._messages if each._managed not in managed)

    async def _follow(self):
        if self._reader is None:
            (self._reader,) = await self._cancel("follow", self._following()._making) or [None]

    def _following(self):
        return self._client.subscribe_topic("orders", bookmark=self._place)

    async def _read(self):
        if self._reader is None:
            self._reader = await self._following()
        for message in await self._cancel("read", self._reader.get(self._chance.choice((0, 0.002, 0.05)))):
            self._note(message)

    def _note(self, message):
        if message is not None:
            self._read_bodies.append(message.data)
            self._place = message.bookmark

    async def _close_reader(self):
        if self._reader is not None:
            reader, self._reader = self._reader, None
            await self._cancel("close_reader", reader.close())
            if self._chance.random() < 0.5:
                await reader.close()

    async def _close_client(self):
        if self._chance.random() < 0.5:
            await self._some()
        client = self._client
        self._forget(*self._subscriptions)
        self._reader = None
        async with self._resting:
            await self._cancel("close_client", client.close())
            if self._chance.random() < 0.5:
                await client.close()
            await self._connected()

    # --- what must be

    def _pools(self):
        at = self._client._store._connections.used
        return [at[1]] if at is not None else []

    async def _connections_answer(self):
        """No reply is left unread, and no connection is in nobody's hands."""
        pipelines = [each._managed.pipeline for each in self._subscriptions]
        pipelines += [] if self._reader is None else [self._reader._managed.pipeline]
        held = [each._connection for each in pipelines if each._connection is not None]
        for pool in self._pools():
            if len(pool._in_use_connections) != len(held):
                raise Failed(f"{len(pool._in_use_connections)} connections in use, {len(held)} in somebody's hands")
            idle = [each for each in pool._available_connections if each.is_connected]
            unasked = [each for each in pipelines if not each.open_calls]
            for raw in idle + [each._connection.raw for each in unasked if each._connection is not None]:
                word = b"%d" % self._chance.getrandbits(60)
                await raw.send_command("ECHO", word, check_health=False)
                if (answer := await raw.read_response()) != word:
                    raise Failed(f"an unread reply: {answer!r}")

    async def _heal(self):
        """Left alone, everything comes out."""
        begun = time.monotonic()
        if self._publisher is not None:
            await self._publisher.flush(_HEALED)
        flushed = time.monotonic() - begun
        await self._until(self._ghosts, "subscriptions that nobody has", begun)
        alone = time.monotonic() - begun
        self._trace.append(f"left alone: flushed {flushed:.3f} s later, without ghosts {alone:.3f} s later")
        while self._messages:
            with contextlib.suppress(*_TOO_LATE):
                message = self._messages.popleft()
                await message.ack(wait=True)
                self._confirm(message)
        if not self._subscriptions:
            await self._open()
        await asyncio.gather(*(self._drain(each, begun) for each in self._subscriptions))
        await self._check_log()

    async def _until(self, left, what, begun):
        while found := left():
            if time.monotonic() > begun + _HEALED:
                raise Failed(f"{_HEALED:g} s later there are {what}: {found}")
            await asyncio.sleep(0.02)  # between two looks

    def _ghosts(self):
        redis = self._observer._store.redis
        known = {name.decode() for name in redis.zrange(key(self._instance, "subscriptions"), 0, -1)}
        return known - {each.id for each in self._subscriptions}

    async def _drain(self, subscription, begun):
        """Handle what comes until nothing is left in the queue."""
        while self._observer.admin.queue_stats("work").depth:
            self._check_leases()
            if time.monotonic() > begun + _HEALED:
                raise Failed(
                    f"{_HEALED:g} s later there is still {self._observer.admin.queue_stats('work')}\n"
                    + "\n".join(map(self._told, self._subscriptions))
                )
            message = await subscription.get(0.05)
            if message is not None:
                self._take(message)
                self._messages.remove(message)
                with contextlib.suppress(*_TOO_LATE):
                    await message.ack(wait=True)
                    self._confirm(message)

    def _told(self, subscription):
        """Describe what a subscription holds, by itself and by the server."""
        core, redis = subscription._managed.core, self._observer._store.redis
        leases = redis.hgetall(key(self._instance, "leases", "work")).items()
        mine = {ref: lease for ref, lease in leases if subscription.id.encode() in lease}
        parts = (core.registration, core.leases, core.leases.late, core.inbox, core.inbox.ahead)
        state = {name.lstrip("_"): value for each in parts for name, value in vars(each).items()}
        return f"{core}: {state}\nof {len(leases)} leases it has {len(mine)}: {mine}\n" + str(
            redis.hgetall(key(self._instance, "subscription", subscription.id))
        )

    def _check_leases(self):
        redis = self._observer._store.redis
        now = redis.time()[0] * 1000
        for ref, lease in redis.hgetall(key(self._instance, "leases", "work")).items():
            # One of them is none: it keeps the key.
            deadline = int(lease.split(b" ")[3]) if lease else now
            if deadline < now - _LATE:
                raise Failed(f"the lease of {ref!r} ended {now - deadline} ms ago: {lease!r}")

    async def _check_log(self):
        """Check that each reported message is recorded once, and that readers were given all of it, in order."""
        redis = self._observer._store.redis
        bodies = [int(fields[b"b"]) for _, fields in redis.xrange(key(self._instance, "log", "orders"))]
        found = Counter(bodies)
        if twice := [body for body, number in found.items() if number > 1]:
            raise Failed(f"recorded twice: {twice}")
        if lost := self._sure - set(found):
            raise Failed(f"lost: {sorted(lost)}")
        if others := set(found) - self._sure - self._maybe:
            raise Failed(f"recorded and published by nobody: {sorted(others)}")
        self._reader = self._reader or await self._following()
        while len(self._read_bodies) < len(bodies):
            message = await self._reader.get(_HEALED)
            if message is None:
                raise Failed(f"{_HEALED:g} s later the reader has {len(self._read_bodies)} of {len(bodies)}")
            self._note(message)
        if self._read_bodies != bodies:
            wrong = next(
                i for i, (one, other) in enumerate(zip(self._read_bodies, bodies, strict=True)) if one != other
            )
            raise Failed(
                f"who reads was given {self._read_bodies[wrong - 2 : wrong + 3]} for {bodies[wrong - 2 : wrong + 3]}"
            )

    async def _all_gone(self):
        """Check that whatever was closed has no connection and no thread any more."""

        def threads():
            named = ("ampsq-keepalive-", "ampsq-publish-", "ampsq-persist-")
            return [each.name for each in threading.enumerate() if each.name.startswith(named)]

        def connections():
            found = self._connections_open()
            return found if len(found) > self._connections else []

        begun = time.monotonic()
        await self._until(threads, "threads", begun)
        await self._until(connections, "connections", begun)

    def _connections_open(self):
        """The connections of all but the coordinator, which opens some when it has something to do."""
        return [each for each in self._observer._store.redis.client_list() if each["user"] != _COORDINATOR]


@contextlib.contextmanager
def coordinated(url, instance):
    """While a coordinator cares for an instance, as a user of its own."""
    with contextlib.closing(redis.Redis.from_url(url)) as operator:
        operator.execute_command("ACL", "SETUSER", _COORDINATOR, "reset", "on", "nopass", "~*", "&*", "+@all")
        coordinator = Coordinator(url.replace("://", f"://{_COORDINATOR}:any@", 1), [instance])
        thread = threading.Thread(target=coordinator.run)
        thread.start()
        try:
            yield
        finally:
            coordinator.stop()
            thread.join()
            operator.acl_deluser(_COORDINATOR)


def launcher():
    """Return the launcher by which the tests start servers."""
    spec = importlib.util.spec_from_file_location("conftest_of_tests", Path(__file__).parents[1] / "conftest.py")
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found
    spec.loader.exec_module(found)
    return found.launch


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=10_000, help="how many calls are cancelled")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=["valkey", "redis"], default="valkey", help="the server")
    options = parser.parse_args()
    # Late acknowledgements are meant.
    logging.getLogger("ampsq").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp") as folder:
        server = launcher()(options.kind, Path(folder, "s"))
        try:
            with coordinated(server.url, "cancelled"):
                print(asyncio.run(Campaign(server.url, "cancelled", options.seed).run(options.number)))
        finally:
            server.end()


if __name__ == "__main__":
    main()
