"""take: what is picked up, in which order, by whom; what it carries; what it no longer hands out."""

from __future__ import annotations

import pytest
from judged import texts
from world import came_back, ref

from ampsq.base.errors import UnknownSubscription


def test_take_by_an_unknown_subscription_is_refused_and_its_acknowledgements_are_not_done(world):
    world.queue("work", "orders")
    world.publish("orders", "one")
    (message,) = world.take(world.subscribe("work"))
    world.mark()

    with pytest.raises(UnknownSubscription) as refusal:
        world.take("s00000009", acks=[message])

    assert refusal.value.detail == {"subscription": "s00000009"}
    assert world.changes() == {}


def test_take_leases_what_waits_in_the_log(world):
    world.queue("work", "orders", lease=5_000)
    world.publish("orders", "one", "two", "three")
    subscription = world.subscribe("work", asked=4)
    world.now = 2_000
    world.mark()

    first, second = world.take(subscription, 2)

    assert first == ("work", "1", 1, 7_000, "b", ref("1000-0"), {}, "one")
    assert second == ("work", "2", 1, 7_000, "b", ref("1000-1"), {}, "two")
    assert world.changes() == {
        ":q:work": {"token": "2"},
        ":q:work:cursors": {"orders": "1000-1 2"},
        ":q:work:leases": {
            ref("1000-0"): f"1 {subscription} 1 7000 5000",
            ref("1000-1"): f"2 {subscription} 1 7000 5000",
        },
        ":q:work:free:none": {subscription: 0.5},
        f":s:{subscription}": {"leased": "2"},
        ":due": {"leases work": 7_000.0, "dispatch work": 2_000.0},
    }


def test_take_of_nothing_changes_nothing(world):
    world.queue("work", "orders")
    subscription = world.subscribe("work", asked=4)
    world.mark()

    assert world.take(subscription, 4) == []
    assert world.take(subscription, 0) == []
    assert world.changes() == {}


def test_the_last_message_of_a_topic_takes_it_off_what_is_behind(world):
    world.queue("work", "orders", pattern=True)
    world.publish("orders", "one")
    subscription = world.subscribe("work", asked=4)
    world.mark()

    world.take(subscription, 4)

    assert world.changes()[":q:work:behind"] is None
    assert ":due" not in world.changes()


def test_a_full_subscription_takes_nothing(world):
    world.queue("work", "orders")
    world.publish("orders", "one", "two")
    subscription = world.subscribe("work", asked=1)
    world.take(subscription, 5)
    world.mark()

    assert world.take(subscription, 5) == []
    assert world.changes() == {}


def test_acknowledgements_are_carried_and_their_room_is_used_at_once(world):
    world.queue("work", "orders")
    world.publish("orders", "one", "two", "three")
    subscription = world.subscribe("work", asked=2)
    held = world.take(subscription, 2)
    world.mark()

    messages = world.take(subscription, 2, acks=held)

    assert texts(messages) == ["three"]
    changes = world.changes()
    assert changes[":q:work:leases"] == {
        held[0].ref: None,
        held[1].ref: None,
        ref("1000-2"): f"3 {subscription} 1 0 0",
    }
    assert changes[f":s:{subscription}"] == {"leased": "1"}
    assert changes[":q:work:free:none"] == {subscription: 0.5}
    assert changes[":q:work:journal"] == [
        {"how": "acknowledged", "reason": "", "refs": f"{held[0].ref} {held[1].ref}", "by": subscription}
    ]


def test_a_late_acknowledgement_is_answered_beside_the_messages(world):
    world.queue("work", "orders", lease=5_000)
    world.publish("orders", "one")
    subscription = world.subscribe("work", asked=1)
    (message,) = world.take(subscription)
    world.now = 6_000
    world.sweep_all()

    messages, refused = world.take_whole(subscription, 1, acks=[message])

    assert [(m.ref, m.delivery) for m in messages] == [(message.ref, 2)]
    assert refused == {message.ref: "AMPSQ_STALE_LEASE"}
    assert world.take_whole(subscription, 1, acks=messages) == ([], {})
    assert world.take_whole(subscription, 1, acks=messages) == ([], {message.ref: "AMPSQ_ALREADY_ACKED"})


def test_acknowledgements_for_a_queue_that_is_not_there_are_passed_over(world):
    world.queue("work", "orders")
    subscription = world.subscribe("work")
    world.mark()

    assert world.take_whole(subscription, 1, acks={"nowhere": [("d1000a0/orders", "1")]}) == ([], {})
    assert world.changes() == {}


def test_an_inbox_comes_before_what_waits_and_in_its_own_order(world):
    world.queue("work", "orders")
    subscription = world.subscribe("work", asked=3)
    world.publish("orders", "one", "two")
    world.queue("idle", "others")
    world.publish("orders", "three", "four")
    world.mark()

    assert texts(world.take(subscription, 2)) == ["one", "two"]
    assert len(world.changes()[f":s:{subscription}:inbox"]) == 2
    assert texts(world.take(subscription, 5)) == ["three"]


def test_an_inbox_hands_out_only_what_is_still_leased_under_its_token(world):
    world.queue("work", "orders", lease=5_000)
    subscription = world.subscribe("work", asked=1)
    world.publish("orders", "one")
    world.settle("acknowledged", {"work": [(ref("1000-0"), "")]})
    assert [m.token for m in world.inbox(subscription)] == ["1"]
    world.mark()

    assert world.take(subscription, 5) == []

    assert world.changes() == {f":s:{subscription}:inbox": None}


def test_what_lapses_in_an_inbox_leaves_it_and_was_never_delivered(world):
    world.queue("work", "orders", lease=5_000, deliveries=2)
    subscription = world.subscribe("work", asked=2)
    world.publish("orders", "one", "two")
    (picked_up,) = world.take(subscription, 1)
    for world.now in (6_000, 12_000, 18_000):
        world.sweep_all()
        assert len(world.inbox(subscription)) == 2
    state = world.state()

    # What was picked up once and lapsed is at its second delivery; the other is still at its first.
    assert state[":q:work:attempts"] == {picked_up.ref: f"1 0 lapsed {came_back((6_000, 'lapsed'))}"}
    assert {m.ref: m.delivery for m in world.inbox(subscription)} == {picked_up.ref: 2, ref("1000-1"): 1}
    assert ":q:work:journal" not in state


def test_a_large_body_pushed_by_reference_is_read_from_the_log_at_pick_up(world):
    world.queue("work", "orders")
    subscription = world.subscribe("work")
    world.run("publish", world.now, "orders", "", "", "bh", "x" * 20_000, '{"a":1}')

    (message,) = world.take(subscription)

    assert (message.kind, len(message.body), message.fields) == ("b", 20_000, {"h": '{"a":1}'})


def test_a_large_body_that_somebody_removed_meanwhile_is_journaled_as_missing(world):
    world.queue("work", "orders")
    subscription = world.subscribe("work", asked=1)
    world.publish("orders", "x" * 20_000, "two")
    world.store.redis.xdel(world.key(":log:orders"), "1000-0")
    world.mark()

    assert texts(world.take(subscription)) == ["two"]

    changes = world.changes()
    assert changes[":q:work:leases"] == {ref("1000-0"): None, ref("1000-1"): f"2 {subscription} 1 0 0"}
    assert changes[":q:work:journal"] == [{"how": "missing", "reason": "", "refs": ref("1000-0")}]
    assert changes[":q:work"] == {"missing": "1", "token": "2"}


def test_a_ready_message_that_somebody_removed_is_journaled_as_missing_and_the_next_is_delivered(world):
    world.queue("work", "orders")
    world.publish("orders", "one", "two", "three")
    first = world.subscribe("work", asked=3)
    world.settle("cancelled", world.take(first, 2), period=10)
    world.unsubscribe(first)
    world.now = 2_000
    world.sweep_all()
    world.store.redis.xdel(world.key(":log:orders"), "1000-0")
    second = world.subscribe("work", asked=1)
    world.mark()

    assert texts(world.take(second)) == ["two"]

    changes = world.changes()
    assert changes[":q:work:journal"] == [{"how": "missing", "reason": "", "refs": ref("1000-0")}]
    assert changes[":q:work:ready"] == {ref("1000-0"): None, ref("1000-1"): None}
    assert changes[":q:work:attempts"] == {ref("1000-0"): None}


def test_what_came_back_is_delivered_before_what_was_never_read(world):
    world.queue("work", "orders")
    world.publish("orders", "one", "two", "three", "four")
    subscription = world.subscribe("work", asked=2)
    held = world.take(subscription, 2)
    world.unsubscribe(subscription, held=reversed(held))

    messages = world.take(world.subscribe("work", asked=3), 3)

    assert texts(messages) == ["one", "two", "three"]
    assert [message.delivery for message in messages] == [1, 1, 1]


def test_entries_of_others_are_delivered_as_they_are(world):
    world.queue("work", "orders")
    world.xadd("orders", "5000-0", "price", "12", "text", "a\nb")
    world.xadd("orders", "5000-1", "x", "y", "b", "the body")
    world.run("scan_foreign_entries", world.now, "orders", "")
    subscription = world.subscribe("work", asked=5)

    foreign, ours = world.take(subscription, 5)

    assert (foreign.kind, foreign.fields, foreign.body) == ("f", {"price": "12", "text": "a\nb"}, "")
    assert (ours.kind, ours.fields, ours.body) == ("b", {"x": "y"}, "the body")


def test_topics_are_merged_in_the_order_of_publication(world):
    world.queue("work", "orders", "returns", "claims")
    expected = []
    for number in range(60):
        topic = ("orders", "returns", "claims")[number * number % 3]
        world.now += number % 2
        world.publish(topic, str(number))
        expected.append(str(number))
    subscription = world.subscribe("work", asked=100)

    assert texts(world.take(subscription, 7)) == expected[:7]
    assert texts(world.take(subscription, 100)) == expected[7:]
    assert ":q:work:behind" not in world.state()


def test_more_than_32_topics_behind_at_once_are_merged_in_the_order_of_publication(world):
    topics = [f"t{number:02}" for number in range(80)]
    world.queue("work", *topics, target="t00")
    expected = []
    for round_ in range(3):
        for number, topic in enumerate(reversed(topics)):
            world.now += 1
            body = f"{round_}.{number}"
            world.publish(topic, body)
            expected.append(body)
    subscription = world.subscribe("work", asked=1_000)

    assert texts(world.take(subscription, 45)) == expected[:45]
    assert texts(world.take(subscription, 500)) == expected[45:]


def test_bytes_end_a_batch_and_the_rest_is_left_to_the_timetable(world):
    world.queue("work", "orders")
    for number in range(12):
        world.publish("orders", chr(97 + number) * 200_000)
    subscription = world.subscribe("work", asked=12)

    messages = world.take(subscription, 12)

    assert len(messages) == 5
    assert world.state()[":due"] == {"dispatch work": 1_000.0}
    while len(messages) < 12:
        more = world.take(subscription, 12)
        assert more
        messages += more
    assert [message.body[0] for message in messages] == list("abcdefghijkl")


def test_an_inbox_of_large_bodies_is_handed_out_in_several_calls(world):
    world.queue("work", "orders")
    subscription = world.subscribe("work", asked=12)
    for number in range(12):
        world.publish("orders", chr(97 + number) * 200_000)

    messages = world.take(subscription, 12)
    assert len(messages) == 5
    while more := world.take(subscription, 12):
        messages += more
    assert [message.body[0] for message in messages] == list("abcdefghijkl")


def test_the_queues_own_backlog_bounds_all_subscriptions_together(world):
    world.queue("work", "orders", backlog=3)
    world.publish("orders", *"abcdef")
    one, two = world.subscribe("work", asked=2), world.subscribe("work", asked=2)

    held = world.take(one, 2) + world.take(two, 2)

    assert len(world.holders("work")) == 3
    world.sweep_all()
    assert len(world.holders("work")) == 3
    assert world.settle("acknowledged", held[:2]) == {}
    assert len(world.holders("work")) == 3


def test_a_place_under_the_queues_backlog_goes_to_others_when_its_holder_takes_no_more(world):
    world.queue("work", "orders", backlog=1)
    world.publish("orders", "one", "two")
    one = world.subscribe("work", asked=1)
    held = world.take(one, 1)
    two = world.subscribe("work", asked=1)
    world.run("resize_backlog", world.now, one, 0)

    world.take(one, 0, acks=held)

    assert world.holders("work") == {ref("1000-1"): two}


def test_one_backlog_holds_over_several_queues(world):
    world.queue("work", "orders")
    world.queue("mail", "letters")
    world.publish("orders", "one", "two")
    world.publish("letters", "dear", "sir")
    subscription = world.subscribe("work", "mail", asked=3)

    messages = world.take(subscription, 9)

    assert texts(messages) == ["one", "two", "dear"]
    assert world.state()[f":s:{subscription}"]["leased"] == "3"
    assert ":q:work:free:none" not in world.state()
    assert ":q:mail:free:none" not in world.state()
    assert texts(world.take(subscription, 9, acks=messages[:1])) == ["sir"]
    assert world.state()[":q:work:journal"] == [
        {"how": "acknowledged", "reason": "", "refs": messages[0].ref, "by": subscription}
    ]


def test_at_most_once_a_message_is_journaled_with_its_delivery(world):
    world.queue("work", "orders", once=1, fairness="round-robin")
    world.publish("orders", "one", "two")
    subscription = world.subscribe("work", asked=2)
    world.mark()

    messages = world.take(subscription, 2)

    changes = world.changes()
    assert changes[":q:work:journal"] == [
        {"how": "delivered", "reason": "", "refs": f"{ref('1000-0')} {ref('1000-1')}"}
    ]
    assert changes[":q:work"] == {"delivered": "2", "token": "2"}
    assert texts(messages) == ["one", "two"]


def test_tokens_rise_by_one_with_each_delivery(world):
    world.queue("work", "orders")
    world.publish("orders", *map(str, range(20)))
    subscription = world.subscribe("work", asked=20)

    tokens = [m.token for _ in range(4) for m in world.take(subscription, 5)]

    assert tokens == [str(n) for n in range(1, 21)]


def test_a_take_that_serves_somebody_better_leaves_its_own_message_to_the_timetable(world):
    world.queue("work", "orders")
    world.publish("orders", "one", "two")
    first, second = world.subscribe("work", asked=1), world.subscribe("work", asked=1)

    assert world.take(second, 1) == []
    world.sweep_all()

    assert texts(world.inbox(first)) == ["one"]
    assert texts(world.inbox(second)) == ["two"]
