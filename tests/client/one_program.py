"""One program text for threads and for asyncio, at an address without partitions and at one with them.

A `Place` is where a program runs. It opens clients behind objects that stand for them: calls of an asyncio client are
awaited in an event loop in a thread of its own, and what they give is behind such an object, too. What the program
calls is noted, each method with the arguments that it was given.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

import ampsq
from ampsq.coordinator import Coordinator
from ampsq.topics.subscription_spec import ReplayOptions

__all__ = ["HELD", "PLACES", "Place", "arguments_of", "members_of"]

#: The exported classes whose objects work at an instance, by their names without `Async`.
HELD = (
    "Client",
    "Admin",
    "Publisher",
    "Subscription",
    "TopicSubscription",
    "RecordSubscription",
    "RowSubscription",
    "Message",
    "TopicMessage",
    "Receipt",
    "DeletionReceipt",
    "Worker",
    "App",
)
#: How long one call of an asyncio client may take, seconds.
_LIMIT = 120.0
#: What follows the address: nothing, and partitions.
PLACES = ("", "?partitions=4")


def members_of(name):
    """Return the public methods and properties of an exported class, without those that asyncio alone needs."""
    return {each for each in dir(getattr(ampsq, name)) if not each.startswith("_")} - {"connect"}


def arguments_of(name, method):
    """Return the arguments that a method of an exported class takes; none of a property."""
    value = getattr(getattr(ampsq, name), method)
    if not callable(value):
        return set()
    found = set(list(inspect.signature(value).parameters)[1:]) - {"unknown"}
    if "options" in found:
        found = (found - {"options"}) | set(ReplayOptions.__annotations__)
    return found


def _held_name(value):
    """Return the exported class that an object is of, without `Async`; None: it is a plain value."""
    for cls in type(value).__mro__:
        name = cls.__name__.removeprefix("Async")
        if cls.__module__.startswith("ampsq.") and name in HELD:
            return name
    return None


class Stand:
    """An object that stands for one of ampsq's."""

    def __init__(self, held, place):
        self._held, self._place = held, place

    def __repr__(self):
        return repr(self._held)

    def __getattr__(self, name):
        name_of_class = _held_name(self._held)
        value = getattr(self._held, name)
        noted = self._place.called[f"{name_of_class}.{name}"]
        if not callable(value):
            return self._place.stood_for(value)

        def call(*args, **options):
            shown = inspect.signature(getattr(getattr(ampsq, name_of_class), name)).bind_partial(None, *args, **options)
            given = {**shown.arguments, **shown.arguments.get("options", {})}
            noted.update(given.keys() & arguments_of(name_of_class, name))
            if callable(options.get("on_message")):
                options["on_message"] = self._place.handler(options["on_message"])
            options = {key: each._held if isinstance(each, Stand) else each for key, each in options.items()}
            return self._place.run(partial(value, *args, **options))

        return call

    def __enter__(self):
        self._place.run(self._held.__aenter__ if self._place.is_asyncio else self._held.__enter__)
        return self

    def __exit__(self, *failure):
        self._place.run(partial(self._held.__aexit__ if self._place.is_asyncio else self._held.__exit__, *failure))

    def __iter__(self):
        if not self._place.is_asyncio:
            yield from map(self._place.stood_for, self._held)
            return
        steps = aiter(self._held)
        with contextlib.suppress(StopAsyncIteration):
            while True:
                yield self._place.run(steps.__anext__)


class Place:
    """A place where a program runs: the kind of its clients, a server, and an instance with or without partitions.

    Args:
        kind: ``threads`` or ``asyncio``.
        url: the whole address.
        instance: its name.
        folder: for files.

    Attributes:
        called: method -> arguments that it was given.
        client: the first client.
    """

    def __init__(self, kind, url, instance, folder):
        self.is_asyncio, self.url, self.instance, self.folder = kind == "asyncio", url, instance, folder
        self.called = defaultdict(set)
        self._loop = None
        self._ends = contextlib.ExitStack()

    def __enter__(self):
        if self.is_asyncio:
            self._loop = asyncio.new_event_loop()
            thread = threading.Thread(target=self._loop.run_forever, daemon=True)
            thread.start()
            self._ends.callback(self._loop.close)
            self._ends.callback(thread.join)
            self._ends.callback(lambda: self._loop.call_soon_threadsafe(self._loop.stop))
        self.client = self.connect()
        return self

    def __exit__(self, *_):
        self._ends.close()

    def connect(self, **options):
        """Open a client; it is closed with the place."""
        kind = ampsq.AsyncClient if self.is_asyncio else ampsq.Client
        made = self.run(partial(kind, self.url, instance=self.instance, **options))
        return self._ends.enter_context(made)

    def coordinate(self):
        """Begin to care for the instance, for as long as the place is there."""
        coordinator = Coordinator(self.client._held.url, [*(self.client._held.partitions or (self.instance,))])
        thread = threading.Thread(target=coordinator.run)
        thread.start()
        self._ends.callback(thread.join)
        self._ends.callback(coordinator.stop)

    def run(self, function):
        """Call a function, of an asyncio class in the loop, and await what it gives."""
        if not self.is_asyncio:
            return self.stood_for(function())

        async def call():
            found = function()
            return await found if inspect.isawaitable(found) and _held_name(found) != "Client" else found

        return self.stood_for(asyncio.run_coroutine_threadsafe(call(), self._loop).result(_LIMIT))

    def stood_for(self, value):
        """Return what stands for a value, if it is of one of the classes."""
        if _held_name(value):
            return Stand(value, self)
        if isinstance(value, Sequence) and not isinstance(value, str | bytes) and value and _held_name(value[0]):
            return [Stand(each, self) for each in value]
        return value

    def handler(self, function):
        """Return a handler for this kind of client, of a function that gets what stands for a message."""
        if not self.is_asyncio:
            return lambda message: function(self.stood_for(message))

        async def handle(message):
            await asyncio.to_thread(function, self.stood_for(message))

        return handle

    @contextlib.contextmanager
    def working(self, worker):
        """Run a worker or an app meanwhile."""
        stand, failures = Stand(worker, self), []
        is_app = isinstance(worker, ampsq.App)

        def run():
            try:
                if is_app:
                    # It has a client for threads, and handlers that are awaited in a loop of its own.
                    self.called["App.run"] |= {"client", "stop_timeout"}
                    with ampsq.Client(self.url, instance=self.instance) as client:
                        worker.run(client=client, stop_timeout="5s")
                else:
                    stand.run()
            except BaseException as error:
                failures.append(error)
                raise

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield stand
        finally:
            stand.stop()
            thread.join()
        assert failures == []

    def worker(self, handler, queue, **options):
        """Make a worker."""
        kind = ampsq.AsyncWorker if self.is_asyncio else ampsq.Worker
        return kind(self.handler(handler), queue, url=self.url, instance=self.instance, **options)
