"""The duty that asks other instances for messages: how soon it asks again."""

from __future__ import annotations

import pytest

from ampsq import Destination, Queue
from ampsq.coordinator.links import Links
from ampsq.protocol.schema import key

SOON, LATE = 0.1, 60.0


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def duty(client, clock, monkeypatch):
    """Of an instance with a consumer, where another instance owns what waits; that one is never asked."""
    monkeypatch.setattr(Links, "_request", staticmethod(lambda *_: 0))
    client.apply(Queue(name="work"), Destination(name="other", sync_type="async", topics=["work"]))
    with client.subscribe("work"):
        yield Links(clock=clock)


@pytest.fixture
def elsewhere(client, store):
    """Return a function that sets how many messages wait that the other instance owns."""
    place = key(client.instance, "remote", "work")

    def wait(number):
        store.redis.delete(place)
        for each in range(number):
            store.redis.zadd(place, {f"00000-{each}": 0})

    return wait


def test_what_stays_elsewhere_is_asked_for_less_often_after_a_while(duty, store, clock, elsewhere):
    # Given a message that another instance owns, such as a delayed one
    elsewhere(1)
    assert duty.run_once(store) == SOON
    clock.now += 1.9
    assert duty.run_once(store) == SOON
    # When nothing changes
    clock.now += 0.2
    # Then only a look at the instance asks for it
    assert duty.run_once(store) == LATE
    # And another one is asked for soon
    elsewhere(2)
    assert duty.run_once(store) == SOON


def test_a_message_that_comes_after_a_quiet_time_is_asked_for_soon(duty, store, clock, elsewhere):
    # Given one that was handed over
    elsewhere(1)
    assert duty.run_once(store) == SOON
    elsewhere(0)
    assert duty.run_once(store) == LATE
    # When as many wait much later
    clock.now += 60
    elsewhere(1)
    # Then that is news
    assert duty.run_once(store) == SOON
