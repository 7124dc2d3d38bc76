"""settle without a token: what administrators and other subscriptions may do to messages by their refs."""

from __future__ import annotations

import pytest
from settling import ACKED, FIRST, NOT_HOLDER, SECOND, STALE, UNKNOWN, journaled
from world import came_back, ref


@pytest.mark.parametrize("verb", ["cancelled", "extended", "given_back"])
def test_what_is_delayed_or_waiting_has_no_lease_to_cancel_extend_or_give_back(world, leased, verb):
    message = leased()
    world.settle("cancelled", [message], period=3_000)
    world.publish("orders", "three")
    world.mark()

    assert world.settle(verb, {"work": [(FIRST, "")]}, period=5) == {FIRST: STALE}
    assert world.settle(verb, {"work": [(ref("1000-2"), "")]}, period=5) == {ref("1000-2"): STALE}
    assert world.changes() == {}


@pytest.mark.parametrize(
    ("verb", "why"),
    [
        ("acknowledged", {}),
        ("expired", {"reason": "forced_expire", "attempts": "1:1", "history": came_back((1_000, "cancelled"))}),
    ],
    ids=["ack", "expire"],
)
def test_an_administrator_settles_what_is_delayed(world, leased, verb, why):
    message = leased()
    world.settle("cancelled", [message], period=3_000)
    world.mark()

    assert world.settle(verb, {"work": [(FIRST, "")]}) == {}

    assert world.changes() == {
        ":due": {"ready work d1000a0/orders": None},
        ":q:work": {"delayed": "0", verb: "1"},
        ":q:work:attempts": None,
        ":q:work:journal": [journaled(verb, FIRST, **why)],
    }
    world.mark()
    assert world.settle(verb, {"work": [(FIRST, "")]}) == {FIRST: ACKED}
    world.now = 4_000
    world.sweep_all()
    assert world.changes() == {}


@pytest.mark.parametrize(
    ("verb", "why"),
    [
        ("acknowledged", {}),
        ("expired", {"reason": "forced_expire", "attempts": "1:0", "history": came_back((1_000, "disconnected"))}),
    ],
    ids=["ack", "expire"],
)
def test_an_administrator_settles_what_is_ready(world, leased, verb, why):
    leased()
    world.unsubscribe(world.subscription)
    world.sweep_all()
    world.mark()

    assert world.settle(verb, {"work": [(FIRST, "")]}) == {}

    assert world.changes() == {
        ":q:work:ready": None,
        ":q:work:attempts": None,
        ":q:work": {verb: "1"},
        ":q:work:journal": [journaled(verb, FIRST, **why)],
    }


@pytest.mark.parametrize(
    ("verb", "why"),
    [("acknowledged", {}), ("expired", {"reason": "forced_expire", "attempts": "0:0"})],
    ids=["ack", "expire"],
)
def test_an_administrator_settles_what_waits_in_the_log_and_reading_skips_it(world, verb, why):
    world.queue("work", "orders")
    world.publish("orders", "one", "two", "three")
    world.mark()

    assert world.settle(verb, {"work": [(SECOND, "")]}) == {}
    assert world.changes() == {
        ":q:work:ahead": {SECOND: verb},
        ":q:work": {verb: "1"},
        ":q:work:journal": [journaled(verb, SECOND, **why)],
    }
    assert world.settle(verb, {"work": [(SECOND, "")]}) == {SECOND: ACKED}

    subscription = world.subscribe("work", asked=10)
    assert [message.body for message in world.take(subscription, 10)] == ["one", "three"]
    state = world.state()
    assert ":q:work:ahead" not in state
    assert state[":q:work:cursors"] == {"orders": "1000-2 3"}
    assert world.settle(verb, {"work": [(SECOND, "")]}) == {SECOND: ACKED}


def test_an_administrator_settles_a_leased_message_whoever_holds_it(world, leased):
    leased()

    assert world.settle("expired", {"work": [(FIRST, "")]}) == {}

    changes = world.changes()
    assert changes[":q:work:journal"] == [journaled("expired", FIRST, reason="forced_expire", attempts="1:0")]
    assert changes[":q:work"] == {"expired": "1", "token": "2"}
    assert changes[":q:work:leases"] == {FIRST: None, SECOND: f"2 {world.subscription} 1 6000 5000"}


@pytest.mark.parametrize(
    "unknown",
    [
        "nonsense", "", "d1000a0/nowhere", "m9999999999999a0/orders", "z1000a1/orders", "d1000b1/orders",
        "e01000a1/orders",
    ],
)  # fmt: skip
def test_a_ref_that_is_no_message_of_the_queue_is_unknown_and_changes_nothing(world, unknown):
    world.queue("work", "orders")
    world.publish("orders", "one", "two")
    world.mark()

    assert world.settle("acknowledged", {"work": [(unknown, "")]}) == {unknown: UNKNOWN}
    assert world.changes() == {}


def test_strict_leasing_lets_only_the_holder_acknowledge_by_ref(world, leased):
    leased(strict=1)
    other = world.subscribe("work", asked=0)
    world.mark()

    assert world.settle("acknowledged", {"work": [(FIRST, "")]}, by=other) == {FIRST: NOT_HOLDER}
    assert world.changes() == {}
    assert world.settle("acknowledged", {"work": [(FIRST, "")]}, by=world.subscription) == {}


def test_sublet_leasing_lets_everybody_acknowledge_by_ref(world, leased):
    leased()
    other = world.subscribe("work", asked=1)

    assert world.settle("acknowledged", {"work": [(FIRST, "")]}, by=other) == {}
