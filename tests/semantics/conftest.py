"""A client on an instance of the test's own, further clients of the same instance, and coordinators."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading

import pytest
from scene import Journal

from ampsq import Client
from ampsq.coordinator import Coordinator

_numbers = itertools.count(1)


@pytest.fixture
def instance():
    """A name that no other test uses: no two tests share a key."""
    return f"sem-{os.getpid()}-{next(_numbers)}"


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
def journal(valkey, client):
    with contextlib.closing(valkey.client()) as redis:
        yield Journal(redis, client.instance, client.origin)


@contextlib.contextmanager
def _coordinating(url, instance):
    coordinator = Coordinator(url, [instance])
    thread = threading.Thread(target=coordinator.run)
    thread.start()
    try:
        yield coordinator
    finally:
        coordinator.stop()
        thread.join()


@pytest.fixture
def start_coordinator(valkey, instance):
    """Start a coordinator of the test's instance in a thread; all are stopped with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(_coordinating(valkey.url, instance))


@pytest.fixture
def coordinator(start_coordinator):
    return start_coordinator()
