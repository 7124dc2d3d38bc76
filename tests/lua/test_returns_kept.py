"""Records of a message's returns, with the reasons that its consumers gave."""

from __future__ import annotations

import pytest
from world import came_back, ref

from ampsq.protocol.limits import RETURNS_BYTES
from ampsq.queues.returns import read_returns

FIRST, SECOND = ref("1000-0"), ref("1000-1")
STRANGE = 'a "b", c; d! 100% \x7f é'


def settle(world, verb, messages, reason, period=0):
    """Settle with a reason behind the messages."""
    assert world.run("settle", world.now, verb, period, "", *world.groups(messages), reason) == []


def told(world):
    return read_returns(world.state()[":q:work:attempts"][FIRST].split(" ")[3])


@pytest.fixture
def taken(world):
    """Cancel a message of `work` again and again, each time with what is given."""
    world.queue("work", "orders")
    world.publish("orders", "one")
    subscription = world.subscribe("work")

    def taken(*reasons):
        for reason in reasons:
            world.now += 1
            messages = world.take(subscription)
            settle(world, "cancelled", messages, reason) if reason else world.settle("cancelled", messages)

    return taken


def test_a_reason_changes_nothing_but_what_is_told_of_the_return(world, leased):
    message = leased()

    settle(world, "cancelled", [message], STRANGE)

    item = came_back((1_000, "cancelled")) + '!a%20"b"%2C%20c%3B%20d%21%20100%25%20%7F%20é'
    assert world.changes() == {
        ":q:work:leases": {FIRST: f"2 {world.subscription} 2 6000 5000"},
        ":q:work:attempts": {FIRST: f"1 1 cancelled {item}"},
        ":q:work": {"returned": "1", "token": "2"},
        f":s:{world.subscription}:inbox": ["work 2 2 6000 b d1000a0/orders", "one"],
    }
    assert told(world)[0].consumer_reason == STRANGE


def test_a_reason_goes_with_the_message_when_it_is_acknowledged(world, leased):
    settle(world, "cancelled", [leased()], "not now")
    (message,) = world.take(world.subscription)
    world.settle("acknowledged", [message])
    assert ":q:work:attempts" not in world.state()


def test_the_journal_says_why_a_message_was_expired_and_how_it_came_back_before(world, leased):
    settle(world, "cancelled", [leased()], "not now")
    (message,) = world.take(world.subscription)

    settle(world, "expired", [message], "never, it is broken")

    (entry,) = world.state()[":q:work:journal"]
    assert (entry["how"], entry["reason"], entry["refs"]) == ("expired", "forced_expire", FIRST)
    assert entry["consumer_reason"] == "never, it is broken"
    assert [each.consumer_reason for each in read_returns(entry["history"])] == ["not now"]
    assert ":q:work:attempts" not in world.state()


def test_what_nobody_holds_is_settled_with_a_reason_too(world):
    world.queue("work", "orders")
    world.publish("orders", "one", "two")
    settle(world, "acknowledged", {"work": [(FIRST, "")]}, "done by hand")
    settle(world, "expired", {"work": [(SECOND, "")]}, "void")
    assert [entry["consumer_reason"] for entry in world.state()[":q:work:journal"]] == ["done by hand", "void"]


def test_a_holder_acknowledges_with_a_reason(world, leased):
    settle(world, "acknowledged", [leased()], "done twice")
    (entry,) = world.state()[":q:work:journal"]
    assert (entry["how"], entry["refs"], entry["consumer_reason"]) == ("acknowledged", FIRST, "done twice")


def test_the_cancel_that_is_one_too_many_has_its_reason_in_the_journal(world):
    world.queue("work", "orders", cancels=1)
    world.publish("orders", "one")
    settle(world, "cancelled", world.take(world.subscribe("work")), "no such flight")
    (entry,) = world.state()[":q:work:journal"]
    assert entry["reason"] == "max_cancels"
    assert [each.consumer_reason for each in read_returns(entry["history"])] == ["no such flight"]
    assert ":q:work:attempts" not in world.state()


def test_returns_with_reasons_are_let_go_of_the_oldest_first_beyond_two_thousand_bytes(world, taken):
    taken(*[f"{number} " + "x" * 300 for number in range(12)])
    kept = told(world)
    assert [each.consumer_reason.split(" ")[0] for each in kept] == [
        str(number) for number in range(12 - len(kept), 12)
    ]
    assert 1 < len(kept) < 12
    assert len(world.state()[":q:work:attempts"][FIRST].split(" ")[3]) <= RETURNS_BYTES
    # Counting goes on.
    assert world.state()[":q:work:attempts"][FIRST].startswith("12 12 cancelled ")


def test_the_last_reason_stays_behind_any_number_of_returns_without(world, taken):
    taken("first", "the last one", *[""] * 30)
    kept = told(world)
    assert len(kept) == 20
    assert [each.consumer_reason for each in kept] == ["the last one", *[""] * 19]
    assert [each.at for each in kept[1:]] == sorted(each.at for each in kept[1:])


def test_the_last_reason_stays_however_long_it_is(world, taken):
    longest = ";" * 499 + "飛"
    taken("before", longest)
    assert [each.consumer_reason for each in told(world)] == ["before", longest]
    longest = "✈️" * 250
    taken(longest, "", "")
    assert longest in [each.consumer_reason for each in told(world)]
    assert told(world)[-1].consumer_reason == ""


def test_of_a_recorded_queue_the_return_has_its_reason(world):
    world.queue("work", "orders")
    world.store.redis.hset(world.key(":q:work"), "recorded", "1")
    world.publish("orders", "one")
    subscription = world.subscribe("work")
    settle(world, "cancelled", world.take(subscription), "not now", period=5_000)
    delivered, returned = [fields for _, fields in world.state()[":q:work:deliveries"]]
    assert "consumer_reason" not in delivered
    assert (returned["cause"], returned["consumer_reason"]) == ("cancelled", "not now")
