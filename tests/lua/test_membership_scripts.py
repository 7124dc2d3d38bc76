"""subscribe, beat, resume and unsubscribe: who is there, what it has, and what becomes of it."""

from __future__ import annotations

import pytest
from world import came_back, ref, version_after

from ampsq.base.errors import CatalogChanged, FormatMismatch, UnknownQueue, UnknownSubscription

FIRST, SECOND, THIRD = ref("1000-0"), ref("1000-1"), ref("1000-2")


def test_subscribe_registers_and_places_in_every_queue(world):
    world.queue("work", "orders", room=5)
    world.queue("mail", "letters", room=3)
    world.mark()

    reply = world.run("subscribe", world.now, "", "c/1", 9, "none", "", "", 10_000, "work", "mail")

    assert reply == ["s00000001", 3, world.now]
    assert world.changes() == {
        ":instance": {"registered": "1"},
        ":s:s00000001": {"queues": "work mail", "asked": "9", "max": "3", "leased": "0", "client": "c/1"},
        ":subscriptions": {"s00000001": 11_000.0},
        ":q:work:subscriptions": {"s00000001"},
        ":q:mail:subscriptions": {"s00000001"},
        ":q:work:free:none": {"s00000001": 0.0},
        ":q:mail:free:none": {"s00000001": 0.0},
    }


def test_subscribe_asked_again_answers_what_was_made_and_changes_nothing(world):
    world.queue("work", "orders", room=5)
    first = world.run("subscribe", world.now, "", "c/1", 9, "none", "", "", 10_000, "work")
    world.subscribe("work", client="c/2")
    world.mark()

    assert world.run("subscribe", world.now, "", "c/1", 9, "none", "", "", 10_000, "work") == first
    assert world.changes() == {}


def test_subscribe_to_an_unknown_queue_is_refused_and_changes_nothing(world):
    world.queue("work", "orders")
    world.mark()

    with pytest.raises(UnknownQueue) as refusal:
        world.subscribe("work", "nowhere")

    assert refusal.value.detail == {"queue": "nowhere"}
    assert world.changes() == {}


def test_subscribe_by_pattern_on_an_old_catalog_is_refused_and_changes_nothing(world):
    world.queue("work", "orders")
    world.mark()

    with pytest.raises(CatalogChanged) as refusal:
        world.subscribe("work", pattern="w.*", version=version_after(0))

    assert refusal.value.detail == {"expected": version_after(0), "found": version_after(1)}
    assert world.changes() == {}


def test_subscribe_by_pattern_is_a_change_of_the_catalog(world):
    world.queue("work", "orders")
    world.mark()

    world.subscribe("work", pattern="w.*", version=world.version())

    changes = world.changes()
    assert changes[":instance"] == {"catalog": version_after(2), "registered": "1"}
    assert changes[":patterns"] == {"s00000001": "w.*"}


def test_subscribe_by_a_pattern_that_matches_nothing_yet_waits_for_its_queue(world):
    world.topic("orders")
    world.publish("orders", "one")
    subscription = world.subscribe(pattern="w.*", version=world.version(), asked=4)
    assert world.take(subscription, 4) == []

    world.queue("work", "orders", subscriptions=[subscription], room=3)

    assert [m.body for m in world.take(subscription, 4)] == ["one"]
    assert world.state()[f":s:{subscription}"]["max"] == "3"


def test_a_queue_named_twice_counts_once(world):
    world.queue("work", "orders")

    subscription = world.subscribe("work", "work")

    assert world.state()[f":s:{subscription}"]["queues"] == "work"


def test_a_beat_moves_the_deadline_and_tells_what_is_due_what_is_leased_and_who_is_gone(world):
    world.queue("work", "orders", lease=5_000)
    subscription = world.subscribe("work")
    world.now = 2_000
    world.mark()

    assert world.run("heartbeat", world.now, 10_000, "", subscription, "s00000009") == [str(world.now), "", "0 1", ""]
    assert world.changes() == {":subscriptions": {subscription: 12_000.0}}
    world.publish("orders", "one")
    world.take(subscription, 1)
    first = min(world.state()[":due"].values())
    world.mark()
    assert world.run("heartbeat", world.now, 10_000, "", subscription) == [str(world.now), f"{first:.0f}", "1 1"]
    assert world.changes() == {}


def test_one_call_has_the_signs_of_life_of_several_clients(world):
    world.queue("work", "orders", lease=5_000)
    first, second = world.subscribe("work", client="c/1"), world.subscribe("work", client="c/2")
    world.publish("orders", "one", "two")
    taken = [len(world.take(each, 1)) for each in (first, second)]
    due = f"{min(world.state()[':due'].values()):.0f}"
    world.now += 1_000
    world.mark()

    others = ["", world.store.instance, "", second, "s00000009", "", world.store.instance, "work|2000 1 1|0", first]
    reply = world.run("heartbeat", world.now, 10_000, "", first, *others)

    assert reply == [str(world.now), due, f"{taken[0]} 1", [due, f"{taken[1]} 1", ""], [due, f"{taken[0]} 1"]]
    changes = world.changes()
    assert changes.pop(":subscriptions") == dict.fromkeys((first, second), world.now + 10_000.0)
    assert list(changes) == [":q:work:latencies"]


def test_signs_of_life_of_what_is_no_instance_are_refused_and_change_nothing(world):
    world.queue("work", "orders")
    subscription = world.subscribe("work")
    world.now += 1_000
    world.mark()

    with pytest.raises(FormatMismatch):
        world.run("heartbeat", world.now, 10_000, "", subscription, "", "nowhere", "", "s00000001")

    assert world.changes() == {}


def test_unsubscribe_leaves_nothing_of_a_subscription_that_held_nothing(world):
    world.queue("work", "orders")
    before = world.state()
    subscription = world.subscribe("work", pattern="w", version=world.version())

    assert world.unsubscribe(subscription) == 0

    after = world.state()
    assert after.pop(":instance") != before.pop(":instance")
    assert after == before


def test_unsubscribe_twice_or_of_nobody_changes_nothing(world):
    world.queue("work", "orders")
    subscription = world.subscribe("work")
    world.unsubscribe(subscription)
    world.mark()

    assert world.unsubscribe(subscription) == 0
    assert world.unsubscribe("s00000009", held={"work": [(FIRST, "1")]}) == 0
    assert world.changes() == {}


def test_unsubscribe_gives_back_the_inbox_and_what_was_not_begun(world):
    world.queue("work", "orders", lease=5_000)
    subscription = world.subscribe("work", asked=3)
    world.publish("orders", "one", "two", "three")
    begun, held = world.take(subscription, 2)
    world.mark()

    assert world.unsubscribe(subscription, held=[held]) == 0

    assert world.changes() == {
        f":s:{subscription}": None,
        f":s:{subscription}:inbox": None,
        ":subscriptions": None,
        ":q:work:subscriptions": None,
        ":q:work:leases": {SECOND: None, THIRD: None},
        ":q:work:ready": {SECOND: 0.0, THIRD: 0.0},
        ":q:work": {"returned": "2"},
        ":departed": {subscription: "c/1"},
        ":due": {"leases work": 1_000.0, f"departed {subscription}": 3_601_000.0},
    }
    world.mark()
    world.sweep_all()
    changes = world.changes()
    assert changes[":q:work:ready"] == {begun.ref: 0.0}
    assert changes[":q:work:attempts"] == {begun.ref: f"1 0 disconnected {came_back((1_000, 'disconnected'))}"}
    assert changes[":q:work:leases"] is None
    # Its client's name is kept for an hour.
    world.now = 3_601_000
    world.sweep_all()
    assert not {":due", ":departed"} & world.state().keys()


def test_unsubscribe_passes_what_it_gives_back_to_the_others(world):
    world.queue("work", "orders")
    first = world.subscribe("work", asked=2)
    world.publish("orders", "one", "two")
    second = world.subscribe("work", asked=1)

    world.unsubscribe(first)

    assert [(m.body, m.delivery) for m in world.inbox(second)] == [("one", 1)]
    assert world.state()[":q:work:ready"] == {SECOND: 0.0}


def test_unsubscribe_with_a_full_inbox_takes_several_calls_and_loses_nothing(world):
    world.queue("work", "orders", room=2_000)
    subscription = world.subscribe("work", asked=1_200)
    for _ in range(3):
        world.publish("orders", *map(str, range(400)))
    assert len(world.inbox(subscription)) == 1_200

    assert world.unsubscribe(subscription) == 1
    with pytest.raises(UnknownSubscription):
        world.take(subscription, 0)
    world.publish("orders", "late")
    assert [world.unsubscribe(subscription) for _ in range(5)] == [1, 1, 1, 1, 0]

    state = world.state()
    assert len(state[":q:work:ready"]) == 1_200
    assert ":q:work:leases" not in state
    assert ":q:work:attempts" not in state
    assert ":q:work:subscriptions" not in state
    assert ":q:work:free:none" not in state


def test_unsubscribe_of_several_queues_gives_back_to_each(world):
    world.queue("work", "orders")
    world.queue("mail", "letters")
    subscription = world.subscribe("work", "mail", asked=4)
    world.publish("orders", "one")
    world.publish("letters", "dear")

    world.unsubscribe(subscription)

    state = world.state()
    assert state[":q:work:ready"] == {FIRST: 0.0}
    assert state[":q:mail:ready"] == {ref("1000-1", "letters"): 0.0}


def test_late_tokens_at_unsubscribe_give_nothing_back(world):
    world.queue("work", "orders", lease=5_000)
    world.publish("orders", "one")
    first = world.subscribe("work")
    (message,) = world.take(first)
    second = world.subscribe("work")
    world.now = 6_000
    world.run("resize_backlog", world.now, first, 0)
    world.sweep_all()
    assert world.holders("work") == {FIRST: second}
    world.mark()

    world.unsubscribe(first, held=[message])

    assert world.changes() == {
        f":s:{first}": None,
        ":subscriptions": {first: None},
        ":q:work:subscriptions": {second},
    }


def test_resume_pushes_again_what_is_leased_and_not_held(world):
    # Leased one by one; what becomes of a run is in test_run_scripts.py
    world.runs = False
    world.queue("work", "orders", lease=5_000)
    world.publish("orders", "one", "two", "three")
    subscription = world.subscribe("work", asked=3)
    world.publish("orders", "noise")
    messages = world.take(subscription, 3)
    other = world.subscribe("work", asked=1)
    world.take(other, 1)
    world.mark()

    cursor = world.run("push_again", world.now, subscription, "work", 0, messages[1].token)

    assert cursor == "0"
    assert world.changes() == {
        f":s:{subscription}:inbox": [
            *("work 1 1 6000 r d1000a0/orders", ""),
            *("work 3 1 6000 r d1000a2/orders", ""),
        ],
        f":s:{subscription}": {"again work": "4"},
    }
    world.mark()
    assert world.run("push_again", world.now, subscription, "work", 0, messages[1].token) == "0"
    assert world.changes() == {}
    again = world.take(subscription, 3)
    assert again == [messages[0], messages[2]]


@pytest.mark.parametrize("missing", ["subscription", "queue"])
def test_resume_of_what_is_not_there_is_refused_and_changes_nothing(world, missing):
    world.queue("work", "orders")
    world.publish("orders", "one")
    subscription = world.subscribe("work")
    world.take(subscription)
    world.mark()

    names = {"subscription": subscription, "queue": "work"} | {missing: "s00000009"}
    with pytest.raises(UnknownSubscription if missing == "subscription" else UnknownQueue) as refusal:
        world.run("push_again", world.now, names["subscription"], names["queue"], 0)

    assert refusal.value.detail == {missing: "s00000009"}
    assert world.changes() == {}


def test_resume_over_many_leases_takes_several_steps(world):
    world.queue("work", "orders", room=2_000)
    subscription = world.subscribe("work", asked=1_200)
    for _ in range(3):
        world.publish("orders", *map(str, range(400)))
    messages = world.take(subscription, 1_200)
    cursor, steps = "0", 0

    while steps == 0 or cursor != "0":
        cursor = world.run("push_again", world.now, subscription, "work", cursor)
        steps += 1

    assert steps >= 2
    assert sorted(world.take(subscription, 1_200)) == sorted(messages)


def test_a_larger_backlog_is_filled_at_once(world):
    world.queue("work", "orders", room=3)
    subscription = world.subscribe("work", asked=1)
    world.publish("orders", *"abcde")
    world.mark()

    assert world.run("resize_backlog", world.now, subscription, 9) == 3

    assert world.changes() == {
        f":s:{subscription}": {"asked": "9", "max": "3", "leased": "3"},
        f":s:{subscription}:inbox": [
            *("work 2 1 0 b d1000a1/orders", "b"),
            *("work 3 1 0 b d1000a2/orders", "c"),
        ],
        ":q:work": {"token": "3"},
        ":q:work:cursors": {"orders": "1000-2 3"},
        ":q:work:leases": {
            SECOND: f"2 {subscription} 1 0 0",
            THIRD: f"3 {subscription} 1 0 0",
        },
    }
    world.mark()
    assert world.run("resize_backlog", world.now, subscription, 9) == 3
    assert world.changes() == {}


def test_a_backlog_of_zero_keeps_what_is_held_and_gets_no_more(world):
    world.queue("work", "orders")
    subscription = world.subscribe("work", asked=2)
    world.publish("orders", *"abc")
    world.mark()

    assert world.run("resize_backlog", world.now, subscription, 0) == 0

    assert world.changes() == {f":s:{subscription}": {"asked": "0", "max": "0"}}
    first, second = world.take(subscription, 5)
    world.settle("acknowledged", [first, second])
    assert world.holders("work") == {}


def test_resize_of_nobody_is_refused_and_changes_nothing(world):
    world.queue("work", "orders")
    world.mark()

    with pytest.raises(UnknownSubscription) as refusal:
        world.run("resize_backlog", world.now, "s00000009", 5)

    assert refusal.value.detail == {"subscription": "s00000009"}
    assert world.changes() == {}


def test_a_subscription_that_ended_since_its_pattern_was_matched_joins_nothing(world):
    subscription = world.subscribe(pattern="w.*", version=world.version())
    world.unsubscribe(subscription)

    world.queue("work", "orders", subscriptions=[subscription])

    state = world.state()
    assert ":q:work:subscriptions" not in state
    assert not [suffix for suffix in state if suffix.startswith(":s:")]


def test_a_name_is_given_to_nobody_else_though_the_server_lost_it(world):
    world.queue("work", "orders")
    world.now = 1_767_225_600_000 + 28_412_345_678
    before = world.store.redis.hget(world.key(":instance"), "registered")
    first = world.subscribe("work", client="c/1")
    assert first == "s028412345678"
    assert before is None

    world.store.redis.hdel(world.key(":instance"), "registered")
    world.store.redis.delete(world.key(f":s:{first}"))
    world.now += 5

    assert world.subscribe("work", client="c/2") == "s028412345683"


def test_of_the_last_subscriptions_each_is_answered_again_to_who_asks_again(world):
    world.queue("work", "orders")
    world.now = 1_767_225_600_000 + 28_412_345_678
    known = []
    for number in range(40):
        world.now += 7 * number
        known.append(world.subscribe("work", client=f"c/{number}"))
    world.mark()

    assert [world.subscribe("work", client=f"c/{number}") for number in range(8, 40)] == known[8:]
    assert world.changes() == {}
    assert known == sorted(set(known))
