"""Cost of one call for the server at most: large leased messages, many filters, barriers over what has its place."""

from __future__ import annotations

import itertools
import json

import pytest
from cases import first_ones
from world import decoded, ref

from ampsq.expressions import parse
from ampsq.protocol.limits import BATCH


class Meter:
    """The server's processor time of each call, ms."""

    def __init__(self, world):
        self._world, self.times = world, []

    def _used(self):
        info = self._world.store.redis.info("cpu")
        return (info["used_cpu_user"] + info["used_cpu_sys"]) * 1_000

    def __call__(self, call, *arguments):
        before = self._used()
        try:
            return call(*arguments)
        finally:
            self.times.append(self._used() - before)


@pytest.fixture
def meter(world):
    return Meter(world)


def put(world, bodies):
    """Publish one by one where they are large; gives all refs."""
    refs, some = [], 1 if len(bodies[0]) > 1_000 else BATCH
    for first in range(0, len(bodies), some):
        part = bodies[first : first + some]
        ms, sequence = world.publish("orders", *part)[2].split("-")
        refs += [ref(f"{ms}-{int(sequence) + k}") for k in range(len(part))]
    return refs


def drain(step):
    """All parts of a walk: step(after) gives where it goes on, and refs."""
    after, found = "", []
    while True:
        after, more = step(after)
        found += more
        if not after:
            return found


# -- leased messages


@pytest.fixture
def leased(world):
    """110 leased messages of 850 kB."""
    world.queue("work", "orders", room=1_000)
    world.holder = world.subscribe("work", asked=200)
    world.places = put(world, [json.dumps({"n": i, "x": "x" * 850_000}) for i in range(110)])
    while len(world.holders("work")) < 110:
        world.take(world.holder, 200)
    return world


def test_leased_messages_that_are_large_are_browsed_a_few_at_a_time(leased, meter):
    world = leased
    tree = parse("/n >= 0", "query").json
    counts = []

    def step(after):
        following, _, *found = meter(world.run, "browse", world.now, "work", "leases", after, "", tree)
        counts.append(len(found) // 6)
        return following, found[::6]

    assert sorted(drain(step)) == world.places
    assert max(counts) <= 20
    assert max(meter.times) < 300


def test_a_look_at_large_messages_answers_for_the_first_ones(leased, meter):
    world = leased
    world.unsubscribe(world.holder)
    world.sweep_all()
    left, found, looked = world.places, [], []
    while left:
        number, *some = meter(world.run, "read_available", world.now, "work", *left)
        found += some[::6]
        looked.append(number)
        left = left[number:]
    assert found == world.places
    assert max(looked) == 1
    assert max(meter.times) < 100


def test_places_whose_messages_left_the_log_are_browsed_in_steps(world):
    # Given thousands of messages that came back, and whose log somebody removed
    world.queue("work", "orders", room=20_000)
    holder = world.subscribe("work", asked=12_000)
    put(world, [str(i) for i in range(12_000)])
    while len(world.take(holder, BATCH)):
        pass
    world.unsubscribe(holder)
    world.sweep_all()
    world.store.redis.delete(world.key(":log:orders"))
    # When they are looked through, then in several calls
    steps = []

    def step(after):
        following, _, *found = world.run("browse", world.now, "work", "ready", after, "", "")
        steps.append(following)
        return following, found

    assert drain(step) == []
    assert 2 <= len(steps) <= 10


# -- filters


@first_ones(("filters", "size"), [(4, 30_000), (32, 10_000), (32, 126_000)], 2)
def test_many_filters_judge_a_few_large_messages_at_a_time(world, meter, filters, size):
    # Given large messages that came back, and filters that look through their bodies
    number = 30
    world.queue("work", "orders", room=1_000)
    holder = world.subscribe("work", asked=100)
    places = put(world, [json.dumps({"n": i, "x": "ab" * (size // 2)}) for i in range(number)])
    while len(world.holders("work")) < number:
        world.take(holder, 100)
    world.unsubscribe(holder)
    world.sweep_all()
    readers = [world.subscribe("work", asked=10, filter=f"/x LIKE 'a.*b.*q.*{k}'") for k in range(filters)]
    meter.times.clear()
    # When they are judged
    ready = world.key(":q:work:ready")
    counts = [world.store.redis.zcard(ready)]
    assert counts == [number]
    while counts[-1]:
        assert len(counts) <= 2 * number
        assert meter(world.take, readers[0]) == []
        counts.append(world.store.redis.zcard(ready))
    # Then each call stops soon after its share, and every message has its place
    assert decoded(world.store.redis.zrange(world.key(":q:work:sorted:none"), 0, -1)) == places
    steps = [before - after for before, after in itertools.pairwise(counts)]
    assert max(steps) <= {4: 8, 32: 4}[filters]
    assert max(meter.times) < (400 if size > 100_000 else 150)


def test_what_was_settled_ahead_is_passed_over_as_fast_with_many_filters(world):
    world.queue("work", "orders")
    readers = [world.subscribe("work", filter=f"/n = {k}") for k in range(2_000, 2_016)]
    world.store.redis.hset(world.key(":q:work:ahead"), mapping={ref(f"1000-{i}"): "acknowledged" for i in range(2_000)})
    put(world, [json.dumps({"n": i}) for i in range(2_001)])
    for _ in range(4):
        if found := world.take(readers[0]):
            break
        world.sweep_all()
    assert [json.loads(m.body)["n"] for m in found or world.take(readers[0])] == [2_000]


# -- barriers


def placed(world, number, barrier):
    """Messages that had their places before some of them became barriers."""
    world.queue("work", "orders", room=2_000)
    reader = world.subscribe("work", filter="/n < 0")
    places = put(world, [json.dumps({"n": i}) for i in range(number)])
    while world.store.redis.zcard(world.key(":q:work:sorted:none")) < number:
        world.take(reader)
    world.queue("work", "orders", room=2_000, barrier=barrier)
    world.unsubscribe(reader)
    return places


def test_a_barrier_does_not_move_what_waits_behind_it(world, meter):
    # Given 20,000 messages with their places, every five hundredth of which is a barrier by now
    places = placed(world, 20_000, "/n % 500 = 499")
    subscription = world.subscribe("work", asked=500)
    meter.times.clear()
    # When they are worked off
    order, acks, held = [], [], []
    for _ in range(120):
        taken = meter(world.take, subscription, BATCH, acks)
        order += [m.ref for m in taken]
        acks = [m for m in taken if m.delivery]
        held.append(world.store.redis.zcard(world.key(":q:work:held")))
        if not taken:
            meter(world.sweep)
        if len(order) == len(places):
            break
    # Then all come in turn, few are held at a time, and no call is long
    assert order == places
    assert max(held) <= 100
    assert max(meter.times) < 150


def test_what_is_ready_behind_a_barrier_waits_and_what_comes_back_before_it_does_not(world):
    # Given a barrier with more behind it than one step reads, and a message before it that is held
    places = placed(world, 400, "/n = 2")
    first = world.subscribe("work", asked=2)
    held = world.take(first, 2)
    assert [m.ref for m in held] == places[:2]
    world.sweep_all()
    ready = sorted(world.state()[":q:work:ready"])
    assert ready == places[-len(ready) :]
    assert len(ready) >= 200
    # When that comes back, then it is given again and nothing behind the barrier
    world.settle("cancelled", held[1:])
    again = world.take(first, 2)
    assert [m.ref for m in again] == places[1:2]
    assert sorted(world.state()[":q:work:ready"]) == ready
    # What is ready behind the barrier is held, with all of them before it
    facts = world.run("explain", world.now, "work", places[300])
    told = dict(zip(facts[::2], facts[1::2], strict=True))
    assert (told["where"], told["barrier"], told["before"]) == ("held", places[2], "298")
    facts = world.run("explain", world.now, "work", "")
    assert dict(zip(facts[::2], facts[1::2], strict=True))["ref"] == places[2]
    # One of those is settled by bookmark
    assert world.settle("acknowledged", {"work": [(places[300], "")]}) == {}
    # When all before it is acknowledged, then the barrier comes, and the others in turn
    order, acks = [], [held[0], again[0]]
    while taken := world.take(first, 2, acks):
        order += [m.ref for m in taken]
        acks = [m for m in taken if m.delivery]
    assert order == [*places[2:300], *places[301:]]
