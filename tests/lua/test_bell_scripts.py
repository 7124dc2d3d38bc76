"""Subscriptions with a bell: they have no room but what visits lend them, and are told once that messages wait."""

from __future__ import annotations

import pytest
from judged import texts
from lease_runs import expanded
from world import read_element, ref

from ampsq.base.errors import UnknownSubscription
from ampsq.protocol.limits import BELL_SCORE, BELLS_RUNG

WAITING = {"s00000001": float(BELL_SCORE)}


def visit(world, subscription, credits, number, *, wanted=100, acks=()):  # noqa: A002
    """Return the messages, what is leased, and whether the bell waits."""
    elements, refused, _, leased, waits = world.run(
        "take", world.now, subscription, f"{wanted} run {credits} {number}", *world.groups(acks)
    )
    assert refused == []
    elements = expanded(elements)
    messages = [read_element(elements[i], elements[i + 1]) for i in range(0, len(elements), 2)]
    return messages, leased, bool(waits)


def with_bell(world, *queues, asked=1, **options):
    return world.subscribe(*queues, asked=f"{asked} bell", **options)


def rings(world, subscription):
    return len(world.state().get(f":s:{subscription}:bell", []))


def test_one_with_a_bell_is_registered_without_room(world):
    world.queue("work", "orders", room=5)
    world.mark()

    reply = world.run("subscribe", world.now, "", "c/1", "9 bell", "none", "", "", 10_000, "work")

    assert reply == ["s00000001", 5, world.now]
    assert world.changes() == {
        ":instance": {"registered": "1", "format": "6"},
        ":s:s00000001": {"queues": "work", "asked": "9", "max": "0", "leased": "0", "client": "c/1", "bell": "0"},
        ":subscriptions": {"s00000001": 11_000.0},
        ":q:work:subscriptions": {"s00000001"},
    }
    world.mark()
    assert world.run("subscribe", world.now, "", "c/1", "9 bell", "none", "", "", 10_000, "work") == reply
    assert world.changes() == {}


def test_a_visit_that_finds_nothing_leaves_the_bell_waiting(world):
    world.queue("work", "orders")
    subscription = with_bell(world, "work", asked=4)
    world.mark()

    assert visit(world, subscription, 4, 1) == ([], 0, True)

    assert world.changes() == {f":s:{subscription}": {"bell": "1", "visit": "1"}, ":q:work:free:none": WAITING}


def test_a_bell_rings_once_and_leases_nothing(world):
    world.queue("work", "orders")
    subscription = with_bell(world, "work", asked=4)
    visit(world, subscription, 4, 1)
    world.mark()

    world.publish("orders", "one")
    world.publish("orders", "two")

    changes = world.changes()
    assert {name: value for name, value in changes.items() if ":s:" in name or ":q:" in name} == {
        f":s:{subscription}": {"bell": "0"},
        f":s:{subscription}:bell": ["1000"],
        ":q:work:free:none": None,
    }
    messages, leased, waits = visit(world, subscription, 4, 2)
    assert (texts(messages), leased, waits) == (["one", "two"], 2, True)


def test_a_visit_takes_as_many_as_its_credits_and_leaves_no_room(world):
    world.queue("work", "orders", lease=5_000)
    subscription = with_bell(world, "work", asked=9)
    world.publish("orders", *"abcdef")

    first, leased, waits = visit(world, subscription, 2, 1)
    assert (texts(first), leased, waits) == (["a", "b"], 2, False)
    # Those that are held are among the credits, and so are those that are acknowledged in the same call before.
    second, leased, waits = visit(world, subscription, 3, 2)
    assert (texts(second), leased, waits) == (["c"], 3, False)
    third, leased, waits = visit(world, subscription, 3, 3, acks=first)
    assert (texts(third), leased, waits) == (["d", "e"], 3, False)
    world.mark()
    # Fewer than are held: nothing is taken, and nothing taken away.
    assert visit(world, subscription, 1, 4) == ([], 3, False)
    assert world.changes() == {f":s:{subscription}": {"visit": "4"}}
    # Without a visit nothing is pushed, whatever is settled.
    world.settle("acknowledged", second + third, by=subscription)
    assert world.inbox(subscription) == []
    assert world.state()[f":s:{subscription}"]["max"] == "0"
    assert ":q:work:free:none" not in world.state()


def test_a_visit_that_comes_again_takes_no_more(world):
    world.queue("work", "orders")
    subscription = with_bell(world, "work", asked=9)
    world.publish("orders", *"abcdef")
    first, _, _ = visit(world, subscription, 3, 7)
    assert texts(first) == ["a", "b", "c"]
    world.mark()

    assert visit(world, subscription, 3, 7) == ([], 3, False)

    assert world.changes() == {}


@pytest.mark.parametrize("is_waiting", [False, True])
def test_a_visit_that_comes_late_takes_nothing_and_changes_nothing(world, is_waiting):
    world.queue("work", "orders")
    subscription = with_bell(world, "work", asked=9)
    visit(world, subscription, 9, 7)
    if not is_waiting:
        world.publish("orders", *"abcdef")
    world.mark()

    assert visit(world, subscription, 9, 6) == ([], 0, is_waiting)

    assert world.changes() == {}


def test_a_visit_of_one_that_is_gone_is_refused_and_nothing_changes(world):
    world.queue("work", "orders")
    subscription = with_bell(world, "work", asked=9)
    world.unsubscribe(subscription)
    world.publish("orders", "one")
    world.mark()

    with pytest.raises(UnknownSubscription):
        visit(world, subscription, 9, 1)
    assert world.changes() == {}


def test_unsubscribing_leaves_nothing_of_a_bell(world):
    world.queue("work", "orders")
    before = world.state()
    subscription = with_bell(world, "work", asked=9)
    visit(world, subscription, 9, 1)
    world.unsubscribe(subscription)
    after = world.state()

    assert not [name for name in after if ":s:" in name or "free" in name]
    assert after[":q:work"] == before[":q:work"]
    subscription = with_bell(world, "work", asked=9)
    visit(world, subscription, 9, 1)
    world.publish("orders", "one")
    assert rings(world, subscription) == 1
    world.unsubscribe(subscription)
    assert not [name for name in world.state() if ":s:" in name]


def test_a_visit_is_bounded_by_what_the_queue_allows_one_subscription(world):
    world.queue("work", "orders", room=2)
    subscription = with_bell(world, "work", asked=9)
    world.publish("orders", *"abc")

    messages, leased, waits = visit(world, subscription, 9, 1)

    assert (texts(messages), leased, waits) == (["a", "b"], 2, False)


def test_whoever_has_room_comes_before_those_whose_bells_wait(world):
    world.queue("work", "orders", fairness="round-robin")
    ringing = with_bell(world, "work", asked=9)
    visit(world, ringing, 9, 1)
    free = world.subscribe("work", asked=2)
    assert world.take(free, 2) == []

    world.publish("orders", "a", "b")
    assert (rings(world, ringing), texts(world.inbox(free))) == (0, ["a", "b"])
    world.publish("orders", "c")
    assert rings(world, ringing) == 1
    assert texts(visit(world, ringing, 9, 2)[0]) == ["c"]


def test_the_bells_of_all_ring_and_those_that_were_heard_are_silent(world):
    world.queue("work", "orders")
    several = [with_bell(world, "work", asked=1) for _ in range(3)]
    for each in several:
        visit(world, each, 1, 1)
    world.publish("orders", "a")
    assert [rings(world, each) for each in several] == [1, 1, 1]

    assert texts(visit(world, several[1], 1, 2)[0]) == ["a"]
    assert visit(world, several[2], 1, 2) == ([], 0, True)
    world.publish("orders", "b")

    # The subscription that took the last message still holds it; its bell rings for the next one all the same.
    assert [rings(world, each) for each in several] == [1, 2, 2]


def test_a_visit_whose_last_credit_takes_the_last_message_needs_no_other_visit(world):
    world.queue("work", "orders", lease=5_000)
    subscription = with_bell(world, "work", asked=2)
    world.publish("orders", *"abcd")
    first, leased, waits = visit(world, subscription, 2, 1)
    # More is there, which was seen.
    assert (texts(first), leased, waits) == (["a", "b"], 2, False)
    world.mark()

    second, leased, waits = visit(world, subscription, 2, 2, acks=first)

    assert (texts(second), leased, waits) == (["c", "d"], 2, True)
    assert world.changes()[":q:work:free:none"] == WAITING
    # It has no room all the same: nothing is pushed, and what comes rings.
    world.publish("orders", "e")
    assert (rings(world, subscription), world.inbox(subscription)) == (1, [])
    world.settle("acknowledged", second, by=subscription)
    assert (rings(world, subscription), world.inbox(subscription)) == (1, [])
    third, leased, waits = visit(world, subscription, 2, 3)
    assert (texts(third), leased, waits) == (["e"], 1, True)
    world.settle("acknowledged", third, by=subscription)
    assert world.state()[":q:work:free:none"] == WAITING
    world.publish("orders", "f")
    assert rings(world, subscription) == 2


def test_a_visit_does_not_say_that_nothing_more_waits_where_something_may(world):
    world.queue("deep", "orders", depth=2)
    world.queue("back", "orders")
    world.queue("one", "orders")
    world.queue("two", "orders")
    deep, back = with_bell(world, "deep", asked=2), with_bell(world, "back", asked=1)
    both = with_bell(world, "one", "two", asked=3)
    world.publish("orders", "a", "b", "c")

    # Beyond its depth a message waits, though the queue reads no further.
    messages, leased, waits = visit(world, deep, 2, 1)
    assert (texts(messages), leased, waits) == (["a", "b"], 2, False)
    messages, _, _ = visit(world, back, 1, 1)
    world.settle("cancelled", messages, by=back)
    # What came back is given, and the log was not looked at.
    messages, _, waits = visit(world, back, 1, 2)
    assert (texts(messages), waits) == (["a"], False)
    # All of one of its queues.
    messages, _, waits = visit(world, both, 3, 1)
    assert (len(messages), waits) == (3, False)


def test_more_bells_than_one_call_rings_ring_by_the_next_calls(world):
    world.queue("work", "orders")
    several = [with_bell(world, "work", asked=1) for _ in range(BELLS_RUNG + 6)]
    for each in several:
        visit(world, each, 1, 1)

    world.publish("orders", "a")
    assert sum(rings(world, each) for each in several) == BELLS_RUNG
    world.publish("orders", "b")
    assert [rings(world, each) for each in several] == [1] * len(several)


def test_what_comes_back_rings(world):
    world.queue("work", "orders", lease=5_000)
    holder, other = with_bell(world, "work", asked=1), with_bell(world, "work", asked=1)
    world.publish("orders", "a")
    message, _, _ = visit(world, holder, 1, 1)
    assert visit(world, other, 1, 1) == ([], 0, True)

    world.settle("cancelled", message, by=holder)
    assert rings(world, other) == 1
    assert [each.delivery for each in visit(world, other, 1, 2)[0]] == [2]
    # Nobody comes for its lease.
    assert visit(world, holder, 1, 2) == ([], 0, True)
    world.now += 5_001
    world.sweep_all()
    # Once for what it had cancelled, and once for what nobody came for.
    assert rings(world, holder) == 2


def test_a_bell_is_silent_while_the_queue_may_deliver_nothing(world):
    world.queue("work", "orders", backlog=1)
    holder, other = with_bell(world, "work", asked=1), with_bell(world, "work", asked=1)
    world.publish("orders", "a", "b")
    message, _, _ = visit(world, holder, 1, 1)
    assert visit(world, other, 1, 1) == ([], 0, True)

    world.publish("orders", "c")
    assert rings(world, other) == 0
    world.settle("acknowledged", message, by=holder)
    assert rings(world, other) == 1
    assert texts(visit(world, other, 1, 2)[0]) == ["b"]


def test_a_bell_with_a_filter_rings_for_what_matches_alone(world):
    world.queue("work", "orders")
    cheap = with_bell(world, "work", asked=5, filter="/price < 10")
    dear = with_bell(world, "work", asked=5, filter="/price > 100")
    for each in (cheap, dear):
        assert visit(world, each, 5, 1) == ([], 0, True)

    world.publish("orders", '{"price": 5}', '{"price": 50}')
    assert (rings(world, cheap), rings(world, dear)) == (1, 0)
    world.publish("orders", '{"price": 500}')
    assert (rings(world, cheap), rings(world, dear)) == (1, 1)
    assert texts(visit(world, cheap, 5, 2)[0]) == ['{"price": 5}']
    assert texts(visit(world, dear, 5, 2)[0]) == ['{"price": 500}']
    assert visit(world, cheap, 5, 3)[2]


def test_a_bell_rings_for_what_matches_behind_much_that_does_not(world):
    world.queue("work", "orders")
    rare = with_bell(world, "work", asked=5, filter="/price > 100")
    assert visit(world, rare, 5, 1)[2]
    for _ in range(12):
        world.publish("orders", *['{"price": 5}'] * 200)
    world.publish("orders", '{"price": 500}')

    world.sweep_all()

    assert rings(world, rare) == 1
    for number in range(2, 30):
        messages, _, _ = visit(world, rare, 5, number)
        if messages:
            break
    assert texts(messages) == ['{"price": 500}']


def test_a_bell_beside_one_who_is_free_with_another_filter(world):
    world.queue("work", "orders")
    free = world.subscribe("work", asked=5, filter="/price < 10")
    ringing = with_bell(world, "work", asked=5)
    assert world.take(free, 5) == []
    assert visit(world, ringing, 5, 1)[2]

    world.publish("orders", '{"price": 5}')
    assert (texts(world.inbox(free)), rings(world, ringing)) == (['{"price": 5}'], 0)
    world.publish("orders", '{"price": 50}')

    assert rings(world, ringing) == 1
    assert texts(visit(world, ringing, 5, 2)[0]) == ['{"price": 50}']


def test_a_bell_of_a_queue_with_priorities(world):
    world.queue("work", "orders", priority="/p")
    subscription = with_bell(world, "work", asked=2)
    assert visit(world, subscription, 2, 1)[2]

    world.publish("orders", '{"p": 1}', '{"p": 9}', '{"p": 5}')

    assert rings(world, subscription) == 1
    messages, leased, waits = visit(world, subscription, 2, 2)
    assert (texts(messages), leased, waits) == (['{"p": 9}', '{"p": 5}'], 2, False)
    assert texts(visit(world, subscription, 2, 3, acks=messages)[0]) == ['{"p": 1}']
    assert visit(world, subscription, 2, 4)[2]
    world.publish("orders", '{"p": 3}')
    assert rings(world, subscription) == 2


def test_a_bell_of_a_ring(world):
    world.queue("work", "orders", ring="2")
    subscription = with_bell(world, "work", asked=9)
    assert visit(world, subscription, 9, 1)[2]

    world.publish("orders", "a", "b", "c")

    assert rings(world, subscription) == 1
    assert texts(visit(world, subscription, 9, 2)[0]) == ["b", "c"]


def test_a_subscription_to_several_queues_has_one_bell_and_one_room(world):
    world.queue("work", "orders")
    world.queue("mail", "letters")
    subscription = with_bell(world, "work", "mail", asked=3)
    assert visit(world, subscription, 3, 1)[2]
    assert world.state()[":q:mail:free:none"] == world.state()[":q:work:free:none"] == WAITING

    world.publish("orders", "a", "b")
    world.publish("letters", "c", "d")
    assert rings(world, subscription) == 1
    messages, leased, waits = visit(world, subscription, 3, 2)

    assert (len(messages), leased, waits) == (3, 3, False)
    assert len(visit(world, subscription, 3, 3, acks=messages)[0]) == 1
    assert visit(world, subscription, 3, 4)[2]


def test_what_was_lost_is_pushed_again_and_counts_among_the_credits(world):
    world.queue("work", "orders")
    subscription = with_bell(world, "work", asked=3)
    world.publish("orders", *"abcd")
    lost, _, _ = visit(world, subscription, 2, 1)
    assert texts(lost) == ["a", "b"]
    cursor = "0"
    while True:
        cursor = world.run("push_again", world.now, subscription, "work", cursor)
        if cursor == "0":
            break

    messages, leased, waits = visit(world, subscription, 3, 2)

    assert (texts(messages), leased, waits) == (["a", "b", "c"], 3, False)
    assert [each.token for each in messages[:2]] == [each.token for each in lost]


def test_a_place_among_the_free_that_is_wrong_is_found_and_mended(world):
    world.queue("work", "orders")
    subscription = with_bell(world, "work", asked=3)
    visit(world, subscription, 3, 1)
    assert world.run("check_free_subscriptions", "work", "members", "0", "0")[1:4] == [0, 0, 0]
    world.store.redis.delete(world.key(":q:work:free:none"))

    assert world.run("check_free_subscriptions", "work", "members", "0", "1")[1:4] == [0, 1, 0]

    assert world.state()[":q:work:free:none"] == WAITING
    world.publish("orders", "a")
    assert rings(world, subscription) == 1
    world.store.redis.zadd(world.key(":q:work:free:none"), WAITING)
    assert world.run("check_free_subscriptions", "work", "members", "0", "1")[1:4] == [0, 1, 0]
    assert ":q:work:free:none" not in world.state()


def test_a_message_of_a_run_that_is_extended_stays_among_the_credits(world):
    world.queue("work", "orders", lease=5_000)
    subscription = with_bell(world, "work", asked=3)
    world.publish("orders", *"abcd")
    messages, _, _ = visit(world, subscription, 3, 1)
    world.settle("extended", messages[1:2], period=9_000, by=subscription)

    assert visit(world, subscription, 3, 2) == ([], 3, False)
    assert world.holders("work").keys() == {message.ref for message in messages}
    assert ref("1000-0") in world.holders("work")
