"""Priorities: the largest next, of equals the oldest, and nothing before all that waits was judged."""

from __future__ import annotations

import json
import random

import pytest
from judged import journal_of, numbers, put
from world import ref

from ampsq.protocol.limits import BATCH, BYTES

LARGEST = 2**64 - 1


def message(number, priority):
    return json.dumps({"n": number, "p": priority})


@pytest.fixture
def queue(world):
    world.queue("work", "orders", priority="/p")
    return world


def drain(world, subscription, wanted=500):
    """Take until nothing comes twice, sweeping meanwhile."""
    out, empty = [], 0
    for _ in range(1_000):
        world.sweep_all()
        taken = world.take(subscription, wanted)
        out += taken
        empty = 0 if taken else empty + 1
        if empty == 2:
            return out
    raise AssertionError("it never ends")


# -- order


def test_the_largest_priority_is_next_and_of_equals_the_oldest(queue):
    world = queue
    put(world, *[message(i, p) for i, p in enumerate([3, 7, 3, 7, 1])])
    subscription = world.subscribe("work", asked=5)
    world.mark()
    taken = world.take(subscription, 5)
    assert numbers(taken) == [1, 3, 0, 2, 4]
    assert [m.token for m in taken] == list("12345")
    assert world.changes() == {
        ":q:work:leases": {m.ref: f"{m.token} {subscription} 1 0 0" for m in taken},
        ":q:work:cursors": {"orders": "1000-4 5"},
        ":q:work": {"token": "5"},
        f":s:{subscription}": {"leased": "5"},
        ":q:work:free:none": None,
    }


def test_a_backlog_of_one_still_gets_the_largest(queue):
    world = queue
    subscription = world.subscribe("work", asked=1)
    put(world, message(0, 1), message(1, 9), message(2, 5))
    order, held = [], []
    while held := world.take(subscription, 1, held):
        order += numbers(held)
    assert order == [1, 2, 0]
    assert ":q:work:sorted:none" not in world.state()


def test_a_later_larger_one_overtakes_what_waits(queue):
    world = queue
    subscription = world.subscribe("work", asked=1)
    put(world, message(0, 1), message(1, 2), message(2, 3))
    held = world.take(subscription)
    put(world, message(3, 9))
    assert numbers(held) == [2]
    assert numbers(world.take(subscription, 1, held)) == [3]


EXACT = [
    2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, 2**60 + 1, 2**60 + 2, 2**60 + 3, 2**63, 2**63 + 1, 2**63 + 2047,
    2**63 + 2048, LARGEST - 2048, LARGEST - 1, LARGEST, 0, 1,
]  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_large_priorities_are_exact(queue, seed):
    world = queue
    values = EXACT * 2
    random.Random(seed).shuffle(values)  # noqa: S311 - any order will do
    put(world, *[message(i, p) for i, p in enumerate(values)])
    subscription = world.subscribe("work", asked=100)
    expected = sorted(range(len(values)), key=lambda i: (-values[i], i))
    assert numbers(drain(world, subscription)) == expected
    assert not {":q:work:places", ":q:work:sorted:none", ":q:work:ready"} & set(world.state())


def test_what_is_no_number_is_last_below_zero_and_a_fraction_is_cut_off(queue):
    world = queue
    values = [None, "x", -5, 0, 0.9, "7", 7.5, [3, 100], True, "", {}, 1e30, -1e30, LARGEST]
    put(world, *[message(i, p) for i, p in enumerate(values)], "no json", '{"n": 15}')
    subscription = world.subscribe("work", asked=100)
    taken = world.take(subscription, 100)
    order = [m.body if m.body == "no json" else json.loads(m.body)["n"] for m in taken]
    assert order == [11, 13, 5, 6, 7, 8, 2, 3, 4, 12, 0, 1, 9, 10, "no json", 15]


def test_a_priority_is_an_expression_over_foreign_entries_too(world):
    world.queue("work", "orders", priority="/price * /qty")
    for i, (price, qty) in enumerate([(2, 3), (5, 5), (1, 1)]):
        world.xadd("orders", f"1-{i + 1}", "price", price, "qty", qty)
    subscription = world.subscribe("work", asked=3)
    assert [m.fields["price"] for m in world.take(subscription, 3)] == ["5", "2", "1"]


# -- coming back


@pytest.mark.parametrize("priority", [5, 2**60 + 1, None])
@pytest.mark.parametrize("way", ["cancelled", "given_back", "lapsed", "delayed", "unsubscribed", "disconnected"])
def test_what_comes_back_returns_to_its_place(world, way, priority):
    world.queue("work", "orders", priority="/p", lease=1_000)
    first = world.subscribe("work", asked=1)
    (place, *_) = put(world, message(0, priority))
    (held,) = world.take(first)
    better = 2**60 + 2 if priority == 2**60 + 1 else 6
    put(world, message(1, better), message(2, priority))
    world.unsubscribe(first) if way == "unsubscribed" else None
    if way == "lapsed":
        world.replace(first, "work", asked=0)
        world.now += 1_001
    elif way == "disconnected":
        world.store.redis.delete(world.key(f":s:{first}"))
        world.now += 1_001
    elif way != "unsubscribed":
        world.replace(first, "work", asked=0)
        world.settle("cancelled" if way == "delayed" else way, [held], period=500 if way == "delayed" else 0)
        world.now += 500
    world.sweep_all()
    second = world.subscribe("work", asked=5)
    taken = world.take(second, 5)
    assert numbers(taken) == [1, 0, 2]
    assert [m.delivery for m in taken if m.ref == place] == [1 if way == "given_back" else 2]
    assert not {":q:work:places", ":q:work:sorted:none", ":q:work:ready"} & set(world.state())


# -- bounded work


def test_nothing_is_given_while_something_is_unread_and_the_sweeps_get_there(queue):
    # Given 2,000 messages, the most urgent last
    world = queue
    for first in range(0, 2_000, BATCH):
        put(world, *[message(i, i) for i in range(first, first + BATCH)])
    subscription = world.subscribe("work", asked=2)
    # When it takes, nothing comes until all were judged, and the timetable goes on with it
    calls = 0
    while not (taken := world.take(subscription, 2)):
        calls += 1
        assert calls < 100
        assert world.state()[":due"] == {"dispatch work": 1_000}
    assert numbers(taken) == [1_999, 1_998]
    assert calls > 3
    assert len(world.state()[":q:work:sorted:none"]) == 1_998


def test_an_empty_reply_says_whether_to_ask_again(queue):
    world = queue
    for first in range(0, 1_000, BATCH):
        put(world, *[message(i, i) for i in range(first, first + BATCH)])
    subscription = world.subscribe("work", asked=1)
    answers = []
    while not answers or not answers[-1][0]:
        answers.append(world.run("take", world.now, subscription, 1))
    assert {answer[2] for answer in answers[:-1]} == {1}
    assert answers[-1][2] == 0
    assert world.run("take", world.now, subscription, 1)[2] == 0


def test_the_sweeps_judge_what_nobody_waits_for_yet_and_end(queue):
    world = queue
    for first in range(0, 2_000, BATCH):
        put(world, *[message(i, i) for i in range(first, first + BATCH)])
    assert world.state()[":due"] == {"dispatch work": 1_000}
    assert world.sweep_all() == -1
    assert len(world.state()[":q:work:sorted:none"]) == 2_000
    assert ":due" not in world.state()
    subscription = world.subscribe("work")
    assert numbers(world.take(subscription)) == [1_999]


def test_a_reply_of_large_bodies_that_have_their_places_is_bounded(queue):
    world = queue
    put(world, *[json.dumps({"n": i, "p": i, "x": "x" * 100_000}) for i in range(40)])
    world.sweep_all()
    subscription = world.subscribe("work", asked=40)
    sizes, got = [], []
    for _ in range(40):
        world.sweep_all()
        taken = world.take(subscription, 40)
        got += numbers(taken)
        sizes.append(len(taken))
        if len(got) == 40:
            break
    assert got == list(range(39, -1, -1))
    assert max(sizes) <= BYTES // 100_000 + 1


# -- the definition changes


@pytest.mark.parametrize("late", [False, True])
def test_another_priority_puts_everything_in_a_new_place(queue, late):
    world = queue
    values = [(1, LARGEST), (2, 5), (3, None), (LARGEST - 1, 7), (LARGEST, 2**60)]
    put(world, *[json.dumps({"n": i, "q": q, "p": p}) for i, (q, p) in enumerate(values)])
    world.sweep_all()
    if late:
        subscription = world.subscribe("work", asked=9)
    world.queue("work", "orders", priority="/q")
    if not late:
        subscription = world.subscribe("work", asked=9)
    assert numbers(drain(world, subscription)) == [4, 3, 2, 1, 0]
    assert not {":q:work:places", ":q:work:sorted:none", ":q:work:ready"} & set(world.state())


@pytest.mark.parametrize("times", [1, 2, 3])
def test_without_a_priority_what_had_its_place_comes_by_age(queue, times):
    world = queue
    places = put(world, *[message(i, p) for i, p in enumerate([1, LARGEST, None, 2**60, 3])])
    world.sweep_all()
    for _ in range(times):
        world.queue("work", "orders")
    put(world, message(5, 9))
    subscription = world.subscribe("work", asked=9)
    assert numbers(drain(world, subscription)) == [0, 1, 2, 3, 4, 5]
    assert not {":q:work:places", ":q:work:sorted:none", ":q:work:ready"} & set(world.state())
    assert [m for m in places if m not in world.holders("work")] == []
    # And when it is defined again with nothing left that had a place, it is plain
    world.queue("work", "orders")
    assert "sorted" not in world.state()[":q:work"]


@pytest.mark.parametrize("state", ["unread", "leased", "ready", "delayed"])
def test_a_priority_that_comes_while_messages_wait_holds_for_them(world, state):
    world.queue("work", "orders")
    put(world, *[message(i, i) for i in range(4)])
    if state != "unread":
        former = world.subscribe("work", asked=2)
        held = world.take(former, 2)
        world.replace(former, "work", asked=0)
        if state != "leased":
            world.settle("cancelled", held, period=500 if state == "delayed" else 0)
    world.queue("work", "orders", priority="/p")
    if state == "leased":
        world.settle("cancelled", held)
    world.now += 500
    world.sweep_all()
    subscription = world.subscribe("work", asked=9)
    assert numbers(drain(world, subscription)) == [3, 2, 1, 0]


def test_another_priority_over_thousands_gives_nothing_before_all_have_their_places(queue):
    # Given 1,850 that have their places and 350 that came back
    world = queue
    world.topic("orders", "work")
    for first in range(0, 2_200, 550):
        put(world, *[json.dumps({"n": i, "p": i, "q": -i + 5_000}) for i in range(first, first + 550)])
    world.sweep_all()
    holder = world.subscribe("work", asked=700)
    while len(world.holders("work")) < 700:
        world.take(holder, 350)
    world.unsubscribe(holder)
    for _ in range(4):
        world.sweep()
    assert world.state()[":q:work:ready"]
    assert len(world.state()[":q:work:sorted:none"]) > BATCH
    # When the priority is turned round
    world.queue("work", "orders", priority="/q")
    subscription = world.subscribe("work", asked=500)
    for _ in range(200):
        taken = world.take(subscription, 500)
        if taken:
            break
        world.sweep()
    assert numbers(taken) == list(range(500))
    assert "resort" not in world.state()[":q:work:filters"]


# -- by bookmark, and removed by others


@pytest.mark.parametrize("verb", ["acknowledged", "expired"])
@pytest.mark.parametrize("priority", [4, 2**60 + 1, LARGEST, None])
def test_what_has_its_place_is_settled_by_bookmark(queue, verb, priority):
    world = queue
    first, _ = put(world, message(0, priority), message(1, 1))
    world.sweep_all()
    world.mark()
    assert world.settle(verb, {"work": [(first, "")]}) == {}
    more = {"attempts": "0:0"} if verb == "expired" else {}
    reason = "forced_expire" if verb == "expired" else ""
    changes = {
        ":q:work:journal": [{"how": verb, "reason": reason, "refs": first, **more}],
        ":q:work": {verb: "1"},
    }
    found = world.changes()
    assert {name: found.get(name) for name in changes} == changes
    (member,) = found.pop(":q:work:sorted:none")
    assert member.endswith(first)
    assert set(found) == set(changes) | ({":q:work:places"} if priority and priority > 2**53 else set())
    world.mark()
    assert world.settle(verb, {"work": [(first, "")]}) == {first: "AMPSQ_ALREADY_ACKED"}
    assert world.changes() == {}
    subscription = world.subscribe("work", asked=2)
    assert numbers(world.take(subscription, 2)) == [1]


@pytest.mark.parametrize("verb", ["acknowledged", "expired"])
def test_what_lost_its_place_with_the_priority_is_settled_by_bookmark_and_leaves_nothing(queue, verb):
    world = queue
    first, second = put(world, message(0, 2**60 + 1), message(1, LARGEST))
    world.sweep_all()
    world.queue("work", "orders")
    assert world.settle(verb, {"work": [(first, ""), (second, "")]}) == {}
    assert not {":q:work:places", ":q:work:sorted:none", ":q:work:ready"} & set(world.state())
    assert journal_of(world, verb) == [first, second]


@pytest.mark.parametrize("priority", [4, LARGEST])
def test_what_somebody_removed_from_the_log_is_missing_and_the_next_comes(queue, priority):
    world = queue
    first, second, third = put(world, message(0, priority), message(1, 1), message(2, priority))
    world.sweep_all()
    world.store.redis.xdel(world.key(":log:orders"), "1000-0", "1000-2")
    subscription = world.subscribe("work", asked=2)
    assert [m.ref for m in world.take(subscription, 2)] == [second]
    assert journal_of(world, "missing") == [first, third]
    assert not {":q:work:places", ":q:work:sorted:none", ":q:work:ready"} & set(world.state())


def test_thousands_that_somebody_removed_from_the_log_are_missing_in_bounded_calls(queue):
    world = queue
    for first in range(0, 5_000, BATCH):
        put(world, *[message(i, i) for i in range(first, first + BATCH)])
    world.sweep_all()
    world.store.redis.xtrim(world.key(":log:orders"), maxlen=1, approximate=False)
    subscription = world.subscribe("work", asked=1)
    world.settle("acknowledged", {"work": [(world.take(subscription)[0].ref, "")]})
    for _ in range(100):
        world.take(subscription)
        world.sweep_all()
    assert len(journal_of(world, "missing")) == 4_999
    entries = [e for e in world.state()[":q:work:journal"] if e["how"] == "missing"]
    assert max(len(e["refs"].split(" ")) for e in entries) <= 1_000


# -- with the rest


def test_several_topics_are_one_order(world):
    world.queue("work", "orders", "letters", priority="/p")
    put(world, message(0, 1), message(1, 5))
    put(world, message(2, 5), message(3, 9), topic="letters")
    put(world, message(4, 5))
    subscription = world.subscribe("work", asked=9)
    assert numbers(drain(world, subscription)) == [3, 1, 2, 4, 0]
    assert ":q:work:behind" not in world.state()


def test_priorities_and_filters_give_each_its_largest(queue):
    world = queue
    put(world, *[message(i, p) for i, p in enumerate([5, LARGEST, 3, 2**60, 9, 7])])
    even = world.subscribe("work", asked=2, filter="/n % 2 = 0")
    everything = world.subscribe("work", asked=2)
    world.sweep_all()
    got = {"even": numbers(world.take(even, 2)), "all": numbers(world.take(everything, 2))}
    assert got == {"even": [4, 0], "all": [1, 3]}


def test_at_most_once_journals_in_the_order_of_priority(world):
    world.queue("work", "orders", priority="/p", once=1, fairness="round-robin")
    subscription = world.subscribe("work", asked=3)
    places = put(world, message(0, 1), message(1, 2**60), message(2, 2))
    taken = world.take(subscription, 3)
    assert numbers(taken) == [1, 2, 0]
    assert journal_of(world, "delivered") == [places[1], places[2], places[0]]


def test_the_queue_s_own_limit_bounds_what_is_given_by_priority(world):
    world.queue("work", "orders", priority="/p", backlog=2)
    one, two = world.subscribe("work", asked=5), world.subscribe("work", asked=5)
    put(world, *[message(i, i) for i in range(5)])
    held = world.take(one, 5) + world.take(two, 5)
    assert sorted(numbers(held)) == [3, 4]
    world.settle("acknowledged", held[:1])
    assert len(world.holders("work")) == 2
    assert sorted(numbers(world.take(one, 5) + world.take(two, 5))) == [2]


def test_settled_ahead_of_reading_is_never_judged(queue):
    world = queue
    first, second = put(world, message(0, 9), message(1, 1))
    assert world.settle("acknowledged", {"work": [(first, "")]}) == {}
    world.sweep_all()
    assert set(world.state()[":q:work:sorted:none"]) == {second}
    assert ":q:work:ahead" not in world.state()


@pytest.mark.parametrize("size", [10, 30_000])
def test_neighbours_of_one_priority_are_read_together_whatever_is_gone_of_them(world, size):
    # Given 130 messages that have their places, in stretches of 1, 9, 100 and 20 of one priority
    world.queue("work", "orders", priority="/n", lease=5_000)
    priorities = [9] + [5] * 9 + [7] * 100 + [5] * 20
    world.publish("orders", *(json.dumps({"n": n, "at": at, "x": "x" * size}) for at, n in enumerate(priorities)))
    subscription, other = world.subscribe("work", asked=500), world.subscribe("work", asked=0)
    drained = []
    while not drained:
        drained = world.take(subscription, 1)
    assert [json.loads(message.body)["at"] for message in drained] == [0]
    # When some leave the log, at the beginning, in the middle and at the end of stretches
    gone = [10, 15, 16, 109, 110, 129]
    assert world.store.redis.xdel(world.key(":log:orders"), *(f"1000-{at}" for at in gone)) == len(gone)
    taken = []
    while some := world.take(subscription, 60):
        taken += [json.loads(message.body)["at"] for message in some]

    # Then all others come in their order, and these are settled as missing
    expected = [*range(10, 110), *range(1, 10), *range(110, 130)]
    assert taken == [at for at in expected if at not in gone]
    assert sorted(journal_of(world, "missing")) == sorted(ref(f"1000-{at}") for at in gone)
    assert world.take(other, 1) == []
