"""A store of the test's instance, for duties that a test runs a round at a time; and servers of a test's own."""

from __future__ import annotations

import contextlib

import pytest

from ampsq.coordinator.actions import Actions
from ampsq.protocol.schema import key


@pytest.fixture
def store(valkey_store):
    return valkey_store


@pytest.fixture
def own(start_server):
    """A server of the test's own, on which nobody else has instances."""
    return start_server("valkey", appendonly=True)


@pytest.fixture
def plain(own):
    """A plain client of that server."""
    with contextlib.closing(own.client()) as client:
        yield client


@pytest.fixture
def published(valkey, client):
    """Return a function that gives the bodies published to a topic, in order."""

    def read(topic):
        with valkey.client() as redis:
            return [fields[b"b"] for _, fields in redis.xrange(key(client.instance, "log", topic))]

    return read


@pytest.fixture
def act(client):
    """Rounds of the duty, until nothing more is to be done."""
    duty = Actions()

    def rounds(number=3, duty=duty):
        for _ in range(number):
            while not duty.run_once(client._store):
                pass

    return rounds
