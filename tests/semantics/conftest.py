"""Clients and coordinators of the test's instance, on a server that the session shares."""

from __future__ import annotations

import contextlib

import pytest
from guaranteeing import Frail, close_quietly
from letters import define, give_up
from scene import Journal

from ampsq import Client, FilePublishStore, MemoryPublishStore
from ampsq.coordinator import views as keeping
from ampsq.protocol.schema import key
from ampsq.transport.runner import Store
from ampsq.views import upkeep as views

pytest.register_assert_rewrite("scenes_gone", "scenes_held", "scenes_waiting")


def _connecting(server, instance):
    @contextlib.contextmanager
    def opened():
        with contextlib.ExitStack() as stack:
            yield lambda **options: stack.enter_context(Client(server.url, instance=instance, **options))

    return opened()


@pytest.fixture
def connect(valkey, instance):
    """Open clients of the test's instance on Valkey; they are closed with the test."""
    with _connecting(valkey, instance) as connect:
        yield connect


@pytest.fixture
def client(connect):
    return connect()


@pytest.fixture
def connect_to_each(server, instance):
    """The same, once on Valkey and once on Redis."""
    with _connecting(server, instance) as connect:
        yield connect


@pytest.fixture
def either(connect_to_each):
    """A client, once on Valkey and once on Redis."""
    return connect_to_each()


@pytest.fixture
def redis(valkey):
    """A plain client of the server."""
    with contextlib.closing(valkey.client()) as redis:
        yield redis


@pytest.fixture
def journal(redis, client):
    return Journal(redis, client.instance, client.origin)


@pytest.fixture
def start_coordinator(valkey, coordinate):
    """Start a coordinator of the test's instance on Valkey."""
    return lambda: coordinate(valkey.url)


@pytest.fixture
def coordinator(start_coordinator):
    return start_coordinator()


@pytest.fixture
def is_kept(redis, instance):
    """Whether a coordinator keeps a view and has all of its rows."""
    return lambda name="totals": redis.hexists(key(instance, "view", name), views.STATE)


@pytest.fixture
def view_duty(valkey, instance, redis):
    """The duty of views of one coordinator, on a store of its own; whoever kept views before keeps them no more."""
    with contextlib.ExitStack() as stack:

        def begin():
            redis.delete(key(instance, "keepers"))
            store = stack.enter_context(contextlib.closing(Store(valkey.url, instance, patience=0.5)))
            views_duty = keeping.Views()
            return store, lambda: views_duty.run_once(store)

        yield begin


@pytest.fixture(params=["memory", "file"])
def make_store(request, tmp_path):
    """A store for one client; a file is the same each time."""
    return lambda: MemoryPublishStore() if request.param == "memory" else FilePublishStore(tmp_path / "till.db")


@pytest.fixture
def log_of(valkey, instance):
    """(sequence, body) of everything in a topic's log."""
    with contextlib.closing(valkey.client()) as redis:
        yield lambda topic: [
            (int(fields.get(b"n", 0)), fields[b"b"].decode()) for _, fields in redis.xrange(key(instance, "log", topic))
        ]


@pytest.fixture
def frail(start_server, instance):
    return Frail(start_server, instance)


@pytest.fixture
def connect_to(instance):
    """Open guaranteed publishers of a server: ``connect_to(server, ...)``."""
    with contextlib.ExitStack() as stack:

        def connect(server, **options):
            client = Client(server.url, instance=instance, publisher="till-1", **options)
            stack.callback(close_quietly, client)
            return client

        yield connect


@pytest.fixture
def died(client, start_coordinator):
    """Give messages up: ``died([bodies])``; gives their letters."""
    define(client)
    start_coordinator()

    def died(bodies, **options):
        give_up(client, bodies, coordinate=True, **options)
        return client.dead_letters("dead")

    return died
