"""Counting who listens on the channels of many clients, where a connection has ended: nobody who goes is missed."""

from __future__ import annotations

import contextlib

import pytest

from ampsq.coordinator.listener_counts import ListenerCounts
from ampsq.transport.store import Store

MANY = 120


@pytest.fixture
def own(start_server):
    """A server of the test's own: nobody else's connections end there."""
    return start_server("valkey")


@pytest.fixture
def store(own):
    with contextlib.closing(Store(own.url, "one")) as store:
        yield store


@pytest.fixture
def looks(store):
    """Looks that count: ``look()`` gives whose channels nobody listens to, and how many calls that took."""
    counts = ListenerCounts()
    channels = [(f"{{one}}:client:{number}", number) for number in range(MANY)]

    def look(known=channels):
        calls = counts.begin(known)
        absent, is_doubtful = counts.take_in(iter([store.call(call) for call in calls]))
        if is_doubtful:
            more = counts.calls()
            absent = counts.absent(iter([store.call(call) for call in more]))
            calls = [*calls, *more]
        return absent, len(calls)

    return look


@pytest.fixture
def listen(own):
    """Make a connection that listens on the channels of some clients; gives it."""
    with contextlib.ExitStack() as stack:

        def begin(numbers):
            client = stack.enter_context(contextlib.closing(own.client()))
            listening = stack.enter_context(client.pubsub())
            listening.subscribe(*(f"{{one}}:client:{number}" for number in numbers))
            for _ in numbers:
                listening.get_message(timeout=5)
            return listening

        yield begin


def test_channels_are_counted_again_only_where_a_connection_has_ended(looks, listen):
    # Given clients of two processes
    listen(range(100))
    other = listen(range(100, MANY))
    assert looks() == (set(), 2)
    assert [looks() for _ in range(3)] == [(set(), 1)] * 3
    # When one process ends, and another one connects meanwhile
    other.close()
    listen([])
    # Then its clients are missed at once, and the others are not
    assert looks() == (set(range(100, MANY)), 2)
    assert looks() == (set(), 1)


def test_a_channel_that_is_left_alone_is_missed_a_few_looks_later(looks, listen):
    listening = listen(range(MANY))
    assert looks() == (set(), 2)
    listening.unsubscribe("{one}:client:7")
    found = [looks()[0] for _ in range(8)]
    assert {7} in found


def test_a_new_channel_is_counted_at_once(looks, listen):
    listen(range(MANY))
    channels = [(f"{{one}}:client:{number}", number) for number in range(MANY)]
    assert looks() == (set(), 2)
    assert looks([*channels, ("{one}:client:new", "new")]) == ({"new"}, 2)


def test_few_channels_are_counted_each_time(looks):
    few = [("{one}:client:1", 1)]
    assert [looks(few) for _ in range(2)] == [({1}, 1)] * 2
