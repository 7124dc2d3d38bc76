"""Leases in runs: one record for what a subscription was given at once, whatever becomes of its messages."""

from __future__ import annotations

import json

import pytest
from world import ref

from ampsq.protocol.limits import RETURNED

COUNT = 6


@pytest.fixture
def taken(world):
    """Six messages that a subscription took in one run; `world.subscription` and `world.messages`."""
    world.queue("work", "orders", lease=5_000)
    world.publish("orders", *map(str, range(COUNT)))
    world.runs = True
    world.subscription = world.subscribe("work", asked=COUNT)
    world.messages = world.take(world.subscription, COUNT)
    world.mark()
    return world


def kept(world):
    """Return the runs that there are: their number, and the masks."""
    redis = world.store.redis
    refs = redis.hgetall(world.key(":q:work:run_refs"))
    masks = [value.decode() for name, value in refs.items() if name.endswith(b" m")]
    return redis.zcard(world.key(":q:work:runs")), masks


def acknowledge(world, parts="", by=None, wanted=0):
    """Acknowledge messages of the run, `first last` from 1 on; gives what is refused."""
    first = world.messages[0]
    text = f"{first.ref} {first.token}{' ' * bool(parts)}{parts}"
    _, refused, _ = world.run("take", world.now, by or world.subscription, f"{wanted} run", "work", "run", text)
    return dict(zip(refused[::2], refused[1::2], strict=True))


def push_again(world, held, cursor="0"):
    """Push again what is leased to the subscription and has none of these tokens."""
    while (cursor := world.run("push_again", world.now, world.subscription, "work", cursor, *held)) != "0":
        pass


def settled(world):
    """The refs of the journal."""
    return [each for entry in world.state().get(":q:work:journal", []) for each in entry["refs"].split(" ")]


def test_a_run_is_one_record_and_says_of_each_message_what_a_lease_says(taken):
    first, *_, last = taken.messages
    assert first == ("work", "1", 1, 6_000, "b", ref("1000-0"), {}, "0")
    assert last == ("work", str(COUNT), 1, 6_000, "b", ref(f"1000-{COUNT - 1}"), {}, str(COUNT - 1))
    assert kept(taken) == (1, [])
    redis = taken.store.redis
    assert redis.hlen(taken.key(":q:work:leases")) == 1
    assert redis.hgetall(taken.key(":q:work:run_refs")) == {b"1": " ".join(m.ref for m in taken.messages).encode()}


def test_all_of_it_is_acknowledged_with_one_entry_of_the_journal(taken):
    assert acknowledge(taken) == {}

    assert kept(taken) == (0, [])
    changes = taken.changes()
    assert changes[":q:work:leases"] is None
    assert changes[":q:work"] == {"acknowledged": str(COUNT)}
    (entry,) = changes[":q:work:journal"]
    assert entry["refs"] == " ".join(message.ref for message in taken.messages)
    assert changes[f":s:{taken.subscription}"] == {"leased": "0"}


def test_parts_of_it_are_acknowledged_in_any_order_until_nothing_is_left(taken):
    assert acknowledge(taken, "5 6 2 2") == {}
    assert kept(taken) == (1, ["010011"])
    assert acknowledge(taken, "1 1 3 4") == {}
    assert kept(taken) == (0, [])
    assert sorted(settled(taken)) == [message.ref for message in taken.messages]


def test_what_was_acknowledged_is_refused_the_second_time_while_the_rest_is_done(taken):
    acknowledge(taken, "2 3")

    refused = acknowledge(taken, "1 4")

    assert refused == {taken.messages[at].ref: "AMPSQ_ALREADY_ACKED" for at in (1, 2)}
    assert kept(taken) == (1, ["111100"])
    assert sorted(settled(taken)) == [message.ref for message in taken.messages[:4]]


@pytest.mark.parametrize("parts", ["", "1 6", "3 4"])
def test_a_run_that_is_over_is_to_be_named_one_by_one_and_nothing_changes(taken, parts):
    acknowledge(taken)
    taken.mark()

    assert acknowledge(taken, parts) == {"1": "run_over"}

    assert taken.changes() == {}


def test_another_subscription_acknowledges_nothing_of_it(taken):
    other = taken.subscribe("work")
    taken.mark()

    assert acknowledge(taken, by=other) == {"1": "run_over"}
    assert taken.changes() == {}
    assert set(taken.holders("work").values()) == {taken.subscription}


def test_tokens_are_checked_where_messages_are_named_one_by_one(taken):
    first, second = taken.messages[:2]
    refused = taken.settle("acknowledged", {"work": [(first.ref, second.token), (second.ref, second.token)]})

    assert refused == {first.ref: "AMPSQ_STALE_LEASE"}
    assert kept(taken) == (1, ["010000"])


@pytest.mark.parametrize(
    ("verb", "state"),
    [("cancelled", ":q:work:ready"), ("given_back", ":q:work:ready"), ("expired", ":q:work:journal")],
)
def test_single_messages_of_it_are_settled_as_any_other(taken, verb, state):
    taken.settle("extended", [taken.messages[5]], period=60_000)
    chosen = [taken.messages[1], taken.messages[4]]
    nobody = taken.subscribe("work", asked=0)
    assert taken.unsubscribe(nobody) == 0
    taken.store.redis.hset(taken.key(f":s:{taken.subscription}"), "max", 0)
    taken.mark()

    assert taken.settle(verb, chosen) == {}

    changes = taken.changes()
    assert changes[":q:work:leases"] == {message.ref: None for message in chosen}
    assert str(chosen[0].ref) in str(changes[state])
    assert kept(taken) == (1, ["010011"])


def test_what_is_extended_survives_the_rest_and_is_settled_by_its_token(taken):
    assert taken.settle("extended", [taken.messages[2]], period=60_000) == {}
    assert kept(taken) == (1, ["001000"])
    # The client does not know that: it names the whole run.
    taken.mark()
    assert acknowledge(taken) == {}
    assert sorted(settled(taken)) == [message.ref for message in taken.messages]
    assert kept(taken) == (0, [])


def test_all_are_extended_and_all_are_acknowledged(taken):
    taken.settle("extended", taken.messages, period=60_000)
    assert kept(taken) == (0, [])
    assert taken.holders("work") == {message.ref: taken.subscription for message in taken.messages}

    assert acknowledge(taken) == {"1": "run_over"}
    assert taken.take(taken.subscription, 0, taken.messages) == []
    assert taken.holders("work") == {}


def test_what_is_left_of_it_lapses_and_what_was_settled_or_extended_does_not(taken):
    acknowledge(taken, "1 2")
    taken.settle("extended", [taken.messages[3]], period=60_000)
    taken.now = 6_000
    taken.mark()
    taken.store.redis.hset(taken.key(f":s:{taken.subscription}"), "max", 0)

    taken.sweep_all()

    lapsed = [taken.messages[at].ref for at in (2, 4, 5)]
    state = taken.state()
    assert sorted(state[":q:work:ready"]) == lapsed
    assert sorted(state[":q:work:attempts"]) == lapsed
    assert list(state[":q:work:leases"]) == [taken.messages[3].ref]
    assert kept(taken) == (0, [])


def test_it_goes_back_when_its_holder_is_gone(taken):
    taken.unsubscribe(taken.subscription)
    taken.sweep_all()

    assert sorted(taken.state()[":q:work:ready"]) == [message.ref for message in taken.messages]
    assert kept(taken) == (0, [])
    again = taken.take(taken.subscribe("work", asked=COUNT), COUNT)
    assert [(message.body, message.delivery) for message in again] == [(str(n), 2) for n in range(COUNT)]
    # What came back has leases of its own.
    assert kept(taken) == (0, [])


def test_thousands_lapse_in_bounded_steps(world):
    world.runs = True
    world.queue("work", "orders", lease=5_000, room=5_000)
    for _ in range(8):
        world.publish("orders", *["x"] * 400)
    subscription = world.subscribe("work", asked=3_200)
    while len(world.holders("work")) < 3_200:
        world.take(subscription, 400)
    assert kept(world)[0] == 8
    world.now = 6_000
    world.store.redis.hset(world.key(f":s:{subscription}"), "max", 0)

    steps, left = 0, 3_200
    while left:
        world.sweep()
        now = len(world.holders("work"))
        assert left - now <= RETURNED
        steps, left = steps + 1, now
        assert steps < 20
    assert len(world.state()[":q:work:ready"]) == 3_200


def test_ids_of_different_lengths_are_kept_and_found(world):
    world.runs = True
    world.queue("work", "orders", lease=5_000)
    world.publish("orders", *map(str, range(12)))
    subscription = world.subscribe("work", asked=12)
    messages = world.take(subscription, 12)
    assert kept(world)[0] == 1
    world.messages, world.subscription = messages, subscription

    assert world.settle("cancelled", [messages[9], messages[10]], period=900) == {}
    assert acknowledge(world, "10 12") == {
        messages[9].ref: "AMPSQ_STALE_LEASE",
        messages[10].ref: "AMPSQ_STALE_LEASE",
    }
    assert acknowledge(world, "1 9") == {}
    assert sorted(settled(world)) == sorted(message.ref for message in [*messages[:9], messages[11]])
    assert kept(world) == (0, [])


def test_an_administrator_settles_what_is_leased_in_it_by_its_bookmark(taken):
    assert taken.settle("acknowledged", {"work": [(taken.messages[4].ref, "")]}) == {}
    assert kept(taken) == (1, ["000010"])


def test_after_a_lost_reply_it_is_pushed_again_without_what_is_held(taken):
    held = taken.messages[2]
    push_again(taken, [held.token])
    again = taken.take(taken.subscription, COUNT)
    assert again == [message for message in taken.messages if message != held]
    assert acknowledge(taken) == {}


def test_what_is_pushed_again_of_it_has_leases_of_its_own_which_count_for_nothing_where_nobody_picks_it_up(taken):
    held = taken.messages[2]
    push_again(taken, [held.token])
    assert kept(taken) == (1, ["110111"])

    taken.now = 6_000
    taken.sweep_all()

    again = {message.ref: message.delivery for message in taken.take(taken.subscription, COUNT)}
    assert again == {message.ref: 2 if message == held else 1 for message in taken.messages}


@pytest.mark.parametrize(("numbers", "taken_in_runs"), [({}, 1), ({"once": 1}, 0)])
def test_only_what_can_be_a_run_is_one(world, numbers, taken_in_runs):
    world.runs = True
    world.queue("work", "orders", lease=5_000, **numbers)
    world.publish("orders", "one", "two")
    assert len(world.take(world.subscribe("work", asked=4), 4)) == 2
    assert kept(world)[0] == taken_in_runs


def test_a_subscription_with_a_filter_has_runs_with_gaps_and_what_is_between_goes_to_others(world):
    # Given messages of which every second one matches a filter
    world.runs = True
    world.queue("work", "orders", lease=5_000)
    world.publish("orders", *(json.dumps({"n": number}) for number in range(12)))
    asking = world.subscribe("work", asked=4, filter="/n % 2 = 0")

    def taken_by(subscription, wanted):
        return {json.loads(message.body)["n"]: message for message in world.take(subscription, wanted)}

    # When it takes some, and another subscription takes the rest in two calls
    even = taken_by(asking, 4)
    assert list(even) == [0, 2, 4, 6]
    assert kept(world)[0] == 1
    plain = world.subscribe("work", asked=8)
    others = taken_by(plain, 3) | taken_by(plain, 5)
    assert sorted(others) == [1, 3, 5, 7, 8, 9, 10, 11]

    # Then each message is held by who was given it, under its token
    assert world.holders("work") == {
        message.ref: holder for some, holder in ((even, asking), (others, plain)) for message in some.values()
    }
    assert len({message.token for some in (even, others) for message in some.values()}) == 12

    # And a message of a run is acknowledged, cancelled and extended as any other, by its token alone
    for verb, period in (("cancelled", 0), ("extended", 9_000), ("acknowledged", 0)):
        message = even.pop(next(iter(even)))
        stale = world.run("settle", world.now, verb, period, asking, "work", 1, message.ref, "999")
        assert stale[::2] == [message.ref]
        assert world.run("settle", world.now, verb, period, asking, "work", 1, message.ref, message.token) == []
    for subscription, some in ((asking, even), (plain, others)):
        refs, tokens = [m.ref for m in some.values()], [m.token for m in some.values()]
        assert world.run("settle", world.now, "acknowledged", 0, subscription, "work", len(refs), *refs, *tokens) == []
    assert kept(world)[0] == 0


@pytest.fixture
def prioritised(world):
    """Two subscriptions that took six and four messages of ten by their priorities; priority -> message of each."""
    world.runs = True
    world.queue("work", "orders", lease=5_000, priority="/n")
    # In the log 0 5 1 6 2 7 ..., so that each of both runs has messages on both sides of one of the other
    world.publish("orders", *(json.dumps({"n": number // 2 + 5 * (number % 2)}) for number in range(10)))

    def taken_by(subscription, wanted):
        return {json.loads(message.body)["n"]: message for message in world.take(subscription, wanted)}

    world.first = world.subscribe("work", asked=6)
    world.high = taken_by(world.first, 6)
    world.second = world.subscribe("work", asked=4)
    world.low = taken_by(world.second, 4)
    world.messages = list(world.high.values())
    return world


def test_what_a_priority_orders_is_a_run_in_the_order_in_which_it_was_given(prioritised):
    assert (list(prioritised.high), list(prioritised.low)) == ([9, 8, 7, 6, 5, 4], [3, 2, 1, 0])
    assert kept(prioritised) == (2, [])
    assert prioritised.holders("work") == {
        message.ref: holder
        for some, holder in ((prioritised.high, prioritised.first), (prioritised.low, prioritised.second))
        for message in some.values()
    }


def test_runs_that_overlap_are_acknowledged_whole_and_in_parts(prioritised):
    assert acknowledge(prioritised, "2 3 6 6", by=prioritised.first) == {}
    assert kept(prioritised) == (2, ["011001"])
    assert settled(prioritised) == [prioritised.high[n].ref for n in (8, 7, 4)]
    assert acknowledge(prioritised, by=prioritised.first) == {
        prioritised.high[n].ref: "AMPSQ_ALREADY_ACKED" for n in (8, 7, 4)
    }
    assert kept(prioritised) == (1, [])
    prioritised.messages = list(prioritised.low.values())
    assert acknowledge(prioritised, by=prioritised.second) == {}
    assert kept(prioritised) == (0, [])
    assert acknowledge(prioritised, by=prioritised.second) == {prioritised.messages[0].token: "run_over"}


@pytest.mark.parametrize("verb", ["acknowledged", "cancelled", "expired", "extended", "given_back"])
def test_messages_of_runs_that_overlap_are_found_by_their_refs_and_tokens(prioritised, verb):
    for subscription in (prioritised.first, prioritised.second):
        prioritised.store.redis.hset(prioritised.key(f":s:{subscription}"), "max", 0)
    holders = prioritised.holders("work")
    for subscription, message in ((prioritised.second, prioritised.low[1]), (prioritised.first, prioritised.high[6])):
        stale = prioritised.run("settle", prioritised.now, verb, 9_000, subscription, "work", 1, message.ref, "999")
        assert stale == [message.ref, "AMPSQ_STALE_LEASE"]
        one = ("work", 1, message.ref, message.token)
        assert prioritised.run("settle", prioritised.now, verb, 9_000, subscription, *one) == []
        if verb != "extended":
            del holders[message.ref]
        assert prioritised.holders("work") == holders
    assert sorted(kept(prioritised)[1]) == ["000100", "0010"]


def test_runs_that_overlap_lapse_and_return_by_their_priorities(prioritised):
    acknowledge(prioritised, "1 1", by=prioritised.first)
    for subscription in (prioritised.first, prioritised.second):
        prioritised.store.redis.hset(prioritised.key(f":s:{subscription}"), "max", 0)
    prioritised.now = 6_000
    prioritised.sweep_all()

    assert kept(prioritised) == (0, [])
    again = prioritised.take(prioritised.subscribe("work", asked=10), 10)
    assert [(json.loads(message.body)["n"], message.delivery) for message in again] == [
        (n, 2) for n in range(8, -1, -1)
    ]


def test_a_message_that_was_given_back_may_be_in_a_second_run_while_the_first_is_held(prioritised):
    # When two messages of a run go back uncounted, and are given to another subscription in one run
    back = [prioritised.high[9], prioritised.high[5]]
    third = prioritised.subscribe("work", asked=0)
    prioritised.store.redis.hset(prioritised.key(f":s:{prioritised.first}"), "max", 0)
    assert prioritised.settle("given_back", back, by=prioritised.first) == {}
    prioritised.store.redis.hset(prioritised.key(f":s:{third}"), "max", 5)
    again = prioritised.take(third, 5)
    assert [(message.ref, message.delivery) for message in again] == [(message.ref, 1) for message in back]
    assert sorted(kept(prioritised)[1]) == ["100010"]
    assert kept(prioritised)[0] == 3

    # Then only its new holder has it
    refused = acknowledge(prioritised, by=prioritised.first)
    assert refused == {message.ref: "AMPSQ_STALE_LEASE" for message in back}
    prioritised.messages = again
    assert acknowledge(prioritised, by=third) == {}
    assert set(prioritised.holders("work").values()) == {prioritised.second}


def test_beyond_two_thousand_leased_ones_what_a_priority_orders_is_leased_singly(world):
    world.runs = True
    world.queue("work", "orders", lease=5_000, priority="/n", room=5_000)
    for _ in range(6):
        world.publish("orders", *(json.dumps({"n": number % 7}) for number in range(400)))
    subscription, messages = world.subscribe("work", asked=5_000), []
    while len(messages) < 2_400:
        messages += world.take(subscription, 400)
    assert kept(world)[0] == 5
    assert world.store.redis.hlen(world.key(":q:work:leases")) == 401
    assert len(world.holders("work")) == 2_400
    world.store.redis.hset(world.key(f":s:{subscription}"), "max", 0)
    assert world.settle("cancelled", [messages[3], messages[1_999], messages[2_300]]) == {}
    assert len(world.holders("work")) == 2_397


def test_one_message_or_one_with_fields_of_its_own_has_a_lease_of_its_own(world):
    world.runs = True
    world.queue("work", "orders", lease=5_000)
    world.publish("orders", "one")
    world.store.redis.xadd(world.key(":log:orders"), {"b": "two", "h": "{}"})
    world.store.redis.xadd(world.key(":log:orders"), {"b": "three"})
    subscription = world.subscribe("work", asked=1)
    assert [message.body for message in world.take(subscription, 1)] == ["one"]
    assert len(world.take(world.subscribe("work", asked=4), 4)) == 2
    assert kept(world)[0] == 0
    assert len(world.holders("work")) == 3


@pytest.mark.parametrize("topic", ["orders-2024-7", "a%1b", "7-7/x"])
@pytest.mark.parametrize("number", [5, 12])
def test_refs_of_a_run_name_their_messages_whatever_the_topic_is_called(world, topic, number):
    world.runs = True
    world.queue("work", topic, lease=5_000)
    world.publish(topic, *map(str, range(number)))
    messages = world.take(world.subscribe("work", asked=number), number)

    assert kept(world)[0] == 1
    assert [message.ref for message in messages] == [ref(f"1000-{at}", topic) for at in range(number)]
    assert [message.body for message in messages] == list(map(str, range(number)))


@pytest.mark.parametrize("special", [1, 6, 11])
def test_where_one_of_many_has_fields_of_its_own_all_have_leases_of_their_own_and_their_order(world, special):
    world.runs = True
    world.queue("work", "orders", lease=5_000)
    log = world.key(":log:orders")
    for number in range(12):
        world.store.redis.xadd(
            log, {"b": str(number)} | ({"h": "{}"} if number == special else {}), id=f"1000-{number}"
        )
    messages = world.take(world.subscribe("work", asked=12), 12)

    assert kept(world)[0] == 0
    assert [message.body for message in messages] == list(map(str, range(12)))
    assert [message.ref for message in messages] == [ref(f"1000-{number}") for number in range(12)]
    assert sorted(world.holders("work")) == sorted(message.ref for message in messages)
