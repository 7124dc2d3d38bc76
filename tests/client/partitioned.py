"""A queue of all partitions, and messages with keys, for tests of clients of all partitions."""

from __future__ import annotations

import pytest

from ampsq import Queue

TOTAL = 4
WORK = Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=50, lease_period="20s")


@pytest.fixture
def client_of_partitions(connect_partitions):
    """A client of all partitions of the test's instance."""
    return connect_partitions()


def origin_of(bookmark):
    """Return the name of a partition without its letters."""
    return bookmark.origin.rpartition(".")[0]


def messages_of(keys, each):
    """Make as many messages of each of so many keys."""
    return [{"key": f"k{number % keys}", "number": number} for number in range(keys * each)]


def key_of(message):
    """Return the key of a message."""
    return message["key"]
