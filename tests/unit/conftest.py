"""A store and a client of the test's instance, for duties that a test runs a round at a time."""

from __future__ import annotations

import pytest

from ampsq import Client


@pytest.fixture
def store(valkey_store):
    return valkey_store


@pytest.fixture
def client(store):
    with Client(store.url, instance=store.instance) as client:
        yield client
