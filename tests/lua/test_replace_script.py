"""replace: another filter, backlog or other queues; leases stay, what nobody picked up goes back uncounted."""

from __future__ import annotations

import pytest
from judged import message, numbers, put
from world import wished

from ampsq.base.errors import AmpsqError, TooManyFilters
from ampsq.protocol.limits import BATCH, KEEP_FILTER, MAX_FILTERS, RETURNED

END = '{"end":1}'


def replace_all(world, subscription, *queues, **wish):
    """As a client does: until nothing of the former inbox is left."""
    for _ in range(20):
        maximum, more = world.replace(subscription, *queues, **wish)
        if not more:
            return maximum
        # It is the same wish, which is carried out in several calls.
        world.requests -= 1
    raise AssertionError("replace never ends")


@pytest.fixture
def queues(world):
    world.queue("work", "orders", room=1_000)
    world.queue("other", "elsewhere", room=50)
    return world


# -- what changes


def test_another_filter_leaves_the_former_s_places_and_takes_its_own(queues):
    world = queues
    subscription = world.subscribe("work", asked=2, filter="/n = 1")
    (former, _), (name, tree) = wished("/n = 1"), wished("/n = 2")
    world.mark()
    assert world.replace(subscription, "work", asked=3, filter="/n = 2") == [3, 0]
    assert world.changes() == {
        f":s:{subscription}": {"asked": "3", "max": "3", "wish": "2", "filter": name, "tree": tree},
        ":q:work": {"sorted": f"none {former} {name}"},
        ":q:work:filters": {f"users {former}": "0", f"filter {name}": tree, f"users {name}": "1"},
        f":q:work:free:{former}": None,
        f":q:work:free:{name}": {subscription: 0},
        ":due": {f"filter work {former}": 1_000 + KEEP_FILTER},
    }


def test_after_another_filter_only_what_it_allows_is_delivered(queues):
    world = queues
    subscription = world.subscribe("work", asked=2, filter="/n < 5")
    put(world, *map(message, range(10)))
    held = world.take(subscription, 1)
    assert len(world.inbox(subscription)) == 1
    replace_all(world, subscription, "work", asked=5, filter="/n >= 5")
    assert numbers(world.take(subscription, 9)) == [5, 6, 7, 8]
    assert numbers(world.take(subscription, 9, held)) == [9]
    other = world.subscribe("work", asked=9)
    again = world.take(other, 9)
    assert [(n, m.delivery) for n, m in zip(numbers(again), again, strict=True)] == [(n, 1) for n in (1, 2, 3, 4)]


def test_a_filter_may_come_and_go(queues):
    world = queues
    subscription = world.subscribe("work", asked=2)
    put(world, *map(message, range(6)))
    held = world.take(subscription, 2)
    replace_all(world, subscription, "work", asked=4, filter="/n > 3")
    assert numbers(world.take(subscription, 9)) == [4, 5]
    replace_all(world, subscription, "work", asked=4)
    fields = world.state()[f":s:{subscription}"]
    assert "filter" not in fields
    assert "tree" not in fields
    assert numbers(world.take(subscription, 9, held)) == [2, 3]


def test_other_queues_stop_the_former_ones_and_start_the_new_ones(queues):
    world = queues
    subscription = world.subscribe("work", asked=3)
    put(world, *map(message, range(5)))
    put(world, message(100), topic="elsewhere")
    held = world.take(subscription, 1)
    assert replace_all(world, subscription, "other", asked=3) == 3
    state = world.state()
    assert ":q:work:subscriptions" not in state
    assert ":q:work:free:none" not in state
    assert state[":q:other:subscriptions"] == {subscription}
    assert state[f":s:{subscription}"]["queues"] == "other"
    assert [m.queue for m in world.take(subscription, 9)] == ["other"]
    assert world.holders("work") == {held[0].ref: subscription}
    # What it holds of the former queue is still its own to acknowledge, and still counts
    assert world.state()[f":s:{subscription}"]["leased"] == "2"
    assert world.settle("acknowledged", held, by=subscription) == {}
    assert world.state()[f":s:{subscription}"]["leased"] == "1"


def test_the_new_queue_s_limit_holds(queues):
    world = queues
    subscription = world.subscribe("work", asked=500)
    assert world.replace(subscription, "other", asked=500) == [50, 0]
    assert world.replace(subscription, "work", "other", asked=20) == [20, 0]
    assert world.replace(subscription, "work", asked=500) == [500, 0]


def test_what_a_freed_place_was_waiting_for_is_given_to_others(queues):
    world = queues
    world.queue("work", "orders", backlog=2)
    subscription, waiting = world.subscribe("work", asked=2), world.subscribe("work", asked=2)
    put(world, message(0))
    put(world, message(1))
    holder = next(iter(world.holders("work").values()))
    other = waiting if holder == subscription else subscription
    replace_all(world, holder, "other")
    assert set(world.holders("work").values()) == {other}


def test_a_pattern_comes_and_goes_with_the_catalog_s_version(queues):
    world = queues
    subscription = world.subscribe("work")
    version = world.version()
    world.replace(subscription, "work", "other", pattern=".*", version=version)
    assert world.state()[":patterns"] == {subscription: ".*"}
    assert world.version() != version
    version = world.version()
    world.replace(subscription, "work")
    assert ":patterns" not in world.state()
    assert world.version() != version
    version = world.version()
    world.replace(subscription, "other")
    assert world.version() == version


# -- leases stay


def test_ten_become_five_with_ten_outstanding_and_nothing_comes_until_they_are_less(queues):
    world = queues
    subscription = world.subscribe("work", asked=10)
    put(world, *map(message, range(20)))
    held = world.take(subscription, 10)
    leases = world.state()[":q:work:leases"]
    world.mark()
    assert world.replace(subscription, "work", asked=5) == [5, 0]
    assert world.changes() == {f":s:{subscription}": {"asked": "5", "max": "5", "wish": "2", "left": " work"}}
    assert world.state()[":q:work:leases"] == leases
    for k in range(5):
        assert world.take(subscription, 9, held[k : k + 1]) == []
        assert ":q:work:free:none" not in world.state()
    assert numbers(world.take(subscription, 9, held[5:6])) == [10]
    assert world.state()[f":s:{subscription}"]["leased"] == "5"


def test_a_larger_backlog_is_filled_at_once(queues):
    world = queues
    subscription = world.subscribe("work", asked=1)
    put(world, *map(message, range(9)))
    world.take(subscription)
    replace_all(world, subscription, "work", asked=4)
    assert numbers(world.take(subscription, 9)) == [1, 2, 3]


def test_leases_keep_their_tokens_and_lapse_as_before(world):
    world.queue("work", "orders", lease=1_000)
    subscription = world.subscribe("work", asked=2)
    put(world, message(0), message(1))
    held = world.take(subscription, 2)
    world.replace(subscription, "work", asked=1, filter="/n = 1")
    world.now += 900
    assert world.settle("extended", held[:1], period=1_000) == {}
    world.now += 101
    world.sweep_all()
    assert set(world.holders("work")) == {held[0].ref}
    assert world.settle("acknowledged", held[:1]) == {}
    (again,) = world.take(subscription, 2)
    assert (again.ref, again.delivery) == (held[1].ref, 2)


def test_what_is_held_of_a_queue_that_was_left_comes_back_when_its_holder_is_gone(queues):
    # Given a queue without a lease period, left by a holder that then ends
    world = queues
    subscription = world.subscribe("work", asked=1)
    put(world, message(0))
    (held,) = world.take(subscription)
    world.replace(subscription, "other")
    world.unsubscribe(subscription)
    # Then in the end somebody else gets its message
    for _ in range(5):
        wait = world.sweep_all()
        world.now += max(wait, 0)
    other = world.subscribe("work")
    assert [(m.ref, m.delivery) for m in world.take(other)] == [(held.ref, 2)]


# -- the inbox


@pytest.mark.parametrize("number", [3, BATCH, BATCH + 1, 2 * BATCH + 50])
def test_an_inbox_is_given_back_uncounted_and_served_anew(world, number):
    world.queue("work", "orders", room=5_000)
    subscription = world.subscribe("work", asked=5_000)
    for first in range(0, number, BATCH):
        put(world, *map(message, range(first, min(first + BATCH, number))))
    assert len(world.inbox(subscription)) == number
    replace_all(world, subscription, "work", asked=5_000, filter="/n % 2 = 0")
    assert world.state()[f":s:{subscription}"]["leased"] == str(len(world.holders("work")))
    got = []
    for _ in range(50):
        world.sweep_all()
        got += world.take(subscription, 500)
    assert numbers(got) == list(range(0, number, 2))
    assert {m.delivery for m in got} == {1}
    assert ":q:work:attempts" not in world.state()
    assert world.state()[f":s:{subscription}"]["leased"] == str(len(got))


def test_replacing_by_the_same_ends_and_delivers_each_once(queues):
    world = queues
    subscription = world.subscribe("work", asked=3)
    put(world, *map(message, range(5)))
    replace_all(world, subscription, "work", asked=3)
    taken = world.take(subscription, 9)
    assert [(n, m.delivery) for n, m in zip(numbers(taken), taken, strict=True)] == [(0, 1), (1, 1), (2, 1)]


@pytest.mark.parametrize(("text", "kept"), [(None, True), ("/end = 1", True), ("/n > 0", False)])
def test_a_barrier_in_the_inbox_stays_if_the_new_wish_has_it(world, text, kept):
    world.queue("work", "orders", barrier="/end = 1")
    world.queue("other", "elsewhere")
    subscription = world.subscribe("work", asked=2)
    put(world, END, message(1))
    assert len(world.inbox(subscription)) == 2
    replace_all(world, subscription, "work", "other", asked=2, filter=text)
    taken = world.take(subscription, 9)
    assert [m.body for m in taken] == [END] * kept + [message(1)] * (text != "/end = 1")


def test_a_barrier_of_a_queue_that_is_left_goes(world):
    world.queue("work", "orders", barrier="/end = 1")
    world.queue("other", "elsewhere")
    subscription = world.subscribe("work", asked=2)
    put(world, END, message(1))
    replace_all(world, subscription, "other", asked=2)
    assert world.take(subscription, 9) == []
    assert world.holders("work") == {}


def ends(world, *numbers):
    put(world, *[f'{{"end":1,"n":{number}}}' for number in numbers])


@pytest.mark.parametrize("number", [2, RETURNED - 1, RETURNED, RETURNED + 1, 3 * RETURNED + 7])
def test_replacing_ends_however_many_barriers_are_in_the_inbox(world, number):
    world.queue("work", "orders", room=5_000, barrier="/end = 1")
    subscription = world.subscribe("work", asked=5_000)
    for first in range(0, number, 20):
        ends(world, *range(first, min(first + 20, number)))
    world.sweep_all()
    assert len(world.inbox(subscription)) == number

    replace_all(world, subscription, "work", asked=5_000)

    assert numbers(world.inbox(subscription)) == list(range(number))


def test_messages_and_barriers_of_a_long_inbox_stay_in_their_order(world):
    # Given an inbox in which barriers stand before, between and behind more messages than one call gives back
    world.queue("work", "orders", room=5_000)
    world.queue("ends", "ends", room=5_000, barrier="/end = 1")
    subscription = world.subscribe("work", "ends", asked=5_000)
    number = RETURNED + 50
    put(world, '{"end":1,"n":1}', topic="ends")
    put(world, *map(message, range(number)))
    put(world, '{"end":1,"n":2}', topic="ends")
    assert [m.queue for m in world.inbox(subscription)] == ["ends", *["work"] * number, "ends"]
    # When the same is wished once more, and more is published before its second call
    assert world.replace(subscription, "work", "ends", asked=5_000)[1] == 1
    world.requests -= 1
    put(world, message(number))
    assert world.replace(subscription, "work", "ends", asked=5_000)[1] == 0
    world.sweep_all()
    # Then barriers stand in their order, and tokens of messages rise, which tells sweeps what was picked up
    found = world.inbox(subscription)
    assert numbers(m for m in found if m.queue == "ends") == [1, 2]
    assert numbers(m for m in found if m.queue == "work") == list(range(number + 1))
    tokens = [int(m.token) for m in found if m.queue == "work"]
    assert tokens == sorted(tokens)


@pytest.mark.parametrize("picked", [0, 30])
def test_what_lapses_while_a_long_inbox_is_replaced_counts_only_where_it_was_picked_up(world, picked):
    # Given an inbox of more messages than one call gives back, of which some were picked up, behind a barrier
    world.queue("work", "orders", room=5_000, lease=5_000)
    world.queue("ends", "ends", room=5_000, barrier="/end = 1")
    subscription = world.subscribe("work", "ends", asked=5_000)
    put(world, '{"end":1,"n":1}', topic="ends")
    number = RETURNED + 100
    put(world, *map(message, range(number)))
    held = world.inbox(subscription)[: picked + 1]
    world.store.redis.lpop(world.key(f":s:{subscription}:inbox"), 2 * len(held))
    # When the leases end between two calls of a replacement
    assert world.replace(subscription, "work", "ends", asked=5_000)[1] == 1
    world.requests -= 1
    world.now += 6_000
    world.sweep_all()
    world.replace(subscription, "work", "ends", asked=5_000)
    world.sweep_all()
    # Then all come again, and count as delivered before where they were picked up
    other = world.take(subscription, 500)
    assert {m.body for m in other} == {message(n) for n in range(number)}
    assert {n for n, m in zip(numbers(other), other, strict=True) if m.delivery == 2} == set(range(picked))


# -- refused, late, twice


@pytest.fixture
def full(queues):
    for k in range(MAX_FILTERS):
        queues.subscribe("other", asked=1, filter=f"/n = {k}")
    queues.subscription = queues.subscribe("work", asked=2, filter="/n > 1")
    put(queues, *map(message, range(4)))
    queues.mark()
    return queues


@pytest.mark.parametrize(
    ("code", "names", "more"),
    [
        ("AMPSQ_UNKNOWN_QUEUE", ("work", "nowhere"), {}),
        ("AMPSQ_CATALOG_CHANGED", ("work",), {"pattern": ".*", "version": "0"}),
        ("AMPSQ_TOO_MANY_FILTERS", ("work", "other"), {"filter": "/n = 99"}),
    ],
)
def test_a_refused_one_leaves_no_trace(full, code, names, more):
    world = full
    with pytest.raises(AmpsqError) as refusal:
        world.replace(world.subscription, *names, asked=9, **more)
    assert refusal.value.code == code
    assert world.changes() == {}


def test_of_a_subscription_that_is_gone_it_is_refused(full):
    world = full
    world.unsubscribe(world.subscription)
    world.mark()
    with pytest.raises(AmpsqError) as refusal:
        world.replace(world.subscription, "work")
    assert refusal.value.code == "AMPSQ_UNKNOWN_SUBSCRIPTION"
    assert world.changes() == {}


def test_twice_is_once(queues):
    world = queues
    subscription = world.subscribe("work", asked=2, filter="/n = 1")
    put(world, *map(message, range(4)))
    held = world.take(subscription, 2)
    assert numbers(held) == [1]
    world.replace(subscription, "work", "other", asked=4, filter="/n > 1", pattern=".*", version=world.version())
    name, _ = wished("/n > 1")
    taken = world.take(subscription, 9)
    world.mark()
    world.replace(subscription, "work", "other", asked=4, filter="/n > 1", pattern=".*", version=world.version())
    # But for its queues' turn
    changes = world.changes()
    assert set(changes.pop(f":s:{subscription}", {})) <= {"queues", "left", "wish"}
    assert set(changes) <= {":instance", ":due"}
    assert set(world.state()[":due"]) >= {f"filter work {name}"}
    world.now += KEEP_FILTER
    world.sweep_all()
    state = world.state()
    assert state[":q:work:filters"][f"users {name}"] == "1"
    assert state[":q:work"]["sorted"] == f"none {name}"
    assert numbers(taken) == [2, 3]


def test_the_former_filter_of_the_last_place_makes_room_for_the_new_one(queues):
    # Given a queue whose filters are as many as are allowed, one of them its own alone
    world = queues
    names = [world.subscribe("work", asked=1, filter=f"/n = {k}") for k in range(MAX_FILTERS)]
    # When it is replaced, after it was left for a moment
    world.replace(names[0], "work", asked=1)
    assert world.replace(names[0], "work", asked=1, filter="/n = 99") == [1, 0]
    put(world, message(99))
    assert numbers(world.take(names[0])) == [99]


def test_the_last_place_may_change_its_own_filter_for_another_one(queues):
    world = queues
    names = [world.subscribe("work", asked=1, filter=f"/n = {k}") for k in range(MAX_FILTERS)]
    assert world.replace(names[0], "work", asked=1, filter="/n = 99") == [1, 0]


def test_a_wish_that_comes_late_changes_nothing(queues):
    world = queues
    subscription = world.subscribe("work", asked=1)
    wish = ("none", "", "", "work")
    assert world.run("replace_subscription", world.now, "", subscription, 5, 3, *wish)[:2] == [3, 0]
    world.mark()
    assert world.run("replace_subscription", world.now, "", subscription, 4, 9, *wish)[:2] == [3, 0]
    assert world.changes() == {}


def test_a_filter_given_up_in_one_queue_makes_no_room_in_another(queues):
    world = queues
    world.queue("other", "letters")
    for k in range(MAX_FILTERS):
        world.subscribe("other", asked=1, filter=f"/n = {k}")
    # Its own filter has one user in the other queue, and that is somebody else.
    subscription = world.subscribe("work", asked=1, filter="/n = 0")
    world.mark()
    with pytest.raises(TooManyFilters):
        world.replace(subscription, "other", asked=1, filter="/n = 99")
    assert world.changes() == {}
