"""Publishers with a store, and servers that fail them."""

from __future__ import annotations

import contextlib

import pytest
from guaranteeing import Frail, close_quietly

from ampsq import Client, FilePublishStore, MemoryPublishStore
from ampsq.protocol.schema import key


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
    """Open clients, each with a publisher: what is given besides the server is that one's."""
    with contextlib.ExitStack() as stack:

        def connect(server, retry_timeout="15s", **options):
            client = Client(server.url, instance=instance, retry_timeout=retry_timeout)
            stack.callback(close_quietly, client)
            return client, client.publisher("till-1", **options)

        yield connect
